//! The resource of a request, for comparison with the rules of policies.

use super::ResourceRequest;

/// The resource of a request for audit, dispatch and RBAC rules; absent names are empty. The API version is omitted,
/// because rules apply to a resource in all its versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedResource<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name in paths, for example `pods`.
    pub resource: &'a str,
    /// The subresource, if any.
    pub subresource: &'a str,
    /// The namespace. A request for a Namespace itself has the name of that Namespace. Empty for all namespaces, and
    /// for cluster-scoped resources.
    pub namespace: &'a str,
    /// The name of the object in the path or in a field selector.
    pub name: &'a str,
}

/// Returns the name in `[scheme:]name:port`, the form of names in requests for `proxy` (`SplitSchemeNamePort` in
/// apimachinery). A text of a different form is returned unchanged.
pub fn proxied_name(named: &str) -> &str {
    match named.split_once(':') {
        None => named,
        Some((first, rest)) => match rest.split_once(':') {
            None => first,
            Some((name, port)) if !port.contains(':') => name,
            Some(_) => named,
        },
    }
}

impl<'a> RequestedResource<'a> {
    /// Describes the resource of a request. Allocates nothing.
    pub fn from_request(request: &'a ResourceRequest) -> Self {
        Self {
            group: &request.resource.group,
            resource: &request.resource.resource,
            subresource: request.subresource.as_deref().unwrap_or_default(),
            namespace: request.authorization_namespace(),
            name: request.authorization_name(),
        }
    }
}
