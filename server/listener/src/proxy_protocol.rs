//! The PROXY protocol (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>): a load balancer announces the
//! client's address at the beginning of each connection.
//!
//! ```text
//! peer ─┬─ named by --proxy-protocol-from ─▶ header, version 1 or 2 ─▶ the client's address, then TLS
//! └─ any other ─────────────────────▶ TLS: a PROXY header is refused
//! ```
//!
//! A configured peer must send a header. If headers were optional, a client behind a proxy without headers could send a
//! forged header.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use ppp::v2::{Addresses, Command, Protocol};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::settings::ProxyProtocolPeers;

/// The first bytes of a PROXY header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The length of the fixed part of a PROXY header of version 2, in bytes. Its last two bytes contain the length of the
/// part that follows, with the addresses.
const FIXED_BYTES: usize = 16;
/// The maximum length of a PROXY header of version 1, including its line end, in bytes. The PROXY protocol sets this
/// limit.
const LINE_BYTES_MAX: usize = 107;
/// The limit for the part of a version 2 header after its fixed part, in bytes. Addresses take 36 bytes, and load
/// balancers add some hundred bytes about the client. The protocol requires receivers to accept 536 bytes.
const FOLLOWING_BYTES_MAX: usize = 4096;

/// Reads the PROXY headers of configured peers. Logs when peers stop sending headers, and when they start again.
#[derive(Debug, Default)]
pub(super) struct ProxyHeaders {
    peers: ProxyProtocolPeers,
    /// True if the last connection from a configured peer had no valid PROXY header.
    are_missing: AtomicBool,
}

impl ProxyHeaders {
    pub(super) fn from_peers(peers: ProxyProtocolPeers) -> Self {
        Self { peers, are_missing: AtomicBool::new(false) }
    }

    /// Returns the client's address: the address in the PROXY header of a configured peer, or else `peer`. Reads no
    /// byte after the header. This function has no timeout.
    ///
    /// # Errors
    /// The header is missing or invalid, or reading the stream fails.
    pub(super) async fn client(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
        peer: SocketAddr,
    ) -> io::Result<SocketAddr> {
        let client = self.peers.client(stream, peer).await;
        // In two cases, the result does not show whether headers are missing, so `are_missing` stays unchanged: the
        // peer is not configured to send headers, or the peer closed the connection before its first byte.
        let is_missing = match &client {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => true,
            Ok(_) if self.peers.contains(peer.ip()) => false,
            _ => return client,
        };
        match (self.are_missing.swap(is_missing, Ordering::Relaxed), &client) {
            (false, Err(error)) => {
                tracing::warn!(%peer, %error,
                    "a peer in --proxy-protocol-from sends connections without a valid PROXY header; they are closed");
            }
            (true, Ok(_)) => tracing::info!(%peer, "peers send valid PROXY headers again"),
            _ => {}
        }
        client
    }
}

impl ProxyProtocolPeers {
    async fn client(&self, stream: &mut (impl AsyncRead + Unpin), peer: SocketAddr) -> io::Result<SocketAddr> {
        if !self.contains(peer.ip()) {
            return Ok(peer);
        }
        // PROXY headers of both versions are longer than the signature of version 2, so this many bytes can be read
        // first.
        let mut header = vec![0; SIGNATURE.len()];
        stream.read_exact(&mut header).await?;
        let source = if header == SIGNATURE {
            follow_length(stream, &mut header).await?;
            parse_version_2(&header)?
        } else {
            follow_line(stream, &mut header).await?;
            parse_version_1(&header)?
        };
        Ok(source.unwrap_or(peer))
    }
}

fn refused(problem: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("PROXY header: {problem}"))
}

/// Reads the remaining bytes of a version 2 header.
async fn follow_length(stream: &mut (impl AsyncRead + Unpin), header: &mut Vec<u8>) -> io::Result<()> {
    header.resize(FIXED_BYTES, 0);
    stream.read_exact(&mut header[SIGNATURE.len()..]).await?;
    let following = usize::from(u16::from_be_bytes([header[FIXED_BYTES - 2], header[FIXED_BYTES - 1]]));
    if following > FOLLOWING_BYTES_MAX {
        return Err(refused(format_args!("{following} bytes follow, at most {FOLLOWING_BYTES_MAX} may")));
    }
    header.resize(FIXED_BYTES + following, 0);
    stream.read_exact(&mut header[FIXED_BYTES..]).await.map(drop)
}

/// Reads the remaining bytes of a version 1 header one by one, because the bytes after its line end belong to TLS.
async fn follow_line(stream: &mut (impl AsyncRead + Unpin), header: &mut Vec<u8>) -> io::Result<()> {
    if !header.starts_with(b"PROXY ") {
        return Err(refused("the header is missing"));
    }
    while !header.ends_with(b"\r\n") {
        if header.len() >= LINE_BYTES_MAX {
            return Err(refused("the line of the header has no end"));
        }
        header.push(stream.read_u8().await?);
    }
    Ok(())
}

/// Parses a PROXY header of version 1. Returns `None` for `PROXY UNKNOWN`, which has no client address. Load balancers
/// send it for their own health checks.
fn parse_version_1(header: &[u8]) -> io::Result<Option<SocketAddr>> {
    let header = ppp::v1::Header::try_from(header).map_err(refused)?;
    Ok(match header.addresses {
        ppp::v1::Addresses::Unknown => None,
        ppp::v1::Addresses::Tcp4(it) => Some((it.source_address, it.source_port).into()),
        ppp::v1::Addresses::Tcp6(it) => Some((it.source_address, it.source_port).into()),
    })
}

/// Parses a PROXY header of version 2. Returns `None` for a header without a client's IP address: a connection of the
/// load balancer itself (`LOCAL`), a Unix socket, or an unspecified protocol.
fn parse_version_2(header: &[u8]) -> io::Result<Option<SocketAddr>> {
    let header = ppp::v2::Header::try_from(header).map_err(refused)?;
    if header.command == Command::Local {
        return Ok(None);
    }
    match (header.protocol, header.addresses) {
        (Protocol::Stream, Addresses::IPv4(it)) => Ok(Some((it.source_address, it.source_port).into())),
        (Protocol::Stream, Addresses::IPv6(it)) => Ok(Some((it.source_address, it.source_port).into())),
        (Protocol::Stream, Addresses::Unix(_)) | (Protocol::Unspecified, _) | (_, Addresses::Unspecified) => Ok(None),
        (Protocol::Datagram, _) => Err(refused("the header is for datagrams")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::settings::PeerNetwork;

    const TLS: &[u8] = b"\x16\x03\x01 and what follows";

    fn peers(text: &str) -> ProxyProtocolPeers {
        ProxyProtocolPeers(text.split(',').map(|network| network.parse().unwrap()).collect())
    }

    fn version_2(command: u8, family: u8, following: &[u8]) -> Vec<u8> {
        let length = u16::try_from(following.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family][..], &length, following].concat()
    }

    /// Returns the client's address from a header, and the bytes after the header, which belong to TLS.
    async fn client(header: &[u8]) -> Result<(String, Vec<u8>), String> {
        let sent = [header, TLS].concat();
        let mut stream = &sent[..];
        let client = peers("192.0.2.0/24").client(&mut stream, "192.0.2.1:7".parse().unwrap()).await;
        client.map(|client| (client.to_string(), stream.to_vec())).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn proxy_header_yields_the_client_address_and_leaves_later_bytes() {
        let ipv4 = [203, 0, 113, 9, 192, 0, 2, 1, 0x12, 0x34, 0x1b, 0xb];
        let mut ipv6 = [0; 36];
        ipv6[..2].copy_from_slice(&[0x20, 0x01]);
        ipv6[15] = 9;
        ipv6[32..34].copy_from_slice(&[0x12, 0x34]);
        let with_more = [&ipv4[..], &[0xee, 0, 1, b'x']].concat();
        for (header, expected) in [
            (b"PROXY TCP4 203.0.113.9 192.0.2.1 4660 443\r\n".to_vec(), "203.0.113.9:4660"),
            (b"PROXY TCP6 2001::9 2001::1 4660 443\r\n".to_vec(), "[2001::9]:4660"),
            (b"PROXY UNKNOWN\r\n".to_vec(), "192.0.2.1:7"),
            (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec(), "192.0.2.1:7"),
            (version_2(0x21, 0x11, &ipv4), "203.0.113.9:4660"),
            (version_2(0x21, 0x11, &with_more), "203.0.113.9:4660"),
            (version_2(0x21, 0x21, &ipv6), "[2001::9]:4660"),
            // Headers without a client's IP address, for example of a load balancer's health checks. The result is the
            // load balancer's address.
            (version_2(0x20, 0x00, b""), "192.0.2.1:7"),
            (version_2(0x20, 0x11, &ipv4), "192.0.2.1:7"),
            (version_2(0x21, 0x00, b""), "192.0.2.1:7"),
            (version_2(0x21, 0x31, &[0; 216]), "192.0.2.1:7"),
        ] {
            let (address, left) = client(&header).await.unwrap();
            assert_eq!((address.as_str(), left.as_slice()), (expected, TLS), "{header:?}");
        }
    }

    #[tokio::test]
    async fn configured_peer_without_a_valid_proxy_header_is_refused() {
        let long = [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 200], b"\r\n".to_vec()].concat();
        for header in [
            b"".to_vec(),
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            b"proxy TCP4 203.0.113.9 192.0.2.1 4660 443\r\n".to_vec(),
            b"PROXY TCP4 203.0.113.9 192.0.2.1 4660\r\n".to_vec(),
            b"PROXY TCP4 203.0.113.900 192.0.2.1 4660 443\r\n".to_vec(),
            b"PROXY TCP4 203.0.113.9 192.0.2.1 46600 443000\r\n".to_vec(),
            long,
            version_2(0x21, 0x11, &[0; 4]),
            version_2(0x21, 0x12, &[0; 12]),
            version_2(0x31, 0x11, &[0; 12]),
            version_2(0x22, 0x11, &[0; 12]),
            version_2(0x21, 0x11, &vec![0; FOLLOWING_BYTES_MAX + 1]),
        ] {
            let answer = client(&header).await;
            assert!(answer.as_ref().is_err_and(|error| error.starts_with("PROXY header: ")), "{header:?} {answer:?}");
        }
        let mut cut = &b"PROXY TCP4 203"[..];
        assert!(peers("::/0,0.0.0.0/0").client(&mut cut, "192.0.2.1:7".parse().unwrap()).await.is_err());
    }

    #[tokio::test]
    async fn proxy_header_is_read_only_from_configured_networks() {
        let header = b"PROXY TCP4 203.0.113.9 192.0.2.1 4660 443\r\n";
        for (networks, peer, is_one) in [
            ("192.0.2.0/24", "192.0.2.255:1", true),
            ("192.0.2.0/24", "192.0.3.0:1", false),
            ("192.0.2.7", "192.0.2.7:1", true),
            ("192.0.2.7", "192.0.2.8:1", false),
            ("192.0.2.0/24", "[::ffff:192.0.2.7]:1", true),
            ("fd00::/8,10.0.0.0/8", "[fd12::1]:1", true),
            ("fd00::/8,10.0.0.0/8", "10.1.2.3:1", true),
            ("fd00::/8,10.0.0.0/8", "[fe80::1]:1", false),
        ] {
            let (mut stream, peer) = (&header[..], peer.parse().unwrap());
            let client = peers(networks).client(&mut stream, peer).await.unwrap();
            assert_eq!(client == peer, !is_one, "{networks} {peer}");
            assert_eq!(stream.len(), if is_one { 0 } else { header.len() }, "what others send is TLS's");
        }
        for text in ["", "10.0.0.0/33", "10.0.0", "example.com", "10.0.0.0/8 "] {
            assert!(text.parse::<PeerNetwork>().is_err(), "{text:?}");
        }
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn missing_proxy_headers_are_logged_once() {
        let log = Log::default();
        // A second subscriber is needed. With a single subscriber, tracing caches the first thread's filter result of
        // each call site for all threads.
        let _another = tracing::Dispatch::new(tracing_subscriber::registry());
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        let _guard = tracing::subscriber::set_default(lines.finish());
        let headers = ProxyHeaders::from_peers(peers("192.0.2.0/24"));
        let line = b"PROXY UNKNOWN\r\n";
        for (peer, sent, expected) in [
            ("203.0.113.1:7", TLS, ""),
            ("192.0.2.1:7", line, ""),
            // A port scan opens a connection and closes it at once, without a byte.
            ("192.0.2.1:7", b"", ""),
            ("192.0.2.1:7", TLS, "WARN"),
            ("192.0.2.2:7", TLS, ""),
            ("203.0.113.1:7", TLS, ""),
            ("192.0.2.1:7", line, "INFO"),
            ("192.0.2.1:7", line, ""),
        ] {
            let _whether = headers.client(&mut &sent[..], peer.parse().unwrap()).await;
            let told = String::from_utf8(std::mem::take(&mut *log.0.lock())).unwrap();
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{peer} {told:?}");
        }
    }
}
