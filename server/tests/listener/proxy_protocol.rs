//! Tests of the PROXY protocol: a configured load balancer sends the client's address, and the listener trusts no other
//! peer.

use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tributary_listener::{Bounds, ProxyProtocolPeers};

use crate::StandIn;
use crate::fixture::{Server, start, start_behind, text};

/// PROXY headers of a client at 203.0.113.9:4660, in versions 1 and 2.
const VERSION_1: &[u8] = b"PROXY TCP4 203.0.113.9 192.0.2.1 4660 443\r\n";
const VERSION_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\xc0\0\x02\x01\x12\x34\x01\xbb";

async fn behind(networks: &[&str]) -> Server {
    let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
    start_behind(ProxyProtocolPeers(networks), Bounds::default(), StandIn::default(), None).await
}

/// Sends `first` before the TLS handshake. Returns the client address that the handler receives, and the address of the
/// test's socket. Returns an error if the listener closes the connection.
async fn seen(server: &Server, first: &[u8]) -> Result<(String, String), std::io::Error> {
    let mut stream = TcpStream::connect(server.address).await?;
    let own = stream.local_addr()?.to_string();
    // Two writes make the listener's first read return only a part of the header.
    let (begun, rest) = first.split_at(first.len() / 2);
    for part in [begun, rest] {
        stream.write_all(part).await?;
        tokio::task::yield_now().await;
    }
    let stream = server.over(stream, &rustls::version::TLS13, "http/1.1").await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let answer =
        sender.send_request(server.request("/peer").body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    Ok((text(answer).await, own))
}

#[tokio::test]
async fn proxy_header_of_a_configured_peer_sets_the_client_address() {
    let server = behind(&["192.0.2.0/24", "127.0.0.0/8"]).await;
    for header in [VERSION_1, VERSION_2] {
        assert_eq!(seen(&server, header).await.unwrap().0, "203.0.113.9:4660");
    }
    // A load balancer sends this PROXY header for its own health checks. The listener then uses the socket's address as
    // the client's address.
    let (address, own) = seen(&server, b"PROXY UNKNOWN\r\n").await.unwrap();
    assert_eq!(address, own);
    // Each connection from a load balancer needs exactly one header.
    assert!(seen(&server, b"").await.is_err());
    assert!(seen(&server, &[VERSION_1, VERSION_1].concat()).await.is_err(), "once");
}

#[tokio::test]
async fn proxy_header_of_an_unknown_peer_is_refused() {
    for server in [behind(&["192.0.2.0/24", "::1"]).await, start(StandIn::default()).await] {
        for header in [VERSION_1, VERSION_2] {
            assert!(seen(&server, header).await.is_err());
        }
        let (address, own) = seen(&server, b"").await.unwrap();
        assert_eq!(address, own);
    }
}

#[tokio::test]
async fn peer_with_an_unfinished_proxy_header_is_disconnected() {
    let server = behind(&["127.0.0.1"]).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    silent.write_all(&VERSION_1[..20]).await.unwrap();
    assert_eq!(seen(&server, VERSION_1).await.unwrap().0, "203.0.113.9:4660");
    tokio::time::pause();
    assert!(matches!(silent.read(&mut [0; 1]).await, Ok(0) | Err(_)));
}
