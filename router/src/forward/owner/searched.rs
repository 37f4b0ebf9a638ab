//! Result of a search. It begins with a part of the clusters' answers; the answers that a claim needs are added later.

use std::sync::Arc;

use tributary_answers::refusal::{ClusterFailure, Refusal};
use tributary_apimachinery::{ClusterName, Verb};
use tributary_fleet::topology::Cluster;
use tributary_views::view::cache_state::{self, CacheState, CacheStates};

use super::answers::{Answers, FoundObject};
use super::decision::{Claim, DeniedRequest, Evidence, OwnerError, is_denial_final};
use super::may_write;
use super::object_lookup::{LOOKUP_TIMEOUT, look_up_object};
use super::refusal::MissingOwner;
use crate::request::ClientRequest;

/// Answers of memory and of clusters until now. [`Self::complete`] adds the lookups that a claim needs.
pub(crate) struct Searched<'a> {
    pub(super) request: ClientRequest<'a>,
    pub(super) answers: Answers,
    /// Clusters whose cached objects are used although the cache is stale or incomplete. A 404 warns of these clusters.
    pub(super) doubtful: Vec<(ClusterName, CacheState)>,
}

impl<'a> Searched<'a> {
    pub(super) fn from_answers(request: ClientRequest<'a>, answers: Answers) -> Self {
        Self { request, answers, doubtful: Vec::new() }
    }

    /// Returns whether no cluster is known to have the object.
    pub(super) fn is_nowhere(&self) -> bool {
        self.answers.is_nowhere()
    }

    pub(super) fn has(&self, cluster: &ClusterName) -> bool {
        self.answers.found.iter().any(|found| found.cluster.name() == cluster)
    }

    /// Returns whether an unknown cluster may have an object of the name.
    pub(super) fn may_be_elsewhere(&self) -> bool {
        self.request.candidates.has_unknown() || !self.answers.unknown.is_empty()
    }

    /// Adds the clusters in `hiding`, which forbid the client to look up the object, to the unknown clusters.
    pub(super) fn add_hiding(&mut self, hiding: Vec<ClusterFailure>) {
        self.answers.unknown.extend(hiding.iter().map(|own| own.cluster.clone()));
        self.answers.failures.extend(hiding);
    }

    /// Looks up the object in clusters that are excluded from the merged view, if no cluster of the merged view has the
    /// object. So objects in the merged view take precedence.
    pub(super) async fn look_up_in_left_out(&mut self) {
        let request = self.request;
        let names = request.left_out();
        if names.is_empty() {
            return;
        }
        let answers = look_up_object(request, LOOKUP_TIMEOUT, |cluster| names.contains(cluster.name())).await;
        let unasked = names.into_iter().filter(|name| !request.served.clusters.contains(name));
        self.answers.unknown.extend(answers.unknown.iter().cloned().chain(unasked));
        self.answers.forbidden.extend(answers.forbidden.iter().cloned());
        self.answers.failures.extend(answers.failures.iter().cloned().chain(request.undescribed()));
        self.answers.replace_objects(answers);
    }

    /// Returns whether memory lacks the objects of some clusters, although another cluster has the object.
    pub(super) fn lacks_answers(&self) -> bool {
        !self.answers.is_nowhere() && !self.answers.unknown.is_empty() && self.request.is_cached()
    }

    /// Looks up the name in the reachable clusters whose objects memory lacks.
    pub(super) async fn look_up_in_unknown(&mut self) {
        let (request, answers) = (self.request, &mut self.answers);
        let unknown = answers.unknown.clone();
        let is_askable = |cluster: &Arc<Cluster>| unknown.contains(cluster.name()) && cluster.can_be_asked();
        let clusters = request.clusters().into_iter().filter(|own| is_askable(own));
        let clusters: Vec<_> = clusters.map(|cluster| cluster.name().clone()).collect();
        let lookup = look_up_object(request, LOOKUP_TIMEOUT, is_askable).await;
        let has_answered = |name: &ClusterName| {
            request.served.clusters.contains(name) && clusters.contains(name) && !lookup.unknown.contains(name)
        };
        answers.unknown.retain(|name| !has_answered(name));
        answers.forbidden.extend(lookup.forbidden);
        answers.failures.extend(lookup.failures);
        answers.not_sent = answers.not_sent.take().or(lookup.not_sent);
        answers.found.extend(lookup.found);
        answers.reservation.extend(lookup.reservation);
    }

    /// Replaces the objects of memory by the answers of lookups, if memory has no object of the name. For a cluster
    /// that does not answer, the cached objects remain valid, if the cluster has any.
    pub(super) fn replace_by_lookup(&mut self, lookup: Answers, is_looked_up: impl Fn(&ClusterName) -> bool) {
        let was_unknown = std::mem::take(&mut self.answers.unknown);
        let is_new = |name: &ClusterName| was_unknown.contains(name);
        let is_silent = |name: &ClusterName| lookup.unknown.contains(name);
        self.answers.forbidden.extend(lookup.forbidden.iter().filter(|name| is_new(name)).cloned());
        self.answers.failures.extend(lookup.failures.iter().filter(|failure| is_new(&failure.cluster)).cloned());
        self.doubtful.retain(|(name, _)| !is_looked_up(name) || is_silent(name) || lookup.forbidden.contains(name));
        self.answers.unknown =
            was_unknown.iter().filter(|name| !is_looked_up(name) || is_silent(name)).cloned().collect();
        self.answers.replace_objects(lookup);
    }

    /// Adds the lookups that this claim needs. A write that names no cluster needs the answers of two kinds of
    /// clusters: clusters whose objects memory lacks, and clusters that forbid the get and may allow the write.
    pub(crate) async fn complete(mut self, claim: Claim<'a>) -> Complete<'a> {
        if claim == Claim::OnlyOne && self.lacks_answers() {
            self.look_up_in_unknown().await;
        }
        if claim == Claim::OnlyOne && self.answers.found.len() == 1 && !self.answers.forbidden.is_empty() {
            may_write::review_write_in_forbidding_clusters(self.request, &mut self.answers).await;
        }
        Complete { searched: self, claim }
    }
}

/// A search that is complete for its claim: each cluster whose answer the claim needs has answered, or is unknown.
pub(crate) struct Complete<'a> {
    searched: Searched<'a>,
    claim: Claim<'a>,
}

impl Complete<'_> {
    pub(super) fn claim(&self) -> &Claim<'_> {
        &self.claim
    }

    /// Returns the cluster that owns the object of the request.
    ///
    /// # Errors
    /// The reason why no cluster owns the object.
    pub(crate) fn owner(&self) -> Result<FoundObject, OwnerError> {
        let Searched { request, answers, .. } = &self.searched;
        let evidence = Evidence {
            has: answers.found.iter().map(|found| found.cluster.name().clone()).collect(),
            may: answers.unknown.clone(),
            is_one_hidden: request.candidates.has_unknown(),
            ..Evidence::default()
        };
        let owner = evidence.owner_of_name(&self.claim)?;
        let found = answers.found.iter().find(|found| *found.cluster.name() == owner).cloned();
        let to_make = || request.configuration.clusters.get(&owner).cloned();
        found.or_else(|| Some(FoundObject { cluster: to_make()?, object: None })).ok_or(OwnerError::NotFound)
    }

    /// Makes the answer to a request whose object has no owner. A 429 of a lookup that was not sent takes precedence,
    /// because the client may repeat the request. Next is the 403 of a cluster that forbids the get. Otherwise the
    /// answer is 404, 409 or 503.
    pub(crate) fn refuse(&self, none: OwnerError) -> Refusal {
        let Searched { request, answers, doubtful } = &self.searched;
        if let Some(not_sent) = answers.not_sent.as_ref().filter(|_| none.depends_on_unknown()) {
            return not_sent.clone();
        }
        if let Some(denied) = self.denial_for_client().filter(|_| none == OwnerError::NotFound) {
            return denied.clone();
        }
        let refusal: Refusal = MissingOwner::for_name(*request, &answers.failures).refuse(none).into();
        refusal.with_warnings(|| {
            let doubtful: CacheStates = doubtful.iter().cloned().collect();
            cache_state::warnings(&request.resource.resource, &doubtful)
        })
    }

    /// Returns the failures of clusters that may also have an object of the name.
    pub(crate) fn unknown_failures(&self) -> Vec<ClusterFailure> {
        let Searched { request, answers, .. } = &self.searched;
        request.router.fleet().failures(&answers.unknown, &answers.failures)
    }

    /// Returns whether a 404 would be wrong, because a cluster forbids the lookup, or did not get the lookup.
    pub(super) fn leaves_open(&self) -> bool {
        self.searched.answers.not_sent.is_some() || self.denial_for_client().is_some()
    }

    /// Returns whether a cluster forbids the lookup, or did not get the lookup.
    pub(super) fn is_refused(&self) -> bool {
        self.is_denied() || self.searched.answers.not_sent.is_some()
    }

    pub(super) fn is_denied(&self) -> bool {
        self.searched.answers.denied.is_some()
    }

    /// Returns the 403 of a cluster, if the 403 is the client's answer.
    fn denial_for_client(&self) -> Option<&Refusal> {
        let request = self.searched.request;
        let denied = DeniedRequest {
            is_shared: request.caller.rights().is_some(),
            is_cached: request.is_cached(),
            is_get: request.info.verb == Verb::Get && request.resource.subresource.is_none(),
        };
        self.searched.answers.denied.as_ref().filter(|_| is_denial_final(denied))
    }
}
