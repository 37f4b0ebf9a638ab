//! Checks the described requests of `policy test` for mistakes. The check is needed because policies accept any verb
//! and any resource. Without I/O.

use anyhow::ensure;
use tributary_apimachinery::Verb;
use tributary_apimachinery::built_in::built_in;
use tributary_policy::{explain_unknown_group, explain_unknown_resource};

use crate::front::policy_test::{PolicyTestRequest, PolicyTestResource, PolicyTestTarget};

/// Checks that the verb exists for a resource. The verb of a request for a path is checked elsewhere.
///
/// # Errors
/// The verb, and the valid verbs.
pub(super) fn check_verb(test_request: &PolicyTestRequest) -> anyhow::Result<()> {
    let verbs = Verb::RESOURCE_VERBS.map(Verb::as_str);
    let is_one = matches!(test_request.target, PolicyTestTarget::Path(_)) || verbs.contains(&&*test_request.verb);
    ensure!(
        is_one,
        "--verb {}: no resource request has this verb; allowed are {}",
        test_request.verb,
        verbs.join(", ")
    );
    Ok(())
}

/// Returns a warning about a resource that Kubernetes does not have. Resources of unknown groups get no warning.
pub(super) fn warning(test_request: &PolicyTestRequest) -> Option<String> {
    let PolicyTestTarget::Resource(PolicyTestResource { group, resource, subresource, .. }) = &test_request.target
    else {
        return None;
    };
    let doubt = explain_unknown_group(group).map(|doubt| format!("the API group {group:?}: {doubt}"));
    let doubt = doubt.or_else(|| explain_unknown_resource(&[group], resource, subresource))?;
    let is_of_core = group.is_empty() && built_in(group, resource).is_none();
    let other = if is_of_core { format!(" (of another group it is written {resource}.GROUP)") } else { String::new() };
    Some(format!("warning: {doubt}{other}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_request(verb: &str, resource: &str) -> PolicyTestRequest {
        let (name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        let [group, resource, subresource] = [group, resource, subresource].map(str::to_owned);
        let target = PolicyTestResource { group, resource, subresource, ..PolicyTestResource::default() };
        PolicyTestRequest {
            verb: verb.to_owned(),
            target: PolicyTestTarget::Resource(target),
            ..PolicyTestRequest::default()
        }
    }

    #[test]
    fn unknown_verb_is_refused_with_a_list_of_verbs() {
        for verb in ["gett", "GET", "post", "*", ""] {
            let error = check_verb(&test_request(verb, "pods")).unwrap_err().to_string();
            assert!(error.ends_with("get, list, watch, create, update, patch, delete, deletecollection"), "{error}");
        }
        assert!(check_verb(&test_request("deletecollection", "pods")).is_ok());
        let path = PolicyTestRequest { target: PolicyTestTarget::Path("/".to_owned()), ..test_request("post", "pods") };
        assert!(check_verb(&path).is_ok());
    }

    #[test]
    fn unknown_resource_gets_a_warning() {
        for (resource, expected) in [
            ("pods", ""),
            ("pods/exec", ""),
            ("deployments.apps/scale", ""),
            ("carts.shop.example", ""),
            ("pods.metrics.k8s.io", ""),
            ("pods.core", "the API group \"core\": the core group is written \"\""),
            (
                "pod",
                "no resource \"pod\" in its core group; did you mean pods? (of another group it is written pod.GROUP)",
            ),
            ("deployments", "did you mean deployments.apps"),
            ("deploymens.apps", "no resource \"deploymens\" in \"apps\"; did you mean deployments.apps"),
            ("carts", "(of another group it is written carts.GROUP)"),
            (
                "pods/exce",
                "Kubernetes' pods have no subresource \"exce\"; known are: attach, binding, ephemeralcontainers",
            ),
            ("configmaps/status", "configmaps have no subresource \"status\"; known are: none"),
        ] {
            let told = warning(&test_request("get", resource)).unwrap_or_default();
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{resource}: {told}");
        }
    }
}
