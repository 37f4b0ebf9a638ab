//! Listens on the member's port: TCP, TLS, and HTTP/2 or HTTP/1.1, whichever the client negotiates.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::Api;
use crate::certificate::SimulatedCertificates;
use crate::line::{LinkStream, MemberLink};

/// The pause after a failed `accept` or `bind`, for example with too many open files or a port in use.
const RETRY: Duration = Duration::from_millis(20);
/// The maximum number of streams per connection. The default of kube-apiserver is 100; servers of a large fleet have a
/// higher limit.
const STREAMS_MAX: u32 = 1000;
/// The maximum size of request headers, in bytes, for long resourceVersions and continue tokens. The value is Go's
/// limit.
const HEADERS_MAX: u32 = 1 << 20;

/// Creates a TLS acceptor with this certificate for HTTP/1.1, and for HTTP/2 if `http2` is true.
pub(crate) fn tls(certificates: SimulatedCertificates, http2: bool) -> Result<TlsAcceptor, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates.chain, certificates.key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until `stop` is cancelled, and closes or opens the port on command.
pub(crate) async fn run(
    socket: TcpListener,
    tls: TlsAcceptor,
    api: Arc<Api>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    let Ok(address) = socket.local_addr() else { return };
    let mut socket = Some(socket);
    let mut _reserved = None;
    let faults = api.faults().clone();
    let mut listening = faults.listening.subscribe();
    loop {
        if !*listening.borrow_and_update() {
            socket = None;
            _reserved = reserve(address).ok();
            faults.disconnect.send_modify(|count| *count += 1);
        } else if socket.is_none() {
            socket = TcpListener::bind(address).await.ok();
            if socket.is_some() {
                _reserved = None;
            }
        }
        faults.listens.send_replace(socket.is_some());
        let retry = socket.is_none() && *listening.borrow();
        tokio::select! {
            () = stop.cancelled() => return,
            _ = listening.changed() => {}
            () = tokio::time::sleep(RETRY), if retry => {}
            accepted = accept(socket.as_ref()) => match accepted {
                Ok(stream) => {
                    let tls = tls.clone();
                    let secured = move |line| async move {
                        let _ = stream.set_nodelay(true);
                        tls.accept(LinkStream::new(stream, line)).await
                    };
                    tasks.spawn(connection(secured, true, api.clone(), faults.disconnect.subscribe(), stop.clone()));
                }
                Err(error) => {
                    tracing::debug!(%error, "accept failed");
                    tokio::time::sleep(RETRY).await;
                }
            },
        }
    }
}

/// Accepts connections from this process, without TLS, until `stop` is cancelled. Refuses connections while the port is
/// closed.
pub(crate) async fn run_in_process(
    mut dialed: mpsc::UnboundedReceiver<DuplexStream>,
    api: Arc<Api>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    let faults = api.faults().clone();
    let mut listening = faults.listening.subscribe();
    loop {
        let listens = *listening.borrow_and_update();
        if !listens {
            faults.disconnect.send_modify(|count| *count += 1);
        }
        faults.listens.send_replace(listens);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = listening.changed() => {}
            stream = dialed.recv() => {
                let Some(stream) = stream else { return };
                // While the port is closed, the stream is dropped, which refuses the connection.
                if listens {
                    let plain = |line| std::future::ready(Ok(LinkStream::new(stream, line)));
                    tasks.spawn(connection(plain, false, api.clone(), faults.disconnect.subscribe(), stop.clone()));
                }
            }
        }
    }
}

/// Creates a socket that reserves a port without listening. The system refuses connections to the port, and no other
/// process gets the port. A listener of this process can be bound to the same port, because the socket and the listener
/// allow the reuse of the address.
fn reserve(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(socket: Option<&TcpListener>) -> std::io::Result<TcpStream> {
    match socket {
        Some(socket) => socket.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Serves a connection until the client disconnects, a fault closes the connection, or the member stops. `open` wraps
/// the stream in a [`LinkStream`] and in TLS. With `dated`, responses have a `Date` header, whose bytes change each
/// second. The caller subscribes to `disconnect`, because the port may close before the first poll of this future.
async fn connection<S, F>(
    open: impl FnOnce(Arc<MemberLink>) -> F + Send,
    dated: bool,
    api: Arc<Api>,
    mut disconnect: watch::Receiver<u64>,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = std::io::Result<S>> + Send,
{
    let faults = api.faults().clone();
    let _open = faults.connection_opened();
    let serve = async {
        let stream = open(faults.line.clone()).await?;
        let service = service_fn(|request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.handle(request).await) }
        });
        let mut server = auto::Builder::new(TokioExecutor::new());
        server.http1().timer(TokioTimer::new());
        server
            .http2()
            .auto_date_header(dated)
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADERS_MAX)
            .initial_connection_window_size(1 << 20)
            .initial_stream_window_size(1 << 18);
        server.serve_connection_with_upgrades(TokioIo::new(stream), service).await
    };
    tokio::select! {
        () = stop.cancelled() => {}
        _ = disconnect.changed() => {}
        served = serve => if let Err(error) = served {
            tracing::debug!(error = %error, "connection ended");
        },
    }
}
