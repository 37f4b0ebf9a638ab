//! Who asks, and for what, as far as policies look.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use tributary_apimachinery::{
    RequestInfo, RequestTarget, RequestedResource, SERVICE_ACCOUNT_USERNAME_PREFIX, ServiceAccount, Verb,
};

use crate::connections::connects;

/// How much of a user agent policies look at, in bytes: as much as kube-apiserver writes of it into its audit log
/// (`maxUserAgentLength`). It is kept for as long as the request lasts.
const USER_AGENT_BYTES: usize = 1024;

/// What policies look at of a header `User-Agent`: as much as they look at anywhere.
pub fn user_agent(header: &str) -> &str {
    &header[..header.floor_char_boundary(USER_AGENT_BYTES)]
}

/// What a policy looks at.
#[derive(Clone, Debug)]
pub struct DispatchAttributes<'a> {
    /// The user's name; that of whom the caller acts as, where they impersonate.
    pub user: &'a str,
    /// Every group of the user.
    pub groups: &'a [String],
    /// What is looked at of the header `User-Agent` ([`user_agent`]); empty where there is none.
    pub user_agent: &'a str,
    /// The verb as RBAC has it; the lower-case method of a request for no resource. `create` of what connects to a
    /// workload (`exec`, `attach`, `portforward`), by whatever method it is asked for.
    pub verb: &'a str,
    /// What is asked for.
    pub target: DispatchTarget<'a>,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatchTarget<'a> {
    /// An object, a collection or a subresource.
    Resource(RequestedResource<'a>),
    /// Another path, its escapes decoded: a policy is written for what is asked for, however it is spelled.
    NonResource(Cow<'a, str>),
}

impl<'a> DispatchAttributes<'a> {
    /// What a policy looks at in a request that was read. Allocates only for a path with escapes.
    pub fn from_request(info: &'a RequestInfo, user: &'a str, groups: &'a [String], user_agent: &'a str) -> Self {
        let user_agent = self::user_agent(user_agent);
        let (verb, target) = match &info.target {
            // `RequestInfo::parse` has refused what is not UTF-8.
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

    /// `NAMESPACE:NAME` of a ServiceAccount.
    pub(crate) fn service_account(&self) -> Option<&'a str> {
        ServiceAccount::of_user(self.user)?;
        self.user.strip_prefix(SERVICE_ACCOUNT_USERNAME_PREFIX)
    }
}

/// The verb that policies see for one that RBAC has: `create` of what connects to a workload, however it is opened.
pub fn dispatched_verb<'a>(resource: &RequestedResource<'_>, verb: &'a str) -> &'a str {
    if connects(resource.subresource) { Verb::Create.as_str() } else { verb }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_looked_at_by_what_it_does() {
        let rows = [
            ("GET", "/api/v1/namespaces/a/pods/p/log", ["get", "", "pods", "log", "a", "p"]),
            ("GET", "/api/v1/namespaces/a/pods/p/exec", ["create", "", "pods", "exec", "a", "p"]),
            ("POST", "/api/v1/namespaces/a/pods/p/exec", ["create", "", "pods", "exec", "a", "p"]),
            ("GET", "/api/v1/namespaces/a/pods/p/portforward", ["create", "", "pods", "portforward", "a", "p"]),
            ("GET", "/apis/apps/v1/deployments", ["list", "apps", "deployments", "", "", ""]),
            ("DELETE", "/api/v1/namespaces/a", ["delete", "", "namespaces", "", "a", "a"]),
            // Methods that the path does not know are what they would be elsewhere.
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
    fn of_a_long_user_agent_the_beginning_is_looked_at() {
        let info = RequestInfo::parse("GET", "/api/v1/pods", None).unwrap();
        let long = format!("{}é{}", "a".repeat(USER_AGENT_BYTES - 1), "b".repeat(200_000));
        for (header, seen) in [("kubectl/v1", "kubectl/v1"), (&*long, &long[..USER_AGENT_BYTES - 1])] {
            assert_eq!(DispatchAttributes::from_request(&info, "ann", &[], header).user_agent, seen);
        }
    }

    #[test]
    fn only_a_whole_name_is_a_service_accounts() {
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
