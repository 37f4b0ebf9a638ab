//! What the compiled RBAC of a large fleet costs: 1,000 uniform clusters with 100 roles and 200 bindings each, asked by a
//! user with 50 groups.

use std::hint::black_box;
use std::time::{Duration, SystemTime};

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;
use tributary_apimachinery::ClusterName;
use tributary_authorization::{Attributes, Fleet, RbacKind, RbacObject, ResourceAttributes, Scope, User};

const CLUSTERS: usize = 1000;
const ROLES: usize = 100;
const BINDINGS: usize = 200;
const GROUPS: usize = 50;

/// The objects of each cluster, as they come over the wire: half of the roles ClusterRoles of ten rules, a fifth of the
/// bindings ClusterRoleBindings.
fn objects() -> Vec<(RbacKind, Vec<u8>)> {
    let rule = |number: usize| {
        json!({"apiGroups": ["", format!("group{number}.example.io")], "verbs": ["get", "list", "watch"],
            "resources": ["pods", "services", format!("things{number}"), format!("things{number}/status")]})
    };
    let roles = (0..ROLES).map(|number| {
        let rules: Vec<_> = (0..10).map(|at| rule(number + at)).collect();
        let (kind, namespace) = match number % 2 {
            0 => (RbacKind::ClusterRole, None),
            _ => (RbacKind::Role, Some(format!("namespace{number}"))),
        };
        (kind, json!({"metadata": {"name": format!("role{number}"), "namespace": namespace}, "rules": rules}))
    });
    let bindings = (0..BINDINGS).map(|number| {
        let (kind, namespace, role) = match number % 5 {
            0 => (RbacKind::ClusterRoleBinding, None, "ClusterRole"),
            1 => (RbacKind::RoleBinding, Some(number % ROLES), "Role"),
            _ => (RbacKind::RoleBinding, Some(number % ROLES), "ClusterRole"),
        };
        let subjects = json!([
            {"kind": "Group", "name": format!("group{}", number % (2 * GROUPS))},
            {"kind": "ServiceAccount", "name": format!("account{number}"), "namespace": "accounts"},
        ]);
        let reference = json!({"kind": role, "name": format!("role{}", number % ROLES)});
        let namespace = namespace.map(|number| format!("namespace{number}"));
        let metadata = json!({"name": format!("binding{number}"), "namespace": namespace});
        (kind, json!({"metadata": metadata, "roleRef": reference, "subjects": subjects}))
    });
    roles.chain(bindings).map(|(kind, value)| (kind, value.to_string().into_bytes())).collect()
}

fn clusters() -> Vec<ClusterName> {
    let name = |number| ClusterName::new(&format!("member-{number:04}")).unwrap_or_else(|error| panic!("{error}"));
    (0..CLUSTERS).map(name).collect()
}

fn parse(kind: RbacKind, text: &[u8]) -> RbacObject {
    RbacObject::parse(kind, text).unwrap_or_else(|error| panic!("{error}"))
}

/// Each cluster's objects read and compiled, one by one as a watch brings them (`one_by_one`), or a list at a time.
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

/// Resident memory of this process, in KB.
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
    let user = User { name: "ann", groups: &groups };
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
        bencher.iter(|| Scope::of(names.iter().zip(black_box(&all))));
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

criterion_group! {
    name = authorization;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = all
}
criterion_main!(authorization);
