//! ManagedClusters of Open Cluster Management. Source: open-cluster-management-io/api `cluster/v1/types.go`, and
//! managed-serviceaccount.

use serde::Deserialize;
use tributary_apimachinery::Object;
use tributary_crds::cluster_source::{ManagedClusters, UserServer};

use crate::SourceRefusal;
use crate::credential_text::{read_pem_data, with_token};
use crate::draft::ItemDraft;
use crate::object_metadata::{ObjectMetadata, decode_object, or_null};
use crate::secret::{AUTHORITIES, FindSecret, Secret, TOKEN};
use crate::server_trust::{ServerTrust, UnverifiedServers};
use crate::url::read_endpoint;

/// Label selector of the Secrets that managed-serviceaccount writes.
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

/// Reads a ManagedCluster with the Secret of its ManagedServiceAccount. The Secret is in the namespace with the name of
/// the cluster.
pub(crate) fn read_managed_cluster(
    object: &Object,
    list: &ManagedClusters,
    find_secret: FindSecret<'_>,
    unverified: UnverifiedServers,
) -> Result<ItemDraft, SourceRefusal> {
    let cluster: ManagedCluster = decode_object(object, &format!("ManagedCluster {}", object.name()))?;
    if !cluster.spec.hub_accepts_client {
        let message = "spec.hubAcceptsClient is not true. Accept the cluster by `clusteradm accept`.";
        return Err(SourceRefusal::new("NotAccepted", message));
    }
    let name = cluster.metadata.name.clone();
    let secret = find_secret(&name)?;
    let credentials = with_token(secret.token(TOKEN)?);
    let (endpoint, trust) = match &list.user_server {
        Some(server) => read_user_server(server, &name, unverified)?,
        None => read_client_config(cluster.spec, &secret, unverified)?,
    };
    let mut draft = ItemDraft::new(&name, cluster.metadata)?;
    draft.connect(endpoint, trust, credentials);
    draft.spec.tls_server_name = list.user_server.as_ref().and_then(|server| server.tls_server_name.clone());
    draft.spec.token_pass_through = list.token_pass_through;
    Ok(draft)
}

/// Returns the address of a cluster behind the user-server. The certificate of the user-server is verified with the
/// authorities in the source, because the Secret's authorities are those of the cluster.
fn read_user_server(
    server: &UserServer,
    cluster: &str,
    unverified: UnverifiedServers,
) -> Result<(String, ServerTrust), SourceRefusal> {
    const PLACE: &str = "spec.managedClusters.userServer";
    let url = read_endpoint(&server.url, &format!("{PLACE}.url of the ClusterSource"))?;
    let authorities = format!("{PLACE}.caData of the ClusterSource");
    let ca_data = read_pem_data(&server.ca_data, &authorities)?;
    Ok((format!("{url}/{cluster}"), ServerTrust::decide(ca_data, &authorities, None, unverified)?))
}

/// Returns the address in the cluster's own description.
fn read_client_config(
    spec: ManagedClusterSpec,
    secret: &Secret,
    unverified: UnverifiedServers,
) -> Result<(String, ServerTrust), SourceRefusal> {
    let Some(config) = spec.managed_cluster_client_configs.into_iter().next() else {
        let message = format!(
            "{CLIENT_CONFIGS} is empty. Give the address of the cluster's API there, or spec.managedClusters.userServer \
             in the ClusterSource."
        );
        return Err(SourceRefusal::new("MissingEndpoint", message));
    };
    let endpoint = read_endpoint(&config.url, &format!("{CLIENT_CONFIGS}[0].url"))?;
    let authorities = format!("{CLIENT_CONFIGS}[0].caBundle");
    let ca_data = match read_pem_data(&config.ca_bundle, &authorities)? {
        Some(ca_data) => Some(ca_data),
        None => secret.pem(AUTHORITIES)?,
    };
    Ok((endpoint, ServerTrust::decide(ca_data, &authorities, None, unverified)?))
}
