//! Authenticated user of a request.

use tributary_authentication::{Authority, Reach, UserInfo, VerifierName};

/// Sender of a request, as determined by authentication. Both fields decide which attributes of the user a cluster may
/// see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Attributes of the user. A user that a verifier authenticated always has the group `system:authenticated`.
    pub info: UserInfo,
    /// Part of Tributary that authenticated the user, and the clusters in which the user is valid.
    pub authority: Authority,
}

impl User {
    /// A user with only a name, valid in all clusters. `verifier` is the part of Tributary that authenticated the user,
    /// as in [`Authority::verifier`].
    pub fn named(verifier: impl Into<VerifierName>, name: &str) -> Self {
        let info = UserInfo { username: name.to_owned(), ..UserInfo::default() };
        Self { info, authority: Authority { verifier: verifier.into(), reach: Reach::Everywhere } }
    }
}
