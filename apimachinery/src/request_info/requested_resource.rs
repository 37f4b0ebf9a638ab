//! The resource of a request, as whoever judges requests compares it with its own texts.

use super::ResourceRequest;

/// The resource of a request as audit, dispatch and RBAC rules look at it; texts are empty where there is none. No
/// version: a rule is about a resource, in whichever version it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedResource<'a> {
    /// Its API group; empty for the core group.
    pub group: &'a str,
    /// Its name, as in a path: `pods`.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: &'a str,
    /// The namespace; a request on a Namespace itself has it as its own. Empty for all namespaces together, and for
    /// what has none.
    pub namespace: &'a str,
    /// The name of the object, or the one that a field selector asks for.
    pub name: &'a str,
}

/// The name of the object behind what is proxied, which may be named `[scheme:]name:port` (`SplitSchemeNamePort` in
/// apimachinery). What is of no such form is the name.
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
    /// That of a request. Allocates nothing.
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
