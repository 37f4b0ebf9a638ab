//! The differences between two snapshots of a cluster, as changes that the cluster did not send as events.

use std::cmp::Ordering;
use std::sync::Arc;

use tributary_apimachinery::{Change, ChangeType, Object, ResourceVersion, Snapshot};

/// The changes from one snapshot to another, in the order of their events. Early changes carry the version of the first
/// snapshot. Each later change carries its own version.
#[derive(Debug)]
pub(crate) struct Differences {
    changes: Vec<Change>,
    early: usize,
    /// The size of the objects that only the first snapshot contains, in bytes.
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

    /// Returns the early changes. Watches send an early change only as DELETED.
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
/// * If the object leaves the selection of a watch, the watch sends the early change as DELETED. The object may have
///   left the selection at an earlier version than the one in the list. A client that resumes between these versions at
///   a different replica would receive no event for the object, and would keep it forever. So the client must receive
///   the DELETED before any later version.
/// * If the object enters the selection of a watch, or stays in it, the watch sends the later change. The event must
///   not carry the earlier version. Otherwise the client could resume at a different replica that never saw this state
///   of the object. This replica would never delete the object at the client.
///
/// An object with the same key and a different uid is a different object: the first is deleted and the second is added.
///
/// Cost: a walk over both snapshots, and a sort of the differences.
pub(crate) fn differences(before: &Snapshot, after: &Snapshot, same: fn(&Object, &Object) -> bool) -> Differences {
    let (mut changes, mut replaced_bytes) = (Vec::new(), 0);
    for (old, new) in pairs(before, after) {
        // An unchanged object may exist as two allocations. Only a shared allocation costs no additional memory.
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
    // The sort is stable, so deletions stay in the order of their keys.
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

/// Returns whether an object is unchanged. Requires that revisions did not go back, so that equal versions mean equal
/// contents.
pub(crate) fn same_version(old: &Object, new: &Object) -> bool {
    old.resource_version() == new.resource_version() && old.uid() == new.uid()
}

/// Returns whether an object is unchanged, even if revisions went back: then equal versions may have different
/// contents, so the texts are compared.
pub(crate) fn same_text(old: &Object, new: &Object) -> bool {
    old.json() == new.json()
}

/// Returns whether a change may remove its object from the selection of a label or field selector.
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

    /// Kinds may get more selectable fields in future releases, so the test uses 100 fields.
    #[test]
    fn change_of_any_selectable_field_is_detected_in_the_event_log() {
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
