//! One client connection: a PROXY header where its peer sends one, the TLS handshake, then HTTP/2 or HTTP/1.1 with upgrades.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::coalesce::Coalesce;
use super::goaway::Parting;
use super::heads::HeldHead;
use super::outgoing::Outgoing;
use super::proxy_protocol::ProxyHeaders;
use super::refusal::{HEADERS_MAX, ListenerRefusal};
use super::strangers::Stranger;
use super::streams::{Begun, Streams};
use super::tls::TlsSettings;
use super::unread::Unread;
use super::user_connections::{UserConnection, UserConnections};
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::{HostName, Permit};

use crate::authentication::ClientChain;
use crate::front::{AuthenticationOutcome, Client, Front, Room};
use crate::handler::Handler;

/// The limit of a TLS handshake: Go's `net/http` clients give it 10 s, too.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams of one HTTP/2 connection. A dashboard opens one watch per resource and namespace over one connection, and
/// many clients queue silently beyond the limit; hyper's 200 and kube-apiserver's 100 are too few for a merged view.
const STREAMS_MAX: u32 = 2000;
/// The flow-control window of one request body, in bytes: a whole object (kube-apiserver takes 3 MiB)
/// in few round trips.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The window of all request bodies of a connection, in bytes: a body that a slow member does not take must not stop
/// the connection's others.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// What HTTP/2 takes of one answer before the socket does, in bytes. Two frames of ours keep it busy; hyper's own
/// 400 KiB would be held for each stream of a reader that is stuck.
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// The largest request head, in bytes. A compact resourceVersion of 1,000 clusters is 7 KiB and impersonation adds a
/// header per group; hyper's own 16 KiB is too small.
const HEADER_LIST_BYTES_MAX: u32 = 1 << 20;
/// The quiet time after which an HTTP/2 client is pinged: a laptop that went to sleep must not hold its
/// watches for ever.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The time that a ping may take: longer than a train's tunnel, as in client-go (15 s) and a little more.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The limit of an HTTP/1.1 request head, idle time before it included. Go clients drop idle connections after 90 s, so
/// that they, not we, close first, and no request meets a closing connection.
const HTTP1_HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a connection may live without one request that had the token. 30 s: no client opens one this long before it
/// uses it, and who has no token shall not hold what is there for those who have.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the last answers to a stranger may take once its connection is being closed: it may not read them.
const STRANGER_FAREWELL: Duration = Duration::from_secs(5);

/// A connection before its handshake.
pub(super) struct ClientConnection<H> {
    pub(super) tls: Arc<TlsSettings>,
    pub(super) front: Arc<Front<H>>,
    pub(super) stop: CancellationToken,
    /// The other end of the socket: the client, or a proxy that says where it comes from.
    pub(super) peer: SocketAddr,
    pub(super) proxies: Arc<ProxyHeaders>,
    pub(super) unread: Unread,
    /// Its place among those on which nobody is known yet.
    pub(super) stranger: Stranger,
    /// The connections of each user.
    pub(super) users: Arc<UserConnections>,
}

impl<H: Handler> ClientConnection<H> {
    /// Serves the connection until either side closes it.
    pub(super) async fn run(self, stream: TcpStream, socket: Permit) {
        // Without it a watch event waits for the client's delayed acknowledgement, up to 40 ms.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
        if let Some((stream, client)) = self.shake_hands(stream).await {
            self.serve(stream, client, socket).await;
        }
    }

    /// The connection after its handshake, and where it comes from; `None` where there is none, because it failed or the
    /// server stops.
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
                () = self.stranger.sent_away() => None,
            }
        };
        let Some(ended) = self.stop.run_until_cancelled(handshake).await? else {
            self.front.own_metrics().strangers_sent_away.inc();
            return None;
        };
        let failure = match ended {
            Ok(Ok((mut stream, client))) => {
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    stream.get_mut().0.defer_flushes();
                }
                return Some((stream, client));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timed out".to_owned(),
        };
        self.front.own_metrics().tls_handshake_errors.inc();
        tracing::debug!(peer = %self.peer, error = failure, "TLS handshake failed");
        None
    }

    /// Speaks TLS as the host wants it that the client asks for.
    async fn tls(&self, stream: TcpStream) -> io::Result<TlsStream<Coalesce<TcpStream>>> {
        let own_address = stream.local_addr().ok().map(|address| address.ip().to_canonical());
        let hello = LazyConfigAcceptor::new(Acceptor::default(), Coalesce::new(stream)).await?;
        let config = match hello.client_hello().server_name() {
            Some(asked) => self.tls.config(host_name(asked).as_ref()),
            None => self.tls.config_at(own_address),
        };
        hello.into_stream(config).await
    }

    /// Answers requests until either side closes the connection.
    async fn serve(self, stream: TlsStream<Coalesce<TcpStream>>, address: SocketAddr, socket: Permit) {
        let front = self.front;
        let shaken = stream.get_ref().1;
        let chain = Arc::new(ClientChain::new(shaken.peer_certificates().unwrap_or_default()));
        let client = Arc::new(Client { address, chain, server_name: shaken.server_name().and_then(host_name) });
        let (acquaintance, outgoing) =
            (Arc::new(Acquaintance::new(self.stranger, self.users)), Arc::new(Outgoing::new(self.unread)));
        let (known, answers, own) = (Arc::clone(&acquaintance), Arc::clone(&outgoing), Arc::clone(&front));
        let (asking, streams) = (Arc::clone(&client), stream.get_ref().0.streams());
        let parting = Arc::new(Parting::by(front.goaway_chance()));
        let drawn = Arc::clone(&parting);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (front, known, answers) = (Arc::clone(&front), Arc::clone(&known), Arc::clone(&answers));
            let (client, drawn, open) = (Arc::clone(&asking), Arc::clone(&drawn), streams.open());
            async move {
                let (method, version) = (request.method().clone(), request.version());
                let metered = |answer| {
                    let metered = answers.meter(&method, answer, open);
                    Ok::<_, Infallible>(metered.unwrap_or_else(|refusal| front.refused(refusal)))
                };
                if request.headers().len() > HEADERS_MAX {
                    return metered(front.refuse(request, &client, ListenerRefusal::TooManyHeaders));
                }
                let bytes = head_bytes(&request);
                let Some(head) = known.hold(bytes) else {
                    return metered(front.refuse(request, &client, ListenerRefusal::TooManyUnknown));
                };
                let has_room = answers.room(bytes).await;
                request.extensions_mut().insert(answers.answer_room(&method));
                // Boxed, so that a stream whose answer goes on for hours is not as large as the whole way of a request.
                let note = |outcome: AuthenticationOutcome<'_>| {
                    drop(head);
                    known.note(outcome)
                };
                let answer = Box::pin(front.call(request, &client, note, has_room)).await;
                drawn.draw(version, &answer);
                metered(answer)
            }
        });
        let io = TokioIo::new(TrackedStream {
            stream,
            outgoing: Arc::clone(&outgoing),
            _acquaintance: Arc::clone(&acquaintance),
            _socket: socket,
        });
        let begun = Begun::default();
        let builder = builder(begun.clone());
        let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
        let mut streams = Streams::of(begun);
        let mut is_leaving = false;
        let ended = loop {
            tokio::select! {
                ended = streams.drive(connection.as_mut()) => break ended,
                // What is under way goes on: over HTTP/2 the client is told to send nothing more (GOAWAY), and then, once
                // it has heard, which of its requests was the last.
                () = leave(&self.stop, &parting), if !is_leaving => {
                    is_leaving = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = acquaintance.refused() => {
                    connection.as_mut().graceful_shutdown();
                    let farewell = streams.drive(connection.as_mut());
                    break tokio::time::timeout(STRANGER_FAREWELL, farewell).await.unwrap_or(Ok(()));
                }
                () = acquaintance.sent_away() => {
                    own.own_metrics().strangers_sent_away.inc();
                    tracing::debug!(client = %client.address, "nobody is known on the connection, and it makes room for another");
                    return;
                }
                () = outgoing.stuck(&own.own_metrics().answers_stuck) => {
                    own.own_metrics().connections_stuck.inc();
                    tracing::debug!(client = %client.address, "the client reads none of its answers; its connection is closed");
                    return;
                }
            }
        };
        if let Err(error) = ended {
            if let Some(refusal) = ListenerRefusal::of_end(&*error) {
                own.own_metrics().count_refused(refusal);
            }
            tracing::debug!(client = %client.address, error, "connection ended");
        }
    }
}

/// Ends when a connection is to take no more requests: the server stops, or one of them was the last. Cancel: safe.
async fn leave(stop: &CancellationToken, parting: &Parting) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = parting.is_due() => {}
    }
}

/// The host that a client asks for in TLS; a name that nobody can be configured with is none.
fn host_name(server_name: &str) -> Option<HostName> {
    server_name.parse().ok()
}

/// What a request has in its head, in bytes, as HTTP/2 counts it (RFC 9113, 6.5.2).
fn head_bytes<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    request.headers().iter().fold(target, |bytes, (name, value)| bytes + name.as_str().len() + value.len() + 32)
}

/// What a client is told that speaks plain HTTP: Go's words (`net/http` server.go), which people know.
const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Whether the first byte is a letter, as of a method: a TLS record of a handshake begins with 22.
async fn speaks_plain_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    Ok(read == 1 && first[0].is_ascii_uppercase())
}

/// How a connection is spoken to, which leaves its streams there.
fn builder(begun: Begun) -> auto::Builder<Begun> {
    let mut builder = auto::Builder::new(begun);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HTTP1_HEAD_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_LIST_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Whether a request of a connection has had the token. One that never had is closed: after a 401, as kube-apiserver
/// does it against floods of requests that cost the sender nothing (CVE-2023-44487), or after a while.
struct Acquaintance {
    stranger: Stranger,
    known: AtomicBool,
    users: Arc<UserConnections>,
    /// Its place among those of the user who was known on it first.
    place: OnceLock<UserConnection>,
    /// It is to be closed, unless somebody is known on it.
    refused: Notify,
}

impl Acquaintance {
    fn new(stranger: Stranger, users: Arc<UserConnections>) -> Self {
        let (known, place) = (AtomicBool::new(false), OnceLock::new());
        Self { stranger, known, users, place, refused: Notify::new() }
    }

    /// Holds the head of a request, as far as nobody is known yet. `None` where there is no room for it.
    fn hold(&self, bytes: usize) -> Option<Option<HeldHead>> {
        match self.known.load(Ordering::Relaxed) {
            true => Some(None),
            false => self.stranger.hold(bytes).map(Some),
        }
    }

    /// Ends when a connection on which nobody is known has to make room for another. Cancel: safe.
    async fn sent_away(&self) {
        self.stranger.sent_away().await;
        if self.known.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }

    /// Notes who asked. Whoever is known on it first has it; there may be no room for one more of theirs.
    fn note(&self, outcome: AuthenticationOutcome<'_>) -> Room {
        match outcome {
            AuthenticationOutcome::Known { .. } if self.known.load(Ordering::Relaxed) => Room::Enough,
            AuthenticationOutcome::Known { user } => match user.map(|user| self.users.take(user)) {
                Some(None) => {
                    self.refused.notify_one();
                    Room::Connections
                }
                place => {
                    // Of two requests at once one has taken it; the other gives its own back.
                    let _one_is_enough = place.flatten().map(|place| self.place.set(place));
                    self.known.store(true, Ordering::Relaxed);
                    self.stranger.is_known();
                    Room::Enough
                }
            },
            AuthenticationOutcome::Unauthorized => {
                self.refused.notify_one();
                Room::Enough
            }
        }
    }

    /// Ends when the connection is to be closed. Nothing that others do on a connection that is known closes it.
    async fn refused(&self) {
        let _ = tokio::time::timeout(STRANGER_TIMEOUT, self.refused.notified()).await;
        if self.known.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }
}

/// A socket with what it occupies: an upgrade takes both along, so a tunnel is counted until it closes.
struct TrackedStream {
    stream: TlsStream<Coalesce<TcpStream>>,
    outgoing: Arc<Outgoing>,
    /// It counts as one of its user's as long as it is open.
    _acquaintance: Arc<Acquaintance>,
    _socket: Permit,
}

impl TrackedStream {
    fn noted<T>(&self, written: Poll<T>) -> Poll<T> {
        self.outgoing.wrote(written.is_pending());
        written
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.noted(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.noted(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
