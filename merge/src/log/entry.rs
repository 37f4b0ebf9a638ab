//! The entries of the log.

use std::sync::{Arc, Weak};

use tributary_apimachinery::{Change, ChangeType, ClusterName, CollectionVersion, Object, ResourceVersion, Snapshot};

use super::difference::Differences;

#[derive(Debug)]
pub(crate) struct LogEntry {
    pub(crate) cluster: ClusterName,
    pub(crate) kind: EntryKind,
    /// The other clusters' objects with the names that this entry may remove from a selection.
    pub(crate) others: Others,
}

#[derive(Debug)]
pub(crate) enum EntryKind {
    /// A change that the cluster sent as an event.
    Change(Change),
    /// Differences between two snapshots, which no cluster sent as events.
    Boundary(Box<Boundary>),
}

/// A point at which a cluster's history does not continue change by change.
#[derive(Debug)]
pub(crate) struct Boundary {
    pub(crate) kind: BoundaryKind,
    /// The state before; empty for a join.
    pub(crate) before: Snapshot,
    /// The changes from the state before to the state after, shared by all watchers; early ones carry the component
    /// before.
    pub(crate) differences: Differences,
    /// The cluster's component before; `None` for a join.
    pub(crate) component_before: Option<CollectionVersion>,
    /// The cluster's component after; `None` for a leave.
    pub(crate) component: Option<CollectionVersion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundaryKind {
    /// The cluster became known. `Some` if it had left before, and the log still has its leave.
    Join(Option<Departure>),
    /// The cluster was removed.
    Leave,
    /// The cluster was listed again.
    Relist,
    /// The cluster was listed again and its revisions went back.
    Reset,
}

/// The version at which a cluster left that returned later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// Its revisions did not go back.
    At(CollectionVersion),
    /// Its revisions went back in the meantime: earlier versions now stand for different content.
    Undone(CollectionVersion),
}

/// The component of a leaving cluster, from its first DELETED to the last but one.
///
/// Its own version would claim that the client still has the whole state, although half of the objects are deleted:
/// after a cut, and after the return of the cluster, a replica would never add them again. Zero claims no state and is
/// too old everywhere.
pub(crate) const LEAVING: CollectionVersion = CollectionVersion::whole(ResourceVersion(0));

/// The position of a version relative to a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundarySide {
    /// The version is older than the boundary: all of its changes are to be replayed.
    Before,
    /// The version covers the boundary.
    Covered,
    /// Neither: this process has not seen the state of the version.
    Gap,
}

/// The size of an object's slot in the tree of a snapshot, in bytes, about that of an indexed snapshot. A relisted
/// collection has a tree of its own, although it shares the unchanged objects.
const TREE_BYTES_PER_OBJECT: usize = 64;

impl LogEntry {
    /// Returns the size of the entry, in bytes, including the objects that may exist only here.
    ///
    /// The object after a change belongs to the cluster's objects until its next change, whose entry then keeps it as
    /// the object before. So only the larger of the two is counted: shrinking or deleting a large object makes the
    /// history keep the large one.
    pub(crate) fn bytes(&self) -> usize {
        let kept = match &self.kind {
            EntryKind::Change(change) => {
                change.object.size().max(change.previous.as_ref().map_or(0, |previous| previous.size()))
            }
            EntryKind::Boundary(boundary) => {
                boundary.differences.replaced_bytes() + boundary.before.len() * TREE_BYTES_PER_OBJECT
            }
        };
        kept + self.others.bytes() + size_of::<Self>()
    }

    /// Returns the changes in their order.
    pub(crate) fn changes(&self) -> &[Change] {
        match &self.kind {
            EntryKind::Change(change) => std::slice::from_ref(change),
            EntryKind::Boundary(boundary) => boundary.differences.all(),
        }
    }

    pub(crate) fn boundary(&self) -> Option<&Boundary> {
        match &self.kind {
            EntryKind::Boundary(boundary) => Some(boundary),
            EntryKind::Change(_) => None,
        }
    }

    /// Returns whether the change at `part` produces an event of this type for a watcher. A boundary has two changes
    /// for an object that may leave a selection, and only DELETED may carry the component before.
    pub(crate) fn emits(&self, part: usize, change_type: ChangeType) -> bool {
        self.boundary()
            .is_none_or(|boundary| boundary.differences.is_early(part) == (change_type == ChangeType::Deleted))
    }

    /// Returns the cluster's component while the change at `part` is being sent; `None` while it is the component
    /// before the entry. For a leaving cluster it is [`LEAVING`] already at the first DELETED.
    pub(crate) fn component_at(&self, part: usize) -> Option<CollectionVersion> {
        match self.boundary() {
            Some(Boundary { kind: BoundaryKind::Leave, .. }) => Some(LEAVING),
            _ => self.component_after(part.checked_sub(1)?),
        }
    }

    /// Returns the cluster's component after the change at `part`, unless it is the last change; `None` while it is the
    /// component before the entry.
    pub(crate) fn component_after(&self, part: usize) -> Option<CollectionVersion> {
        let boundary = self.boundary()?;
        let change = &boundary.differences.all()[part];
        if boundary.kind == BoundaryKind::Leave {
            return Some(LEAVING);
        }
        if boundary.differences.is_early(part) {
            return None;
        }
        let own = CollectionVersion::whole(change.resource_version());
        let own = boundary.component.map_or(own, |after| own.min(after));
        match boundary.kind {
            BoundaryKind::Relist => Some(boundary.component_before.map_or(own, |before| own.max(before))),
            _ => Some(own),
        }
    }
}

impl Boundary {
    /// Returns the newest version that this boundary undid, if `version` now stands for two states: the undone one and
    /// a later one.
    pub(crate) fn undone(&self, version: CollectionVersion) -> Option<CollectionVersion> {
        let newest = match self.kind {
            BoundaryKind::Reset => self.component_before,
            BoundaryKind::Join(Some(Departure::Undone(left))) => Some(left),
            BoundaryKind::Join(_) | BoundaryKind::Leave | BoundaryKind::Relist => None,
        };
        newest.map(CollectionVersion::completed).filter(|newest| self.component < Some(version) && version <= *newest)
    }

    /// Returns the position of a version of this cluster relative to the boundary.
    ///
    /// A version strictly inside a gap comes from a replica that saw more than this process, perhaps an object that
    /// appeared and was deleted: the differences known here would never delete it, so such a version is too old. A
    /// client at the version before a relist has exactly the state from which the differences start, and they are
    /// replayed. If that version was a part of a revision, a client with all of the revision lacks only some of the
    /// remaining deletions, which it receives again.
    pub(crate) fn side_of(&self, version: CollectionVersion) -> BoundarySide {
        let before = self.component_before.map(CollectionVersion::completed);
        let is_behind = self.component.is_some_and(|after| version >= after);
        match self.kind {
            // A list completed a part of its revision: a client with all of the revision has the state of the list.
            BoundaryKind::Relist if self.component_before.is_some_and(CollectionVersion::is_part) && is_behind => {
                BoundarySide::Covered
            }
            BoundaryKind::Leave | BoundaryKind::Relist if before.is_some_and(|before| version <= before) => {
                BoundarySide::Before
            }
            _ if is_behind => BoundarySide::Covered,
            BoundaryKind::Join(Some(Departure::At(left))) if version <= left.completed() => BoundarySide::Before,
            _ => BoundarySide::Gap,
        }
    }
}

/// Objects of other clusters, sorted by key and then by cluster.
#[derive(Debug, Default)]
pub(crate) struct Others(Box<[OtherObject]>);

/// A different cluster's object with a name that may leave a selection.
#[derive(Debug)]
pub(crate) struct OtherObject {
    /// The object of that name in this entry.
    pub(crate) named: Arc<Object>,
    pub(crate) cluster: ClusterName,
    /// The other cluster's object, in its state at this point of the log. That cluster's part of the log keeps it: the
    /// head until its next change or boundary, and then that entry, as the state before. After that entry is forgotten,
    /// no reader of this entry still needs the object: a reader lags, or has seen more of that cluster. A strong
    /// reference would keep and count an object of any size a second time.
    pub(crate) object: Weak<Object>,
}

impl Others {
    pub(crate) fn new(mut objects: Vec<OtherObject>) -> Self {
        objects.sort_by(|a, b| a.named.key().cmp(b.named.key()).then_with(|| a.cluster.cmp(&b.cluster)));
        Self(objects.into())
    }

    /// Returns the size, in bytes. The allocation of a dropped object remains as long as a weak reference exists, and
    /// is not counted: counting it with each reference would leave a quarter of the history in a large fleet with equal
    /// names everywhere.
    fn bytes(&self) -> usize {
        self.0.len() * size_of::<OtherObject>()
    }

    /// Iterates over the objects of a key with their indices, in the order of their clusters' names. A dropped object
    /// is not needed by any reader of this entry ([`OtherObject::object`]).
    pub(crate) fn with_key<'a>(
        &'a self,
        key: &'a str,
    ) -> impl Iterator<Item = (usize, &'a ClusterName, &'a Weak<Object>)> {
        let start = self.0.partition_point(|other| other.named.key().as_str() < key);
        let objects = self.0.iter().enumerate().skip(start);
        objects
            .take_while(move |(_, other)| other.named.key().as_str() == key)
            .map(|(index, other)| (index, &other.cluster, &other.object))
    }
}
