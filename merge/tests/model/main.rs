//! Tests lists and watches against a model: clusters that change, replicas that read the changes in different orders,
//! and clients whose watches break at any event and resume at any replica. For each interleaving, a client's final
//! state equals the state of the clusters.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod world;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Shared};
use proptest::prelude::*;
use tributary_apimachinery::{ClusterName, Snapshot};
use tributary_merge::{ClusterSnapshots, CompositeResourceVersion, ListCursor, ListPage, LogConfig};
use world::{CLUSTERS, Holding, REPLICAS, Selector, World, cluster};

const CLIENTS: usize = 4;

#[derive(Clone, Debug)]
enum Op {
    Write {
        cluster: usize,
        key: usize,
        red: bool,
    },
    Delete {
        cluster: usize,
        key: usize,
    },
    /// Deletes objects at a single revision, as at the end of an etcd lease.
    Expire {
        cluster: usize,
        keys: [bool; KEYS.len()],
    },
    /// Advances the cluster's revision by a change of a resource that is not in the log.
    Elsewhere {
        cluster: usize,
    },
    Feed {
        replica: usize,
        cluster: usize,
        count: usize,
        bookmark: bool,
    },
    Relist {
        replica: usize,
        cluster: usize,
    },
    Join {
        cluster: usize,
    },
    Leave {
        cluster: usize,
    },
    Restore {
        cluster: usize,
        age: usize,
    },
    Pass {
        seconds: u64,
    },
    Open {
        client: usize,
        replica: usize,
        bookmarks: bool,
    },
    List {
        client: usize,
        replica: usize,
    },
    Pump {
        client: usize,
        max: usize,
    },
    Cut {
        client: usize,
        replica: usize,
        max: usize,
        keep: usize,
    },
    Bookmark {
        client: usize,
    },
    Remember {
        replica: usize,
    },
    Begin {
        replica: usize,
    },
}

fn op(boundaries: bool) -> impl Strategy<Value = Op> {
    let (c, r, w) = (0..CLUSTERS, 0..REPLICAS, 0..CLIENTS);
    prop_oneof![
        24 => (c.clone(), 0..5usize, any::<bool>()).prop_map(|(cluster, key, red)| Op::Write { cluster, key, red }),
        12 => (c.clone(), 0..5usize).prop_map(|(cluster, key)| Op::Delete { cluster, key }),
        3 => c.clone().prop_map(|cluster| Op::Elsewhere { cluster }),
        24 => (r.clone(), c.clone(), 1..6usize, any::<bool>())
            .prop_map(|(replica, cluster, count, bookmark)| Op::Feed { replica, cluster, count, bookmark }),
        5 => (c.clone(), any::<[bool; KEYS.len()]>()).prop_map(|(cluster, keys)| Op::Expire { cluster, keys }),
        3 => (r.clone(), c.clone()).prop_map(|(replica, cluster)| Op::Relist { replica, cluster }),
        2 => c.clone().prop_map(|cluster| Op::Leave { cluster }),
        4 => c.clone().prop_map(|cluster| Op::Join { cluster }),
        1 => (c, 0..4usize).prop_map(|(cluster, age)| Op::Restore { cluster, age }),
        4 => (1..40u64).prop_map(|seconds| Op::Pass { seconds }),
        3 => (w.clone(), r.clone(), any::<bool>()).prop_map(|(client, replica, bookmarks)| Op::Open { client, replica, bookmarks }),
        3 => (w.clone(), r.clone()).prop_map(|(client, replica)| Op::List { client, replica }),
        20 => (w.clone(), 1..8usize).prop_map(|(client, max)| Op::Pump { client, max }),
        12 => (w.clone(), r.clone(), 1..8usize, 0..8usize)
            .prop_map(|(client, replica, max, keep)| Op::Cut { client, replica, max, keep }),
        4 => w.prop_map(|client| Op::Bookmark { client }),
        4 => r.prop_map(|replica| Op::Remember { replica }),
    ]
    .prop_map(move |op| match op {
        _ if boundaries => op,
        Op::Relist { cluster, .. } | Op::Join { cluster } | Op::Leave { cluster } | Op::Restore { cluster, .. } => {
            Op::Elsewhere { cluster }
        }
        op => op,
    })
}

/// Generates a step of a run whose clients watch one namespace. In such runs, leases end more often than in other runs,
/// and replicas also restart.
fn namespace_op() -> impl Strategy<Value = Op> {
    let expire = (0..CLUSTERS, any::<[bool; KEYS.len()]>()).prop_map(|(cluster, keys)| Op::Expire { cluster, keys });
    prop_oneof![12 => op(true), 2 => expire, 1 => (0..REPLICAS).prop_map(|replica| Op::Begin { replica })]
}

struct Run {
    config: LogConfig,
    world: World,
    clients: Vec<Client>,
    shared: Vec<Shared>,
    /// The replica, composite version and state of each earlier list. `check_past` requests these states again.
    lists: Vec<(usize, CompositeResourceVersion, ClusterSnapshots)>,
}

impl Run {
    fn new(config: &LogConfig, holding: [Holding; REPLICAS]) -> Self {
        let world = World::new(config, holding);
        let selectors = match holding {
            [Holding::All, Holding::All] => {
                [Selector::Everything, Selector::Red, Selector::Namespace, Selector::RedOfTwo]
            }
            _ => [Selector::Namespace; CLIENTS],
        };
        let clients = selectors.into_iter().enumerate();
        let clients = clients.map(|(at, selector)| Client::open(&world.replicas[at % 2].log, at % 2, selector, at < 2));
        let clients = clients.collect();
        Self {
            config: config.clone(),
            world,
            clients,
            shared: (0..REPLICAS).map(|_| Shared::default()).collect(),
            lists: Vec::new(),
        }
    }

    fn step(&mut self, op: Op) {
        let world = &mut self.world;
        match op {
            Op::Write { cluster, key, red } => world.members[cluster].write(KEYS[key], red),
            Op::Delete { cluster, key } => world.members[cluster].delete(KEYS[key]),
            Op::Elsewhere { cluster } => world.members[cluster].revision += 1,
            Op::Expire { cluster, keys } => {
                let chosen: Vec<_> = KEYS.iter().zip(keys).filter(|(_, chosen)| *chosen).map(|(key, _)| *key).collect();
                world.members[cluster].expire(&chosen);
            }
            Op::Feed { replica, cluster, count, bookmark } => world.feed(replica, cluster, count, bookmark),
            Op::Relist { replica, cluster } => world.relist(replica, cluster),
            Op::Join { cluster } => world.join(cluster),
            Op::Leave { cluster } => world.leave(cluster),
            Op::Restore { cluster, age } => self.restore(cluster, age),
            Op::Pass { seconds } => world.pass(seconds),
            Op::Open { client, replica, bookmarks } => {
                self.clients[client].reopen(&world.replicas[replica].log, replica, bookmarks);
            }
            Op::List { client, replica } => self.clients[client].list(&world.replicas[replica].log, replica),
            Op::Pump { client, max } => drop(self.pump(client, max, usize::MAX)),
            Op::Cut { client, replica, max, keep } => {
                self.pump(client, max, keep);
                self.clients[client].reconnect(&self.world.replicas[replica].log, replica);
            }
            Op::Bookmark { client } => {
                let client = &mut self.clients[client];
                client.bookmark(&world.replicas[client.replica].log);
            }
            Op::Remember { replica } => {
                let log = &world.replicas[replica].log;
                self.lists.push((replica, log.resource_version(), log.latest().clone()));
            }
            Op::Begin { replica } => self.restart(replica),
        }
        self.check_past();
        self.check_names();
    }

    fn pump(&mut self, client: usize, max: usize, keep: usize) -> bool {
        let client = &mut self.clients[client];
        let replica = client.replica;
        client.pump(&self.world.replicas[replica].log, max, keep, &mut self.shared[replica])
    }

    fn restart(&mut self, replica: usize) {
        self.world.restart(replica, &self.config);
        self.shared[replica] = Shared::default();
        self.lists.retain(|(of, ..)| *of != replica);
        for client in self.clients.iter_mut().filter(|client| client.replica == replica) {
            client.reconnect(&self.world.replicas[replica].log, replica);
        }
    }

    fn restore(&mut self, index: usize, age: usize) {
        let Some(revision) = self.world.restore(index, age) else { return };
        for client in &mut self.clients {
            client.revisions_went_back();
        }
        let name = cluster(index);
        self.lists
            .retain(|(_, vector, _)| vector.get(&name).is_none_or(|component| component.revision().0 <= revision));
    }

    /// Checks that each past state that the log returns is exact. The log may return an error, because it evicts old
    /// states.
    fn check_past(&self) {
        for (replica, vector, heads) in &self.lists {
            if let Ok(snapshots) = self.world.replicas[*replica].log.snapshot_at(vector) {
                assert_eq!(contents(&snapshots), contents(heads));
                assert_eq!(CompositeResourceVersion::from_snapshots(&snapshots), *vector);
            }
        }
    }

    /// Checks that the log's index of names over all clusters finds the same objects as the snapshots.
    fn check_names(&self) {
        for log in self.world.replicas.iter().map(|replica| &replica.log) {
            let mut repeated = 0;
            for key in KEYS {
                let expected: Vec<_> =
                    log.latest().iter().filter(|(_, s)| s.get(key).is_some()).map(|(c, _)| c.clone()).collect();
                repeated += usize::from(expected.len() > 1);
                assert_eq!(log.find(key).into_iter().map(|(cluster, _)| cluster).collect::<Vec<_>>(), expected);
            }
            assert_eq!(log.repeated_names(), repeated);
            assert_eq!(log.objects(), log.latest().iter().map(|(_, snapshot)| snapshot.len()).sum::<usize>());
        }
    }

    fn finish(mut self) {
        self.world.feed_all();
        for client in &mut self.clients {
            let replica = client.replica;
            client.check_end(&self.world.replicas[replica].log, &mut self.shared[replica]);
        }
    }
}

const KEYS: [&str; 5] = ["n0/a", "n0/b", "n1/a", "n1/c", "n2/d"];

const ALL: [Holding; REPLICAS] = [Holding::All; REPLICAS];

fn contents(snapshots: &[(ClusterName, Snapshot)]) -> Vec<(ClusterName, String, u64)> {
    let objects = snapshots.iter().flat_map(|(cluster, snapshot)| snapshot.iter().map(move |object| (cluster, object)));
    objects.map(|(cluster, o)| (cluster.clone(), o.key().as_str().to_owned(), o.resource_version().0)).collect()
}

fn run(config: &LogConfig, holding: [Holding; REPLICAS], ops: Vec<Op>, exactly_once: bool) {
    let mut run = Run::new(config, holding);
    for client in &mut run.clients {
        client.exactly_once = exactly_once;
        client.moves_between_scopes = holding != ALL;
    }
    for op in ops {
        run.step(op);
    }
    run.finish();
}

/// Reads the number of cases from PROPTEST_CASES. The default of 300 cases takes a second for each property.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300);
    ProptestConfig { cases, ..ProptestConfig::default() }
}

fn short_history() -> LogConfig {
    LogConfig { history_bytes_max: 4096, history_age_max: Duration::from_secs(60), history_entries_min: 3 }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn resuming_watches_converge_to_the_state_of_the_clusters(ops in prop::collection::vec(op(true), 0..160)) {
        run(&LogConfig::default(), ALL, ops, false);
    }

    #[test]
    fn watches_of_a_namespace_converge_across_namespaced_and_full_event_logs(
        holding in prop::array::uniform2(prop::sample::select(vec![Holding::All, Holding::PartOfAll, Holding::Namespace])),
        is_history_short: bool,
        ops in prop::collection::vec(namespace_op(), 0..160),
    ) {
        let config = if is_history_short { short_history() } else { LogConfig::default() };
        run(&config, holding, ops, false);
    }

    #[test]
    fn resuming_watches_converge_if_the_event_log_keeps_little_history(ops in prop::collection::vec(op(true), 0..160)) {
        run(&short_history(), ALL, ops, false);
    }

    #[test]
    fn resuming_watches_receive_no_event_twice_if_no_cluster_is_relisted(ops in prop::collection::vec(op(false), 0..160)) {
        run(&LogConfig::default(), ALL, ops, true);
    }

    #[test]
    fn pages_and_chunks_together_equal_the_whole_list(
        objects in prop::collection::btree_map((0..CLUSTERS, 0..20usize), any::<bool>(), 0..50),
        limit in 1..9usize,
        bytes_max in 1..2000usize,
        selector in prop::sample::select(vec![Selector::Everything, Selector::Red, Selector::Namespace]),
    ) {
        let mut heads: Vec<(ClusterName, Snapshot)> = (0..CLUSTERS).map(|at| (cluster(at), Snapshot::default())).collect();
        for (version, ((at, key), red)) in objects.iter().enumerate() {
            heads[*at].1.insert(world::object(&format!("n{}/x{key}", key % 3), version as u64 + 1, 1, *red));
        }
        let heads: ClusterSnapshots = Arc::new(heads);
        let expected: Vec<_> = {
            let mut all = Vec::new();
            let mut cursor = ListCursor::new(heads.clone(), selector, ListPage::default());
            while cursor.next_chunk(bytes_max, |cluster, object| all.push((cluster.clone(), object.key().clone()))) {}
            all
        };
        let wanted = contents(&heads).len();
        if selector == Selector::Everything {
            prop_assert_eq!(expected.len(), wanted);
        }
        let (mut paged, mut start) = (Vec::new(), None);
        loop {
            let page = ListPage { start, limit, remaining: None };
            let mut cursor = ListCursor::new(heads.clone(), selector, page);
            let before = paged.len();
            while cursor.next_chunk(bytes_max, |cluster, object| paged.push((cluster.clone(), object.key().clone()))) {}
            let Some(position) = cursor.continue_position() else { break };
            prop_assert_eq!(paged.len() - before, limit, "each page before the last is full");
            start = Some(position.clone());
        }
        prop_assert_eq!(paged, expected);
    }
}
