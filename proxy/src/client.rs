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
use crate::places::{Asker, Places};
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
/// How much of a health check's answer is kept, in bytes.
const HEALTH_DETAIL_LIMIT: usize = 4096;

/// One member. Cheap to clone; all clones share connections, credentials and what is known of the member.
///
/// The last clone's drop closes idle connections; requests in flight and tunnels go on, until
/// [`ClientTuning::shutdown`].
#[derive(Clone)]
pub struct ClusterClient {
    member: Arc<ClientInner>,
    /// The same member without our credentials, where users' own tokens are passed on.
    without_credentials: Option<Arc<ClientInner>>,
}

/// The answer of a member's `/readyz`.
#[derive(Clone, Debug)]
pub struct Health {
    /// Whether the member says that it is ready. Also true where it forbids us to ask (403): it answers requests.
    pub ready: bool,
    /// The status of the answer.
    pub status: StatusCode,
    /// The first bytes of the answer: `ok`, or which checks fail.
    pub detail: String,
}

impl ClusterClient {
    /// Makes a client from a kubeconfig's cluster and user. Nothing is sent: the member need not be reachable, and
    /// credential plugins run with the first request.
    ///
    /// Without a certificate authority the system's roots are trusted, as kubectl does, else Mozilla's; certificates
    /// are unchecked only if the configuration says so. A plain `http://` server (kubectl proxy) is spoken to in
    /// HTTP/1.1. Reading files and keys happens off the runtime's workers.
    ///
    /// # Errors
    /// [`ConnectError`] for a configuration that cannot work.
    pub async fn connect(name: ClusterName, config: kube::Config, tuning: ClientTuning) -> Result<Self, ConnectError> {
        Self::new(name, config, &[], tuning, None).await
    }

    /// As [`connect`](Self::connect), to a member that can be reached at further addresses besides the configuration's:
    /// all of them lead to the same cluster, with the same credentials and authorities. The configuration's proxy is on
    /// the way to its own address only. Requests are spread over those that can be reached.
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

    /// Has users' own tokens passed on ([`RequestIdentity::Own`]), by connections of their own. Arguments as those that
    /// this client was made with; of the user nothing is used.
    ///
    /// # Errors
    /// [`ConnectError`] where the member is not reached over https, or its certificate goes unchecked.
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
        let mut member = Self::inner(name, config, further, tuning, (None, None)).await?;
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
        let member = Self::inner(name, config, further, tuning, (connector, Some(Arc::default()))).await?;
        Ok(Self { member: Arc::new(member), without_credentials: None })
    }

    async fn inner(
        name: ClusterName,
        config: kube::Config,
        further: &[Address],
        tuning: ClientTuning,
        (connector, known): (Option<Connector>, Option<Arc<KnownCluster>>),
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
        let waiting = Places::new(tuning.max_waiting_requests);
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
            waiting,
            upgrades: UpgradeLimiter::new(),
            connector,
            known,
        })
    }

    /// The member's name.
    pub fn name(&self) -> &ClusterName {
        &self.member.name
    }

    /// Takes over another user: other credentials, other `as` fields. Of the configuration nothing else counts.
    ///
    /// New requests are sent as the new user. Those in flight go on as the old one, and so do open streams, until they
    /// end by themselves. Connections are kept where they show the same client certificate;
    /// else new ones are opened for new requests.
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

    /// Takes over other addresses, the configuration's and further ones, which lead to the same cluster. Of the
    /// configuration nothing else may have changed but the user, who is taken over by [`set_user`](Self::set_user).
    ///
    /// An address that is there already keeps its connections and all that is known of it. One that is no longer there
    /// is sent nothing new; what is under way at it may end, for an hour at most, the longest that a kube-apiserver
    /// lets a watch last. Gives whether that could be done: not where none of the addresses stays, so that nothing
    /// shows that it is the same cluster, nor for a client that was made for one address alone.
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

    /// These of its endpoints are drained from now on, and no others, also of those that it is given later
    /// ([`set_addresses`](Self::set_addresses)).
    ///
    /// One that is drained is sent nothing new, is still asked whether it is well, and what is under way at it may end,
    /// for an hour at most. Where all are, requests fail as [`ForwardError::NoEndpoint`], and the member does not count
    /// as out of reach for that.
    pub fn set_drained(&self, drained: &EndpointSubset) {
        for member in std::iter::once(&self.member).chain(&self.without_credentials) {
            member.endpoints.set_drained(drained);
        }
    }

    /// Whether all of its endpoints are drained.
    pub fn is_drained(&self) -> bool {
        self.member.endpoints.all().iter().all(|endpoint| endpoint.is_drained())
    }

    /// Has each new connection ask for the uid of the namespace kube-system before it carries a request, and expects
    /// this uid; `None` expects the first that comes. A connection that leads to another cluster is closed, and
    /// requests for it fail as [`ForwardError::AnotherCluster`]. Connections that carry users' own tokens do not ask:
    /// the cluster judges those. Cost: one small request for each connection.
    pub fn expect_cluster(&self, uid: Option<ClusterUid>) {
        if let Some(known) = &self.member.known {
            known.expect(uid);
        }
    }

    /// The uid of the cluster; `None` until the cluster has told it, or where this process may not read it.
    pub fn cluster_uid(&self) -> Option<ClusterUid> {
        self.member.known.as_ref()?.uid()
    }

    /// Compares a uid that the member has told on a connection that is open.
    pub fn compare_cluster(&self, told: &ClusterUid) -> UidMatch {
        self.member.known.as_ref().map_or(UidMatch::Same, |known| known.compare(told))
    }

    /// The other cluster that answers at the member's addresses by now.
    pub fn successor(&self) -> Option<Successor> {
        self.member.known.as_ref()?.successor()
    }

    /// Whether a connection has told that it leads to the cluster that is expected.
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

    /// Closes all connections, with what is open on them: watches, logs, tunnels.
    pub fn break_off(&self) {
        for member in std::iter::once(&self.member).chain(&self.without_credentials) {
            member.endpoints.cut();
        }
    }

    /// How often the member has come to see other credentials of ours, renewed ones or another user's. What a member
    /// allows is known anew with the first request after that.
    pub fn renewals(&self) -> u64 {
        self.member.user.load().credentials.renewals()
    }

    /// What is wrong with the renewal of the credentials, for people and without secrets;
    /// those that there are may still be valid.
    pub fn credentials_problem(&self) -> Option<String> {
        self.member.user.load().credentials.problem()
    }

    /// A transport with the member's own credentials ([`RequestIdentity::Member`]), for discovery and cachers of whole
    /// collections: what is sent by it has connections of its own over HTTP/2, and a quarter of those over HTTP/1.1 at
    /// least. Its answers are to be read at once, since they share a connection's window. How long an answer may take
    /// is read from the request.
    pub fn transport(&self) -> Transport {
        self.transport_for(Asker::Ourselves, RequestIdentity::Member, None)
    }

    /// As [`transport`](Self::transport), for cachers of single namespaces, of which there may be any number because
    /// clients ask for them: they have connections of their own as well, and leave as many over HTTP/1.1 to clients and
    /// to whole collections.
    pub fn transport_for_namespaces(&self) -> Transport {
        self.transport_for(Asker::Namespaces, RequestIdentity::Member, None)
    }

    /// As [`transport`](Self::transport), to the endpoint of this place in the configuration, whatever is known of it:
    /// for what each server behind one cluster may answer otherwise.
    pub fn transport_to(&self, endpoint: usize) -> Transport {
        self.transport_for(Asker::Ourselves, RequestIdentity::Member, Some(endpoint))
    }

    /// Whether one of its servers' addresses has a path: something stands before the cluster then, and may judge
    /// requests by itself.
    pub fn has_base_path(&self) -> bool {
        self.member.endpoints.all().iter().any(|endpoint| endpoint.target.has_base_path())
    }

    /// Which servers its addresses lead to, as far as that is shown by now.
    pub fn proofs(&self) -> &ServerProofs {
        &self.member.proofs
    }

    /// As [`transport_to`](Self::transport_to), as [nobody of a name](RequestIdentity::Nameless).
    pub fn nameless_to(&self, endpoint: usize) -> Transport {
        self.transport_for(Asker::Ourselves, RequestIdentity::Nameless, Some(endpoint))
    }

    /// A transport by which we ask in this name: one of these endpoints by its place, or any.
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
    /// The request's URI counts with its path and query only. See [`crate::headers::prepare_request`] for what
    /// is removed from its headers; the context says in whose name it is sent. Bodies are streamed, never held. An identity alone is
    /// a context, too.
    ///
    /// Upgrades need the [`ClientUpgrade`](crate::ClientUpgrade) of the context, which hyper's HTTP/1.1 server makes; on
    /// a 101 the returned response has to be sent to the client, after which a task in [`ClientTuning::tunnels`] copies
    /// bytes both ways. Any other answer to an upgrade is an ordinary response; of those one user may have 64 at once,
    /// and four a second, except for what a kube-apiserver switches itself (exec, attach, port-forward and `proxy`).
    ///
    /// A request that the member has certainly not processed is sent again, and so is a GET or HEAD without a body
    /// whose connection broke, at most twice, and within a fifth of the requests of the last 10 s. A GET or HEAD that
    /// does not last and that one endpoint answers 429 or 503 with Retry-After is asked of another, if there is one. Of
    /// a body 64 KiB may have been sent before; one of which more was is not sent again. Dropping the future or the
    /// response body cancels the request at the member; a short one that is over HTTP/2 only where its answer does not
    /// end soon ([`ClientTuning::given_up_patience`]), and until then it occupies the
    /// permit of the context.
    ///
    /// # Errors
    /// [`ForwardError`] by the step that failed; an error status of the member is no error, except a 401 to our own
    /// credentials and redirects.
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
        // One user for the whole request, whoever takes its place meanwhile.
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
            // It dials, with all that a handshake holds: what most requests do shall decide how much each one takes.
            Some(protocol) => Box::pin(upgrade::forward(member, request, protocol, context, &user)).await,
            None => forward::forward(member, request, context, user).await,
        }
    }

    fn no_tokens(&self) -> ForwardError {
        let message = "users' own tokens are not passed on to it".to_owned();
        ForwardError::Credentials { cluster: self.member.name.clone(), message }
    }

    /// As [`forward`](Self::forward), for a question that this process has of its own, in whoever's name it is put: it
    /// finds a connection though clients have taken all that they may. Its answer is to be read at once, as those of
    /// [`transport`](Self::transport) are.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
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

    /// What the member's own traffic says about it. The channel changes with the state only, and the state's changes
    /// are logged once each.
    pub fn reachability(&self) -> watch::Receiver<Reachability> {
        self.member.observer.subscribe()
    }

    /// The time since the member last said anything: an answer, or more of one that this process reads for itself.
    /// `None` before its first answer.
    pub fn since_last_answer(&self) -> Option<Duration> {
        self.member.observer.heard_at().map(|heard| heard.elapsed())
    }

    /// Asks `/readyz` of each endpoint, every 5 s and every second while it is out of reach, for as long as the future
    /// is polled: [`reachability`](Self::reachability) tells of silence within 9 s then, and of the return at once.
    /// What waits on a connection to an endpoint that is found silent breaks off. Cost: a small request on a connection
    /// that is open; one more, without credentials, on those for users' own tokens.
    pub async fn watch_over(&self) {
        let of_tokens = async {
            if let Some(member) = &self.without_credentials {
                probing::run(Arc::clone(member)).await;
            }
        };
        tokio::join!(probing::run(Arc::clone(&self.member)), of_tokens);
    }

    /// What the pools of all endpoints hold now.
    pub fn pool_statistics(&self) -> PoolStatistics {
        let endpoints = self.member.endpoints.all();
        let statistics = endpoints.iter().map(|endpoint| endpoint.pool.statistics());
        statistics.fold(PoolStatistics::default(), PoolStatistics::plus)
    }

    /// How many requests were sent again.
    pub fn retries(&self) -> RetryStatistics {
        self.member.retries.statistics()
    }

    /// How many HTTP/2 connections to the member were made so far. As long as it is the same, whoever answers is who
    /// answered before.
    pub fn connections_made(&self) -> u64 {
        self.member.endpoints.connections_made()
    }

    /// How many long-running requests (logs that are followed, and watches where those have no connections of their
    /// own) of all clients together the connections to the member carry at once, as far as is known: it depends on the
    /// version of HTTP that the member speaks.
    pub fn long_running_for_clients(&self) -> usize {
        self.for_clients(LaneKind::Opaque)
    }

    /// As [`long_running_for_clients`](Self::long_running_for_clients), of watches; `None` where they take of the
    /// places of what else lasts, over HTTP/1.1.
    pub fn watches_for_clients(&self) -> Option<usize> {
        let have_their_own = self.member.endpoints.all().iter().all(|endpoint| !endpoint.pool.speaks_http1());
        have_their_own.then(|| self.for_clients(LaneKind::Watch))
    }

    /// As [`long_running_for_clients`](Self::long_running_for_clients), of requests that do not last; no more than may
    /// be in flight ([`BreakerTuning`](crate::BreakerTuning)). It changes with the endpoints, and with what is known of
    /// them.
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

    /// Those that are no longer the member's, and at which something is still under way.
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

    /// What a request takes until its answer begins, in bytes, beside what HTTP/2 holds of it.
    const FUTURE_BYTES_MAX: usize = 6 << 10;

    #[tokio::test]
    async fn a_request_in_flight_is_small() {
        let name = ClusterName::new("a").unwrap();
        let config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        let client = ClusterClient::connect(name, config, ClientTuning::default()).await.unwrap();
        let bytes = size_of_val(&client.forward(Request::new(body::empty()), RequestIdentity::Member));
        assert!(bytes <= FUTURE_BYTES_MAX, "{bytes} bytes");
    }

    /// A loses its last endpoint between two looks of the task that tells of it.
    #[tokio::test]
    async fn that_no_endpoint_is_left_is_known_however_fast_they_change() {
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

    /// Where one endpoint says that it is ready, the member is; the others come last.
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
