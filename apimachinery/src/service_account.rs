//! The user name and groups of a ServiceAccount.

use crate::dns_name::{is_dns_subdomain, is_namespace_name};

/// The prefix of a ServiceAccount's user name, before namespace and name (`ServiceAccountUsernamePrefix` in apiserver's
/// `pkg/authentication/serviceaccount/util.go`).
pub const SERVICE_ACCOUNT_USERNAME_PREFIX: &str = "system:serviceaccount:";

/// The group of all ServiceAccounts. With a colon and a namespace appended, the group of that namespace's
/// ServiceAccounts.
const ALL_SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// A ServiceAccount, borrowed from its user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceAccount<'a> {
    /// The namespace of the ServiceAccount.
    pub namespace: &'a str,
    /// The name of the ServiceAccount.
    pub name: &'a str,
}

impl<'a> ServiceAccount<'a> {
    /// Returns the ServiceAccount of a user. `None` for any other user, and for a name that no ServiceAccount can have
    /// (`SplitUsername` in apiserver's `pkg/authentication/serviceaccount/util.go`). Allocates nothing.
    pub fn of_user(username: &'a str) -> Option<Self> {
        let (namespace, name) = username.strip_prefix(SERVICE_ACCOUNT_USERNAME_PREFIX)?.split_once(':')?;
        (is_namespace_name(namespace) && is_dns_subdomain(name)).then_some(Self { namespace, name })
    }

    /// Returns the groups of the ServiceAccount (`MakeGroupNames` in apiserver's
    /// `pkg/authentication/serviceaccount/util.go`).
    pub fn groups(&self) -> [String; 2] {
        [ALL_SERVICE_ACCOUNTS.to_owned(), format!("{ALL_SERVICE_ACCOUNTS}:{}", self.namespace)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_service_account_username_is_recognized() {
        for (username, expected) in [
            ("system:serviceaccount:n:s", Some(("n", "s"))),
            ("system:serviceaccount:n:s.t-1", Some(("n", "s.t-1"))),
            ("system:serviceaccount:", None),
            ("system:serviceaccount:n", None),
            ("system:serviceaccount:n:", None),
            ("system:serviceaccount::s", None),
            ("system:serviceaccount:n:s:t", None),
            ("system:serviceaccount:N:s", None),
            ("system:serviceaccount:n.m:s", None),
            ("system:serviceaccount:n:S", None),
            ("system:serviceaccount:n:s/t", None),
            ("system:serviceaccount:n:s..t", None),
            ("system:serviceaccount:n:-s", None),
            ("system:serviceaccount:-n:s", None),
            ("bob", None),
        ] {
            let found = ServiceAccount::of_user(username).map(|account| (account.namespace, account.name));
            assert_eq!(found, expected, "{username}");
        }
    }

    #[test]
    fn service_account_groups_are_the_global_and_the_namespaces_group() {
        let account = ServiceAccount { namespace: "shop", name: "robot" };
        assert_eq!(account.groups(), ["system:serviceaccounts", "system:serviceaccounts:shop"]);
    }
}
