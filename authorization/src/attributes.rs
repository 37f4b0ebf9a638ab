//! Who asks, and for what, in the words of kube-apiserver's authorizers (`authorizer.Attributes`).

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use tributary_apimachinery::{RequestInfo, RequestTarget, RequestedResource, ResourceRequest};

/// Who asks, as far as RBAC looks: neither uid nor extras count.
#[derive(Clone, Copy, Debug)]
pub struct RbacUser<'a> {
    /// The user's name. A ServiceAccount's is `system:serviceaccount:NAMESPACE:NAME`.
    pub name: &'a str,
    /// Every group; `system:authenticated` too, if it is to count.
    pub groups: &'a [String],
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes<'a> {
    /// An object, a collection or a subresource.
    Resource(ResourceAttributes<'a>),
    /// Another path.
    NonResource {
        /// The method in lower case.
        verb: &'a str,
        /// The path, its escapes decoded.
        path: Cow<'a, str>,
    },
}

/// A request for an object, a collection or a subresource. Empty texts stand for what is not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes<'a> {
    /// `get`, `list`, `create`, …
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The API version in which it is asked for; empty for any. Roles do not look at it, and a webhook may.
    pub version: &'a str,
    /// The resource, as in a path.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: &'a str,
    /// The namespace; empty for all namespaces and for what has none. A request on a Namespace itself counts as one in
    /// it.
    pub namespace: &'a str,
    /// The name; of a list or watch the one that its field selector `metadata.name=…` asks for.
    pub name: &'a str,
}

impl<'a> ResourceAttributes<'a> {
    /// A verb on what a request asks for.
    pub fn from_request(request: &'a ResourceRequest, verb: &'a str) -> Self {
        let RequestedResource { group, resource, subresource, namespace, name } =
            RequestedResource::from_request(request);
        Self { verb, group, version: &request.resource.version, resource, subresource, namespace, name }
    }
}

impl<'a> Attributes<'a> {
    /// What an authorizer is asked about a request.
    pub fn from_request(info: &'a RequestInfo) -> Self {
        match &info.target {
            RequestTarget::Resource(request) => {
                Self::Resource(ResourceAttributes::from_request(request, info.verb.as_str()))
            }
            // `RequestInfo::parse` has refused what is not UTF-8.
            RequestTarget::NonResource => {
                Self::NonResource { verb: info.verb.as_str(), path: percent_decode_str(&info.path).decode_utf8_lossy() }
            }
        }
    }

    /// The verb.
    pub fn verb(&self) -> &str {
        match self {
            Self::Resource(ResourceAttributes { verb, .. }) | Self::NonResource { verb, .. } => verb,
        }
    }

    /// The same, asked with another verb.
    pub fn with_verb<'b>(&'b self, verb: &'b str) -> Attributes<'b> {
        match self {
            Self::Resource(own) => Attributes::Resource(ResourceAttributes { verb, ..*own }),
            Self::NonResource { path, .. } => Attributes::NonResource { verb, path: Cow::Borrowed(path) },
        }
    }

    /// The namespace whose RoleBindings count; empty where only ClusterRoleBindings do.
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Resource(attributes) => attributes.namespace,
            Self::NonResource { .. } => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_asked_about_as_kube_apiserver_does() {
        type Row = (&'static str, &'static str, Option<&'static str>, [&'static str; 6]);
        let rows: [Row; 8] = [
            ("GET", "/api/v1/namespaces/a/pods/p/log", None, ["get", "", "pods", "log", "a", "p"]),
            ("GET", "/apis/apps/v1/deployments", None, ["list", "apps", "deployments", "", "", ""]),
            (
                "GET",
                "/api/v1/namespaces/a/secrets",
                Some("watch=1&fieldSelector=metadata.name%3Ds"),
                ["watch", "", "secrets", "", "a", "s"],
            ),
            ("POST", "/api/v1/namespaces/a/pods", None, ["create", "", "pods", "", "a", ""]),
            ("DELETE", "/api/v1/namespaces/a/pods", None, ["deletecollection", "", "pods", "", "a", ""]),
            ("GET", "/api/v1/namespaces/a", None, ["get", "", "namespaces", "", "a", "a"]),
            ("PUT", "/api/v1/namespaces/a/finalize", None, ["update", "", "namespaces", "finalize", "a", "a"]),
            // The name that a selector asks for names no namespace: kube-apiserver reads that from the path alone.
            (
                "GET",
                "/api/v1/namespaces",
                Some("fieldSelector=metadata.name%3Da"),
                ["list", "", "namespaces", "", "", "a"],
            ),
        ];
        for (method, path, query, [verb, group, resource, subresource, namespace, name]) in rows {
            let info = RequestInfo::parse(method, path, query).unwrap();
            let version = "v1";
            let expected = ResourceAttributes { verb, group, version, resource, subresource, namespace, name };
            assert_eq!(Attributes::from_request(&info), Attributes::Resource(expected), "{method} {path} {query:?}");
        }
        let info = RequestInfo::parse("GET", "/clusters/eu/health%7A/a", None).unwrap();
        assert_eq!(Attributes::from_request(&info), Attributes::NonResource { verb: "get", path: "/healthz/a".into() });
    }
}
