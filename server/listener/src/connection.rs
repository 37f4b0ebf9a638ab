//! One client connection: the PROXY header of a configured peer, the TLS handshake, then HTTP/2 or HTTP/1.1 with
//! upgrades.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::{HostName, Permit};

use crate::authentication::ConnectionAuthentication;
use crate::byte_counter::ByteCounter;
use crate::coalesce::Coalesce;
use crate::connection_driver::drive_connection;
use crate::goaway::RandomGoaway;
use crate::http_settings;
use crate::interruption::{Interruptions, ReportedInterruptions};
use crate::metrics::ListenerMetrics;
use crate::outgoing::Outgoing;
use crate::proxy_protocol::ProxyHeaders;
use crate::refusal::ListenerRefusal;
use crate::request::ConnectionRequests;
use crate::service::{Handshake, RequestService};
use crate::streams::{StreamExecutor, Streams};
use crate::tls::TlsSettings;
use crate::tracked_stream::TrackedStream;
use crate::unauthenticated_connections::UnauthenticatedConnection;
use crate::unread::Unread;
use crate::user_connections::UserConnections;

/// The time limit of a TLS handshake, as in Go's `net/http` clients.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a connection's task. Thousands of connections are idle, and each costs at least this memory. The
/// future of an `async` function keeps memory for each argument, and for each value that is moved after a borrow. So
/// large values are boxed, and are passed through functions that are not `async`.
const TASK_BYTES_MAX: usize = 2 << 10;

pub(super) struct ClientConnection<S> {
    pub(super) tls: Arc<TlsSettings>,
    pub(super) service: Arc<S>,
    pub(super) stop: CancellationToken,
    pub(super) goaway: RandomGoaway,
    pub(super) metrics: Arc<ListenerMetrics>,
    /// The remote address of the socket: the address of the client, or of a proxy that sends the client's address in a
    /// PROXY header.
    pub(super) peer: SocketAddr,
    pub(super) proxies: Arc<ProxyHeaders>,
    pub(super) unread: Unread,
    /// The permit that the connection needs until its first authenticated request.
    pub(super) unauthenticated: UnauthenticatedConnection,
    pub(super) users: Arc<UserConnections>,
}

impl<S: RequestService> ClientConnection<S> {
    /// Spawns a task that serves the connection until one side closes it.
    pub(super) fn spawn(self, stream: TcpStream, socket: Permit) {
        spawn_small(self.run(stream, socket));
    }

    async fn run(self, stream: TcpStream, socket: Permit) {
        // Without TCP_NODELAY, a watch event waits for the client's delayed acknowledgement, up to 40 ms.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
        // The handshake is boxed, because it needs more memory than the code after it. The result is moved as one
        // value, because a destructured value would keep its memory in the future until the end.
        let shaken = Box::pin(self.shake_hands(stream)).await;
        let Some(served) = shaken.map(|(stream, client)| self.serve(stream, client, socket)) else { return };
        served.await;
    }

    /// Reads the PROXY header and performs the TLS handshake. Returns the stream and the client's address, or `None` if
    /// the handshake fails or this process shuts down.
    async fn shake_hands(&self, mut stream: TcpStream) -> Option<(TlsStream<Coalesce<TcpStream>>, SocketAddr)> {
        let handshake = async {
            let client = self.proxies.client(&mut stream, self.peer).await?;
            if speaks_plain_http(&stream).await? {
                stream.write_all(PLAIN_HTTP_ANSWER).await?;
                stream.shutdown().await?;
                return Err(io::Error::other("plain HTTP"));
            }
            Ok((self.tls(stream).await?, client))
        };
        let handshake = tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, handshake);
        let handshake = async {
            tokio::select! {
                ended = handshake => Some(ended),
                () = self.unauthenticated.evicted() => None,
            }
        };
        let Some(ended) = self.stop.run_until_cancelled(handshake).await? else {
            self.metrics.unauthenticated_evicted.inc();
            return None;
        };
        let failure = match ended {
            Ok(Ok((mut stream, client))) => {
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    stream.get_mut().0.defer_flushes();
                }
                return Some((stream, client));
            }
            Ok(Err(error)) => {
                let failure = error.to_string();
                if is_certificate_error(&error) {
                    self.service.report_refused_certificate(self.peer, &failure);
                }
                failure
            }
            Err(_) => "timed out".to_owned(),
        };
        self.metrics.tls_handshake_errors.inc();
        tracing::debug!(peer = %self.peer, error = failure, "TLS handshake failed");
        None
    }

    /// Performs the TLS handshake with the configuration for the client's SNI.
    async fn tls(&self, stream: TcpStream) -> io::Result<TlsStream<Coalesce<TcpStream>>> {
        let own_address = stream.local_addr().ok().map(|address| address.ip().to_canonical());
        let hello = LazyConfigAcceptor::new(Acceptor::default(), Coalesce::new(stream)).await?;
        let config = match hello.client_hello().server_name() {
            Some(asked) => self.tls.config(host_name(asked).as_ref()),
            None => self.tls.config_at(own_address),
        };
        match hello.into_stream(config).into_fallible().await {
            Ok(stream) => Ok(stream),
            Err((error, mut stream)) => {
                // rustls has written a TLS alert with the error, but has not flushed it. This flush sends the alert.
                let _unsent = stream.flush().await;
                Err(error)
            }
        }
    }

    /// Answers requests until one side closes the connection. The connection is boxed before the first await, so that
    /// the task's future stores the connection and its TLS state only once.
    fn serve(
        self,
        stream: TlsStream<Coalesce<TcpStream>>,
        address: SocketAddr,
        socket: Permit,
    ) -> impl Future<Output = ()> {
        let Self { service, stop, goaway, metrics, unread, unauthenticated, users, .. } = self;
        let client = Arc::new(service.client(handshake(&stream, address)));
        let authentication = Arc::new(ConnectionAuthentication::new(unauthenticated, users));
        let outgoing = Arc::new(Outgoing::new(unread));
        let random_goaway = Arc::new(goaway);
        let requests = Arc::new(ConnectionRequests {
            service: Arc::clone(&service),
            client: Arc::clone(&client),
            authentication: Arc::clone(&authentication),
            outgoing: Arc::clone(&outgoing),
            random_goaway: Arc::clone(&random_goaway),
            streams: stream.get_ref().0.streams(),
        });
        let answer = service_fn(move |request| Arc::clone(&requests).answer_request(request));
        let (answers, known) = (Arc::clone(&outgoing), Arc::clone(&authentication));
        let byte_counter = ByteCounter::default();
        let io = TokioIo::new(TrackedStream {
            stream,
            outgoing: answers,
            byte_counter,
            authentication: known,
            _socket: socket,
        });
        let executor = StreamExecutor::default();
        let builder = http_settings::builder(executor.clone());
        let mut connection = Box::pin(builder.serve_connection_with_upgrades(io, answer).into_owned());
        async move {
            let interruption = |reported: ReportedInterruptions| {
                let by = Interruptions {
                    stop: &stop,
                    random_goaway: &random_goaway,
                    authentication: &authentication,
                    outgoing: &outgoing,
                };
                by.next(reported, &metrics)
            };
            let connection_driver =
                drive_connection(connection.as_mut(), Streams::new(executor), interruption, |connection| {
                    connection.graceful_shutdown()
                });
            let ended = match connection_driver.await {
                Ok(ended) => ended,
                Err(why) => {
                    tracing::debug!(client = %address, why, "the connection is closed");
                    return;
                }
            };
            if let Err(error) = ended {
                if let Some(refusal) = refusal_for_error(&*error) {
                    metrics.count_refused(refusal);
                }
                tracing::debug!(client = %address, error, "connection ended");
            }
        }
    }
}

/// Returns the refusal for an HTTP/1.1 head that hyper rejects before it creates a request. Over HTTP/2, h2 itself
/// answers 431 for a head that is too large, and reports nothing.
fn refusal_for_error(end: &(dyn std::error::Error + 'static)) -> Option<ListenerRefusal> {
    let error = end.downcast_ref::<hyper::Error>()?;
    match error {
        error if error.is_parse_too_large() => Some(ListenerRefusal::HeadTooLarge),
        error if error.is_parse() => Some(ListenerRefusal::Malformed),
        _ => None,
    }
}

/// Returns whether a TLS handshake failed because of the client's certificate.
fn is_certificate_error(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(rustls::Error::InvalidCertificate(_)))
}

/// Spawns a connection's task, and checks its size against [`TASK_BYTES_MAX`] at compile time.
fn spawn_small<T: Future<Output = ()> + Send + 'static>(task: T) {
    const { assert!(size_of::<T>() <= TASK_BYTES_MAX, "a connection's task takes more than TASK_BYTES_MAX") };
    tokio::spawn(task);
}

/// Returns the client's certificates and SNI from the TLS handshake.
fn handshake(stream: &TlsStream<Coalesce<TcpStream>>, address: SocketAddr) -> Handshake<'_> {
    let tls = stream.get_ref().1;
    let certificates = tls.peer_certificates().unwrap_or_default();
    Handshake { address, certificates, server_name: tls.server_name().and_then(host_name) }
}

/// Parses the client's SNI. Returns `None` for a name that is invalid as a configured host.
fn host_name(server_name: &str) -> Option<HostName> {
    server_name.parse().ok()
}

/// The answer to a client that sends HTTP without TLS: the text of Go's `net/http` (server.go).
const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Returns whether the connection's first byte is a letter, as in every HTTP method. A TLS handshake begins with the
/// byte 22.
async fn speaks_plain_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    Ok(read == 1 && first[0].is_ascii_uppercase())
}
