//! What knows users, by the names that [`tributary_authentication::Authority`] has for them; issuers and clusters have their own.

use tributary_router::User;

/// The one credential of personal mode.
pub(super) const PERSONAL: &str = "personal";
/// `--client-ca-file`; behind a colon stands the cluster, where its own hosts have other authorities.
pub(super) const X509: &str = "x509";
/// A proxy in front, `--requestheader-*`.
pub(super) const FRONT_PROXY: &str = "front-proxy";

/// Whether a connection on which this user is known is theirs: it is not where a proxy in front sends the requests of many,
/// nor in personal mode, in which all are one person's.
pub fn has_own_connection(user: &User) -> bool {
    ![PERSONAL, FRONT_PROXY].contains(&user.authority.verifier.as_str())
}
