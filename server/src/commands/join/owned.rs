//! The fields of an UpstreamCluster that `join` owns: address, credentials and impersonation. All other fields belong
//! to the user. Without I/O.

use anyhow::bail;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use serde_json::{Value, json};
use tributary_apimachinery::ClusterName;
use tributary_crds::upstream_cluster::CLUSTER_UID;

use super::account::Purpose;
use crate::cli::JoinArguments;
use crate::credentials::pem;

#[derive(Clone, Debug)]
pub(super) struct OwnedFields {
    /// The uid of the namespace kube-system, which identifies the cluster.
    uid: String,
    url: String,
    /// The certificate authorities, in the form of `caData`. `None` if the kubeconfig sets `insecure-skip-tls-verify`.
    authorities: Option<String>,
    tls_server_name: Option<String>,
    proxy: Option<String>,
    /// True if Tributary sends users' uids to the cluster. `None` leaves the field of the UpstreamCluster unchanged.
    sends_uid: Option<bool>,
    extra: Extra,
    reviews_tokens: Option<bool>,
}

/// The extras of users that Tributary sends to the cluster.
#[derive(Clone, Debug)]
enum Extra {
    /// The cluster gets only the extras in `--impersonate-extra`.
    Exactly(Vec<String>),
    /// The cluster gets the extras in the existing UpstreamCluster file, and the extras that the account may
    /// impersonate.
    AtLeast(Vec<String>),
}

impl OwnedFields {
    /// Collects the fields of the cluster with this uid from its kubeconfig. `proxy` is the proxy in the kubeconfig.
    /// The proxy of the environment is ignored, because it belongs to this machine, and a different machine may read
    /// the file.
    ///
    /// # Errors
    /// The kubeconfig has a setting that an UpstreamCluster does not support.
    pub(super) fn new(
        arguments: &JoinArguments,
        uid: &str,
        config: &kube::Config,
        proxy: Option<&Uri>,
        purpose: &Purpose,
    ) -> anyhow::Result<Self> {
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let authorities = match &config.root_cert {
            _ if config.accept_invalid_certs => None,
            Some(authorities) => Some(STANDARD.encode(pem::certificates(authorities.iter().map(Vec::as_slice)))),
            None => bail!(
                "the kubeconfig names no certificate authority for {url}; put one in by `kubectl config set-cluster \
                 --certificate-authority FILE --embed-certs`"
            ),
        };
        let given = |is_on: bool, flag: Option<bool>| if is_on { Some(true) } else { flag };
        Ok(Self {
            uid: uid.to_owned(),
            url,
            authorities,
            tls_server_name: config.tls_server_name.clone(),
            proxy: proxy.map(ToString::to_string),
            sends_uid: given(purpose.uid, arguments.impersonate_uid),
            extra: match arguments.impersonate_extra {
                Some(_) => Extra::Exactly(purpose.extra.clone()),
                None => Extra::AtLeast(purpose.extra.clone()),
            },
            reviews_tokens: given(purpose.tokens, arguments.tokens),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns whether an UpstreamCluster describes this cluster. If the UpstreamCluster contains a uid, the uids must
    /// be equal. Otherwise, the addresses and authorities must be equal.
    pub(super) fn describe_same_cluster(&self, present: &Value) -> bool {
        match present["metadata"]["annotations"][CLUSTER_UID].as_str() {
            Some(uid) => self.uid == uid,
            None => {
                self.is_endpoint_of(&present["spec"])
                    && present["spec"]["caData"].as_str() == self.authorities.as_deref()
            }
        }
    }

    /// Sets the owned fields in an UpstreamCluster. All other fields stay.
    pub(super) fn apply_to(&self, name: &ClusterName, present: Option<&Value>) -> Value {
        let mut object = present.cloned().unwrap_or_else(|| {
            json!({"apiVersion": tributary_crds::API_VERSION, "kind": "UpstreamCluster",
                "metadata": {"name": name.as_str()}, "spec": {}})
        });
        object["metadata"]["annotations"][CLUSTER_UID] = self.uid.clone().into();
        let spec = &mut object["spec"];
        if !self.is_endpoint_of(spec) {
            spec["endpoints"] = json!([self.url]);
        }
        spec["credentials"] = json!({"tokenFile": format!("{name}.token")});
        // A user may have replaced `caData` by `caFile`, a file that is updated without `join`. `join` then keeps
        // `caFile`.
        if spec["caFile"].is_null() {
            set_or_remove(spec, "caData", self.authorities.clone().map(Value::from));
            set_or_remove(spec, "insecureSkipVerify", self.authorities.is_none().then_some(true.into()));
        }
        set_or_remove(spec, "kubeconfig", None);
        for (field, given) in [("tlsServerName", &self.tls_server_name), ("proxyURL", &self.proxy)] {
            if let Some(given) = given {
                spec[field] = given.clone().into();
            }
        }
        self.set_impersonation(spec);
        object
    }

    /// Sets the impersonated attributes of users, and whether the cluster reviews tokens.
    fn set_impersonation(&self, spec: &mut Value) {
        let told = &mut spec["impersonation"];
        if let Some(sends_uid) = self.sends_uid {
            set_or_remove(told, "uid", sends_uid.then_some(true.into()));
        }
        let present = told["extra"].as_array().cloned().unwrap_or_default();
        let extra = match &self.extra {
            Extra::Exactly(keys) => keys.iter().cloned().map(Value::from).collect(),
            Extra::AtLeast(keys) => {
                let further = keys.iter().cloned().map(Value::from).filter(|key| !present.contains(key));
                present.iter().cloned().chain(further).collect::<Vec<_>>()
            }
        };
        set_or_remove(told, "extra", (!extra.is_empty()).then_some(extra.into()));
        if told.as_object().is_some_and(serde_json::Map::is_empty) {
            set_or_remove(spec, "impersonation", None);
        }
        if let Some(reviews_tokens) = self.reviews_tokens {
            set_or_remove(spec, "tokenReview", reviews_tokens.then_some(true.into()));
        }
    }

    fn is_endpoint_of(&self, spec: &Value) -> bool {
        let endpoints = spec["endpoints"].as_array().into_iter().flatten().filter_map(Value::as_str);
        endpoints.map(|endpoint| endpoint.trim_end_matches('/')).any(|endpoint| endpoint == self.url)
    }
}

/// Sets a field of an object, or removes the field.
fn set_or_remove(object: &mut Value, field: &str, value: Option<Value>) {
    match (value, object) {
        (Some(value), object) => object[field] = value,
        (None, Value::Object(fields)) => drop(fields.remove(field)),
        (None, object) => *object = json!({}),
    }
}

/// Lists the changes between two states of an object, one line per field. A line omits a long value, and a value that
/// may contain a secret.
pub(super) fn list_changes(from: &Value, to: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    collect_changes("", (from, to), &mut lines);
    lines
}

fn collect_changes(path: &str, (from, to): (&Value, &Value), lines: &mut Vec<String>) {
    if from == to {
        return;
    }
    if let (Value::Object(left), Value::Object(right)) = (from, to) {
        let new = right.keys().filter(|key| !left.contains_key(*key));
        for key in left.keys().chain(new) {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            collect_changes(&path, (&from[key], &to[key]), lines);
        }
        return;
    }
    let is_named_alone =
        ["spec.caData", "spec.credentials", "spec.proxyURL"].iter().any(|field| path.starts_with(field));
    let shown = |value: &Value| if is_named_alone { String::new() } else { format!(": {value}") };
    lines.push(match (from.is_null(), to.is_null()) {
        (true, _) => format!("add     {path}{}", shown(to)),
        (_, true) => format!("remove  {path}{}", shown(from)),
        _ if is_named_alone => format!("change  {path}"),
        _ => format!("change  {path}: {from} to {to}"),
    });
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::purpose;
    use super::*;
    use crate::cli::{Cli, Command};

    fn owned(flags: &str, change: impl FnOnce(&mut kube::Config)) -> OwnedFields {
        let line = format!("tributary join eu --config x {flags}");
        let Command::Join(arguments) = Cli::parse_from(line.split_whitespace()).command else { panic!("{line}") };
        let mut config = kube::Config::new("https://eu.example".parse().unwrap());
        config.root_cert = Some(vec![b"authority".to_vec()]);
        change(&mut config);
        let purpose = purpose::read_purpose(&arguments, None, 36).unwrap();
        OwnedFields::new(&arguments, "u1", &config, None, &purpose).unwrap()
    }

    fn eu() -> ClusterName {
        ClusterName::new("eu").unwrap()
    }

    #[test]
    fn join_keeps_upstream_cluster_fields_of_the_user() {
        let first = owned("", |_| {}).apply_to(&eu(), None);
        let mut present = first.clone();
        for (field, value) in [
            ("dispatchPolicies", json!([{"name": "freeze"}])),
            ("index", json!(3)),
            ("endpoints", json!(["https://other.example", "https://eu.example/"])),
            ("tokenReview", json!(true)),
            ("impersonation", json!({"uid": true, "extra": ["example.com/mine"]})),
            ("proxyURL", json!("socks5h://proxy.example")),
            ("tlsServerName", json!("kubernetes")),
        ] {
            present["spec"][field] = value;
        }
        present["metadata"]["labels"] = json!({"region": "eu"});
        assert_eq!(owned("", |_| {}).apply_to(&eu(), Some(&present)), present);
        assert_eq!(list_changes(&present, &present), Vec::<String>::new());
        // The user has replaced `caData` by a file of authorities.
        let spec = present["spec"].as_object_mut().unwrap();
        spec.remove("caData");
        spec.insert("caFile".to_owned(), "eu.crt".into());
        assert_eq!(owned("", |_| {}).apply_to(&eu(), Some(&present)), present);
    }

    #[test]
    fn join_lists_each_change_of_its_fields() {
        let mut present = owned("--tokens --impersonate-uid --impersonate-extra a.b/c", |_| {}).apply_to(&eu(), None);
        present["spec"]["credentials"]["token"] = "hunter2".into();
        for (flags, moved, expected) in [
            ("", false, vec!["remove  spec.credentials.token"]),
            (
                "--tokens=false --impersonate-uid=false --impersonate-extra=",
                false,
                vec![
                    "remove  spec.credentials.token",
                    r#"remove  spec.impersonation: {"extra":["a.b/c"],"uid":true}"#,
                    "remove  spec.tokenReview: true",
                ],
            ),
            (
                "--impersonate-extra a.b/d",
                true,
                vec![
                    "remove  spec.caData",
                    "remove  spec.credentials.token",
                    r#"change  spec.endpoints: ["https://eu.example"] to ["https://moved.example"]"#,
                    r#"change  spec.impersonation.extra: ["a.b/c"] to ["a.b/d"]"#,
                    "add     spec.insecureSkipVerify: true",
                ],
            ),
        ] {
            let moves = |config: &mut kube::Config| {
                if moved {
                    config.cluster_url = "https://moved.example".parse().unwrap();
                    config.accept_invalid_certs = true;
                }
            };
            let object = owned(flags, moves).apply_to(&eu(), Some(&present));
            assert_eq!(list_changes(&present, &object), expected, "{flags}");
        }
    }
}
