//! Choice of the cluster for a write to a name that may already have an object.

use std::sync::Arc;

use tributary_answers::ground::Ground;
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::{ClusterName, Names, Verb};
use tributary_fleet::topology::Cluster;

use super::answers::FoundObject;
use super::decision::{Claim, OwnerError};
use super::refusal::is_of_hidden_release;
use super::searched::{Complete, Searched};
use super::write::{OwnerTarget, Write};
use super::{evidence, helm};
use crate::request::ClientRequest;
use crate::versions::ClientVersion;

/// Returns the claim (condition on the object's cluster) of a request that names no cluster and changes an object.
pub(crate) fn unnamed_claim(request: ClientRequest<'_>) -> Claim<'static> {
    match request.configuration.policy(&request.resource.resource).names {
        Names::Repeated => Claim::OnlyOne,
        Names::Unique => Claim::AnyKnown,
    }
}

impl<'a> Write<'a> {
    /// Finds the cluster of the write. The first ground (reason to choose a cluster) that applies decides, or else the
    /// name alone.
    ///
    /// # Errors
    /// 404, 409 or 503 without an owner; the errors of the grounds.
    pub(crate) async fn owner(self, searched: Searched<'a>) -> Result<OwnerTarget, Refusal> {
        let claim = self.claim(&searched).await?;
        let complete = searched.complete(claim).await;
        match complete.owner() {
            Ok(FoundObject { cluster, object }) => {
                Ok(OwnerTarget { ground: complete.claim().ground(), cluster, object, involved: None })
            }
            Err(OwnerError::NotFound) => self.owner_of_missing(&complete).await,
            Err(none) => Err(complete.refuse(none)),
        }
    }

    async fn claim(self, searched: &Searched<'_>) -> Result<Claim<'a>, Refusal> {
        let makes = self.makes_object();
        let found = &searched.answers.found;
        // The object's owner references and Helm release matter only if several objects have the name, or if an object
        // of the name may be created or may exist in an unknown cluster.
        let is_open = makes || found.len() > 1 || (!found.is_empty() && searched.may_be_elsewhere());
        for ground in Ground::OF_EXISTING {
            let cluster = match ground {
                Ground::Annotation if makes => self.annotated_cluster()?,
                Ground::Annotation => match self.body.named_cluster() {
                    Some(named) => return Ok(Claim::Annotated(named)),
                    None => None,
                },
                Ground::Precondition if self.has_precondition() => self.cluster_by_precondition(found)?,
                Ground::Owner if is_open => {
                    let found = evidence::find_referenced(self.request, &self.body.facts).await?;
                    found.map(|found| found.cluster)
                }
                Ground::Release if is_open => match self.cluster_by_evidence(&[ground]).await {
                    Err(refusal) if is_of_hidden_release(&refusal) => None,
                    found => found?.map(|(_, cluster)| cluster),
                },
                Ground::Node if found.len() > 1 => {
                    self.cluster_by_evidence(&[ground]).await?.map(|(_, cluster)| cluster)
                }
                _ => None,
            };
            match cluster.map(|cluster| cluster.name().clone()) {
                Some(cluster) if makes => return Ok(Claim::MadeIn(ground, cluster)),
                Some(cluster) if searched.has(&cluster) => return Ok(Claim::Of(ground, cluster)),
                _ => {}
            }
        }
        if helm::may_refuse(self.request) {
            helm::refuse_torn_release(searched).await?;
        }
        Ok(unnamed_claim(self.request))
    }

    fn has_precondition(self) -> bool {
        !self.seen.is_empty() || self.uid().is_some()
    }

    /// Returns the uid that the object must have: of the precondition, or of the object in the body.
    fn uid(self) -> Option<&'a str> {
        let facts = &self.body.facts;
        facts.precondition_uid.as_deref().or(facts.uid.as_deref())
    }

    /// Returns the cluster that the precondition names, among the clusters with an object of the name. The version or
    /// the uid of the object decides.
    ///
    /// # Errors
    /// 409 if several clusters have an object with the uid: one of the objects is a copy.
    fn cluster_by_precondition(self, found: &[FoundObject]) -> Result<Option<Arc<Cluster>>, Refusal> {
        let has_version =
            |found: &&FoundObject| self.seen.iter().any(|own| own.only_cluster() == Some(found.cluster.name()));
        if let Some(found) = found.iter().find(has_version) {
            return Ok(Some(Arc::clone(&found.cluster)));
        }
        let has_uid = |found: &&FoundObject| found.object.as_ref().is_some_and(|own| Some(own.uid()) == self.uid());
        let clusters: Vec<_> = found.iter().filter(has_uid).map(|found| &found.cluster).collect();
        match clusters[..] {
            [] => Ok(None),
            [cluster] => Ok(Some(Arc::clone(cluster))),
            _ => {
                let clusters = clusters.iter().map(|cluster| cluster.name().clone()).collect();
                let (resource, name) = (self.request.resource.resource.clone(), self.object_name());
                Err(ClusterRefusal::UidInSeveral { resource, name, clusters }.into())
            }
        }
    }

    /// Returns the cluster of a write whose object is missing: an apply or an update creates the object. For a kind
    /// that an update does not create, the member answers 404. An update without a ground also gets 404.
    async fn owner_of_missing(self, complete: &Complete<'_>) -> Result<OwnerTarget, Refusal> {
        let ClientRequest { info, resource, .. } = self.request;
        let is_update = info.verb == Verb::Update;
        let makes_objects = self.makes_object() || (resource.subresource.is_none() && is_update);
        // If the client's version is of an object in a removed cluster, an update must not create the object in a
        // different cluster.
        let has_left = |cluster: &ClusterName| self.request.cluster(cluster).is_none();
        let is_left = is_update && self.seen.iter().filter_map(ClientVersion::only_cluster).any(has_left);
        if !makes_objects || is_left || complete.leaves_open() {
            return Err(complete.refuse(OwnerError::NotFound));
        }
        match self.owner_of_new().await? {
            Some(target) if complete.is_denied() && self.may_be_hidden_outside(target.cluster.name()).await => {
                Err(complete.refuse(OwnerError::NotFound))
            }
            Some(target) => Ok(target),
            None if is_update => Err(complete.refuse(OwnerError::NotFound)),
            None => Err(self.refuse_unnamed().into()),
        }
    }

    /// Returns whether a different cluster may have a recent object of the name that the client cannot see: the client
    /// may be allowed to create such an object, but not to get it.
    async fn may_be_hidden_outside(self, cluster: &ClusterName) -> bool {
        let shown = self.request.candidates_of(self.request.resource, "get").await;
        self.request.clusters().iter().any(|own| own.name() != cluster && !shown.has(own.name()))
    }
}
