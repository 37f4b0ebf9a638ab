//! Choice of the cluster of a new object, by the first ground that applies.

use std::sync::Arc;

use tributary_answers::ground::Ground;
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::{ClusterName, Object};
use tributary_fleet::topology::Cluster;

use super::decision::OwnerError;
use super::evidence::{self, Gathered, Referenced};
use super::helm::{self, Release};
use super::refusal::{MissingOwner, is_of_hidden_release};
use crate::forward::buffered::BufferedRequest;
use crate::request::ClientRequest;
use crate::versions::ClientVersion;

/// Target cluster of a request, with the objects that the translation of resourceVersions needs.
pub(crate) struct OwnerTarget {
    pub(crate) ground: Ground,
    pub(crate) cluster: Arc<Cluster>,
    /// Last known state of the request's object; `None` for a new object.
    pub(crate) object: Option<Arc<Object>>,
    /// Object that an Event describes, if Tributary has looked it up.
    pub(crate) involved: Option<Arc<Object>>,
}

/// A write whose body is complete in memory.
#[derive(Clone, Copy)]
pub(crate) struct Write<'a> {
    pub(crate) request: ClientRequest<'a>,
    pub(crate) body: &'a BufferedRequest,
    /// The client's versions of the object, or of an earlier object of the name. A client that replaces a deleted
    /// object sends the version of the deleted object, and the new object goes to the same cluster.
    pub(crate) seen: &'a [ClientVersion],
}

impl<'a> Write<'a> {
    /// Returns whether the write creates a missing object and changes an existing one: an apply. The body of an apply
    /// is a complete object. So the first ground alone decides about the cluster, even if other clusters have an object
    /// of the name.
    pub(crate) fn makes_object(self) -> bool {
        self.body.is_apply() && self.request.resource.subresource.is_none()
    }

    /// Finds the cluster of a new object, or `None` if no ground names one. Renews discovery before a ground that
    /// depends on discovery decides.
    ///
    /// # Errors
    /// 400 for a named cluster that does not serve the resource; 503 if an unknown cluster may decide.
    pub(crate) async fn owner_of_new(self) -> Result<Option<OwnerTarget>, Refusal> {
        let found = self.first_ground_of_new().await;
        let rests_on_discovery = match &found {
            Ok(Some(target)) => matches!(target.ground, Ground::Kind | Ground::Namespace),
            Ok(None) => true,
            Err(refusal) => refusal.is_not_serving(),
        };
        match rests_on_discovery {
            true => match self.request.renewed().await {
                Some(renewed) => {
                    let request = renewed.renew_request(self.request);
                    Write { request, ..self }.first_ground_of_new().await
                }
                None => found,
            },
            false => found,
        }
    }

    /// Finds the cluster by the first ground that applies: facts in the request, then objects of clusters, then the
    /// configuration.
    async fn first_ground_of_new(self) -> Result<Option<OwnerTarget>, Refusal> {
        let ClientRequest { configuration, resource, .. } = self.request;
        let target = |ground, cluster| Ok(Some(OwnerTarget { ground, cluster, object: None, involved: None }));
        if let Some(cluster) = self.annotated_cluster()? {
            return target(Ground::Annotation, cluster);
        }
        if let Some(cluster) = self.seen.iter().find_map(ClientVersion::only_cluster) {
            return target(Ground::Precondition, self.configured_cluster(cluster.as_str())?);
        }
        let facts = &self.body.facts;
        if (!facts.owners.is_empty() || facts.involved.is_some())
            && let Some(Referenced { cluster, involved }) = evidence::find_referenced(self.request, facts).await?
        {
            return Ok(Some(OwnerTarget { ground: Ground::Owner, cluster, object: None, involved }));
        }
        let placement = configuration.policy(&resource.resource).placement.as_ref();
        match (self.cluster_by_evidence(&Ground::BY_EVIDENCE).await, placement) {
            (Ok(Some((ground, cluster))), _) => target(ground, cluster),
            // A release that the client cannot see could decide, so the configured `placement` must not decide.
            (Err(refusal), None) if is_of_hidden_release(&refusal) => Ok(None),
            (Err(refusal), _) => Err(refusal),
            (Ok(None), None) => Ok(None),
            (Ok(None), Some(placement)) => target(Ground::Placement, self.configured_cluster(placement.as_str())?),
        }
    }

    /// Returns the cluster that the annotation names.
    ///
    /// # Errors
    /// As [`configured_cluster`](Self::configured_cluster).
    pub(super) fn annotated_cluster(self) -> Result<Option<Arc<Cluster>>, Refusal> {
        self.body.named_cluster().map(|named| self.configured_cluster(named)).transpose()
    }

    /// Returns the cluster of this name.
    ///
    /// # Errors
    /// 400 with the clusters that serve the resource, if the named cluster does not serve the resource.
    fn configured_cluster(self, name: &str) -> Result<Arc<Cluster>, Refusal> {
        let ClientRequest { configuration, served, .. } = self.request;
        let serves = |cluster: &Arc<Cluster>| {
            served.clusters.contains(cluster.name()) || configuration.may_serve(cluster, served)
        };
        let found = ClusterName::new(name).ok().and_then(|name| self.request.cluster(&name)).filter(serves);
        found.ok_or_else(|| {
            let (resource, clusters) = (served.resource.clone(), self.request.serving().cloned().collect());
            ClusterRefusal::NotServing { resource, named: name.to_owned(), clusters }.into()
        })
    }

    /// Returns the cluster that existing objects in the clusters indicate, and the ground. The first of `grounds` that
    /// applies decides; `None` if none applies.
    ///
    /// # Errors
    /// 503 if the answer of an unknown cluster could decide, or 429 if the unknown cluster got no lookup; 409 if
    /// several clusters have the release. 403 if all clusters hide the release, and no later ground applies.
    pub(super) async fn cluster_by_evidence(
        self,
        grounds: &[Ground],
    ) -> Result<Option<(Ground, Arc<Cluster>)>, Refusal> {
        let (request, facts, name) = (self.request, &self.body.facts, self.object_name());
        let placement = request.configuration.policy(&request.resource.resource).placement.as_ref();
        let (names_node, is_namespaced) =
            (facts.node_name.is_some() || facts.target.is_some(), request.resource.namespace.is_some());
        let mut hidden_release = None;
        for &ground in grounds {
            let release = (ground == Ground::Release)
                .then(|| Release::from_facts(request.resource, Some(&name), &facts.release))
                .flatten();
            let Gathered { mut evidence, failures, not_sent } = match (ground, &release) {
                (Ground::Release, Some(release)) => helm::find_records(request, release).await,
                (Ground::Node, _) if names_node => evidence::find_node(request, facts).await?,
                (Ground::Kind, _) => evidence::find_serving(request).into(),
                (Ground::Namespace, _) if is_namespaced => evidence::find_namespace(request).await?,
                // The write names no object that this ground could find.
                _ => continue,
            };
            evidence.is_one_hidden = request.candidates.has_unknown();
            let none = match (evidence.owner_by_ground(ground, placement), not_sent) {
                (Ok(cluster), _) => match request.router.fleet().cluster(&cluster) {
                    Some(cluster) => return Ok(Some((ground, cluster))),
                    None => continue,
                },
                (Err(OwnerError::NotFound), _) => continue,
                (Err(OwnerError::Unsure { .. } | OwnerError::Unknown(_)), Some(not_sent)) => return Err(not_sent),
                (Err(none), _) => none,
            };
            let (name, release) = (name.clone(), release.map(Release::into_name));
            let refusal = MissingOwner { request, ground, name, release, failures: &failures }.refuse(none).into();
            match is_of_hidden_release(&refusal) {
                true => hidden_release = Some(refusal),
                false => return Err(refusal),
            }
        }
        hidden_release.map_or(Ok(None), Err)
    }

    /// Refuses a write that names no cluster. The refusal lists the clusters of the present discovery, which may have
    /// grown since the request arrived.
    pub(crate) fn refuse_unnamed(self) -> ClusterRefusal {
        let (merged_discovery, resource) =
            (self.request.router.fleet().merged_discovery(), self.request.resource.resource.clone());
        let serving = merged_discovery.get(&resource).into_iter().flat_map(|served| served.clusters.iter());
        let clusters = serving.filter(|cluster| self.request.candidates.has(cluster)).cloned().collect();
        ClusterRefusal::NotNamed { resource, name: self.object_name(), clusters }
    }

    /// Returns the name of the object; empty if the member generates the name.
    pub(super) fn object_name(self) -> String {
        self.request.resource.name.as_ref().or(self.body.facts.name.as_ref()).cloned().unwrap_or_default()
    }
}
