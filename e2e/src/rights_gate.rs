//! A proxy in front of a member that can delay or refuse requests for RBAC objects.
//!
//! The proxy terminates TLS with its own certificate authority, because it must see the paths of requests. It speaks
//! HTTP/2 like kube-apiserver, so that delayed requests share connections with all other requests.

use crate::{TestCluster, certificates::TestCertificates};
use anyhow::Context;
use bytes::Bytes;
use futures::stream;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{io, sync::Arc};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

/// The path prefix of roles and bindings.
const RIGHTS: &str = "/apis/rbac.authorization.k8s.io/";

type GateBody = UnsyncBoxBody<Bytes, io::Error>;

/// Treatment of requests for RBAC objects. Requests for other resources pass in every state except `SilentBesideOpen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightsPassage {
    /// All requests pass the gate.
    Clear,
    /// Watches of RBAC objects that are already open get no more events, but stay open. New requests pass.
    OpenSilent,
    /// The gate delivers no events of watches of RBAC objects: it forwards the response heads and delays the bodies.
    /// Lists of RBAC objects pass.
    Silent,
    /// Treats watches of RBAC objects as [`Silent`](Self::Silent). Watches of other resources that are already open
    /// also get no more events. New watches of other resources pass.
    SilentBesideOpen,
    /// The gate resets open streams for RBAC objects, and resets new requests without a response.
    Refused,
}

#[derive(Clone, Copy, Debug)]
struct GateState {
    passage: RightsPassage,
    generation: u64,
}

/// Running proxy in front of a member. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct RightsGate {
    port: u16,
    authority: String,
    state: watch::Sender<GateState>,
    task: JoinHandle<()>,
}

impl RightsGate {
    /// Starts a gate in front of a member, on a free port of 127.0.0.1. Initially all requests pass.
    ///
    /// # Errors
    /// If no certificate can be made or no port is free.
    pub async fn start(member: &TestCluster) -> anyhow::Result<Self> {
        let certificates = TestCertificates::generate("gate")?;
        let chain = CertificateDer::pem_slice_iter(certificates.serving_certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("read the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(certificates.serving_key.as_bytes()).context("read the key")?;
        let mut tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr().context("read the port")?.port();
        let (state, _) = watch::channel(GateState { passage: RightsPassage::Clear, generation: 0 });
        let connection = MemberConnection {
            client: client(member),
            origin: member.http().origin().to_owned(),
            state: state.subscribe(),
        };
        let task = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), connection));
        Ok(Self { port, authority: certificates.authority, state, task })
    }

    /// The gate's port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Certificate authority that signed the gate's certificate (PEM).
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Changes the treatment of new requests and open streams. If events may pass again, the gate first delivers the
    /// delayed events.
    pub fn set(&self, passage: RightsPassage) {
        self.state.send_modify(|state| *state = GateState { passage, generation: state.generation + 1 });
    }
}

impl Drop for RightsGate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type MemberClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Makes a client that trusts the member's certificate. The client needs no credentials, because the forwarded requests
/// contain their senders' credentials.
fn client(member: &TestCluster) -> MemberClient {
    let tls = rustls::ClientConfig::clone(&member.http().tls);
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_all_versions().build();
    Client::builder(TokioExecutor::new()).timer(TokioTimer::new()).build(connector)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, connection: MemberConnection) {
    // The end of this task drops the `JoinSet`, which aborts the tasks of all connections.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, connection) = (acceptor.clone(), connection.clone());
        connections.spawn(async move {
            if let Err(error) = serve(stream, &acceptor, connection).await {
                tracing::debug!(error = format!("{error:#}"), "a connection through the gate");
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, acceptor: &TlsAcceptor, connection: MemberConnection) -> anyhow::Result<()> {
    stream.set_nodelay(true).context("set TCP_NODELAY")?;
    let stream = acceptor.accept(stream).await.context("TLS")?;
    let service = service_fn(move |request: Request<Incoming>| {
        let connection = connection.clone();
        async move { connection.pass(request).await }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    server.serve_connection(TokioIo::new(stream), service).await.context("HTTP")
}

#[derive(Clone)]
struct MemberConnection {
    client: MemberClient,
    origin: String,
    state: watch::Receiver<GateState>,
}

impl MemberConnection {
    /// Forwards a request to the member. An error resets only the stream of this request.
    async fn pass(self, request: Request<Incoming>) -> io::Result<Response<GateBody>> {
        let (head, body) = request.into_parts();
        let is_of_rights = head.uri.path().starts_with(RIGHTS);
        let is_watch = head.uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")));
        let begun = *self.state.borrow();
        if is_of_rights && begun.passage == RightsPassage::Refused {
            return Err(refused());
        }
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut onward = Request::new(Full::new(body.collect().await.map_err(io::Error::other)?.to_bytes()));
        *onward.uri_mut() = Uri::try_from(format!("{}{path}", self.origin)).map_err(io::Error::other)?;
        *onward.method_mut() = head.method;
        *onward.headers_mut() = head.headers;
        let (head, body) = self.client.request(onward).await.map_err(io::Error::other)?.into_parts();
        let body = match is_of_rights || is_watch {
            true => {
                GatedBody { body, is_of_rights, is_watch, generation: begun.generation, state: self.state }.into_body()
            }
            false => body.map_err(io::Error::other).boxed_unsync(),
        };
        Ok(Response::from_parts(head, body))
    }
}

fn refused() -> io::Error {
    io::Error::other("nothing that is asked of roles and bindings passes")
}

/// Response body that the gate can delay. The response belongs to a request for RBAC objects, or to a watch of another
/// resource.
struct GatedBody {
    body: Incoming,
    is_of_rights: bool,
    is_watch: bool,
    /// Number of changes of the treatment before the request arrived. The gate compares the number to find out whether
    /// the stream was open before the last change.
    generation: u64,
    state: watch::Receiver<GateState>,
}

impl GatedBody {
    fn into_body(self) -> GateBody {
        let frames = stream::unfold(self, |mut held| async move {
            let frame = held.next().await?;
            Some((frame, held))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// Waits until the next frame may pass the gate, and returns the frame.
    async fn next(&mut self) -> Option<io::Result<Frame<Bytes>>> {
        loop {
            let GateState { passage, generation } = *self.state.borrow_and_update();
            let was_open = self.generation < generation;
            let is_held = match passage {
                RightsPassage::Clear => false,
                RightsPassage::OpenSilent => self.is_watch && self.is_of_rights && was_open,
                RightsPassage::Silent => self.is_watch && self.is_of_rights,
                RightsPassage::SilentBesideOpen => self.is_watch && (self.is_of_rights || was_open),
                RightsPassage::Refused if self.is_of_rights => return Some(Err(refused())),
                RightsPassage::Refused => false,
            };
            tokio::select! {
                biased;
                changed = self.state.changed() => changed.ok()?,
                frame = self.body.frame(), if !is_held => return frame.map(|frame| frame.map_err(io::Error::other)),
            }
        }
    }
}
