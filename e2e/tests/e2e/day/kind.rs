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

/// Which part of them may be lost to a fault in a minute, at most: half of the people are at home in the cluster that
/// is broken, for less than a minute.
const OF_PEOPLE: f64 = 0.5;

/// The same of those through the front wire: they are fewer, and what is under way breaks when it is cut, twice a
/// second.
const OF_THE_FRONT: f64 = 0.25;

/// The same of what needs one cluster, all of it: where that refuses at once there are many more than while it answers;
/// of watches that last a few end in a minute.
const OF_ONE_CLUSTER: f64 = 1.0;

/// Each kind in order, its name for people, which part of them may be lost to a fault in a minute, at most, and how
/// many are answered in one, at least: a tenth of what there are of the rarest, on a machine that has nothing else to
/// do. Logs and exec take seconds each, and some faults leave a quarter of the minute.
const TABLE: [(Kind, &str, f64, u64); 19] = [
    (Kind::Get, "get", OF_PEOPLE, 18),
    (Kind::GetAtCluster, "get at the cluster", OF_PEOPLE, 18),
    (Kind::GetOfAnothers, "get of another's", OF_PEOPLE, 18),
    (Kind::List, "list", OF_PEOPLE, 18),
    (Kind::ListOfAll, "list of all", OF_PEOPLE, 18),
    (Kind::Pages, "pages", OF_PEOPLE, 18),
    (Kind::Table, "table", OF_PEOPLE, 18),
    (Kind::Watch, "watch", OF_PEOPLE, 18),
    (Kind::Review, "review", OF_THE_FRONT, 18),
    (Kind::Write, "write", OF_PEOPLE, 18),
    (Kind::BystanderGet, "bystander's get", OF_THE_FRONT, 6),
    (Kind::BystanderList, "bystander's list", OF_THE_FRONT, 6),
    (Kind::BystanderPages, "bystander's pages", OF_THE_FRONT, 6),
    (Kind::BystanderTable, "bystander's table", OF_THE_FRONT, 6),
    (Kind::BystanderWatch, "bystander's watch", OF_THE_FRONT, 6),
    (Kind::Logs, "logs", OF_ONE_CLUSTER, 1),
    (Kind::Exec, "exec", OF_ONE_CLUSTER, 1),
    (Kind::BriefClient, "brief client", OF_THE_FRONT, 18),
    (Kind::IdleWatch, "idle watch", OF_ONE_CLUSTER, 0),
];

// A kind is found by its place.
const _: () = {
    let mut place = 0;
    while place < TABLE.len() {
        assert!(TABLE[place].0 as usize == place, "the table is in the order of the kinds");
        place += 1;
    }
    assert!(Kind::IdleWatch as usize + 1 == TABLE.len(), "the last kind is in the table");
};

impl Kind {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        TABLE.into_iter().map(|(kind, ..)| kind)
    }

    /// For people.
    pub(super) fn name(self) -> &'static str {
        self.row().1
    }

    /// Which part of them may be lost to a fault in a minute, at most.
    pub(super) fn lost_max(self) -> f64 {
        self.row().2
    }

    /// How many of them are answered in a minute, at least.
    pub(super) fn answered_min(self) -> u64 {
        self.row().3
    }

    fn row(self) -> (Self, &'static str, f64, u64) {
        TABLE[self as usize]
    }
}
