//! Kinds of requests, and the smallest number of answers of each kind in every minute. A fault may excuse single
//! failures, but not a minute without answers of a kind.

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

/// Largest share of failed requests per minute for the kinds of requests that users send. Half of the users have their
/// object in the broken cluster, and the fault lasts less than a minute.
const OF_PEOPLE: f64 = 0.5;

/// Largest share of failed requests through the front relay. Few requests use this relay, and each cut of its
/// connections (two per second) breaks the requests in flight.
const OF_THE_FRONT: f64 = 0.25;

/// Largest share of failed requests per minute for kinds that use only one cluster. All may fail, because a cluster
/// that refuses requests at once gets more requests than a healthy cluster, and because few watches end in a minute.
const OF_ONE_CLUSTER: f64 = 1.0;

/// Name of each kind, its largest share of failed requests in a minute, and its smallest number of answers in a minute.
/// The smallest number is a tenth of the answers on an idle machine. Logs and exec requests take seconds each, and some
/// faults leave only a quarter of the minute for requests.
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

// The table is indexed by the number of the kind, so its order must be the order of the kinds.
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

    pub(super) fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the largest share of requests of this kind that may fail in a minute.
    pub(super) fn lost_max(self) -> f64 {
        self.row().2
    }

    pub(super) fn answered_min(self) -> u64 {
        self.row().3
    }

    fn row(self) -> (Self, &'static str, f64, u64) {
        TABLE[self as usize]
    }
}
