//! ManagedClusters of Open Cluster Management. Source: open-cluster-management-io/api `cluster/v1/types.go`, and
//! managed-serviceaccount.

use serde::Deserialize;
use tributary_apimachinery::Object;

use crate::SourceRefusal;
use crate::credential_text::{read_pem_data, with_token};
use crate::draft::ItemDraft;
use crate::object_metadata::{ObjectMetadata, decode_object, or_null};
use crate::secret::{AUTHORITIES, FindSecret, TOKEN};
use crate::server_trust::{ServerTrust, UnverifiedServers};
use crate::url::read_endpoint;

/// The requirement for the labels of Secrets that managed-serviceaccount writes.
pub(crate) const SECRET_LABEL: &str = "authentication.open-cluster-management.io/is-managed-serviceaccount=true";

const CLIENT_CONFIGS: &str = "spec.managedClusterClientConfigs";

#[derive(Deserialize)]
struct ManagedCluster {
    metadata: ObjectMetadata,
    #[serde(default, deserialize_with = "or_null")]
    spec: ManagedClusterSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManagedClusterSpec {
    hub_accepts_client: bool,
    #[serde(deserialize_with = "or_null")]
    managed_cluster_client_configs: Vec<ClientConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientConfig {
    url: String,
    /// Base64 of PEM text.
    #[serde(default, deserialize_with = "or_null")]
    ca_bundle: String,
}

/// Reads a ManagedCluster with the Secret of its ManagedServiceAccount, which is in the namespace of the cluster's
/// name.
pub(crate) fn read_managed_cluster(
    object: &Object,
    find_secret: FindSecret<'_>,
    unverified: UnverifiedServers,
) -> Result<ItemDraft, SourceRefusal> {
    let cluster: ManagedCluster = decode_object(object, &format!("ManagedCluster {}", object.name()))?;
    if !cluster.spec.hub_accepts_client {
        let message = "spec.hubAcceptsClient is not true. Accept the cluster by `clusteradm accept`.";
        return Err(SourceRefusal::new("NotAccepted", message));
    }
    let Some(config) = cluster.spec.managed_cluster_client_configs.into_iter().next() else {
        let message = format!("{CLIENT_CONFIGS} is empty. Give the address of the cluster's API there.");
        return Err(SourceRefusal::new("MissingEndpoint", message));
    };
    let endpoint = read_endpoint(&config.url, &format!("{CLIENT_CONFIGS}[0].url"))?;
    let secret = find_secret(&cluster.metadata.name)?;
    let authorities = format!("{CLIENT_CONFIGS}[0].caBundle");
    let ca_data = match read_pem_data(&config.ca_bundle, &authorities)? {
        Some(ca_data) => Some(ca_data),
        None => secret.pem(AUTHORITIES)?,
    };
    let trust = ServerTrust::decide(ca_data, &authorities, None, unverified)?;
    let credentials = with_token(secret.token(TOKEN)?);
    let mut draft = ItemDraft::new(&cluster.metadata.name.clone(), cluster.metadata)?;
    draft.connect(endpoint, trust, credentials);
    Ok(draft)
}
