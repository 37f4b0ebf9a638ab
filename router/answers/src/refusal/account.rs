//! Refusals because Tributary's account in a cluster lacks rights, with a remedy for the cluster's administrator.

use tributary_apimachinery::request_info::{RequestInfo, ResourceRequest};
use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{ClusterName, Status};

use super::wording::leaves_out;

/// The cluster forbids Tributary's account to act in a user's name: 503. No Retry-After, because an administrator has
/// to act first.
#[derive(Clone, Debug)]
pub struct ImpersonationForbidden {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// The action that the account's role does not include, if the account uses constrained impersonation (KEP-5284).
    /// `None` if the account may not impersonate the user at all.
    pub missing_permission: Option<MissingPermission>,
    /// True if the request goes to several clusters, and the client can exclude this cluster with a label selector.
    pub is_one_of_several: bool,
}

/// An action that the profile of Tributary's account (`tributary join --profile`) does not include.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPermission {
    /// Requested action, for example `list secrets`.
    what: String,
    /// Text after `tributary join CONTEXT --name NAME` in the remedy: the additional arguments, or the hint `AGAIN`.
    flags: &'static str,
}

impl MissingPermission {
    /// Describes a request that the cluster allows to the user, but that Tributary's account may not make in the user's
    /// name.
    pub fn from_request(info: &RequestInfo) -> Self {
        let verb = info.verb.as_str();
        let Some(request) = info.resource() else {
            return Self { what: format!("{verb} {}", info.path), flags: AGAIN };
        };
        let ResourceRequest { resource, subresource, .. } = request;
        let below = subresource.as_deref().map(|below| format!("/{below}")).unwrap_or_default();
        let what = format!("{verb} {}{below}", resource.group_resource());
        let is_secret = (&*resource.group, &*resource.resource) == ("", "secrets");
        let flags = match (info.verb.is_read(), subresource) {
            (true, None) if is_secret => " --profile read-with-secrets",
            (true, None) => AGAIN,
            // A GET of a subresource may be more than a read: `exec` and `proxy` allow any action.
            _ => " --profile write",
        };
        Self { what, flags }
    }

    /// Returns the command with which the cluster's administrator allows the action. The message to the client and the
    /// log contain the same text.
    pub fn remedy(&self, cluster: &ClusterName) -> String {
        format!("{}{}", join(cluster), self.flags)
    }
}

/// Returns the command that creates or changes Tributary's account in a cluster.
fn join(cluster: &ClusterName) -> String {
    format!("tributary join CONTEXT --name {cluster}")
}

/// Hint to run `tributary join` again with the same profile. Each profile lets users read only the kinds that the
/// cluster served at the last run of `join`.
const AGAIN: &str = ", which adds the new resource types to the account's role";

impl ImpersonationForbidden {
    pub(super) fn status(&self) -> Status {
        let mut message = format!("cluster {} {}", go_quote(self.cluster.as_str()), self.reason());
        if self.is_one_of_several {
            message.push_str(&format!("; {}", leaves_out(self.cluster.as_str())));
        }
        Status::service_unavailable(message)
    }

    /// Returns the message without the name of the cluster: the missing right and the remedy for the administrator.
    /// Begins with `does not allow`.
    pub fn reason(&self) -> String {
        match &self.missing_permission {
            Some(missing_permission) => format!(
                "does not allow Tributary to {} for you: the profile of Tributary's account lacks this right; an \
                 administrator of the cluster can add it: {} (docs/shared-mode.md)",
                missing_permission.what,
                missing_permission.remedy(&self.cluster)
            ),
            None => format!(
                "does not allow Tributary to act as you: Tributary's account may not impersonate you; an \
                 administrator of the cluster can allow it: {} (docs/shared-mode.md)",
                join(&self.cluster)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_names_the_smallest_sufficient_profile_of_tributarys_account() {
        let of = |method: &str, path: &str| {
            MissingPermission::from_request(&RequestInfo::parse(method, path, None).unwrap())
        };
        for (method, path, what, flags) in [
            ("GET", "/api/v1/secrets", "list secrets", " --profile read-with-secrets"),
            ("GET", "/api/v1/namespaces/shop/secrets/x", "get secrets", " --profile read-with-secrets"),
            ("DELETE", "/api/v1/namespaces/shop/secrets/x", "delete secrets", " --profile write"),
            ("POST", "/api/v1/namespaces/shop/pods/x/exec", "create pods/exec", " --profile write"),
            ("GET", "/api/v1/namespaces/shop/pods/x/exec", "get pods/exec", " --profile write"),
            ("GET", "/apis/shop.example/v1/carts", "list carts.shop.example", AGAIN),
            ("GET", "/metrics", "get /metrics", AGAIN),
        ] {
            assert_eq!(of(method, path), MissingPermission { what: what.to_owned(), flags }, "{method} {path}");
        }
    }

    #[test]
    fn refusal_beyond_the_profile_of_tributarys_account_names_the_remedy() {
        let info = RequestInfo::parse("GET", "/api/v1/secrets", None).unwrap();
        let cluster = ClusterName::new("eu").unwrap();
        // The log contains only the remedy, with the same text as in the message to the client.
        let remedy = "tributary join CONTEXT --name eu --profile read-with-secrets";
        assert_eq!(MissingPermission::from_request(&info).remedy(&cluster), remedy);
        let missing_permission = ImpersonationForbidden {
            cluster,
            missing_permission: Some(MissingPermission::from_request(&info)),
            is_one_of_several: true,
        };
        let status = missing_permission.status();
        assert_eq!((status.code, status.retry_after_seconds()), (503, None));
        assert_eq!(
            status.message,
            "cluster \"eu\" does not allow Tributary to list secrets for you: the profile of Tributary's account \
             lacks this right; an administrator of the cluster can add it: tributary join CONTEXT --name eu --profile \
             read-with-secrets (docs/shared-mode.md); this label selector omits a cluster: tributary.dev/cluster!=eu"
        );
        let status_without_permission =
            ImpersonationForbidden { missing_permission: None, is_one_of_several: false, ..missing_permission }
                .status();
        assert!(
            status_without_permission.message.contains("may not impersonate you")
                && !status_without_permission.message.contains("!="),
            "{status_without_permission}"
        );
    }
}
