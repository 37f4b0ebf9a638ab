//! Kubeconfig Secrets of multicluster-runtime. Source: kubernetes-sigs/multicluster-runtime
//! `providers/kubeconfig/provider.go`. The name of the Secret is the name of the cluster.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::member_access::AuthenticatedAccess;

/// The name of the user in a kubeconfig.
const USER: &str = "tributary";

/// The label by which multicluster-runtime selects the Secrets.
pub(super) const LABEL: (&str, &str) = ("sigs.k8s.io/multicluster-runtime-kubeconfig", "true");

/// Returns the data of a member's Secret. The kubeconfig names no file and no command. It is JSON, which
/// is valid YAML.
pub(super) fn kubeconfig_fields(member: &str, with_token: &AuthenticatedAccess<'_>) -> Value {
    let mut cluster = json!({"server": with_token.access.address.server(member)});
    if let Some(data) = with_token.access.authority_data() {
        cluster["certificate-authority-data"] = json!(data);
    }
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": member, "cluster": cluster}],
        "users": [{"name": USER, "user": {"token": with_token.token.expose()}}],
        "contexts": [{"name": member, "context": {"cluster": member, "user": USER}}],
        "current-context": member,
    });
    json!({
        "type": "Opaque",
        "data": {"kubeconfig": STANDARD.encode(kubeconfig.to_string())},
    })
}
