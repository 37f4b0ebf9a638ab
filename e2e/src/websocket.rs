//! WebSocket client of the Kubernetes API, which sends the same handshake as a browser.

use crate::HttpClient;
use anyhow::{Context, bail};
use std::{sync::Arc, time::Duration};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest},
};

/// The timeout for a handshake on a busy machine.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// An open WebSocket over TLS.
pub type WebSocket = WebSocketStream<TlsStream<TcpStream>>;

/// The result of a WebSocket handshake.
#[derive(Debug)]
pub enum Opened {
    /// The WebSocket is open. The text is the subprotocol that the server chose, or empty.
    Open(Box<WebSocket>, String),
    /// The server refused the handshake with this HTTP status and body.
    Refused(u16, String),
}

impl HttpClient {
    /// Opens a WebSocket on a new connection. The function adds `headers` to the headers of the handshake. A name with
    /// an empty value removes the header of that name.
    ///
    /// # Errors
    /// If there is no connection, or no answer within 30 s.
    pub async fn websocket(&self, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<Opened> {
        tokio::time::timeout(HANDSHAKE_TIMEOUT, self.open_websocket(path, headers))
            .await
            .context("no answer in 30 s")?
    }

    async fn open_websocket(&self, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<Opened> {
        let authority = self.origin().trim_start_matches("https://").to_owned();
        let mut request = format!("wss://{authority}{path}").into_client_request().context("form the request")?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert("authorization", authorization.clone());
        }
        request.headers_mut().insert("origin", "https://console.example.test".parse().context("an origin")?);
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().context("a header's name")?;
            if value.is_empty() {
                request.headers_mut().remove(name);
            } else {
                request.headers_mut().insert(name, value.parse().context("a header's value")?);
            }
        }
        let mut tls = (*self.tls).clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect(&authority).await.context("connect")?;
        let host = authority.rsplit_once(':').map_or(&*authority, |(host, _)| host).to_owned();
        let name = rustls_pki_types::ServerName::try_from(host).context("a server's name")?;
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.context("shake hands")?;
        match client_async(request, stream).await {
            Ok((socket, response)) => {
                let protocol = response.headers().get("sec-websocket-protocol");
                let protocol = protocol.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
                Ok(Opened::Open(Box::new(socket), protocol))
            }
            Err(Error::Http(response)) => {
                let text = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
                Ok(Opened::Refused(response.status().as_u16(), text))
            }
            Err(error) => bail!("{error}"),
        }
    }
}

/// Returns the next message that is not a ping, or `None` after the server has closed the WebSocket.
///
/// # Errors
/// If no message arrives within `patience`, or the connection breaks.
pub async fn next(socket: &mut WebSocket, patience: Duration) -> anyhow::Result<Option<Message>> {
    use futures::StreamExt;
    loop {
        match tokio::time::timeout(patience, socket.next()).await.context("no message in time")? {
            None => return Ok(None),
            Some(message) => match message.context("the WebSocket broke")? {
                Message::Ping(_) | Message::Pong(_) => {}
                message => return Ok(Some(message)),
            },
        }
    }
}
