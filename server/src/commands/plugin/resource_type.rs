//! Resolves the name of a resource type, as kubectl does. Without I/O.
//!
//! Source: client-go `restmapper/shortcut.go`; apimachinery `api/meta/priority.go`, `schema.ParseResourceArg`.

use std::fmt;

use kube::core::discovery::v2::{APIGroupDiscoveryList, APIResourceDiscovery};

/// A resource type that supports `list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourceType {
    /// The API group of the resource; empty for the core group.
    pub(super) group: String,
    /// The API version in requests for the resource.
    pub(super) version: String,
    /// The plural name of the resource.
    pub(super) resource: String,
    /// True if the resource type is namespaced.
    pub(super) is_namespaced: bool,
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// The error that no cluster serves a resource type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the clusters serve no resource type {0:?}; `kubectl api-resources` lists what they do")]
pub(super) struct UnknownType(String);

/// The quality of a match between a name and a resource type. The least value is the best match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MatchQuality {
    Name,
    ShortName,
    BeginOfGroup,
}

/// Resolves a plural, a singular, a kind or a short name, optionally followed by a group, or by a version and a group.
/// The first match in discovery wins. The core group comes first.
///
/// # Errors
/// [`UnknownType`].
pub(super) fn resolve(
    word: &str,
    core: &APIGroupDiscoveryList,
    named: &APIGroupDiscoveryList,
) -> Result<ResourceType, UnknownType> {
    let wanted = word.to_lowercase();
    let (name, place) = wanted.split_once('.').map_or((wanted.as_str(), None), |(name, place)| (name, Some(place)));
    let mut best: Option<(MatchQuality, ResourceType)> = None;
    for group in core.items.iter().chain(&named.items) {
        let group_name = group.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default();
        for version in &group.versions {
            let version_name = version.version.as_deref().unwrap_or_default();
            for resource in &version.resources {
                let fit = fit_of_name(name, resource)
                    .and_then(|fit| Some(fit.max(fit_of_suffix(place, group_name, version_name)?)));
                if let Some(fit) = fit
                    && best.as_ref().is_none_or(|(known, _)| fit < *known)
                {
                    best = Some((
                        fit,
                        ResourceType {
                            group: group_name.to_owned(),
                            version: version_name.to_owned(),
                            resource: resource.resource.clone().unwrap_or_default(),
                            is_namespaced: resource.scope.as_deref() == Some("Namespaced"),
                        },
                    ));
                }
            }
        }
    }
    best.map(|(_, found)| found).ok_or_else(|| UnknownType(word.to_owned()))
}

fn fit_of_name(name: &str, resource: &APIResourceDiscovery) -> Option<MatchQuality> {
    let kind = resource.response_kind.as_ref().and_then(|kind| kind.kind.as_deref()).map(str::to_lowercase);
    let names = [resource.resource.as_deref(), resource.singular_resource.as_deref(), kind.as_deref()];
    if !resource.verbs.iter().any(|verb| verb == "list") {
        None
    } else if names.contains(&Some(name)) {
        Some(MatchQuality::Name)
    } else {
        resource.short_names.iter().any(|short| short == name).then_some(MatchQuality::ShortName)
    }
}

/// Returns how well the suffix of a requested type, such as `.v1.apps`, matches this API group and version.
fn fit_of_suffix(place: Option<&str>, group: &str, version: &str) -> Option<MatchQuality> {
    let Some(place) = place else { return Some(MatchQuality::Name) };
    let is_whole =
        place == group || place.split_once('.') == Some((version, group)) || (group.is_empty() && place == version);
    if is_whole {
        return Some(MatchQuality::Name);
    }
    (!place.is_empty() && group.starts_with(place)).then_some(MatchQuality::BeginOfGroup)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resource(name: &str, singular: &str, short: &[&str], scope: &str) -> Value {
        json!({ "resource": name, "singularResource": singular, "shortNames": short, "scope": scope,
            "responseKind": { "kind": format!("{}{}", singular[..1].to_uppercase(), &singular[1..]) }, "verbs": ["get", "list"] })
    }

    fn discovery() -> (APIGroupDiscoveryList, APIGroupDiscoveryList) {
        let mut review = resource("reviews", "review", &[], "Namespaced");
        review["verbs"] = json!(["create"]);
        let core = json!({ "items": [{ "versions": [{ "version": "v1", "resources": [
            resource("pods", "pod", &["po"], "Namespaced"), resource("nodes", "node", &["no"], "Cluster"),
            resource("events", "event", &["ev"], "Namespaced"), review,
        ] }] }] });
        let named = json!({ "items": [
            { "metadata": { "name": "apps" }, "versions": [
                { "version": "v1", "resources": [resource("deployments", "deployment", &["deploy"], "Namespaced")] },
                { "version": "v1beta1", "resources": [resource("deployments", "deployment", &["deploy"], "Namespaced")] },
            ] },
            { "metadata": { "name": "events.k8s.io" }, "versions": [
                { "version": "v1", "resources": [resource("events", "event", &["ev"], "Namespaced")] }] },
            { "metadata": { "name": "a.example" }, "versions": [
                { "version": "v1", "resources": [resource("po", "poo", &["pods"], "Cluster")] }] },
        ] });
        (serde_json::from_value(core).unwrap(), serde_json::from_value(named).unwrap())
    }

    #[test]
    fn resource_names_resolve_as_in_kubectl() {
        let (core, named) = discovery();
        for (word, expected) in [
            ("pods", "v1 pods true"),
            ("pod", "v1 pods true"),
            ("Pod", "v1 pods true"),
            ("no", "v1 nodes false"),
            ("po", "v1 po.a.example false"),
            ("deploy", "v1 deployments.apps true"),
            ("deployments.apps", "v1 deployments.apps true"),
            ("deploy.v1beta1.apps", "v1beta1 deployments.apps true"),
            ("events", "v1 events true"),
            ("events.events.k8s.io", "v1 events.events.k8s.io true"),
            ("ev.events", "v1 events.events.k8s.io true"),
            ("pods.v1", "v1 pods true"),
            ("reviews", "unknown"),
            ("deployments.other", "unknown"),
            ("widgets", "unknown"),
            ("", "unknown"),
        ] {
            let got = resolve(word, &core, &named);
            let got = got.map(|found| format!("{} {found} {}", found.version, found.is_namespaced));
            assert_eq!(got.unwrap_or_else(|_| "unknown".to_owned()), expected, "{word}");
        }
    }
}
