//! The cost of compiled RBAC for a large fleet: 1,000 uniform clusters with 100 roles and 200 bindings each, and a user
//! with 50 groups.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;
use tributary_apimachinery::{ClusterName, UserInfo};
use tributary_authorization::{Attributes, Fleet, FleetRights, RbacKind, RbacObject, ResourceAttributes, Scope};

#[path = "../src/uniform_rbac.rs"]
mod uniform_rbac;

use uniform_rbac::{GROUPS, ROLES};

const CLUSTERS: usize = 1000;

/// The objects of each cluster in their wire format.
fn objects() -> Vec<(RbacKind, Vec<u8>)> {
    let kind = |name: &str| RbacKind::ALL.into_iter().find(|kind| kind.as_str() == name);
    let read = |(name, value): (&str, serde_json::Value)| Some((kind(name)?, value.to_string().into_bytes()));
    uniform_rbac::objects().into_iter().filter_map(read).collect()
}

fn clusters() -> Vec<ClusterName> {
    let name = |number| ClusterName::new(&format!("member-{number:04}")).unwrap_or_else(|error| panic!("{error}"));
    (0..CLUSTERS).map(name).collect()
}

fn parse(kind: RbacKind, text: &[u8]) -> RbacObject {
    RbacObject::parse(kind, text).unwrap_or_else(|error| panic!("{error}"))
}

/// Parses and compiles each cluster's RBAC objects: one object at a time like events of a watch (`one_by_one`), or all
/// objects as one list.
fn fleet(clusters: &[ClusterName], objects: &[(RbacKind, Vec<u8>)], one_by_one: bool) -> Fleet {
    let mut fleet = Fleet::default();
    for cluster in clusters {
        let read = objects.iter().map(|(kind, text)| parse(*kind, text));
        if one_by_one {
            for object in read {
                fleet.upsert(cluster, object);
            }
        } else {
            fleet.replace(cluster, read);
        }
    }
    fleet
}

/// The resident memory of this process, in KB.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or_default()
}

fn all(criterion: &mut Criterion) {
    let (names, objects) = (clusters(), objects());
    let mut compiled = Fleet::default();
    for one_by_one in [true, false] {
        drop(std::mem::take(&mut compiled));
        let (before, started) = (resident(), SystemTime::now());
        compiled = fleet(&names, &objects, one_by_one);
        let took = started.elapsed().unwrap_or_default();
        let grown = resident().saturating_sub(before) / 1024;
        println!("{CLUSTERS} clusters, one by one {one_by_one}: {took:?}, {grown} MB more");
    }

    let groups: Vec<String> = (0..GROUPS).map(|number| format!("group{number}")).collect();
    let user = &UserInfo::with_groups("ann", &groups);
    let cluster = &names[CLUSTERS / 2];
    let asked = |resource, namespace| {
        Attributes::Resource(ResourceAttributes { verb: "list", resource, namespace, ..ResourceAttributes::default() })
    };
    let mut group = criterion.benchmark_group("authorization");
    for (label, attributes) in [
        ("allowed everywhere", asked("pods", "")),
        ("refused", asked("secrets", "namespace7")),
        ("refused, no such namespace", asked("secrets", "elsewhere")),
    ] {
        group.bench_function(label, |bencher| bencher.iter(|| compiled.allows(cluster, user, black_box(&attributes))));
    }
    group.bench_function("generation of a user", |bencher| bencher.iter(|| compiled.generation_of(black_box(user))));
    group.bench_function("rights in one cluster", |bencher| {
        bencher.iter(|| compiled.rights(cluster, user, "list", "group53.example.io", black_box("things53")));
    });
    let rights = |clusters: &[ClusterName]| -> Vec<_> {
        clusters
            .iter()
            .map(|cluster| compiled.rights(cluster, user, "list", "group53.example.io", "things53"))
            .collect()
    };
    group.bench_function("rights in all clusters", |bencher| bencher.iter(|| rights(black_box(&names))));
    let visible = compiled.rights(cluster, user, "get", "group53.example.io", "things53");
    group.bench_function("an object of a list", |bencher| bencher.iter(|| visible.lists(black_box("namespace48"))));
    let all = rights(&names);
    group.bench_function("scope of all clusters", |bencher| {
        bencher.iter(|| Scope::from_visible(names.iter().zip(black_box(&all))));
    });
    group.finish();

    let (kind, text) = &objects[ROLES + 1];
    criterion.bench_function("authorization/a binding goes and comes", |bencher| {
        bencher.iter(|| {
            compiled.remove(cluster, *kind, "namespace1", "binding1");
            compiled.upsert(cluster, parse(*kind, text))
        });
    });
}

/// Measures the time of a change of one role, to which 250,000 bindings for different users refer. Also measures the
/// delay of a concurrent access query.
#[expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "threads of its own, without a runtime")]
fn a_role_of_many(_: &mut Criterion) {
    use std::time::Instant;

    const USERS: usize = 250_000;
    const FLIPS: usize = 10;
    let cluster = &clusters()[0];
    let role = |resource: &str| {
        let rules = json!([{"apiGroups": [""], "verbs": ["list"], "resources": [resource]}]);
        parse(RbacKind::ClusterRole, json!({"metadata": {"name": "role"}, "rules": rules}).to_string().as_bytes())
    };
    let bindings = (0..USERS).map(|number| {
        let metadata = json!({"name": format!("binding{number}"), "namespace": format!("namespace{}", number % 1000)});
        let subjects = json!([{"kind": "User", "name": format!("user{number}")}]);
        let reference = json!({"kind": "ClusterRole", "name": "role"});
        let text = json!({"metadata": metadata, "roleRef": reference, "subjects": subjects}).to_string();
        parse(RbacKind::RoleBinding, text.as_bytes())
    });
    let mut fleet = Fleet::default();
    fleet.replace(cluster, std::iter::once(role("pods")).chain(bindings));
    // As in the router, the replaced `FleetRights` are dropped with the next change.
    let now = ArcSwap::from_pointee(FleetRights::clone(&fleet));
    let over = AtomicBool::new(false);
    let (mut took, mut waited, mut before) = (Vec::new(), Vec::new(), Arc::default());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let user = &UserInfo::with_groups("user77", &[]);
            let pods =
                ResourceAttributes { verb: "list", resource: "pods", namespace: "namespace77", ..Default::default() };
            let mut waited = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                black_box(now.load().allows(cluster, user, &Attributes::Resource(pods)));
                waited.push(asked.elapsed());
                std::thread::sleep(Duration::from_micros(100));
            }
            waited
        });
        for flip in 0..FLIPS {
            let begun = Instant::now();
            fleet.upsert(cluster, role(if flip % 2 == 0 { "services" } else { "pods" }));
            before = now.swap(Arc::new(FleetRights::clone(&fleet)));
            took.push(begun.elapsed());
        }
        over.store(true, Ordering::Relaxed);
        waited = reader.join().unwrap_or_default();
    });
    drop::<Arc<FleetRights>>(before);
    took.sort();
    waited.sort();
    let at = |share: f64| waited[((waited.len() - 1) as f64 * share) as usize];
    println!(
        "a role under {USERS} bindings: {:?} (median of {FLIPS}); {} questions meanwhile: p50 {:?}, p99 {:?}, longest {:?}",
        took[FLIPS / 2],
        waited.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

criterion_group! {
    name = authorization;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = all, a_role_of_many
}
criterion_main!(authorization);
