//! Connections for users' own tokens, without Tributary's credentials.

use http::Uri;
use kube::config::AuthInfo;

use crate::target::ServerUrl;

/// Returns a configuration without Tributary's credentials, for requests with users' own tokens. `further` are the
/// addresses in addition to the configuration's own address.
///
/// kube-apiserver trusts a connection's client certificate before any token (`pkg/kubeapiserver/authenticator`). On a
/// connection with Tributary's certificate, each user would therefore get Tributary's rights.
///
/// # Errors
/// An error with the address at which a third party could read a token, and with the reason.
pub(crate) fn without_credentials<'a>(
    config: &'a kube::Config,
    further: impl IntoIterator<Item = &'a Uri>,
) -> Result<kube::Config, (&'a Uri, &'static str)> {
    // Invalid URLs are left to the check of the member's configuration, which reports them.
    let is_open = |url: &&Uri| ServerUrl::parse(url).is_ok_and(|target| !target.is_https());
    if let Some(open) = std::iter::once(&config.cluster_url).chain(further).find(is_open) {
        return Err((open, "users' tokens are forwarded only over https"));
    }
    if config.accept_invalid_certs {
        let problem = "the server's certificate is not verified, and users' tokens are forwarded only to verified \
                       servers";
        return Err((&config.cluster_url, problem));
    }
    let mut config = config.clone();
    config.auth_info = AuthInfo::default();
    config.headers = Vec::new();
    Ok(config)
}
