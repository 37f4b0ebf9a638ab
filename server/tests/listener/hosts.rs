//! Tests of the host names of clusters, which may have their own certificates and certificate authorities: the tests
//! check to which cluster a request goes, and which users a host accepts.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::Empty;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::HandshakeKind;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::ClusterName;
use tributary_authentication::ClientCertificates;
use tributary_hosts::NamedCertificates;
use tributary_hosts::certified_key;
use tributary_hosts::{ClusterHosts, HostTable, HostTls, Hosts};
use tributary_listener::tls::{RequestedAuthorities, ServingCertificate, TlsSettings};
use tributary_listener::{Bounds, GoawayChance, ListenerCapacity, ListenerOptions, ProxyProtocolPeers, TLS_1_2};
use tributary_server::authentication::{Authenticator, SharedAuthenticator};
use tributary_server::front::{Entry, EntryService, Front};
use tributary_server::handler::Handler;

use crate::StandIn;
use crate::fixture::text;

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(parameters, key), pem }
    }

    /// Signs a certificate, and returns it with its key (PEM). A server's certificate has `names`; a client's
    /// certificate has none.
    pub(crate) fn sign(&self, common_name: &str, names: &[&str]) -> (String, String) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, common_name);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        (parameters.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn vouches(&self) -> Arc<ClientCertificates> {
        Arc::new(ClientCertificates::new(self.pem.as_bytes()).unwrap())
    }
}

/// A listener with three hosts. `all.test` is the merged view. `eu.test` has its own certificate and its own
/// authorities for clients, and `us.test` has neither.
pub(crate) struct Endpoint {
    address: SocketAddr,
    hosts: Arc<Hosts>,
    tls: Arc<TlsSettings>,
    servers: Authority,
    /// The authority of `--client-ca-file`, which signs client certificates for hosts without their own authorities.
    pub(crate) people: Authority,
    people_of_eu: Authority,
    of_eu: (String, String),
}

impl Endpoint {
    async fn start() -> Self {
        Self::before(StandIn::default()).await
    }

    pub(crate) async fn before(handler: impl Handler) -> Self {
        let [servers, people, people_of_eu] = ["servers", "people", "people of eu"].map(Authority::new);
        let (chain, key) = servers.sign("all", &["all.test", "us.test", "localhost"]);
        let serving = ServingCertificate::new(certified_key(chain.as_bytes(), key.as_bytes()).unwrap());
        let tls = Arc::new(TlsSettings::new(serving, TLS_1_2).unwrap());
        let hosts = Arc::<Hosts>::default();
        let (certificates, known) = (Some(people.vouches()), Arc::clone(&hosts));
        let authenticator = SharedAuthenticator { certificates, hosts: known, ..SharedAuthenticator::default() };
        tls.request_client_certificates(authenticator.subjects()).unwrap();
        let socket = tributary_listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let front = Arc::new(Front::new(Arc::new(handler), CancellationToken::new()));
        let entry = Arc::new(Entry::for_hosts(Authenticator::Shared(authenticator), Arc::clone(&hosts)));
        let options = ListenerOptions {
            tls: Arc::clone(&tls),
            capacity: ListenerCapacity::new(Bounds::default(), Arc::clone(&front.own_metrics().listener)),
            proxies: ProxyProtocolPeers::default(),
            goaway_chance: GoawayChance::default(),
            connection_age: None,
            stop: CancellationToken::new(),
        };
        tokio::spawn(tributary_listener::serve(socket, Arc::new(EntryService::new(front, entry)), options));
        let of_eu = servers.sign("eu", &["eu.test"]);
        let endpoint = Self { address, hosts, tls, servers, people, people_of_eu, of_eu };
        endpoint.vouch_at_eu(&endpoint.people_of_eu);
        endpoint
    }

    /// Replaces the client authority of `eu.test`, like a new configuration.
    fn vouch_at_eu(&self, authority: &Authority) {
        let (chain, key) = &self.of_eu;
        let own = HostTls {
            fingerprint: authority.pem.clone(),
            serving: Some(Arc::new(certified_key(chain.as_bytes(), key.as_bytes()).unwrap())),
            client_authorities: Some(authority.vouches()),
        };
        let [eu, us]: [ClusterName; 2] = ["eu", "us"].map(|name| name.parse().unwrap());
        let named = |name: &str, tls| ClusterHosts { names: vec![name.parse().unwrap()], tls };
        let (first, second) = (named("eu.test", Some(Arc::new(own))), named("us.test", None));
        let merged = ["all.test".parse().unwrap()];
        let clusters = [(&eu, &first), (&us, &second)];
        let table = HostTable::new(&merged, Vec::new(), clusters, &self.hosts.table()).unwrap();
        self.tls.serve_hosts(&table).unwrap();
        self.hosts.replace(table);
    }

    /// Connects with an optional client certificate and with `host` as SNI. For an IP address, the client sends no SNI.
    pub(crate) async fn client(&self, certificate: Option<&(String, String)>, host: &str) -> Connection {
        self.resuming(&self.config(certificate), host).await
    }

    fn config(&self, certificate: Option<&(String, String)>) -> Arc<rustls::ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.servers.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        // rustls sends no SNI for IP addresses, also with this setting.
        config.enable_sni = true;
        Arc::new(config)
    }

    /// Connects with a configuration that may contain TLS sessions of previous connections.
    async fn resuming(&self, config: &Arc<rustls::ClientConfig>, host: &str) -> Connection {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await.unwrap();
        let kind = stream.get_ref().1.handshake_kind().unwrap();
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        let executor = TokioExecutor::new();
        let (sender, connection) = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Connection { sender, kind, shown }
    }
}

pub(crate) struct Connection {
    pub(crate) sender: SendRequest<Empty<Bytes>>,
    kind: HandshakeKind,
    /// The certificate that the server presented.
    shown: CertificateDer<'static>,
}

impl Connection {
    /// Sends a GET. Returns the status, the body, and the Retry-After header.
    async fn get(&mut self, host: &str, path: &str) -> (StatusCode, String, Option<String>) {
        let host =
            if host.parse::<IpAddr>().is_ok_and(|it| it.is_ipv6()) { format!("[{host}]") } else { host.to_owned() };
        let request = Request::builder().method(Method::GET).uri(format!("https://{host}:6443{path}"));
        let answer = self.sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        let retry_after = answer.headers().get(header::RETRY_AFTER).map(|it| it.to_str().unwrap().to_owned());
        (answer.status(), text(answer).await, retry_after)
    }

    /// Returns the user and the API (merged view or cluster) that the handler sees in a request to this host, or the
    /// status code of an error response.
    async fn who(&mut self, host: &str) -> String {
        let (status, text, _) = self.get(host, "/whoami").await;
        if status == StatusCode::OK { text } else { status.as_u16().to_string() }
    }
}

/// A user with a certificate of one host's authority gets 401 at other hosts, as users of KubeGateway expect.
#[tokio::test]
async fn user_of_a_host_authority_is_unknown_at_other_hosts() {
    let endpoint = Endpoint::start().await;
    let ann = endpoint.people.sign("ann", &[]);
    let ann_of_eu = endpoint.people_of_eu.sign("ann", &[]);
    for (certificate, host, expected) in [
        (Some(&ann), "all.test", "ann ClientCertificates at Merged"),
        (Some(&ann), "us.test", "ann ClientCertificates at Cluster(\"us\")"),
        (Some(&ann), "eu.test", "401"),
        (Some(&ann_of_eu), "eu.test", "ann ClientCertificatesOf(\"eu\") at Cluster(\"eu\")"),
        (Some(&ann_of_eu), "us.test", "401"),
        (Some(&ann_of_eu), "all.test", "401"),
        (None, "eu.test", "401"),
    ] {
        // The client verifies that the server's certificate contains the host's name.
        let mut connection = endpoint.client(certificate, host).await;
        assert_eq!(connection.who(&host.to_uppercase()).await, expected, "{host}");
    }
}

/// HTTP/2 clients reuse a connection for every name in its certificate (RFC 9113 §9.1.1). So a request for a different
/// host may arrive on the connection.
#[tokio::test]
async fn connection_serves_only_the_host_of_its_handshake() {
    let endpoint = Endpoint::start().await;
    let (ann, ann_of_eu) = (endpoint.people.sign("ann", &[]), endpoint.people_of_eu.sign("ann", &[]));
    for (certificate, opened_for, others) in [
        (&ann, "all.test", ["us.test", "eu.test"]),
        (&ann, "us.test", ["all.test", "eu.test"]),
        (&ann_of_eu, "eu.test", ["all.test", "us.test"]),
    ] {
        let mut connection = endpoint.client(Some(certificate), opened_for).await;
        assert!(connection.who(opened_for).await.starts_with("ann"), "{opened_for}");
        for other in others {
            assert_eq!(connection.who(other).await, "421", "{other} on a connection for {opened_for}");
        }
        assert!(connection.who(opened_for).await.starts_with("ann"), "the connection stays, for {opened_for}");
    }
}

#[tokio::test]
async fn unknown_host_is_503_without_details() {
    let endpoint = Endpoint::start().await;
    let ann = endpoint.people.sign("ann", &[]);
    let mut connection = endpoint.client(Some(&ann), "localhost").await;
    assert!(connection.who("all.test").await.starts_with("ann"));
    for (host, path) in [("nope.example", "/api"), ("nope.example", "/healthz"), ("10.0.0.1", "/api"), ("::1", "/")] {
        let (status, text, retry_after) = connection.get(host, path).await;
        assert_eq!((status.as_u16(), retry_after.as_deref()), (503, Some("60")), "{host}{path}");
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&told["kind"], &told["reason"]), (&"Status".into(), &"ServiceUnavailable".into()));
        assert!(!text.contains(".test") && !text.contains("eu") && !text.contains(host), "{text}");
    }
    // Monitoring of the process uses its IP address, so `/metrics` must be available under this address.
    assert_eq!(connection.get("10.0.0.1", "/metrics").await.0, 200);
    let mut nobody = endpoint.client(None, "localhost").await;
    let (status, text, _) = nobody.get("10.0.0.1", "/livez").await;
    assert_eq!((status.as_u16(), text.as_str()), (200, "ok"));
    assert_eq!(nobody.get("10.0.0.1", "/metrics").await.0, 401);
}

#[tokio::test]
async fn paths_at_a_cluster_host_all_go_to_the_cluster() {
    let endpoint = Endpoint::start().await;
    let mut ann = endpoint.client(Some(&endpoint.people.sign("ann", &[])), "us.test").await;
    for path in ["/metrics", "/tributary/status"] {
        let (status, text, _) = ann.get("us.test", path).await;
        assert!(status == 200 && text.starts_with("ann "), "{path}: {text}");
    }
    let mut nobody = endpoint.client(None, "us.test").await;
    assert_eq!(nobody.get("us.test", "/livez").await.0, 401, "its health is the cluster's to tell");
}

#[tokio::test]
async fn new_host_authorities_apply_to_open_connections() {
    let endpoint = Endpoint::start().await;
    let (first, second) = (endpoint.people_of_eu.sign("ann", &[]), Authority::new("people of eu"));
    let mut connection = endpoint.client(Some(&first), "eu.test").await;
    assert!(connection.who("eu.test").await.starts_with("ann ClientCertificatesOf(\"eu\")"));
    endpoint.vouch_at_eu(&second);
    assert_eq!(connection.who("eu.test").await, "401");
    let bob = second.sign("bob", &[]);
    assert!(
        endpoint
            .client(Some(&bob), "eu.test")
            .await
            .who("eu.test")
            .await
            .starts_with("bob ClientCertificatesOf(\"eu\")")
    );
}

/// The certificate of a cluster takes precedence over the certificates of `--tls-sni-cert-key`. For all other names,
/// the listener presents the common certificate.
#[tokio::test]
async fn certificate_is_selected_by_the_requested_name() {
    let endpoint = Endpoint::start().await;
    let ann = endpoint.people.sign("ann", &[]);
    let every = ["us.test", "eu.test", "all.test", "one.test", "any.wild.test", "127.0.0.1"];
    let pair = |name: &str| endpoint.servers.sign(name, &every);
    let leaf = |(chain, _): &(String, String)| CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    let show = |given: &[(&(String, String), &str)]| {
        let given = given.iter().map(|((chain, key), names)| {
            let names = names.split(' ').map(|name| name.parse().unwrap()).collect();
            (Arc::new(certified_key(chain.as_bytes(), key.as_bytes()).unwrap()), names)
        });
        endpoint.tls.replace_named_certificates(NamedCertificates::new(&given.collect::<Vec<_>>()));
    };
    let (one, two, three) = (pair("one"), pair("two"), pair("three"));
    show(&[(&one, "one.test us.test eu.test"), (&two, "*.wild.test 127.0.0.1 one.test")]);
    let common = endpoint.client(None, "all.test").await.shown;
    for (host, expected) in [
        ("one.test", leaf(&one)),
        ("us.test", leaf(&one)),
        ("eu.test", leaf(&endpoint.of_eu)),
        ("any.wild.test", leaf(&two)),
        // The client sends no SNI, so the listener chooses the certificate by the local address.
        ("127.0.0.1", leaf(&two)),
        ("localhost", common.clone()),
    ] {
        assert_eq!(endpoint.client(None, host).await.shown, expected, "{host}");
    }
    // A certificate of `--tls-sni-cert-key` changes neither the client authorities of a host nor its API.
    let mut open = endpoint.client(Some(&ann), "us.test").await;
    assert_eq!(open.who("us.test").await, "ann ClientCertificates at Cluster(\"us\")");
    show(&[(&three, "us.test")]);
    assert_eq!(endpoint.client(None, "us.test").await.shown, leaf(&three));
    assert!(open.who("us.test").await.starts_with("ann"), "what is open stays");
    // Replacing the authorities for client certificates does not change the certificates of `--tls-sni-cert-key`.
    let (people, none) = (endpoint.people.vouches().subjects(), Vec::new());
    endpoint.tls.request_client_certificates(RequestedAuthorities { clients: people, proxies: none }).unwrap();
    assert_eq!(endpoint.client(None, "us.test").await.shown, leaf(&three));
}

#[tokio::test]
async fn tls_sessions_of_a_host_end_with_its_authorities() {
    let endpoint = Endpoint::start().await;
    let config = endpoint.config(None);
    let kind = async |host: &str| {
        let mut connection = endpoint.resuming(&config, host).await;
        // Before its first response, the server sends the tickets with which a client can resume the TLS session. So
        // the test sends a request to receive the tickets.
        connection.get(host, "/livez").await;
        connection.kind
    };
    for host in ["eu.test", "us.test"] {
        assert_eq!(kind(host).await, HandshakeKind::Full, "{host}");
        assert_eq!(kind(host).await, HandshakeKind::Resumed, "{host}");
    }
    endpoint.vouch_at_eu(&Authority::new("others"));
    assert_eq!(kind("eu.test").await, HandshakeKind::Full);
    assert_eq!(kind("us.test").await, HandshakeKind::Resumed, "nothing has changed there");
    let (people, none) = (endpoint.people.vouches().subjects(), Vec::new());
    endpoint.tls.request_client_certificates(RequestedAuthorities { clients: people, proxies: none }).unwrap();
    assert_eq!(kind("us.test").await, HandshakeKind::Full, "authorities that count there were exchanged");
}
