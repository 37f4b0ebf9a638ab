//! Part of a cluster's update that belongs to one namespace.

use tributary_apimachinery::{Change, ChangeType, CollectionVersion, Scope, Snapshot};
use tributary_cacher::Update;

/// Updates of one namespace that follow from an update of a cluster. Empty if no object in the namespace changes.
///
/// `before` is the cluster's version in the view of all namespaces before the update. `cached` is the previous state of
/// the namespace, and `empty` a state without objects. The log of a namespace gets the cluster's version with the next
/// change in the namespace, with the member's bookmarks, and on request. A log entry in each namespace for every change
/// of the cluster would fill the memory.
pub(super) fn part(
    step: &Update,
    before: CollectionVersion,
    namespace: &str,
    cached: &Snapshot,
    empty: Snapshot,
) -> Vec<Update> {
    let after = |whole: &Snapshot| {
        let mut part = empty;
        for object in whole.range(&Scope { namespace: Some(namespace), ..Scope::default() }, None) {
            part.insert(object.clone());
        }
        part.set_resource_version(whole.resource_version());
        part
    };
    vec![match step {
        Update::Synced { snapshot } => Update::Synced { snapshot: after(snapshot) },
        Update::Relisted { after: whole, .. } => Update::Relisted { before: cached.clone(), after: after(whole) },
        Update::Reset { after: whole, .. } => Update::Reset { before: cached.clone(), after: after(whole) },
        Update::Progress { snapshot: whole } => {
            let mut snapshot = cached.clone();
            snapshot.set_resource_version(whole.resource_version());
            Update::Progress { snapshot }
        }
        Update::Changes { changes, snapshot: whole } => {
            return own_changes(changes, before, whole.resource_version(), namespace, cached);
        }
    }]
}

/// Returns the changes of a namespace, selected from changes that lead from one version of all namespaces to a later
/// version.
///
/// Several deletions may share a revision, and a collection version contains the number of the revision's deletions so
/// far. Deletions in other namespaces are counted, too, as in the log of all namespaces. So a version means the same in
/// both logs and on other replicas.
fn own_changes(
    changes: &[Change],
    before: CollectionVersion,
    after: CollectionVersion,
    namespace: &str,
    cached: &Snapshot,
) -> Vec<Update> {
    let (mut steps, mut own, mut snapshot, mut known) = (Vec::new(), Vec::new(), cached.clone(), before);
    for change in changes {
        let all = known;
        known = all.with_change(change);
        if change.object.namespace() != namespace {
            continue;
        }
        if all.is_part() && all.revision() == change.resource_version() && all > snapshot.resource_version() {
            if !own.is_empty() {
                steps.push(Update::Changes { changes: std::mem::take(&mut own), snapshot: snapshot.clone() });
            }
            snapshot.set_resource_version(all);
            steps.push(Update::Progress { snapshot: snapshot.clone() });
        }
        match change.change_type {
            ChangeType::Deleted => drop(snapshot.remove(change.object.key().as_str())),
            ChangeType::Added | ChangeType::Modified => drop(snapshot.insert(change.object.clone())),
        }
        snapshot.set_resource_version(snapshot.resource_version().with_change(change));
        own.push(change.clone());
    }
    if !own.is_empty() {
        snapshot.set_resource_version(after);
        steps.push(Update::Changes { changes: own, snapshot });
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tributary_apimachinery::{Object, ObjectDecoder, ResourceVersion};

    use super::*;

    /// Parses an object from `namespace/name version`.
    fn object(text: &str) -> Arc<Object> {
        let (key, version) = text.split_once(' ').unwrap();
        let (namespace, name) = key.split_once('/').unwrap();
        let json = format!(
            r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{key}","resourceVersion":"{version}"}}}}"#
        );
        Arc::new(ObjectDecoder::new("v1", "Pod", [].into()).decode(json.as_bytes()).unwrap())
    }

    fn snapshot(version: u64, objects: &[&str]) -> Snapshot {
        let mut snapshot: Snapshot = objects.iter().map(|text| object(text)).collect();
        snapshot.set_resource_version(ResourceVersion(version));
        snapshot
    }

    fn shown(snapshot: &Snapshot) -> String {
        let objects = snapshot.iter().map(|object| format!("{}@{}", object.key().as_str(), object.resource_version()));
        format!("{}: {}", snapshot.resource_version(), objects.collect::<Vec<_>>().join(" "))
    }

    fn parts_of(step: &Update, before: &str, cached: &Snapshot) -> Vec<Update> {
        part(step, CollectionVersion::parse(before).unwrap(), "n", cached, Snapshot::default())
    }

    fn part_of(step: &Update, cached: &Snapshot) -> Option<Update> {
        let mut steps = parts_of(step, "5", cached);
        assert!(steps.len() < 2, "{steps:?}");
        steps.pop()
    }

    #[test]
    fn namespace_view_shares_objects_with_the_view_of_all_namespaces() {
        let whole = snapshot(9, &["m/x 1", "n/a 2", "n/b 3", "n-b/a 4", "o/x 5"]);
        let cached = snapshot(5, &["n/a 2"]);
        for step in [
            Update::Synced { snapshot: whole.clone() },
            Update::Relisted { before: Snapshot::default(), after: whole.clone() },
            Update::Reset { before: Snapshot::default(), after: whole.clone() },
        ] {
            let own = part_of(&step, &cached).unwrap();
            assert_eq!(std::mem::discriminant(&own), std::mem::discriminant(&step));
            assert_eq!(shown(own.snapshot()), "9: n/a@2 n/b@3");
            assert!(Arc::ptr_eq(own.snapshot().get("n/a").unwrap(), whole.get("n/a").unwrap()), "not held twice");
        }
        let version = whole.resource_version();
        let empty = part(&Update::Synced { snapshot: whole }, version, "nobody", &cached, Snapshot::default());
        assert_eq!(shown(empty[0].snapshot()), "9: ");
    }

    #[test]
    fn update_of_one_namespace_contains_only_its_changes_in_order() {
        let cached = snapshot(5, &["n/a 2", "n/b 3"]);
        let change = |change_type, text: &str| {
            let object = object(text);
            let previous = cached.get(object.key().as_str()).cloned();
            Change { change_type, object, previous }
        };
        let changes = vec![
            change(ChangeType::Added, "m/x 6"),
            change(ChangeType::Deleted, "n/a 7"),
            change(ChangeType::Modified, "n/b 8"),
            change(ChangeType::Added, "n/c 9"),
            change(ChangeType::Deleted, "o/x 10"),
        ];
        let step = Update::Changes { changes, snapshot: snapshot(11, &[]) };
        let Some(Update::Changes { changes, snapshot: after }) = part_of(&step, &cached) else { panic!("no changes") };
        let keys: Vec<_> = changes.iter().map(|change| change.object.key().as_str()).collect();
        assert_eq!(keys, ["n/a", "n/b", "n/c"]);
        assert_eq!(shown(&after), "11: n/b@8 n/c@9");
        let elsewhere = vec![change(ChangeType::Added, "m/y 12")];
        assert!(part_of(&Update::Changes { changes: elsewhere, snapshot: snapshot(12, &[]) }, &cached).is_none());
        let progress = part_of(&Update::Progress { snapshot: snapshot(12, &["m/y 12"]) }, &after).unwrap();
        assert_eq!(shown(progress.snapshot()), "12: n/b@8 n/c@9");
    }

    #[test]
    fn namespace_version_counts_deletions_in_other_namespaces_at_its_revision() {
        let cached = snapshot(5, &["n/a 2", "n/b 3"]);
        let deleted = |text: &str| Change { change_type: ChangeType::Deleted, object: object(text), previous: None };
        let steps = |before: &str, after: &str, texts: &[&str]| -> Vec<String> {
            let mut whole = Snapshot::default();
            whole.set_resource_version(CollectionVersion::parse(after).unwrap());
            let step = Update::Changes { changes: texts.iter().map(|text| deleted(text)).collect(), snapshot: whole };
            parts_of(&step, before, &cached).iter().map(|step| shown(step.snapshot())).collect()
        };
        assert_eq!(steps("5", "7-1", &["m/x 7"]), [""; 0]);
        assert_eq!(steps("7-1", "7-2", &["n/a 7"]), ["7-1: n/a@2 n/b@3", "7-2: n/b@3"]);
        assert_eq!(steps("5", "7-2", &["n/a 7", "n/b 7"]), ["7-2: "]);
        let between = steps("6-3", "8-1", &["n/a 7", "m/x 7", "m/y 7", "n/b 7", "m/z 8"]);
        assert_eq!(between, ["7-1: n/b@3", "7-3: n/b@3", "8-1: "]);
    }
}
