//! The differences between two snapshots of a cluster, as changes that the cluster did not send as events.

use std::cmp::Ordering;
use std::sync::Arc;

use tributary_apimachinery::{Change, ChangeType, Object, ResourceVersion, Snapshot};

/// The changes from one snapshot to another, in the order of their events. Early changes carry the version of the first
/// snapshot; each later change carries its own version.
#[derive(Debug)]
pub(crate) struct Differences {
    changes: Vec<Change>,
    early: usize,
    /// The size of the objects that only the first snapshot has, in bytes.
    replaced_bytes: usize,
}

impl Differences {
    pub(crate) fn replaced_bytes(&self) -> usize {
        self.replaced_bytes
    }

    /// Returns all changes, the early changes first.
    pub(crate) fn all(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the early changes, which watches send only as DELETED.
    pub(crate) fn early(&self) -> &[Change] {
        &self.changes[..self.early]
    }

    pub(crate) fn is_early(&self, part: usize) -> bool {
        part < self.early
    }
}

/// Computes the changes from one snapshot to another.
///
/// Early changes are deletions and changes that may remove an object from a selection. Additions and modifications
/// follow in ascending native version. A change that may remove an object from a selection is in both groups, and each
/// watch sends one of the two ([`LogEntry::emits`](super::LogEntry::emits)):
///
/// * A watch whose selection the object leaves sends the early change. An object that left the selection and changed
///   again has only its last version in the list. Other replicas send no event for the object at the versions between,
///   so no such version may precede its deletion.
/// * A watch whose selection the object enters, or stays in, sends the later change. An event with the earlier version
///   would claim too much. At a replica that did not see this state of the object, no event would ever remove the
///   object.
///
/// An object with the same key and a different uid is a different object: it is deleted and added.
///
/// Cost: a walk over both snapshots, and a sort of the differences.
pub(crate) fn differences(before: &Snapshot, after: &Snapshot, same: fn(&Object, &Object) -> bool) -> Differences {
    let (mut changes, mut replaced_bytes) = (Vec::new(), 0);
    for (old, new) in pairs(before, after) {
        // An unchanged object may exist as two allocations: only a shared allocation adds no memory.
        if let Some(old) = old.filter(|old| new.is_none_or(|new| !Arc::ptr_eq(old, new))) {
            replaced_bytes += old.size();
        }
        match (old, new) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) || same(old, new) => {}
            (Some(old), Some(new)) if old.uid() == new.uid() => changes.push(modification(old, new)),
            (old, new) => {
                changes.extend(old.map(deletion));
                changes.extend(new.map(addition));
            }
        }
    }
    // The sort is stable, so deletions stay in key order.
    changes.sort_by_cached_key(|change| match change.change_type {
        ChangeType::Deleted => (0, ResourceVersion::default()),
        _ => (1, change.resource_version()),
    });
    let deletions = changes.partition_point(|change| change.change_type == ChangeType::Deleted);
    let leaving: Vec<_> = changes[deletions..].iter().filter(|change| may_leave_selection(change)).cloned().collect();
    let early = deletions + leaving.len();
    changes.splice(deletions..deletions, leaving);
    Differences { changes, early, replaced_bytes }
}

/// Returns whether an object is unchanged, if revisions did not go back: the version then identifies the content.
pub(crate) fn same_version(old: &Object, new: &Object) -> bool {
    old.resource_version() == new.resource_version() && old.uid() == new.uid()
}

/// Returns whether an object is unchanged, if revisions went back: the version may then have a different content.
pub(crate) fn same_text(old: &Object, new: &Object) -> bool {
    old.json() == new.json()
}

/// Returns whether an object may leave a selector's selection by this change.
pub(crate) fn may_leave_selection(change: &Change) -> bool {
    match (change.change_type, &change.previous) {
        (ChangeType::Deleted, _) => true,
        (_, None) => false,
        (_, Some(previous)) => !previous.same_selectables(&change.object),
    }
}

fn deletion(old: &Arc<Object>) -> Change {
    Change { change_type: ChangeType::Deleted, object: old.clone(), previous: Some(old.clone()) }
}

fn addition(new: &Arc<Object>) -> Change {
    Change { change_type: ChangeType::Added, object: new.clone(), previous: None }
}

fn modification(old: &Arc<Object>, new: &Arc<Object>) -> Change {
    Change { change_type: ChangeType::Modified, object: new.clone(), previous: Some(old.clone()) }
}

/// Walks two snapshots in step: yields each key once, with the objects of both snapshots.
fn pairs<'a>(
    before: &'a Snapshot,
    after: &'a Snapshot,
) -> impl Iterator<Item = (Option<&'a Arc<Object>>, Option<&'a Arc<Object>>)> {
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (before.peek(), after.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.key().cmp(new.key()),
        };
        Some((before.next_if(|_| order.is_le()), after.next_if(|_| order.is_ge())))
    })
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{ObjectDecoder, SelectableField};

    use super::*;

    /// The test uses more fields than any kind has today, because later kinds may have more.
    #[test]
    fn change_of_each_selectable_field_may_leave_a_selection() {
        const FIELDS: usize = 100;
        let names = (0..FIELDS).map(|index| SelectableField::dotted(&format!("spec.f{index}")));
        let decoder = ObjectDecoder::new("x/v1", "X", names.collect());
        let object = |version: u64, changed: Option<usize>| {
            let fields = (0..FIELDS).map(|index| format!(r#""f{index}":"{}""#, changed == Some(index)));
            let fields = fields.collect::<Vec<_>>().join(",");
            let metadata = format!(r#"{{"name":"x","uid":"u","resourceVersion":"{version}"}}"#);
            let text = format!(r#"{{"metadata":{metadata},"spec":{{{fields}}},"status":{{"v":"{version}"}}}}"#);
            Arc::new(decoder.decode(text.as_bytes()).unwrap_or_else(|error| panic!("{error}")))
        };
        let old = object(1, None);
        let leaves = |changed| may_leave_selection(&modification(&old, &object(2, changed)));
        assert!(!leaves(None), "only unselectable fields have changed");
        for index in 0..FIELDS {
            assert!(leaves(Some(index)), "spec.f{index}");
        }
    }
}
