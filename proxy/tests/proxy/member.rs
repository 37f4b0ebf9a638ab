//! Fake members on loopback: real TLS and HTTP, scripted answers, and a record of every request.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::broadcast;
pub(crate) use tributary_apimachinery::body::{Body, empty, full};
use tributary_apimachinery::{ClusterName, RequestInfo};
use tributary_proxy::{ClientTuning, ClientUpgrade, ClusterClient, ForwardContext, ForwardError, RequestIdentity};

/// Time limit of a wait for an event. The limit only ends a test whose event never comes.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A reserved port, which no other process gets. The port refuses connections unless a test listens on it.
pub(crate) struct Port {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // With this option, a test can open a listener on the same port later. tokio sets the option for the listener.
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self { address: socket.local_addr().unwrap(), _socket: socket }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn listen(&self) -> TcpListener {
        TcpListener::bind(self.address).await.unwrap()
    }
}

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) der: CertificateDer<'static>,
    pub(crate) pem: String,
}

pub(crate) struct Leaf {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) pem: String,
    pub(crate) key_pem: String,
    key_der: Vec<u8>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let (der, pem) = (certificate.der().clone(), certificate.pem());
        Self { issuer: Issuer::new(params, key), der, pem }
    }

    pub(crate) fn leaf(&self, name: &str) -> Leaf {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf {
            der: certificate.der().clone(),
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            key_der: key.serialize_der(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: http::Version,
    pub(crate) headers: HeaderMap,
    pub(crate) certificate: Option<Vec<u8>>,
}

impl Seen {
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }
}

type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Handler = dyn Fn(Seen, Incoming) -> Answer + Send + Sync;

pub(crate) struct Options {
    pub(crate) alpn: Vec<&'static str>,
    pub(crate) max_streams: Option<u32>,
    pub(crate) client_authority: Option<CertificateDer<'static>>,
    /// Whether the client certificate is optional, as for kube-apiserver.
    pub(crate) certificate_is_optional: bool,
    pub(crate) plain: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            alpn: vec!["h2", "http/1.1"],
            max_streams: Some(100),
            client_authority: None,
            certificate_is_optional: false,
            plain: false,
        }
    }
}

/// A fake member. Its tasks end with the test's runtime.
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Authority,
    plain: bool,
    shared: Arc<Shared>,
    goaway: broadcast::Sender<()>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    open: AtomicUsize,
}

impl Member {
    pub(crate) async fn start<F, A>(options: Options, handler: F) -> Self
    where
        F: Fn(Seen, Incoming) -> A + Send + Sync + 'static,
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        let authority = Authority::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(server_config(&authority, &options));
        let shared = Arc::new(Shared::default());
        let (goaway, _) = broadcast::channel(1);
        let handler: Arc<Handler> = Arc::new(move |seen, body| Box::pin(handler(seen, body)));
        let plain = options.plain;
        let accept = Accept { acceptor, shared: shared.clone(), goaway: goaway.clone(), handler, options };
        tokio::spawn(accept.run(listener));
        Self { address, authority, plain, shared, goaway }
    }

    pub(crate) async fn echo() -> Self {
        Self::start(Options::default(), |seen, _| async move { text(StatusCode::OK, seen.uri.path().to_owned()) }).await
    }

    pub(crate) fn config(&self) -> kube::Config {
        let scheme = if self.plain { "http" } else { "https" };
        let mut config = kube::Config::new(format!("{scheme}://{}", self.address).parse().unwrap());
        config.root_cert = Some(vec![self.authority.der.to_vec()]);
        config
    }

    pub(crate) async fn client(&self) -> ClusterClient {
        connect(self.config(), ClientTuning::default()).await
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen().pop().unwrap()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    pub(crate) fn goaway(&self) {
        let _ = self.goaway.send(());
    }
}

struct Accept {
    acceptor: tokio_rustls::TlsAcceptor,
    shared: Arc<Shared>,
    goaway: broadcast::Sender<()>,
    handler: Arc<Handler>,
    options: Options,
}

impl Accept {
    async fn run(self, listener: TcpListener) {
        while let Ok((tcp, _)) = listener.accept().await {
            tcp.set_nodelay(true).unwrap();
            self.shared.connections.fetch_add(1, Ordering::SeqCst);
            let (shared, handler) = (self.shared.clone(), self.handler.clone());
            let (acceptor, goaway) = (self.acceptor.clone(), self.goaway.subscribe());
            let (plain, max_streams) = (self.options.plain, self.options.max_streams);
            tokio::spawn(async move {
                shared.open.fetch_add(1, Ordering::SeqCst);
                if plain {
                    serve_http1(tcp, service(None, shared.clone(), handler)).await;
                } else if let Ok(tls) = acceptor.accept(tcp).await {
                    let session = tls.get_ref().1;
                    let certificate = session.peer_certificates().map(|chain| chain[0].to_vec());
                    let is_http2 = session.alpn_protocol() == Some(b"h2");
                    let service = service(certificate, shared.clone(), handler);
                    if is_http2 {
                        serve_http2(tls, max_streams, goaway, service).await;
                    } else {
                        serve_http1(tls, service).await;
                    }
                }
                shared.open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }
}

type Served = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

fn service(
    certificate: Option<Vec<u8>>,
    shared: Arc<Shared>,
    handler: Arc<Handler>,
) -> impl Fn(Request<Incoming>) -> Served + Clone {
    move |request| {
        let (head, body) = request.into_parts();
        let seen = Seen {
            method: head.method,
            uri: head.uri,
            version: head.version,
            headers: head.headers,
            certificate: certificate.clone(),
        };
        shared.seen.lock().unwrap().push(seen.clone());
        let answer = handler(seen, body);
        Box::pin(async move { Ok(answer.await) })
    }
}

async fn serve_http2<S>(
    tls: tokio_rustls::server::TlsStream<TcpStream>,
    max_streams: Option<u32>,
    mut goaway: broadcast::Receiver<()>,
    service: S,
) where
    S: Fn(Request<Incoming>) -> Served + Clone,
{
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(max_streams)
        .max_header_list_size(1 << 20)
        .serve_connection(TokioIo::new(tls), service_fn(service));
    let mut connection = std::pin::pin!(connection);
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            Ok(()) = goaway.recv() => connection.as_mut().graceful_shutdown(),
        }
    }
}

async fn serve_http1<S>(io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static, service: S)
where
    S: Fn(Request<Incoming>) -> Served,
{
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service_fn(service));
    let _ = connection.await;
}

pub(crate) fn server_config(authority: &Authority, options: &Options) -> Arc<rustls::ServerConfig> {
    let leaf = authority.leaf("127.0.0.1");
    let builder = rustls::ServerConfig::builder();
    let builder = match &options.client_authority {
        Some(der) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(der.clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
            let verifier = if options.certificate_is_optional { verifier.allow_unauthenticated() } else { verifier };
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(leaf.key_der));
    let mut config = builder.with_single_cert(vec![leaf.der], key).unwrap();
    config.alpn_protocols = options.alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Returns a server's TLS configuration with the authority's own certificate as the server certificate.
pub(crate) fn self_signed(authority: &Authority) -> Arc<rustls::ServerConfig> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(authority.issuer.key().serialize_der()));
    let builder = rustls::ServerConfig::builder().with_no_client_auth();
    Arc::new(builder.with_single_cert(vec![authority.der.clone()], key).unwrap())
}

pub(crate) async fn connect(config: kube::Config, tuning: ClientTuning) -> ClusterClient {
    ClusterClient::connect(ClusterName::new("c1").unwrap(), config, tuning).await.unwrap()
}

pub(crate) fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    response
}

/// Returns a GET request with the request class that the router would add.
pub(crate) fn get(path: &str) -> Request<Body> {
    let mut request = Request::get(path).body(empty()).unwrap();
    let info = RequestInfo::parse("GET", request.uri().path(), request.uri().query());
    if let Ok(info) = info {
        request.extensions_mut().insert(info.class());
    }
    request
}

pub(crate) trait SendRequest {
    /// Forwards a request. The request's extensions become the forward context.
    fn send_request(
        &self,
        request: Request<Body>,
        identity: RequestIdentity,
    ) -> impl Future<Output = Result<Response<Body>, ForwardError>> + Send;
}

impl SendRequest for ClusterClient {
    fn send_request(
        &self,
        mut request: Request<Body>,
        identity: RequestIdentity,
    ) -> impl Future<Output = Result<Response<Body>, ForwardError>> + Send {
        let (extensions, mut context) = (request.extensions_mut(), ForwardContext::from(identity));
        context.class = extensions.remove().unwrap_or_default();
        context.peer = extensions.remove();
        context.endpoints = extensions.remove();
        context.permit = extensions.remove();
        context.upgrade = extensions.remove().map(ClientUpgrade::new);
        self.forward(request, context)
    }
}

pub(crate) async fn read(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Returns the sender of a channel, and a body with one frame for each item of the channel.
pub(crate) fn channel() -> (tokio::sync::mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
    let stream = futures::stream::unfold(receiver, |mut receiver| async move {
        let bytes = receiver.recv().await?;
        Some((Ok::<_, tributary_apimachinery::body::BoxError>(http_body::Frame::data(bytes)), receiver))
    });
    (sender, BodyExt::boxed_unsync(http_body_util::StreamBody::new(stream)))
}

pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, wait).await.unwrap_or_else(|_| panic!("it does not come true: {what}"));
}
