//! Opens one connection to a member: TCP, directly or through a proxy, then TLS, then HTTP.

use std::io;
use std::sync::Arc;
use std::task::Poll;

use base64::Engine as _;
use http::{HeaderMap, HeaderValue, Uri};
use hyper::client::conn::{http1, http2};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{Duration, Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tower::util::{BoxCloneSyncService, MapErr};
use tower::{Service, ServiceExt};
use tributary_apimachinery::body::{Body, BoxError};
use tributary_apimachinery::{ClusterName, without_brackets};

use crate::credentials::CurrentCredentials;
use crate::credentials::certificate::Certificate;
use crate::dial_policy::{DialPolicy, RefusedAddress};
use crate::error::{ConnectError, ForwardError, SharedError};
use crate::exhaustion::{Exhaustion, try_socket};
use crate::failure_class::FailureClass;
use crate::pool::byte_stream::{BoxIo, ByteStreams};
use crate::pool::connection_task::{ConnectionTask, Starter};
use crate::pool::guarded::{CheckedResolver, CheckedTarget, Guarded};
use crate::pool::read_ahead::ReadAhead;
use crate::pool::server_identities::ServerIdentities;
use crate::pool::tls::{self, Protocols, TlsSource};
use crate::pool::watch_connection::{self, Setup, WatchConnection, WatchSender};
use crate::target::ServerUrl;
use crate::tuning::{ClientTuning, Windows};

/// Idle time before the first TCP keep-alive probe: 15 s without data. Three probes follow, 10 s apart. HTTP/2
/// connections send pings, but only TCP keep-alive detects a silent peer of an upgraded or HTTP/1.1 connection.
const TCP_KEEP_ALIVE_TIME: Duration = Duration::from_secs(15);
const TCP_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const TCP_KEEP_ALIVE_RETRIES: u32 = 3;

/// Maximal number of response headers of an HTTP/1.1 member. hyper's default of 100 is too small for a list with many
/// Warnings.
const MAX_HTTP1_HEADERS: usize = 512;

/// Longest frame that a cluster may send, in bytes. 64 KiB, one read of the socket. With HTTP/2's default of 16 KiB, a
/// long response would have four times as many frames.
const MAX_FRAME_BYTES: u32 = 64 << 10;

/// Interval at which the dialer checks whether the cluster's SETTINGS frame has arrived, because hyper does not report
/// the frame.
const SETTINGS_TICK: Duration = Duration::from_millis(1);

/// Default port of a SOCKS proxy (RFC 1928).
const SOCKS_PORT: u16 = 1080;

/// Opens byte streams to a URI's host and port.
pub type Connector = BoxCloneSyncService<Uri, BoxIo, BoxError>;

pub(crate) type Http1Connection = http1::Connection<TokioIo<BoxIo>, Body>;
pub(crate) type Http2Connection = ConnectionTask<http2::Connection<TokioIo<BoxIo>, Body, Starter>>;
pub(crate) type WatchesConnection = ConnectionTask<WatchConnection>;

/// An HTTP/2 connection. hyper's connections and this crate's watch connections implement this trait.
pub(crate) trait Streams: Future<Output = Result<(), Self::Error>> + Unpin {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Returns the number of streams that the cluster allows; 0 before its SETTINGS frame.
    fn max_send_streams(&self) -> usize;

    /// Returns whether the connection ended because a ping timed out.
    fn is_silence(error: &Self::Error) -> bool;
}

impl Streams for http2::Connection<TokioIo<BoxIo>, Body, Starter> {
    type Error = hyper::Error;

    fn max_send_streams(&self) -> usize {
        self.current_max_send_streams()
    }

    fn is_silence(error: &hyper::Error) -> bool {
        error.is_timeout()
    }
}

impl Streams for WatchConnection {
    type Error = watch_connection::ConnectionError;

    fn max_send_streams(&self) -> usize {
        self.max_send_streams()
    }

    fn is_silence(error: &Self::Error) -> bool {
        matches!(error, watch_connection::ConnectionError::Silent)
    }
}

/// Purpose of an HTTP/2 connection. The purpose determines the flow-control windows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Http2Use {
    Any(Windows),
    /// A connection for clients' watches only.
    Watches(Windows),
}

/// A connection after the HTTP handshake. The caller must poll the second field to drive the connection.
pub(crate) enum Dialed {
    Http1(http1::SendRequest<Body>, Box<Http1Connection>),
    Http2(http2::SendRequest<Body>, Box<Http2Connection>),
    Watches(WatchSender, Box<WatchesConnection>),
}

pub(crate) struct Dialer {
    cluster: ClusterName,
    target: Arc<ServerUrl>,
    /// Host to which the TCP connection is opened: the proxy's or the target's host, without the brackets of an IPv6
    /// address.
    first_hop: Box<str>,
    connector: Connector,
    tls: Option<Arc<TlsSource>>,
    /// Collects the servers' certificates from TLS handshakes in which the certificate was checked.
    server_identities: Arc<ServerIdentities>,
    /// Protocol for connections without TLS, because only TLS can negotiate the protocol.
    plain: Plain,
    timeout: Duration,
    max_header_list_size: u32,
    keep_alive_interval: Duration,
    keep_alive_timeout: Duration,
    byte_streams: ByteStreams,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    /// HTTP/1.1, for an `http://` server: kubectl proxy supports only HTTP/1.1.
    Http1,
    /// HTTP/2, over a connector of the caller.
    Http2,
}

pub(crate) struct Route<'a> {
    pub(crate) proxy: Option<&'a Uri>,
    /// Opens byte streams instead of TCP and the proxy. Without TLS, the server must accept HTTP/2 without negotiation.
    pub(crate) connector: Option<Connector>,
}

impl Dialer {
    /// Prepares connections. `tls` is `None` for plain HTTP. `server_identities` collects certificates of the member's
    /// servers.
    ///
    /// # Errors
    /// [`ConnectError::ProxyUrl`].
    pub(crate) fn new(
        cluster: ClusterName,
        target: Arc<ServerUrl>,
        route: Route<'_>,
        tuning: &ClientTuning,
        tls: Option<Arc<TlsSource>>,
        server_identities: Arc<ServerIdentities>,
    ) -> Result<Self, ConnectError> {
        let Route { proxy, connector: custom } = route;
        let is_custom = custom.is_some();
        let plain = if is_custom { Plain::Http2 } else { Plain::Http1 };
        let connector = match custom {
            Some(custom) => Ok(custom),
            None if proxy.is_some() && !target.is_https() => {
                Err("the server is http://, and the proxy would see credentials")
            }
            None => connector(proxy, &tuning.proxy_headers, tuning.dial_policy.clone()),
        };
        let via = proxy.filter(|_| !is_custom).and_then(Uri::host).map(without_brackets);
        let first_hop = via.unwrap_or(target.host()).into();
        let connector = connector.map_err(|problem| ConnectError::ProxyUrl { cluster: cluster.clone(), problem })?;
        Ok(Self {
            cluster,
            target,
            first_hop,
            connector,
            tls,
            server_identities,
            plain,
            timeout: tuning.connect_timeout,
            max_header_list_size: tuning.max_header_list_size,
            keep_alive_interval: tuning.keep_alive_interval,
            keep_alive_timeout: tuning.keep_alive_timeout,
            byte_streams: ByteStreams::default(),
        })
    }

    /// Checks the client certificate and the certificate authorities, without opening a connection.
    ///
    /// # Errors
    /// [`ConnectError::Tls`].
    pub(crate) async fn check(&self, certificate: &Certificate) -> Result<(), ConnectError> {
        let Some(tls) = &self.tls else { return Ok(()) };
        let checked = tls.check(certificate).await;
        checked.map_err(|source| ConnectError::Tls { cluster: self.cluster.clone(), source })
    }

    /// Opens a connection. [`ClientTuning::connect_timeout`] limits the duration of all steps together. `http2` is the
    /// purpose of the connection if the server chooses HTTP/2.
    ///
    /// # Errors
    /// The variants `Dial`, `AddressRefused`, `Exhausted`, `DialTimeout`, `Tls` and `Handshake` of `ForwardError`.
    /// `Credentials` or `CredentialsExhausted` for an unusable client certificate.
    pub(crate) async fn dial(
        &self,
        protocols: Protocols,
        http2: Http2Use,
        credentials: &CurrentCredentials,
    ) -> Result<Dialed, ForwardError> {
        let deadline = Instant::now() + self.timeout;
        let raw = self.connect(deadline).await?;
        let Some(tls) = &self.tls else {
            return match (self.plain, protocols) {
                (Plain::Http2, Protocols::Http2OrHttp1) => self.start_http2(raw, http2, deadline).await,
                _ => self.start_http1(raw, deadline).await,
            };
        };
        let config = tls.current(protocols, credentials).await;
        let config = config.map_err(|error| without_certificate(&self.cluster, &*error))?;
        let ahead: BoxIo = Box::new(ReadAhead::wrap(raw));
        let connect = TlsConnector::from(config).connect(tls.server_name(), ahead);
        let stream = match timeout_at(deadline, connect).await {
            Err(_) => return Err(self.timed_out("TLS handshake")),
            Ok(Err(error)) => {
                let (remedy, failure_class) = (tls::remedy(&error), tls::handshake_failure_class(&error));
                return Err(self.tls_failed(tls, Arc::new(error), remedy, failure_class));
            }
            Ok(Ok(stream)) => stream,
        };
        let (_, session) = stream.get_ref();
        if tls.checks_servers()
            && let Some([own, ..]) = session.peer_certificates()
        {
            self.server_identities.add_certificate(own);
        }
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        if is_http2 {
            self.start_http2(Box::new(stream), http2, deadline).await
        } else {
            self.start_http1(Box::new(stream), deadline).await
        }
    }

    async fn connect(&self, deadline: Instant) -> Result<BoxIo, ForwardError> {
        match timeout_at(deadline, self.connector.clone().oneshot(self.target.dial_uri())).await {
            Err(_) => Err(self.timed_out("TCP connection")),
            Ok(Err(error)) => Err(self.not_connected(error, deadline).await),
            Ok(Ok(stream)) => Ok(self.byte_streams.attach(stream)),
        }
    }

    /// Returns the error of a failed attempt to open a byte stream. Distinguishes a fault of the endpoint from a lack
    /// of resources on this machine.
    async fn not_connected(&self, error: BoxError, deadline: Instant) -> ForwardError {
        let (cluster, address) = (self.cluster.clone(), self.target.address.clone());
        if let Some(refused) = RefusedAddress::from_error(&*error) {
            return ForwardError::AddressRefused { cluster, address, refused: refused.clone() };
        }
        let exhaustion = Exhaustion::from_error(&*error, try_socket);
        let exhausted = match exhaustion {
            Some(exhaustion) => exhaustion.confirmed(&self.first_hop, deadline).await,
            None => None,
        };
        let source: SharedError = Arc::new(OneLine(error));
        match exhausted {
            Some(Exhaustion { what, remedy }) => ForwardError::Exhausted { cluster, address, what, source, remedy },
            None => ForwardError::Dial { cluster, address, source },
        }
    }

    pub(crate) fn cut(&self) {
        self.byte_streams.cut();
    }

    async fn start_http1(&self, stream: BoxIo, deadline: Instant) -> Result<Dialed, ForwardError> {
        let mut builder = http1::Builder::new();
        builder.max_headers(MAX_HTTP1_HEADERS);
        match timeout_at(deadline, builder.handshake(TokioIo::new(stream))).await {
            Err(_) => Err(self.timed_out("HTTP handshake")),
            Ok(Err(error)) => Err(self.handshake_failed(error)),
            Ok(Ok((sender, connection))) => Ok(Dialed::Http1(sender, Box::new(connection))),
        }
    }

    async fn start_http2(&self, stream: BoxIo, http2: Http2Use, deadline: Instant) -> Result<Dialed, ForwardError> {
        let started = match http2 {
            Http2Use::Any(windows) => timeout_at(deadline, self.start_any(stream, windows)).await,
            Http2Use::Watches(windows) => timeout_at(deadline, self.start_for_watches(stream, windows)).await,
        };
        match started {
            Err(_) => Err(self.timed_out("HTTP handshake")),
            Ok(Err(error)) => Err(self.handshake_failed(error)),
            Ok(Ok(dialed)) => Ok(dialed),
        }
    }

    async fn start_for_watches(&self, stream: BoxIo, windows: Windows) -> Result<Dialed, BoxError> {
        let setup = Setup {
            max_frame_size: MAX_FRAME_BYTES,
            max_header_list_size: self.max_header_list_size,
            keep_alive_interval: self.keep_alive_interval,
            keep_alive_timeout: self.keep_alive_timeout,
        };
        let (sender, mut connection) = watch_connection::start(stream, windows, setup).await?;
        settings(&mut connection).await?;
        Ok(Dialed::Watches(sender, Box::new(connection)))
    }

    async fn start_any(&self, stream: BoxIo, windows: Windows) -> Result<Dialed, BoxError> {
        let starter = Starter::default();
        let mut builder = http2::Builder::new(starter.clone());
        builder
            .timer(TokioTimer::new())
            .max_frame_size(MAX_FRAME_BYTES)
            .max_header_list_size(self.max_header_list_size)
            // Zero means that the limit of streams is unknown until the cluster's SETTINGS frame arrives; see
            // `settings`.
            .initial_max_send_streams(0)
            .keep_alive_interval(self.keep_alive_interval)
            .keep_alive_timeout(self.keep_alive_timeout)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(windows.stream)
            .initial_connection_window_size(windows.connection);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let mut connection = ConnectionTask::new(connection, starter);
        settings(&mut connection).await?;
        Ok(Dialed::Http2(sender, Box::new(connection)))
    }

    fn timed_out(&self, step: &'static str) -> ForwardError {
        ForwardError::DialTimeout {
            cluster: self.cluster.clone(),
            address: self.target.address.clone(),
            step,
            after: self.timeout,
        }
    }

    fn tls_failed(
        &self,
        tls: &TlsSource,
        source: SharedError,
        remedy: &'static str,
        failure_class: FailureClass,
    ) -> ForwardError {
        ForwardError::Tls {
            cluster: self.cluster.clone(),
            address: self.target.address.clone(),
            server_name: tls.server_name_text.clone(),
            source,
            remedy,
            failure_class,
        }
    }

    fn handshake_failed(&self, error: impl Into<BoxError>) -> ForwardError {
        let error = OneLine(error.into());
        let text = error.to_string();
        let alert = tls::alert_remedy(&text).map(|remedy| (remedy, tls::alert_failure_class(&text)));
        let source: SharedError = Arc::new(error);
        match (&self.tls, alert) {
            (Some(tls), Some((remedy, failure_class))) => self.tls_failed(tls, source, remedy, failure_class),
            _ => {
                ForwardError::Handshake { cluster: self.cluster.clone(), address: self.target.address.clone(), source }
            }
        }
    }
}

/// Waits for the cluster's SETTINGS frame. Without SETTINGS the limit of streams is unknown, and hyper silently queues
/// requests beyond the limit. Queued watches would wait for each other for ever.
async fn settings<C: Streams + Send>(connection: &mut ConnectionTask<C>) -> Result<(), BoxError> {
    let mut tick = tokio::time::interval(SETTINGS_TICK);
    while connection.connection().is_some_and(|connection| connection.max_send_streams() == 0) {
        let ended = std::future::poll_fn(|cx| match connection.poll_connection(cx) {
            Poll::Ready(ended) => Poll::Ready(Some(ended.map_err(BoxError::from))),
            Poll::Pending => tick.poll_tick(cx).map(|_| None),
        });
        if let Some(ended) = ended.await {
            ended?;
            return Err("the server closed the connection before it sent its HTTP/2 settings".into());
        }
    }
    Ok(())
}

/// Returns the error for an unusable client certificate. If its files are unreadable, the error contains the system's
/// cause.
fn without_certificate(cluster: &ClusterName, error: &(dyn std::error::Error + 'static)) -> ForwardError {
    let message = format!("the client certificate cannot be used: {error}");
    Exhaustion::without_credentials(Exhaustion::from_error(error, || Ok(())), cluster, message)
}

/// Formats an error together with its causes, because connectors have the important text (`Connection refused`) in the
/// last cause.
#[derive(Debug)]
struct OneLine(BoxError);

impl std::fmt::Display for OneLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&tributary_apimachinery::explain(&*self.0))
    }
}

impl std::error::Error for OneLine {}

/// Error for a host name that was not resolved. The type hides the system's error number from
/// [`Exhaustion::from_error`], because the number is not reliable: if file descriptors are exhausted, glibc reports
/// EAI_SYSTEM, and `errno` may change before it is read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct NotResolved(io::Error);

/// Returns a connector through the proxy, which gets `headers`. Without a proxy, the connector connects directly.
/// `policy` checks the addresses of every dial.
fn connector(
    proxy: Option<&Uri>,
    headers: &HeaderMap,
    policy: Option<Arc<DialPolicy>>,
) -> Result<Connector, &'static str> {
    let resolver = MapErr::new(GaiResolver::new(), NotResolved as fn(io::Error) -> NotResolved);
    let checked = CheckedResolver { inner: resolver.clone(), policy: policy.clone() };
    let mut tcp = HttpConnector::new_with_resolver(checked);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(TCP_KEEP_ALIVE_TIME));
    tcp.set_keepalive_interval(Some(TCP_KEEP_ALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(TCP_KEEP_ALIVE_RETRIES));
    let tcp = Guarded { inner: tcp, policy: policy.clone() };
    let Some(proxy) = proxy else { return Ok(boxed(tcp)) };
    let through = through_proxy(proxy, headers, tcp)?;
    Ok(BoxCloneSyncService::new(CheckedTarget { inner: through, resolver, policy }))
}

/// Returns a connector through the proxy. `tcp` connects to the proxy.
fn through_proxy<T>(proxy: &Uri, headers: &HeaderMap, tcp: T) -> Result<Connector, &'static str>
where
    T: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    T::Response:
        hyper::rt::Read + hyper::rt::Write + hyper_util::client::legacy::connect::Connection + Send + Unpin + 'static,
    T::Future: Send + 'static,
{
    if proxy.host().is_none_or(str::is_empty) {
        return Err("the URL has no host");
    }
    let user = user_info(proxy)?;
    match proxy.scheme_str() {
        Some("http") => Ok(boxed(tunnel(proxy, tcp, user).with_headers(headers.clone()))),
        Some("https") => {
            // The proxy is a third party. It does not receive the client certificate, and its own certificate is
            // checked against the system's root certificates.
            let tls = hyper_rustls::HttpsConnectorBuilder::new()
                .with_native_roots()
                .map_err(|_| "an https:// proxy needs the system's root certificates, and there are none")?
                .https_only()
                .enable_http1()
                .wrap_connector(tcp);
            Ok(boxed(tunnel(proxy, tls, user).with_headers(headers.clone())))
        }
        Some("socks5" | "socks5h") => {
            let socks = SocksV5::new(with_socks_port(proxy), tcp);
            Ok(match user {
                Some((name, password)) => boxed(socks.with_auth(name, password)),
                None => boxed(socks),
            })
        }
        _ => Err("the scheme of the URL is not supported"),
    }
}

/// Returns the proxy's address. The default port is that of Go and so of kubectl (`portMap` in net/http's
/// `transport.go`).
fn with_socks_port(proxy: &Uri) -> Uri {
    let mut parts = proxy.clone().into_parts();
    if let (None, Some(named)) = (proxy.port_u16(), &parts.authority) {
        let authority = format!("{}:{SOCKS_PORT}", named.as_str().trim_end_matches(':'));
        parts.authority = authority.parse().ok().or(parts.authority);
    }
    Uri::from_parts(parts).unwrap_or_else(|_| proxy.clone())
}

fn tunnel<C>(proxy: &Uri, connector: C, user: Option<(String, String)>) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy.clone(), connector);
    let Some((name, password)) = user else { return tunnel };
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
    match HeaderValue::try_from(format!("Basic {encoded}")) {
        Ok(mut value) => {
            value.set_sensitive(true);
            tunnel.with_auth(value)
        }
        // Base64 text is always a valid header value.
        Err(_) => tunnel,
    }
}

/// Returns the percent-decoded user and password of a proxy URL.
fn user_info(proxy: &Uri) -> Result<Option<(String, String)>, &'static str> {
    let Some((user, _host)) = proxy.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else {
        return Ok(None);
    };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8()
            .map(|text| text.into_owned())
            .map_err(|_| "the user or password in the URL is not UTF-8")
    };
    Ok(Some((decode(name)?, decode(password)?)))
}

fn boxed<S>(connector: S) -> Connector
where
    S: Service<Uri> + Clone + Send + Sync + 'static,
    S::Response: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    let connector =
        connector.map_response(|stream| -> BoxIo { Box::new(TokioIo::new(stream)) }).map_err(Into::<BoxError>::into);
    BoxCloneSyncService::new(connector)
}

#[cfg(test)]
mod tests {
    use kube::config::{KubeconfigError, LoadDataError};

    use super::*;

    #[test]
    fn proxy_url_with_an_unsupported_scheme_is_refused_and_a_user_is_accepted() {
        let user = |url: &str| user_info(&url.parse().unwrap()).unwrap();
        assert_eq!(user("http://proxy:3128"), None);
        assert_eq!(user("http://a:p%40ss%3Aw@proxy"), Some(("a".to_owned(), "p@ss:w".to_owned())));
        assert!(connector(Some(&Uri::from_static("ftp://proxy")), &HeaderMap::new(), None).is_err());
        for url in ["http://proxy:1", "socks5://u:p@proxy:1"] {
            assert!(connector(Some(&url.parse().unwrap()), &HeaderMap::new(), None).is_ok(), "{url}");
        }
    }

    #[test]
    fn member_is_not_reported_unreachable_if_file_descriptors_are_exhausted() {
        let cluster = ClusterName::new("c1").unwrap();
        for (errno, is_short) in [(libc::EMFILE, true), (libc::EACCES, false)] {
            let read = LoadDataError::ReadFile(io::Error::from_raw_os_error(errno), "tls.crt".into());
            let error = kube::Error::from(KubeconfigError::LoadClientCertificate(read));
            let error = without_certificate(&cluster, &error);
            assert_eq!(matches!(error, ForwardError::CredentialsExhausted { .. }), is_short, "{error}");
            assert_eq!(error.means_unreachable(), !is_short, "{error}");
        }
    }

    #[tokio::test]
    async fn test_socket_distinguishes_unknown_hosts_from_missing_file_descriptors() {
        // The name is longer than any valid host name, so the resolver sends no query.
        let name = "a".repeat(300);
        let (direct, proxy) = (format!("http://{name}"), format!("http://{name}:3128"));
        let through: Uri = proxy.parse().unwrap();
        for (proxy, dialed) in [(None, &*direct), (Some(&through), "https://127.0.0.1")] {
            let Err(error) = connector(proxy, &HeaderMap::new(), None).unwrap().oneshot(dialed.parse().unwrap()).await
            else {
                panic!("{dialed} is there")
            };
            assert_eq!(Exhaustion::from_error(&*error, || Ok(())), None, "{error:?}");
            let short = Exhaustion::from_error(&*error, || Err(io::Error::from_raw_os_error(libc::EMFILE)));
            assert!(short.is_some_and(|short| short.remedy.contains("ulimit -n")), "{error:?}");
            assert!(OneLine(error).to_string().contains("dns error: "), "it says why");
        }
    }

    #[tokio::test]
    async fn refused_member_address_is_reported_as_a_configuration_error() {
        let tuning = ClientTuning { dial_policy: Some(Arc::default()), ..ClientTuning::default() };
        for (server, proxy) in [
            ("https://localhost:6443", None),
            ("https://127.0.0.1:6443", None),
            ("https://192.0.2.1", Some("http://localhost:3128")),
            ("https://localhost:6443", Some("http://192.0.2.1:3128")),
        ] {
            let target = Arc::new(ServerUrl::parse(&server.parse().unwrap()).unwrap());
            let proxy: Option<Uri> = proxy.map(|proxy| proxy.parse().unwrap());
            let route = Route { proxy: proxy.as_ref(), connector: None };
            let identities = Arc::new(ServerIdentities::new(&[]));
            let cluster = ClusterName::new("c1").unwrap();
            let dialer = Dialer::new(cluster, target, route, &tuning, None, identities).unwrap();
            let Err(error) = dialer.connect(Instant::now() + Duration::from_secs(30)).await else { panic!("{server}") };
            assert!(matches!(error, ForwardError::AddressRefused { .. }), "{error:?}");
            assert!(error.at_endpoint().contains(" is a loopback address"), "{error}");
            assert_eq!((error.failure_class(), error.means_unreachable()), (FailureClass::Address, true));
        }
    }

    #[test]
    fn socks_proxy_without_a_port_gets_port_1080() {
        for (url, authority) in [
            ("socks5://proxy", "proxy:1080"),
            ("socks5h://proxy/", "proxy:1080"),
            ("socks5://u:p@proxy", "u:p@proxy:1080"),
            ("socks5://[::1]", "[::1]:1080"),
            ("socks5://proxy:", "proxy:1080"),
            ("socks5://proxy:80", "proxy:80"),
            ("socks5h://u:p@[::1]:9050", "u:p@[::1]:9050"),
        ] {
            let dialed = with_socks_port(&url.parse().unwrap());
            assert_eq!(dialed.authority().unwrap().as_str(), authority, "{url}");
        }
    }
}
