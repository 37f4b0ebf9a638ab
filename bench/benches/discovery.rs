//! The cost of merging the discovery documents of a fleet.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tributary_apimachinery::ClusterName;
use tributary_router::testing::model::{Group, GroupList, GroupMetadata, GroupVersionKind, Resource, Version};
use tributary_router::testing::{MemberDiscovery, MergedDiscovery};

/// Number of API groups. In total they have about 270 resources, as a usual cluster with the CRDs of some operators.
const GROUPS: usize = 30;
const RESOURCES: usize = 9;

fn resource(group: usize, number: usize) -> Resource {
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    Resource {
        resource: format!("resources{number}"),
        response_kind: Some(GroupVersionKind {
            group: format!("group{group}.example.io"),
            version: "v1".to_owned(),
            kind: format!("Kind{number}"),
        }),
        scope: "Namespaced".to_owned(),
        singular_resource: format!("resource{number}"),
        verbs: verbs.map(str::to_owned).to_vec(),
        short_names: vec![format!("r{number}")],
        categories: vec!["all".to_owned()],
        subresources: Vec::new(),
    }
}

fn document() -> GroupList {
    let group = |group| Group {
        metadata: GroupMetadata { name: format!("group{group}.example.io"), creation_timestamp: None },
        versions: vec![Version {
            version: "v1".to_owned(),
            resources: (0..RESOURCES).map(|number| resource(group, number)).collect(),
            freshness: "Current".to_owned(),
            unreadable: None,
        }],
        unreadable: None,
    };
    GroupList::new((0..GROUPS).map(group).collect())
}

/// Makes `count` members that share `distinct` different discovery documents.
fn members(count: usize, distinct: usize) -> Vec<(ClusterName, Arc<MemberDiscovery>)> {
    let documents: Vec<_> = (0..distinct).map(|_| Arc::new(document())).collect();
    (0..count)
        .map(|number| {
            let name = ClusterName::new(&format!("member-{number:04}")).unwrap_or_else(|error| panic!("{error}"));
            let named = Arc::clone(&documents[number % distinct]);
            (name, Arc::new(MemberDiscovery { core: Arc::default(), named }))
        })
        .collect()
}

fn all(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("union of discovery");
    for count in [100, 300, 1000] {
        for (label, distinct) in
            [("members of one document", 1), ("members of five", 5), ("members, each its own", count)]
        {
            let members = members(count, distinct);
            group.bench_with_input(BenchmarkId::new(label, count), &members, |bencher, members| {
                bencher.iter(|| black_box(MergedDiscovery::new(members)));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = discovery;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = all
}
criterion_main!(discovery);
