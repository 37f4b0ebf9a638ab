//! HTTP client for the Kubernetes API. The client sends paths unchanged and returns responses unchanged, so tests check
//! bytes and headers, and not the interpretation of a client library.

use crate::kubeconfig::{self, Access};
use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde_json::Value;
use std::{path::Path, time::Duration};

/// Timeout for a complete response (not for a watch). The timeout is longer than kube-apiserver's timeout of 60 s, so a
/// test sees kube-apiserver's timeout response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(70);

/// A client of one server. Clones share connections: HTTP/2 if the server supports it.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Scheme, host and port of the server.
    origin: String,
    /// The prefix for each path, without a trailing slash: `/clusters/member1`, or empty.
    prefix: String,
    pub(crate) authorization: Option<HeaderValue>,
    /// TLS configuration. WebSocket connections, which bypass this client's connection pool, use the same
    /// configuration.
    pub(crate) tls: std::sync::Arc<rustls::ClientConfig>,
}

impl HttpClient {
    /// Creates a client of the server in a kubeconfig's context (the current context for `None`).
    ///
    /// # Errors
    /// When the kubeconfig or its certificates cannot be read.
    pub async fn from_kubeconfig(path: &Path, context: Option<&str>) -> anyhow::Result<Self> {
        Self::from_config(&kubeconfig::config(path, context).await?)
    }

    /// Creates a client of one member from the member's address and credentials.
    ///
    /// # Errors
    /// If the certificates cannot be read.
    pub async fn from_access(access: &Access) -> anyhow::Result<Self> {
        let folder = crate::guard::temporary_folder("access")?;
        let path = folder.path().join("kubeconfig");
        kubeconfig::write(&path, &[access])?;
        Self::from_kubeconfig(&path, None).await
    }

    fn from_config(config: &kube::Config) -> anyhow::Result<Self> {
        use kube::client::ConfigExt;
        use secrecy::ExposeSecret;
        let tls = config.rustls_client_config().context("make the TLS configuration")?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http().enable_all_versions().build();
        let client = Client::builder(TokioExecutor::new()).timer(TokioTimer::new()).build(connector);
        let authorization = match &config.auth_info.token {
            Some(token) => Some(
                HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).context("read the bearer token")?,
            ),
            None => None,
        };
        let scheme = config.cluster_url.scheme_str().unwrap_or("https");
        let authority = config.cluster_url.authority().context("the server's URL has no host")?;
        Ok(Self {
            client,
            origin: format!("{scheme}://{authority}"),
            prefix: config.cluster_url.path().trim_end_matches('/').to_owned(),
            authorization,
            tls: std::sync::Arc::new(tls),
        })
    }

    /// The bearer token, if the kubeconfig has a token.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.authorization.as_ref()?.to_str().ok()?.strip_prefix("Bearer ")
    }

    /// Returns a client with the same server and connections, and no credentials.
    #[must_use]
    pub fn anonymous(&self) -> Self {
        Self { authorization: None, ..self.clone() }
    }

    /// Returns a client with the same server and connections, and this prefix (such as `/clusters/member1`) for each
    /// path.
    #[must_use]
    pub fn below(&self, prefix: &str) -> Self {
        Self { prefix: prefix.trim_end_matches('/').to_owned(), ..self.clone() }
    }

    /// Scheme, host and port of the server.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Begins a request. The client sends the path, including its query, unchanged.
    #[must_use]
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut headers = HeaderMap::new();
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("tributary-e2e"));
        RequestBuilder {
            client: self.client.clone(),
            method,
            url: format!("{}{}{path}", self.origin, self.prefix),
            headers,
            body: Bytes::new(),
        }
    }

    /// Begins a GET of this path.
    #[must_use]
    pub fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    /// Begins a POST of a JSON body.
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).json(body)
    }

    /// Begins a PUT of a JSON body.
    #[must_use]
    pub fn put(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::PUT, path).json(body)
    }

    /// Begins a PATCH. `kind` is the content type without `application/`, such as `merge-patch+json`.
    #[must_use]
    pub fn patch(&self, path: &str, kind: &str, body: &Value) -> RequestBuilder {
        self.request(Method::PATCH, path).json(body).header("content-type", &format!("application/{kind}"))
    }

    /// Begins a DELETE without a body.
    #[must_use]
    pub fn delete(&self, path: &str) -> RequestBuilder {
        self.request(Method::DELETE, path)
    }

    /// Opens a watch and returns the stream of its JSON events.
    ///
    /// # Errors
    /// If the request fails or the status is not 200.
    pub async fn watch(&self, path: &str) -> anyhow::Result<EventStream> {
        self.get(path).stream().await?.events()
    }
}

/// Builder of one HTTP request to a server.
#[derive(Clone, Debug)]
pub struct RequestBuilder {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Bytes,
}

impl RequestBuilder {
    /// Sets a header and replaces headers with the same name. The method omits a header with an invalid name or value,
    /// so that the test's assertion fails.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes())) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Adds a header and keeps headers with the same name. Omits invalid headers, like [`header`](Self::header).
    #[must_use]
    pub fn header_beside(mut self, name: &str, value: &str) -> Self {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes())) {
            self.headers.append(name, value);
        }
        self
    }

    /// Removes all headers with this name.
    #[must_use]
    pub fn without_header(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// Sets the `Accept` header.
    #[must_use]
    pub fn accept(self, value: &str) -> Self {
        self.header("accept", value)
    }

    /// Sets a JSON body and its content type.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Sets a body and its content type.
    #[must_use]
    pub fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }

    /// Sends the request and reads the complete response. An HTTP error status is not an error of this function.
    ///
    /// # Errors
    /// If no complete response arrives within 70 s.
    pub async fn send(self) -> anyhow::Result<HttpResponse> {
        let shown = format!("{} {}", self.method, self.url);
        let whole = async {
            let response = self.stream().await?;
            let (status, headers) = (response.status, response.headers);
            let body = response.body.collect().await.with_context(|| format!("read the answer to {shown}"))?.to_bytes();
            anyhow::Ok(HttpResponse { request: shown.clone(), status, headers, body })
        };
        tokio::time::timeout(ANSWER_TIMEOUT, whole)
            .await
            .with_context(|| format!("{shown}: no answer in {ANSWER_TIMEOUT:?}"))?
    }

    /// Sends the request and returns when the response head arrives.
    ///
    /// # Errors
    /// If no response head arrives within 70 s.
    pub async fn stream(self) -> anyhow::Result<Streaming> {
        let shown = format!("{} {}", self.method, self.url);
        let mut request = Request::builder().method(self.method).uri(&self.url);
        if let Some(headers) = request.headers_mut() {
            *headers = self.headers;
        }
        let request = request.body(Full::new(self.body)).with_context(|| format!("form {shown}"))?;
        let response: Response<Incoming> = tokio::time::timeout(ANSWER_TIMEOUT, self.client.request(request))
            .await
            .with_context(|| format!("{shown}: no headers in {ANSWER_TIMEOUT:?}"))?
            .with_context(|| format!("send {shown}"))?;
        let (parts, body) = response.into_parts();
        Ok(Streaming { request: shown, status: parts.status, headers: parts.headers, body })
    }
}

/// HTTP response with its complete body.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// Method and URL of the request, for error messages.
    pub request: String,
    /// The HTTP status of the answer.
    pub status: StatusCode,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The whole body of the answer.
    pub body: Bytes,
}

impl HttpResponse {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    ///
    /// When the body is not JSON; the message shows the body.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("{}: {} and not JSON: {}", self.request, self.status, shorten(&self.text())))
    }

    /// Checks the status and returns the response.
    ///
    /// # Errors
    ///
    /// If the response has a different status; the message shows the body.
    pub fn expect(self, status: u16) -> anyhow::Result<Self> {
        if self.status.as_u16() != status {
            bail!("{}: {} where {status} was due: {}", self.request, self.status, shorten(&self.text()));
        }
        Ok(self)
    }

    /// A header as text, or the empty string.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Returns at most the first 600 characters of a body, for an error message.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(600) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// A response whose body is not read yet.
#[derive(Debug)]
pub struct Streaming {
    /// Method and URL of the request, for error messages.
    pub request: String,
    /// The HTTP status of the answer.
    pub status: StatusCode,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The unread body.
    pub body: Incoming,
}

impl Streaming {
    /// Returns the body as a stream of events, with one JSON document per line.
    ///
    /// # Errors
    /// If the status is not 200.
    pub fn events(self) -> anyhow::Result<EventStream> {
        if self.status != StatusCode::OK {
            bail!("{}: {} instead of a stream", self.request, self.status);
        }
        Ok(EventStream { request: self.request, headers: self.headers, body: self.body, buffer: BytesMut::new() })
    }
}

/// Event stream of a watch. Dropping it ends the watch.
#[derive(Debug)]
pub struct EventStream {
    request: String,
    /// The headers of the watch's answer.
    pub headers: HeaderMap,
    body: Incoming,
    buffer: BytesMut,
}

impl EventStream {
    /// Returns the next event, or `None` at the end of the stream.
    ///
    /// Cancel safe: bytes that have arrived stay in the buffer.
    ///
    /// # Errors
    /// If no event arrives within `patience`, the stream breaks, or a line is not JSON.
    pub async fn next(&mut self, patience: Duration) -> anyhow::Result<Option<Value>> {
        match tokio::time::timeout(patience, self.read()).await {
            Ok(event) => event,
            Err(_) => bail!("{}: no event in {patience:?}", self.request),
        }
    }

    /// Returns the next event.
    ///
    /// # Errors
    /// If [`EventStream::next`] fails, or the stream ends.
    pub async fn expect(&mut self, patience: Duration) -> anyhow::Result<Value> {
        self.next(patience).await?.with_context(|| format!("{}: the stream ended", self.request))
    }

    /// Reads events until no event arrives for `quiet`, or until the stream ends. Returns the events, and true if the
    /// stream ended.
    ///
    /// # Errors
    /// If the stream breaks or a line is not JSON.
    pub async fn drain(&mut self, quiet: Duration) -> anyhow::Result<(Vec<Value>, bool)> {
        let mut events = Vec::new();
        loop {
            match tokio::time::timeout(quiet, self.read()).await {
                Err(_) => return Ok((events, false)),
                Ok(event) => match event? {
                    Some(event) => events.push(event),
                    None => return Ok((events, true)),
                },
            }
        }
    }

    async fn read(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return serde_json::from_slice(&line)
                    .map(Some)
                    .with_context(|| format!("{}: not an event: {}", self.request, String::from_utf8_lossy(&line)));
            }
            match self.body.frame().await {
                None if self.buffer.is_empty() => return Ok(None),
                None => bail!("{}: the stream ended within an event", self.request),
                Some(frame) => {
                    let frame = frame.with_context(|| format!("{}: the stream broke", self.request))?;
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }
}
