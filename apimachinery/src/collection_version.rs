//! The version of a member's collection: a revision, or a part of a revision.

use std::cmp::Ordering;
use std::fmt;

use crate::change::{Change, ChangeType};
use crate::resource_version::{InvalidResourceVersion, ResourceVersion};

/// The character between the revision and the number of included changes in the text of a version, for example `8-1`.
const PART: char = '-';

/// The version of a collection: all changes up to a revision, or all changes before a revision and the revision's first
/// changes.
///
/// Several deletions may share a revision: etcd deletes the objects of a lease (Events, `lease/lessor.go`), or of a
/// range delete, in one transaction. A kube-apiserver sends a DELETED event with the shared revision for each object,
/// in the transaction's order. No event is marked as the last one of the revision. So after the first DELETED event,
/// the collection has only a *part* of the revision, until a bookmark or a later revision arrives. A kube-apiserver
/// makes all other changes key by key (`etcd3/store.go`), so an ADDED or MODIFIED event makes its revision *whole*.
///
/// Versions are ordered by the number of included changes: all of revision 7, one change of 8, two changes of 8, all of
/// 8. As text: `7`, `8-1`, `8-2`, `8`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionVersion {
    revision: ResourceVersion,
    known: RevisionExtent,
}

/// The number of changes of the newest revision that a version includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum RevisionExtent {
    /// The first `n` changes of the revision.
    Part(u32),
    Whole,
}

impl CollectionVersion {
    /// Creates the version that includes all changes up to a revision.
    pub const fn whole(revision: ResourceVersion) -> Self {
        Self { revision, known: RevisionExtent::Whole }
    }

    /// Creates the version with all changes before a revision and the revision's first `changes` changes.
    pub const fn part(revision: ResourceVersion, changes: u32) -> Self {
        Self { revision, known: RevisionExtent::Part(changes) }
    }

    /// Creates the lowest version that includes any change of a revision. A collection at this or a later version
    /// contains a client's write with that revision, unless the write was undone.
    pub const fn begun(revision: ResourceVersion) -> Self {
        Self::part(revision, 0)
    }

    /// Returns the version of the collection after one more change has been applied.
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

    /// Returns the newest revision, even if only some of its changes are included.
    pub fn revision(self) -> ResourceVersion {
        self.revision
    }

    /// Returns the number of included changes of the newest revision; `None` if all changes are included.
    pub fn changes(self) -> Option<u32> {
        match self.known {
            RevisionExtent::Part(changes) => Some(changes),
            RevisionExtent::Whole => None,
        }
    }

    /// Returns whether the member may send more changes of the newest included revision.
    pub fn is_part(self) -> bool {
        self.known != RevisionExtent::Whole
    }

    /// Returns the version that includes all changes of the same revision.
    #[must_use]
    pub fn completed(self) -> Self {
        Self::whole(self.revision)
    }

    /// Returns the revision from which a watch of the member must resume to miss no change. For a part of a revision,
    /// the watch resumes before the revision, and the member sends the whole revision again.
    pub fn resume_after(self) -> ResourceVersion {
        match self.known {
            RevisionExtent::Part(_) => ResourceVersion(self.revision.0.saturating_sub(1)),
            RevisionExtent::Whole => self.revision,
        }
    }

    /// Parses a version: the digits of a revision without a leading zero. A part of a revision also has a hyphen and
    /// the number of changes.
    ///
    /// # Errors
    /// [`InvalidResourceVersion`] for any other text, including a part of revision zero, which does not exist.
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
    /// Returns version zero, which is lower than the version of any change.
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
    fn partial_revision_sorts_between_the_previous_and_the_complete_revision() {
        let ascending = ["7", "8-0", "8-1", "8-2", "8", "9-0"].map(version);
        assert!(ascending.is_sorted());
        assert!(version("8-1") < ResourceVersion(8) && version("8-1") > ResourceVersion(7));
        let (part, whole) = (version("8-2"), version("8"));
        assert_eq!((part.completed(), part.changes(), whole.changes()), (whole, Some(2), None));
        assert_eq!((part.resume_after(), whole.resume_after()), (ResourceVersion(7), ResourceVersion(8)));
    }

    #[test]
    fn revision_with_only_deletions_is_partial_until_an_object_is_added_or_modified() {
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
    fn collection_version_text_has_a_single_spelling() {
        for text in ["0", "1", "8", "8-0", "8-12", "18446744073709551615", "18446744073709551615-4294967295"] {
            assert_eq!(version(text).to_string(), text);
        }
        for bad in ["", "-", "0-1", "08-1", "8-", "8-01", "8--1", "-8", "8 -1", "8+1", "8-4294967296", "8-1-1"] {
            assert!(CollectionVersion::parse(bad).is_err(), "{bad}");
        }
    }
}
