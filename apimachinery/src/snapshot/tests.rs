use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::ResourceVersion;
use crate::{
    FieldSelector, Filter, GroupVersionResource, LabelSelector, ObjectDecoder, SelectableResource, selectable_fields,
};

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn decoder() -> ObjectDecoder {
    ObjectDecoder::new("v1", "Pod", selectable_fields(&pods()))
}

fn pod(key: &str, node: &str) -> Arc<Object> {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let text = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","resourceVersion":"1"}},"spec":{{"nodeName":"{node}"}}}}"#
    );
    Arc::new(decoder().decode(text.as_bytes()).unwrap())
}

fn keys<'a>(objects: impl IntoIterator<Item = &'a Arc<Object>>) -> Vec<String> {
    objects.into_iter().map(|object| object.key().as_str().to_owned()).collect()
}

/// Creates a snapshot from texts of the form `key version uid`.
fn snapshot_at(version: u64, objects: &[&str]) -> Snapshot {
    let object = |text: &&str| {
        let parts: Vec<_> = text.split(' ').collect();
        let text = format!(
            r#"{{"metadata":{{"name":"{}","resourceVersion":"{}","uid":"{}"}}}}"#,
            parts[0], parts[1], parts[2]
        );
        Arc::new(decoder().decode(text.as_bytes()).unwrap())
    };
    let mut snapshot: Snapshot = objects.iter().map(object).collect();
    snapshot.set_resource_version(ResourceVersion(version));
    snapshot
}

#[test]
fn snapshot_comparison_detects_that_the_members_revisions_decreased() {
    let before = snapshot_at(10, &["b 5 u", "d 7 v"]);
    for (version, objects, undoes) in [
        (10, &["b 5 u", "d 7 v"][..], false),
        (12, &["b 5 u", "d 7 v", "e 11 w"], false),
        (12, &[], false),
        (12, &["a 11 w", "b 12 u"], false),
        (12, &["b 12 w", "d 7 v"], false),
        (9, &["b 5 u", "d 7 v"], true),
        (12, &["b 4 u", "d 7 v"], true),
        (12, &["b 6 u", "d 7 v"], true),
        (12, &["b 5 w", "d 7 v"], true),
        (12, &["a 10 w"], true),
        (12, &["c 10 w"], true),
        (12, &["e 10 w"], true),
    ] {
        assert_eq!(snapshot_at(version, objects).undoes(&before), undoes, "{version} {objects:?}");
    }
}

#[test]
fn snapshot_range_is_in_etcd_order_within_a_namespace() {
    let snapshot: Snapshot = ["a/x", "a-b/x", "a/y", "ab/x", "a0/z"].into_iter().map(|key| pod(key, "")).collect();
    let keys = |namespace, after| keys(snapshot.range(&Scope { namespace, ..Scope::default() }, after));
    assert_eq!(keys(None, None), ["a-b/x", "a/x", "a/y", "a0/z", "ab/x"]);
    assert_eq!(keys(Some("a"), None), ["a/x", "a/y"]);
    assert_eq!(keys(Some("a"), Some("a/x")), ["a/y"]);
    assert_eq!(keys(Some("a"), Some("a-b/x")), ["a/x", "a/y"]);
    assert_eq!(keys(Some("a"), Some("b")), Vec::<String>::new());
    assert_eq!(keys(Some("c"), None), Vec::<String>::new());
    assert_eq!(keys(None, Some("a/y")), ["a0/z", "ab/x"]);
}

#[test]
fn snapshot_clone_is_unaffected_by_later_changes() {
    let mut snapshot = Snapshot::indexed(decoder().fields());
    snapshot.insert(pod("a/x", "n"));
    let before = snapshot.clone();
    snapshot.insert(pod("a/x", "m"));
    let on = |snapshot: &Snapshot, node| snapshot.range(&on_node(node), None).count();
    assert_eq!((on(&before, "n"), on(&before, "m")), (1, 0));
    assert_eq!((on(&snapshot, "n"), on(&snapshot, "m")), (0, 1));
    assert!(snapshot.remove("a/x").is_some());
    assert_eq!((before.len(), snapshot.len(), on(&snapshot, "m")), (1, 0, 0));
}

/// Returns the scope of the field selector `spec.nodeName=node`.
fn on_node(node: &str) -> Scope<'_> {
    let place = decoder().fields().iter().position(|field| field.indexed);
    Scope { field: place.map(|place| (place, node)), ..Scope::default() }
}

#[test]
fn field_index_finds_exactly_the_matching_objects() {
    let mut snapshot = Snapshot::indexed(decoder().fields());
    for (key, node) in [("b/x", "n"), ("a/x", "n"), ("a/y", "m"), ("a/z", ""), ("c/x", r"\u006e"), ("a/w", "n")] {
        snapshot.insert(pod(key, node));
    }
    let on = |node, namespace, after| keys(snapshot.range(&Scope { namespace, ..on_node(node) }, after));
    assert_eq!(on("n", None, None), ["a/w", "a/x", "b/x", "c/x"], "escapes are resolved");
    assert_eq!(on("n", Some("a"), None), ["a/w", "a/x"]);
    assert_eq!(on("n", None, Some("a/x")), ["b/x", "c/x"]);
    assert_eq!(on("", None, None), ["a/z"], "no node counts as the empty one");
    assert_eq!(on("other", None, None), Vec::<String>::new());
}

#[test]
fn iteration_of_a_snapshot_by_object_name_skips_other_objects() {
    let mut every: Vec<_> = (0..50).flat_map(|at| [format!("a/{at:02}"), format!("b/{at:02}x")]).collect();
    every.extend(["c/40".to_owned(), "d/x".to_owned()]);
    let snapshot: Snapshot = every.iter().map(|key| pod(key, "")).collect();
    let named = |name, after| keys(snapshot.range(&Scope { name: Some(name), ..Scope::default() }, after));
    assert_eq!(named("40", None), ["a/40", "c/40"]);
    assert_eq!(named("40", Some("a/40")), ["c/40"]);
    assert_eq!(named("40x", None), ["b/40x"]);
    assert_eq!(named("z", None), Vec::<String>::new());
    let cluster_scoped: Snapshot = (0..50).map(|at| pod(&format!("{at:02}"), "")).collect();
    for name in ["00", "07", "30", "49", "x"] {
        let scope = Scope { name: Some(name), ..Scope::default() };
        let expected: Vec<_> = cluster_scoped.get(name).into_iter().collect();
        assert_eq!(keys(cluster_scoped.range(&scope, None)), keys(expected));
    }
}

/// Namespaces whose order differs from the order of their objects' keys.
const NAMESPACES: [&str; 6] = ["a", "a-b", "a0", "ab", "b", "z"];
const NODES: [&str; 4] = ["", "n1", "n2", "n\\u0031"];

/// Generates the insertion of a pod on a node, or the removal of a pod (`None`).
fn change() -> impl Strategy<Value = (String, Option<&'static str>)> {
    let key = (prop::sample::select(&NAMESPACES[..]), 0..40_u8)
        .prop_map(|(namespace, name)| format!("{namespace}/{name:02}"));
    (key, prop::option::weighted(0.8, prop::sample::select(&NODES[..])))
}

fn selector() -> impl Strategy<Value = String> {
    let node =
        prop::sample::select(&["spec.nodeName=n1", "spec.nodeName=", "spec.nodeName=gone", "spec.nodeName!=n1"][..]);
    let name = (0..40_u8).prop_map(|name| format!("metadata.name={name:02}"));
    (prop::option::of(node), prop::option::of(name)).prop_map(|(node, name)| {
        let terms: Vec<_> = node.map(str::to_owned).into_iter().chain(name).collect();
        terms.join(",")
    })
}

proptest! {
    /// Changes are applied in any order, and some earlier clones are kept. In each clone, a walk over a scope returns
    /// the same objects as a full scan, in the same order.
    #[test]
    fn iteration_of_a_snapshot_by_scope_finds_the_same_objects_as_a_full_scan(
        changes in prop::collection::vec(change(), 0..300),
        snapshot_times in prop::collection::vec(0..300_usize, 0..4),
        namespace in prop::option::of(prop::sample::select(&NAMESPACES[..])),
        selector in selector(),
        after in prop::option::of((prop::sample::select(&NAMESPACES[..]), 0..41_u8)),
    ) {
        let fields = decoder();
        let (mut snapshot, mut truth) = (Snapshot::indexed(fields.fields()), BTreeMap::new());
        let mut states = Vec::new();
        for (at, (key, node)) in changes.iter().enumerate() {
            if snapshot_times.contains(&at) {
                states.push((snapshot.clone(), truth.clone()));
            }
            match node {
                Some(node) => {
                    let object = pod(key, node);
                    prop_assert_eq!(snapshot.insert(object.clone()).is_some(), truth.insert(key.clone(), object).is_some());
                }
                None => prop_assert_eq!(snapshot.remove(key).is_some(), truth.remove(key).is_some()),
            }
        }
        states.push((snapshot, truth));
        let selector = FieldSelector::parse(&selector).unwrap();
        let filter =
            Filter::compile(namespace, None, &LabelSelector::default(), &selector, SelectableResource { resource: &pods(), fields: fields.fields(), namespaced: true }).unwrap();
        let after = after.map(|(namespace, name)| format!("{namespace}/{name:02}"));
        for (snapshot, truth) in states {
            let behind = |key: &str| after.as_deref().is_none_or(|after| after < key);
            let expected = truth.values().filter(|object| behind(object.key().as_str()) && filter.matches_object(object));
            let found = snapshot.range(&filter.scope(), after.as_deref()).filter(|object| filter.matches_object(object));
            let (expected, found): (Vec<_>, Vec<_>) = (expected.collect(), found.collect());
            prop_assert_eq!(keys(found.iter().copied()), keys(expected.iter().copied()));
            prop_assert!(found.iter().zip(&expected).all(|(found, expected)| Arc::ptr_eq(found, expected)));
        }
    }
}
