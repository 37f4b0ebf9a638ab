//! Property tests of lists, pages and initial events that use an index or the order of keys: the results must equal the
//! results of a scan over all objects.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tributary_apimachinery::{
    ClusterName, FieldSelector, Filter, GroupVersionResource, LabelSelector, Object, ObjectDecoder, ResourceVersion,
    Scope, SelectableResource, Snapshot, selectable_fields,
};
use tributary_merge::{
    ClusterSnapshots, CompositeResourceVersion, ListCursor, ListPage, Log, LogConfig, ObjectFilter, OpeningList,
    Progress, WatchEvent, Watcher,
};

const CLUSTERS: [&str; 3] = ["c1", "c2", "c3"];
const NODES: [&str; 3] = ["n1", "n2", ""];
const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn decoder() -> ObjectDecoder {
    ObjectDecoder::new("v1", "Pod", selectable_fields(&pods()))
}

/// The changes of a cluster, each as (namespace, name, node). A change without a node is a deletion.
type History = Vec<(usize, u8, Option<usize>)>;

fn history() -> impl Strategy<Value = History> {
    let place = prop::option::weighted(0.8, 0..NODES.len());
    prop::collection::vec((0..NAMESPACES.len(), 0..30_u8, place), 0..120)
}

fn snapshot(history: &History) -> Snapshot {
    let decoder = decoder();
    let mut snapshot = Snapshot::indexed(decoder.fields());
    for (version, (namespace, name, node)) in (1..).zip(history) {
        let namespace = NAMESPACES[*namespace];
        match node {
            Some(node) => {
                let text = format!(
                    r#"{{"metadata":{{"name":"{name:02}","namespace":"{namespace}","resourceVersion":"{version}"}},"spec":{{"nodeName":"{}"}}}}"#,
                    NODES[*node]
                );
                snapshot.insert(Arc::new(decoder.decode(text.as_bytes()).unwrap()));
            }
            None => drop(snapshot.remove(&format!("{namespace}/{name:02}"))),
        }
        snapshot.set_resource_version(ResourceVersion(version));
    }
    snapshot
}

fn selection() -> impl Strategy<Value = (Option<&'static str>, String)> {
    let node = prop::sample::select(&["spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=n1"][..]);
    let name = (0..30_u8).prop_map(|name| format!("metadata.name={name:02}"));
    let fields = (prop::option::of(node), prop::option::weighted(0.3, name));
    let fields =
        fields.prop_map(|(node, name)| node.map(str::to_owned).into_iter().chain(name).collect::<Vec<_>>().join(","));
    (prop::option::of(prop::sample::select(&NAMESPACES[..])), fields)
}

/// An object in a list or event: its cluster, key and version.
type ListedObject = (String, String, u64);

fn listed_object(cluster: &ClusterName, object: &Object) -> ListedObject {
    (cluster.to_string(), object.key().to_string(), object.resource_version().0)
}

fn open_in_steps(heads: &ClusterSnapshots, filter: Box<dyn ObjectFilter>, page: ListPage) -> ListCursor<Boxed> {
    let mut opening = OpeningList::new(heads.clone(), Boxed(filter), page);
    loop {
        match opening.step(1) {
            ControlFlow::Break(cursor) => return cursor,
            ControlFlow::Continue(more) => opening = more,
        }
    }
}

/// Returns all pages of a list, each read in chunks of a few bytes.
fn pages(
    heads: &ClusterSnapshots,
    filter: &impl Fn() -> Box<dyn ObjectFilter>,
    limit: usize,
) -> Vec<Vec<ListedObject>> {
    let (mut pages, mut start) = (Vec::new(), None);
    loop {
        let page = ListPage { start: start.take(), limit, remaining: None };
        let mut cursor = ListCursor::new(heads.clone(), Boxed(filter()), page.clone());
        let stepped = open_in_steps(heads, filter(), page);
        assert_eq!(stepped.continue_position(), cursor.continue_position());
        assert_eq!(stepped.remaining_item_count(), cursor.remaining_item_count());
        let mut objects = Vec::new();
        while cursor.next_chunk(200, |cluster, object| objects.push(listed_object(cluster, object))) {}
        pages.push(objects);
        start = cursor.continue_position().cloned();
        if start.is_none() {
            return pages;
        }
    }
}

/// Returns the initial objects of a watch, read in batches of a few events.
fn initial_objects(log: &Log, mut watcher: Watcher<Boxed>) -> Vec<ListedObject> {
    let mut events = Vec::new();
    while !matches!(watcher.next(log, 3, &mut events).progress, Progress::CaughtUp) {}
    events
        .iter()
        .filter_map(|event| match event {
            WatchEvent::Object(event) => Some(listed_object(&event.cluster, &event.object)),
            WatchEvent::InitialEventsEnd(_) => None,
        })
        .collect()
}

struct Boxed(Box<dyn ObjectFilter>);

impl ObjectFilter for Boxed {
    fn matches(&self, cluster: &ClusterName, object: &Object) -> bool {
        self.0.matches(cluster, object)
    }

    fn wants_cluster(&self, cluster: &ClusterName) -> bool {
        self.0.wants_cluster(cluster)
    }

    fn scope(&self) -> Scope<'_> {
        self.0.scope()
    }

    fn skip_to_key(&self, cluster: &ClusterName, unwanted: &Object) -> Option<Box<str>> {
        self.0.skip_to_key(cluster, unwanted)
    }

    fn is_whole_namespace(&self) -> bool {
        self.0.is_whole_namespace()
    }
}

/// The namespaces in the order of their objects' keys: `a-b/` sorts before `a/`.
const BY_KEY: [&str; 3] = ["a-b", "a", "b"];

/// Selects the objects of these namespaces whose version is even, or with `even: false`, odd.
#[derive(Clone)]
struct Within {
    namespaces: Vec<&'static str>,
    even: bool,
}

impl ObjectFilter for Within {
    fn matches(&self, _: &ClusterName, object: &Object) -> bool {
        let is_even = object.resource_version().0.is_multiple_of(2);
        self.namespaces.contains(&object.namespace()) && is_even == self.even
    }

    fn skip_to_key(&self, _: &ClusterName, unwanted: &Object) -> Option<Box<str>> {
        let at = BY_KEY.iter().position(|own| *own == unwanted.namespace())?;
        if self.namespaces.contains(&unwanted.namespace()) {
            // The list must ignore a jump to an earlier key or to the current key.
            return Some(if self.even { "" } else { unwanted.key().as_str() }.into());
        }
        let next = BY_KEY[at..].iter().find(|own| self.namespaces.contains(own));
        Some(next.map_or_else(|| "~".into(), |own| format!("{own}/").into()))
    }
}

/// Selects a whole namespace in all clusters except one. The log must not call `matches`, so `matches` panics.
struct Whole;

impl ObjectFilter for Whole {
    fn matches(&self, _: &ClusterName, object: &Object) -> bool {
        panic!("asked about {}", object.key())
    }

    fn wants_cluster(&self, cluster: &ClusterName) -> bool {
        cluster.as_str() != CLUSTERS[1]
    }

    fn scope(&self) -> Scope<'_> {
        Scope { namespace: Some("a"), ..Scope::default() }
    }

    fn is_whole_namespace(&self) -> bool {
        true
    }
}

#[test]
fn list_of_a_namespace_evaluates_its_filter_once_per_cluster() {
    let clusters = CLUSTERS.map(|name| ClusterName::new(name).unwrap());
    // Each namespace has two objects with different names.
    let history: History =
        (0..NAMESPACES.len()).flat_map(|namespace| [(namespace, 1, Some(0)), (namespace, 2, Some(1))]).collect();
    let heads: ClusterSnapshots =
        Arc::new(clusters.iter().map(|cluster| (cluster.clone(), snapshot(&history))).collect());
    let mut cursor = ListCursor::new(heads, Whole, ListPage::default());
    let mut listed = Vec::new();
    while cursor.next_chunk(1, |cluster, object| listed.push(format!("{cluster} {}", object.key()))) {}
    assert_eq!(listed, ["c1 a/01", "c1 a/02", "c3 a/01", "c3 a/02"]);
}

proptest! {
    #[test]
    fn list_with_a_filter_that_skips_namespaces_equals_a_full_scan(
        histories in prop::collection::vec(history(), CLUSTERS.len()),
        namespaces in prop::sample::subsequence(&NAMESPACES[..], 0..NAMESPACES.len()),
        even in any::<bool>(),
        limit in 0..20_usize,
    ) {
        let clusters = CLUSTERS.map(|name| ClusterName::new(name).unwrap());
        let heads: ClusterSnapshots = Arc::new(clusters.iter().cloned().zip(histories.iter().map(snapshot)).collect());
        let within = Within { namespaces, even };
        let leaping = || -> Box<dyn ObjectFilter> { Box::new(within.clone()) };
        let scanned = || -> Box<dyn ObjectFilter> {
            let within = within.clone();
            Box::new(move |cluster: &ClusterName, object: &Object| within.matches(cluster, object))
        };
        prop_assert_eq!(pages(&heads, &leaping, limit), pages(&heads, &scanned, limit));
    }

    #[test]
    fn list_and_initial_events_of_a_scope_have_the_objects_of_a_full_scan(
        histories in prop::collection::vec(history(), CLUSTERS.len()),
        (namespace, fields) in selection(),
        limit in 0..20_usize,
    ) {
        let clusters = CLUSTERS.map(|name| ClusterName::new(name).unwrap());
        let heads: ClusterSnapshots = Arc::new(clusters.iter().cloned().zip(histories.iter().map(snapshot)).collect());
        let mut log = Log::new(LogConfig::default());
        for (cluster, snapshot) in heads.iter() {
            log.join(cluster, snapshot.clone(), Duration::ZERO);
        }
        let fields = FieldSelector::parse(&fields).unwrap();
        let filter =
            Filter::compile(namespace, None, &LabelSelector::default(), &fields, SelectableResource { resource: &pods(), fields: decoder().fields(), namespaced: true }).unwrap();
        let scoped = || -> Box<dyn ObjectFilter> { Box::new(filter.clone()) };
        let scanned = || -> Box<dyn ObjectFilter> {
            let filter = filter.clone();
            Box::new(move |cluster: &ClusterName, object: &Object| filter.matches(cluster, object))
        };
        prop_assert_eq!(pages(&heads, &scoped, limit), pages(&heads, &scanned, limit));
        let initial = |filter| initial_objects(&log, Watcher::initial(&log, Boxed(filter), true));
        prop_assert_eq!(initial(scoped()), initial(scanned()));
        let one = heads.iter().take(1).map(|(cluster, snapshot)| (cluster.clone(), snapshot.resource_version()));
        let one: CompositeResourceVersion = one.collect();
        let resumed = |filter| initial_objects(&log, Watcher::resume(&log, &one, Boxed(filter)).unwrap());
        prop_assert_eq!(resumed(scoped()), resumed(scanned()));
    }
}
