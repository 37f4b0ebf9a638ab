//! Objects of a hub: decoding, and the fields that objects of a hub may not have.
//!
//! Users who may create objects in the hub need no access to the machine of Tributary. So an object of the hub names no
//! files and no commands, and contains no secrets: Secrets have access rules of their own. It also names no authorities
//! for clients, which could vouch for any user of the cluster.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::load::violations;
use crate::schema::Violation;
use crate::validate::ValidationProblem;
use crate::{Credentials, SecureServing, Severity, UpstreamCluster, UpstreamClusterSpec};

/// Whether a member of the hub may have unverified servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsecureMembers {
    /// `insecureSkipVerify` is refused.
    Refused,
    /// `insecureSkipVerify` is allowed, by a flag of the process.
    Allowed,
}

/// The reasons why an object of the hub cannot be decoded, one for each field. The texts contain no values of fields
/// that may be secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubObjectError(pub Vec<String>);

impl std::error::Error for HubObjectError {}

impl fmt::Display for HubObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// Decodes an object of the hub. The object's `status` is ignored. Unknown fields are refused, because an unknown field
/// may restrict the object.
///
/// # Errors
/// [`HubObjectError`] with all unknown fields and all values of a wrong type.
pub fn decode_hub_object<T: DeserializeOwned>(mut document: Value, kind: &str) -> Result<T, HubObjectError> {
    if let Some(object) = document.as_object_mut() {
        object.remove("status");
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for server_field in ["managedFields", "deletionGracePeriodSeconds", "selfLink", "generateName"] {
                metadata.remove(server_field);
            }
        }
    }
    let found = violations(&document, kind);
    if !found.is_empty() {
        let line = |Violation { field, message }: Violation| format!("{field}: {message}");
        return Err(HubObjectError(found.into_iter().map(line).collect()));
    }
    serde_json::from_value(document).map_err(|error| HubObjectError(vec![error.to_string()]))
}

/// Returns the problems of a member's fields that an object of the hub may not have. Each problem is an error.
pub fn hub_problems(cluster: &UpstreamCluster, insecure: InsecureMembers) -> Vec<ValidationProblem> {
    let spec = &cluster.spec;
    let mut problems = Vec::new();
    let mut refuse = |field: &str, message: &str| {
        problems.push(ValidationProblem {
            severity: Severity::Error,
            object: crate::configuration::object_text(
                "UpstreamCluster",
                cluster.metadata.name.as_deref().unwrap_or_default(),
            ),
            field: format!("spec.{field}"),
            message: message.to_owned(),
            origins: Vec::new(),
        });
    };
    for field in file_fields(spec) {
        refuse(
            field,
            "names a file, which an object of a hub may not do; use spec.secretRef, or spec.caData for authorities",
        );
    }
    for field in secret_fields(spec) {
        refuse(
            field,
            "is a secret, which an object of a hub may not contain; put it into a Secret, and name it in spec.secretRef",
        );
    }
    if spec.secure_serving.as_ref().is_some_and(|own| own.client_ca_data.is_some()) {
        // Tributary impersonates the users of these authorities with its own account in the cluster.
        refuse(
            "secureServing.clientCAData",
            "lets its authorities name any user of the cluster, which an object of a hub may not do; use \
             --client-ca-file, or put the UpstreamCluster into a file (--config)",
        );
    }
    for (index, endpoint) in spec.endpoints.iter().enumerate() {
        let field = format!("endpoints[{index}]");
        if !endpoint.starts_with("https://") {
            refuse(&field, "is not an https:// address, which objects of a hub need");
        } else if has_user_info(endpoint) {
            refuse(&field, "contains a user or a password; remove them, and name a Secret in spec.secretRef");
        }
    }
    if spec.proxy_url.as_deref().is_some_and(has_user_info) {
        refuse("proxyURL", "contains a user or a password, which an object of a hub may not contain; remove them");
    }
    if spec.insecure_skip_verify && insecure == InsecureMembers::Refused {
        refuse(
            "insecureSkipVerify",
            "is refused for objects of a hub unless Tributary runs with --hub-allow-insecure-skip-verify; give \
             spec.caData, or a Secret with ca.crt",
        );
    }
    problems
}

fn has_user_info(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    authority.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

fn file_fields(spec: &UpstreamClusterSpec) -> Vec<&'static str> {
    let credentials = spec.credentials.as_ref();
    let credential = |file: fn(&Credentials) -> &Option<String>| credentials.is_some_and(|own| file(own).is_some());
    let serving = |file: fn(&SecureServing) -> &Option<String>| {
        spec.secure_serving.as_ref().is_some_and(|own| file(own).is_some())
    };
    let fields = [
        ("kubeconfig", spec.kubeconfig.is_some()),
        ("caFile", spec.ca_file.is_some()),
        ("credentials.tokenFile", credential(|own| &own.token_file)),
        ("credentials.clientCertificateFile", credential(|own| &own.client_certificate_file)),
        ("credentials.clientKeyFile", credential(|own| &own.client_key_file)),
        ("secureServing.certificateFile", serving(|own| &own.certificate_file)),
        ("secureServing.keyFile", serving(|own| &own.key_file)),
        ("secureServing.clientCAFile", serving(|own| &own.client_ca_file)),
    ];
    fields.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field).collect()
}

fn secret_fields(spec: &UpstreamClusterSpec) -> Vec<&'static str> {
    let credentials = spec.credentials.as_ref();
    let fields = [
        ("credentials.token", credentials.is_some_and(|own| own.token.is_some())),
        ("credentials.clientCertificateData", credentials.is_some_and(|own| own.client_certificate_data.is_some())),
        ("credentials.clientKeyData", credentials.is_some_and(|own| own.client_key_data.is_some())),
        ("secureServing.keyData", spec.secure_serving.as_ref().is_some_and(|own| own.key_data.is_some())),
    ];
    fields.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(spec: Value) -> UpstreamCluster {
        let document = json!({
            "apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster",
            "metadata": {"name": "eu", "uid": "1", "generation": 2, "resourceVersion": "7", "managedFields": [{}]},
            "spec": spec, "status": {"anything": 1},
        });
        decode_hub_object(document, "UpstreamCluster").unwrap()
    }

    #[test]
    fn hub_object_with_file_paths_secrets_or_plain_http_addresses_is_refused() {
        for (spec, field) in [
            (json!({"kubeconfig": {"path": "/kubeconfig"}}), "spec.kubeconfig"),
            (json!({"caFile": "ca.pem"}), "spec.caFile"),
            (json!({"credentials": {"token": "hunter2"}}), "spec.credentials.token"),
            (json!({"credentials": {"tokenFile": "/t"}}), "spec.credentials.tokenFile"),
            (json!({"credentials": {"clientCertificateData": "hunter2"}}), "spec.credentials.clientCertificateData"),
            (json!({"credentials": {"clientCertificateFile": "/c"}}), "spec.credentials.clientCertificateFile"),
            (json!({"credentials": {"clientKeyData": "hunter2"}}), "spec.credentials.clientKeyData"),
            (json!({"credentials": {"clientKeyFile": "/k"}}), "spec.credentials.clientKeyFile"),
            (json!({"secureServing": {"certificateFile": "/c"}}), "spec.secureServing.certificateFile"),
            (json!({"secureServing": {"keyFile": "/k"}}), "spec.secureServing.keyFile"),
            (json!({"secureServing": {"keyData": "hunter2"}}), "spec.secureServing.keyData"),
            (json!({"secureServing": {"clientCAFile": "/c"}}), "spec.secureServing.clientCAFile"),
            (json!({"secureServing": {"clientCAData": "hunter2"}}), "spec.secureServing.clientCAData"),
            (json!({"endpoints": ["http://eu:80"]}), "spec.endpoints[0]"),
            (json!({"endpoints": ["https://eu", "https://ann:hunter2@eu"]}), "spec.endpoints[1]"),
            (json!({"proxyURL": "http://ann:hunter2@proxy:3128"}), "spec.proxyURL"),
            (json!({"insecureSkipVerify": true}), "spec.insecureSkipVerify"),
        ] {
            let problems = hub_problems(&member(spec.clone()), InsecureMembers::Refused);
            let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
            assert_eq!(fields, [field], "{spec}");
            assert!(!problems[0].to_string().contains("hunter2"), "{spec}");
        }
        let good = json!({"endpoints": ["https://eu:6443"], "secretRef": {"name": "eu"}, "insecureSkipVerify": true});
        assert_eq!(hub_problems(&member(good), InsecureMembers::Allowed), []);
    }

    #[test]
    fn refusal_of_a_hub_object_names_its_unknown_fields() {
        let document = json!({"metadata": {"name": "eu"}, "spec": {"endpoint": "x", "index": "y"}});
        let error = decode_hub_object::<UpstreamCluster>(document, "UpstreamCluster").unwrap_err().to_string();
        assert!(error.contains("spec.endpoint: unknown field"), "{error}");
        assert!(error.contains("spec.index: "), "{error}");
    }
}
