//! The entries of the merged log.

use std::sync::{Arc, Weak};

use tributary_apimachinery::{Change, ChangeType, ClusterName, CollectionVersion, Object, ResourceVersion, Snapshot};

use super::difference::Differences;

#[derive(Debug)]
pub(crate) struct LogEntry {
    pub(crate) cluster: ClusterName,
    pub(crate) kind: EntryKind,
    /// For changes that may remove an object from the selection of a watch: the objects of the same name in other
    /// clusters. The watch sends such an object after the DELETED.
    pub(crate) others: OtherObjects,
}

#[derive(Debug)]
pub(crate) enum EntryKind {
    /// A change that the cluster sent as an event.
    Change(Change),
    /// A join, leave, relist or reset of the cluster, with differences that the cluster did not send as events.
    Boundary(Box<Boundary>),
}

/// A boundary in a cluster's history: a join, leave, relist or reset, as opposed to a single change.
#[derive(Debug)]
pub(crate) struct Boundary {
    pub(crate) kind: BoundaryKind,
    /// The snapshot before the boundary; empty for a join.
    pub(crate) before: Snapshot,
    /// The changes from the state before to the state after the boundary, shared by all watches. Early changes
    /// (deletions, and changes that may remove an object from a selection) carry the cluster's version before the
    /// boundary.
    pub(crate) differences: Differences,
    /// The cluster's version before a join (`None`), leave, relist or reset.
    pub(crate) component_before: Option<CollectionVersion>,
    /// The cluster's version after a join, relist or reset. `None` after a leave.
    pub(crate) component: Option<CollectionVersion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundaryKind {
    /// The cluster was added. `Some` if the cluster had left before, and the entry of its leave is still in the log.
    Join(Option<Departure>),
    Leave,
    Relist,
    /// The cluster was listed again, and its revisions went back.
    Reset,
}

/// The version at which a cluster left, for a cluster that returned later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The cluster left at this version, and its revisions did not go back before its return.
    At(CollectionVersion),
    /// The cluster left at this version, and its revisions went back before its return. Earlier versions now have a
    /// different content.
    Undone(CollectionVersion),
}

/// The component of a leaving cluster in the versions of its DELETED events, except the last one.
///
/// The cluster's own version would claim that the client still has all objects. If the connection broke between two
/// DELETED events and the cluster returned, no replica would send the deleted objects again. Version 0 claims no state
/// and is older than each log's history.
pub(crate) const LEAVING: CollectionVersion = CollectionVersion::whole(ResourceVersion(0));

/// The position of a version relative to a boundary (a join, leave, relist or reset) of the version's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundarySide {
    /// The version is older than the boundary, so its client lacks all changes of the boundary.
    Before,
    /// The version includes all changes of the boundary.
    Covered,
    /// The version lies inside the boundary, at a state of the cluster that this process has not seen.
    Gap,
}

/// The size of an object's slot in the tree of a snapshot, in bytes: about the size in a snapshot with indexes. The
/// size of a boundary includes its tree, because a relisted collection has a new tree, even if both trees share the
/// unchanged objects.
const TREE_BYTES_PER_OBJECT: usize = 64;

impl LogEntry {
    /// Returns the size of the entry, in bytes, including objects that may exist only in this entry.
    ///
    /// The object after a change is in the cluster's snapshot until the object's next change. Later, the entry of that
    /// next change stores the object as its previous object. So one object of each change has a second owner, and only
    /// the larger of the two objects is counted. After a large object has shrunk or was deleted, only the history keeps
    /// the large object.
    pub(crate) fn bytes(&self) -> usize {
        let object_bytes = match &self.kind {
            EntryKind::Change(change) => {
                change.object.size().max(change.previous.as_ref().map_or(0, |previous| previous.size()))
            }
            EntryKind::Boundary(boundary) => {
                boundary.differences.replaced_bytes() + boundary.before.len() * TREE_BYTES_PER_OBJECT
            }
        };
        object_bytes + self.others.bytes() + size_of::<Self>()
    }

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

    /// Returns whether a watch sends the change at index `part` as an event of this type. A relist has two changes for
    /// an object that may leave a selection. The change with the version before the relist may be sent only as DELETED.
    pub(crate) fn emits(&self, part: usize, change_type: ChangeType) -> bool {
        self.boundary()
            .is_none_or(|boundary| boundary.differences.is_early(part) == (change_type == ChangeType::Deleted))
    }

    /// Returns the cluster's component before the change at index `part`. `None` means the component before the whole
    /// entry. For a leaving cluster, the component is [`LEAVING`] from the first DELETED on.
    pub(crate) fn component_at(&self, part: usize) -> Option<CollectionVersion> {
        match self.boundary() {
            Some(Boundary { kind: BoundaryKind::Leave, .. }) => Some(LEAVING),
            _ => self.component_after(part.checked_sub(1)?),
        }
    }

    /// Returns the cluster's component after the change at index `part`, unless the change is the last of the entry.
    /// `None` means the component before the whole entry.
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
    /// If `version` belongs to two states, one before this reset and one after, returns the newest version that the
    /// reset made invalid.
    pub(crate) fn undone(&self, version: CollectionVersion) -> Option<CollectionVersion> {
        let newest = match self.kind {
            BoundaryKind::Reset => self.component_before,
            BoundaryKind::Join(Some(Departure::Undone(left))) => Some(left),
            BoundaryKind::Join(_) | BoundaryKind::Leave | BoundaryKind::Relist => None,
        };
        newest.map(CollectionVersion::completed).filter(|newest| self.component < Some(version) && version <= *newest)
    }

    /// Returns the position of a version of this cluster relative to the boundary (a join, leave, relist or reset).
    ///
    /// A version inside the gap of a relist comes from a replica that received more events than this process. The
    /// replica may have sent an object that was deleted before this process listed. The differences of the relist would
    /// never delete that object, so the version is too old. A client at the version before a relist has exactly the
    /// state before the differences, and receives them. If the version before a relist includes only some deletions of
    /// its revision, a client with the whole revision receives the remaining deletions again.
    pub(crate) fn side_of(&self, version: CollectionVersion) -> BoundarySide {
        let before = self.component_before.map(CollectionVersion::completed);
        let is_behind = self.component.is_some_and(|after| version >= after);
        match self.kind {
            // The log has only some deletions of a revision, and the list includes the missing deletions. So a client
            // with the whole revision has the state of the list.
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
pub(crate) struct OtherObjects(Box<[OtherObject]>);

/// An object that has the same name as an object of a different cluster that may leave a selection.
#[derive(Debug)]
pub(crate) struct OtherObject {
    /// The object with this name in the cluster of the entry.
    pub(crate) named: Arc<Object>,
    pub(crate) cluster: ClusterName,
    /// The other cluster's object, in its state at this position of the log.
    ///
    /// The other cluster's part of the log owns the object. Until the object's next change or boundary, the owner is
    /// the cluster's snapshot. Later, the owner is the entry of that change, which stores the previous object. After
    /// that entry has been evicted, no watch at this position needs the object: the watch lags, or its client has
    /// received later events of that cluster. A strong reference would keep a large object in memory and count it
    /// twice.
    pub(crate) object: Weak<Object>,
}

impl OtherObjects {
    pub(crate) fn new(mut objects: Vec<OtherObject>) -> Self {
        objects.sort_by(|a, b| a.named.key().cmp(b.named.key()).then_with(|| a.cluster.cmp(&b.cluster)));
        Self(objects.into())
    }

    /// Returns the size of the references, in bytes. Ignores the allocation of a dropped object, which remains as long
    /// as a weak reference to it exists. With this allocation in the size of each reference, the history of a large
    /// fleet with equal names in all clusters would shrink to a quarter.
    fn bytes(&self) -> usize {
        self.0.len() * size_of::<OtherObject>()
    }

    /// Iterates over the objects with a key and their indices, in the order of their clusters' names. Skips objects
    /// that were dropped from memory, because no watch at this position needs them ([`OtherObject::object`]).
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
