//! Names of Kubernetes' built-in groups and resources. A rule with an unknown name in these groups matches no request.
//!
//! The table contains no groups of custom resources, so names in such groups are never reported.

use tributary_apimachinery::ResourceNames;
use tributary_apimachinery::built_in::{all_built_in, built_in, served_by_default};

/// Group, plural name and short name of built-in resources.
///
/// Source: `kubectl api-resources` of Kubernetes 1.36.
const SHORT_NAMES: [(&str, &str, &str); 27] = [
    ("", "componentstatuses", "cs"),
    ("", "configmaps", "cm"),
    ("", "endpoints", "ep"),
    ("", "events", "ev"),
    ("", "limitranges", "limits"),
    ("", "namespaces", "ns"),
    ("", "nodes", "no"),
    ("", "persistentvolumeclaims", "pvc"),
    ("", "persistentvolumes", "pv"),
    ("", "pods", "po"),
    ("", "replicationcontrollers", "rc"),
    ("", "resourcequotas", "quota"),
    ("", "serviceaccounts", "sa"),
    ("", "services", "svc"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "crd"),
    ("apps", "daemonsets", "ds"),
    ("apps", "deployments", "deploy"),
    ("apps", "replicasets", "rs"),
    ("apps", "statefulsets", "sts"),
    ("autoscaling", "horizontalpodautoscalers", "hpa"),
    ("batch", "cronjobs", "cj"),
    ("certificates.k8s.io", "certificatesigningrequests", "csr"),
    ("networking.k8s.io", "ingresses", "ing"),
    ("networking.k8s.io", "networkpolicies", "netpol"),
    ("policy", "poddisruptionbudgets", "pdb"),
    ("scheduling.k8s.io", "priorityclasses", "pc"),
    ("storage.k8s.io", "storageclasses", "sc"),
];

/// Returns a text that explains why no cluster can have an API group of this name, and suggests a name. `None` if a
/// cluster may have the group: groups of custom resources contain a dot (apiextensions-apiserver
/// `pkg/apis/apiextensions/validation/validation.go`).
pub fn explain_unknown_group(group: &str) -> Option<String> {
    if let Some((group, _)) = group.split_once('/') {
        return Some(format!("a group is written without its version; write {group:?}"));
    }
    if matches!(group, "core" | "v1") {
        return Some("the core group is written \"\"".to_owned());
    }
    (!group.contains('.') && !is_built_in(group)).then(|| {
        "Kubernetes has no such API group, and the groups of custom resources have a dot; write the group of \
         `kubectl api-resources`, without its version"
            .to_owned()
    })
}

/// Returns a text that explains why no cluster can have a resource of this name in one of these groups, and suggests
/// names. `None` if a cluster may have the resource. Instead of a misspelled group, the group that
/// [`explain_unknown_group`] suggests is searched.
pub fn explain_unknown_resource(groups: &[&str], resource: &str, subresource: &str) -> Option<String> {
    let groups: Vec<_> = groups.iter().map(|group| resolve_group(group)).collect();
    if groups.is_empty() || !groups.iter().all(|group| is_built_in(group)) {
        return None;
    }
    if groups.iter().all(|group| built_in(group, resource).is_none()) {
        let places = match &groups[..] {
            [""] => "its core group".to_owned(),
            groups => groups.iter().map(|group| format!("{group:?}")).collect::<Vec<_>>().join(", "),
        };
        let suggestion = names().did_you_mean(resource);
        return Some(format!("Kubernetes has no resource {resource:?} in {places}{suggestion}"));
    }
    if subresource.is_empty() {
        return None;
    }
    let of_groups = || served_by_default().filter(|(group, ..)| groups.contains(group));
    let mut subresources: Vec<_> =
        of_groups().filter_map(|(.., name)| name.strip_prefix(resource)?.strip_prefix('/')).collect();
    subresources.sort_unstable();
    // The table lacks the subresources of APIs that are off by default, so an unknown subresource of such an API is no
    // error.
    if subresources.contains(&subresource) || !of_groups().any(|(.., name)| name == resource) {
        return None;
    }
    let has = if subresources.is_empty() { "none".to_owned() } else { subresources.join(", ") };
    Some(format!("Kubernetes' {resource} have no subresource {subresource:?}; known are: {has}"))
}

fn resolve_group(group: &str) -> &str {
    match group.split_once('/').map_or(group, |(group, _)| group) {
        "core" | "v1" => "",
        group => group,
    }
}

fn is_built_in(group: &str) -> bool {
    all_built_in().any(|(own, ..)| own == group)
}

fn names() -> ResourceNames {
    let mut names = ResourceNames::default();
    for (group, resource, kind) in all_built_in() {
        let short = SHORT_NAMES.iter().filter(|(own, name, _)| (*own, *name) == (group, resource));
        names.add(group, resource, short.map(|(.., short)| *short).chain([kind]));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_resource_name_gets_a_suggestion() {
        for (groups, resource, expected) in [
            (&[""][..], "pods", ""),
            (&[""], "pods/exec", ""),
            (&["apps"], "deployments/scale", ""),
            (&["", "apps"], "deployments", ""),
            (&["", "shop.example"], "carts", ""),
            (&["metrics.k8s.io"], "pods", ""),
            (&["certificates.k8s.io"], "podcertificaterequests/status", ""),
            (&[], "pod", ""),
            (&[""], "pod", "Kubernetes has no resource \"pod\" in its core group; did you mean pods"),
            (&["core"], "namespace", "no resource \"namespace\" in its core group; did you mean namespaces"),
            (&["v1"], "ns", "did you mean namespaces?"),
            (&[""], "deployments", "did you mean deployments.apps"),
            (&["apps/v1"], "deploymens", "no resource \"deploymens\" in \"apps\"; did you mean deployments.apps"),
            (&["", "apps"], "carts", "no resource \"carts\" in \"\", \"apps\""),
            (&[""], "pods/exce", "pods have no subresource \"exce\"; known are: attach, binding, "),
            (&[""], "configmaps/status", "configmaps have no subresource \"status\"; known are: none"),
        ] {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let explanation = explain_unknown_resource(groups, resource, subresource).unwrap_or_default();
            assert!(
                explanation.contains(expected) && explanation.is_empty() == expected.is_empty(),
                "{groups:?} {resource}: {explanation}"
            );
        }
    }

    #[test]
    fn unknown_api_group_gets_a_suggestion() {
        for (group, expected) in [
            ("", ""),
            ("apps", ""),
            ("policy", ""),
            ("shop.example", ""),
            ("core", "the core group is written \"\""),
            ("v1", "the core group is written \"\""),
            ("apps/v1", "write \"apps\""),
            ("extensions", "no such API group"),
        ] {
            let explanation = explain_unknown_group(group).unwrap_or_default();
            assert!(
                explanation.contains(expected) && explanation.is_empty() == expected.is_empty(),
                "{group}: {explanation}"
            );
        }
    }
}
