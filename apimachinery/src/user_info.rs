//! `UserInfo` of authentication.k8s.io/v1.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::json::null_is_default;
use crate::service_account::ServiceAccount;
use crate::user_names::{ANONYMOUS_USER, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP};

/// A user, with the fields of `UserInfo` in authentication.k8s.io/v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The name of the user.
    #[serde(deserialize_with = "null_is_default")]
    pub username: String,
    /// An id that distinguishes successive users with the same name. Empty if the authenticator provides none.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub uid: String,
    /// The user's groups, in the order of the authenticator.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub groups: Vec<String>,
    /// Extra fields from the authenticator, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "extras")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Deserializes extra fields; a list may be `null`.
fn extras<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let extras: BTreeMap<String, Option<Vec<String>>> = null_is_default(deserializer)?;
    Ok(extras.into_iter().map(|(key, values)| (key, values.unwrap_or_default())).collect())
}

impl UserInfo {
    /// Creates a user with only a name and groups, the attributes that RBAC uses. A ServiceAccount has the name
    /// `system:serviceaccount:NAMESPACE:NAME`.
    pub fn with_groups(username: &str, groups: &[String]) -> Self {
        Self { username: username.to_owned(), groups: groups.to_vec(), ..Self::default() }
    }

    /// Returns the user with only its name and the groups from its authenticator. Removes the uid, the extra fields,
    /// and the groups `system:authenticated` and `system:unauthenticated`.
    #[must_use]
    pub fn into_name_and_groups(self) -> Self {
        let Self { username, mut groups, .. } = self;
        groups.retain(|group| group != AUTHENTICATED_GROUP && group != UNAUTHENTICATED_GROUP);
        Self { username, groups, ..Self::default() }
    }

    /// Returns the user of a request without credentials, as in kube-apiserver (apiserver
    /// `pkg/authentication/request/anonymous`).
    pub fn anonymous() -> Self {
        let groups = vec![UNAUTHENTICATED_GROUP.to_owned()];
        Self { username: ANONYMOUS_USER.to_owned(), groups, ..Self::default() }
    }

    /// Adds the group `system:authenticated`, as kube-apiserver does for each authenticated user (apiserver
    /// `pkg/authentication/group`).
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED_GROUP) {
            self.groups.push(AUTHENTICATED_GROUP.to_owned());
        }
        self
    }

    /// Adds the groups that kube-apiserver adds to an impersonated user: a ServiceAccount without requested groups gets
    /// the groups of its namespace, and each user gets `system:authenticated` or `system:unauthenticated` (apiserver
    /// `pkg/endpoints/filters/impersonation/mode.go`).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impersonated_user_gets_the_groups_that_kube_apiserver_adds() {
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
            let user = UserInfo { username: name.to_owned(), groups, ..UserInfo::default() };
            assert_eq!(user.impersonated().groups, expected, "{name}");
        }
    }
}
