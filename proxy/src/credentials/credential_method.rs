//! Choice among several credentials of one kubeconfig user.

use kube::config::{AuthInfo, ExecConfig};
use secrecy::SecretString;

/// The kind of credentials that a kubeconfig user uses. If the user has several kinds, the order of precedence is that
/// of the crate `kube`.
pub(super) enum CredentialMethod<'a> {
    Provider,
    /// User name and password. A user name without a password is ignored.
    Password,
    Token(&'a SecretString),
    TokenFile(&'a str),
    Exec(&'a ExecConfig),
    /// The user has only a client certificate, whose data is in the configuration.
    Certificate,
    /// The user has only a client certificate, whose file the configuration names.
    CertificateFile,
    Nothing,
}

impl<'a> CredentialMethod<'a> {
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
