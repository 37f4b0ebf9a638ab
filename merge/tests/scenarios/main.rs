//! Tests of the rules of a merged watch, one rule per test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clusters;
mod integers;
mod past;
mod relists;
mod restores;
mod shared_revisions;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tributary_apimachinery::{
    Change, ChangeType, ClusterName, CollectionVersion, Filter, Object, ObjectDecoder, ResourceVersion, Snapshot,
};
use tributary_merge::{
    BatchOutcome, CompositeResourceVersion, EventVersion, ListCursor, ListPage, Log, LogConfig, Position, Progress,
    SnapshotError, TooOld, WatchEvent, Watcher,
};

const NOW: Duration = Duration::ZERO;

fn name(text: &str) -> ClusterName {
    ClusterName::new(text).unwrap()
}

/// Creates an object from the text `key version color`.
fn object(text: &str) -> Arc<Object> {
    let parts: Vec<_> = text.split(' ').collect();
    let (version, color) = (parts[1], parts.get(2).unwrap_or(&"blue"));
    let json = format!(
        r#"{{"metadata":{{"namespace":"n","name":"{}","uid":"u","resourceVersion":"{version}","labels":{{"color":"{color}"}}}}}}"#,
        parts[0]
    );
    Arc::new(ObjectDecoder::new("v1", "Pod", [].into()).decode(json.as_bytes()).unwrap())
}

fn snapshot(version: u64, objects: &[&str]) -> Snapshot {
    let mut snapshot: Snapshot = objects.iter().map(|text| object(text)).collect();
    snapshot.set_resource_version(ResourceVersion(version));
    snapshot
}

fn vector(text: &str) -> CompositeResourceVersion {
    let components = text.split_whitespace().map(|part| part.split_once(':').unwrap());
    components.map(|(cluster, version)| (name(cluster), CollectionVersion::parse(version).unwrap())).collect()
}

/// Creates a log with clusters. Each cluster is given by its name, version and objects.
fn log(clusters: &[(&str, u64, &[&str])]) -> Log {
    let mut log = Log::new(LogConfig::default());
    for (cluster, version, objects) in clusters {
        log.join(&name(cluster), snapshot(*version, objects), NOW);
    }
    log
}

/// Appends an event of a cluster and a bookmark to the log. `key version` adds or changes an object, and `-key version`
/// deletes it.
fn change(log: &mut Log, cluster: &str, text: &str) {
    change_at(log, cluster, text, NOW);
}

fn change_at(log: &mut Log, cluster: &str, text: &str, now: Duration) {
    let mut snapshot = log.snapshot(&name(cluster)).unwrap().clone();
    let object = object(text.trim_start_matches('-'));
    let (change_type, previous) = if text.starts_with('-') {
        (ChangeType::Deleted, snapshot.remove(object.key().as_str()))
    } else {
        let previous = snapshot.insert(object.clone());
        (if previous.is_some() { ChangeType::Modified } else { ChangeType::Added }, previous)
    };
    snapshot.set_resource_version(object.resource_version());
    log.append(&name(cluster), vec![Change { change_type, object, previous }], snapshot, now);
}

/// Deletes objects (`key version`) one after the other, without a bookmark.
fn delete(log: &mut Log, cluster: &str, texts: &[&str]) {
    for text in texts {
        let mut snapshot = log.snapshot(&name(cluster)).unwrap().clone();
        let object = object(text);
        let previous = snapshot.remove(object.key().as_str());
        let change = Change { change_type: ChangeType::Deleted, object, previous };
        snapshot.set_resource_version(snapshot.resource_version().with_change(&change));
        log.append(&name(cluster), vec![change], snapshot, NOW);
    }
}

fn everything(_: &ClusterName, _: &Object) -> bool {
    true
}

fn red(_: &ClusterName, object: &Object) -> bool {
    object.label("color") == Some("red")
}

type Matches = fn(&ClusterName, &Object) -> bool;

/// Reads events until the watch has no more. Returns each event as `TYPE cluster/name@version composite-version`; `*`
/// marks a private version, which is valid for only this client.
fn read(log: &Log, watcher: &mut Watcher<Matches>) -> Vec<String> {
    read_with_private(log, watcher).0
}

/// Like [`read`], but also returns the log position before which the watch sent a private version; 0 if there was none.
fn read_with_private(log: &Log, watcher: &mut Watcher<Matches>) -> (Vec<String>, u64) {
    let (mut lines, mut last_private_before) = (Vec::new(), 0);
    loop {
        let mut events = Vec::new();
        let BatchOutcome { progress, private_before } = watcher.next(log, 1, &mut events);
        lines.extend(events.iter().map(|event| line(log, event)));
        last_private_before = private_before.max(last_private_before);
        match progress {
            Progress::More => {}
            Progress::CaughtUp => return (lines, last_private_before),
            other => {
                lines.push(format!("{other:?}"));
                return (lines, last_private_before);
            }
        }
    }
}

fn line(log: &Log, event: &WatchEvent) -> String {
    match event {
        WatchEvent::InitialEventsEnd(version) => format!("END {}", text(log, version)),
        WatchEvent::Object(event) => {
            let mark = if event.shared.is_some() { "" } else { "*" };
            let (cluster, object) = (&event.cluster, &event.object);
            let version = text(log, &event.version);
            let (name, own) = (object.name(), object.resource_version());
            format!("{}{mark} {cluster}/{name}@{own} {version}", event.change_type.as_str())
        }
    }
}

fn text(log: &Log, version: &EventVersion) -> String {
    let vector = match version {
        EventVersion::Item(item) => return format!("item {item}"),
        EventVersion::Log(version) => log.vector(*version).unwrap(),
        EventVersion::Vector(vector) => (**vector).clone(),
    };
    vector.iter().map(|(cluster, version)| format!("{cluster}:{version}")).collect::<Vec<_>>().join(" ")
}

fn resume(log: &Log, from: &str) -> Result<Watcher<Matches>, TooOld> {
    Watcher::resume(log, &vector(from), everything as Matches)
}

fn too_old(log: &Log, from: &str) -> String {
    resume(log, from).map(drop).unwrap_err().to_string()
}
