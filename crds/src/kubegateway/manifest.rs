//! The fields of KubeGateway's UpstreamCluster. Unknown fields are stored separately, so that the conversion can report
//! them.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub(super) type Rest = BTreeMap<String, Value>;

/// Deserializes `null` as the default value, as Go does.
fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Deserialize)]
pub(super) struct GatewayManifest {
    #[serde(default, deserialize_with = "or_null")]
    pub(super) metadata: GatewayMetadata,
    #[serde(default, deserialize_with = "or_null")]
    pub(super) spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct GatewayMetadata {
    #[serde(deserialize_with = "or_null")]
    pub(super) name: String,
    #[serde(deserialize_with = "or_null")]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    #[serde(deserialize_with = "or_null")]
    pub(super) servers: Vec<Server>,
    #[serde(deserialize_with = "or_null")]
    pub(super) client_config: ClientConfig,
    #[serde(deserialize_with = "or_null")]
    pub(super) secure_serving: GatewaySecureServing,
    #[serde(deserialize_with = "or_null")]
    pub(super) flow_control: GatewayFlowControl,
    #[serde(deserialize_with = "or_null")]
    pub(super) dispatch_policies: Vec<GatewayPolicy>,
    #[serde(deserialize_with = "or_null")]
    pub(super) logging: GatewayLogging,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Server {
    pub(super) endpoint: String,
    #[serde(deserialize_with = "or_null")]
    pub(super) disabled: bool,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

/// The connection to the servers. The fields with data are base64 of PEM text, or of a token.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClientConfig {
    pub(super) insecure: bool,
    pub(super) bearer_token: Option<String>,
    pub(super) key_data: Option<String>,
    pub(super) cert_data: Option<String>,
    pub(super) ca_data: Option<String>,
    pub(super) qps: i64,
    pub(super) burst: i64,
    pub(super) qps_divisor: i64,
    pub(super) server_name: Option<String>,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GatewaySecureServing {
    pub(super) key_data: Option<String>,
    pub(super) cert_data: Option<String>,
    #[serde(rename = "clientCAData")]
    pub(super) client_ca_data: Option<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) server_names: Vec<String>,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GatewayFlowControl {
    #[serde(deserialize_with = "or_null")]
    pub(super) flow_control_schemas: Vec<GatewaySchema>,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GatewaySchema {
    pub(super) name: String,
    pub(super) strategy: String,
    pub(super) exempt: Option<Value>,
    pub(super) max_requests_inflight: Option<Max>,
    pub(super) token_bucket: Option<Bucket>,
    pub(super) global_max_requests_inflight: Option<Value>,
    pub(super) global_token_bucket: Option<Value>,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Max {
    pub(super) max: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Bucket {
    pub(super) qps: i64,
    pub(super) burst: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GatewayPolicy {
    pub(super) strategy: String,
    #[serde(deserialize_with = "or_null")]
    pub(super) upstream_subset: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) upsteam_subset: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) rules: Vec<GatewayRule>,
    #[serde(deserialize_with = "or_null")]
    pub(super) flow_control_schema_name: String,
    pub(super) log_mode: Value,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GatewayRule {
    #[serde(deserialize_with = "or_null")]
    pub(super) verbs: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) api_groups: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) resources: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) resource_names: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) users: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) service_accounts: Vec<ServiceAccount>,
    #[serde(deserialize_with = "or_null")]
    pub(super) user_groups: Vec<String>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "or_null")]
    pub(super) non_resource_urls: Vec<String>,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceAccount {
    pub(super) name: String,
    pub(super) namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct GatewayLogging {
    pub(super) mode: Value,
    #[serde(flatten)]
    pub(super) rest: Rest,
}
