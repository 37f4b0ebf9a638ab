//! The cost of each hot path on its own: a list, a page, a selector, a watch event, a resourceVersion and an object.
//!
//! There are 100,000 generated pods of about 5 KB in two clusters (500 MB of JSON in memory). Measurement times are
//! short, so the whole run takes a few minutes.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tributary_apimachinery::{
    Change, ChangeType, ClusterAnnotation, ClusterName, FieldSelector, Filter, GroupVersionResource, LabelSelector,
    Object, ObjectDecoder, Rendering, ResourceVersion, SelectableResource, Snapshot, selectable_fields,
};
use tributary_merge::{
    ClusterSnapshots, CompositeResourceVersion, Epochs, EventVersion, ItemEncoder, ListCursor, ListPage, Log,
    LogConfig, WatchEvent, Watcher,
};
use tributary_simulator::{SimulatorConfig, generated};

const OBJECTS: usize = 100_000;
/// The number of bytes that a server writes to a connection at once.
const CHUNK: usize = 64 * 1024;
/// The number of nodes per cluster: each has about 100 pods.
const NODES: usize = 500;
/// The number of watchers that read the same change log.
const WATCHERS: usize = 1000;
/// The number of changes that each watcher gets in one iteration.
const CHANGES: usize = 20;

struct Fixture {
    decoder: ObjectDecoder,
    heads: ClusterSnapshots,
}

fn cluster(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap_or_else(|error| panic!("{error}"))
}

fn fixture() -> Fixture {
    let fields = selectable_fields(&GroupVersionResource::new("", "v1", "pods"));
    let decoder = ObjectDecoder::new("v1", "Pod", fields);
    let snapshot = |name: &str| {
        let config = SimulatorConfig {
            name: name.to_owned(),
            pods: OBJECTS / 2,
            namespaces: 500,
            nodes: NODES,
            ..SimulatorConfig::default()
        };
        let mut snapshot = Snapshot::indexed(decoder.fields());
        for text in generated(&config, "pods") {
            snapshot.insert(decode(&decoder, text.as_bytes()));
        }
        snapshot.set_resource_version(ResourceVersion(10_000_000));
        (cluster(name), snapshot)
    };
    let heads = Arc::new(vec![snapshot("member1"), snapshot("member2")]);
    Fixture { decoder, heads }
}

fn decode(decoder: &ObjectDecoder, text: &[u8]) -> Arc<Object> {
    Arc::new(decoder.decode(text).unwrap_or_else(|error| panic!("{error}")))
}

/// Renders a page into chunks of [`CHUNK`] bytes until the page is complete. Returns the number of bytes.
fn render(heads: &ClusterSnapshots, filter: Filter, page: ListPage) -> usize {
    let encoders: Vec<_> =
        heads.iter().map(|(name, _)| (name.clone(), ItemEncoder::new(name), ClusterAnnotation::new(name))).collect();
    let mut cursor = ListCursor::new(heads.clone(), filter, page);
    let mut out: Vec<u8> = Vec::with_capacity(2 * CHUNK);
    let mut version = String::new();
    let mut bytes = 0;
    loop {
        let more = cursor.next_chunk(CHUNK, |name, object| {
            let place = encoders.iter().position(|(known, ..)| known == name).unwrap_or_default();
            let (_, encoder, annotation) = &encoders[place];
            version.clear();
            encoder.write(object.resource_version(), &mut version);
            let rendering =
                Rendering { resource_version: Some(&version), annotation: Some(annotation), list_item: true };
            object.render(&rendering, &mut out);
        });
        bytes += black_box(&out).len();
        out.clear();
        if !more {
            return bytes;
        }
    }
}

fn lists(criterion: &mut Criterion, fixture: &Fixture) {
    let mut group = criterion.benchmark_group("list");
    let bytes = render(&fixture.heads, Filter::default(), ListPage::default());
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("100,000 objects", |bencher| {
        bencher.iter(|| render(&fixture.heads, Filter::default(), ListPage::default()));
    });
    group.throughput(Throughput::Elements(500));
    group.bench_function("page of 500, the first", |bencher| {
        bencher.iter(|| render(&fixture.heads, Filter::default(), ListPage { limit: 500, ..ListPage::default() }));
    });
    let middle = ListCursor::new(
        fixture.heads.clone(),
        Filter::default(),
        ListPage { limit: OBJECTS / 2 + 500, ..ListPage::default() },
    );
    let middle = ListPage { start: middle.continue_position().cloned(), limit: 500, remaining: Some(49_500) };
    group.bench_function("page of 500, in the middle", |bencher| {
        bencher.iter(|| render(&fixture.heads, Filter::default(), middle.clone()));
    });
    let namespace = fixture.heads[0].1.iter().next().map(|object| object.namespace().to_owned()).unwrap_or_default();
    let filter = Filter { namespace: Some(namespace.into()), ..Filter::default() };
    group.bench_function("one namespace", |bencher| {
        bencher.iter(|| render(&fixture.heads, filter.clone(), ListPage::default()));
    });
    group.finish();
}

fn compile(fixture: &Fixture, namespace: Option<&str>, labels: &str, fields: &str) -> Filter {
    let labels = LabelSelector::parse(labels).unwrap_or_else(|error| panic!("{error}"));
    let fields = FieldSelector::parse(fields).unwrap_or_else(|error| panic!("{error}"));
    let resource = GroupVersionResource::new("", "v1", "pods");
    Filter::compile(
        namespace,
        None,
        &labels,
        &fields,
        SelectableResource { resource: &resource, fields: fixture.decoder.fields(), namespaced: true },
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

fn selectors(criterion: &mut Criterion, fixture: &Fixture) {
    let mut group = criterion.benchmark_group("selector over 100,000 objects");
    group.throughput(Throughput::Elements(OBJECTS as u64));
    for (name, labels, fields) in [
        ("label, 1 % match", "slice=s07", ""),
        ("label set, 2 % match", "slice in (s07,s08),tier!=none", ""),
        ("field status.phase, a scan", "", "status.phase=Pending"),
    ] {
        let filter = compile(fixture, None, labels, fields);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let matching = |(cluster, snapshot): &(ClusterName, Snapshot)| {
                    snapshot.iter().filter(|object| filter.matches(cluster, object)).count()
                };
                fixture.heads.iter().map(matching).sum::<usize>()
            });
        });
    }
    group.finish();
}

/// Measures lists whose selector matches a few of very many objects. An index finds these objects.
fn indexed(criterion: &mut Criterion, fixture: &Fixture) {
    let Some(object) = fixture.heads[0].1.iter().nth(OBJECTS / 4) else { return };
    let name = format!("metadata.name={}", object.name());
    let namespace = Some(object.namespace());
    let mut group = criterion.benchmark_group("few of 100,000 objects");
    for (title, namespace, fields, limit) in [
        ("spec.nodeName, 100 match", None, "spec.nodeName=member1-node-0001", 0),
        ("spec.nodeName, a page of 50", None, "spec.nodeName=member1-node-0001", 50),
        ("spec.nodeName of a namespace", namespace, "spec.nodeName=member1-node-0001", 0),
        ("metadata.name of a namespace", namespace, name.as_str(), 0),
        ("metadata.name of all namespaces", None, name.as_str(), 0),
    ] {
        let filter = compile(fixture, namespace, "", fields);
        group.bench_function(title, |bencher| {
            bencher.iter(|| render(&fixture.heads, filter.clone(), ListPage { limit, ..ListPage::default() }));
        });
    }
    group.finish();
}

/// The cost of applying incoming changes to a collection, including the update of an index.
fn ingest(criterion: &mut Criterion, fixture: &Fixture) {
    let (_, snapshot) = &fixture.heads[0];
    let mut group = criterion.benchmark_group("ingest");
    let changed: Vec<_> = snapshot.iter().step_by(97).take(CHANGES).cloned().collect();
    group.throughput(Throughput::Elements(CHANGES as u64));
    group.bench_function("20 changes to a shared snapshot", |bencher| {
        bencher.iter(|| {
            let mut snapshot = snapshot.clone();
            for object in &changed {
                black_box(snapshot.insert(object.clone()));
            }
            snapshot
        });
    });
    let objects: Vec<_> = snapshot.iter().cloned().collect();
    group.throughput(Throughput::Elements(objects.len() as u64));
    group.bench_function("50,000 objects, one by one", |bencher| {
        bencher.iter(|| {
            let mut snapshot = Snapshot::indexed(fixture.decoder.fields());
            for object in &objects {
                snapshot.insert(object.clone());
            }
            snapshot
        });
    });
    group.finish();
}

/// Returns a log in which `CHANGES` pods have just changed, and the version before these changes.
fn changed_log(fixture: &Fixture) -> (Log, CompositeResourceVersion) {
    let mut log = Log::new(LogConfig::default());
    for (name, snapshot) in fixture.heads.iter() {
        log.join(name, snapshot.clone(), Duration::ZERO);
    }
    let before = log.resource_version();
    let (name, snapshot) = &fixture.heads[0];
    let mut snapshot = snapshot.clone();
    let changed: Vec<_> = snapshot.iter().step_by(97).take(CHANGES).cloned().collect();
    let mut changes = Vec::new();
    for (place, previous) in changed.into_iter().enumerate() {
        let version = (10_000_001 + place).to_string();
        let mut text = Vec::new();
        previous.render(&Rendering { resource_version: Some(&version), annotation: None, list_item: false }, &mut text);
        let object = decode(&fixture.decoder, &text);
        snapshot.insert(object.clone());
        changes.push(Change { change_type: ChangeType::Modified, object, previous: Some(previous) });
    }
    snapshot.set_resource_version(ResourceVersion(10_000_000 + CHANGES as u64));
    log.append(name, changes, snapshot, Duration::ZERO);
    (log, before)
}

fn watches(criterion: &mut Criterion, fixture: &Fixture) {
    let (log, before) = changed_log(fixture);
    let mut group = criterion.benchmark_group("watch");
    group.throughput(Throughput::Elements((WATCHERS * CHANGES) as u64));
    let watchers = || -> Vec<Watcher<Filter>> {
        (0..WATCHERS)
            .map(|_| Watcher::resume(&log, &before, Filter::default()).unwrap_or_else(|error| panic!("{error}")))
            .collect()
    };
    group.bench_function("20 events to 1,000 watchers", |bencher| {
        bencher.iter_batched_ref(
            watchers,
            |watchers| {
                let mut events = Vec::new();
                for watcher in watchers {
                    events.clear();
                    watcher.next(&log, 100, &mut events);
                    assert_eq!(events.len(), CHANGES);
                    black_box(&events);
                }
            },
            BatchSize::LargeInput,
        );
    });
    group.throughput(Throughput::Elements(CHANGES as u64));
    let epochs = Epochs::default();
    let annotation = ClusterAnnotation::new(&fixture.heads[0].0);
    group.bench_function("encode 20 events, once for all watchers", |bencher| {
        let mut watcher = Watcher::resume(&log, &before, Filter::default()).unwrap_or_else(|error| panic!("{error}"));
        let mut events = Vec::new();
        watcher.next(&log, 100, &mut events);
        bencher.iter(|| {
            let mut out: Vec<u8> = Vec::new();
            for event in &events {
                let WatchEvent::Object(event) = event else { continue };
                let version = match &event.version {
                    EventVersion::Log(version) => {
                        log.vector(*version).map(|vector| vector.encode(&epochs)).unwrap_or_default()
                    }
                    EventVersion::Vector(vector) => vector.encode(&epochs),
                    EventVersion::Item(version) => tributary_merge::item(&event.cluster, *version),
                };
                out.extend_from_slice(b"{\"type\":\"MODIFIED\",\"object\":");
                let rendering =
                    Rendering { resource_version: Some(&version), annotation: Some(&annotation), list_item: false };
                event.object.render(&rendering, &mut out);
                out.extend_from_slice(b"}\n");
            }
            out
        });
    });
    group.finish();
}

/// The number of clusters in the long log, and the number of changes per cluster since its oldest version.
const PAST: (usize, u64) = (200, 2_000);

/// A log in which each cluster has 500 small objects, and each object changed four times since a version. Also returns
/// that version.
fn long_log() -> (Log, CompositeResourceVersion) {
    let decoder = ObjectDecoder::new("v1", "ConfigMap", [].into());
    let object = |number: u64, version: u64| {
        let text = format!(
            r#"{{"metadata":{{"namespace":"n","name":"x{:03}","uid":"u","resourceVersion":"{version}"}}}}"#,
            number % 500
        );
        decode(&decoder, text.as_bytes())
    };
    let mut log = Log::new(LogConfig { history_bytes_max: 1 << 30, ..LogConfig::default() });
    let (clusters, changes) = PAST;
    for number in 0..clusters {
        let name = cluster(&format!("cluster-{number:04}"));
        let mut snapshot: Snapshot = (0..500).map(|number| object(number, 1 + number)).collect();
        snapshot.set_resource_version(ResourceVersion(1_000));
        log.join(&name, snapshot.clone(), Duration::ZERO);
        for change in 1..=changes {
            let object = object(change * 7, 1_000 + change);
            let previous = snapshot.insert(object.clone());
            snapshot.set_resource_version(ResourceVersion(1_000 + change));
            let change = Change { change_type: ChangeType::Modified, object, previous };
            log.append(&name, vec![change], snapshot.clone(), Duration::ZERO);
        }
    }
    let oldest = log.latest().iter().map(|(name, _)| (name.clone(), ResourceVersion(1_000))).collect();
    (log, oldest)
}

/// Cost of a page of a list whose first page was served many changes ago.
fn past(criterion: &mut Criterion) {
    let (log, oldest) = long_log();
    let mut group = criterion.benchmark_group("past of 200 clusters, 2,000 changes each");
    group.bench_function("all of it (before: each page, with the log locked)", |bencher| {
        bencher.iter(|| log.snapshot_at(black_box(&oldest)).map(|state| state.len()));
    });
    let Some((name, version)) = oldest.iter().last() else { return };
    group.bench_function("one cluster, with the log locked", |bencher| {
        bencher.iter(|| log.past(black_box(name), version).map(|past| past.changes()));
    });
    group.bench_function("one cluster, rebuilt", |bencher| {
        bencher.iter_batched(|| log.past(name, version), |past| past.map(|past| past.rebuild()), BatchSize::LargeInput);
    });
    group.finish();
}

fn versions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("resourceVersion");
    for count in [2, 100, 1000] {
        let mut vector = CompositeResourceVersion::new();
        let mut epochs = Epochs::default();
        epochs.update((0..count).map(|number| (cluster(&format!("cluster-{number:04}")), format!("uid-{number}"))));
        for number in 0..count {
            vector.set(&cluster(&format!("cluster-{number:04}")), ResourceVersion(1_000_000 + number * 7919));
        }
        let text = vector.encode(&epochs);
        group.bench_function(format!("encode {count} clusters ({} bytes)", text.len()), |bencher| {
            bencher.iter(|| black_box(&vector).encode(&epochs));
        });
        group.bench_function(format!("decode {count} clusters"), |bencher| {
            bencher.iter(|| CompositeResourceVersion::decode(black_box(&text), &epochs));
        });
    }
    let encoder = ItemEncoder::new(&cluster("member1"));
    let mut out = String::new();
    group.bench_function("encode one item", |bencher| {
        bencher.iter(|| {
            out.clear();
            encoder.write(black_box(ResourceVersion(123_456_789)), &mut out);
            out.len()
        });
    });
    group.finish();
}

fn objects(criterion: &mut Criterion, fixture: &Fixture) {
    let mut group = criterion.benchmark_group("object");
    let Some(object) = fixture.heads[0].1.iter().next() else { return };
    let text = object.json().to_vec();
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("decode a pod", |bencher| bencher.iter(|| fixture.decoder.decode(black_box(&text))));
    let annotation = ClusterAnnotation::new(&fixture.heads[0].0);
    let rendering = Rendering {
        resource_version: Some("eyJtZW1iZXIxIjoiMTIzNDU2Nzg5In0"),
        annotation: Some(&annotation),
        list_item: true,
    };
    let mut out: Vec<u8> = Vec::new();
    group.bench_function("render a pod", |bencher| {
        bencher.iter(|| {
            out.clear();
            object.render(black_box(&rendering), &mut out);
            out.len()
        });
    });
    group.finish();
}

fn all(criterion: &mut Criterion) {
    let fixture = fixture();
    objects(criterion, &fixture);
    lists(criterion, &fixture);
    selectors(criterion, &fixture);
    indexed(criterion, &fixture);
    ingest(criterion, &fixture);
    watches(criterion, &fixture);
    past(criterion);
    versions(criterion);
}

criterion_group! {
    name = hot_paths;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = all
}
criterion_main!(hot_paths);
