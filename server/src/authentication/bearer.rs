//! Reads the bearer tokens of a request from two headers, as kube-apiserver does.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};
use tributary_proxy::headers::BEARER_SUBPROTOCOL;

/// Removes the tokens from a request's head, so that later stages never see them. Returns first the token of
/// `Authorization`, then the token of the WebSocket subprotocols: the order in which kube-apiserver tries them.
pub(super) fn remove_tokens(headers: &mut HeaderMap) -> Vec<Vec<u8>> {
    let presented = [bearer_header(headers), bearer_subprotocol(headers)];
    headers.remove(AUTHORIZATION);
    remove_bearer_subprotocols(headers);
    presented.into_iter().flatten().collect()
}

/// Returns the token of the `Authorization` header. Of several headers, the first counts, as in Go's `Header.Get`.
fn bearer_header(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let space = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = value.split_at(space);
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii().to_vec())
}

/// Returns the token in a WebSocket handshake's subprotocols. The client must offer another subprotocol beside the
/// token, because the answer selects one, and must not select the token.
fn bearer_subprotocol(headers: &HeaderMap) -> Option<Vec<u8>> {
    if !is_websocket(headers) {
        return None;
    }
    let mut tokens = subprotocols(headers).filter_map(|protocol| protocol.strip_prefix(BEARER_SUBPROTOCOL));
    let token = tokens.next()?;
    let others = subprotocols(headers).any(|protocol| !protocol.starts_with(BEARER_SUBPROTOCOL));
    (tokens.next().is_none() && others).then(|| URL_SAFE_NO_PAD.decode(token).ok()).flatten()
}

/// Returns whether a request asks for an upgrade to a WebSocket.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    let has = |name, word: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value: &HeaderValue| value.to_str().ok())
            .any(|value| value.split(',').any(|token| token.trim().eq_ignore_ascii_case(word)))
    };
    has(CONNECTION, "upgrade") && has(UPGRADE, "websocket")
}

fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|protocol| !protocol.is_empty())
}

/// Removes WebSocket subprotocols that contain a token, and keeps the order of the remaining subprotocols. An
/// unreadable subprotocol header is removed as a whole.
fn remove_bearer_subprotocols(headers: &mut HeaderMap) {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return;
    }
    let others: Vec<&str> =
        subprotocols(headers).filter(|protocol| !protocol.starts_with(BEARER_SUBPROTOCOL)).collect();
    let kept = (!others.is_empty()).then(|| HeaderValue::from_str(&others.join(", ")).ok()).flatten();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(kept) = kept {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
    }
}
