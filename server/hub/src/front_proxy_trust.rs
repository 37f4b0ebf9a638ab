//! The hub's rules for client certificates and front proxies, as kube-apiserver publishes them for the servers of
//! aggregated APIs (apiserver `pkg/server/options/authentication.go`). This module does no I/O.

use http::header::HeaderName;
use serde_json::{Map, Value};
use tributary_authentication::{CertificateError, ClientCertificates, RequestHeaders, UserHeaders};

const CLIENT_CA: &str = "client-ca-file";
const FRONT_PROXY_CA: &str = "requestheader-client-ca-file";
const ALLOWED_NAMES: &str = "requestheader-allowed-names";
const USERNAME_HEADERS: &str = "requestheader-username-headers";
const UID_HEADERS: &str = "requestheader-uid-headers";
const GROUP_HEADERS: &str = "requestheader-group-headers";
const EXTRA_PREFIXES: &str = "requestheader-extra-headers-prefix";

/// The certificate authorities of the hub, and its rules for front proxies. The default trusts no certificate: it is in
/// force until the hub's ConfigMap has been read.
#[derive(Debug, Default)]
pub struct FrontProxyTrust {
    /// The authorities for client certificates; `None` if the hub accepts no client certificates.
    pub clients: Option<ClientCertificates>,
    /// The front proxy of the hub's kube-apiserver.
    pub front_proxy: FrontProxy,
}

/// The rules for the hub's front proxy, which sends the name of the user in headers.
#[derive(Debug)]
pub enum FrontProxy {
    /// A client may name users in headers if its certificate is from the authorities in `rules`.
    Trusted {
        /// The authorities, the allowed names of certificates and the names of headers.
        rules: RequestHeaders,
        /// The reason why the rules are weak, for the log and the status.
        warning: Option<String>,
    },
    /// No client may name users in headers.
    Untrusted {
        /// The names of the user headers, which are removed from each request.
        headers: UserHeaders,
        /// The reason why no front proxy is trusted, for the log and the status.
        reason: String,
    },
}

impl Default for FrontProxy {
    fn default() -> Self {
        let reason = format!("the ConfigMap {CONFIG_MAP} of the hub has not been read yet");
        Self::Untrusted { headers: default_headers(), reason }
    }
}

/// The namespace and the name of the ConfigMap.
pub(crate) const CONFIG_MAP: &str = "kube-system/extension-apiserver-authentication";

/// The reason why the hub's ConfigMap is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTrust {
    /// The answer of the hub is no ConfigMap.
    #[error("the answer for the ConfigMap {CONFIG_MAP} is not a ConfigMap with texts")]
    NoConfigMap,
    /// A value of the ConfigMap is malformed.
    #[error("key {key:?} of the ConfigMap {CONFIG_MAP}: {problem}")]
    Value {
        /// The key of the value.
        key: &'static str,
        /// The problem of the value.
        problem: String,
    },
}

impl InvalidTrust {
    fn new(key: &'static str, problem: impl Into<String>) -> Self {
        Self::Value { key, problem: problem.into() }
    }
}

impl FrontProxyTrust {
    /// Parses the ConfigMap `kube-system/extension-apiserver-authentication`.
    ///
    /// Without `requestheader-client-ca-file`, no front proxy is trusted. No front proxy is trusted either if its
    /// authorities accept the hub's ordinary clients and `requestheader-allowed-names` is empty: each user of the hub
    /// could then claim to be any user.
    ///
    /// # Errors
    /// [`InvalidTrust`] if a value is malformed.
    pub fn parse(config_map: &Value) -> Result<Self, InvalidTrust> {
        let data = match &config_map["data"] {
            _ if config_map["kind"] != "ConfigMap" => return Err(InvalidTrust::NoConfigMap),
            Value::Null => &Map::new(),
            Value::Object(data) => data,
            _ => return Err(InvalidTrust::NoConfigMap),
        };
        let clients = authorities(data, CLIENT_CA)?;
        let (headers, allowed_names) = (headers(data)?, texts(data, ALLOWED_NAMES)?);
        let front_proxy = match authorities(data, FRONT_PROXY_CA)? {
            None => FrontProxy::Untrusted { headers, reason: format!("{CONFIG_MAP} has no {FRONT_PROXY_CA}") },
            Some(authorities) => {
                let is_shared = clients.as_ref().is_some_and(|clients| authorities.accepts_clients_of(clients));
                front_proxy(RequestHeaders { authorities, allowed_names, headers }, is_shared)
            }
        };
        Ok(Self { clients, front_proxy })
    }
}

impl FrontProxy {
    /// Returns the names of the headers in which the front proxy names users.
    pub fn user_headers(&self) -> &UserHeaders {
        match self {
            Self::Trusted { rules, .. } => &rules.headers,
            Self::Untrusted { headers, .. } => headers,
        }
    }

    /// Returns the rules, if the front proxy is trusted.
    pub fn rules(&self) -> Option<&RequestHeaders> {
        match self {
            Self::Trusted { rules, .. } => Some(rules),
            Self::Untrusted { .. } => None,
        }
    }

    /// Returns the reason why no front proxy is trusted, or why the trust is weak.
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Trusted { warning, .. } => warning.as_deref(),
            Self::Untrusted { reason, .. } => Some(reason),
        }
    }
}

/// Decides whether a front proxy is trusted. `is_shared` is true if its authorities accept the hub's ordinary clients.
fn front_proxy(rules: RequestHeaders, is_shared: bool) -> FrontProxy {
    let shared = format!("in the ConfigMap {CONFIG_MAP}, {FRONT_PROXY_CA} accepts the clients of {CLIENT_CA}");
    match (is_shared, rules.allowed_names.is_empty()) {
        (true, true) => FrontProxy::Untrusted {
            headers: rules.headers,
            reason: format!(
                "{shared}, and {ALLOWED_NAMES} is empty, so each client of the hub could claim to be any user; set \
                 --requestheader-allowed-names of the hub's kube-apiserver, or give front proxies an authority of \
                 their own"
            ),
        },
        (true, false) => {
            let warning = format!(
                "{shared}, so a client whose certificate has a name in {ALLOWED_NAMES} may claim to be any user; give \
                 front proxies an authority of their own"
            );
            FrontProxy::Trusted { rules, warning: Some(warning) }
        }
        (false, _) => FrontProxy::Trusted { rules, warning: None },
    }
}

fn default_headers() -> UserHeaders {
    UserHeaders {
        username: vec![HeaderName::from_static("x-remote-user")],
        uid: Vec::new(),
        group: vec![HeaderName::from_static("x-remote-group")],
        extra_prefixes: vec!["x-remote-extra-".to_owned()],
    }
}

/// Returns the names of the user headers. An absent or empty list has kube-apiserver's default.
fn headers(data: &Map<String, Value>) -> Result<UserHeaders, InvalidTrust> {
    let default = default_headers();
    let or = |given: Vec<HeaderName>, default| if given.is_empty() { default } else { given };
    // A prefix can be parsed as a header name, because every character that a header name may contain is valid at each
    // position.
    let prefixes = header_names(data, EXTRA_PREFIXES)?.into_iter().map(|prefix| prefix.as_str().to_owned());
    let prefixes: Vec<_> = prefixes.collect();
    Ok(UserHeaders {
        username: or(header_names(data, USERNAME_HEADERS)?, default.username),
        uid: or(header_names(data, UID_HEADERS)?, default.uid),
        group: or(header_names(data, GROUP_HEADERS)?, default.group),
        extra_prefixes: if prefixes.is_empty() { default.extra_prefixes } else { prefixes },
    })
}

fn header_names(data: &Map<String, Value>, key: &'static str) -> Result<Vec<HeaderName>, InvalidTrust> {
    let parse = |name: String| {
        name.parse().map_err(|_| InvalidTrust::new(key, format!("{name:?} is not the name of an HTTP header")))
    };
    texts(data, key)?.into_iter().map(parse).collect()
}

/// Returns the JSON array of texts under a key; empty if the key is absent or has an empty value.
fn texts(data: &Map<String, Value>, key: &'static str) -> Result<Vec<String>, InvalidTrust> {
    let value = text(data, key)?;
    if value.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(value).map_err(|_| InvalidTrust::new(key, "the value is not a JSON array of texts"))
}

/// Returns the bundle of authorities under a key; `None` if the key is absent or has an empty value.
fn authorities(data: &Map<String, Value>, key: &'static str) -> Result<Option<ClientCertificates>, InvalidTrust> {
    let pem = text(data, key)?;
    if pem.trim().is_empty() {
        return Ok(None);
    }
    let invalid = |error: CertificateError| InvalidTrust::new(key, error.to_string());
    ClientCertificates::new(pem.as_bytes()).map(Some).map_err(invalid)
}

fn text<'a>(data: &'a Map<String, Value>, key: &'static str) -> Result<&'a str, InvalidTrust> {
    data.get(key)
        .map_or(Ok(""), |value| value.as_str().ok_or_else(|| InvalidTrust::new(key, "the value is not a text")))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use serde_json::json;

    use super::*;

    fn authority(name: &str) -> (CertificateParams, KeyPair, String) {
        let mut own = CertificateParams::new(Vec::<String>::new()).unwrap();
        own.distinguished_name.push(DnType::CommonName, name);
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = own.self_signed(&key).unwrap().pem();
        (own, key, pem)
    }

    fn config_map(data: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data})
    }

    fn names(headers: &[HeaderName]) -> Vec<&str> {
        headers.iter().map(HeaderName::as_str).collect()
    }

    #[test]
    fn trust_has_the_defaults_of_kube_apiserver() {
        let nothing = FrontProxyTrust::parse(&json!({"kind": "ConfigMap"})).unwrap();
        assert!(nothing.clients.is_none() && nothing.front_proxy.rules().is_none());
        assert!(nothing.front_proxy.problem().unwrap().contains("has no requestheader-client-ca-file"));
        let before_read = FrontProxyTrust::default();
        assert!(before_read.clients.is_none() && before_read.front_proxy.rules().is_none());
        assert_eq!(before_read.front_proxy.user_headers(), nothing.front_proxy.user_headers());

        let data = json!({"requestheader-client-ca-file": authority("front").2, "requestheader-allowed-names": ""});
        let trust = FrontProxyTrust::parse(&config_map(&data)).unwrap();
        let rules = trust.front_proxy.rules().unwrap();
        assert_eq!((rules.allowed_names.len(), trust.front_proxy.problem()), (0, None));
        let UserHeaders { username, uid, group, extra_prefixes } = &rules.headers;
        assert_eq!(
            (names(username), names(uid), names(group)),
            (vec!["x-remote-user"], vec![], vec!["x-remote-group"])
        );
        assert_eq!(extra_prefixes, &["x-remote-extra-"]);
    }

    #[test]
    fn trust_has_the_configured_names() {
        let data = json!({
            "client-ca-file": format!("{}{}", authority("a").2, authority("b").2),
            "requestheader-client-ca-file": authority("front").2,
            "requestheader-allowed-names": r#"["front-proxy-client","other"]"#,
            "requestheader-username-headers": r#"["X-Hub-User","X-Remote-User"]"#,
            "requestheader-uid-headers": r#"["X-Remote-Uid"]"#,
            "requestheader-group-headers": "[]",
            "requestheader-extra-headers-prefix": r#"["X-Hub-Extra-","X-Remote-Extra-"]"#,
        });
        let trust = FrontProxyTrust::parse(&config_map(&data)).unwrap();
        assert_eq!(trust.clients.unwrap().subjects().len(), 2);
        let rules = trust.front_proxy.rules().unwrap();
        assert_eq!(rules.allowed_names, ["front-proxy-client", "other"]);
        let UserHeaders { username, uid, group, extra_prefixes } = &rules.headers;
        assert_eq!(names(username), ["x-hub-user", "x-remote-user"]);
        assert_eq!((names(uid), names(group)), (vec!["x-remote-uid"], vec!["x-remote-group"]));
        assert_eq!(extra_prefixes, &["x-hub-extra-", "x-remote-extra-"]);
    }

    /// The authority that signed the hub's client authority accepts the hub's clients, too.
    #[test]
    fn front_proxy_of_the_client_authority_is_trusted_only_with_allowed_names() {
        let (own, key, pem) = authority("hub");
        // The same key in a renewed certificate.
        let mut renewed = own.clone();
        renewed.distinguished_name.push(DnType::CommonName, "hub 2");
        let renewed = renewed.self_signed(&key).unwrap().pem();
        let (below, below_key, _) = authority("below");
        let below = below.signed_by(&below_key, &Issuer::new(own, key)).unwrap().pem();
        let (one, other) = (authority("one").2, authority("other").2);
        for (clients, front_proxies, is_shared) in [
            (pem.clone(), pem.clone(), true),
            (renewed, pem.clone(), true),
            (below, pem.clone(), true),
            (format!("{one}{pem}"), format!("{pem}{other}"), true),
            (one, other, false),
            (String::new(), pem, false),
        ] {
            for names in [json!("[]"), json!(r#"["front"]"#), Value::Null] {
                let mut data = json!({"client-ca-file": clients, "requestheader-client-ca-file": front_proxies});
                if !names.is_null() {
                    data["requestheader-allowed-names"] = names.clone();
                }
                let trust = FrontProxyTrust::parse(&config_map(&data)).unwrap();
                let are_named = names == json!(r#"["front"]"#);
                assert_eq!(trust.front_proxy.rules().is_some(), !is_shared || are_named, "{names}");
                assert_eq!(trust.front_proxy.problem().is_some(), is_shared, "{names}");
            }
        }
    }

    #[test]
    fn malformed_trust_is_refused_with_its_key() {
        for (key, value) in [
            ("client-ca-file", json!("no PEM")),
            ("client-ca-file", json!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")),
            ("requestheader-client-ca-file", json!("no PEM")),
            ("requestheader-client-ca-file", json!(["a"])),
            ("requestheader-allowed-names", json!("front-proxy-client")),
            ("requestheader-allowed-names", json!("[1]")),
            ("requestheader-allowed-names", json!(null)),
            ("requestheader-username-headers", json!(r#"["X Remote"]"#)),
            ("requestheader-uid-headers", json!(r#"{"a":"b"}"#)),
            ("requestheader-group-headers", json!(r#"[""]"#)),
            ("requestheader-extra-headers-prefix", json!(r#"[""]"#)),
        ] {
            let refused = FrontProxyTrust::parse(&config_map(&json!({key: value}))).unwrap_err();
            assert!(matches!(&refused, InvalidTrust::Value { key: named, .. } if *named == key), "{key}: {refused}");
        }
        for other in [json!(null), json!({"kind": "Status"}), config_map(&json!("a")), json!([])] {
            assert_eq!(FrontProxyTrust::parse(&other).unwrap_err(), InvalidTrust::NoConfigMap, "{other}");
        }
    }
}
