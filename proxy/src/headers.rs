//! Filters for headers of requests and responses. Pure functions with table tests, because the safety of impersonation
//! depends on them.
//!
//! The order of the steps matters (CVE-2021-31999). First, hop-by-hop headers and the headers named by `Connection` are
//! removed. Then the client's credentials and identity headers are removed. Finally the caller sets its own headers, so
//! no client header can remove or replace them.

use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL, TE, UPGRADE};

/// Prefix of the WebSocket subprotocol that contains a bearer token, because browsers cannot set `Authorization` for a
/// WebSocket (apiserver `pkg/authentication/request/websocket/protocol.go`). The token authenticates the client to
/// Tributary, not to the cluster.
pub const BEARER_SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Prefixes of headers that claim an identity.
const IDENTITY_PREFIXES: [&str; 2] = ["impersonate-", "x-remote-"];

/// A protocol for an HTTP upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeProtocol {
    /// WebSocket (RFC 6455), with Kubernetes' channel subprotocols.
    Websocket,
    /// SPDY/3.1, the older protocol of exec, attach and port-forward.
    Spdy,
}

impl UpgradeProtocol {
    fn parse(token: &str) -> Option<Self> {
        if token.eq_ignore_ascii_case("websocket") {
            Some(Self::Websocket)
        } else if token.eq_ignore_ascii_case("SPDY/3.1") {
            Some(Self::Spdy)
        } else {
            None
        }
    }

    /// Returns the protocol's name in an `Upgrade` header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Websocket => "websocket",
            Self::Spdy => "SPDY/3.1",
        }
    }
}

/// Returns the protocol of an upgrade request, or of a 101 response. `Connection` must contain `upgrade`, and `Upgrade`
/// must contain exactly one supported protocol. Without `Connection`, the `Upgrade` header has no meaning.
///
/// # Errors
/// A message with the invalid value: an unsupported protocol (`h2c`) or several protocols.
pub fn upgrade_protocol(headers: &HeaderMap) -> Result<Option<UpgradeProtocol>, String> {
    if !headers.contains_key(UPGRADE) || !connection_tokens(headers).any(|token| token.eq_ignore_ascii_case("upgrade"))
    {
        return Ok(None);
    }
    let mut values = headers.get_all(UPGRADE).iter();
    match (values.next().and_then(|value| value.to_str().ok()).map(str::trim), values.next()) {
        (Some(token), None) => UpgradeProtocol::parse(token).map(Some).ok_or_else(|| format!("Upgrade: {token:?}")),
        _ => Err("several or unreadable Upgrade headers".to_owned()),
    }
}

/// Final recipient of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recipient {
    /// The cluster's API, or a server in front of the API.
    #[default]
    Api,
    /// A node or a workload. The member forwards the complete request.
    Workload,
}

/// Headers that an API may receive. [`is_never_forwarded`] removes none of these headers. The list is an allow-list,
/// because servers in front of clusters trust their own headers (`X-SSL-Client-…`, `X-Teleport-…`).
const API_HEADERS: [&str; 18] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "audit-id",
    "content-encoding",
    "content-type",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "origin",
    "range",
    "traceparent",
    "tracestate",
    "tributary-via",
    "user-agent",
];

/// Prefixes of other headers that an API may receive, in addition to `API_HEADERS`: kubectl's headers about its command
/// (KEP-859), and upgrade headers for WebSockets and SPDY streams (`k8s.io/apimachinery/pkg/util/httpstream`).
const API_HEADER_PREFIXES: [&str; 3] = ["kubectl-", "sec-websocket-", "x-stream-protocol-version"];

/// Prefixes of headers in which servers in front of a cluster forward a client's identity. These headers are removed
/// even from requests to a workload. A workload may need any other header.
const FRONT_PROXY_PREFIXES: [&str; 6] =
    ["client-cert", "ssl-client-", "x-api-tunnel-", "x-client-", "x-ssl-", "x-teleport-"];

/// Headers whose values occur in one message only: request IDs and trace IDs. HTTP/2 stores header values in a table to
/// send a short index later (RFC 7541). These values would fill the table, so they are marked as sensitive: h2 stores
/// no sensitive value.
const SINGLE_USE_HEADERS: [&str; 4] = ["audit-id", "traceparent", "tracestate", "x-request-id"];

fn may_pass(name: &str, recipient: Recipient) -> bool {
    match recipient {
        Recipient::Api => is_api_header(name),
        Recipient::Workload => {
            !is_never_forwarded(name) && !FRONT_PROXY_PREFIXES.iter().any(|prefix| has_prefix_with_dashes(name, prefix))
        }
    }
}

fn is_api_header(name: &str) -> bool {
    API_HEADERS.contains(&name) || API_HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Removes unsafe headers from a client's request:
///
/// - for an API, all unknown headers; for a workload, headers that servers in front of clusters trust;
/// - hop-by-hop headers (RFC 9110 §7.6.1): `Connection` and the headers named in it, `Keep-Alive`, `Proxy-*`, `TE`
///   except `trailers`, `Trailer`, `Transfer-Encoding`, `Upgrade`, `HTTP2-Settings`;
/// - `Host`, `Content-Length` and `Expect`, which the connection to the cluster sets. The length comes from the body,
///   so that a rewritten body is consistent. Tributary's own server sends `100 Continue`;
/// - the client's credentials: `Authorization`, `Cookie`, bearer subprotocols of WebSockets;
/// - claims of identity in any spelling: `Impersonate-*`, `X-Remote-*`, also with underscores instead of dashes;
/// - claims of origin: `Forwarded`, `X-Forwarded-*`, `X-Real-Ip`, which kube-apiserver would write into its audit log.
///
/// For an upgrade, the function then sets `Connection` and `Upgrade`. Values that occur in one message only
/// (`Audit-Id`, `Traceparent`) are marked as sensitive, so that HTTP/2 does not store them.
pub fn prepare_request(headers: &mut HeaderMap, upgrade: Option<UpgradeProtocol>, recipient: Recipient) {
    let trailers = headers.get_all(TE).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    remove_named_by_connection(headers);
    retain_headers(headers, |name| may_pass(name, recipient));
    remove_bearer_subprotocols(headers);
    if trailers && upgrade.is_none() {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(protocol.as_str()));
    }
}

/// Response headers that affect the whole origin, which all clusters and workloads share.
///
/// A response must not set cookies (`Set-Cookie`), redirect clients (`Alt-Svc`), disable http on all ports of localhost
/// (`Strict-Transport-Security`) or delete stored data (`Clear-Site-Data`). Nor may a response take over pages
/// (`Service-Worker-Allowed`), report later requests (`NEL`, `Report-To`, `Reporting-Endpoints`), or request a password
/// (`WWW-Authenticate`).
const ORIGIN_WIDE_HEADERS: [&str; 9] = [
    "alt-svc",
    "clear-site-data",
    "nel",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "set-cookie",
    "strict-transport-security",
    "www-authenticate",
];

/// Removes unsafe headers from a cluster's response: hop-by-hop headers, and headers that affect the whole origin:
/// `Set-Cookie`, `Alt-Svc`, `Strict-Transport-Security`, `Clear-Site-Data`, `Service-Worker-Allowed`,
/// `WWW-Authenticate`. All other headers pass, including `Warning` and `Audit-Id`. `Audit-Id` is marked as sensitive,
/// so that HTTP/2 does not store its value.
pub fn prepare_response(headers: &mut HeaderMap, upgrade: Option<UpgradeProtocol>) {
    remove_named_by_connection(headers);
    retain_headers(headers, |name| !is_hop_by_hop(name) && !ORIGIN_WIDE_HEADERS.contains(&name));
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(protocol.as_str()));
    }
}

/// Returns whether the header is an impersonation header: `Impersonate-*`.
pub fn is_impersonation(name: &HeaderName) -> bool {
    has_prefix_with_dashes(name.as_str(), IDENTITY_PREFIXES[0])
}

/// Returns whether a request header is removed for every recipient, whether an API or a workload.
fn is_never_forwarded(name: &str) -> bool {
    is_hop_by_hop(name) || is_set_by_proxy(name) || is_credential_or_claim(name)
}

fn is_hop_by_hop(name: &str) -> bool {
    matches!(name, "connection" | "http2-settings" | "keep-alive" | "te" | "trailer" | "transfer-encoding" | "upgrade")
        || name.starts_with("proxy-")
}

fn is_set_by_proxy(name: &str) -> bool {
    matches!(name, "content-length" | "expect" | "host")
}

fn is_credential_or_claim(name: &str) -> bool {
    matches!(name, "authorization" | "cookie" | "forwarded" | "x-real-ip")
        || name.starts_with("x-forwarded-")
        || IDENTITY_PREFIXES.iter().any(|prefix| has_prefix_with_dashes(name, prefix))
}

/// Like `starts_with`, with underscores equal to dashes, because some servers convert both characters to the same
/// variable name. `name` must be in lower case.
fn has_prefix_with_dashes(name: &str, prefix: &str) -> bool {
    name.len() >= prefix.len()
        && name
            .bytes()
            .zip(prefix.bytes())
            .all(|(byte, expected)| byte == expected || (byte == b'_' && expected == b'-'))
}

fn connection_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

fn remove_named_by_connection(headers: &mut HeaderMap) {
    if !headers.contains_key(CONNECTION) {
        return;
    }
    let named: Vec<HeaderName> =
        connection_tokens(headers).filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok()).collect();
    for name in named {
        headers.remove(name);
    }
}

/// Removes the headers for which `is_wanted` is false. Marks values that occur in one message only as sensitive.
/// Allocates only if a header is removed.
fn retain_headers(headers: &mut HeaderMap, is_wanted: impl Fn(&str) -> bool) {
    let mut unwanted: Vec<HeaderName> = Vec::new();
    for (name, value) in headers.iter_mut() {
        if !is_wanted(name.as_str()) {
            unwanted.push(name.clone());
        } else if SINGLE_USE_HEADERS.contains(&name.as_str()) {
            value.set_sensitive(true);
        }
    }
    for name in unwanted {
        headers.remove(name);
    }
}

fn remove_bearer_subprotocols(headers: &mut HeaderMap) {
    let is_bearer = |protocol: &str| {
        protocol.get(..BEARER_SUBPROTOCOL.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(BEARER_SUBPROTOCOL))
    };
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return;
    }
    // A subprotocol header that is not text is removed, because it might contain a token.
    let remaining: Vec<&str> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty() && !is_bearer(protocol))
        .collect();
    match HeaderValue::try_from(remaining.join(", ")) {
        Ok(value) if !value.is_empty() => headers.insert(SEC_WEBSOCKET_PROTOCOL, value),
        _ => headers.remove(SEC_WEBSOCKET_PROTOCOL),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    type Lines = &'static [(&'static str, &'static str)];

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn unsafe_request_headers_are_removed() {
        let table: &[(Lines, &[&str])] = &[
            (
                &[("Accept", "application/json"), ("User-Agent", "kubectl"), ("Accept-Encoding", "gzip")],
                &["accept-encoding: gzip", "accept: application/json", "user-agent: kubectl"],
            ),
            (&[("Authorization", "Bearer a"), ("Cookie", "b"), ("Proxy-Authorization", "c"), ("A", "1")], &["a: 1"]),
            (
                &[
                    ("Impersonate-User", "a"),
                    ("IMPERSONATE-GROUP", "b"),
                    ("impersonate-group", "c"),
                    ("Impersonate-Uid", "d"),
                    ("Impersonate-Extra-Scopes", "e"),
                    ("Impersonate_User", "f"),
                    ("impersonate_extra_x", "g"),
                    ("Impersonate-", "h"),
                ],
                &[],
            ),
            (
                &[("Impersonation", "kept: another word"), ("X-Remote", "kept")],
                &["impersonation: kept: another word", "x-remote: kept"],
            ),
            (&[("X-Remote-User", "a"), ("X-Remote-Group", "b"), ("X-REMOTE-EXTRA-s", "c"), ("x_remote_uid", "d")], &[]),
            // CVE-2021-31999: the headers that Connection names are removed first. Headers that Tributary sets later
            // are not affected.
            (
                &[("Connection", "close, X-Secret, Impersonate-User"), ("X-Secret", "1"), ("X-Other", "2")],
                &["x-other: 2"],
            ),
            (&[("Connection", "x-a"), ("Connection", "x-b"), ("X-A", "1"), ("X-B", "2")], &[]),
            (
                &[
                    ("Keep-Alive", "5"),
                    ("Transfer-Encoding", "chunked"),
                    ("Trailer", "x"),
                    ("Upgrade", "h2c"),
                    ("HTTP2-Settings", "x"),
                    ("Host", "evil"),
                    ("Content-Length", "5"),
                    ("Expect", "100-continue"),
                ],
                &[],
            ),
            (&[("TE", "trailers")], &["te: trailers"]),
            (&[("TE", "gzip;q=0.5")], &[]),
            (&[("Forwarded", "for=1"), ("X-Forwarded-For", "1"), ("X-Forwarded-Proto", "x"), ("X-Real-IP", "1")], &[]),
            (
                &[(
                    "Sec-WebSocket-Protocol",
                    "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4, v4.channel.k8s.io",
                )],
                &["sec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io"],
            ),
            (&[("Sec-WebSocket-Protocol", "Base64URL.bearer.authorization.k8s.io.dG9rZW4")], &[]),
            (
                &[
                    ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
                    ("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.eA"),
                ],
                &["sec-websocket-protocol: v5.channel.k8s.io"],
            ),
        ];
        for (input, expected) in table {
            let mut headers = map(input);
            prepare_request(&mut headers, None, Recipient::Workload);
            assert_eq!(lines(&headers), *expected, "{input:?}");
            // Each header that is removed for a workload is also removed for an API.
            let mut headers = map(input);
            prepare_request(&mut headers, None, Recipient::Api);
            let words_of_the_api = ["accept", "sec-websocket-", "te: ", "user-agent"];
            let is_allowed = |line: &&&str| words_of_the_api.iter().any(|word| line.starts_with(word));
            assert_eq!(lines(&headers), expected.iter().filter(is_allowed).copied().collect::<Vec<_>>(), "{input:?}");
        }
    }

    #[test]
    fn unknown_headers_of_api_requests_are_removed() {
        let allowed = [
            ("Accept", "application/json"),
            ("Accept-Encoding", "gzip"),
            ("Content-Type", "application/apply-patch+yaml"),
            ("If-None-Match", "\"a\""),
            ("Kubectl-Command", "kubectl get"),
            ("Kubectl-Session", "b"),
            ("Sec-WebSocket-Key", "c"),
            ("Sec-WebSocket-Version", "13"),
            ("Traceparent", "00-d"),
            ("User-Agent", "e"),
            ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
        ];
        let foreign = [
            ("X-SSL-Client-CN", "admin"),
            ("X-Teleport-User", "admin"),
            ("X-API-Tunnel-Agent", "1"),
            ("X-HTTP-Method-Override", "DELETE"),
            ("X-Original-URL", "/admin"),
            ("Client-Cert", "1"),
            ("True-Client-IP", "1"),
            ("Referer", "https://example.com"),
            ("Sec_WebSocket_Key", "1"),
        ];
        let mut headers = map(&[&allowed[..], &foreign].concat());
        prepare_request(&mut headers, None, Recipient::Api);
        assert_eq!(lines(&headers), lines(&map(&allowed)));
        let mut headers = map(&foreign);
        prepare_request(&mut headers, None, Recipient::Workload);
        let of_workloads =
            ["referer", "sec_websocket_key", "true-client-ip", "x-http-method-override", "x-original-url"];
        assert_eq!(
            headers.keys().map(HeaderName::as_str).collect::<std::collections::BTreeSet<_>>(),
            of_workloads.into()
        );
    }

    #[test]
    fn headers_allowed_for_the_api_are_never_removed() {
        for name in API_HEADERS.iter().chain(&API_HEADER_PREFIXES) {
            assert!(!is_never_forwarded(name) && may_pass(name, Recipient::Workload), "{name}");
        }
        let forbidden = [
            "authorization",
            "connection",
            "content-length",
            "cookie",
            "expect",
            "forwarded",
            "host",
            "http2-settings",
            "impersonate-user",
            "impersonate_group",
            "keep-alive",
            "proxy-authorization",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "x-forwarded-for",
            "x-real-ip",
            "x-remote-user",
            "x_remote_group",
        ];
        for name in forbidden {
            assert!(is_never_forwarded(name) && !is_api_header(name), "{name}");
        }
    }

    /// Returns the names of headers with sensitive values, which HPACK does not store in its table.
    fn unstored_names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> =
            headers.iter().filter(|(_, value)| value.is_sensitive()).map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn header_values_unique_to_a_request_are_not_put_into_the_hpack_table() {
        let once = [
            ("Audit-Id", "a"),
            ("Traceparent", "00-b"),
            ("Tracestate", "c=1"),
            ("Tracestate", "d=2"),
            ("X-Request-Id", "e"),
        ];
        let again = [("Accept", "application/json"), ("Kubectl-Command", "kubectl get"), ("User-Agent", "kubectl")];
        for (recipient, expected) in [
            (Recipient::Api, &["audit-id", "traceparent", "tracestate", "tracestate"][..]),
            (Recipient::Workload, &["audit-id", "traceparent", "tracestate", "tracestate", "x-request-id"]),
        ] {
            let mut headers = map(&[&once[..], &again].concat());
            prepare_request(&mut headers, None, recipient);
            assert_eq!(unstored_names(&headers), expected, "{recipient:?}");
        }
        let again = [("Cache-Control", "no-cache, private"), ("X-Kubernetes-PF-FlowSchema-UID", "f")];
        let mut headers = map(&[&once[..1], &again].concat());
        prepare_response(&mut headers, None);
        assert_eq!((unstored_names(&headers), headers.len()), (vec!["audit-id"], 3));
    }

    #[test]
    fn upgrade_request_and_response_headers_are_rewritten() {
        let mut headers =
            map(&[("Connection", "Upgrade, X-A"), ("Upgrade", "WebSocket"), ("X-A", "1"), ("TE", "trailers")]);
        let protocol = upgrade_protocol(&headers).unwrap();
        assert_eq!(protocol, Some(UpgradeProtocol::Websocket));
        prepare_request(&mut headers, protocol, Recipient::Api);
        assert_eq!(lines(&headers), ["connection: Upgrade", "upgrade: websocket"]);
    }

    #[test]
    fn only_websocket_and_spdy_upgrades_are_accepted() {
        let table: &[(Lines, Result<Option<UpgradeProtocol>, ()>)] = &[
            (&[], Ok(None)),
            (&[("Upgrade", "websocket")], Ok(None)),
            (&[("Connection", "Upgrade")], Ok(None)),
            (&[("Connection", "keep-alive, upgrade"), ("Upgrade", "spdy/3.1")], Ok(Some(UpgradeProtocol::Spdy))),
            (&[("Connection", "Upgrade"), ("Upgrade", "h2c")], Err(())),
            (&[("Connection", "Upgrade"), ("Upgrade", "websocket, h2c")], Err(())),
            (&[("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Upgrade", "SPDY/3.1")], Err(())),
            (&[("Connection", "Upgrade"), ("Upgrade", "")], Err(())),
        ];
        for (input, expected) in table {
            assert_eq!(upgrade_protocol(&map(input)).map_err(|_| ()), *expected, "{input:?}");
        }
    }

    #[test]
    fn hop_by_hop_and_origin_wide_response_headers_are_removed() {
        let mut headers = map(&[
            ("Connection", "close, X-Hop"),
            ("X-Hop", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Set-Cookie", "a=b"),
            ("Alt-Svc", "h3"),
            ("Strict-Transport-Security", "max-age=31536000; includeSubDomains"),
            ("Report-To", "{}"),
            ("Reporting-Endpoints", "a=\"https://example.com\""),
            ("NEL", "{}"),
            ("Clear-Site-Data", "\"*\""),
            ("Service-Worker-Allowed", "/"),
            ("WWW-Authenticate", "Basic realm=\"the cluster\""),
            ("Warning", "299 - \"old\""),
            ("Audit-Id", "u"),
            ("Content-Length", "5"),
            ("Content-Encoding", "gzip"),
        ]);
        prepare_response(&mut headers, None);
        assert_eq!(
            lines(&headers),
            ["audit-id: u", "content-encoding: gzip", "content-length: 5", "warning: 299 - \"old\"",]
        );
    }
}
