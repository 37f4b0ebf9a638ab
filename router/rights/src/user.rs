//! The user that authentication finds for a request.

use tributary_authentication::{Authority, Reach, UserInfo, VerifierName};

/// Who sends a request, as authentication found, and whose word that is: what a member may be told of it goes by both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// What is said of the user. Of those whom a verifier knows `system:authenticated` is among the groups.
    pub info: UserInfo,
    /// Who says so, and where that is good.
    pub authority: Authority,
}

impl User {
    /// One of this name and no more, for whom this endpoint itself vouches in all members. `verifier` is what of it
    /// knows the user, as [`Authority::verifier`].
    pub fn named(verifier: impl Into<VerifierName>, name: &str) -> Self {
        let info = UserInfo { username: name.to_owned(), ..UserInfo::default() };
        Self { info, authority: Authority { verifier: verifier.into(), reach: Reach::Everywhere } }
    }
}
