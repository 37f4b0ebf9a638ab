//! Starts a listener that passes requests to a test's handler, and clients of this listener: HTTP clients, and raw TLS
//! connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::ClusterName;
use tributary_hosts::Hosts;
use tributary_listener::tls::{ServingCertificate, TlsSettings};
use tributary_listener::{
    Bounds, Drained, GoawayChance, ListenAddress, ListenerCapacity, ListenerOptions, ListenerRefusal,
    ProxyProtocolPeers, RefusalLabels, TLS_1_2,
};
use tributary_proxy::{ClientTuning, ClusterClient};
use tributary_records::audit::Auditor;
use tributary_router::{ClusterAddress, ClusterAuthorization, ClusterSetup, MemberRules, Router, RouterConfig};
use tributary_server::authentication::Authenticator;
use tributary_server::credentials::{BearerToken, Certificates, certificates};
use tributary_server::front::{Entry, EntryService, Front, Observers, OpenDoors};
use tributary_server::handler::Handler;
use tributary_simulator::{SimulatedCluster, Simulator, SimulatorConfig};
use tributary_sources::data_directory::DataDirectory;

/// The time limit for an expected event. The limit detects missing events and does not measure speed.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The methods of a test's [`Handler`] besides `handle`: all users may read the metrics, which are empty.
macro_rules! default_handler_methods {
    () => {
        async fn may_get_non_resource_url(
            &self,
            _: &http::request::Parts,
            _: &tributary_router::RequestContext,
        ) -> Result<(), Box<http::Response<tributary_server::handler::Body>>> {
            Ok(())
        }

        async fn drain(&self) {}

        fn register_metrics(&self, _: &mut dyn FnMut(&mut prometheus_client::registry::Registry)) {}

        async fn report(&self) -> tributary_router::Report {
            tributary_router::Report::default()
        }

        fn expose_metrics(&self) -> String {
            String::new()
        }
    };
}
pub(crate) use default_handler_methods;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) entry: Arc<Entry>,
    pub(crate) token: String,
    authority: String,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<Drained>,
    pub(crate) connections: Gauge,
    /// The number of bytes in responses that clients have not read.
    pub(crate) unread: Gauge,
    refused: Family<RefusalLabels, Counter>,
    _directory: tempfile::TempDir,
}

/// Starts a listener on a free port that passes requests to `handler`.
pub(crate) async fn start(handler: impl Handler) -> Server {
    start_within(Bounds::default(), handler).await
}

/// Starts a listener like [`start`], with these limits.
pub(crate) async fn start_within(bounds: Bounds, handler: impl Handler) -> Server {
    start_audited(bounds, handler, None).await
}

/// Starts a listener like [`start_within`], with an audit log.
pub(crate) async fn start_audited(bounds: Bounds, handler: impl Handler, audit: Option<Arc<Auditor>>) -> Server {
    start_behind(ProxyProtocolPeers::default(), bounds, handler, audit).await
}

/// Starts a listener like [`start_audited`], that expects PROXY headers from these load balancers.
pub(crate) async fn start_behind(
    proxies: ProxyProtocolPeers,
    bounds: Bounds,
    handler: impl Handler,
    audit: Option<Arc<Auditor>>,
) -> Server {
    let settings = Settings { proxies, bounds, ..Settings::default() };
    start_with(settings, handler, |front| front.audited(audit)).await
}

/// Starts a listener like [`start`] that closes HTTP/2 connections by GOAWAY with this probability per request.
pub(crate) async fn start_with_goaway(chance: GoawayChance, handler: impl Handler) -> Server {
    start_with(Settings { goaway_chance: chance, ..Settings::default() }, handler, |front| front).await
}

/// Starts a listener like [`start`], with an access log or traces.
pub(crate) async fn start_observed(handler: impl Handler, observers: Observers) -> Server {
    start_with(Settings::default(), handler, |front| front.observed(observers)).await
}

/// Starts a listener like [`start`] with these hosts, and changes its [`Front`] by `configure_front`.
pub(crate) async fn start_with_front<H: Handler>(
    hosts: Arc<Hosts>,
    handler: H,
    configure_front: impl FnOnce(Front<H>) -> Front<H>,
) -> Server {
    start_with(Settings { hosts, ..Settings::default() }, handler, configure_front).await
}

/// Starts the aggregated entry like [`start`], with an audit log.
pub(crate) async fn start_aggregated(handler: impl Handler, audit: Option<Arc<Auditor>>) -> Server {
    start_with(Settings { is_aggregated: true, ..Settings::default() }, handler, |front| front.audited(audit)).await
}

/// Starts the aggregated entry like [`start`], with doors of foreign systems.
pub(crate) async fn start_with_doors(handler: impl Handler, doors: Arc<OpenDoors>) -> Server {
    start_with(Settings { is_aggregated: true, doors, ..Settings::default() }, handler, |front| front).await
}

/// Starts the entry of Open Cluster Management like [`start`], with these doors.
pub(crate) async fn start_managed(handler: impl Handler, doors: Arc<OpenDoors>) -> Server {
    start_with(Settings { is_managed: true, doors, ..Settings::default() }, handler, |front| front).await
}

/// The settings of a listener that tests can choose.
#[derive(Default)]
struct Settings {
    proxies: ProxyProtocolPeers,
    bounds: Bounds,
    goaway_chance: GoawayChance,
    hosts: Arc<Hosts>,
    is_aggregated: bool,
    /// True for the entry of Open Cluster Management.
    is_managed: bool,
    /// The doors of these entries.
    doors: Arc<OpenDoors>,
}

async fn start_with<H: Handler>(
    settings: Settings,
    handler: H,
    configure_front: impl FnOnce(Front<H>) -> Front<H>,
) -> Server {
    let parent = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
    let listen: ListenAddress = "127.0.0.1:0".parse().unwrap();
    let token = BearerToken::open(&directory).unwrap();
    let made = Certificates::open(&directory, &listen.certificate_names(), certificates::now()).unwrap();
    let socket = tributary_listener::bind(listen.socket_address()).unwrap();
    let address = socket.local_addr().unwrap();
    let tls = TlsSettings::new(ServingCertificate::new(made.certified_key().unwrap()), TLS_1_2).unwrap();
    let stop = CancellationToken::new();
    let authenticator = Authenticator::Personal(token.digest());
    let front = Arc::new(configure_front(Front::new(Arc::new(handler), stop.clone())));
    let metrics = Arc::clone(&front.own_metrics().listener);
    let connections = metrics.connections.clone();
    let unread = metrics.unread_bytes.clone();
    let refused = metrics.refused.clone();
    let Settings { proxies, bounds, goaway_chance, hosts, is_aggregated, is_managed, doors } = settings;
    let entry = Arc::new(match is_aggregated {
        true => Entry::aggregated(authenticator, doors),
        false if is_managed => Entry::open_cluster_management(authenticator, doors),
        false => Entry::for_hosts(authenticator, hosts),
    });
    let capacity = ListenerCapacity::new(bounds, metrics);
    let (tls, connection_age, stopping) = (Arc::new(tls), None, stop.clone());
    let options = ListenerOptions { tls, capacity, proxies, goaway_chance, connection_age, stop: stopping };
    let service = Arc::new(EntryService::new(front, Arc::clone(&entry)));
    let serving = tokio::spawn(tributary_listener::serve(socket, service, options));
    let (token, authority) = (token.expose().to_owned(), made.authority_pem().to_owned());
    Server { address, entry, token, authority, stop, serving, connections, unread, refused, _directory: parent }
}

impl Server {
    pub(crate) async fn connect(
        &self,
        version: &'static rustls::SupportedProtocolVersion,
        alpn: &str,
    ) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.over(stream, version, alpn).await.unwrap()
    }

    pub(crate) async fn over(
        &self,
        stream: TcpStream,
        version: &'static rustls::SupportedProtocolVersion,
        alpn: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_with_sni("127.0.0.1", stream, version, alpn).await
    }

    /// Performs the TLS handshake with `host` as SNI. For an IP address, the client sends no SNI.
    async fn connect_with_sni(
        &self,
        host: &str,
        stream: TcpStream,
        version: &'static rustls::SupportedProtocolVersion,
        alpn: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let name = ServerName::try_from(host.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    pub(crate) async fn http1(&self) -> hyper::client::conn::http1::SendRequest<Empty<Bytes>> {
        let stream = self.connect(&rustls::version::TLS12, "http/1.1").await;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender
    }

    pub(crate) async fn http2(&self) -> hyper::client::conn::http2::SendRequest<Empty<Bytes>> {
        self.http2_with_sni("127.0.0.1").await
    }

    /// Opens an HTTP/2 connection with `host` as SNI. For an IP address, the client sends no SNI.
    pub(crate) async fn http2_with_sni(&self, host: &str) -> hyper::client::conn::http2::SendRequest<Empty<Bytes>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let stream = self.connect_with_sni(host, stream, &rustls::version::TLS13, "h2").await.unwrap();
        let executor = TokioExecutor::new();
        let (sender, connection) = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// Returns the number of requests that the listener has refused for this reason.
    pub(crate) fn refused(&self, refusal: ListenerRefusal) -> u64 {
        self.refused.get_or_create(&RefusalLabels { reason: refusal.as_str() }).get()
    }

    pub(crate) fn request(&self, path: &str) -> http::request::Builder {
        self.bare(path).header(header::AUTHORIZATION, format!("Bearer {}", self.token))
    }

    pub(crate) fn bare(&self, path: &str) -> http::request::Builder {
        Request::get(format!("https://{}{path}", self.address))
    }
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Starts a simulated member without pods, and a router with this member as its only cluster.
pub(crate) async fn router_over(name: &str) -> (SimulatedCluster, Arc<Router>) {
    let config =
        SimulatorConfig { name: name.to_owned(), pods: 0, namespaces: 1, nodes: 1, ..SimulatorConfig::default() };
    let member = Simulator::start(config).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&member.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let name = ClusterName::new(name).unwrap();
    let client = ClusterClient::connect_to_all(name.clone(), config, &[], ClientTuning::default()).await;
    let router = Router::new(RouterConfig::default());
    router.set_clusters(vec![ClusterSetup {
        name,
        client: client.map_err(|error| error.to_string()),
        client_generation: 0,
        address: ClusterAddress::from_description(member.token()),
        index: None,
        impersonation: MemberRules::default(),
        authorization: ClusterAuthorization::Rbac,
    }]);
    // The test waits until discovery has completed, because the metrics contain only resources that discovery has
    // reported.
    router.asked_once(SOON).await;
    (member, router)
}
