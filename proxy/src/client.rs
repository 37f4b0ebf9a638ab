//! The client of one member cluster: [`ClusterClient`].

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::body::{self, Body, BoxError};
use tributary_apimachinery::{ClusterName, RequestInfo};

use crate::cluster_uid::{ClusterChanges, ClusterUid, KnownCluster, Successor, UidMatch};
use crate::credentials::exec_plugin::bearer;
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
use crate::permit_pool::RequestOrigin;
use crate::pool::dial::Connector;
use crate::pool::server_identities::ServerIdentities;
use crate::pool::{PoolStatistics, StreamClass};
use crate::probing;
use crate::retry_budget::{RetryBudget, RetryStatistics};
use crate::target::{Address, targets, without_user_info};
use crate::tuning::ClientTuning;
use crate::upgrade;

/// A transport to one member. Of a request's URI, only path and query are used. Errors are [`ForwardError`]s.
pub type Transport = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;

/// Time limit of a health check. A kube-apiserver that needs longer for `/readyz` is not healthy.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
const HEALTH_DETAIL_LIMIT: usize = 4096;

/// Client of one cluster. Cheap to clone; all clones share connections, credentials and the state of the cluster.
///
/// Dropping the last clone closes idle connections. Requests in flight and tunnels continue until
/// [`ClientTuning::shutdown`] is cancelled.
#[derive(Clone)]
pub struct ClusterClient {
    member: Arc<ClientInner>,
    /// A second client for requests with users' own tokens. It has separate connections, and sends no credentials of
    /// Tributary.
    without_credentials: Option<Arc<ClientInner>>,
}

/// Result of a readiness request to a member (`/readyz`).
#[derive(Clone, Debug)]
pub struct Health {
    /// Whether the cluster reports that it is ready. Also true for status 403: the cluster is alive and only forbids
    /// the request.
    pub ready: bool,
    /// Status code of the response.
    pub status: StatusCode,
    /// First bytes of the response body: `ok`, or the names of the failing checks.
    pub detail: String,
}

impl ClusterClient {
    /// Creates a client from a kubeconfig's cluster and user. Sends nothing, so the cluster may be unreachable. A
    /// credential plugin first runs with the first request.
    ///
    /// Without a certificate authority, the client trusts the system's root certificates as kubectl does. If the system
    /// has no root certificates, the client trusts Mozilla's. The client skips certificate checks only if the
    /// configuration disables them. The client uses HTTP/1.1 for an `http://` server (kubectl proxy). Files and keys
    /// are read outside of the runtime's worker threads.
    ///
    /// # Errors
    /// [`ConnectError`] for an invalid configuration.
    pub async fn connect(name: ClusterName, config: kube::Config, tuning: ClientTuning) -> Result<Self, ConnectError> {
        Self::new(name, config, &[], tuning, None).await
    }

    /// Like [`connect`](Self::connect), for a cluster with several addresses. All addresses lead to the same cluster,
    /// with the same credentials and certificate authorities. The configuration's proxy is used only for the
    /// configuration's own address. Requests are spread over the reachable addresses.
    ///
    /// # Errors
    /// [`ConnectError`] for an invalid configuration.
    pub async fn connect_to_all(
        name: ClusterName,
        config: kube::Config,
        further: &[Address],
        tuning: ClientTuning,
    ) -> Result<Self, ConnectError> {
        Self::new(name, config, further, tuning, None).await
    }

    /// Like [`connect`](Self::connect), over the caller's byte streams instead of TCP, for a member in this process.
    ///
    /// The client uses HTTP/2 without negotiation for an `http://` server, except for upgrades.
    ///
    /// # Errors
    /// [`ConnectError`] for an invalid configuration.
    pub async fn connect_through(
        connector: Connector,
        name: ClusterName,
        config: kube::Config,
        tuning: ClientTuning,
    ) -> Result<Self, ConnectError> {
        Self::new(name, config, &[], tuning, Some(connector)).await
    }

    /// Like [`connect_through`](Self::connect_through), for a member with several addresses.
    ///
    /// # Errors
    /// [`ConnectError`] for an invalid configuration.
    pub async fn connect_to_all_through(
        connector: Connector,
        name: ClusterName,
        config: kube::Config,
        further: &[Address],
        tuning: ClientTuning,
    ) -> Result<Self, ConnectError> {
        Self::new(name, config, further, tuning, Some(connector)).await
    }

    /// Enables requests with users' own tokens ([`RequestIdentity::UserToken`]), on separate connections. Pass the same
    /// arguments as for the creation of this client. The configuration's user is ignored.
    ///
    /// # Errors
    /// [`ConnectError`] for a cluster without https, or with an unchecked certificate.
    pub async fn enable_user_tokens(
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

    /// Returns whether this `ClusterClient` forwards users' own tokens.
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
        // If several crypto providers are compiled in and none is set for the process, rustls panics on first use.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let extra_headers = HeaderMap::from_iter(config.headers.iter().cloned());
        let user = MemberUser::new(&name, &config, &tuning.credentials(), None).await?;
        let certificate = user.credentials.configured_certificate().clone();
        let user: CurrentUser = Arc::new(ArcSwap::from_pointee(user));
        let observer = Arc::new(Observer::new(name.clone(), tuning.breaker.clone()));
        let targets = targets(&name, &config, further)?;
        let server_identities = Arc::new(ServerIdentities::new(&targets));
        let maker = EndpointMaker {
            cluster: &name,
            config: &config,
            tuning: &tuning,
            certificate: &certificate,
            uid: known.as_ref().zip(Some(&user)),
            server_identities: &server_identities,
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
            impersonator: ArcSwapOption::empty(),
            observer,
            retries,
            server_identities,
            passes_tokens,
            upgrades: UpgradeLimiter::new(),
            connector,
            known,
        })
    }

    /// Returns the name of the cluster.
    pub fn name(&self) -> &ClusterName {
        &self.member.name
    }

    /// Replaces the configured user of the client: credentials and `as` fields. Ignores the other parts of the
    /// configuration.
    ///
    /// New requests use the new user. Requests in flight and open streams keep the previous user. Connections stay open
    /// if both users have the same client certificate.
    ///
    /// # Errors
    /// [`ConnectError`] for an invalid user. The previous user remains.
    pub async fn set_user(&self, config: &kube::Config) -> Result<(), ConnectError> {
        let (before, tuning) = (self.member.user.load_full(), self.member.tuning.credentials());
        let user = MemberUser::new(&self.member.name, config, &tuning, Some(&before)).await?;
        for endpoint in self.member.endpoints.all().iter() {
            endpoint.pool.check(user.credentials.configured_certificate()).await?;
        }
        self.member.user.store(Arc::new(user));
        before.credentials.count_renewal();
        Ok(())
    }

    /// Returns whether the member has an impersonator.
    pub fn has_impersonator(&self) -> bool {
        self.member.impersonator.load().is_some()
    }

    /// Sets the bearer token of the member's impersonator, for requests with [`RequestIdentity::ByImpersonator`]. Such
    /// requests share the connections of the client, so the configured user must have no client certificate: a
    /// kube-apiserver prefers the certificate of the connection to the token.
    ///
    /// # Errors
    /// [`ConnectError::Credentials`] for a token that is no header value, and for a user with a client certificate. The
    /// previous token remains.
    pub fn set_impersonator(&self, token: Option<&str>) -> Result<(), ConnectError> {
        let error = |message: &str| ConnectError::Credentials {
            cluster: self.member.name.clone(),
            message: message.to_owned(),
        };
        let authorization = match token {
            None => None,
            Some(_) if self.member.user.load().credentials.configured_certificate().is_present() => {
                return Err(error("a client certificate and the token of an impersonator exclude each other"));
            }
            Some(token) => Some(bearer(token).ok_or_else(|| error("the impersonator's token is no header value"))?),
        };
        self.member.impersonator.store(authorization.map(Arc::new));
        Ok(())
    }

    /// Replaces the addresses of the cluster. Apart from addresses, only the user of the configuration may have changed
    /// ([`set_user`](Self::set_user)).
    ///
    /// An address that is also in the new list keeps its connections and state. A removed address gets no new requests.
    /// Its requests in flight have an hour to end, because no kube-apiserver lets a watch last longer.
    ///
    /// Returns false without a change if no previous address is in the new list, because the new addresses could belong
    /// to another cluster. Also returns false for a client that was created with a single address.
    ///
    /// # Errors
    /// [`ConnectError`] for an invalid address. The previous addresses remain.
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

    /// Sets the drained endpoints. The set also applies to addresses of later calls of
    /// [`set_addresses`](Self::set_addresses).
    ///
    /// A drained endpoint gets probes but no new requests. Its requests in flight have an hour to end. If all endpoints
    /// are drained, requests fail with [`ForwardError::NoEndpoint`], but the cluster is not reported as unreachable.
    pub fn set_drained(&self, drained: &EndpointSubset) {
        for member in std::iter::once(&self.member).chain(&self.without_credentials) {
            member.endpoints.set_drained(drained);
        }
    }

    /// Returns whether all endpoints of the cluster are drained.
    pub fn is_drained(&self) -> bool {
        self.member.endpoints.all().iter().all(|endpoint| endpoint.is_drained())
    }

    /// Enables the check of the cluster's uid: each new connection first reads the uid of the namespace kube-system.
    /// With `None`, the first uid that the cluster reports becomes the expected uid.
    ///
    /// A connection with another uid is closed, and its requests fail with [`ForwardError::AnotherCluster`].
    /// Connections for users' own tokens do not read the uid, because the cluster checks the tokens. Cost: one small
    /// request per connection.
    pub fn expect_cluster(&self, uid: Option<ClusterUid>) {
        if let Some(known) = &self.member.known {
            known.expect(uid);
        }
    }

    /// Returns the uid of the cluster. `None` until the cluster has reported the uid, or if the configured user has no
    /// right to read the namespace kube-system.
    pub fn cluster_uid(&self) -> Option<ClusterUid> {
        self.member.known.as_ref()?.uid()
    }

    /// Compares the expected uid with a uid that the cluster reported on an open connection. If no uid is expected yet,
    /// the reported uid becomes the expected uid.
    pub fn compare_cluster(&self, reported: &ClusterUid) -> UidMatch {
        self.member.known.as_ref().map_or(UidMatch::Same, |known| known.compare(reported))
    }

    /// Returns the cluster that has replaced the expected cluster at the member's addresses.
    pub fn successor(&self) -> Option<Successor> {
        self.member.known.as_ref()?.successor()
    }

    /// Returns whether a connection has reported the expected uid.
    pub fn is_cluster_confirmed(&self) -> bool {
        self.member.known.as_ref().is_some_and(|known| known.is_confirmed())
    }

    /// Refuses each new connection, and each request that needs a new connection, until the next
    /// [`expect_cluster`](Self::expect_cluster). Called before the member's name starts to refer to another cluster.
    pub fn close_cluster(&self) {
        if let Some(known) = &self.member.known {
            known.close();
        }
    }

    /// Returns a receiver of notifications that another cluster answers at the member's addresses.
    pub fn cluster_changes(&self) -> Option<ClusterChanges> {
        self.member.known.as_ref().map(|known| known.changes())
    }

    /// Closes all connections with their streams: watches, logs and tunnels.
    pub fn close_connections(&self) {
        for member in std::iter::once(&self.member).chain(&self.without_credentials) {
            member.endpoints.cut();
        }
    }

    /// Returns how often the credentials have changed, by renewal or by a new user. After a change, the cluster may
    /// allow different requests.
    pub fn renewals(&self) -> u64 {
        self.member.user.load().credentials.renewals()
    }

    /// Returns a message about the last run of the credential plugin, if the run failed. The message contains no
    /// secrets. The current credentials may still be valid. `None` for a user without a plugin.
    pub fn credentials_problem(&self) -> Option<String> {
        self.member.user.load().credentials.problem()
    }

    /// Returns a transport with the client's own credentials ([`RequestIdentity::Member`]), for discovery and for
    /// cachers of whole collections.
    ///
    /// Over HTTP/2, the transport uses separate connections. Over HTTP/1.1, at least a quarter of the connections is
    /// reserved for it. The caller must read responses without delay, because all responses of a connection share its
    /// flow-control window. The class of the request determines the time limit.
    pub fn transport(&self) -> Transport {
        self.transport_for(RequestOrigin::Ourselves, RequestIdentity::Member, None)
    }

    /// Like [`transport`](Self::transport), for cachers of single namespaces. Clients can cause any number of such
    /// cachers, so they cannot take the connections of other requests: they have separate connections over HTTP/2, and
    /// a separate quarter of the connections over HTTP/1.1.
    pub fn transport_for_namespaces(&self) -> Transport {
        self.transport_for(RequestOrigin::Namespaces, RequestIdentity::Member, None)
    }

    /// Like [`transport`](Self::transport), but all requests go to the endpoint with this index in the configuration,
    /// whatever its state. Used to read facts that differ between the servers of a cluster.
    pub fn transport_to(&self, endpoint: usize) -> Transport {
        self.transport_for(RequestOrigin::Ourselves, RequestIdentity::Member, Some(endpoint))
    }

    /// Returns whether a server URL has a path. A path suggests a gateway in front of the cluster, which may apply its
    /// own authorization.
    pub fn has_base_path(&self) -> bool {
        self.member.endpoints.all().iter().any(|endpoint| endpoint.target.has_base_path())
    }

    /// Returns evidence about the servers behind the addresses: the addresses themselves, and the certificates from TLS
    /// handshakes in which the certificate was checked. The evidence shows whether two members share a server.
    pub fn server_identities(&self) -> &ServerIdentities {
        &self.member.server_identities
    }

    /// Like [`transport_to`](Self::transport_to), with the identity [`RequestIdentity::UidOnly`]: the requests name a
    /// uid and no user.
    pub fn transport_with_uid_only(&self, endpoint: usize) -> Transport {
        self.transport_for(RequestOrigin::Ourselves, RequestIdentity::UidOnly, Some(endpoint))
    }

    fn transport_for(&self, origin: RequestOrigin, identity: RequestIdentity, endpoint: Option<usize>) -> Transport {
        let client = self.clone();
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let (client, identity, uri) = (client.clone(), identity.clone(), request.uri());
            let info = RequestInfo::parse(request.method().as_str(), uri.path(), uri.query());
            let class = info.map(|info| info.class()).unwrap_or_default();
            let context = ForwardContext { identity, class, origin, endpoint, ..ForwardContext::default() };
            async move { client.forward(request, context).await.map_err(BoxError::from) }
        }))
    }

    /// Sends a request and streams the response.
    ///
    /// Of the URI, only path and query are used. [`crate::headers::prepare_request`] lists the removed headers. The
    /// context contains the identity at the cluster and the request class. The request class determines the time limit.
    /// Bodies are streamed.
    ///
    /// An upgrade needs the [`ClientUpgrade`](crate::ClientUpgrade) of the context, which hyper's HTTP/1.1 server
    /// provides. After a 101, send the returned response to the client. A task in [`ClientTuning::tunnels`] then copies
    /// bytes in both directions. Upgrade requests that end without a 101 are limited: a user has 64 tokens for them,
    /// and gets four more per second. kube-apiserver's own upgrades (exec, attach, port-forward and `proxy`) need no
    /// token.
    ///
    /// A request that the cluster has certainly not processed is retried. A GET or HEAD without a body is also retried
    /// after a broken connection. Limits: two retries per request, and retries for one fifth of the requests of the
    /// last 10 s. If an endpoint answers a watch, or a short GET or HEAD, with 429 or 503 and Retry-After, the request
    /// goes to a second endpoint. A request with a body is retried if at most 64 KiB of the body were sent.
    ///
    /// Cancellation: dropping the future or the response body cancels the request at the cluster. Over HTTP/2, a
    /// request that is not long-running is cancelled only if its response does not end within
    /// [`ClientTuning::abandoned_read_time`]. Until then the request occupies the permit of the context.
    ///
    /// # Errors
    /// [`ForwardError`], by the failed step. An error status of the cluster is not an error, except redirects, and a
    /// 401 to the client's own credentials.
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
        // `user` is loaded once. The request keeps this user to its end, even if the client gets a new user meanwhile.
        let member = match &context.identity {
            RequestIdentity::UserToken { .. } => self.without_credentials.as_ref().ok_or_else(|| self.no_tokens())?,
            _ => &self.member,
        };
        let user = member.user_for(&context.identity);
        let result = Self::forward_to(member, request, &mut context, user).await;
        result.inspect_err(|error| member.observer.record_failure(error))
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
        let message = "users' own tokens are not forwarded to this cluster".to_owned();
        ForwardError::Credentials { cluster: self.member.name.clone(), message }
    }

    /// Like [`forward`](Self::forward), for a request by Tributary itself, with any identity. Such a request gets a
    /// connection even if clients' requests use all their connections. The caller must read the response without delay,
    /// because all responses of a connection share its flow-control window.
    ///
    /// # Errors
    /// The errors of [`forward`](Self::forward).
    pub async fn send_own_request(
        &self,
        request: Request<Body>,
        identity: RequestIdentity,
    ) -> Result<Response<Body>, ForwardError> {
        self.forward(request, ForwardContext::for_own_request(identity)).await
    }

    /// Requests the member's `/readyz`, with a time limit of 10 s.
    ///
    /// # Errors
    /// [`ForwardError`] if no response arrives.
    pub async fn health(&self) -> Result<Health, ForwardError> {
        let mut request = Request::new(body::empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = Uri::from_static("/readyz");
        let context = ForwardContext::for_own_request(RequestIdentity::Member);
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

    /// Returns a channel with the reachability of the cluster, as requests and probes show it. The channel's value
    /// changes only when the state changes. Each change is logged once.
    pub fn reachability(&self) -> watch::Receiver<Reachability> {
        self.member.observer.subscribe()
    }

    /// Returns the time since the cluster last sent a response head or bytes of a body. `None` before the first
    /// response.
    pub fn since_last_answer(&self) -> Option<Duration> {
        self.member.observer.last_data_at().map(|last_data_at| last_data_at.elapsed())
    }

    /// Probes `/readyz` of each endpoint every 5 s, and every second while the endpoint is unreachable. The probes run
    /// as long as the future is polled.
    ///
    /// [`reachability`](Self::reachability) then shows a silent endpoint within 9 s, and a recovery at once. Requests
    /// on connections to a silent endpoint fail. Cost: a small request on an open connection. Connections for users'
    /// own tokens get an additional probe without credentials.
    pub async fn watch_over(&self) {
        let of_tokens = async {
            if let Some(member) = &self.without_credentials {
                probing::run(Arc::clone(member)).await;
            }
        };
        tokio::join!(probing::run(Arc::clone(&self.member)), of_tokens);
    }

    /// Returns statistics of the connection pools of all endpoints.
    pub fn pool_statistics(&self) -> PoolStatistics {
        let endpoints = self.member.endpoints.all();
        let statistics = endpoints.iter().map(|endpoint| endpoint.pool.statistics());
        statistics.fold(PoolStatistics::default(), PoolStatistics::plus)
    }

    /// Returns how many requests were retried, and how many were not retried because the budget was spent.
    pub fn retries(&self) -> RetryStatistics {
        self.member.retries.statistics()
    }

    /// Returns the number of HTTP/2 connections that were opened so far. As long as the number is unchanged, the same
    /// servers answer.
    pub fn connections_made(&self) -> u64 {
        self.member.endpoints.connections_made()
    }

    /// Returns how many long-running requests of clients fit on the connections to the cluster at once: followed logs,
    /// and watches without separate connections. The number is an estimate, which depends on the cluster's HTTP
    /// version.
    pub fn long_running_for_clients(&self) -> usize {
        self.for_clients(StreamClass::Streamed)
    }

    /// Like [`long_running_for_clients`](Self::long_running_for_clients), for watches. `None` over HTTP/1.1, where
    /// watches share the connections of other long-running requests.
    pub fn watches_for_clients(&self) -> Option<usize> {
        let have_their_own = self.member.endpoints.all().iter().all(|endpoint| !endpoint.pool.speaks_http1());
        have_their_own.then(|| self.for_clients(StreamClass::Watch))
    }

    /// Like [`long_running_for_clients`](Self::long_running_for_clients), for requests that are not long-running. The
    /// result is at most the limit of requests in flight ([`BreakerTuning`](crate::BreakerTuning)). The result changes
    /// with the endpoints and their state.
    pub fn short_for_clients(&self) -> usize {
        let carried = self.for_clients(StreamClass::Short);
        self.member.endpoints.short_max().map_or(carried, |max| max.min(carried))
    }

    fn for_clients(&self, stream_class: StreamClass) -> usize {
        self.member.endpoints.all().iter().map(|endpoint| endpoint.pool.for_clients(stream_class)).sum()
    }

    /// Returns the current status of the member's endpoints, in the order of the configuration.
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        self.member.endpoints.statuses()
    }

    /// Returns the status of removed endpoints that still have requests in flight.
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

    /// Maximal memory of a request before its response, in bytes, without the memory of the HTTP/2 library.
    const FUTURE_BYTES_MAX: usize = 6 << 10;

    #[tokio::test]
    async fn future_of_a_forwarded_request_takes_at_most_6_kib() {
        let name = ClusterName::new("a").unwrap();
        let config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        let client = ClusterClient::connect(name, config, ClientTuning::default()).await.unwrap();
        let bytes = size_of_val(&client.forward(Request::new(body::empty()), RequestIdentity::Member));
        assert!(bytes <= FUTURE_BYTES_MAX, "{bytes} bytes");
    }

    #[tokio::test]
    async fn short_loss_of_all_endpoints_between_two_checks_is_reported() {
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
        two.record_response();
        one.observer.unreachable("refused".to_owned());
        settled().await;
        assert!(!is_lost());
        one.record_response();
        two.observer.unreachable("refused".to_owned());
        one.observer.unreachable("refused".to_owned());
        settled().await;
        assert!(is_lost(), "nothing is left");
        one.record_response();
        settled().await;
        assert!(!is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn member_is_ready_if_one_endpoint_is_ready() {
        let name = ClusterName::new("a").unwrap();
        let address = |port: u16| -> Uri { format!("https://127.0.0.1:{port}").parse().unwrap() };
        let config = kube::Config::new(address(1));
        let further = [Address { url: address(2), proxy: None }];
        let client = ClusterClient::new(name, config, &further, ClientTuning::default(), None).await.unwrap();
        let endpoints = &client.member.endpoints;
        let all = endpoints.all();
        let say = |ready: [bool; 2]| {
            for (endpoint, ready) in all.iter().zip(ready) {
                endpoint.record_response();
                endpoint.ready(ready);
                endpoints.record_readiness(&client.member.observer);
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
