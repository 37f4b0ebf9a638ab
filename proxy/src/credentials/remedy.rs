//! Remedy for rejected credentials: the configuration field with the credentials.

use kube::config::AuthInfo;

use crate::credentials::credential_method::CredentialMethod;

/// Returns the remedy for a user with rejected credentials. The text has the field's name in a kubeconfig and, if it
/// exists, in an `UpstreamCluster`, because the source of the configuration is unknown here.
pub(super) fn remedy(user: &AuthInfo) -> &'static str {
    match CredentialMethod::from_user(user) {
        CredentialMethod::Provider => "sign in again with the provider in users[].user.auth-provider of its kubeconfig",
        CredentialMethod::Password => "renew users[].user.password of its kubeconfig",
        CredentialMethod::Token(_) => {
            "renew users[].user.token of its kubeconfig, or spec.credentials.token of its UpstreamCluster"
        }
        CredentialMethod::TokenFile(_) => {
            "renew the file that users[].user.tokenFile of its kubeconfig, or spec.credentials.tokenFile of its \
             UpstreamCluster, names"
        }
        CredentialMethod::Exec(_) => "sign in again with the plugin in users[].user.exec of its kubeconfig",
        CredentialMethod::Certificate => {
            "renew users[].user.client-certificate-data of its kubeconfig, or \
             spec.credentials.clientCertificateData of its UpstreamCluster, and the key beside it"
        }
        CredentialMethod::CertificateFile => {
            "renew the file that users[].user.client-certificate of its kubeconfig, or \
             spec.credentials.clientCertificateFile of its UpstreamCluster, names, and the key beside it"
        }
        CredentialMethod::Nothing => {
            "no credentials are configured: set users[].user of its kubeconfig, or spec.credentials of its \
             UpstreamCluster"
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn error_for_rejected_credentials_names_the_configuration_field_to_change() {
        for (user, in_kubeconfig, in_upstream_cluster) in [
            (json!({"auth-provider": {"name": "oidc"}}), "user.auth-provider of", None),
            (json!({"username": "x", "password": "x"}), "user.password of", None),
            // A user name without a password is ignored, so the token is the credential.
            (json!({"username": "x", "token": "x"}), "user.token of", Some("credentials.token of")),
            (json!({"tokenFile": "x"}), "user.tokenFile of", Some("credentials.tokenFile of")),
            (json!({"exec": {"command": "x"}}), "user.exec of", None),
            (
                json!({"client-certificate-data": "x", "client-certificate": "x"}),
                "user.client-certificate-data of",
                Some("credentials.clientCertificateData of"),
            ),
            (
                json!({"client-certificate": "x"}),
                "user.client-certificate of",
                Some("credentials.clientCertificateFile of"),
            ),
            (json!({}), "users[].user of", Some("spec.credentials of")),
        ] {
            let text = remedy(&serde_json::from_value(user).unwrap());
            assert!(text.contains(in_kubeconfig), "{text}");
            assert_eq!(text.contains("UpstreamCluster"), in_upstream_cluster.is_some(), "{text}");
            assert!(in_upstream_cluster.is_none_or(|field| text.contains(field)), "{text}");
        }
    }
}
