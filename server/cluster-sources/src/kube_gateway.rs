//! Reads UpstreamClusters of KubeGateway, with the converter of `tributary convert`.

use serde_json::Value;
use tributary_apimachinery::Object;
use tributary_crds::kubegateway::convert;

use crate::SourceRefusal;
use crate::draft::ItemDraft;
use crate::item::ItemWarning;
use crate::object_metadata::{ObjectMetadata, decode_object};
use crate::server_trust::{ServerTrust, UnverifiedServers};
use crate::url::read_endpoint;

pub(crate) fn read_kube_gateway_cluster(
    object: &Object,
    unverified: UnverifiedServers,
) -> Result<ItemDraft, SourceRefusal> {
    let label = format!("UpstreamCluster {}", object.name());
    let mut document: Value = decode_object(object, &label)?;
    let metadata: ObjectMetadata =
        serde_json::from_value(document["metadata"].clone()).map_err(|_| SourceRefusal::unreadable(&label))?;
    // In a list, Kubernetes omits these two fields of the items, but the converter needs them.
    document["apiVersion"] = tributary_crds::kubegateway::API_VERSION.into();
    document["kind"] = "UpstreamCluster".into();
    let converted = convert(document).map_err(|_| SourceRefusal::unreadable(&label))?;
    let mut spec = converted.cluster.spec;
    for (index, endpoint) in spec.endpoints.iter_mut().enumerate() {
        *endpoint = read_endpoint(endpoint, &format!("spec.servers[{index}].endpoint"))?;
    }
    if spec.credentials.is_none() {
        let message =
            "spec.clientConfig lacks a usable credential. Give bearerToken, or certData and keyData, as base64.";
        return Err(SourceRefusal::new("MissingCredential", message));
    }
    let switch = spec.insecure_skip_verify.then_some("spec.clientConfig.insecure");
    let trust = ServerTrust::decide(spec.ca_data.take(), "spec.clientConfig.caData", switch, unverified)?;

    let mut draft = ItemDraft::new(&metadata.name.clone(), metadata)?;
    let of_name = |difference: &String| difference.starts_with("metadata.name:");
    let differences = converted.differences.into_iter().filter(|difference| !of_name(difference));
    draft.warnings.extend(differences.map(|message| ItemWarning { reason: "DiffersFromKubeGateway", message }));
    draft.warnings.extend(trust.warnings);
    spec.index = draft.spec.index;
    spec.ca_data = trust.ca_data;
    spec.insecure_skip_verify = trust.is_insecure;
    draft.spec = spec;
    Ok(draft)
}
