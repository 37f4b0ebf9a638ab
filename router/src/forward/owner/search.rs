//! Search for the clusters that have the object of a request.

use std::collections::BTreeSet;
use std::sync::Arc;

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::ClusterName;
use tributary_fleet::topology::Cluster;
use tributary_merge::CompositeResourceVersion;
use tributary_views::view::{KNOWN_WITHIN, View, WriterSelector};

use super::answers::{Answers, FoundObject};
use super::object_lookup::{LOOKUP_TIMEOUT, look_up_object, look_up_object_everywhere};
use super::searched::Searched;
use crate::request::ClientRequest;
use crate::versions::ClientVersion;

/// Clusters in which a search looks up the object if memory lacks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupScope {
    /// No cluster: memory is sufficient.
    Memory,
    /// The reachable clusters, because a client may have created the object recently, directly in the cluster. For a
    /// cluster that does not answer, Tributary uses the cached objects.
    Existing,
    /// The reachable clusters, because the request creates a missing object. A reachable cluster that does not answer
    /// is unknown. For an unreachable cluster, Tributary uses the cached objects, as for a create.
    ToMake,
    /// All clusters. A cluster that does not answer is unknown, even if memory has its objects.
    AllClusters,
}

#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    request: ClientRequest<'a>,
    scope: LookupScope,
    /// uid of the object; `None` if any object of the name is acceptable.
    uid: Option<&'a str>,
    /// Cluster that has just lost the object. The search includes all other clusters.
    lost_by: Option<&'a ClusterName>,
    /// The client's versions of the object. The search waits until memory has these versions.
    seen: &'a [ClientVersion],
    /// True if the search includes clusters whose objects memory lacks, even if another cluster has the object.
    includes_unknown: bool,
}

impl<'a> Search<'a> {
    /// Creates a search for any object of the name.
    pub(crate) fn new(request: ClientRequest<'a>, scope: LookupScope) -> Self {
        Self { request, scope, uid: None, lost_by: None, seen: &[], includes_unknown: false }
    }

    /// Restricts the search to the object with this uid.
    pub(super) fn with_uid(self, uid: Option<&'a str>) -> Self {
        Self { uid, ..self }
    }

    /// Excludes the cluster that has just lost the object, and includes all other clusters.
    pub(crate) fn outside(self, lost_by: &'a ClusterName) -> Self {
        Self { lost_by: Some(lost_by), ..self }
    }

    /// Makes the search wait until memory is as new as the client's versions.
    pub(crate) fn with_versions(self, seen: &'a [ClientVersion]) -> Self {
        Self { seen, ..self }
    }

    /// Includes the reachable clusters whose objects memory lacks, even if another cluster has the object.
    pub(crate) fn with_unknown_clusters(self) -> Self {
        Self { includes_unknown: true, ..self }
    }

    /// Searches memory, then looks up the object in clusters whose objects memory lacks. If no cluster has the object,
    /// renews the clusters' discovery, and looks up the object in new clusters.
    ///
    /// # Errors
    /// 504 if Tributary's own writes of the object do not appear in memory within 3 s; 429 at the limit of namespace
    /// views.
    pub(crate) async fn run(self) -> Result<Searched<'a>, Refusal> {
        let mut searched = self.search_served().await?;
        if searched.is_nowhere()
            && self.scope != LookupScope::Memory
            && let Some(renewed) = Box::pin(self.request.renewed()).await
        {
            let again = Search { request: renewed.renew_request(self.request), ..self };
            let Searched { answers, doubtful, .. } = Box::pin(again.search_served()).await?;
            searched = Searched { request: self.request, answers, doubtful };
        }
        if self.includes_unknown && searched.lacks_answers() {
            searched.look_up_in_unknown().await;
        }
        Ok(searched)
    }

    /// Searches the clusters that serve the resource according to their present discovery.
    async fn search_served(self) -> Result<Searched<'a>, Refusal> {
        let request = self.request;
        if let Some(lost_by) = self.lost_by {
            let answers = look_up_object_everywhere(request, LOOKUP_TIMEOUT, |cluster| cluster.name() != lost_by).await;
            return Ok(Searched::from_answers(request, answers));
        }
        if !request.is_cached() {
            let mut answers = look_up_object_everywhere(request, KNOWN_WITHIN, |_| true).await;
            self.retain_by_uid(&mut answers);
            return Ok(Searched::from_answers(request, answers));
        }
        let (view, mut searched) = search_memory(request).await?;
        // The cache keeps a namespace's view while a request refers to it, so the reference is dropped before the
        // lookups in clusters.
        let mut view = Some(view);
        if searched.is_nowhere() {
            view = None;
            searched.look_up_in_left_out().await;
        }
        self.retain_by_uid(&mut searched.answers);
        if searched.is_nowhere() {
            view = None;
            searched = self.look_up_in_clusters(searched).await;
        }
        match self.seen.is_empty() || searched.is_nowhere() {
            true => Ok(searched),
            false => self.wait_for_versions(view, searched).await,
        }
    }

    fn retain_by_uid(self, answers: &mut Answers) {
        let has_uid = |found: &FoundObject, uid| found.object.as_ref().is_some_and(|object| object.uid() == uid);
        answers.found.retain(|found| self.uid.is_none_or(|uid| has_uid(found, uid)));
    }

    /// Looks up an object in clusters, if memory lacks the object.
    async fn look_up_in_clusters(self, mut searched: Searched<'a>) -> Searched<'a> {
        let request = self.request;
        // With a single cluster, no lookup is needed, unless memory lacks the cluster's objects.
        let is_open = request.clusters().len() > 1 || !searched.answers.unknown.is_empty();
        match self.scope {
            LookupScope::Existing => {
                let targets: BTreeSet<_> = request.serving().filter(|name| request.can_ask(name)).cloned().collect();
                let answers = look_up_object(request, LOOKUP_TIMEOUT, |cluster| targets.contains(cluster.name())).await;
                searched.replace_by_lookup(answers, |name| targets.contains(name));
                searched
            }
            LookupScope::ToMake if is_open => look_up_in_reachable(request, searched).await,
            LookupScope::AllClusters if is_open => {
                let mut answers = look_up_object_everywhere(request, LOOKUP_TIMEOUT, |_| true).await;
                self.retain_by_uid(&mut answers);
                Searched::from_answers(request, answers)
            }
            LookupScope::Memory | LookupScope::ToMake | LookupScope::AllClusters => searched,
        }
    }

    /// Waits until memory is as new as the client's versions. The client may have the object from a live read, from an
    /// event of a different process, or from its own write directly to the cluster. Without the wait, memory would have
    /// an older object than the client. A version that does not appear is no error: the member checks the version of
    /// the write.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run).
    async fn wait_for_versions(self, view: Option<Arc<View>>, searched: Searched<'a>) -> Result<Searched<'a>, Refusal> {
        let view = match view {
            Some(view) => view,
            None => self.request.view().await?.0,
        };
        let mut missing = CompositeResourceVersion::new();
        for FoundObject { cluster, .. } in &searched.answers.found {
            for version in self.seen.iter().filter_map(|seen| seen.component(cluster.name())) {
                if view.version_of(cluster.name()).is_none_or(|own| own < version) {
                    missing.raise(cluster.name(), version);
                }
            }
        }
        if missing.is_empty() {
            return Ok(searched);
        }
        let _ = view.reached(&missing).await;
        drop(view);
        let (_, mut again) = search_memory(self.request).await?;
        if again.is_nowhere() {
            again.look_up_in_left_out().await;
        }
        Ok(if again.is_nowhere() { searched } else { again })
    }
}

/// Searches the cached objects of the resource, after Tributary's own writes of the object have appeared.
async fn search_memory(request: ClientRequest<'_>) -> Result<(Arc<View>, Searched<'_>), Refusal> {
    let (view, before) = request.view().await?;
    let key = request.resource.key();
    view.writes_of_seen(WriterSelector::AnyWriter, &request.candidates.selector(), &key).await?;
    let (found, cache_states) = view.find(before, &key)?;
    let in_cluster = |(name, object)| Some(FoundObject { cluster: request.cluster(&name)?, object: Some(object) });
    let is_candidate = |name: &ClusterName| request.candidates.has(name);
    let mut failures = cache_states.failures();
    failures.retain(|failure| is_candidate(&failure.cluster));
    let answers = Answers {
        found: found.into_iter().filter_map(in_cluster).collect(),
        unknown: cache_states.may_have().filter(|name| is_candidate(name)).cloned().collect(),
        failures,
        ..Answers::default()
    };
    let doubtful = cache_states.doubtful().filter(|(name, _)| is_candidate(name));
    let doubtful = doubtful.map(|(name, cache_state)| (name.clone(), cache_state.clone())).collect();
    Ok((view, Searched { request, answers, doubtful }))
}

/// Looks up the object in all reachable clusters. For unreachable clusters, the cached objects decide.
async fn look_up_in_reachable<'a>(request: ClientRequest<'a>, in_memory: Searched<'a>) -> Searched<'a> {
    let mut answers = look_up_object_everywhere(request, LOOKUP_TIMEOUT, |cluster| cluster.can_be_asked()).await;
    let is_out_of_reach = |name: &ClusterName| !request.cluster(name).is_some_and(|own| own.can_be_asked());
    let Searched { answers: Answers { unknown, failures, .. }, mut doubtful, .. } = in_memory;
    answers.unknown.extend(unknown.into_iter().filter(is_out_of_reach));
    // An unreachable cluster whose last known discovery lacks the resource does not have the object.
    let serves_none = |cluster: &Arc<Cluster>| {
        cluster.is_out_of_reach() && request.configuration.is_unserved(cluster, request.served)
    };
    answers.unknown.retain(|name| !request.cluster(name).is_some_and(|own| serves_none(&own)));
    answers.unknown.sort();
    answers.unknown.dedup();
    answers.failures.extend(failures.into_iter().filter(|failure| is_out_of_reach(&failure.cluster)));
    doubtful.retain(|(name, _)| is_out_of_reach(name));
    Searched { request, answers, doubtful }
}
