//! Stored documents of clusters that are not configured in this process. They are kept because another process with the
//! same data directory, or a later process with different kubeconfig contexts, may be configured with these clusters.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use tributary_apimachinery::ClusterName;

use super::LastHeard;

/// Time for which the documents of a cluster stay in the store after the cluster's last use. 30 days: a user who works
/// with other clusters for a while still finds the documents, and the documents of removed clusters do not stay
/// forever.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

impl LastHeard {
    /// Adds the clusters of an earlier state that this state lacks, if a process used them in the last 30 days. `now`
    /// is the wall clock, which may be wrong. A last use after `now` is treated as `now`.
    #[must_use]
    pub fn with_others(mut self, earlier: Self, now: SystemTime) -> Self {
        let now = seconds(now);
        let LastHeard { discovery, openapi, others } = earlier;
        let last_used_at = |name: &ClusterName| others.get(name).copied().unwrap_or(now).min(now);
        let names = discovery.keys().chain(openapi.members.keys()).cloned().collect::<HashSet<_>>();
        let is_own = |name: &ClusterName| self.discovery.contains_key(name) || self.openapi.members.contains_key(name);
        let retained: HashSet<_> =
            names.into_iter().filter(|name| !is_own(name) && now - last_used_at(name) <= RETENTION.as_secs()).collect();
        self.others = retained.iter().map(|name| (name.clone(), last_used_at(name))).collect();
        self.discovery.extend(discovery.into_iter().filter(|(name, _)| retained.contains(name)));
        let members: Vec<_> = openapi.members.into_iter().filter(|(name, _)| retained.contains(name)).collect();
        // Drops the OpenAPI documents that belong to no remaining cluster.
        let tags: HashSet<&str> = members.iter().flat_map(|(_, member)| member.tags()).collect();
        let known: HashSet<_> = self.openapi.documents.iter().map(|(key, _)| key.clone()).collect();
        let documents = openapi.documents.into_iter();
        let more = documents.filter(|(key, _)| tags.contains(&*key.tag) && !known.contains(key)).collect::<Vec<_>>();
        self.openapi.documents.extend(more);
        self.openapi.members.extend(members);
        self
    }

    /// Names of the clusters that are configured in this process.
    #[cfg(test)]
    pub(crate) fn own_names(&self) -> Vec<&str> {
        self.discovery.keys().filter(|name| !self.others.contains_key(*name)).map(ClusterName::as_str).collect()
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
