//! A request for a resource, parsed once.

use std::sync::Arc;

use tributary_answers::negotiate::IncludeObject;
use tributary_answers::negotiate::{AnswerForm, Preferences, Representation, ResponseKind};
use tributary_answers::refusal::{ClusterFailure, Refusal, RequestRefusal};
use tributary_apimachinery::{
    ClusterAuthorization, ClusterName, ClusterSelector, GroupVersionResource, ListOptions, Query, RequestInfo,
    ResourceRequest,
};
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::topology::{Cluster, KindReader};
use tributary_rights::Candidates;
use tributary_sharing::limits;

use crate::caller::Caller;
use crate::configuration::ConfigurationSnapshot;
use crate::versions::Versions;
use crate::{Router, asked};

/// All parts of a client's request for a resource except its body, together with the router, configuration and caller.
/// Cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct ClientRequest<'a> {
    pub(crate) router: &'a Router,
    pub(crate) configuration: &'a ConfigurationSnapshot,
    pub(crate) caller: &'a Caller,
    pub(crate) candidates: &'a Candidates,
    pub(crate) info: &'a RequestInfo,
    /// Resource of the path.
    pub(crate) resource: &'a ResourceRequest,
    pub(crate) query: Option<&'a str>,
    /// Resource with the clusters that serve it.
    pub(crate) served: &'a ServedResource,
    pub(crate) preferences: &'a Preferences,
}

impl<'a> ClientRequest<'a> {
    /// Copies the request with a different resource, for example a resource that the body names, and with the
    /// candidates for that resource.
    pub(crate) fn about<'b>(
        self,
        resource: &'b ResourceRequest,
        served: &'b ServedResource,
        candidates: &'b Candidates,
    ) -> ClientRequest<'b>
    where
        'a: 'b,
    {
        ClientRequest { resource, served, candidates, ..self }
    }

    /// Returns the candidates for a resource that this request refers to: clusters where the caller may perform the
    /// action.
    pub(crate) async fn candidates_of(&self, resource: &ResourceRequest, verb: &str) -> Candidates {
        asked::candidates_of(self.configuration.clusters.keys(), self.caller, resource, verb).await
    }

    /// Returns the candidates of this request that forbid the caller to look up an object that the request refers to.
    /// These clusters may have the object.
    pub(crate) fn hiding(&self, served: &ServedResource, candidates: &Candidates) -> Vec<ClusterFailure> {
        let mut hiding = self.clusters();
        hiding.retain(|cluster| served.clusters.contains(cluster.name()) && !candidates.has(cluster.name()));
        let cause = || format!("the cluster forbids you to get {}", served.resource.group_resource());
        hiding.iter().map(|own| ClusterFailure { cluster: own.name().clone(), cause: cause(), age: None }).collect()
    }

    /// Returns the codec for the versions in a write of the resource. The codec decodes only versions of candidates.
    pub(crate) fn versions(&self) -> Versions {
        self.configuration.versions(&self.resource.resource).of_candidates(self.candidates.clone())
    }

    pub(crate) fn cluster(&self, name: &ClusterName) -> Option<Arc<Cluster>> {
        self.configuration.clusters.get(name).filter(|_| self.candidates.has(name)).cloned()
    }

    /// Returns whether the cluster of this name is a candidate, serves the resource, and is reachable.
    pub(crate) fn can_ask(&self, name: &ClusterName) -> bool {
        self.served.clusters.contains(name) && self.cluster(name).is_some_and(|cluster| cluster.can_be_asked())
    }

    pub(crate) fn clusters(&self) -> Vec<Arc<Cluster>> {
        let clusters = self.router.fleet().clusters();
        clusters.values().filter(|cluster| self.candidates.has(cluster.name())).cloned().collect()
    }

    /// Returns whether, in shared mode, a cluster that serves the resource answers all reads itself, because memory
    /// shows none of its objects. Cost: linear in the number of clusters.
    pub(crate) fn is_live_somewhere(&self) -> bool {
        let is_live = |cluster: &Arc<Cluster>| cluster.setup.authorization == ClusterAuthorization::Live;
        self.caller.rights().is_some()
            && self.configuration.clusters.values().any(|own| is_live(own) && self.served.clusters.contains(own.name()))
    }

    pub(crate) fn serving(&self) -> impl Iterator<Item = &'a ClusterName> + use<'a> {
        let Self { served, candidates, .. } = *self;
        served.clusters.iter().filter(|cluster| candidates.has(cluster))
    }

    /// Returns the candidates whose discovery does not describe the resource's version, with the reasons.
    pub(crate) fn undescribed(&self) -> Vec<ClusterFailure> {
        let clusters = self.served.undescribed().filter_map(|name| self.cluster(name));
        clusters.map(|cluster| cluster.undescribed_trouble(&self.served.resource)).collect()
    }

    /// Returns the candidates without [available discovery](ConfigurationSnapshot::has_discovery).
    pub(crate) fn undiscovered(&self) -> Vec<Arc<Cluster>> {
        let mut undiscovered = self.clusters();
        undiscovered.retain(|cluster| !self.configuration.has_discovery(cluster));
        undiscovered
    }

    /// Returns the candidates that [may serve](ConfigurationSnapshot::may_serve) the resource, although their discovery
    /// lacks the resource.
    pub(crate) fn may_serve(&self) -> Vec<Arc<Cluster>> {
        let mut may_serve = self.clusters();
        may_serve.retain(|cluster| self.configuration.may_serve(cluster, self.served));
        may_serve
    }

    /// Returns the candidates that serve the resource and are excluded from its merged view.
    pub(crate) fn left_out(&self) -> Vec<ClusterName> {
        let mut left_out = self.configuration.left_out(self.served);
        left_out.retain(|cluster| self.candidates.has(cluster));
        left_out
    }

    /// Checks that the answer can have the requested form. Returns the value of `includeObject` for the rows of a
    /// Table. A write must call this function before it changes a cluster.
    ///
    /// # Errors
    /// 406 if the client accepts no possible form of the answer; 400 for an unknown value of `includeObject`.
    pub(crate) fn finish(&self, form: AnswerForm, answer: ResponseKind) -> Result<IncludeObject, Refusal> {
        let resource = &self.served.resource;
        match self.resource.subresource.as_deref() {
            Some("scale") if resource.is_built_in() => {
                let scale = GroupVersionResource::new("autoscaling", "v1", "scale");
                self.preferences.fits(form, answer, &scale, "Scale")?;
            }
            _ => self.preferences.fits(form, answer, resource, self.served.description.kind())?,
        }
        include_object(form, self.query)
    }

    pub(crate) fn is_cached(&self) -> bool {
        self.configuration.is_cached(self.served, self.resource.namespace.as_deref())
    }
}

/// Configuration and resource after a renewal of clusters' discovery.
pub(crate) struct RenewedView {
    configuration: ConfigurationSnapshot,
    served: Arc<ServedResource>,
}

impl RenewedView {
    pub(crate) fn renew_request<'b>(&'b self, request: ClientRequest<'b>) -> ClientRequest<'b> {
        ClientRequest { configuration: &self.configuration, served: &self.served, ..request }
    }
}

impl ClientRequest<'_> {
    /// Renews the discovery of reachable candidates whose discovery lacks the resource. Returns the new configuration,
    /// or `None` if the resource has not changed. Rate-limited for each cluster. Does not wait for clusters that are no
    /// candidates: the time of the answer would reveal a cluster that is hidden from the caller.
    pub(crate) async fn renewed(&self) -> Option<RenewedView> {
        let Self { router, served, candidates, .. } = *self;
        // A cluster with two configured names is asked only under its first name.
        let lacks = |cluster: &Arc<Cluster>| {
            candidates.has(cluster.name())
                && !served.is_served_by(cluster.name())
                && cluster.duplicate().is_none()
                && !cluster.is_out_of_reach()
        };
        if !self.configuration.clusters.values().any(lacks) {
            return None;
        }
        router.fleet().refresh(lacks).await;
        let configuration = router.configuration();
        let now = Arc::clone(configuration.merged_discovery.get(&served.resource)?);
        let has_changed = *now != *served;
        has_changed.then_some(RenewedView { configuration, served: now })
    }

    /// Records in the clusters that a client lists or watches a custom kind that these clusters lack. From now on,
    /// Tributary requests their discovery each second, if it may not watch their kinds. Kinds of Kubernetes itself need
    /// no record: they appear only with a new version of the server.
    pub(crate) fn record_reader(&self, reader: KindReader) {
        let Self { configuration, served, .. } = *self;
        let all_have_it = served.clusters.len() + served.not_merged.len() >= configuration.clusters.len();
        if all_have_it || served.resource.is_built_in() {
            return;
        }
        let policy = configuration.policy(&served.resource);
        let options = ListOptions::parse(self.query, limits::SELECTOR).ok();
        let selected = options.and_then(|options| Some(ClusterSelector::split(&options.label_selector).ok()?.1));
        let Some(selected) = selected else { return };
        let lacks = |name: &ClusterName| policy.selects(name) && selected.matches(name) && !served.is_served_by(name);
        for (name, cluster) in configuration.clusters.iter() {
            if lacks(name) && cluster.duplicate().is_none() {
                cluster.record_reader(reader);
            }
        }
    }
}

/// Returns the value of `includeObject` for the rows of a Table. Other forms ignore the parameter.
///
/// # Errors
/// 400 for an unknown value.
pub(crate) fn include_object(form: AnswerForm, query: Option<&str>) -> Result<IncludeObject, Refusal> {
    if !matches!(form.shape, Representation::Table(_)) {
        return Ok(IncludeObject::default());
    }
    let query = Query::parse(query);
    let value = query.get("includeObject").unwrap_or_default();
    Ok(IncludeObject::parse(value).ok_or_else(|| RequestRefusal::IncludeObject { value: value.to_owned() })?)
}
