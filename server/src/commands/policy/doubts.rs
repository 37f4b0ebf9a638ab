//! Checks described requests for mistakes, because policies accept any verb and any resource. Without I/O.

use anyhow::ensure;
use tributary_apimachinery::Verb;
use tributary_apimachinery::built_in::built_in;
use tributary_policy::{group_doubt, resource_doubt};

use crate::front::policy_question::{PolicyQuestion, QuestionResource, QuestionTarget};

/// Checks that the verb exists for a resource. The verbs of paths are checked elsewhere.
///
/// # Errors
/// The verb, and the valid verbs.
pub(super) fn check_verb(question: &PolicyQuestion) -> anyhow::Result<()> {
    let verbs = Verb::OF_RESOURCES.map(Verb::as_str);
    let is_one = matches!(question.target, QuestionTarget::Path(_)) || verbs.contains(&&*question.verb);
    ensure!(is_one, "--verb {}: no request for a resource has it; it is one of {}", question.verb, verbs.join(", "));
    Ok(())
}

/// Returns a warning about a resource that Kubernetes does not have. Resources of unknown groups get no warning.
pub(super) fn warning(question: &PolicyQuestion) -> Option<String> {
    let QuestionTarget::Resource(QuestionResource { group, resource, subresource, .. }) = &question.target else {
        return None;
    };
    let doubt = group_doubt(group).map(|doubt| format!("the API group {group:?}: {doubt}"));
    let doubt = doubt.or_else(|| resource_doubt(&[group], resource, subresource))?;
    let is_of_core = group.is_empty() && built_in(group, resource).is_none();
    let other = if is_of_core { format!(" (of another group it is written {resource}.GROUP)") } else { String::new() };
    Some(format!("warning: {doubt}{other}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(verb: &str, resource: &str) -> PolicyQuestion {
        let (name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        let [group, resource, subresource] = [group, resource, subresource].map(str::to_owned);
        let target = QuestionResource { group, resource, subresource, ..QuestionResource::default() };
        PolicyQuestion { verb: verb.to_owned(), target: QuestionTarget::Resource(target), ..PolicyQuestion::default() }
    }

    #[test]
    fn unknown_verb_is_refused_with_a_list_of_verbs() {
        for verb in ["gett", "GET", "post", "*", ""] {
            let error = check_verb(&question(verb, "pods")).unwrap_err().to_string();
            assert!(error.ends_with("get, list, watch, create, update, patch, delete, deletecollection"), "{error}");
        }
        assert!(check_verb(&question("deletecollection", "pods")).is_ok());
        let path = PolicyQuestion { target: QuestionTarget::Path("/".to_owned()), ..question("post", "pods") };
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
            let told = warning(&question("get", resource)).unwrap_or_default();
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{resource}: {told}");
        }
    }
}
