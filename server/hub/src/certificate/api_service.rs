//! The APIService that leads the hub's kube-apiserver to Tributary.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_apimachinery::is_namespace_name;

pub(super) const API_SERVICE_PATH: &str =
    "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.aggregation.tributary.dev";

/// The Service to which the APIService of the hub refers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregatedService {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub name: String,
}

impl AggregatedService {
    /// Returns the DNS names by which the hub's kube-apiserver and clients in the hub address the Service.
    pub fn dns_names(&self) -> Vec<String> {
        let Self { namespace, name } = self;
        vec![format!("{name}.{namespace}.svc"), format!("{name}.{namespace}")]
    }
}

impl Default for AggregatedService {
    /// The Service of the deployment in `deploy/`.
    fn default() -> Self {
        Self { namespace: "tributary-system".to_owned(), name: "tributary".to_owned() }
    }
}

impl FromStr for AggregatedService {
    type Err = String;

    /// Parses `NAMESPACE/NAME`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/').filter(|(namespace, name)| is_namespace_name(namespace) && is_namespace_name(name)) {
            Some((namespace, name)) => Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() }),
            None => Err(format!("{text:?} is not NAMESPACE/NAME of a Service; give both names")),
        }
    }
}

/// Returns the merge patch after which the APIService trusts exactly `authorities`; `None` if it does already.
///
/// # Errors
/// The APIService refers to a different Service.
pub(super) fn trust_patch(
    api_service: &Value,
    service: &AggregatedService,
    authorities: &str,
) -> Result<Option<Value>, String> {
    let spec = &api_service["spec"];
    let target = &spec["service"];
    if target["namespace"] != service.namespace.as_str() || target["name"] != service.name.as_str() {
        return Err(format!(
            "the APIService refers to the Service {}/{}, not to {}/{}; correct spec.service or --aggregated-service",
            target["namespace"].as_str().unwrap_or_default(),
            target["name"].as_str().unwrap_or_default(),
            service.namespace,
            service.name,
        ));
    }
    let bundle = STANDARD.encode(authorities);
    if spec["caBundle"] == bundle.as_str() && spec["insecureSkipTLSVerify"] != true {
        return Ok(None);
    }
    Ok(Some(json!({
        "metadata": { "resourceVersion": api_service["metadata"]["resourceVersion"] },
        "spec": { "caBundle": bundle, "insecureSkipTLSVerify": false },
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_a_namespace_and_a_name() {
        let service: AggregatedService = "tributary-system/tributary".parse().unwrap();
        assert_eq!(service.dns_names(), ["tributary.tributary-system.svc", "tributary.tributary-system"]);
        for text in ["tributary", "/tributary", "a/", "a/b/c", "a/B", ""] {
            let error = text.parse::<AggregatedService>().unwrap_err();
            assert!(error.contains("is not NAMESPACE/NAME"), "{error}");
        }
    }

    #[test]
    fn api_service_is_patched_only_if_its_trust_differs() {
        let service = AggregatedService { namespace: "ns".to_owned(), name: "svc".to_owned() };
        let own = json!({ "namespace": "ns", "name": "svc" });
        let bundle = STANDARD.encode("ca");
        for (spec, expected) in [
            (json!({ "service": own, "caBundle": bundle }), Some(false)),
            (json!({ "service": own, "caBundle": bundle, "insecureSkipTLSVerify": false }), Some(false)),
            (json!({ "service": own, "caBundle": "b2xk" }), Some(true)),
            (json!({ "service": own, "insecureSkipTLSVerify": true }), Some(true)),
            (json!({ "service": own }), Some(true)),
            (json!({ "service": { "namespace": "other", "name": "svc" } }), None),
            (json!({ "service": null }), None),
            (Value::Null, None),
        ] {
            let object = json!({ "metadata": { "resourceVersion": "7" }, "spec": spec });
            let patch = trust_patch(&object, &service, "ca");
            assert_eq!(patch.as_ref().ok().map(Option::is_some), expected, "{spec}");
            if let Ok(Some(patch)) = patch {
                let expected = json!({ "caBundle": bundle, "insecureSkipTLSVerify": false });
                assert_eq!((&patch["spec"], &patch["metadata"]["resourceVersion"]), (&expected, &json!("7")));
            }
        }
    }
}
