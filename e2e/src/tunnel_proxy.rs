//! Runs a proxy in front of a member: an HTTP or HTTPS proxy with CONNECT, or a SOCKS5 proxy.

use crate::certificates::TestCertificates;
use anyhow::{Context, bail, ensure};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// CONNECT over plain HTTP, without encryption between client and proxy.
    Http,
    /// CONNECT over HTTPS, with the proxy's certificate.
    Https,
    /// SOCKS version 5 (RFC 1928), without authentication.
    Socks5,
}

/// A running proxy. Dropping it stops the proxy and closes its tunnels.
#[derive(Debug)]
pub struct TunnelProxy {
    kind: ProxyKind,
    address: SocketAddr,
    authority: String,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl TunnelProxy {
    /// Starts a proxy on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no certificate can be made or no port is free.
    pub async fn start(kind: ProxyKind) -> anyhow::Result<Self> {
        let certificates = TestCertificates::generate("proxy")?;
        let chain = CertificateDer::pem_slice_iter(certificates.serving_certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("read the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(certificates.serving_key.as_bytes()).context("read the key")?;
        let tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let address = listener.local_addr().context("read the port")?;
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            // The end of this task drops the `JoinSet`, which aborts the tasks of all connections.
            let mut all = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let acceptor = acceptor.clone();
                all.spawn(async move {
                    if let Err(error) = serve(kind, stream, &acceptor).await {
                        tracing::debug!(error = format!("{error:#}"), "a connection through the proxy");
                    }
                });
            }
        });
        Ok(Self { kind, address, authority: certificates.authority, connections, task })
    }

    /// The URL of the proxy, as in `proxy-url` of a kubeconfig.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = match self.kind {
            ProxyKind::Http => "http",
            ProxyKind::Https => "https",
            ProxyKind::Socks5 => "socks5",
        };
        format!("{scheme}://{}", self.address)
    }

    /// Certificate authority that signed the proxy's certificate (PEM).
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Number of connections that the proxy has accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for TunnelProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(kind: ProxyKind, stream: TcpStream, acceptor: &TlsAcceptor) -> anyhow::Result<()> {
    stream.set_nodelay(true).context("set TCP_NODELAY")?;
    match kind {
        ProxyKind::Http => connect(stream).await,
        ProxyKind::Https => connect(acceptor.accept(stream).await.context("TLS")?).await,
        ProxyKind::Socks5 => socks5(stream).await,
    }
}

/// Executes an HTTP CONNECT request. The client must send no data before the response.
async fn connect(mut client: impl AsyncRead + AsyncWrite + Unpin) -> anyhow::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.context("read the head")?);
    }
    let head = String::from_utf8(head).context("the head is not UTF-8")?;
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split_once(' ')).map(|(target, _)| target);
    let Some(target) = target else { bail!("no CONNECT: {head}") };
    let member = TcpStream::connect(target).await.with_context(|| format!("connect to {target}"))?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.context("answer")?;
    join(client, member).await
}

/// Executes a SOCKS5 request without authentication. The destination must be an IPv4 address or a host name.
async fn socks5(mut client: TcpStream) -> anyhow::Result<()> {
    let mut greeting = [0; 2];
    client.read_exact(&mut greeting).await.context("read the greeting")?;
    let mut methods = vec![0; greeting[1].into()];
    client.read_exact(&mut methods).await.context("read the methods")?;
    ensure!(greeting[0] == 5 && methods.contains(&0), "{greeting:?} {methods:?}");
    client.write_all(&[5, 0]).await.context("choose no authentication")?;
    let mut request = [0; 4];
    client.read_exact(&mut request).await.context("read the request")?;
    ensure!(request[..2] == [5, 1], "no CONNECT: {request:?}");
    let host = match request[3] {
        1 => {
            let mut address = [0; 4];
            client.read_exact(&mut address).await.context("read the address")?;
            std::net::Ipv4Addr::from(address).to_string()
        }
        3 => {
            let mut name = vec![0; client.read_u8().await.context("read the length")?.into()];
            client.read_exact(&mut name).await.context("read the name")?;
            String::from_utf8(name).context("the name is not UTF-8")?
        }
        other => bail!("addresses of kind {other} are not known"),
    };
    let port = client.read_u16().await.context("read the port")?;
    let member =
        TcpStream::connect((host.as_str(), port)).await.with_context(|| format!("connect to {host}:{port}"))?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.context("answer")?;
    join(client, member).await
}

async fn join(mut client: impl AsyncRead + AsyncWrite + Unpin, mut member: TcpStream) -> anyhow::Result<()> {
    member.set_nodelay(true).context("set TCP_NODELAY")?;
    tokio::io::copy_bidirectional(&mut client, &mut member).await.context("copy")?;
    Ok(())
}
