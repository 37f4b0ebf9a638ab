//! ClusterProfiles of SIG Multicluster. Source: kubernetes-sigs/cluster-inventory-api
//! `apis/v1alpha1/clusterprofile_types.go`, and `BuildConfigFromCP` in `pkg/access/config.go`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tributary_apimachinery::Object;
use tributary_crds::PUBLISHED_BY;

use crate::SourceRefusal;
use crate::access_providers::AccessProviders;
use crate::credential_text::read_pem_data;
use crate::draft::ItemDraft;
use crate::item::ItemWarning;
use crate::object_metadata::{ObjectMetadata, decode_object, or_null};
use crate::server_trust::{ServerTrust, UnverifiedServers};
use crate::url::{read_endpoint, read_proxy};

/// The cluster manager of profiles that Tributary publishes.
const OWN_MANAGER: &str = "tributary";

/// The condition of a cluster that is ready.
const HEALTHY: &str = "ControlPlaneHealthy";

/// The fields of client-go's Cluster (`tools/clientcmd/api/v1/types.go`).
const CLUSTER_FIELDS: [&str; 8] = [
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
    "extensions",
];

#[derive(Deserialize)]
struct ClusterProfile {
    metadata: ObjectMetadata,
    #[serde(default, deserialize_with = "or_null")]
    spec: ProfileSpec,
    #[serde(default, deserialize_with = "or_null")]
    status: ProfileStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProfileSpec {
    #[serde(deserialize_with = "or_null")]
    cluster_manager: ClusterManager,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClusterManager {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProfileStatus {
    #[serde(deserialize_with = "or_null")]
    conditions: Vec<ProfileCondition>,
    #[serde(deserialize_with = "or_null")]
    access_providers: Vec<ProviderAccess>,
    /// The former name of `accessProviders`.
    #[serde(deserialize_with = "or_null")]
    credential_providers: Vec<ProviderAccess>,
}

#[derive(Deserialize)]
struct ProfileCondition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
}

/// Address and certificate authority of a cluster for one access provider.
#[derive(Deserialize)]
struct ProviderAccess {
    name: String,
    #[serde(default)]
    cluster: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct ProfileCluster {
    #[serde(deserialize_with = "or_null")]
    server: String,
    #[serde(deserialize_with = "or_null")]
    tls_server_name: String,
    #[serde(deserialize_with = "or_null")]
    insecure_skip_tls_verify: bool,
    #[serde(deserialize_with = "or_null")]
    certificate_authority: String,
    #[serde(deserialize_with = "or_null")]
    certificate_authority_data: String,
    #[serde(deserialize_with = "or_null")]
    proxy_url: String,
    #[serde(deserialize_with = "or_null")]
    disable_compression: bool,
    #[serde(deserialize_with = "or_null")]
    extensions: Vec<ProfileExtension>,
}

#[derive(Deserialize)]
struct ProfileExtension {
    name: String,
    #[serde(default)]
    extension: Value,
}

/// Reads a profile by the first provider of the file that the profile has.
pub(crate) fn read_cluster_profile(
    object: &Object,
    providers: &AccessProviders,
    unverified: UnverifiedServers,
) -> Result<ItemDraft, SourceRefusal> {
    let profile: ClusterProfile = decode_object(object, &format!("ClusterProfile {}", object.name()))?;
    refuse_own_profile(&profile)?;
    let status = &profile.status;
    // A current field has priority over its former name.
    let clusters = status.access_providers.iter().chain(&status.credential_providers);
    let cluster_of = |name: &str| clusters.clone().find(|access| access.name == name).map(|access| &access.cluster);
    let Some((provider, cluster)) = providers.choose(cluster_of) else {
        let message = format!(
            "status.accessProviders has none of the providers of --cluster-profile-providers: {}. Add one of them to \
             the file, or let the cluster manager write it.",
            providers.names()
        );
        return Err(SourceRefusal::new("ProviderNotFound", message));
    };
    let place = format!("status.accessProviders[{}].cluster", provider.name);
    let cluster = read_cluster(cluster, &place)?;
    let at = |field: &str| format!("{place}.{field}");
    let endpoint = read_endpoint(&cluster.server, &at("server"))?;
    let proxy = read_proxy(&cluster.proxy_url, &at("proxy-url"))?;
    let switch = at("insecure-skip-tls-verify");
    let switch = cluster.insecure_skip_tls_verify.then_some(switch.as_str());
    let authorities = at("certificate-authority-data");
    let ca_data = read_pem_data(&cluster.certificate_authority_data, &authorities)?;
    let trust = ServerTrust::decide(ca_data, &authorities, switch, unverified)?;
    let extensions: BTreeMap<String, Value> =
        cluster.extensions.into_iter().map(|named| (named.name, named.extension)).collect();
    let command = provider.command_for(&extensions, &place)?;

    let foreign_name = format!("{}/{}", profile.metadata.namespace, profile.metadata.name);
    let not_ready = find_problem(&profile.status.conditions);
    let mut draft = ItemDraft::new(&foreign_name, profile.metadata)?;
    draft.connect(endpoint, trust, command);
    draft.spec.proxy_url = proxy;
    draft.spec.tls_server_name = Some(cluster.tls_server_name).filter(|name| !name.is_empty());
    draft.not_ready = not_ready;
    Ok(draft)
}

fn refuse_own_profile(profile: &ClusterProfile) -> Result<(), SourceRefusal> {
    let is_own = profile.spec.cluster_manager.name == OWN_MANAGER;
    if !is_own && !profile.metadata.labels.contains_key(PUBLISHED_BY) {
        return Ok(());
    }
    let message = "The profile describes a member of Tributary itself, which leads back to Tributary. Select other \
                   profiles by labelSelector or namespace.";
    Err(SourceRefusal::new("PublishedByTributary", message))
}

/// Decodes a cluster. Each field is honoured, or the cluster is refused.
fn read_cluster(cluster: &Value, place: &str) -> Result<ProfileCluster, SourceRefusal> {
    let fields = cluster.as_object().into_iter().flatten();
    if let Some((field, _)) = fields.clone().find(|(field, _)| !CLUSTER_FIELDS.contains(&field.as_str())) {
        let message = format!("{place}: the field {field:?} is not supported. Remove it.");
        return Err(SourceRefusal::new("NotSupported", message));
    }
    let cluster: Option<ProfileCluster> = serde_json::from_value(cluster.clone()).map_err(|_| {
        SourceRefusal::new("Unreadable", format!("{place} has a field with a wrong type. Correct the profile."))
    })?;
    let cluster = cluster.unwrap_or_default();
    if !cluster.certificate_authority.is_empty() {
        let message =
            format!("{place}.certificate-authority names a file. Give the content in certificate-authority-data.");
        return Err(SourceRefusal::new("FileNotAllowed", message));
    }
    if cluster.disable_compression {
        let message = format!(
            "{place}.disable-compression: Tributary forwards the Accept-Encoding of its clients. Remove the field."
        );
        return Err(SourceRefusal::new("NotSupported", message));
    }
    Ok(cluster)
}

/// Returns the reason why a cluster is not ready.
fn find_problem(conditions: &[ProfileCondition]) -> Option<ItemWarning> {
    let healthy = conditions.iter().find(|condition| condition.kind == HEALTHY);
    let status = match healthy {
        Some(condition) if condition.status == "True" => return None,
        Some(condition) => format!("is {:?}", condition.status),
        None => "is missing".to_owned(),
    };
    let message = format!(
        "The condition {HEALTHY} {status}. Tributary serves the cluster after the condition was True once. Look at the \
         cluster manager."
    );
    Some(ItemWarning { reason: "NotReady", message })
}
