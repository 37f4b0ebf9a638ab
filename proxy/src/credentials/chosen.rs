//! Choice among several credentials of a user in a configuration.

use kube::config::{AuthInfo, ExecConfig};
use secrecy::SecretString;

/// The credentials that count, by kube's order of precedence, in which these stand.
pub(super) enum Chosen<'a> {
    /// `auth-provider` (OIDC, GCP).
    Provider,
    /// A user's name and password. A name without a password is none.
    Password,
    Token(&'a SecretString),
    /// The file that has the token.
    TokenFile(&'a str),
    Exec(&'a ExecConfig),
    /// A client certificate alone, which stands in the configuration.
    Certificate,
    /// A client certificate alone, of which the configuration names the file.
    CertificateFile,
    Nothing,
}

impl<'a> Chosen<'a> {
    /// Credentials of this user.
    pub(super) fn from_user(user: &'a AuthInfo) -> Self {
        if user.auth_provider.is_some() {
            Self::Provider
        } else if user.username.is_some() && user.password.is_some() {
            Self::Password
        } else if let Some(token) = &user.token {
            Self::Token(token)
        } else if let Some(path) = &user.token_file {
            Self::TokenFile(path)
        } else if let Some(exec) = &user.exec {
            Self::Exec(exec)
        } else if user.client_certificate_data.is_some() {
            Self::Certificate
        } else if user.client_certificate.is_some() {
            Self::CertificateFile
        } else {
            Self::Nothing
        }
    }
}
