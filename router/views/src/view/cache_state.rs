//! State of each cluster's collection in a view: mainly fresh (cached and up to date), stale (cached, but changes may
//! be missing) or unknown (not cached yet).

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use tokio::time::Instant;
use tributary_answers::refusal::{ClusterFailure, ClusterRefusal, one_cluster, without_name};
use tributary_answers::warnings::warning_header;
use tributary_apimachinery::{ClusterName, ClusterSelector, Door, GroupVersionResource, Partial};
use tributary_cacher::{CacherState, StaleReason};
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::topology::Cluster;
use tributary_merge::ClusterSnapshots;

use super::uncached_reason::UncachedReason;

/// State of one cluster's collection in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheState {
    /// The objects are cached, and the watch of the cluster is up to date.
    Fresh,
    /// The objects are cached, but no changes of the cluster arrive.
    Stale {
        /// Time since which changes may be missing.
        since: Instant,
        /// Reason for which no changes arrive.
        reason: Arc<str>,
        /// Whether the cluster now forbids reads of the whole collection.
        forbidden: bool,
    },
    /// No objects of the cluster are cached yet. `reason` is `None` during the first attempt to read them.
    Unknown {
        /// Start of the first attempt to read the collection.
        since: Instant,
        /// Cause of the failure, after a failed attempt.
        reason: Option<Arc<str>>,
        /// Kind of the cause for which nothing is cached.
        uncached_reason: UncachedReason,
    },
    /// The cluster has objects of the resource that this view cannot show, because they have a different kind or only
    /// other API versions. Requests do not wait for the cluster. Each response contains a warning about the cluster.
    LeftOut {
        /// Kind or versions of the objects in the cluster, for the warning.
        reason: String,
    },
    /// The last successful discovery of the cluster lacks the resource, but the cluster may serve the resource now. A
    /// list treats the cluster as stale and without objects. A read of a single name assumes that the cluster may have
    /// the object. But if the cluster is unreachable, all reads rely on the last discovery, as they rely on the last
    /// objects of a stale cluster.
    Unserved {
        /// Whether the cluster is reachable.
        in_reach: bool,
        /// Time of the last successful discovery.
        since: Instant,
        /// Reason for which the discovery is not up to date.
        reason: Arc<str>,
    },
    /// The cluster has no objects in the requested namespace, although nothing is cached. The view of the resource
    /// `namespaces` shows that the namespace does not exist in the cluster.
    NoNamespace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelistReason {
    /// The configuration of the cluster changed, for example its address or CA.
    Configuration,
    /// The cluster now forbids reads of all namespaces, so Tributary lists the requested namespace alone.
    Forbidden,
}

impl CacheState {
    /// Returns the state of a cluster whose cacher has this state.
    pub fn from_state(state: &CacherState) -> Self {
        match state {
            CacherState::Synced => Self::Fresh,
            CacherState::Stale { since, reason } => Self::Stale {
                since: *since,
                reason: reason.to_string().into(),
                forbidden: *reason == StaleReason::Forbidden,
            },
            CacherState::Syncing { since, reason } => Self::Unknown {
                since: *since,
                reason: reason.as_ref().map(|reason| reason.to_string().into()),
                uncached_reason: UncachedReason::from_reason(reason.as_ref()),
            },
        }
    }

    /// Returns the state of a cluster whose discovery is missing, or lacks the resource's API version.
    pub fn of_undiscovered(cluster: &Cluster, resource: &GroupVersionResource) -> Self {
        let (since, undescribed) = cluster.undescribed(resource).unzip();
        let reason = cluster.problem().or(undescribed).map(Arc::from);
        let since = since.unwrap_or_else(|| cluster.since());
        let needs_repair = cluster.needs_repair(resource);
        let uncached_reason = if needs_repair { UncachedReason::ClusterFault } else { UncachedReason::Transient };
        Self::Unknown { since, reason, uncached_reason }
    }

    /// Returns the state of a cluster that may serve a resource although the cluster's discovery lacks the resource.
    /// `None` if the discovery is up to date.
    pub fn of_unserved(cluster: &Cluster, resource: &GroupVersionResource) -> Option<Self> {
        let (since, reason) = cluster.outdated(resource)?;
        Some(Self::Unserved { in_reach: !cluster.is_out_of_reach(), since, reason: reason.into() })
    }

    /// Returns the clusters whose objects of the resource the view cannot show, with their states.
    pub fn left_out(served: &ServedResource) -> impl Iterator<Item = (ClusterName, Self)> {
        let others = served.left_out();
        others.map(|(cluster, other)| (cluster.clone(), Self::LeftOut { reason: other.reason(&served.resource) }))
    }

    /// State of a cluster whose watch is up to date, but whose cached objects lack writes that were made through this
    /// process at `since`.
    pub(crate) fn unseen_writes(since: Instant) -> Self {
        Self::Stale {
            since,
            reason: "the watch of the cluster has not delivered the latest writes yet".into(),
            forbidden: false,
        }
    }

    /// State of a cluster that Tributary lists again while the previous objects are still cached.
    pub(crate) fn taken_over(since: Instant, why: RelistReason, problem: Option<&str>) -> Self {
        let why = match why {
            RelistReason::Configuration => "the configuration changed",
            RelistReason::Forbidden => "reading all namespaces is now forbidden",
        };
        let problem = problem.map(|problem| format!(": {problem}")).unwrap_or_default();
        let reason = format!("{why}, and the resource is being listed again{problem}").into();
        Self::Stale { since, reason, forbidden: false }
    }

    /// Returns whether the cluster has any state except `Unknown`.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }

    /// Returns the kind of cause for which the state is `Unknown`. `None` for all other states.
    pub fn uncached_reason(&self) -> Option<UncachedReason> {
        match self {
            Self::Unknown { uncached_reason, .. } => Some(*uncached_reason),
            _ => None,
        }
    }

    /// Returns whether the cluster forbids reads of the whole collection, so that a single namespace must be read
    /// alone.
    pub fn is_forbidden(&self) -> bool {
        self.uncached_reason() == Some(UncachedReason::Forbidden) || matches!(self, Self::Stale { forbidden: true, .. })
    }

    /// Returns the reason why the cluster may have objects that are not cached: its state is `Unknown`, or it is
    /// `Unserved` and the cluster is reachable. `None` for all other states.
    fn unknown_cause(&self, cluster: &ClusterName) -> Option<ClusterFailure> {
        let (since, cause) = match self {
            Self::Unknown { since, reason, .. } => (since, reason.as_deref().unwrap_or(NOT_SYNCED)),
            Self::Unserved { in_reach: true, since, reason } => (since, &**reason),
            Self::Fresh
            | Self::Stale { .. }
            | Self::Unserved { in_reach: false, .. }
            | Self::LeftOut { .. }
            | Self::NoNamespace => return None,
        };
        Some(ClusterFailure { cluster: cluster.clone(), cause: cause.to_owned(), age: Some(since.elapsed()) })
    }

    /// Returns whether a response needs no warning about the cluster.
    pub fn needs_no_warning(&self) -> bool {
        matches!(self, Self::Fresh | Self::NoNamespace)
    }

    /// Returns the degree of uncertainty about the objects: 0 for none, 1 for outdated objects, 2 for unknown objects.
    fn failure(&self) -> u8 {
        match self {
            Self::Fresh | Self::LeftOut { .. } | Self::NoNamespace => 0,
            Self::Stale { .. } | Self::Unserved { .. } => 1,
            Self::Unknown { .. } => 2,
        }
    }

    /// Returns whether the first attempt to read the collection is still running, so that waiting may help.
    pub fn is_under_way(&self) -> bool {
        matches!(self, Self::Unknown { reason: None, .. })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheStateCounts {
    all: usize,
    fresh: usize,
    unknown: usize,
    under_way: usize,
    forbidden: usize,
    /// Number of clusters whose state stays `Unknown` until an administrator repairs the cause.
    permanent: usize,
}

impl CacheStateCounts {
    fn from_state(cache_state: &CacheState) -> Self {
        Self {
            all: 1,
            fresh: usize::from(cache_state.needs_no_warning()),
            unknown: usize::from(!cache_state.is_known()),
            under_way: usize::from(cache_state.is_under_way()),
            forbidden: usize::from(cache_state.is_forbidden()),
            permanent: usize::from(cache_state.uncached_reason().is_some_and(UncachedReason::is_permanent)),
        }
    }

    pub(super) fn add(&mut self, cache_state: &CacheState) {
        self.merge(cache_state, usize::saturating_add);
    }

    pub(super) fn remove(&mut self, cache_state: &CacheState) {
        self.merge(cache_state, usize::saturating_sub);
    }

    fn merge(&mut self, cache_state: &CacheState, with: fn(usize, usize) -> usize) {
        let one = Self::from_state(cache_state);
        self.all = with(self.all, one.all);
        self.fresh = with(self.fresh, one.fresh);
        self.unknown = with(self.unknown, one.unknown);
        self.under_way = with(self.under_way, one.under_way);
        self.forbidden = with(self.forbidden, one.forbidden);
        self.permanent = with(self.permanent, one.permanent);
    }

    pub(super) fn forbidden(&self) -> usize {
        self.forbidden
    }

    /// Returns whether a list or watch can be answered at once, also by a refusal. If partial answers are denied, no
    /// cluster may be `Unknown`, or one must be `Unknown` for a permanent cause, so that the request is refused. If
    /// partial answers are allowed, no first attempt to read a cluster may be running.
    pub(super) fn suffice(&self, partial: Partial) -> bool {
        match partial {
            Partial::Deny => self.unknown == 0 || self.permanent > 0,
            Partial::Allow => self.under_way == 0,
        }
    }
}

/// States of all clusters, with counts by kind of state. While all clusters are fresh, a check of a thousand clusters
/// costs as much as a check of one.
#[derive(Clone, Debug, Default)]
pub struct CacheStates {
    by_name: Vec<(ClusterName, CacheState)>,
    counts: CacheStateCounts,
}

impl CacheStates {
    /// Returns each cluster with its state, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ClusterName, &CacheState)> {
        self.by_name.iter().map(|(cluster, cache_state)| (cluster, cache_state))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns the state of one cluster. Costs a binary search.
    pub fn cache_state_of(&self, cluster: &ClusterName) -> Option<&CacheState> {
        let at = self.by_name.binary_search_by(|(name, _)| name.cmp(cluster)).ok()?;
        Some(&self.by_name[at].1)
    }

    /// Returns the state of only this cluster. Empty if the cluster needs no warning.
    pub fn trouble_of(&self, cluster: &ClusterName) -> Self {
        let failure = self.cache_state_of(cluster).filter(|cache_state| !cache_state.needs_no_warning());
        failure.map(|cache_state| (cluster.clone(), cache_state.clone())).into_iter().collect()
    }

    /// Returns all clusters except `cluster` whose objects are unknown, with their causes. Each of these clusters may
    /// also have an object with the name that was found in `cluster`.
    pub fn doubts_of(&self, cluster: &ClusterName) -> Vec<ClusterFailure> {
        self.failures().into_iter().filter(|failure| failure.cluster != *cluster).collect()
    }

    /// Returns the clusters whose objects are unknown, with their causes.
    pub fn failures(&self) -> Vec<ClusterFailure> {
        let some = if self.are_fresh() { &[] } else { &self.by_name[..] };
        some.iter().filter_map(|(name, cache_state)| cache_state.unknown_cause(name)).collect()
    }

    /// Returns the clusters that may have an object that is not cached. Visits no cluster if all clusters are fresh.
    pub fn may_have(&self) -> impl Iterator<Item = &ClusterName> {
        let some = if self.are_fresh() { &[] } else { &self.by_name[..] };
        let may_have = |cache_state: &CacheState| {
            matches!(cache_state, CacheState::Unknown { .. } | CacheState::Unserved { in_reach: true, .. })
        };
        some.iter().filter(move |(_, cache_state)| may_have(cache_state)).map(|(cluster, _)| cluster)
    }

    pub(crate) fn are_fresh(&self) -> bool {
        self.counts.fresh == self.counts.all
    }

    /// Returns whether no cluster has the state `Unknown`.
    pub fn are_known(&self) -> bool {
        self.counts.unknown == 0
    }

    /// Returns whether at least one cluster forbids reads of the whole collection.
    pub fn is_one_forbidden(&self) -> bool {
        self.counts.forbidden > 0
    }

    /// Returns whether at least one cluster forbids reads of the whole collection and has no cached objects.
    pub fn is_one_given_up(&self) -> bool {
        let unknown = if self.are_known() { &[] } else { &self.by_name[..] };
        unknown.iter().any(|(_, cache_state)| !cache_state.is_known() && cache_state.is_forbidden())
    }

    /// Returns the clusters that forbid reads of the whole collection.
    pub fn forbidding(&self) -> impl Iterator<Item = &ClusterName> {
        self.by_name.iter().filter(|(_, cache_state)| cache_state.is_forbidden()).map(|(cluster, _)| cluster)
    }

    /// Returns the current states for a request that started with the states `before`. `held` are the snapshots for the
    /// response. If the state of a cluster has become `Unknown` but `held` contains its objects, the cluster keeps its
    /// state of `before`. For example, a cluster with a new configuration is listed again, and its earlier objects
    /// remain usable. A cluster that had no objects in `before`, or was left out, keeps its state.
    pub fn advance_from(mut self: Arc<Self>, before: &Self, snapshots: &ClusterSnapshots) -> Arc<Self> {
        let has_snapshot = |cluster: &ClusterName| snapshots.binary_search_by(|(name, _)| name.cmp(cluster)).is_ok();
        for (cluster, cache_state) in before.iter() {
            let stays = match (cache_state, self.cache_state_of(cluster)) {
                (CacheState::LeftOut { .. } | CacheState::NoNamespace, _) | (CacheState::Unserved { .. }, None) => true,
                (cache_state, Some(now)) => cache_state.is_known() && !now.is_known() && has_snapshot(cluster),
                (_, None) => false,
            };
            if stays {
                Arc::make_mut(&mut self).set(cluster.clone(), cache_state.clone());
            }
        }
        self
    }

    /// Returns the states for a response whose request started with the states `before`. If the state of a cluster has
    /// improved during the request, the cluster keeps its state of `before`, because the request did not wait for the
    /// cluster's objects.
    pub(crate) fn worst_of(mut self: Arc<Self>, before: &Self) -> Arc<Self> {
        for (cluster, cache_state) in before.iter() {
            if self.cache_state_of(cluster).is_some_and(|now| now.failure() < cache_state.failure()) {
                Arc::make_mut(&mut self).set(cluster.clone(), cache_state.clone());
            }
        }
        self
    }

    /// Returns the clusters whose state is `Unknown`. Costs nothing if there are none.
    pub fn unknown(&self) -> impl Iterator<Item = &ClusterName> {
        let some = if self.are_known() { &[] } else { &self.by_name[..] };
        some.iter().filter(|(_, cache_state)| !cache_state.is_known()).map(|(cluster, _)| cluster)
    }

    /// Returns the clusters whose first list is still running.
    pub fn under_way(&self) -> impl Iterator<Item = &ClusterName> {
        let some = if self.counts.under_way == 0 { &[] } else { &self.by_name[..] };
        some.iter().filter(|(_, cache_state)| cache_state.is_under_way()).map(|(cluster, _)| cluster)
    }

    /// Returns the clusters that need a warning although their state is not `Unknown`. Costs nothing if all clusters
    /// are fresh.
    pub fn doubtful(&self) -> impl Iterator<Item = (&ClusterName, &CacheState)> {
        let some = if self.are_fresh() { &[] } else { &self.by_name[..] };
        let doubtful = some.iter().filter(|(_, cache_state)| cache_state.is_known() && !cache_state.needs_no_warning());
        doubtful.map(|(cluster, cache_state)| (cluster, cache_state))
    }

    /// Returns the states of the wanted clusters. Copies nothing if all clusters are wanted.
    pub(crate) fn of_wanted(self: Arc<Self>, wanted: &ClusterSelector) -> Arc<Self> {
        if wanted.is_everything() {
            return self;
        }
        let named = self.by_name.iter().filter(|(cluster, _)| wanted.matches(cluster));
        Arc::new(named.cloned().collect())
    }

    /// Sets the state of a cluster.
    pub fn set(&mut self, cluster: ClusterName, cache_state: CacheState) {
        self.counts.add(&cache_state);
        match self.by_name.binary_search_by(|(name, _)| name.cmp(&cluster)) {
            Ok(at) => self.counts.remove(&std::mem::replace(&mut self.by_name[at].1, cache_state)),
            Err(at) => self.by_name.insert(at, (cluster, cache_state)),
        }
    }

    pub(super) fn suffice(&self, partial: Partial) -> bool {
        self.counts.suffice(partial)
    }

    /// Returns whether the state of at least one cluster stays `Unknown` until an administrator repairs the cause.
    pub(crate) fn is_one_unknown_for_long(&self) -> bool {
        self.counts.permanent > 0
    }
}

impl FromIterator<(ClusterName, CacheState)> for CacheStates {
    fn from_iter<T: IntoIterator<Item = (ClusterName, CacheState)>>(all: T) -> Self {
        let mut by_name: Vec<_> = all.into_iter().collect();
        by_name.sort_by(|(a, _), (b, _)| a.cmp(b));
        by_name.dedup_by(|later, earlier| later.0 == earlier.0);
        let mut counts = CacheStateCounts::default();
        by_name.iter().for_each(|(_, cache_state)| counts.add(cache_state));
        Self { by_name, counts }
    }
}

/// Makes a `Warning` for each cluster that could not be searched for an object. The object was found in a different
/// cluster, but these clusters may have it, too.
pub fn doubts(resource: &GroupVersionResource, name: &str, clusters: &[ClusterFailure]) -> Vec<HeaderValue> {
    let texts = clusters.iter().take(WARNINGS_MAX).map(|failure| failure.doubt(resource, name));
    texts.filter_map(|text| warning_header(&text)).collect()
}

/// Text of the cause for a cluster whose first list is not complete.
const NOT_SYNCED: &str = "not synced yet";

/// Maximum number of clusters that warnings name. If there are more, a last warning gives the number of the others.
pub const WARNINGS_MAX: usize = 10;

/// Makes a `Warning: 299` text for each missing or stale cluster.
pub fn warnings(resource: &GroupVersionResource, cache_states: &CacheStates) -> Vec<String> {
    if cache_states.are_fresh() {
        return Vec::new();
    }
    let remedy = |uncached_reason| remedy_for(resource, uncached_reason);
    let resource = resource.group_resource();
    let mut texts: Vec<String> = cache_states
        .iter()
        .filter_map(|(cluster, cache_state)| match cache_state {
            CacheState::Fresh | CacheState::NoNamespace => None,
            CacheState::Stale { since, reason, .. } => Some(format!(
                "cluster {cluster}: {resource} may be stale, last updated {} s ago: {}",
                since.elapsed().as_secs(),
                without_name(reason, cluster)
            )),
            CacheState::Unserved { since, reason, .. } => Some(format!(
                "cluster {cluster}: {resource} may be missing, the cluster last reported {} s ago that it does not \
                 serve them: {}",
                since.elapsed().as_secs(),
                without_name(reason, cluster)
            )),
            CacheState::LeftOut { reason } => Some(format!("cluster {cluster}: {resource} are missing: {reason}")),
            CacheState::Unknown { since, reason, uncached_reason } => Some(format!(
                "cluster {cluster}: {resource} are missing, waiting for {} s: {}{}",
                since.elapsed().as_secs(),
                without_name(reason.as_deref().unwrap_or(NOT_SYNCED), cluster),
                remedy(*uncached_reason)
            )),
        })
        .collect();
    if texts.len() > WARNINGS_MAX {
        let more = texts.len() - WARNINGS_MAX;
        texts.truncate(WARNINGS_MAX);
        texts.push(format!("{more} more clusters: {resource} are missing or stale"));
    }
    texts
}

/// Returns the remedy for a cause whose text does not contain a remedy, and an empty text for other causes. If the
/// resourceVersions of a built-in kind are not numbers, the server must be a server for several clusters.
fn remedy_for(resource: &GroupVersionResource, uncached_reason: UncachedReason) -> &'static str {
    match uncached_reason {
        UncachedReason::OpaqueVersions if resource.is_built_in() => {
            "; the address of the cluster leads to a server for several clusters, such as Karmada or Tributary: serve the contexts of \
             these clusters instead"
        }
        _ => "",
    }
}

/// Joins up to [`WARNINGS_MAX`] texts, and adds the number of omitted texts.
pub(crate) fn shortened(texts: &[String]) -> String {
    let mut text = texts.iter().take(WARNINGS_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    if texts.len() > WARNINGS_MAX {
        text.push_str(&format!("; and {} more", texts.len() - WARNINGS_MAX));
    }
    text
}

/// Text of a `Warning: 299` with the names of clusters that serve a resource, but that the configuration leaves out of
/// the view.
pub(crate) fn left_out_warning(
    door: Door,
    resource: &GroupVersionResource,
    left_out: &[ClusterName],
) -> Option<String> {
    let names: Vec<_> = left_out.iter().map(ToString::to_string).collect();
    (!names.is_empty()).then(|| {
        format!(
            "a ResourceRegistry omits {resource} of these clusters (spec.clusters); send requests to each cluster \
             ({}): {}",
            one_cluster(door),
            shortened(&names)
        )
    })
}

/// Adds a `Warning` with the clusters that the configuration leaves out of the view.
pub fn warn_left_out(headers: &mut HeaderMap, door: Door, resource: &GroupVersionResource, left_out: &[ClusterName]) {
    let text = left_out_warning(door, resource, left_out);
    headers.extend(text.and_then(|text| warning_header(&text)).map(|value| (header::WARNING, value)));
}

/// Adds a `Warning` about clusters that a watch omits, because the user may watch but not list the resource in them.
pub fn warn_only_watched(
    headers: &mut HeaderMap,
    door: Door,
    resource: &GroupVersionResource,
    clusters: &[ClusterName],
) {
    let names: Vec<_> = clusters.iter().map(ToString::to_string).collect();
    let text = (!names.is_empty()).then(|| {
        format!(
            "you may watch but not list {resource} in these clusters, which are missing; watch each cluster \
             ({}): {}",
            one_cluster(door),
            shortened(&names)
        )
    });
    headers.extend(text.and_then(|text| warning_header(&text)).map(|value| (header::WARNING, value)));
}

/// The `Retry-After` header, in seconds, of a response that fails because the objects of some clusters are unknown. 5
/// s: the client has already waited 30 s for the list, and may retry soon.
const UNREAD_RETRY_AFTER: u32 = 5;

/// Returns the refusal of a request because the objects of some clusters are unknown. `None` if no cluster has the
/// state `Unknown`.
pub fn refusal(resource: &GroupVersionResource, cache_states: &CacheStates) -> Option<ClusterRefusal> {
    if cache_states.are_known() {
        return None;
    }
    let unknown: Vec<_> = cache_states.iter().filter(|(_, cache_state)| !cache_state.is_known()).collect();
    let reason = |(cluster, cache_state): (&ClusterName, &CacheState)| match cache_state {
        CacheState::Unknown { reason: Some(reason), uncached_reason, .. } => {
            let reason = match remedy_for(resource, *uncached_reason) {
                "" => Arc::clone(reason),
                remedy => format!("{reason}{remedy}").into(),
            };
            Some((cluster.clone(), reason))
        }
        _ => None,
    };
    let reasons = unknown.into_iter().take(WARNINGS_MAX).filter_map(reason).collect();
    let (resource, clusters) = (resource.clone(), cache_states.unknown().cloned().collect());
    let retry_after = if cache_states.is_one_unknown_for_long() { None } else { Some(UNREAD_RETRY_AFTER) };
    Some(ClusterRefusal::Unread { resource, clusters, reasons, retry_after })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn name(number: usize) -> ClusterName {
        ClusterName::new(&format!("c{number:02}")).unwrap()
    }

    fn unknown(reason: Option<&str>) -> CacheState {
        CacheState::Unknown {
            since: Instant::now(),
            reason: reason.map(Arc::from),
            uncached_reason: UncachedReason::Transient,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn warnings_name_at_most_ten_clusters() {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let mut cache_states: CacheStates =
            [(ClusterName::new("good").unwrap(), CacheState::Fresh)].into_iter().collect();
        assert!(warnings(&pods, &cache_states).is_empty() && refusal(&pods, &cache_states).is_none());
        let since = unknown(Some("unreachable: \"x\"\n"));
        tokio::time::advance(Duration::from_secs(7)).await;
        for number in 0..12 {
            cache_states.set(name(number), since.clone());
        }
        let texts = warnings(&pods, &cache_states);
        assert_eq!((texts.len(), texts[10].starts_with("2 more")), (11, true));
        assert_eq!(
            warning_header(&texts[0]).unwrap(),
            "299 - \"cluster c00: pods are missing, waiting for 7 s: unreachable: \\\"x\\\"\""
        );
        let hostile = warning_header("cluster x: \u{202e}tac\u{1b}[2J\u{2066} \u{200b}a\r\n").unwrap();
        assert_eq!(hostile.as_bytes(), b"299 - \"cluster x: tac[2J a\"", "control characters are removed");
        // Even a very long text of a member must not suppress the warning.
        let words = warning_header(&format!("größer {}", "\u{1f5a7}".repeat(5000))).unwrap();
        assert!(words.as_bytes().starts_with("299 - \"größer".as_bytes()) && words.len() < 8 * 1024);
        let Some(ClusterRefusal::Unread { clusters, reasons, .. }) = refusal(&pods, &cache_states) else { panic!() };
        assert_eq!((clusters.len(), reasons.len(), &reasons[0].0), (12, 10, &name(0)));
    }

    #[test]
    fn counts_of_fresh_and_unknown_clusters_follow_cluster_states() {
        let mut cache_states = CacheStates::default();
        assert!(cache_states.are_fresh() && cache_states.are_known(), "no clusters, no trouble");
        for number in [1, 0] {
            cache_states.set(name(number), unknown(None));
        }
        assert_eq!(cache_states.unknown().cloned().collect::<Vec<_>>(), [name(0), name(1)]);
        assert!(!cache_states.suffice(Partial::Allow) && !cache_states.suffice(Partial::Deny));
        cache_states.set(name(0), CacheState::Fresh);
        cache_states.set(name(1), unknown(Some("unreachable")));
        assert!(cache_states.suffice(Partial::Allow) && !cache_states.suffice(Partial::Deny));
        assert_eq!(cache_states.trouble_of(&name(0)).iter().count(), 0);
        assert_eq!(cache_states.trouble_of(&name(1)).unknown().count(), 1);
        cache_states.set(name(1), CacheState::Fresh);
        assert!(cache_states.suffice(Partial::Deny) && cache_states.are_fresh());
    }

    #[test]
    fn stale_cluster_whose_objects_are_dropped_becomes_unknown() {
        let stale = || CacheState::Stale { since: Instant::now(), reason: "forbidden".into(), forbidden: true };
        let all = |cache_states: [CacheState; 5]| -> Arc<CacheStates> {
            Arc::new(
                cache_states.into_iter().enumerate().map(|(number, cache_state)| (name(number), cache_state)).collect(),
            )
        };
        let snapshots: ClusterSnapshots = Arc::new([0, 4].map(|number| (name(number), Default::default())).into());
        let before = all([stale(), stale(), CacheState::NoNamespace, unknown(None), stale()]);
        let now = all([unknown(None), unknown(None), unknown(None), CacheState::Fresh, CacheState::Fresh]);
        let look_again = now.advance_from(&before, &snapshots);
        assert_eq!(look_again.unknown().cloned().collect::<Vec<_>>(), [name(1)]);
        assert_eq!(look_again.cache_state_of(&name(4)), Some(&CacheState::Fresh));
        // The request did not wait for a cluster whose objects were cached later, so its response lacks this cluster.
        let answer = look_again.worst_of(&before);
        assert_eq!(answer.unknown().cloned().collect::<Vec<_>>(), [name(1), name(3)]);
        assert!(matches!(answer.cache_state_of(&name(4)), Some(CacheState::Stale { .. })));
        // A cluster that has left is not reported as unknown.
        assert_eq!(Arc::new(CacheStates::default()).advance_from(&before, &snapshots).unknown().count(), 0);
    }
}
