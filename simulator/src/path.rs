//! What a path names.

use crate::catalog::{self, CATALOG, ResourceIndex};

/// What a request is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/healthz`, `/livez`, `/readyz` and what lies below.
    Health,
    /// `/version`.
    Version,
    /// `/api`, `/apis`, and below, down to a group version.
    Discovery(String),
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3` or a document below it (`api/v1`, `apis/apps/v1`).
    OpenApiV3(Option<String>),
    /// `selfsubjectreviews`.
    WhoAmI,
    /// `selfsubjectaccessreviews` and their like, by resource.
    AccessReview(String),
    /// `bindings` of a namespace: Pods are bound to nodes.
    Bindings(String),
    /// A collection, an object or a subresource.
    Resource(ResourcePath),
    /// Nothing here.
    Unknown,
}

/// A collection, an object or a subresource of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    /// The resource.
    pub(crate) resource: ResourceIndex,
    /// The namespace; `None` for all, and where the resource is cluster-scoped.
    pub(crate) namespace: Option<String>,
    /// The object; `None` for the collection.
    pub(crate) name: Option<String>,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// Whether the deprecated `/watch/` path was used.
    pub(crate) watch_path: bool,
}

impl ResourcePath {
    /// The object's key, or `None` for a collection.
    pub(crate) fn key(&self) -> Option<String> {
        let name = self.name.as_deref()?;
        Some(match &self.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        })
    }
}

/// Reads a path, escapes resolved. A trailing slash is ignored; empty segments elsewhere and dots name nothing.
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
        // Below a namespace lie objects, but `status` and `finalize` are the namespace's own.
        ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status" | "finalize"]) => {
            (Some(*namespace), rest)
        }
        rest => (None, rest),
    };
    let [name, rest @ ..] = rest else { return Route::Unknown };
    let Some(resource) = catalog::find(group, version, name) else { return Route::Unknown };
    // An object of a namespaced resource has to be named within its namespace, and one of a cluster-scoped one outside.
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
    fn paths_name_collections_objects_and_subresources() {
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
