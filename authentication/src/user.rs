//! A user, and whose word it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use tributary_apimachinery::json::null_is_default;
use tributary_apimachinery::{ANONYMOUS_USER, AUTHENTICATED_GROUP, ClusterName, ServiceAccount, UNAUTHENTICATED_GROUP};

use crate::verifier_name::VerifierName;

/// The key of the extra in which kube-apiserver notes which credential was used. No rule goes by it.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A user as authentication.k8s.io/v1 `UserInfo` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The name by which rules know the user.
    #[serde(deserialize_with = "null_is_default")]
    pub username: String,
    /// Changes where another user gets the same name; empty where the verifier gives none.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub uid: String,
    /// The groups, in the verifier's order.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub groups: Vec<String>,
    /// What else the verifier says, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "extras")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Reads extras, in which a list may be `null`.
fn extras<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let extras: BTreeMap<String, Option<Vec<String>>> = null_is_default(deserializer)?;
    Ok(extras.into_iter().map(|(key, values)| (key, values.unwrap_or_default())).collect())
}

impl UserInfo {
    /// Whoever has no credentials, as kube-apiserver knows them (apiserver `pkg/authentication/request/anonymous`).
    pub fn anonymous() -> Self {
        let groups = vec![UNAUTHENTICATED_GROUP.to_owned()];
        Self { username: ANONYMOUS_USER.to_owned(), groups, ..Self::default() }
    }

    /// Adds the group `system:authenticated`, as kube-apiserver does for each user that a verifier knows
    /// (apiserver `pkg/authentication/group`).
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED_GROUP) {
            self.groups.push(AUTHENTICATED_GROUP.to_owned());
        }
        self
    }

    /// Adds the groups that kube-apiserver adds to whom a client asks to be: to a ServiceAccount for which no group is
    /// named those of its namespace, and to all the one that says whether somebody knows them
    /// (apiserver `pkg/endpoints/filters/impersonation/mode.go`).
    #[must_use]
    pub fn impersonated(mut self) -> Self {
        if let Some(account) = ServiceAccount::of_user(&self.username).filter(|_| self.groups.is_empty()) {
            self.groups.extend(account.groups());
        }
        if self.groups.iter().any(|group| group == UNAUTHENTICATED_GROUP) {
            return self;
        }
        if self.username == ANONYMOUS_USER {
            self.groups.push(UNAUTHENTICATED_GROUP.to_owned());
            return self;
        }
        self.authenticated()
    }
}

/// Where a verifier's word is good.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// In every member: what this endpoint's own configuration vouches for.
    Everywhere,
    /// In every member, because this endpoint's configuration trusts this one with names: the token-review cluster. It
    /// alone knows what it has said itself of the user that means something in one cluster.
    EverywhereFrom(ClusterName),
    /// In this member alone: whom a member vouches for is nobody elsewhere, whatever the name.
    Member(ClusterName),
}

impl Reach {
    /// Whether it is this member's own word, which is good there as a whole.
    pub fn is_word_of(&self, member: &ClusterName) -> bool {
        self.home() == Some(member)
    }

    /// The member whose own word it is, where it is one's.
    pub fn home(&self) -> Option<&ClusterName> {
        match self {
            Self::Everywhere => None,
            Self::EverywhereFrom(cluster) | Self::Member(cluster) => Some(cluster),
        }
    }
}

/// Whose word a user is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    /// Which verifier vouches.
    pub verifier: VerifierName,
    /// Where that is good.
    pub reach: Reach,
}

impl Authority {
    /// The member that alone vouches for the user, by its word on a token. Whoever may make ServiceAccounts there, or
    /// has the member's keys, makes any number of such users; so what is shared among users they share as one.
    ///
    /// None of whom this endpoint's own configuration vouches for: certificates of the authorities of a cluster's host
    /// are known in that cluster alone, and the cluster makes none of them.
    pub fn vouching_member(&self) -> Option<&ClusterName> {
        match &self.reach {
            Reach::Member(cluster) if self.verifier.is_cluster() => Some(cluster),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_vouches_alone_for_whom_no_configured_verifier_knows() {
        let a = ClusterName::new("a").unwrap();
        let in_a = || Reach::Member(a.clone());
        for (verifier, reach, expected) in [
            (VerifierName::cluster(&a), in_a(), Some(&a)),
            (VerifierName::cluster(&a), Reach::EverywhereFrom(a.clone()), None),
            (VerifierName::client_certificates_of(&a), in_a(), None),
            (VerifierName::client_certificates(), Reach::Everywhere, None),
            (VerifierName::issuer("https://issuer"), Reach::Everywhere, None),
            (VerifierName::front_proxy(), Reach::Everywhere, None),
        ] {
            let authority = Authority { verifier, reach };
            assert_eq!(authority.vouching_member(), expected, "{authority:?}");
        }
    }

    #[test]
    fn whom_a_client_asks_to_be_has_the_groups_that_kube_apiserver_adds() {
        let account = "system:serviceaccount:shop:robot";
        let cases: [(&str, &[&str], &[&str]); 8] = [
            ("ann", &[], &["system:authenticated"]),
            ("ann", &["dev", "ops"], &["dev", "ops", "system:authenticated"]),
            ("ann", &["system:authenticated", "dev"], &["system:authenticated", "dev"]),
            ("ann", &["system:unauthenticated"], &["system:unauthenticated"]),
            (account, &[], &["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]),
            (account, &["dev"], &["dev", "system:authenticated"]),
            ("system:anonymous", &[], &["system:unauthenticated"]),
            ("system:anonymous", &["dev"], &["dev", "system:unauthenticated"]),
        ];
        for (name, groups, expected) in cases {
            let groups = groups.iter().map(|&group| group.to_owned()).collect();
            let asked = UserInfo { username: name.to_owned(), groups, ..UserInfo::default() };
            assert_eq!(asked.impersonated().groups, expected, "{name}");
        }
    }
}
