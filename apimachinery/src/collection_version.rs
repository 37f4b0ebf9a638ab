//! How far a collection of one member is known.

use std::cmp::Ordering;
use std::fmt;

use crate::change::{Change, ChangeType};
use crate::resource_version::{InvalidResourceVersion, ResourceVersion};

/// What stands in the text of a version between its revision and how many of its changes are meant.
const PART: char = '-';

/// The version of a collection: everything up to a revision, or everything before it and of its own
/// changes the first ones.
///
/// Several changes may share a revision: etcd deletes in one transaction what one lease held (Events,
/// `lease/lessor.go`), or what one range delete names. A kube-apiserver sends a DELETED for each, all of that version
/// and in the transaction's order, and nothing in them says which is the last. So behind the first of them only a
/// *part* of the revision is known, until a later one is heard of, or a bookmark. Everything else a kube-apiserver
/// writes key by key (`etcd3/store.go`), so with an object that was put its revision is *whole*.
///
/// The order is that of knowledge: all of revision 7, one change of 8, two of them, all of 8. As text:
/// `7`, `8-1`, `8-2`, `8`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionVersion {
    revision: ResourceVersion,
    known: RevisionExtent,
}

/// How much of a revision is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum RevisionExtent {
    /// So many of its changes, the first ones.
    Part(u32),
    Whole,
}

impl CollectionVersion {
    /// Everything up to a revision.
    pub const fn whole(revision: ResourceVersion) -> Self {
        Self { revision, known: RevisionExtent::Whole }
    }

    /// Everything before a revision, and so many of its own changes, the first ones.
    pub const fn part(revision: ResourceVersion, changes: u32) -> Self {
        Self { revision, known: RevisionExtent::Part(changes) }
    }

    /// The least at which something of a revision was heard: what a write of that revision made is seen then,
    /// or was undone.
    pub const fn begun(revision: ResourceVersion) -> Self {
        Self::part(revision, 0)
    }

    /// How far the collection is known once this change is, too.
    #[must_use]
    pub fn with_change(self, change: &Change) -> Self {
        let revision = change.resource_version();
        match (change.change_type, self.known) {
            (ChangeType::Deleted, RevisionExtent::Part(changes)) if self.revision == revision => {
                Self::part(revision, changes.saturating_add(1))
            }
            (ChangeType::Deleted, _) => self.max(Self::part(revision, 1)),
            (ChangeType::Added | ChangeType::Modified, _) => self.max(Self::whole(revision)),
        }
    }

    /// The revision of which something is known, and nothing of a later one.
    pub fn revision(self) -> ResourceVersion {
        self.revision
    }

    /// How many changes of the revision are known, unless it is all of them.
    pub fn changes(self) -> Option<u32> {
        match self.known {
            RevisionExtent::Part(changes) => Some(changes),
            RevisionExtent::Whole => None,
        }
    }

    /// Whether more of the same revision may come.
    pub fn is_part(self) -> bool {
        self.known != RevisionExtent::Whole
    }

    /// All of the revision of which something is known here.
    #[must_use]
    pub fn completed(self) -> Self {
        Self::whole(self.revision)
    }

    /// The revision after which a member is to go on, so that nothing is missed: of a part it sends all again.
    pub fn resume_after(self) -> ResourceVersion {
        match self.known {
            RevisionExtent::Part(_) => ResourceVersion(self.revision.0.saturating_sub(1)),
            RevisionExtent::Whole => self.revision,
        }
    }

    /// Parses digits without a leading zero, and behind them for a part a hyphen and how many changes.
    ///
    /// # Errors
    /// [`InvalidResourceVersion`] for anything else; no revision is zero, so there is no part of it.
    pub fn parse(text: &str) -> Result<Self, InvalidResourceVersion> {
        let Some((revision, changes)) = text.split_once(PART) else {
            return ResourceVersion::parse(text).map(Self::whole);
        };
        let malformed = || InvalidResourceVersion(text.to_owned());
        let revision = ResourceVersion::parse(revision).ok().filter(|revision| revision.0 > 0).ok_or_else(malformed)?;
        let changes = ResourceVersion::parse(changes).ok().and_then(|changes| u32::try_from(changes.0).ok());
        changes.map(|changes| Self::part(revision, changes)).ok_or_else(malformed)
    }
}

impl Default for CollectionVersion {
    /// Nothing seen yet.
    fn default() -> Self {
        Self::whole(ResourceVersion::default())
    }
}

impl From<ResourceVersion> for CollectionVersion {
    fn from(revision: ResourceVersion) -> Self {
        Self::whole(revision)
    }
}

impl PartialEq<ResourceVersion> for CollectionVersion {
    fn eq(&self, revision: &ResourceVersion) -> bool {
        *self == Self::whole(*revision)
    }
}

impl PartialOrd<ResourceVersion> for CollectionVersion {
    fn partial_cmp(&self, revision: &ResourceVersion) -> Option<Ordering> {
        Some(self.cmp(&Self::whole(*revision)))
    }
}

impl fmt::Display for CollectionVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known {
            RevisionExtent::Part(changes) => write!(f, "{}{PART}{changes}", self.revision),
            RevisionExtent::Whole => fmt::Display::fmt(&self.revision, f),
        }
    }
}

impl fmt::Debug for CollectionVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CollectionVersion({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ObjectDecoder;

    fn version(text: &str) -> CollectionVersion {
        CollectionVersion::parse(text).unwrap()
    }

    #[test]
    fn a_part_stands_between_its_revision_and_the_one_before() {
        let ascending = ["7", "8-0", "8-1", "8-2", "8", "9-0"].map(version);
        assert!(ascending.is_sorted());
        assert!(version("8-1") < ResourceVersion(8) && version("8-1") > ResourceVersion(7));
        let (part, whole) = (version("8-2"), version("8"));
        assert_eq!((part.completed(), part.changes(), whole.changes()), (whole, Some(2), None));
        assert_eq!((part.resume_after(), whole.resume_after()), (ResourceVersion(7), ResourceVersion(8)));
    }

    #[test]
    fn only_deletions_share_a_revision() {
        use ChangeType::{Added, Deleted, Modified};
        let steps = [
            (Deleted, 8, "8-1"),
            (Deleted, 8, "8-2"),
            (Modified, 9, "9"),
            (Deleted, 9, "9"),
            (Deleted, 10, "10-1"),
            (Deleted, 12, "12-1"),
            (Added, 12, "12"),
            (Added, 13, "13"),
        ];
        let mut known = version("7");
        for (change_type, revision, expected) in steps {
            let text = format!(r#"{{"metadata":{{"name":"x","resourceVersion":"{revision}"}}}}"#);
            let object = Arc::new(ObjectDecoder::new("v1", "Pod", [].into()).decode(text.as_bytes()).unwrap());
            known = known.with_change(&Change { change_type, object, previous: None });
            assert_eq!(known.to_string(), expected, "{change_type:?} {revision}");
        }
    }

    #[test]
    fn has_one_spelling() {
        for text in ["0", "1", "8", "8-0", "8-12", "18446744073709551615", "18446744073709551615-4294967295"] {
            assert_eq!(version(text).to_string(), text);
        }
        for bad in ["", "-", "0-1", "08-1", "8-", "8-01", "8--1", "-8", "8 -1", "8+1", "8-4294967296", "8-1-1"] {
            assert!(CollectionVersion::parse(bad).is_err(), "{bad}");
        }
    }
}
