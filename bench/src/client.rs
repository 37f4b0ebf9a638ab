//! The HTTP client of all measurements. The client speaks HTTP/2 over TLS, opens one connection at a time, and discards
//! the bodies.
//!
//! kube-apiserver and Tributary are measured with the same client. The client does as little as possible, because a
//! client that parses is itself the bottleneck.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::ConfigExt;
use rustls_pki_types::ServerName;
use secrecy::ExposeSecret;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

/// The flow-control windows in bytes, per stream and per connection: so large that no list waits for a window.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// The number of bytes to read from a socket at once. rustls alone reads 4 KiB at a time, and two system calls per
/// event would be a large part of the measured time.
const SOCKET_BUFFER: usize = 256 << 10;

/// A server that is measured, and the settings to connect to it.
#[derive(Clone)]
pub(crate) struct Contestant {
    name: &'static str,
    authority: String,
    prefix: String,
    tls: TlsConnector,
    headers: HeaderMap,
}

/// The measurements of a response that was read to its end and discarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseSummary {
    /// The size of the body in bytes.
    pub(crate) bytes: u64,
    /// The time from sending the request to the first byte of the body.
    pub(crate) first_byte: Duration,
    /// The time from sending the request to the last byte of the body.
    pub(crate) elapsed: Duration,
}

impl Contestant {
    /// The server of a context in a kubeconfig; `None` for the current context.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read.
    pub(crate) async fn from_kubeconfig(
        name: &'static str,
        path: &Path,
        context: Option<&str>,
    ) -> anyhow::Result<Self> {
        let config = tributary_e2e::kubeconfig::config(path, context).await?;
        let mut tls = config.rustls_client_config().context("make the TLS configuration")?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, HeaderValue::from_static("tributary-bench"));
        if let Some(token) = &config.auth_info.token {
            let value = format!("Bearer {}", token.expose_secret());
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&value).context("read the token")?);
        }
        let authority = config.cluster_url.authority().context("the server's URL has no host")?;
        Ok(Self {
            name,
            authority: authority.to_string(),
            prefix: config.cluster_url.path().trim_end_matches('/').to_owned(),
            tls: TlsConnector::from(Arc::new(tls)),
            headers,
        })
    }

    /// Opens an HTTP/2 connection.
    ///
    /// # Errors
    /// If the server does not answer or does not support HTTP/2.
    pub(crate) async fn connect(&self) -> anyhow::Result<ContestantConnection> {
        let stream =
            TcpStream::connect(&self.authority).await.with_context(|| format!("connect to {}", self.authority))?;
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(host, _)| host).to_owned();
        let name = ServerName::try_from(host).context("read the server's name")?;
        let stream = BufReader::with_capacity(SOCKET_BUFFER, stream);
        let stream = self.tls.connect(name, stream).await.context("TLS")?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            bail!("{} does not speak HTTP/2", self.name);
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(1 << 20)
            .max_header_list_size(1 << 20)
            .handshake(TokioIo::new(stream))
            .await
            .context("HTTP/2")?;
        tokio::spawn(connection);
        Ok(ContestantConnection { target: self.clone(), sender })
    }
}

/// An HTTP/2 connection. Clones share it.
#[derive(Clone)]
pub(crate) struct ContestantConnection {
    target: Contestant,
    sender: SendRequest<Full<Bytes>>,
}

impl ContestantConnection {
    /// A clone of the connection that requests gzip-compressed responses.
    pub(crate) fn compressed(mut self) -> Self {
        self.target.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        self
    }

    /// Sends a request. `accept` is the complete header value.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        content_type: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        let uri = format!("https://{}{}{path}", self.target.authority, self.target.prefix);
        let mut request =
            Request::builder().method(method).uri(uri).body(Full::new(body)).context("make the request")?;
        let headers = request.headers_mut();
        headers.extend(self.target.headers.clone());
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).context("read the Accept header")?);
        if !content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(content_type).context("read the content type")?);
        }
        let mut sender = self.sender.clone();
        sender.ready().await.context("the connection is lost")?;
        sender.send_request(request).await.with_context(|| format!("{} {path}", self.target.name))
    }

    /// Requests a path, reads the response body to the last byte and discards the body.
    ///
    /// # Errors
    ///
    /// If the response is not 200 or is cut off.
    pub(crate) async fn discard(&self, path: &str, accept: &str) -> anyhow::Result<ResponseSummary> {
        let start = Instant::now();
        let mut response = self.send(Method::GET, path, accept, "", Bytes::new()).await?;
        if response.status() != 200 {
            return Err(self.refused(path, response).await);
        }
        let (mut bytes, mut first_byte) = (0, None);
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.context("read the body")?;
            first_byte.get_or_insert_with(|| start.elapsed());
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        let elapsed = start.elapsed();
        Ok(ResponseSummary { bytes, first_byte: first_byte.unwrap_or(elapsed), elapsed })
    }

    /// Requests a path and returns the complete body of the response.
    ///
    /// # Errors
    ///
    /// If the response is not 200 or is cut off.
    pub(crate) async fn read(&self, path: &str) -> anyhow::Result<Bytes> {
        let response = self.send(Method::GET, path, "application/json", "", Bytes::new()).await?;
        if response.status() != 200 {
            return Err(self.refused(path, response).await);
        }
        Ok(response.into_body().collect().await.context("read the body")?.to_bytes())
    }

    /// Sends a body and reads the response, which must be a success.
    ///
    /// # Errors
    /// If the response is not a success.
    pub(crate) async fn write(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> anyhow::Result<Bytes> {
        let response = self.send(method, path, "application/json", content_type, body).await?;
        if !response.status().is_success() {
            return Err(self.refused(path, response).await);
        }
        Ok(response.into_body().collect().await.context("read the answer")?.to_bytes())
    }

    async fn refused(&self, path: &str, response: Response<Incoming>) -> anyhow::Error {
        let status = response.status();
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let text = String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
        anyhow::anyhow!("{} answered {status} to {path}: {text}", self.target.name)
    }
}
