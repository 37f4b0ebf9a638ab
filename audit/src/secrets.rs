//! Removes secrets from audit events. Tokens, the data of Secrets, and bodies that contain them are never recorded,
//! whatever the policy is.

use std::borrow::Cow;

use serde_json::Value;

use crate::checker::decoded;
use tributary_apimachinery::RequestedResource;

use crate::Level;

/// Query parameters whose values are credentials, in lower case. The list has kube-apiserver's `access_token` and
/// `token` (`NewWebSocketRequest`), and common parameters of servers behind the `proxy` subresource.
const TOKEN_PARAMETERS: [&str; 12] = [
    "access_token",
    "api_key",
    "apikey",
    "auth",
    "authorization",
    "bearer",
    "client_secret",
    "id_token",
    "password",
    "refresh_token",
    "secret",
    "token",
];

const REDACTED: &str = "REDACTED";

/// The kinds of objects that contain secret data or tokens, with their API groups.
const SECRET_KINDS: [(&str, &str); 4] = [
    ("Secret", ""),
    ("SecretList", ""),
    ("TokenReview", "authentication.k8s.io"),
    ("TokenRequest", "authentication.k8s.io"),
];

/// Returns whether the bodies of requests for a resource, or of their responses, contain data of Secrets or tokens.
pub(crate) fn has_secrets(resource: &RequestedResource<'_>) -> bool {
    match (resource.group, resource.resource) {
        ("", "secrets") | ("authentication.k8s.io", "tokenreviews") => true,
        ("", "serviceaccounts") => resource.subresource == "token",
        _ => false,
    }
}

/// Limits the level of a request's events. A request for Secrets or tokens gets the level Metadata at most.
pub(crate) fn cap(level: Level, has_secrets: bool) -> Level {
    if has_secrets { level.min(Level::Metadata) } else { level }
}

/// Returns whether a body contains a Secret or a token at any depth. A client may send a Secret to any path.
pub(crate) fn is_in(body: &Value) -> bool {
    match body {
        Value::Array(items) => items.iter().any(is_in),
        Value::Object(fields) => {
            let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
            let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
            SECRET_KINDS.contains(&(text("kind"), group)) || fields.values().any(is_in)
        }
        _ => false,
    }
}

/// Replaces the values of token parameters in the path and query of a request. Borrows the text if the query has no
/// token parameter. Parameter names are decoded before the comparison, which ignores upper and lower case.
pub fn without_tokens(uri: &str) -> Cow<'_, str> {
    let Some(begins) = uri.bytes().position(|byte| byte == b'?') else { return Cow::Borrowed(uri) };
    let (path, query) = (&uri[..begins], &uri[begins + 1..]);
    if !has_token(query) {
        return Cow::Borrowed(uri);
    }
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if has_token(pair) => Cow::Owned(format!("{name}={REDACTED}")),
        _ => Cow::Borrowed(pair),
    });
    Cow::Owned(format!("{path}?{}", pairs.collect::<Vec<_>>().join("&")))
}

/// Returns whether a query has a parameter for a token. Some servers also separate parameters with `;`.
fn has_token(pairs: &str) -> bool {
    pairs.as_bytes().split(|byte| matches!(byte, b'&' | b';')).any(|pair| {
        let Some(end) = pair.iter().position(|byte| *byte == b'=') else { return false };
        // The bytes are split at ASCII characters, so each part is valid UTF-8.
        let name = std::str::from_utf8(&pair[..end]).unwrap_or_default();
        let name = decoded(name);
        let name = name.trim();
        TOKEN_PARAMETERS.iter().any(|own| name.eq_ignore_ascii_case(own))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_for_secrets_and_tokens_have_level_metadata() {
        for (group, resource, subresource, expected) in [
            ("", "secrets", "", true),
            ("", "secrets", "status", true),
            ("authentication.k8s.io", "tokenreviews", "", true),
            ("", "serviceaccounts", "token", true),
            ("", "serviceaccounts", "", false),
            ("", "configmaps", "", false),
            ("example.io", "secrets", "", false),
            ("authentication.k8s.io", "selfsubjectreviews", "", false),
        ] {
            let requested = RequestedResource { group, resource, subresource, ..RequestedResource::default() };
            assert_eq!(has_secrets(&requested), expected, "{group} {resource} {subresource}");
        }
        assert_eq!(cap(Level::RequestResponse, true), Level::Metadata);
        assert_eq!(cap(Level::None, true), Level::None);
        assert_eq!(cap(Level::RequestResponse, false), Level::RequestResponse);
    }

    #[test]
    fn kind_secret_in_a_body_is_found_at_any_depth() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "Yg=="}});
        let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
        for (body, expected) in [
            (secret.clone(), true),
            (json!({"apiVersion": "v1", "kind": "List", "items": [{}, secret]}), true),
            (json!({"kind": "Table", "rows": [{"object": token}]}), true),
            (json!({"apiVersion": "example.io/v1", "kind": "Secret"}), false),
            (json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"kind": "Secret"}}), true),
            (json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "Secret"}}), false),
        ] {
            assert_eq!(is_in(&body), expected, "{body}");
        }
    }

    #[test]
    fn tokens_in_query_parameters_are_redacted() {
        for (uri, expected) in [
            ("/api/v1/pods?limit=1&watch=true", "/api/v1/pods?limit=1&watch=true"),
            ("/healthz", "/healthz"),
            ("/x?access_token=abc&limit=1", "/x?access_token=REDACTED&limit=1"),
            ("/x?a=b&ToKen=abc=d", "/x?a=b&ToKen=REDACTED"),
            ("/x?%61ccess_%74oken=abc", "/x?%61ccess_%74oken=REDACTED"),
            ("/x?a=b;token=abc", "/x?a=REDACTED"),
            ("/x?continue=token", "/x?continue=token"),
            ("/x?token", "/x?token"),
            ("/x?token=%zz", "/x?token=REDACTED"),
            ("/x?tokens=1", "/x?tokens=1"),
        ] {
            assert_eq!(without_tokens(uri), expected, "{uri}");
        }
    }

    proptest::proptest! {
        #[test]
        fn redacted_query_contains_no_token(before in "[a-z=&;%?]{0,20}", value in "[A-Z]{8,12}", after in "[a-z=&;%]{0,20}") {
            let uri = format!("/x?{before}&access_token={value}&{after}");
            proptest::prop_assert!(!without_tokens(&uri).contains(&value), "{uri}");
        }
    }
}
