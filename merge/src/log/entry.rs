//! What stands at one place in the log.

use std::sync::{Arc, Weak};

use tributary_apimachinery::{Change, ChangeType, ClusterName, CollectionVersion, Object, ResourceVersion, Snapshot};

use super::difference::Differences;

/// One place in the log.
#[derive(Debug)]
pub(crate) struct LogEntry {
    pub(crate) cluster: ClusterName,
    pub(crate) kind: EntryKind,
    /// The other clusters' objects of the names that may go away here.
    pub(crate) others: Others,
}

#[derive(Debug)]
pub(crate) enum EntryKind {
    /// One change that the member sent.
    Change(Change),
    /// Many changes that no member sent: differences between two snapshots.
    Boundary(Box<Boundary>),
}

/// A place where a cluster's history does not go on change by change.
#[derive(Debug)]
pub(crate) struct Boundary {
    pub(crate) kind: BoundaryKind,
    /// The state before; empty for a join.
    pub(crate) before: Snapshot,
    /// What leads from the state before to the one after; the early ones are told at the component before.
    /// Shared by all watchers.
    pub(crate) differences: Differences,
    /// The cluster's component before; `None` for a join.
    pub(crate) component_before: Option<CollectionVersion>,
    /// The cluster's component after; `None` for a leave.
    pub(crate) component: Option<CollectionVersion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundaryKind {
    /// The cluster became known. It may have left, which is still in the log then.
    Join(Option<Left>),
    /// The cluster was removed.
    Leave,
    /// The cluster was listed anew.
    Relist,
    /// The cluster was listed anew and its revisions went back.
    Reset,
}

/// At which version a cluster left that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Time went on.
    At(CollectionVersion),
    /// Its revisions went back meanwhile: earlier versions stand for something else now.
    Undone(CollectionVersion),
}

/// The component of a cluster that is leaving, from its first DELETED to the last but one.
///
/// Its own version would claim that the client still has the state of that version, though half of the objects are
/// deleted: if the stream is cut there and the cluster comes back, a replica would take it at its word and never add
/// them again. Zero claims nothing and is too old everywhere.
pub(crate) const LEAVING: CollectionVersion = CollectionVersion::whole(ResourceVersion(0));

/// Where a version lies with respect to a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundarySide {
    /// The version was handed out before the boundary: everything of it is to be replayed.
    Before,
    /// The version covers the boundary.
    Covered,
    /// Neither: this process has not seen the state that the version stands for.
    Gap,
}

/// What the tree of a snapshot takes for each object, in bytes: a listed collection has a tree of its own, though it
/// shares the objects that have not changed. About as much as an indexed one takes.
const BYTES_OF_A_PLACE: usize = 64;

impl LogEntry {
    /// What it occupies, in bytes, with the objects that nobody else may have any more.
    ///
    /// The object after a change is among the cluster's objects, until the next change of it keeps it as the one
    /// before. So one of the two is counted, the larger one: whoever makes a large object small, or deletes it, has the
    /// history keep the large one.
    pub(crate) fn bytes(&self) -> usize {
        let kept = match &self.kind {
            EntryKind::Change(change) => {
                change.object.size().max(change.previous.as_ref().map_or(0, |previous| previous.size()))
            }
            EntryKind::Boundary(boundary) => {
                boundary.differences.replaced_bytes() + boundary.before.len() * BYTES_OF_A_PLACE
            }
        };
        kept + self.others.bytes() + size_of::<Self>()
    }

    /// The changes in their order.
    pub(crate) fn changes(&self) -> &[Change] {
        match &self.kind {
            EntryKind::Change(change) => std::slice::from_ref(change),
            EntryKind::Boundary(boundary) => boundary.differences.all(),
        }
    }

    /// The boundary, if it is one.
    pub(crate) fn boundary(&self) -> Option<&Boundary> {
        match &self.kind {
            EntryKind::Boundary(boundary) => Some(boundary),
            EntryKind::Change(_) => None,
        }
    }

    /// Whether the change at `part` is told there to a watcher to whom it is this. Of differences, what may leave a
    /// selection stands twice, and only a DELETED may come at the component before.
    pub(crate) fn tells(&self, part: usize, change_type: ChangeType) -> bool {
        self.boundary()
            .is_none_or(|boundary| boundary.differences.is_early(part) == (change_type == ChangeType::Deleted))
    }

    /// The cluster's component while the change at `part` is being told; `None` where it is still the component before
    /// the entry. Of a cluster that is leaving it is [`LEAVING`] at its first DELETED already.
    pub(crate) fn component_at(&self, part: usize) -> Option<CollectionVersion> {
        match self.boundary() {
            Some(Boundary { kind: BoundaryKind::Leave, .. }) => Some(LEAVING),
            _ => self.component_after(part.checked_sub(1)?),
        }
    }

    /// The cluster's component after the change at `part`, unless that is the last one; `None` where it is still the
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
    /// The newest version that was undone here, if this one stands for two states since: for one that was undone, and
    /// for one that came later.
    pub(crate) fn undone(&self, version: CollectionVersion) -> Option<CollectionVersion> {
        let newest = match self.kind {
            BoundaryKind::Reset => self.component_before,
            BoundaryKind::Join(Some(Left::Undone(left))) => Some(left),
            BoundaryKind::Join(_) | BoundaryKind::Leave | BoundaryKind::Relist => None,
        };
        newest.map(CollectionVersion::completed).filter(|newest| self.component < Some(version) && version <= *newest)
    }

    /// Where a version of this cluster lies.
    ///
    /// Strictly inside a gap a version comes from a replica that saw what this process did not, perhaps an object
    /// that appeared and went away meanwhile: the differences known here would never delete it, so such a version is
    /// too old. At the version before a relist the client has exactly the state that the differences start from, and
    /// they are replayed. Where that was a part of a revision, who has all of it has no more but some of its deletions:
    /// of those it is told again.
    pub(crate) fn place(&self, version: CollectionVersion) -> BoundarySide {
        let before = self.component_before.map(CollectionVersion::completed);
        let is_behind = self.component.is_some_and(|after| version >= after);
        match self.kind {
            // Where a part was listed anew as all of its revision, who has all of it has what the list had.
            BoundaryKind::Relist if self.component_before.is_some_and(CollectionVersion::is_part) && is_behind => {
                BoundarySide::Covered
            }
            BoundaryKind::Leave | BoundaryKind::Relist if before.is_some_and(|before| version <= before) => {
                BoundarySide::Before
            }
            _ if is_behind => BoundarySide::Covered,
            BoundaryKind::Join(Some(Left::At(left))) if version <= left.completed() => BoundarySide::Before,
            _ => BoundarySide::Gap,
        }
    }
}

/// Objects of other clusters, by key and then by cluster.
#[derive(Debug, Default)]
pub(crate) struct Others(Box<[OtherObject]>);

/// Another cluster's object of a name that may go away.
#[derive(Debug)]
pub(crate) struct OtherObject {
    /// The object of that name that may go away, which the entry has.
    pub(crate) named: Arc<Object>,
    /// The other cluster.
    pub(crate) cluster: ClusterName,
    /// Its object, as it is at this place. That cluster's part of the log keeps it: its head, until the next change of
    /// it or the next boundary, and then that entry, as what was before. Once that entry is forgotten, nobody who reads
    /// here is still to be told of that cluster's part: a watcher lags, or has more of that cluster than this place.
    /// So it is not kept, and not counted, a second time here, where it may be as large as that cluster likes.
    pub(crate) object: Weak<Object>,
}

impl Others {
    pub(crate) fn new(mut objects: Vec<OtherObject>) -> Self {
        objects.sort_by(|a, b| a.named.key().cmp(b.named.key()).then_with(|| a.cluster.cmp(&b.cluster)));
        Self(objects.into())
    }

    /// What they occupy, in bytes. Of an object that is let go elsewhere the shell comes on top, once for all that name
    /// it: in a large fleet with the same names everywhere, to count it with each would leave a quarter of the history.
    fn bytes(&self) -> usize {
        self.0.len() * size_of::<OtherObject>()
    }

    /// The objects of one key with their indices, in the order of their clusters' names. One that is not kept any more
    /// is for nobody who reads here ([`OtherObject::object`]).
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
