//! Writes the health of clusters to Secrets of cluster-gateway.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use tributary_apimachinery::Status;
use tributary_router::{GatewayHealth, SecretPlace, WriteGatewayHealth};

use crate::client::{HubClient, HubError};

/// Annotations of cluster-gateway (`pkg/apis/cluster/v1alpha1/clustergateway_types_secret.go`).
const HEALTHY: &str = "status.cluster.core.oam.dev/healthy";
const HEALTHY_REASON: &str = "status.cluster.core.oam.dev/healthy-reason";

/// Writes the health of clusters, with Tributary's own account in the hub.
#[derive(Debug)]
pub struct GatewayHealthWriter(pub Arc<HubClient>);

impl WriteGatewayHealth for GatewayHealthWriter {
    fn write(&self, place: SecretPlace, health: GatewayHealth) -> BoxFuture<'static, Result<(), Status>> {
        let hub = Arc::clone(&self.0);
        async move {
            let SecretPlace { namespace, name } = place;
            let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
            let patch = annotations(&health);
            let answer = hub.send(Method::PATCH, &path, "application/merge-patch+json", Some(&patch)).await;
            answer.map(drop).map_err(|error| refusal(&namespace, &name, &error))
        }
        .boxed()
    }
}

fn annotations(health: &GatewayHealth) -> Value {
    let GatewayHealth { is_healthy, reason } = health;
    json!({"metadata": {"annotations": { HEALTHY: is_healthy.to_string(), HEALTHY_REASON: reason }}})
}

/// The message of the hub is left out, because it names Tributary's account.
fn refusal(namespace: &str, name: &str, error: &HubError) -> Status {
    let remedy = match error.code() {
        Some(403) => "; allow Tributary to patch the Secret",
        _ => "",
    };
    let reason = error.reason_for_clients();
    Status::service_unavailable(format!("the health is not written to Secret {namespace}/{name}: {reason}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_written_as_the_two_annotations_of_cluster_gateway() {
        let health = GatewayHealth { is_healthy: false, reason: "ConnectionTimeout".to_owned() };
        assert_eq!(
            annotations(&health),
            json!({"metadata": {"annotations": {
                "status.cluster.core.oam.dev/healthy": "false",
                "status.cluster.core.oam.dev/healthy-reason": "ConnectionTimeout",
            }}})
        );
    }

    #[test]
    fn refusal_of_the_hub_names_the_secret_and_the_remedy() {
        let refused =
            HubError::Refused { code: 403, reason: "Forbidden".to_owned(), message: "User tributary …".to_owned() };
        let status = refusal("vela-system", "eu", &refused);
        assert!(status.message.contains("vela-system/eu") && status.message.contains("allow Tributary to patch"));
        assert!(!status.message.contains("User tributary"));
    }
}
