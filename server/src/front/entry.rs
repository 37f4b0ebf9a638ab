//! The entries of a process: listeners with their own authentication, hosts and paths. All entries share one front.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use http::request::Parts;
use http::{Request, Response};
use tributary_apimachinery::{HostName, Mount};
use tributary_hosts::{HostRefusal, Hosts};
use tributary_listener::{
    AnswerCapacity, AuthenticationOutcome, Handshake, LimitCheck, ListenerRefusal, RequestService, ServiceAnswer,
};
use tributary_router::Answer;

use super::{Client, Front, OpenDoors};
use crate::authentication::{Authenticator, ClientChain};
use crate::handler::{Body, Handler};

/// A listener's ways to authenticate and to select the API of a request.
#[derive(Debug)]
pub struct Entry {
    pub(super) authenticator: Authenticator,
    api: EntryApi,
}

/// The API of an entry.
#[derive(Debug)]
enum EntryApi {
    /// The request's host selects the merged view or a cluster.
    Hosts(Arc<Hosts>),
    /// The aggregated entry, to which the kube-apiserver of the hub forwards requests.
    Aggregated {
        doors: Arc<OpenDoors>,
        /// True once the first configuration is in force. Before, the merged view has no clusters, and an empty list
        /// would tell a controller that all objects are deleted.
        is_configured: AtomicBool,
    },
    /// The entry of Open Cluster Management. It answers after the first configuration is applied.
    OpenClusterManagement(Arc<OpenDoors>),
}

impl Entry {
    /// Creates an entry whose requests select an API by their host.
    pub fn for_hosts(authenticator: Authenticator, hosts: Arc<Hosts>) -> Self {
        Self { authenticator, api: EntryApi::Hosts(hosts) }
    }

    /// Creates the aggregated entry. Until [`serve_clusters`](Self::serve_clusters), requests for clusters get a 503.
    pub fn aggregated(authenticator: Authenticator, doors: Arc<OpenDoors>) -> Self {
        Self { authenticator, api: EntryApi::Aggregated { doors, is_configured: AtomicBool::new(false) } }
    }

    /// Creates the entry of Open Cluster Management.
    pub fn open_cluster_management(authenticator: Authenticator, doors: Arc<OpenDoors>) -> Self {
        Self { authenticator, api: EntryApi::OpenClusterManagement(doors) }
    }

    /// Begins to answer requests for clusters at the aggregated entry. Called after the first configuration is applied.
    pub fn serve_clusters(&self) {
        if let EntryApi::Aggregated { is_configured, .. } = &self.api {
            is_configured.store(true, Ordering::Release);
        }
    }

    /// Returns whether the entry answers requests for clusters.
    pub(super) fn serves_clusters(&self) -> bool {
        match &self.api {
            EntryApi::Hosts(_) | EntryApi::OpenClusterManagement(_) => true,
            EntryApi::Aggregated { is_configured, .. } => is_configured.load(Ordering::Acquire),
        }
    }

    /// Returns whether a request has a small constant answer, which is sent even if the connection has too many unread
    /// answers. The kube-apiserver of the hub sends the requests of all users over one connection, and needs the
    /// constant documents of the aggregated entry to keep the APIService available.
    fn has_constant_answer<B>(&self, request: &Request<B>) -> bool {
        match &self.api {
            EntryApi::Hosts(_) | EntryApi::OpenClusterManagement(_) => false,
            EntryApi::Aggregated { doors, .. } => {
                tributary_router::has_constant_answer(doors.mount(), request.method(), request.uri())
            }
        }
    }

    /// Returns the API at the root of a request's path.
    ///
    /// # Errors
    /// [`HostRefusal`].
    pub(super) fn mount(&self, head: &Parts, server_name: Option<&HostName>) -> Result<Mount, HostRefusal> {
        match &self.api {
            EntryApi::Hosts(hosts) => hosts.mount(head, server_name),
            EntryApi::Aggregated { doors, .. } => Ok(doors.mount()),
            EntryApi::OpenClusterManagement(doors) => Ok(doors.mount_of_open_cluster_management()),
        }
    }
}

/// An entry of a front, as the service of a listener.
pub struct EntryService<H> {
    front: Arc<Front<H>>,
    entry: Arc<Entry>,
}

impl<H: Handler> EntryService<H> {
    /// Makes the service of an entry. All entries of a process have the same front.
    pub fn new(front: Arc<Front<H>>, entry: Arc<Entry>) -> Self {
        Self { front, entry }
    }
}

impl<H: Handler> RequestService for EntryService<H> {
    type Client = Client;

    fn client(&self, handshake: Handshake<'_>) -> Client {
        let Handshake { address, certificates, server_name } = handshake;
        let chain = Arc::new(ClientChain::new(certificates));
        let entry = Arc::clone(&self.entry);
        Client { entry, address, chain, server_name, actor: Arc::default() }
    }

    fn report_refused_certificate(&self, peer: SocketAddr, reason: &str) {
        self.front.authentication_failures.log_handshake(peer, reason);
    }

    fn has_constant_answer<B>(&self, request: &Request<B>) -> bool {
        self.entry.has_constant_answer(request)
    }

    // This is no `async fn`, because its future would store the request a second time in each stream.
    fn answer_request(
        &self,
        request: Request<Body>,
        client: &Client,
        record_outcome: impl FnOnce(AuthenticationOutcome<'_>) -> LimitCheck + Send,
        answer_capacity: AnswerCapacity<impl FnOnce(Response<Body>) -> Result<Response<Body>, ListenerRefusal> + Send>,
    ) -> impl Future<Output = ServiceAnswer> + Send {
        self.front
            .call(request, client, record_outcome, answer_capacity)
            .map(|Answer { response, class, .. }| ServiceAnswer { response, class })
    }

    fn refuse_request<B>(&self, request: Request<B>, client: &Client, refusal: ListenerRefusal) -> ServiceAnswer {
        self.front.refuse(request, client, refusal).into()
    }

    async fn drain(&self) {
        self.front.handler.drain().await;
    }
}
