//! Cluster Secrets of Argo CD. Source: argoproj/argo-cd `util/db/cluster.go`, and ClusterConfig in
//! `pkg/apis/application/v1alpha1/types.go`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::member_access::AuthenticatedAccess;

/// The label by which Argo CD selects the Secrets.
pub(super) const LABEL: (&str, &str) = ("argocd.argoproj.io/secret-type", "cluster");

/// Returns the name of a member's Secret. The prefix makes a conflict with other Secrets in Argo CD's namespace
/// unlikely.
pub(super) fn argo_cd_name(member: &str) -> String {
    format!("tributary-{member}")
}

/// Returns the data of a member's Secret. The merged view gets no Secret, because Argo CD prunes by a cache with a
/// single object of each name.
pub(super) fn argo_cd_fields(member: &str, with_token: &AuthenticatedAccess<'_>) -> Value {
    let mut tls = json!({"insecure": false});
    if let Some(data) = with_token.access.authority_data() {
        tls["caData"] = json!(data);
    }
    let config = json!({"bearerToken": with_token.token.expose(), "tlsClientConfig": tls});
    json!({
        "type": "Opaque",
        "data": {
            "name": STANDARD.encode(member),
            "server": STANDARD.encode(with_token.access.address.server(member)),
            "config": STANDARD.encode(config.to_string()),
        },
    })
}
