//! The user that authentication finds for a request.

use tributary_authentication::{Authority, Reach, UserInfo, VerifierName};

/// The sender of a request, as authentication found it. Both fields decide what a cluster may learn of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Attributes of the user. A user that a verifier knows has the group `system:authenticated`.
    pub info: UserInfo,
    /// The verifier of the user, and the clusters where the user is valid.
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
