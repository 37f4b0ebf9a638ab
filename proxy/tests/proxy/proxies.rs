//! Small proxies between client and member, one of each kind: HTTP, HTTP over TLS, and SOCKS5.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;

use crate::member::{Authority, Options, server_config};
use crate::upgrades::read_head;

/// Starts a proxy of each kind. Returns the URL of each proxy, and a channel with the requests that the proxy received.
/// `authority` signs the TLS proxy's certificate.
pub(crate) async fn of_each_kind(authority: &Authority) -> [(String, UnboundedReceiver<String>); 3] {
    let (http, http_requests) = connect_proxy().await;
    let (https, https_requests) = connect_proxy_over_tls(authority).await;
    let (socks, socks_requests) = socks_proxy().await;
    [
        (format!("http://{http}"), http_requests),
        (format!("https://{https}"), https_requests),
        (format!("socks5://user:p%40ss!@{socks}"), socks_requests),
    ]
}

/// An HTTP proxy that supports only CONNECT. The returned channel receives the head of each request.
pub(crate) async fn connect_proxy() -> (SocketAddr, UnboundedReceiver<String>) {
    let (sender, receiver) = unbounded_channel();
    let address = listen(move |near| connect(near, sender.clone())).await;
    (address, receiver)
}

async fn connect_proxy_over_tls(authority: &Authority) -> (SocketAddr, UnboundedReceiver<String>) {
    let options = Options { alpn: vec!["http/1.1"], ..Options::default() };
    let acceptor = TlsAcceptor::from(server_config(authority, &options));
    let (sender, receiver) = unbounded_channel();
    let address = listen(move |near| {
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        async move { connect(acceptor.accept(near).await.unwrap(), sender).await }
    });
    (address.await, receiver)
}

/// A SOCKS5 proxy that requires a user name and a password. It supports only CONNECT to IPv4 addresses. The returned
/// channel receives these addresses.
pub(crate) async fn socks_proxy() -> (SocketAddr, UnboundedReceiver<String>) {
    let (sender, receiver) = unbounded_channel();
    let address = listen(move |near| socks(near, sender.clone())).await;
    (address, receiver)
}

/// Accepts connections on a free port, and runs `serve` in a task for each connection.
async fn listen<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            tokio::spawn(serve(near));
        }
    });
    address
}

async fn connect(mut near: impl AsyncRead + AsyncWrite + Unpin, requests: UnboundedSender<String>) {
    let head = read_head(&mut near).await;
    let to = head.split(' ').nth(1).unwrap().to_owned();
    let _is_received = requests.send(head);
    let far = TcpStream::connect(to).await.unwrap();
    near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    join(near, far).await;
}

async fn socks(mut near: TcpStream, requests: UnboundedSender<String>) {
    let mut methods = [0; 2];
    near.read_exact(&mut methods).await.unwrap();
    near.read_exact(&mut vec![0; usize::from(methods[1])]).await.unwrap();
    near.write_all(&[5, 2]).await.unwrap();
    let mut login = [0; 12];
    near.read_exact(&mut login).await.unwrap();
    assert_eq!(&login, b"\x01\x04user\x05p@ss!");
    near.write_all(&[1, 0]).await.unwrap();
    let mut connect = [0; 10];
    near.read_exact(&mut connect).await.unwrap();
    assert_eq!(&connect[..4], [5, 1, 0, 1]);
    let ip = Ipv4Addr::new(connect[4], connect[5], connect[6], connect[7]);
    let to = SocketAddr::from((ip, u16::from_be_bytes([connect[8], connect[9]])));
    let _is_received = requests.send(to.to_string());
    let far = TcpStream::connect(to).await.unwrap();
    near.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    join(near, far).await;
}

/// Copies bytes in both directions. If one direction ends, the other direction stays open.
async fn join(mut near: impl AsyncRead + AsyncWrite + Unpin, mut far: TcpStream) {
    let _ended = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}
