//! Who sends a request: personal mode's one bearer token, in the two places where kube-apiserver takes one.
//!
//! The credential is taken out of the request here, so that nothing behind this file ever sees it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use tributary_router::User;

use crate::credentials::TokenDigest;

/// The subprotocol that carries a token, for browsers, which cannot set `Authorization` on a WebSocket.
///
/// Source: kubernetes/apiserver `pkg/authentication/request/websocket/protocol.go`.
const BEARER_SUBPROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The one user of personal mode. Members do not see it: they see the kubeconfig's own users.
pub fn personal_user() -> User {
    User::named("personal", "tributary:personal")
}

/// Nobody in particular: what plain health checks are answered to.
pub fn anonymous_user() -> User {
    User::named("anonymous", "system:anonymous")
}

/// What a request turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// A known user.
    User(User),
    /// A plain health check without a valid credential.
    AnonymousHealthCheck,
    /// Neither: 401.
    Unauthorized,
}

/// Knows the one credential of personal mode.
#[derive(Clone, Copy, Debug)]
pub struct Authenticator {
    token: TokenDigest,
}

impl Authenticator {
    /// Accepts the token with this digest and nothing else.
    pub fn new(token: TokenDigest) -> Self {
        Self { token }
    }

    /// Decides who sends a request, and takes credentials out of its head.
    ///
    /// Plain `/healthz`, `/livez` and `/readyz` are open, as kube-apiserver's `system:public-info-viewer` role opens
    /// them: their answer is one word. With a query (`?verbose` names clusters) or a longer path they are not.
    pub fn authenticate(&self, head: &mut Parts) -> Authentication {
        let presented = [bearer_header(&head.headers), bearer_subprotocol(&head.headers)];
        let known = presented.iter().flatten().any(|token| self.token.matches(token));
        head.headers.remove(AUTHORIZATION);
        remove_bearer_subprotocols(&mut head.headers);
        if known {
            Authentication::User(personal_user())
        } else if is_plain_health_check(head) {
            Authentication::AnonymousHealthCheck
        } else {
            Authentication::Unauthorized
        }
    }
}

fn is_plain_health_check(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
        && head.uri.query().is_none()
        && matches!(head.uri.path(), "/healthz" | "/livez" | "/readyz")
}

/// The token of an `Authorization` header; with several headers the first counts, as in Go's `Header.Get`.
fn bearer_header(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let space = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = value.split_at(space);
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii().to_vec())
}

/// The token of a WebSocket handshake's subprotocols. Another subprotocol must stand beside it, for the answer to name.
fn bearer_subprotocol(headers: &HeaderMap) -> Option<Vec<u8>> {
    if !is_websocket(headers) {
        return None;
    }
    let mut tokens = subprotocols(headers).filter_map(|protocol| protocol.strip_prefix(BEARER_SUBPROTOCOL_PREFIX));
    let token = tokens.next()?;
    let others = subprotocols(headers).any(|protocol| !protocol.starts_with(BEARER_SUBPROTOCOL_PREFIX));
    (tokens.next().is_none() && others).then(|| URL_SAFE_NO_PAD.decode(token).ok()).flatten()
}

/// Whether a request asks for a WebSocket.
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

/// Removes the bearer subprotocols and keeps the others, in their order; a header that cannot be read goes whole.
fn remove_bearer_subprotocols(headers: &mut HeaderMap) {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return;
    }
    let others: Vec<&str> =
        subprotocols(headers).filter(|protocol| !protocol.starts_with(BEARER_SUBPROTOCOL_PREFIX)).collect();
    let kept = (!others.is_empty()).then(|| HeaderValue::from_str(&others.join(", ")).ok()).flatten();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(kept) = kept {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn authenticator() -> Authenticator {
        Authenticator::new(TokenDigest::of(b"secret"))
    }

    #[test]
    fn the_token_is_taken_from_its_two_places_only() {
        let subprotocol = format!("{BEARER_SUBPROTOCOL_PREFIX}{}", URL_SAFE_NO_PAD.encode("secret"));
        let beside = format!("{subprotocol}, v4.channel.k8s.io");
        let twice = format!("{subprotocol}, {beside}");
        let wrong = format!("{BEARER_SUBPROTOCOL_PREFIX}{}, v4.channel.k8s.io", URL_SAFE_NO_PAD.encode("wrong"));
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        let cases: [(Vec<(&str, &str)>, bool); 13] = [
            (vec![("authorization", "Bearer secret")], true),
            (vec![("authorization", "bearer  secret ")], true),
            (vec![("authorization", "Bearer wrong")], false),
            (vec![("authorization", "Bearer")], false),
            (vec![("authorization", "Bearersecret")], false),
            (vec![("authorization", "Basic secret")], false),
            (vec![("authorization", "Bearer wrong"), ("authorization", "Bearer secret")], false),
            (vec![], false),
            ([&upgrade[..], &[("sec-websocket-protocol", beside.as_str())]].concat(), true),
            (vec![("sec-websocket-protocol", beside.as_str())], false),
            ([&upgrade[..], &[("sec-websocket-protocol", subprotocol.as_str())]].concat(), false),
            ([&upgrade[..], &[("sec-websocket-protocol", twice.as_str())]].concat(), false),
            ([&upgrade[..], &[("sec-websocket-protocol", wrong.as_str())]].concat(), false),
        ];
        for (headers, known) in cases {
            let got = authenticator().authenticate(&mut head("/api", &headers));
            assert_eq!(got == Authentication::User(personal_user()), known, "{headers:?}");
        }
    }

    #[test]
    fn credentials_do_not_pass_the_authenticator() {
        let subprotocol = format!("v5.channel.k8s.io, {BEARER_SUBPROTOCOL_PREFIX}c2VjcmV0, v4.channel.k8s.io");
        let mut head = head(
            "/api",
            &[
                ("authorization", "Bearer secret"),
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-protocol", &subprotocol),
            ],
        );
        authenticator().authenticate(&mut head);
        assert!(!head.headers.contains_key(AUTHORIZATION));
        assert_eq!(head.headers[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io, v4.channel.k8s.io");
    }

    #[test]
    fn only_plain_health_checks_are_open() {
        let cases = [
            ("/healthz", Authentication::AnonymousHealthCheck),
            ("/livez", Authentication::AnonymousHealthCheck),
            ("/readyz", Authentication::AnonymousHealthCheck),
            ("/readyz?verbose", Authentication::Unauthorized),
            ("/readyz/ping", Authentication::Unauthorized),
            ("/readyz/", Authentication::Unauthorized),
            ("/metrics", Authentication::Unauthorized),
            ("/", Authentication::Unauthorized),
        ];
        for (uri, expected) in cases {
            assert_eq!(authenticator().authenticate(&mut head(uri, &[])), expected, "{uri}");
        }
        let mut post = head("/healthz", &[]);
        post.method = Method::POST;
        assert_eq!(authenticator().authenticate(&mut post), Authentication::Unauthorized);
    }
}
