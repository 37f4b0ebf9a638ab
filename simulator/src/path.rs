//! Parses the target of a request from its path.

use crate::catalog::{self, CATALOG, ResourceIndex};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The path `/healthz`, `/livez` or `/readyz`, or a path below one of the three.
    Health,
    Version,
    /// The path `/api` or `/apis`, or a path below one of the two, down to a group and version.
    Discovery(String),
    OpenApiV2,
    /// `/openapi/v3`, or a document below it (`api/v1`, `apis/apps/v1`).
    OpenApiV3(Option<String>),
    /// The resource `selfsubjectreviews`.
    WhoAmI,
    /// The resource `selfsubjectaccessreviews` or another access review.
    AccessReview(String),
    /// The resource `bindings` in a namespace.
    Bindings(String),
    Resource(ResourcePath),
    Unknown,
}

/// A collection, an object, or a subresource of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) resource: ResourceIndex,
    /// The namespace; `None` for all namespaces, and for cluster-scoped resources.
    pub(crate) namespace: Option<String>,
    /// The name of the object; `None` for the collection.
    pub(crate) name: Option<String>,
    /// The subresource; empty for a request without a subresource.
    pub(crate) subresource: String,
    /// Whether the path is a deprecated `/watch/` path.
    pub(crate) watch_path: bool,
}

impl ResourcePath {
    /// Returns the object's key, or `None` for a collection.
    pub(crate) fn key(&self) -> Option<String> {
        let name = self.name.as_deref()?;
        Some(match &self.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        })
    }
}

/// Parses a path after decoding its percent escapes. A slash at the end is ignored. Paths with other empty segments, or
/// with dot segments, are unknown.
pub(crate) fn parse(path: &str) -> Route {
    let path = path.strip_suffix('/').unwrap_or(path);
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    if segments.iter().any(|segment| matches!(*segment, "" | "." | "..")) {
        return Route::Unknown;
    }
    match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Route::Health,
        ["version"] => Route::Version,
        ["openapi", "v2"] => Route::OpenApiV2,
        ["openapi", "v3"] => Route::OpenApiV3(None),
        ["openapi", "v3", rest @ ..] => Route::OpenApiV3(Some(rest.join("/"))),
        ["api"] | ["api", _] | ["apis"] | ["apis", _] | ["apis", _, _] => Route::Discovery(segments.join("/")),
        ["apis", "authentication.k8s.io", "v1", "selfsubjectreviews"] => Route::WhoAmI,
        ["apis", "authorization.k8s.io", "v1", review] => Route::AccessReview((*review).to_owned()),
        ["api", "v1", "namespaces", namespace, "bindings"] => Route::Bindings((*namespace).to_owned()),
        ["api", version, rest @ ..] => resource("", version, rest),
        ["apis", group, version, rest @ ..] => resource(group, version, rest),
        _ => Route::Unknown,
    }
}

fn resource(group: &str, version: &str, segments: &[&str]) -> Route {
    let (watch_path, segments) = match segments {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match segments {
        // The segments after a namespace are a collection and an object, except `status` and `finalize`, which are
        // subresources of the Namespace.
        ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status" | "finalize"]) => {
            (Some(*namespace), rest)
        }
        rest => (None, rest),
    };
    let [name, rest @ ..] = rest else { return Route::Unknown };
    let Some(resource) = catalog::find(group, version, name) else { return Route::Unknown };
    // The path of a namespaced object must contain a namespace. The path of a cluster-scoped object must not contain
    // one.
    if CATALOG[resource].namespaced != namespace.is_some() && (namespace.is_some() || !rest.is_empty()) {
        return Route::Unknown;
    }
    let (name, subresource) = match rest {
        [] => (None, String::new()),
        [name, subresource @ ..] => (Some((*name).to_owned()), subresource.join("/")),
    };
    Route::Resource(ResourcePath { resource, namespace: namespace.map(str::to_owned), name, subresource, watch_path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{DEPLOYMENTS, NAMESPACES, PODS};

    fn target(path: &str) -> Option<(ResourceIndex, Option<String>, Option<String>, String)> {
        match parse(path) {
            Route::Resource(t) => Some((t.resource, t.namespace, t.name, t.subresource)),
            _ => None,
        }
    }

    #[test]
    fn paths_parse_to_collections_objects_and_subresources() {
        let s = |text: &str| Some(text.to_owned());
        for (path, expected) in [
            ("/api/v1/pods", Some((PODS, None, None, String::new()))),
            ("/api/v1/pods/", Some((PODS, None, None, String::new()))),
            ("/api/v1/namespaces/a/pods", Some((PODS, s("a"), None, String::new()))),
            ("/api/v1/namespaces/a/pods/p", Some((PODS, s("a"), s("p"), String::new()))),
            ("/api/v1/namespaces/a/pods/p/log", Some((PODS, s("a"), s("p"), "log".to_owned()))),
            ("/api/v1/watch/namespaces/a/pods", Some((PODS, s("a"), None, String::new()))),
            ("/apis/apps/v1/namespaces/a/deployments/d/scale", Some((DEPLOYMENTS, s("a"), s("d"), "scale".to_owned()))),
            ("/api/v1/namespaces/a", Some((NAMESPACES, None, s("a"), String::new()))),
            ("/api/v1/namespaces/a/status", Some((NAMESPACES, None, s("a"), "status".to_owned()))),
            ("/api/v1/namespaces", Some((NAMESPACES, None, None, String::new()))),
            ("/api/v1/namespaces/a/nodes", None),
            ("/api/v1/pods/p", None),
            ("/api/v1//pods", None),
            ("/api/v1/namespaces/../pods", None),
            ("/apis/apps/v1/pods", None),
        ] {
            assert_eq!(target(path), expected, "{path}");
        }
        assert_eq!(parse("/readyz"), Route::Health);
        assert_eq!(parse("/api/v1/namespaces/a/bindings"), Route::Bindings("a".to_owned()));
        assert_eq!(parse("/apis/apps/v1"), Route::Discovery("apis/apps/v1".to_owned()));
    }
}
