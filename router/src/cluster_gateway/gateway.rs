//! The kind `ClusterGateway`.

use serde_json::{Value, json};
use tributary_fleet::foreign_member::ForeignMember;

use super::gateway_kind::{GatewayKind, api_version};

/// State of a cluster in the status of a ClusterGateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Healthy,
    Unhealthy(String),
}

/// Returns the ClusterGateway of a member. The credential shows only its type, without keys or tokens. cluster-gateway
/// shows these secrets to each user with the right to `clustergateways`, although KubeVela reads none of them.
pub(super) fn gateway_object(member: &ForeignMember, health: &Health) -> Value {
    let facts = member.gateway.clone().unwrap_or_default();
    let mut endpoint = json!({ "address": facts.endpoint });
    match facts.authorities() {
        Some(bundle) => endpoint["caBundle"] = json!(bundle),
        None => endpoint["insecure"] = json!(true),
    }
    if let Some(proxy) = facts.proxy_url {
        endpoint["proxy-url"] = json!(proxy);
    }
    let status = match health {
        Health::Healthy => json!({"healthy": true}),
        // cluster-gateway omits `healthy` if it is false.
        Health::Unhealthy(reason) => json!({ "healthyReason": reason }),
    };
    json!({
        "kind": GatewayKind::ClusterGateway.as_str(),
        "apiVersion": api_version(),
        "metadata": {"name": member.name, "creationTimestamp": member.created},
        "spec": {
            "provider": "",
            "access": {
                "endpoint": {"type": "Const", "const": endpoint},
                "credential": {"type": facts.credential_type},
            },
        },
        "status": status,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use tributary_apimachinery::{ClusterName, ForeignSystem};
    use tributary_authentication::IdentityPolicy;
    use tributary_fleet::foreign_member::GatewayFacts;

    use super::*;

    /// Base64 of a PEM text: the line `-----BEGIN CERTIFICATE-----`, the text `Y2E=` and the last line.
    const BUNDLE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tClkyRT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

    pub(in super::super) fn member(name: &str, created: &str, labels: &[(&str, &str)]) -> ForeignMember {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ForeignMember {
            system: ForeignSystem::ClusterGateway,
            name: name.to_owned(),
            cluster: ClusterName::new("eu").unwrap(),
            identity: IdentityPolicy::default(),
            authorizes_inner: false,
            labels: BTreeMap::from_iter(labels),
            created: created.to_owned(),
            gateway: Some(GatewayFacts {
                namespace: "vela-system".to_owned(),
                alias: Some("Europe".to_owned()),
                credential_type: "X509Certificate".to_owned(),
                endpoint: "https://192.0.2.1:6443".to_owned(),
                ca_bundle: Some(BUNDLE.to_owned()),
                proxy_url: None,
            }),
            credential: None,
        }
    }

    #[test]
    fn gateway_shows_the_endpoint_and_the_type_of_the_credential() {
        let mut member = member("eu.example", "2026-01-02T03:04:05Z", &[("team", "a")]);
        assert_eq!(
            gateway_object(&member, &Health::Healthy),
            json!({
                "kind": "ClusterGateway",
                "apiVersion": "cluster.core.oam.dev/v1alpha1",
                "metadata": {"name": "eu.example", "creationTimestamp": "2026-01-02T03:04:05Z"},
                "spec": {"provider": "", "access": {
                    "endpoint": {"type": "Const", "const": {"address": "https://192.0.2.1:6443", "caBundle": BUNDLE}},
                    "credential": {"type": "X509Certificate"},
                }},
                "status": {"healthy": true},
            })
        );
        member.gateway.as_mut().unwrap().ca_bundle = None;
        let object = gateway_object(&member, &Health::Unhealthy("ConnectionTimeout".to_owned()));
        assert_eq!(
            object["spec"]["access"]["endpoint"]["const"],
            json!({"address": "https://192.0.2.1:6443", "insecure": true})
        );
        assert_eq!(object["status"], json!({"healthyReason": "ConnectionTimeout"}));
    }
}
