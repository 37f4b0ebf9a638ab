//! How users' own tokens are sent to a member: by connections on which nothing says who we are.

use http::Uri;
use kube::config::AuthInfo;

use crate::target::ServerUrl;

/// The configuration by which users' own tokens are sent: without anything by which the member would know us.
/// kube-apiserver believes a connection's client certificate before any token (`pkg/kubeapiserver/authenticator`), so
/// that with ours each of them would be us. `further` are addresses beside the configuration's.
///
/// # Errors
/// The address, and why somebody on the way to it, or in the server's place, could read a token.
pub(crate) fn without_credentials<'a>(
    config: &'a kube::Config,
    further: impl IntoIterator<Item = &'a Uri>,
) -> Result<kube::Config, (&'a Uri, &'static str)> {
    // What is no URL is said of the member itself.
    let is_open = |url: &&Uri| ServerUrl::parse(url).is_ok_and(|target| !target.is_https());
    if let Some(open) = std::iter::once(&config.cluster_url).chain(further).find(is_open) {
        return Err((open, "users' tokens are passed on over https alone"));
    }
    if config.accept_invalid_certs {
        let problem = "its certificate goes unchecked, and users' tokens are passed on only to a server whose certificate is checked";
        return Err((&config.cluster_url, problem));
    }
    let mut config = config.clone();
    config.auth_info = AuthInfo::default();
    config.headers = Vec::new();
    Ok(config)
}
