//! Attributes of a request that policies compare with their rules.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use tributary_apimachinery::{
    RequestInfo, RequestTarget, RequestedResource, SERVICE_ACCOUNT_USERNAME_PREFIX, ServiceAccount, Verb,
};

use crate::connections::is_connecting;

/// Maximal length of a user agent that policies compare, in bytes. kube-apiserver's audit log has the same limit
/// (`maxUserAgentLength`). The text stays in memory for the duration of the request.
const USER_AGENT_BYTES: usize = 1024;

/// Returns the part of a `User-Agent` header that policies compare: at most its first 1,024 bytes.
pub fn user_agent(header: &str) -> &str {
    &header[..header.floor_char_boundary(USER_AGENT_BYTES)]
}

/// Attributes of a request that policies compare with their rules.
#[derive(Clone, Debug)]
pub struct DispatchAttributes<'a> {
    /// Name of the user. For an impersonated request, the name of the impersonated user.
    pub user: &'a str,
    /// All groups of the user.
    pub groups: &'a [String],
    /// The beginning of the `User-Agent` header ([`user_agent`]). Empty if the request has no such header.
    pub user_agent: &'a str,
    /// RBAC verb, or for a non-resource request the HTTP method in lower case. Subresources that connect to a workload
    /// (`exec`, `attach`, `portforward`) always have the verb `create`.
    pub verb: &'a str,
    /// The requested resource or path.
    pub target: DispatchTarget<'a>,
}

/// Target of a request: a resource, or a path without a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatchTarget<'a> {
    /// An object, a collection or a subresource.
    Resource(RequestedResource<'a>),
    /// A non-resource path. Percent-encoding is decoded, so that a rule matches every spelling of the path.
    NonResource(Cow<'a, str>),
}

impl<'a> DispatchAttributes<'a> {
    /// Returns the attributes of a parsed request. Allocates only if the path contains percent-encoding.
    pub fn from_request(info: &'a RequestInfo, user: &'a str, groups: &'a [String], user_agent: &'a str) -> Self {
        let user_agent = self::user_agent(user_agent);
        let (verb, target) = match &info.target {
            // `RequestInfo::parse` has rejected paths that are not UTF-8.
            RequestTarget::NonResource => {
                let path = percent_decode_str(&info.path).decode_utf8_lossy();
                (info.verb.as_str(), DispatchTarget::NonResource(path))
            }
            RequestTarget::Resource(request) => {
                let resource = RequestedResource::from_request(request);
                (dispatched_verb(&resource, info.requested_verb()), DispatchTarget::Resource(resource))
            }
        };
        Self { user, groups, user_agent, verb, target }
    }

    /// Returns `NAMESPACE:NAME` of the ServiceAccount if the user is one.
    pub(crate) fn service_account(&self) -> Option<&'a str> {
        ServiceAccount::of_user(self.user)?;
        self.user.strip_prefix(SERVICE_ACCOUNT_USERNAME_PREFIX)
    }
}

/// Returns the verb that policies compare for a request with this RBAC verb. The result is `create` for subresources
/// that connect to a workload.
pub fn dispatched_verb<'a>(resource: &RequestedResource<'_>, verb: &'a str) -> &'a str {
    if is_connecting(resource.subresource) { Verb::Create.as_str() } else { verb }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_and_port_forward_requests_have_the_verb_create() {
        let rows = [
            ("GET", "/api/v1/namespaces/a/pods/p/log", ["get", "", "pods", "log", "a", "p"]),
            ("GET", "/api/v1/namespaces/a/pods/p/exec", ["create", "", "pods", "exec", "a", "p"]),
            ("POST", "/api/v1/namespaces/a/pods/p/exec", ["create", "", "pods", "exec", "a", "p"]),
            ("GET", "/api/v1/namespaces/a/pods/p/portforward", ["create", "", "pods", "portforward", "a", "p"]),
            ("GET", "/apis/apps/v1/deployments", ["list", "apps", "deployments", "", "", ""]),
            ("DELETE", "/api/v1/namespaces/a", ["delete", "", "namespaces", "", "a", "a"]),
            // If the HTTP method does not fit the path, the verb is still the usual verb of the method.
            ("POST", "/api/v1/namespaces/a/pods/p", ["create", "", "pods", "", "a", "p"]),
            ("OPTIONS", "/api/v1/namespaces/a/pods/p", ["", "", "pods", "", "a", "p"]),
        ];
        for (method, path, [verb, group, resource, subresource, namespace, name]) in rows {
            let info = RequestInfo::parse(method, path, None).unwrap();
            let seen = DispatchAttributes::from_request(&info, "ann", &[], "");
            let expected = RequestedResource { group, resource, subresource, namespace, name };
            assert_eq!((seen.verb, seen.target), (verb, DispatchTarget::Resource(expected)), "{method} {path}");
        }
        let info = RequestInfo::parse("GET", "/clusters/eu/health%7A/a", None).unwrap();
        let seen = DispatchAttributes::from_request(&info, "ann", &[], "");
        assert_eq!((seen.verb, seen.target), ("get", DispatchTarget::NonResource("/healthz/a".into())));
    }

    #[test]
    fn long_user_agent_is_truncated() {
        let info = RequestInfo::parse("GET", "/api/v1/pods", None).unwrap();
        let long = format!("{}é{}", "a".repeat(USER_AGENT_BYTES - 1), "b".repeat(200_000));
        for (header, seen) in [("kubectl/v1", "kubectl/v1"), (&*long, &long[..USER_AGENT_BYTES - 1])] {
            assert_eq!(DispatchAttributes::from_request(&info, "ann", &[], header).user_agent, seen);
        }
    }

    #[test]
    fn user_is_a_service_account_only_with_namespace_and_name() {
        let of = |user| DispatchAttributes {
            user,
            groups: &[],
            user_agent: "",
            verb: "get",
            target: DispatchTarget::NonResource("/".into()),
        };
        assert_eq!(of("system:serviceaccount:shop:web").service_account(), Some("shop:web"));
        for user in ["ann", "system:serviceaccount:shop", "system:serviceaccount:shop:web:x"] {
            assert_eq!(of(user).service_account(), None, "{user}");
        }
    }
}
