//! What a request holds of the flow-control schema that it passes: one place, or, where a schema of the merged view
//! counts by cluster, one at each cluster that it is sent to. Which those are is known only when it is sent.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Extensions;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tributary_apimachinery::permit::TunnelPermit;
use tributary_apimachinery::{ClusterName, Permit, RequestInfo};
use tributary_authentication::{UserInfo, VerifierName};
use tributary_flow_control::{AdmittedRequest, Attributes, Flow, GovernedSchema, Resource};

use crate::refusal::{LimitRefusal, Refusal};

/// The resource at which all that no cluster serves is counted.
const UNSERVED: Resource<'static> = Resource { group: "", resource: "", subresource: None };

/// What a request holds of the schema that it passes.
#[derive(Debug)]
pub(crate) enum HeldOfSchema {
    /// One place, whoever answers it.
    Whole {
        /// It is dropped, never read.
        _admitted: AdmittedRequest,
    },
    /// One at each cluster that it is sent to.
    AtClusters(Box<CountedClusters>),
}

/// Who sends a request, as far as flow control looks: the one who authenticated, whomever that one asks to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitedSender<'a> {
    /// What knows the user.
    pub(crate) verifier: &'a VerifierName,
    /// The member that alone vouches for the user, if one does.
    pub(crate) member: Option<&'a ClusterName>,
    /// What it says of the user.
    pub(crate) user: &'a UserInfo,
    /// Where the request comes from.
    pub(crate) address: Option<IpAddr>,
    /// Whose requests take turns with it.
    pub(crate) flow: Flow,
}

impl<'a> LimitedSender<'a> {
    /// What flow control looks at in a request of this sender, by the place at which it comes in. `is_served`: whether
    /// some cluster serves the resource, if it asks for one.
    pub(crate) fn attributes(self, info: &'a RequestInfo, is_served: bool) -> Attributes<'a> {
        let resource = info.resource().map(|request| match is_served {
            true => Resource {
                group: &request.resource.group,
                resource: &request.resource.resource,
                subresource: request.subresource.as_deref(),
            },
            false => UNSERVED,
        });
        Attributes {
            user: tributary_flow_control::User { verifier: self.verifier.as_str(), name: &self.user.username },
            member: self.member.map(ClusterName::as_str),
            groups: &self.user.groups,
            client_address: self.address,
            verb: info.verb.as_str(),
            resource,
            cluster: info.cluster.as_ref().map(ClusterName::as_str),
            is_long_running: info.class().is_long_running(),
            width: 1,
            flow: self.flow,
        }
    }
}

/// A place at one cluster, once it is taken.
type PlaceAtCluster = Arc<OnceCell<Arc<AdmittedRequest>>>;

/// The places of one request at the clusters that it is sent to: one at each, however often it is sent there.
#[derive(Debug)]
pub(crate) struct CountedClusters {
    schema: GovernedSchema,
    info: RequestInfo,
    is_served: bool,
    verifier: VerifierName,
    member: Option<ClusterName>,
    user: UserInfo,
    address: Option<IpAddr>,
    flow: Flow,
    may_switch: bool,
    places: Mutex<BTreeMap<ClusterName, PlaceAtCluster>>,
}

impl CountedClusters {
    /// None yet, of a request for what some cluster serves or none does, which may ask for its connection to be switched.
    pub(crate) fn new(
        schema: &GovernedSchema,
        (info, is_served): (&RequestInfo, bool),
        sender: LimitedSender<'_>,
        may_switch: bool,
    ) -> Self {
        Self {
            schema: schema.clone(),
            info: info.clone(),
            is_served,
            member: sender.member.cloned(),
            verifier: sender.verifier.clone(),
            user: sender.user.clone(),
            address: sender.address,
            flow: sender.flow,
            may_switch,
            places: Mutex::default(),
        }
    }

    /// Whether its place is to be kept for as long as a switched connection is used.
    pub(crate) fn may_switch(&self) -> bool {
        self.may_switch
    }

    /// The place at a cluster: the one that the request has there, or one that it is let in to, at once or after the
    /// wait that the schema provides for. It is free again once this and everything else that keeps it is dropped.
    ///
    /// Cancel: who gives up waiting leaves nothing behind.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn admit<'a>(
        &'a self,
        cluster: &'a ClusterName,
    ) -> BoxFuture<'a, Result<Arc<AdmittedRequest>, Refusal>> {
        let place = Arc::clone(self.places.lock().entry(cluster.clone()).or_default());
        async move { place.get_or_try_init(|| self.let_in(cluster)).await.map(Arc::clone) }.boxed()
    }

    async fn let_in(&self, cluster: &ClusterName) -> Result<Arc<AdmittedRequest>, Refusal> {
        let sender = LimitedSender {
            verifier: &self.verifier,
            member: self.member.as_ref(),
            user: &self.user,
            address: self.address,
            flow: self.flow,
        };
        let attributes = sender.attributes(&self.info, self.is_served);
        let attributes = Attributes { cluster: Some(cluster.as_str()), ..attributes };
        match self.schema.admit(&attributes).await {
            Ok(admitted) => Ok(Arc::new(admitted)),
            Err(refused) => Err(LimitRefusal::FlowControl { cluster: Some(cluster.clone()), refused }.into()),
        }
    }
}

/// Has whoever joins the ends of a switched connection keep this, beside what is kept already, until they part.
pub(crate) fn kept_by_tunnel(extensions: &mut Extensions, kept: impl Send + 'static) {
    let others = extensions.remove::<TunnelPermit>();
    extensions.insert(TunnelPermit::from(Permit::keeping((others, kept))));
}
