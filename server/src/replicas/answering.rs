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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tributary_flow_control::ReplicaId;
use tributary_router::Router;

use super::message::{Message, PATH};
use crate::listener::Strangers;

/// Connections of replicas at once. Each of the others has one or two; more than 64 replicas wait for each other.
const CONNECTIONS_MAX: usize = 64;
/// Connections at once on which no replica is known yet. One more sends away the one that has been so for longest: a
/// replica is known some milliseconds after it connects, and whoever is silent keeps none of them out.
const HANDSHAKES_MAX: usize = 64;
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
        let (strangers, slots) = (Strangers::at_most(HANDSHAKES_MAX), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        loop {
            let Ok((stream, _)) = socket.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (own, stranger, slots) = (self.clone(), strangers.admit(), Arc::clone(&slots));
            tokio::spawn(async move {
                let known = tokio::select! {
                    known = timeout(PATIENCE, own.know(stream, slots)) => known.ok().flatten(),
                    () = stranger.sent_away() => None,
                };
                drop(stranger);
                if let Some((stream, slot)) = known {
                    own.serve(stream).await;
                    drop(slot);
                }
            });
        }
    }

    /// A connection once it is known to be a replica's, with its place among theirs; `None` where it is not. Who has no
    /// certificate of the replicas' authorities is not heard.
    async fn know(
        &self,
        stream: TcpStream,
        slots: Arc<Semaphore>,
    ) -> Option<(TlsStream<TcpStream>, OwnedSemaphorePermit)> {
        match TlsAcceptor::from(self.tls.load_full()).accept(stream).await {
            // The semaphore is never closed.
            Ok(stream) => slots.acquire_owned().await.ok().map(|slot| (stream, slot)),
            Err(error) => {
                tracing::debug!(%error, "somebody at --peer-listen is no replica");
                None
            }
        }
    }

    /// Answers another replica until it closes the connection.
    async fn serve(&self, stream: TlsStream<TcpStream>) {
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

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ClientConfig, RootCertStore};
    use rustls_pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tributary_router::RouterConfig;

    use super::*;

    /// How both sides of replicas speak TLS, with a certificate of their own authority.
    fn credentials() -> (ServerConfig, ClientConfig) {
        let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.self_signed(&key).unwrap().der().clone()).unwrap();
        let issuer = Issuer::new(authority, key);
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let chain = vec![own.der().clone()];
        let key = || PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let server = server.unwrap().with_client_cert_verifier(verifier.unwrap());
        let client = client.unwrap().with_root_certificates(roots);
        (server.with_single_cert(chain.clone(), key()).unwrap(), client.with_client_auth_cert(chain, key()).unwrap())
    }

    #[tokio::test]
    async fn whoever_is_silent_keeps_no_replica_out() {
        let (server, client) = credentials();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let router = Router::new(RouterConfig::default());
        let answering = Answering::new(ReplicaId(1), Arc::new(ArcSwap::from_pointee(server)), router);
        let answering = tokio::spawn(answering.run(socket));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS_MAX.max(HANDSHAKES_MAX) {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let stream = TcpStream::connect(address).await.unwrap();
        let name = address.ip().into();
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap();
        stream.write_all(b"GET /other HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        // Nor had their time to be up: the oldest is sent away, and the others are where they were.
        let oldest = silent.remove(0).read(&mut [0]).await;
        assert!(matches!(oldest, Ok(0) | Err(_)), "{oldest:?}");
        let is_open = |stream: &TcpStream| matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(silent.iter().all(is_open));
        answering.abort();
    }
}
