//! Answers what other replicas ask.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tributary_flow_control::ReplicaId;
use tributary_router::Router;

use super::message::{Message, PATH};

/// Connections at once, handshakes included. Each of the others has one or two; more than 64 replicas wait for each other.
const CONNECTIONS_MAX: usize = 64;
/// How long a handshake may take, and a question to come: the others are near, and give an answer up after a second.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may be idle: questions come each second.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long nothing is accepted once that failed, as where there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What answers.
#[derive(Clone)]
pub(super) struct Answering {
    own: ReplicaId,
    tls: Arc<ArcSwap<ServerConfig>>,
    router: Arc<Router>,
}

impl Answering {
    pub(super) fn new(own: ReplicaId, tls: Arc<ArcSwap<ServerConfig>>, router: Arc<Router>) -> Self {
        Self { own, tls, router }
    }

    /// Accepts connections for ever. Cancel: connections end with their tasks.
    pub(super) async fn run(self, socket: TcpListener) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        // The semaphore is never closed.
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            let Ok((stream, _)) = socket.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let own = self.clone();
            tokio::spawn(async move {
                let _slot = slot;
                own.serve(stream).await;
            });
        }
    }

    /// One connection. Who has no certificate of the replicas' authorities is not heard.
    async fn serve(&self, stream: TcpStream) {
        let acceptor = TlsAcceptor::from(self.tls.load_full());
        let stream = match timeout(PATIENCE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, "somebody at --peer-listen is no replica"),
            Err(_) => return,
        };
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(IDLE_MAX);
        let service = service_fn(async |request| Ok::<_, Infallible>(self.answer(request).await));
        if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "the connection of another replica ended");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if (request.method(), request.uri().path()) != (&Method::POST, PATH) {
            return empty(StatusCode::NOT_FOUND);
        }
        let Ok(Ok(question)) = timeout(PATIENCE, Message::read(request.into_body())).await else {
            return empty(StatusCode::BAD_REQUEST);
        };
        // A replica that asks itself lends itself nothing.
        let lent = match question.replica() == self.own {
            true => Vec::new(),
            false => self.router.flow_shares().lend(question.replica(), &question.shares()),
        };
        match Message::new(self.own, &lent).text() {
            Ok(text) => Response::new(Full::new(Bytes::from(text))),
            Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}
