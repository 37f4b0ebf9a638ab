//! Objects of `clusters` with their revisions, and the last changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use tributary_apimachinery::{ClusterName, Object, ObjectDecoder};
use tributary_fleet::aggregated_group::{GROUP, VERSION};
use tributary_fleet::cluster_status::{ClusterOrigin, ClusterStatus};
use tributary_fleet::report::Report;

/// Maximum number of remembered changes, from which a watch can resume. 4,096 are four for each of a thousand clusters,
/// so that a watch can resume after an outage of the whole fleet. A change takes about 1 KB.
const CHANGES_MAX: usize = 4_096;

/// Objects of a collection, by cluster.
pub(super) type ClusterObjects = BTreeMap<ClusterName, Arc<Object>>;

/// Objects of the resource `clusters` at one revision, and the last changes. Each change has its own revision, so that
/// a watch can resume after each event.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterCollection {
    revision: u64,
    clusters: BTreeMap<ClusterName, ShownCluster>,
    /// Last changes, with consecutive revisions, up to the current revision.
    changes: VecDeque<Arc<ClusterObjectChange>>,
}

#[derive(Clone, Debug)]
struct ShownCluster {
    status: ClusterStatus,
    object: Arc<Object>,
}

/// Change of one object.
#[derive(Debug)]
pub(super) struct ClusterObjectChange {
    pub(super) revision: u64,
    pub(super) cluster: ClusterName,
    /// Object before the change; `None` for a new object.
    pub(super) before: Option<Arc<Object>>,
    /// Object after the change; `None` for a deleted object.
    pub(super) after: Option<Arc<Object>>,
}

impl ClusterCollection {
    /// Updates the objects from a report that was made at `now`. Returns whether an object has changed. If a cluster
    /// was replaced, its object is deleted and created again.
    pub(super) fn apply(
        &mut self,
        report: &Report,
        origins: impl IntoIterator<Item = (ClusterName, ClusterOrigin)>,
        now: Timestamp,
    ) -> bool {
        let before = self.revision;
        let mut present = BTreeMap::new();
        for (cluster, origin) in origins {
            let shown = self.clusters.get(&cluster).map(|shown| &shown.status);
            if let Some(status) = ClusterStatus::from_report(report, origin, shown, now) {
                present.insert(cluster, status);
            }
        }
        let is_replaced = |(cluster, shown): &(&ClusterName, &ShownCluster)| {
            present.get(*cluster).is_none_or(|status| shown.status.origin.is_replaced_by(&status.origin))
        };
        let replaced: Vec<_> = self.clusters.iter().filter(is_replaced).map(|(cluster, _)| cluster.clone()).collect();
        for cluster in replaced {
            self.set(cluster, None);
        }
        for (cluster, status) in present {
            if self.clusters.get(&cluster).is_none_or(|shown| shown.status != status) {
                self.set(cluster, Some(status));
            }
        }
        self.revision != before
    }

    /// Replaces or deletes the object of one cluster. Each call increments the revision.
    fn set(&mut self, cluster: ClusterName, status: Option<ClusterStatus>) {
        let revision = self.revision + 1;
        let shown = match status.map(|status| ShownCluster::new(status, revision)).transpose() {
            Ok(shown) => shown,
            Err(error) => {
                tracing::error!(%cluster, %error, "the state of the cluster cannot be shown as an object of the resource clusters");
                return;
            }
        };
        let after = shown.as_ref().map(|shown| Arc::clone(&shown.object));
        let before = match shown {
            Some(shown) => self.clusters.insert(cluster.clone(), shown),
            None => self.clusters.remove(&cluster),
        };
        let before = before.map(|shown| shown.object);
        self.revision = revision;
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(Arc::new(ClusterObjectChange { revision, cluster, before, after }));
    }

    /// Returns the revision of the last change.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn objects(&self) -> ClusterObjects {
        self.clusters.iter().map(|(cluster, shown)| (cluster.clone(), Arc::clone(&shown.object))).collect()
    }

    /// Returns the objects at a revision. `None` if the later changes are no longer remembered, or for a future
    /// revision.
    pub(super) fn objects_at(&self, revision: u64) -> Option<ClusterObjects> {
        let mut objects = self.objects();
        let changes: Vec<_> = self.changes_after(revision)?.collect();
        for change in changes.into_iter().rev() {
            match &change.before {
                Some(before) => objects.insert(change.cluster.clone(), Arc::clone(before)),
                None => objects.remove(&change.cluster),
            };
        }
        Some(objects)
    }

    /// Returns the changes after a revision, in order. `None` in the same cases as [`objects_at`](Self::objects_at).
    pub(super) fn changes_after(&self, revision: u64) -> Option<impl Iterator<Item = &Arc<ClusterObjectChange>>> {
        let count = usize::try_from(self.revision.checked_sub(revision)?).ok()?;
        Some(self.changes.range(self.changes.len().checked_sub(count)?..))
    }
}

impl ShownCluster {
    fn new(status: ClusterStatus, revision: u64) -> Result<Self, Box<dyn std::error::Error>> {
        let decoder = ObjectDecoder::new(&format!("{GROUP}/{VERSION}"), "Cluster", Arc::default());
        let object = Arc::new(decoder.decode(&serde_json::to_vec(&status.to_object(revision))?)?);
        Ok(Self { status, object })
    }
}

#[cfg(test)]
mod tests {
    use tributary_fleet::report::{ClusterCondition, ClusterReport};

    use super::*;

    fn apply(collection: &mut ClusterCollection, clusters: &[(&str, &str, ClusterCondition)]) -> bool {
        let report = |(name, _, condition): &(&str, &str, ClusterCondition)| ClusterReport {
            name: (*name).to_owned(),
            condition: *condition,
            ..ClusterReport::default()
        };
        let reports = clusters.iter().map(report).collect();
        let report = Report::from_parts(reports, Vec::new(), Vec::new(), Vec::new());
        let origins = clusters.iter().map(|(name, uid, _)| {
            let origin =
                ClusterOrigin { name: (*name).to_owned(), uid: Some((*uid).to_owned()), ..ClusterOrigin::default() };
            (ClusterName::new(name).unwrap(), origin)
        });
        collection.apply(&report, origins, Timestamp::UNIX_EPOCH)
    }

    fn changes(collection: &ClusterCollection, after: u64) -> Option<Vec<String>> {
        let brief = |change: &Arc<ClusterObjectChange>| {
            let kind = match (&change.before, &change.after) {
                (None, _) => "ADDED",
                (_, None) => "DELETED",
                _ => "MODIFIED",
            };
            format!("{} {kind} {}", change.revision, change.cluster)
        };
        Some(collection.changes_after(after)?.map(brief).collect())
    }

    #[test]
    fn each_change_of_a_cluster_has_its_own_revision() {
        use ClusterCondition::{Ready, Unreachable};
        let mut collection = ClusterCollection::default();
        assert!(apply(&mut collection, &[("a", "1", Ready), ("b", "2", Ready)]));
        assert!(!apply(&mut collection, &[("a", "1", Ready), ("b", "2", Ready)]));
        assert!(apply(&mut collection, &[("b", "2", Unreachable), ("c", "3", Ready)]));
        assert_eq!(
            changes(&collection, 0).unwrap(),
            ["1 ADDED a", "2 ADDED b", "3 DELETED a", "4 MODIFIED b", "5 ADDED c"]
        );
        assert_eq!(changes(&collection, 4).unwrap(), ["5 ADDED c"]);
        assert_eq!((changes(&collection, 5), changes(&collection, 6)), (Some(Vec::new()), None));
        let names = |revision| {
            let objects = collection.objects_at(revision)?;
            Some(objects.values().map(|it| format!("{}@{}", it.name(), it.resource_version().0)).collect::<Vec<_>>())
        };
        assert_eq!(names(5).unwrap(), ["b@4", "c@5"]);
        assert_eq!(names(3).unwrap(), ["b@2"]);
        assert_eq!(names(2).unwrap(), ["a@1", "b@2"]);
        assert_eq!((names(0), names(6)), (Some(Vec::new()), None));
    }

    #[test]
    fn cluster_with_another_uid_is_deleted_and_made_anew() {
        use ClusterCondition::Ready;
        let mut collection = ClusterCollection::default();
        apply(&mut collection, &[("a", "1", Ready)]);
        apply(&mut collection, &[("a", "2", Ready)]);
        assert_eq!(changes(&collection, 1).unwrap(), ["2 DELETED a", "3 ADDED a"]);
    }

    #[test]
    fn old_changes_of_clusters_are_forgotten() {
        use ClusterCondition::{Ready, Unreachable};
        let mut collection = ClusterCollection::default();
        for round in 0..=CHANGES_MAX {
            apply(&mut collection, &[("a", "1", if round % 2 == 0 { Ready } else { Unreachable })]);
        }
        assert_eq!(collection.revision(), CHANGES_MAX as u64 + 1);
        assert!(collection.objects_at(0).is_none() && collection.objects_at(1).is_some());
    }
}
