//! Secrets of cluster-gateway. Source: oam-dev/cluster-gateway `pkg/apis/cluster/v1alpha1`, with `convertFromSecret` in
//! `clustergateway_types_secret.go` and `NewConfigFromCluster` in `transport.go`.

use crate::SourceRefusal;
use crate::credential_command::{CommandFields, CredentialCommand};
use crate::credential_text::with_token;
use crate::draft::{ItemCredential, ItemDraft};
use crate::secret::{AUTHORITIES, Secret, TOKEN};
use crate::server_trust::{ServerTrust, UnverifiedServers};
use crate::url::{read_endpoint, read_proxy};

/// The label with the type of the credential.
pub(crate) const CREDENTIAL_TYPE: &str = "cluster.core.oam.dev/cluster-credential-type";

/// Annotation with the rules that decide which user a cluster sees.
pub(crate) const RULES: &str = "cluster.core.oam.dev/cluster-gateway-proxy-configuration";

/// The label of KubeVela 1.1, which KubeVela replaces by [`CREDENTIAL_TYPE`] (`UpgradeExistingClusterSecret`).
const OLD_CREDENTIAL_TYPE: &str = "cluster.core.oam.dev/cluster-credential";

const ENDPOINT_TYPE: &str = "cluster.core.oam.dev/cluster-endpoint-type";
const ALIAS: &str = "cluster.core.oam.dev/cluster-alias";
const OLD_AUTHORITIES: &str = "ca";
const ENDPOINT: &str = "endpoint";
const PROXY: &str = "proxy-url";
const EXEC: &str = "exec";

pub(crate) fn read_cluster_gateway_secret(
    secret: Secret,
    unverified: UnverifiedServers,
) -> Result<ItemDraft, SourceRefusal> {
    check_endpoint_type(&secret)?;
    let credential = read_credential(&secret)?;
    let endpoint = read_endpoint(&secret.text(ENDPOINT)?.unwrap_or_default(), &secret.place(ENDPOINT))?;
    let proxy = read_proxy(&secret.text(PROXY)?.unwrap_or_default(), &secret.place(PROXY))?;
    let ca_data = match secret.pem(AUTHORITIES)? {
        Some(ca_data) => Some(ca_data),
        None => secret.pem(OLD_AUTHORITIES)?,
    };
    let trust = ServerTrust::decide(ca_data, &secret.place(AUTHORITIES), None, unverified)?;
    let mut draft = ItemDraft::new(&secret.metadata.name.clone(), secret.metadata)?;
    draft.connect(endpoint, trust, credential);
    draft.spec.proxy_url = proxy;
    draft.alias = draft.metadata.annotations.get(ALIAS).cloned();
    Ok(draft)
}

fn check_endpoint_type(secret: &Secret) -> Result<(), SourceRefusal> {
    match secret.metadata.labels.get(ENDPOINT_TYPE).map(String::as_str) {
        None | Some("Const") => Ok(()),
        Some(other) => {
            let name = &secret.metadata.name;
            let message = format!(
                "Secret {name}: the label {ENDPOINT_TYPE} is {other:?}, and Tributary does not support tunnels to \
                 clusters. Give an endpoint of the type Const, such as the user-server of Open Cluster Management."
            );
            Err(SourceRefusal::new("NotSupported", message))
        }
    }
}

fn read_credential(secret: &Secret) -> Result<ItemCredential, SourceRefusal> {
    let labels = &secret.metadata.labels;
    let name = &secret.metadata.name;
    match labels.get(CREDENTIAL_TYPE).map(String::as_str) {
        Some("X509Certificate") => secret.client_certificate().map(Into::into),
        Some("ServiceAccountToken") => Ok(with_token(secret.token(TOKEN)?).into()),
        Some("Dynamic") => read_command(secret).map(Into::into),
        Some(other) => {
            let message = format!(
                "Secret {name}: the label {CREDENTIAL_TYPE} is {other:?}. Allowed are X509Certificate, \
                 ServiceAccountToken and Dynamic."
            );
            Err(SourceRefusal::new("UnknownCredentialType", message))
        }
        None => {
            let old = if labels.contains_key(OLD_CREDENTIAL_TYPE) { " in place of its old form" } else { "" };
            let message = format!(
                "Secret {name} lacks the label {CREDENTIAL_TYPE}. Add the label{old}, with the value X509Certificate \
                 or ServiceAccountToken."
            );
            Err(SourceRefusal::new("MissingLabel", message))
        }
    }
}

/// Reads the command of a Secret.
fn read_command(secret: &Secret) -> Result<CredentialCommand, SourceRefusal> {
    let place = secret.place(EXEC);
    let Some(text) = secret.text(EXEC)? else {
        let message = format!("{place} is missing or empty. Add the key, or use a different type of credential.");
        return Err(SourceRefusal::new("MissingCredential", message));
    };
    // The parser's message is omitted, because it can quote secrets.
    let fields: CommandFields = serde_json::from_str(&text).map_err(|_| {
        let message = format!("{place} is not JSON of an ExecConfig. Correct the value.");
        SourceRefusal::new("InvalidExec", message)
    })?;
    fields.check_foreign(&place)
}
