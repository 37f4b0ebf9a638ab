//! A user, and the authority that authenticated the user.

pub use tributary_apimachinery::UserInfo;
use tributary_limiters::ShareKey;

use crate::authority::Authority;

/// The key of the extra field in which kube-apiserver records the credential of the request. No rule of Tributary
/// depends on this field.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Sender of a request, as determined by authentication. Both fields decide which attributes of the user a cluster may
/// see.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User {
    /// Attributes of the user. A user that a verifier authenticated always has the group `system:authenticated`.
    pub info: UserInfo,
    /// The authority that authenticated the user.
    pub authority: Authority,
}

impl User {
    /// A user with only a name.
    pub fn named(authority: impl Into<Authority>, name: &str) -> Self {
        let info = UserInfo { username: name.to_owned(), ..UserInfo::default() };
        Self { info, authority: authority.into() }
    }

    /// Returns the key of the user's fair share of limits. Impersonation does not change the key: a user who may act as
    /// many users has one share.
    pub fn share_key(&self) -> ShareKey {
        self.authority.share_key(&self.info.username)
    }
}
