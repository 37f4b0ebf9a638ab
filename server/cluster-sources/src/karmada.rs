//! Clusters of Karmada. Source: karmada-io/karmada `pkg/apis/cluster/v1alpha1/types.go`, and `BuildClusterConfig` in
//! `pkg/util/membercluster_client.go`.

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_apimachinery::Object;
use tributary_crds::SecretText;

use crate::SourceRefusal;
use crate::credential_text::with_token;
use crate::draft::ItemDraft;
use crate::item::ItemWarning;
use crate::object_metadata::{ObjectMetadata, decode_object, or_null};
use crate::secret::{FindSecret, Secret, TOKEN};
use crate::secret_permission::{SecretUser, check_hosts, check_owner};
use crate::server_trust::{ServerTrust, UnverifiedServers};
use crate::url::{read_endpoint, read_proxy};

const GROUP: &str = "cluster.karmada.io";
const KIND: &str = "Cluster";

/// The key of a Secret whose value is the cluster's certificate authorities.
const AUTHORITIES: &str = "caBundle";

/// Well-known labels of nodes (`k8s.io/api/core/v1/well_known_labels.go`), and a label for the provider.
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const PROVIDER: &str = "tributary.dev/provider";

/// The separator of several zones, as in the labels of PersistentVolumes (`cloud-provider/volume/constants.go`).
pub(crate) const ZONE_SEPARATOR: &str = "__";

#[derive(Deserialize)]
struct KarmadaCluster {
    metadata: ObjectMetadata,
    #[serde(default, deserialize_with = "or_null")]
    spec: KarmadaSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KarmadaSpec {
    id: String,
    sync_mode: String,
    api_endpoint: String,
    secret_ref: Option<SecretReference>,
    impersonator_secret_ref: Option<SecretReference>,
    #[serde(rename = "insecureSkipTLSVerification")]
    insecure_skip_tls_verification: bool,
    #[serde(rename = "proxyURL")]
    proxy_url: String,
    #[serde(deserialize_with = "or_null")]
    proxy_header: BTreeMap<String, String>,
    provider: String,
    region: String,
    zone: String,
    #[serde(deserialize_with = "or_null")]
    zones: Vec<String>,
}

#[derive(Deserialize)]
struct SecretReference {
    #[serde(default)]
    namespace: String,
    name: String,
}

struct ClusterSecrets {
    own: Secret,
    impersonator: Option<Secret>,
}

pub(crate) fn read_karmada_cluster(
    object: &Object,
    namespace: &str,
    find_secret: FindSecret<'_>,
    unverified: UnverifiedServers,
) -> Result<ItemDraft, SourceRefusal> {
    let KarmadaCluster { metadata, spec } = decode_object(object, &format!("{KIND} {}", object.name()))?;
    let endpoint = read_endpoint(&with_scheme(&spec.api_endpoint), "spec.apiEndpoint")?;
    let proxy = read_proxy(&spec.proxy_url, "spec.proxyURL")?;
    let secrets = find_secrets(&spec, namespace, find_secret)?;
    let mut draft = ItemDraft::new(&metadata.name.clone(), metadata)?;
    let user = SecretUser { group: GROUP, kind: KIND, metadata: &draft.metadata, member: &draft.name };
    for secret in secrets.all() {
        check_owner(secret, &user)?;
    }

    let switch = spec.insecure_skip_tls_verification.then_some("spec.insecureSkipTLSVerification");
    let authorities = secrets.own.place(AUTHORITIES);
    let trust = ServerTrust::decide(secrets.own.pem(AUTHORITIES)?, &authorities, switch, unverified)?;
    let urls: Vec<&str> = [Some(endpoint.as_str()), proxy.as_deref()].into_iter().flatten().collect();
    for secret in secrets.all() {
        check_hosts(secret, &urls, trust.is_insecure)?;
    }
    draft.connect(endpoint, trust, with_token(secrets.own.token(TOKEN)?));
    draft.spec.proxy_url = proxy;
    draft.impersonator = secrets.impersonator.map(|secret| secret.token(TOKEN)).transpose()?;
    draft.warnings.extend(pull_warning(&spec));
    draft.location = location(&spec);
    draft.uid = Some(spec.id).filter(|id| !id.is_empty());
    let is_http = draft.spec.proxy_url.as_ref().is_some_and(|url| url.starts_with("http"));
    if is_http {
        draft.proxy_headers = split_headers(&spec.proxy_header);
    } else if !spec.proxy_header.is_empty() {
        let message = "spec.proxyHeader has no effect without a spec.proxyURL with http or https.".to_owned();
        draft.warnings.push(ItemWarning { reason: "ProxyHeaderWithoutEffect", message });
    }
    Ok(draft)
}

impl ClusterSecrets {
    fn all(&self) -> impl Iterator<Item = &Secret> {
        [Some(&self.own), self.impersonator.as_ref()].into_iter().flatten()
    }
}

fn find_secrets(
    spec: &KarmadaSpec,
    namespace: &str,
    find_secret: FindSecret<'_>,
) -> Result<ClusterSecrets, SourceRefusal> {
    let Some(reference) = &spec.secret_ref else {
        let refusal = SourceRefusal::new(
            "MissingCredential",
            "spec.secretRef is missing. Name the Secret with the credentials of the cluster.",
        );
        return Err(explain_pull(spec, refusal));
    };
    let own = find_referenced("secretRef", reference, namespace, find_secret)?;
    let impersonator = spec.impersonator_secret_ref.as_ref();
    let find = |reference| find_referenced("impersonatorSecretRef", reference, namespace, find_secret);
    Ok(ClusterSecrets { own, impersonator: impersonator.map(find).transpose()? })
}

/// Adds the scheme to a host, as client-go does.
fn with_scheme(endpoint: &str) -> String {
    let endpoint = endpoint.trim();
    if endpoint.is_empty() || endpoint.contains("://") { endpoint.to_owned() } else { format!("https://{endpoint}") }
}

fn find_referenced(
    field: &str,
    reference: &SecretReference,
    namespace: &str,
    find_secret: FindSecret<'_>,
) -> Result<Secret, SourceRefusal> {
    if reference.namespace != namespace {
        let message = format!(
            "spec.{field}.namespace is {:?}, and the source reads Secrets of {namespace} only. Move the Secret, or \
             correct spec.karmadaClusters.namespace of the ClusterSource.",
            reference.namespace
        );
        return Err(SourceRefusal::new("SecretOfOtherNamespace", message));
    }
    find_secret(&reference.name)
}

fn is_pull_without_proxy(spec: &KarmadaSpec) -> bool {
    spec.sync_mode == "Pull" && spec.proxy_url.is_empty()
}

/// Adds the likely cause to the message about a missing credential: Karmada registers a cluster in Pull mode without
/// credentials.
fn explain_pull(spec: &KarmadaSpec, refusal: SourceRefusal) -> SourceRefusal {
    if !is_pull_without_proxy(spec) {
        return refusal;
    }
    let message = format!(
        "{} The cluster has spec.syncMode Pull: register it with credentials, and give spec.proxyURL if only a proxy \
         reaches it.",
        refusal.message
    );
    SourceRefusal::new(refusal.reason, message)
}

/// Returns the warning about a cluster that may be reachable only through a proxy.
fn pull_warning(spec: &KarmadaSpec) -> Option<ItemWarning> {
    is_pull_without_proxy(spec).then(|| {
        let message = "spec.syncMode is Pull, and spec.proxyURL is missing. If Tributary cannot reach the cluster, \
                       give the address of a proxy in spec.proxyURL.";
        ItemWarning { reason: "PullWithoutProxy", message: message.to_owned() }
    })
}

fn location(spec: &KarmadaSpec) -> BTreeMap<String, String> {
    // `zone` is the deprecated form of `zones`.
    let zones = if spec.zones.is_empty() { spec.zone.clone() } else { spec.zones.join(ZONE_SEPARATOR) };
    let labels = [(PROVIDER, spec.provider.clone()), (REGION, spec.region.clone()), (ZONE, zones)];
    labels.into_iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Splits the values of headers at commas (`parseProxyHeaders` in `pkg/util/round_trippers.go`).
fn split_headers(headers: &BTreeMap<String, String>) -> BTreeMap<String, Vec<SecretText>> {
    let values = |text: &str| text.split(',').map(|value| SecretText::new(value.trim())).collect();
    headers.iter().map(|(name, text)| (name.clone(), values(text))).collect()
}
