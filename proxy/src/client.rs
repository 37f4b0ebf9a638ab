//! A member as the rest of Tributary sees it: [`ClusterClient`].

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::body::{self, Body, BoxError};
use tributary_apimachinery::{ClusterName, RequestInfo};

use crate::cluster_uid::{ClusterChanges, ClusterUid, KnownCluster, Successor, UidMatch};
use crate::credentials::identity::RequestIdentity;
use crate::credentials::pass_through::without_credentials;
use crate::credentials::user::{CurrentUser, MemberUser};
use crate::endpoints::Endpoints;

use crate::endpoints::destination::EndpointSubset;
use crate::endpoints::endpoint::EndpointStatus;
use crate::endpoints::endpoint_maker::EndpointMaker;
use crate::error::{ConnectError, ForwardError};
use crate::failed_upgrades::UpgradeLimiter;
use crate::forward;
use crate::forward_context::ForwardContext;
use crate::health::observer::Observer;
use crate::health::reachability::Reachability;
use crate::member::ClientInner;
use crate::places::Asker;
use crate::pool::dial::Connector;
use crate::pool::proofs::ServerProofs;
use crate::pool::{LaneKind, PoolStatistics};
use crate::probing;
use crate::retry_budget::{RetryBudget, RetryStatistics};
use crate::target::{Address, targets, without_user_info};
use crate::tuning::ClientTuning;
use crate::upgrade;

/// A transport to one member: requests carry a path and query, the rest is filled in. Errors are [`ForwardError`]s.
pub type Transport = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;

/// The time a health check may take. A kube-apiserver that needs longer for `/readyz` is not healthy.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a health check's answer that are kept.
const HEALTH_DETAIL_LIMIT: usize = 4096;

/// Client of one cluster. Cheap to clone; all clones share connections, credentials and the state of the cluster.
///
/// The last clone's drop closes idle connections; requests in flight and tunnels go on, until
/// [`ClientTuning::shutdown`].
#[derive(Clone)]
pub struct ClusterClient {
    member: Arc<ClientInner>,
    /// A second client without credentials, for users' own tokens.
    without_credentials: Option<Arc<ClientInner>>,
}

/// The answer of a member's `/readyz`.
#[derive(Clone, Debug)]
pub struct Health {
    /// Whether the cluster says that it is ready. Also true if it forbids the question (403): it answers requests.
    pub ready: bool,
    /// The status of the answer.
    pub status: StatusCode,
    /// The first bytes of the answer: `ok`, or which checks fail.
    pub detail: String,
}

impl ClusterClient {
    /// Makes a client from a kubeconfig's cluster and user. Sends nothing: the cluster need not be reachable, and
    /// credential plugins run with the first request.
    ///
    /// Without a certificate authority the system's roots are trusted, as in kubectl, otherwise Mozilla's; certificates
    /// are unchecked only if the configuration says so. A plain `http://` server (kubectl proxy) uses HTTP/1.1. Files
    /// and keys are read off the runtime's workers.
    ///
    /// # Errors
    /// [`ConnectError`] for a configuration that cannot work.
    pub async fn connect(name: ClusterName, config: kube::Config, tuning: ClientTuning) -> Result<Self, ConnectError> {
        Self::new(name, config, &[], tuning, None).await
    }

    /// Like [`connect`](Self::connect), for a cluster with further addresses: all lead to the same cluster, with the
    /// same credentials and authorities. The configuration's proxy is for its own address only. Requests are spread
    /// over the reachable addresses.
    ///
    /// # Errors
    /// [`ConnectError`] for a configuration that cannot work.
    pub async fn connect_to_all(
        name: ClusterName,
        config: kube::Config,
        further: &[Address],
        tuning: ClientTuning,
    ) -> Result<Self, ConnectError> {
        Self::new(name, config, further, tuning, None).await
    }

    /// As [`connect`](Self::connect), over byte streams of the caller's instead of TCP: for a member in this process.
    ///
    /// To a server named `http://` HTTP/2 is spoken without negotiation, except for upgrades.
    ///
    /// # Errors
    /// [`ConnectError`] for a configuration that cannot work.
    pub async fn connect_through(
        connector: Connector,
        name: ClusterName,
        config: kube::Config,
        tuning: ClientTuning,
    ) -> Result<Self, ConnectError> {
        Self::new(name, config, &[], tuning, Some(connector)).await
    }

    /// As [`connect_through`](Self::connect_through), to a member that can be reached at further addresses as well.
    ///
    /// # Errors
    /// [`ConnectError`] for a configuration that cannot work.
    pub async fn connect_to_all_through(
        connector: Connector,
        name: ClusterName,
        config: kube::Config,
        further: &[Address],
        tuning: ClientTuning,
    ) -> Result<Self, ConnectError> {
        Self::new(name, config, further, tuning, Some(connector)).await
    }

    /// Lets the client forward users' own tokens ([`RequestIdentity::Own`]), on separate connections. The arguments are
    /// those of this client; the user is ignored.
    ///
    /// # Errors
    /// [`ConnectError`] for a cluster without https, or with an unchecked certificate.
    pub async fn passing_tokens(
        self,
        config: &kube::Config,
        further: &[Address],
        tuning: ClientTuning,
    ) -> Result<Self, ConnectError> {
        let name = self.member.name.clone();
        let config =
            without_credentials(config, further.iter().map(|address| &address.url)).map_err(|(url, problem)| {
                ConnectError::Server { cluster: name.clone(), server: without_user_info(&url.to_string()), problem }
            })?;
        let mut member = Self::inner(name, config, further, tuning, None, None).await?;
        member.passes_tokens = true;
        Ok(Self { without_credentials: Some(Arc::new(member)), ..self })
    }

    /// Whether users' own tokens are passed on.
    pub fn passes_tokens(&self) -> bool {
        self.without_credentials.is_some()
    }

    async fn new(
        name: ClusterName,
        config: kube::Config,
        further: &[Address],
        tuning: ClientTuning,
        connector: Option<Connector>,
    ) -> Result<Self, ConnectError> {
        let member = Self::inner(name, config, further, tuning, connector, Some(Arc::default())).await?;
        Ok(Self { member: Arc::new(member), without_credentials: None })
    }

    async fn inner(
        name: ClusterName,
        config: kube::Config,
        further: &[Address],
        tuning: ClientTuning,
        connector: Option<Connector>,
        known: Option<Arc<KnownCluster>>,
    ) -> Result<ClientInner, ConnectError> {
        // Without a process-wide provider rustls panics on first use if several are compiled in.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let extra_headers = HeaderMap::from_iter(config.headers.iter().cloned());
        let user = MemberUser::new(&name, &config, &tuning.credentials(), None).await?;
        let certificate = user.credentials.configured_certificate().clone();
        let user: CurrentUser = Arc::new(ArcSwap::from_pointee(user));
        let observer = Arc::new(Observer::new(name.clone(), tuning.breaker.clone()));
        let targets = targets(&name, &config, further)?;
        let proofs = Arc::new(ServerProofs::new(&targets));
        let maker = EndpointMaker {
            cluster: &name,
            config: &config,
            tuning: &tuning,
            certificate: &certificate,
            uid: known.as_ref().zip(Some(&user)),
            proofs: &proofs,
            connector: connector.as_ref(),
            member: &observer,
            is_one_of_several: !further.is_empty(),
        };
        let mut endpoints = Vec::new();
        for target in targets {
            endpoints.push(maker.make(target).await?);
        }
        let endpoints = Endpoints::new(endpoints, &name, &observer);
        let retries = RetryBudget::new();
        let passes_tokens = false;
        Ok(ClientInner {
            name,
            endpoints,
            tuning,
            extra_headers,
            user,
            observer,
            retries,
            proofs,
            passes_tokens,
            upgrades: UpgradeLimiter::new(),
            connector,
            known,
        })
    }

    /// Name of the cluster.
    pub fn name(&self) -> &ClusterName {
        &self.member.name
    }

    /// Replaces the user: credentials and `as` fields. The rest of the configuration is ignored.
    ///
    /// New requests have the new user. Requests in flight and open streams keep the old one until they end. Connections
    /// stay if they show the same client certificate.
    ///
    /// # Errors
    /// [`ConnectError`] for a user that cannot be used; the old one stays then.
    pub async fn set_user(&self, config: &kube::Config) -> Result<(), ConnectError> {
        let (before, tuning) = (self.member.user.load_full(), self.member.tuning.credentials());
        let user = MemberUser::new(&self.member.name, config, &tuning, Some(&before)).await?;
        for endpoint in self.member.endpoints.all().iter() {
            endpoint.pool.check(user.credentials.configured_certificate()).await?;
        }
        self.member.user.store(Arc::new(user));
        before.credentials.note_renewal();
        Ok(())
    }

    /// Replaces the addresses, the configuration's and further ones, of the same cluster. Of the configuration only the
    /// user may have changed as well ([`set_user`](Self::set_user)).
    ///
    /// An address that stays keeps its connections and state. A removed one gets no new requests; its open ones may
    /// end, within an hour, the longest time that a kube-apiserver lets a watch last. Returns false, without a change,
    /// if none of the addresses stays, because nothing shows then that it is the same cluster, or if the client was
    /// made for a single address.
    ///
    /// # Errors
    /// [`ConnectError`] for an address that cannot be used; the old ones stay then.
    pub async fn set_addresses(&self, config: &kube::Config, further: &[Address]) -> Result<bool, ConnectError> {
        if !self.member.set_addresses(config, further).await? {
            return Ok(false);
        }
        if let Some(member) = &self.without_credentials {
            let urls = further.iter().map(|address| &address.url);
            let config = without_credentials(config, urls).map_err(|(url, problem)| {
                let server = without_user_info(&url.to_string());
                ConnectError::Server { cluster: self.member.name.clone(), server, problem }
            })?;
            return member.set_addresses(&config, further).await;
        }
        Ok(true)
    }

    /// Sets the drained endpoints, also among later addresses ([`set_addresses`](Self::set_addresses)).
    ///
    /// A drained endpoint gets no new requests but probes; its open ones may end, within an hour. If all endpoints are
    /// drained, requests fail as [`ForwardError::NoEndpoint`], and the cluster does not count as unreachable.
    pub fn set_drained(&self, drained: &EndpointSubset) {
        for member in std::iter::once(&self.member).chain(&self.without_credentials) {
            member.endpoints.set_drained(drained);
        }
    }

    /// Whether all of its endpoints are drained.
    pub fn is_drained(&self) -> bool {
        self.member.endpoints.all().iter().all(|endpoint| endpoint.is_drained())
    }

    /// Lets each new connection ask for the uid of the namespace kube-system before it carries a request, and expects
    /// this uid; `None` accepts the first one. A connection to a different cluster is closed, and its requests fail as
    /// [`ForwardError::AnotherCluster`]. Connections with users' own tokens do not ask: the cluster checks the tokens.
    /// Cost: one small request for each connection.
    pub fn expect_cluster(&self, uid: Option<ClusterUid>) {
        if let Some(known) = &self.member.known {
            known.expect(uid);
        }
    }

    /// uid of the cluster; `None` until the cluster has reported it, or if the client may not read it.
    pub fn cluster_uid(&self) -> Option<ClusterUid> {
        self.member.known.as_ref()?.uid()
    }

    /// Compares a uid that the cluster has reported on an open connection.
    pub fn compare_cluster(&self, told: &ClusterUid) -> UidMatch {
        self.member.known.as_ref().map_or(UidMatch::Same, |known| known.compare(told))
    }

    /// The other cluster that answers at the member's addresses by now.
    pub fn successor(&self) -> Option<Successor> {
        self.member.known.as_ref()?.successor()
    }

    /// Whether a connection has proved that it leads to the expected cluster.
    pub fn is_cluster_confirmed(&self) -> bool {
        self.member.known.as_ref().is_some_and(|known| known.is_confirmed())
    }

    /// Refuses each new connection, and each request that has none yet, until a cluster is
    /// [expected](Self::expect_cluster) again: the name is about to mean another cluster.
    pub fn close_cluster(&self) {
        if let Some(known) = &self.member.known {
            known.close();
        }
    }

    /// Notified when another cluster answers at the member's addresses.
    pub fn cluster_changes(&self) -> Option<ClusterChanges> {
        self.member.known.as_ref().map(|known| known.changes())
    }

    /// Closes all connections with their streams: watches, logs, tunnels.
    pub fn break_off(&self) {
        for member in std::iter::once(&self.member).chain(&self.without_credentials) {
            member.endpoints.cut();
        }
    }

    /// Number of times that the cluster has seen new credentials, renewed ones or a new user's. The next request after
    /// a change shows whether the cluster allows different requests.
    pub fn renewals(&self) -> u64 {
        self.member.user.load().credentials.renewals()
    }

    /// Fault of the renewal of credentials, for people and without secrets; the current ones may still be valid.
    pub fn credentials_problem(&self) -> Option<String> {
        self.member.user.load().credentials.problem()
    }

    /// Transport with the client's own credentials ([`RequestIdentity::Member`]), for discovery and for cachers of
    /// whole collections. It has its own connections over HTTP/2, and at least a quarter of those over HTTP/1.1. Read
    /// its answers at once, because they share a connection's window. The request determines the time limit of its
    /// answer.
    pub fn transport(&self) -> Transport {
        self.transport_for(Asker::Ourselves, RequestIdentity::Member, None)
    }

    /// As [`transport`](Self::transport), for cachers of single namespaces, of which there may be any number because
    /// clients ask for them: they have connections of their own as well, and leave as many over HTTP/1.1 to clients and
    /// to whole collections.
    pub fn transport_for_namespaces(&self) -> Transport {
        self.transport_for(Asker::Namespaces, RequestIdentity::Member, None)
    }

    /// Like [`transport`](Self::transport), to the endpoint with this index in the configuration, in any state: for
    /// facts that differ between the servers of a cluster.
    pub fn transport_to(&self, endpoint: usize) -> Transport {
        self.transport_for(Asker::Ourselves, RequestIdentity::Member, Some(endpoint))
    }

    /// Whether one of its servers' addresses has a path: something stands before the cluster then, and may judge
    /// requests by itself.
    pub fn has_base_path(&self) -> bool {
        self.member.endpoints.all().iter().any(|endpoint| endpoint.target.has_base_path())
    }

    /// Proofs of the servers behind the addresses.
    pub fn proofs(&self) -> &ServerProofs {
        &self.member.proofs
    }

    /// Like [`transport_to`](Self::transport_to), with the [nameless identity](RequestIdentity::Nameless).
    pub fn nameless_to(&self, endpoint: usize) -> Transport {
        self.transport_for(Asker::Ourselves, RequestIdentity::Nameless, Some(endpoint))
    }

    /// Transport with this identity, to one endpoint by its index, or to any.
    fn transport_for(&self, asker: Asker, identity: RequestIdentity, endpoint: Option<usize>) -> Transport {
        let client = self.clone();
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let (client, identity, uri) = (client.clone(), identity.clone(), request.uri());
            let info = RequestInfo::parse(request.method().as_str(), uri.path(), uri.query());
            let class = info.map(|info| info.class()).unwrap_or_default();
            let context = ForwardContext { identity, class, asker, endpoint, ..ForwardContext::default() };
            async move { client.forward(request, context).await.map_err(BoxError::from) }
        }))
    }

    /// Sends a request and streams the response back.
    ///
    /// Only path and query of the URI count. See [`crate::headers::prepare_request`] for removed headers; the context
    /// has the identity at the cluster, and the class, which determines the time limit. An identity alone is a context,
    /// too. Bodies are streamed.
    ///
    /// Upgrades need the [`ClientUpgrade`](crate::ClientUpgrade) of the context, which hyper's HTTP/1.1 server makes. After
    /// a 101, send the returned response to the client; a task in [`ClientTuning::tunnels`] then copies bytes both
    /// ways. Any other answer is an ordinary response; a user may have 64 of these at once, and four a second, except
    /// for kube-apiserver's own upgrades (exec, attach, port-forward and `proxy`).
    ///
    /// A request that the cluster has certainly not processed is sent again, and so is a GET or HEAD without a body
    /// after a broken connection, at most twice, and within a fifth of the requests of the last 10 s. A short GET or
    /// HEAD that one endpoint answers with 429 or 503 and Retry-After goes to a second endpoint. A body is sent again
    /// if at most 64 KiB of it were sent. To drop the future or the response body cancels the request at the cluster; a
    /// short one over HTTP/2 only if its answer does not end soon ([`ClientTuning::given_up_patience`]), and until then
    /// it occupies the permit of the context.
    ///
    /// # Errors
    /// [`ForwardError`] by the step that failed. An error status of the cluster is no error, except a 401 to the
    /// client's own credentials, and redirects.
    pub fn forward(
        &self,
        request: Request<Body>,
        context: impl Into<ForwardContext>,
    ) -> impl Future<Output = Result<Response<Body>, ForwardError>> + Send {
        self.forward_in_context(request, context.into())
    }

    async fn forward_in_context(
        &self,
        request: Request<Body>,
        mut context: ForwardContext,
    ) -> Result<Response<Body>, ForwardError> {
        // One user for the whole request, even if it is replaced meanwhile.
        let (member, user) = match &context.identity {
            RequestIdentity::Own(token) => {
                let member = self.without_credentials.as_ref().ok_or_else(|| self.no_tokens())?;
                (member, Arc::new(member.user.load().with_token(token)))
            }
            _ => (&self.member, self.member.user.load_full()),
        };
        let result = Self::forward_to(member, request, &mut context, user).await;
        result.inspect_err(|error| member.observer.failed(error))
    }

    async fn forward_to(
        member: &Arc<ClientInner>,
        mut request: Request<Body>,
        context: &mut ForwardContext,
        user: Arc<MemberUser>,
    ) -> Result<Response<Body>, ForwardError> {
        match forward::prepare(member, &mut request, context, &user)? {
            // Boxed, because a handshake needs much memory and most requests do not upgrade.
            Some(protocol) => Box::pin(upgrade::forward(member, request, protocol, context, &user)).await,
            None => forward::forward(member, request, context, user).await,
        }
    }

    fn no_tokens(&self) -> ForwardError {
        let message = "users' own tokens are not passed on to it".to_owned();
        ForwardError::Credentials { cluster: self.member.name.clone(), message }
    }

    /// Like [`forward`](Self::forward), for a question of this process, with any identity: it finds a connection
    /// although clients use all of theirs. Read its answer at once, as those of [`transport`](Self::transport).
    ///
    /// # Errors
    /// Those of [`forward`](Self::forward).
    pub async fn send_question(
        &self,
        request: Request<Body>,
        identity: RequestIdentity,
    ) -> Result<Response<Body>, ForwardError> {
        self.forward(request, ForwardContext::for_ourselves(identity)).await
    }

    /// Asks the member's `/readyz`, for at most 10 s.
    ///
    /// # Errors
    /// [`ForwardError`] where there is no answer.
    pub async fn health(&self) -> Result<Health, ForwardError> {
        let mut request = Request::new(body::empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = Uri::from_static("/readyz");
        let context = ForwardContext::for_ourselves(RequestIdentity::Member);
        let timed_out = || ForwardError::HeadTimeout { cluster: self.member.name.clone(), after: HEALTH_TIMEOUT };
        let deadline = Instant::now() + HEALTH_TIMEOUT;
        let response =
            tokio::time::timeout_at(deadline, self.forward(request, context)).await.map_err(|_| timed_out())??;
        let status = response.status();
        let limited = Limited::new(response.into_body(), HEALTH_DETAIL_LIMIT).collect();
        let detail = match tokio::time::timeout_at(deadline, limited).await {
            Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
            Ok(Err(_)) => String::new(),
            Err(_) => return Err(timed_out()),
        };
        Ok(Health { ready: status.is_success() || status == StatusCode::FORBIDDEN, status, detail })
    }

    /// State of the cluster by its own traffic. The channel changes with the state only; each change is logged once.
    pub fn reachability(&self) -> watch::Receiver<Reachability> {
        self.member.observer.subscribe()
    }

    /// Time since the cluster's last sign of life: an answer, or more bytes of one that this process reads. `None`
    /// before its first answer.
    pub fn since_last_answer(&self) -> Option<Duration> {
        self.member.observer.heard_at().map(|heard| heard.elapsed())
    }

    /// Asks each endpoint for `/readyz`, every 5 s, and every second while it is out of reach, while the future is
    /// polled. [`reachability`](Self::reachability) then shows silence within 9 s, and a recovery at once. Requests on
    /// connections to a silent endpoint break off. Cost: a small request on an open connection; one more, without
    /// credentials, on those for users' own tokens.
    pub async fn watch_over(&self) {
        let of_tokens = async {
            if let Some(member) = &self.without_credentials {
                probing::run(Arc::clone(member)).await;
            }
        };
        tokio::join!(probing::run(Arc::clone(&self.member)), of_tokens);
    }

    /// Current content of the pools of all endpoints.
    pub fn pool_statistics(&self) -> PoolStatistics {
        let endpoints = self.member.endpoints.all();
        let statistics = endpoints.iter().map(|endpoint| endpoint.pool.statistics());
        statistics.fold(PoolStatistics::default(), PoolStatistics::plus)
    }

    /// Numbers of repeated requests.
    pub fn retries(&self) -> RetryStatistics {
        self.member.retries.statistics()
    }

    /// Number of HTTP/2 connections made so far. While it is unchanged, the same servers answer.
    pub fn connections_made(&self) -> u64 {
        self.member.endpoints.connections_made()
    }

    /// Long-running requests of all clients (followed logs, and watches without connections of their own) that the
    /// connections to the cluster carry at once, as far as known: it depends on the cluster's version of HTTP.
    pub fn long_running_for_clients(&self) -> usize {
        self.for_clients(LaneKind::Opaque)
    }

    /// Like [`long_running_for_clients`](Self::long_running_for_clients), for watches; `None` if they share the places
    /// of other long-running requests, over HTTP/1.1.
    pub fn watches_for_clients(&self) -> Option<usize> {
        let have_their_own = self.member.endpoints.all().iter().all(|endpoint| !endpoint.pool.speaks_http1());
        have_their_own.then(|| self.for_clients(LaneKind::Watch))
    }

    /// Like [`long_running_for_clients`](Self::long_running_for_clients), for short requests; at most the limit of
    /// requests in flight ([`BreakerTuning`](crate::BreakerTuning)). Changes with the endpoints and their state.
    pub fn short_for_clients(&self) -> usize {
        let carried = self.for_clients(LaneKind::Short);
        self.member.endpoints.short_max().map_or(carried, |max| max.min(carried))
    }

    fn for_clients(&self, lane: LaneKind) -> usize {
        self.member.endpoints.all().iter().map(|endpoint| endpoint.pool.for_clients(lane)).sum()
    }

    /// The member's endpoints as they are now, in the order of the configuration.
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        self.member.endpoints.statuses()
    }

    /// Removed endpoints with open requests.
    pub fn leaving_endpoints(&self) -> Vec<EndpointStatus> {
        self.member.endpoints.leaving()
    }
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClient")
            .field("name", &self.member.name)
            .field("endpoints", &self.endpoints())
            .field("pool", &self.pool_statistics())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReachabilityState;

    /// Memory of a request until its answer begins, in bytes, without HTTP/2's part.
    const FUTURE_BYTES_MAX: usize = 6 << 10;

    #[tokio::test]
    async fn a_request_in_flight_is_small() {
        let name = ClusterName::new("a").unwrap();
        let config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        let client = ClusterClient::connect(name, config, ClientTuning::default()).await.unwrap();
        let bytes = size_of_val(&client.forward(Request::new(body::empty()), RequestIdentity::Member));
        assert!(bytes <= FUTURE_BYTES_MAX, "{bytes} bytes");
    }

    /// The cluster loses its last endpoint between two checks of the observing task.
    #[tokio::test]
    async fn loss_of_the_last_endpoint_is_noticed_however_short() {
        let name = ClusterName::new("a").unwrap();
        let address = |port: u16| -> Uri { format!("https://127.0.0.1:{port}").parse().unwrap() };
        let config = kube::Config::new(address(1));
        let further = [Address { url: address(2), proxy: None }];
        let client = ClusterClient::new(name, config, &further, ClientTuning::default(), None).await.unwrap();
        let known = client.reachability();
        let is_lost = || matches!(known.borrow().state, ReachabilityState::Unreachable { .. });
        let [one, two]: [_; 2] = client.member.endpoints.all().to_vec().try_into().ok().unwrap();
        let settled = || async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        two.note_answer();
        one.observer.unreachable("refused".to_owned());
        settled().await;
        assert!(!is_lost());
        one.note_answer();
        two.observer.unreachable("refused".to_owned());
        one.observer.unreachable("refused".to_owned());
        settled().await;
        assert!(is_lost(), "nothing is left");
        one.note_answer();
        settled().await;
        assert!(!is_lost());
    }

    /// If one endpoint is ready, the cluster is; the others come last.
    #[tokio::test(start_paused = true)]
    async fn a_member_is_as_ready_as_its_readiest_endpoint() {
        let name = ClusterName::new("a").unwrap();
        let address = |port: u16| -> Uri { format!("https://127.0.0.1:{port}").parse().unwrap() };
        let config = kube::Config::new(address(1));
        let further = [Address { url: address(2), proxy: None }];
        let client = ClusterClient::new(name, config, &further, ClientTuning::default(), None).await.unwrap();
        let endpoints = &client.member.endpoints;
        let all = endpoints.all();
        let say = |ready: [bool; 2]| {
            for (endpoint, ready) in all.iter().zip(ready) {
                endpoint.note_answer();
                endpoint.ready(ready);
                endpoints.note_ready(&client.member.observer);
            }
        };
        let unready = || client.reachability().borrow().unready_since;
        say([true, true]);
        let ready_at = tokio::time::Instant::now();
        for _ in 0..5 {
            tokio::time::advance(Duration::from_secs(5)).await;
            say([false, true]);
            assert_eq!(unready(), None);
        }
        let last = tokio::time::Instant::now();
        assert!(last > ready_at);
        for _ in 0..2 {
            say([false, false]);
            assert_eq!(unready(), None);
            tokio::time::advance(Duration::from_secs(5)).await;
        }
        say([false, false]);
        assert!(unready().is_some_and(|since| since.duration_since(last) < Duration::from_millis(1)));
        say([true, false]);
        assert_eq!(unready(), None);
    }
}
