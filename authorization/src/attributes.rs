//! The attributes of a request. The names are from kube-apiserver's `authorizer.Attributes`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use tributary_apimachinery::{RequestInfo, RequestTarget, RequestedResource, ResourceRequest};

/// The attributes that RBAC decides about: a resource or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes<'a> {
    /// A request for an object, a collection or a subresource.
    Resource(ResourceAttributes<'a>),
    /// A request for a path that belongs to no resource, for example `/healthz`.
    NonResource {
        /// The HTTP method in lower case.
        verb: &'a str,
        /// The path with its escapes decoded.
        path: Cow<'a, str>,
    },
}

/// The attributes of a request for an object, a collection or a subresource. An empty string means that the request
/// does not contain the attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes<'a> {
    /// The verb of the API, for example `get`, `list` or `create`.
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The requested API version; empty for any version. Roles ignore the version, but a webhook authorizer may use it.
    pub version: &'a str,
    /// The resource in the plural, as in the path.
    pub resource: &'a str,
    /// The subresource; empty for a request without a subresource.
    pub subresource: &'a str,
    /// The namespace; empty for all namespaces and for cluster-scoped resources. A request for a Namespace object has
    /// the name of the Namespace in this field.
    pub namespace: &'a str,
    /// The name of the object. For a list or watch, the name in the field selector `metadata.name=…`.
    pub name: &'a str,
}

impl<'a> ResourceAttributes<'a> {
    /// Returns the attributes of a resource request. `verb` replaces the verb of the request.
    pub fn from_request(request: &'a ResourceRequest, verb: &'a str) -> Self {
        let RequestedResource { group, resource, subresource, namespace, name } =
            RequestedResource::from_request(request);
        Self { verb, group, version: &request.resource.version, resource, subresource, namespace, name }
    }
}

impl<'a> Attributes<'a> {
    /// Returns the attributes of a request, as kube-apiserver passes them to its authorizers.
    pub fn from_request(info: &'a RequestInfo) -> Self {
        match &info.target {
            RequestTarget::Resource(request) => {
                Self::Resource(ResourceAttributes::from_request(request, info.verb.as_str()))
            }
            // `RequestInfo::parse` has rejected paths that are not UTF-8.
            RequestTarget::NonResource => {
                Self::NonResource { verb: info.verb.as_str(), path: percent_decode_str(&info.path).decode_utf8_lossy() }
            }
        }
    }

    /// The verb of the request. For a path, this is the HTTP method in lower case.
    pub fn verb(&self) -> &str {
        match self {
            Self::Resource(ResourceAttributes { verb, .. }) | Self::NonResource { verb, .. } => verb,
        }
    }

    /// Returns the same attributes with a different verb.
    pub fn with_verb<'b>(&'b self, verb: &'b str) -> Attributes<'b> {
        match self {
            Self::Resource(own) => Attributes::Resource(ResourceAttributes { verb, ..*own }),
            Self::NonResource { path, .. } => Attributes::NonResource { verb, path: Cow::Borrowed(path) },
        }
    }

    /// Returns the namespace whose RoleBindings apply to the request; empty if only ClusterRoleBindings apply.
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
    fn authorization_attributes_equal_those_of_kube_apiserver() {
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
            // The namespace does not depend on the field selector, because kube-apiserver reads the namespace only from
            // the path.
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
