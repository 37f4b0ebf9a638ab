//! What happened between two snapshots of one cluster, as the changes that no member sent.

use std::cmp::Ordering;
use std::sync::Arc;

use tributary_apimachinery::{Change, ChangeType, Object, ResourceVersion, Snapshot};

/// The changes that lead from one snapshot to another, in the order in which they are told. Some come early, at the
/// version before; the others each at their own.
#[derive(Debug)]
pub(crate) struct Differences {
    changes: Vec<Change>,
    /// How many of them come early.
    early: usize,
    /// What the objects of the state before occupy that are not in the one after, in bytes.
    replaced_bytes: usize,
}

impl Differences {
    /// What the objects of the state before occupy that are not in the one after, in bytes.
    pub(crate) fn replaced_bytes(&self) -> usize {
        self.replaced_bytes
    }

    /// All of them, the early ones first.
    pub(crate) fn all(&self) -> &[Change] {
        &self.changes
    }

    /// Those that come early: they are told as DELETED, and they alone.
    pub(crate) fn early(&self) -> &[Change] {
        &self.changes[..self.early]
    }

    /// Whether the one at this place among all comes early.
    pub(crate) fn is_early(&self, part: usize) -> bool {
        part < self.early
    }
}

/// The changes that lead from one snapshot to another.
///
/// Early come deletions and what may leave a selection, then additions and modifications in ascending native version.
/// What may leave a selection stands there once more, and each watcher is told one of the two
/// ([`LogEntry::tells`](super::LogEntry::tells)):
///
/// * Who loses the object is told so first. An object that left a selection and changed again later stands here with
///   its last version alone: at any version between, other replicas tell nothing more of it, so no such version may be
///   handed out before its deletion.
/// * Who gets it or keeps it is told so in its place. Told at the version before, it would be more than that version
///   says, and at another replica, where it changed again before it was seen there, nothing would ever take it away.
///
/// An object of the same key and another uid is another object: it is deleted and added.
///
/// Cost: a walk over both, and a sort of what differs.
pub(crate) fn differences(before: &Snapshot, after: &Snapshot, same: fn(&Object, &Object) -> bool) -> Differences {
    let (mut changes, mut replaced_bytes) = (Vec::new(), 0);
    for (old, new) in pairs(before, after) {
        // One that is the same may stand in memory twice: only what is shared is no more than it was.
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
    // Stable, so deletions stay in key order.
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

/// Whether an object did not change, where revisions only go up: a version of an object stands for its content.
pub(crate) fn same_version(old: &Object, new: &Object) -> bool {
    old.resource_version() == new.resource_version() && old.uid() == new.uid()
}

/// Whether an object did not change, where revisions went back and stand for something else now.
pub(crate) fn same_text(old: &Object, new: &Object) -> bool {
    old.json() == new.json()
}

/// Whether a selector may stop matching with this change.
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

/// Walks two snapshots in step: every key of either once, with what each has under it.
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

    /// However many fields of a kind can be selected: a kind may get more than any has today.
    #[test]
    fn what_any_selectable_field_shows_may_leave_a_selection() {
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
        assert!(!leaves(None), "only what nobody selects by has changed");
        for index in 0..FIELDS {
            assert!(leaves(Some(index)), "spec.f{index}");
        }
    }
}
