//! Kinds of requests, and how much of each a minute has to answer, whatever is broken in it: what excuses single
//! requests must not excuse all of them.

/// What somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Get,
    GetAtCluster,
    GetOfAnothers,
    List,
    ListOfAll,
    Pages,
    Table,
    Watch,
    Review,
    Write,
    BystanderGet,
    BystanderList,
    BystanderPages,
    BystanderTable,
    BystanderWatch,
    Logs,
    Exec,
    BriefClient,
    IdleWatch,
}

impl Kind {
    pub(super) const ALL: [Self; 19] = [
        Self::Get,
        Self::GetAtCluster,
        Self::GetOfAnothers,
        Self::List,
        Self::ListOfAll,
        Self::Pages,
        Self::Table,
        Self::Watch,
        Self::Review,
        Self::Write,
        Self::BystanderGet,
        Self::BystanderList,
        Self::BystanderPages,
        Self::BystanderTable,
        Self::BystanderWatch,
        Self::Logs,
        Self::Exec,
        Self::BriefClient,
        Self::IdleWatch,
    ];

    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetAtCluster => "get at the cluster",
            Self::GetOfAnothers => "get of another's",
            Self::List => "list",
            Self::ListOfAll => "list of all",
            Self::Pages => "pages",
            Self::Table => "table",
            Self::Watch => "watch",
            Self::Review => "review",
            Self::Write => "write",
            Self::BystanderGet => "bystander's get",
            Self::BystanderList => "bystander's list",
            Self::BystanderPages => "bystander's pages",
            Self::BystanderTable => "bystander's table",
            Self::BystanderWatch => "bystander's watch",
            Self::Logs => "logs",
            Self::Exec => "exec",
            Self::BriefClient => "brief client",
            Self::IdleWatch => "idle watch",
        }
    }

    /// Which part of them may be lost to a fault in a minute, at most.
    pub(super) fn lost_max(self) -> f64 {
        match self {
            // Half of the people are at home in the cluster that is broken, for less than a minute.
            Self::Get
            | Self::GetAtCluster
            | Self::GetOfAnothers
            | Self::List
            | Self::ListOfAll
            | Self::Pages
            | Self::Table
            | Self::Watch
            | Self::Write => 0.5,
            // Those through the front wire are fewer, and what is under way breaks when it is cut, twice a second.
            Self::Review
            | Self::BystanderGet
            | Self::BystanderList
            | Self::BystanderPages
            | Self::BystanderTable
            | Self::BystanderWatch
            | Self::BriefClient => 0.25,
            // All of these need one cluster, and where it refuses at once there are many more than while it answers; of
            // watches that last a few end in a minute.
            Self::Logs | Self::Exec | Self::IdleWatch => 1.0,
        }
    }

    /// How many of them are answered in a minute, at least: a tenth of what there are of the rarest, on a machine that
    /// has nothing else to do.
    pub(super) fn answered_min(self) -> u64 {
        match self {
            Self::Get
            | Self::GetAtCluster
            | Self::GetOfAnothers
            | Self::List
            | Self::ListOfAll
            | Self::Pages
            | Self::Table
            | Self::Watch
            | Self::Review
            | Self::Write
            | Self::BriefClient => 18,
            Self::BystanderGet
            | Self::BystanderList
            | Self::BystanderPages
            | Self::BystanderTable
            | Self::BystanderWatch => 6,
            // They take seconds each, and some faults leave a quarter of the minute.
            Self::Logs | Self::Exec => 1,
            Self::IdleWatch => 0,
        }
    }
}
