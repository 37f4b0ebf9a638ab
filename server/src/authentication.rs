//! Authenticates requests. Personal mode accepts one bearer token; shared mode accepts the users of the configured
//! authorities.
//!
//! ```text
//! request ─▶ bearer (tokens) ─┬─ personal: the token's digest
//!                             ├─ shared:   front proxy's headers ─▶ client certificate ─▶ tokens ─▶ 401
//!                             ├─ hub:      the same credentials, checked by the hub (aggregated entry)
//!                             └─ managed:  shared ─▶ the hub's tokens (entry of Open Cluster Management)
//!                                          (client_chain caches the results for a connection)
//! ```
//!
//! Authentication removes the credentials from the request, so that later stages never see them. A cluster's own token
//! is an exception: for a request under `/clusters/NAME`, or to the cluster's host, that cluster alone receives the
//! token ([`tributary_router::AuthenticatedSender::own_credential`]).

mod bearer;
mod client_chain;
mod cross_origin;
pub(crate) mod denied_users;
mod door;
mod files;
mod hub;
pub mod issuer_documents;
mod managed;
mod shared;
pub mod token_review;
mod unauthenticated;

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http::request::Parts;
use tributary_apimachinery::{Mount, Status};
use tributary_authentication::{Authority, UserInfo};
use tributary_router::{AuthenticatedSender, RequestContext, User};

use crate::credentials::TokenDigest;
pub(crate) use bearer::is_websocket;
pub use client_chain::ClientChain;
pub use files::{AuthenticationFiles, AuthenticationFilesError, read_issuers, read_serving_certificate};
pub use hub::HubAuthenticator;
pub use managed::ManagedAuthenticator;
pub use shared::SharedAuthenticator;
pub(crate) use unauthenticated::AuthenticationFailureLog;
pub use unauthenticated::Unauthenticated;

/// Returns the only user of personal mode. Clusters receive requests from the users in their kubeconfig contexts
/// instead.
pub fn personal_user() -> User {
    User::named(Authority::Personal, "tributary:personal")
}

/// Returns the anonymous user, who may only request health checks.
pub fn anonymous_user() -> User {
    User { info: UserInfo::anonymous(), authority: Authority::Anonymous }
}

/// The authentication of requests: personal mode, shared mode, or an entry of the hub's users.
#[derive(Debug)]
pub enum Authenticator {
    /// Personal mode: every request must contain the same token.
    Personal(TokenDigest),
    /// Shared mode: many users. The token of personal mode is invalid.
    Shared(SharedAuthenticator),
    /// The aggregated entry: the users of the hub.
    Hub(Arc<HubAuthenticator>),
    /// The entry of Open Cluster Management: the users of shared mode, and the users of the hub by their tokens.
    Managed(ManagedAuthenticator),
}

impl Authenticator {
    /// Authenticates a request, and removes the credentials from its head. `client` is the address of the sender. In
    /// shared mode, a cluster may review the token. Cancel: safe.
    ///
    /// `/healthz`, `/livez` and `/readyz` need no credentials, as with kube-apiserver's role
    /// `system:public-info-viewer`, because their answer is a single word. Credentials are required if a health check
    /// has a query (`?verbose` lists clusters) or a longer path. They are also required at a cluster's own host,
    /// because the cluster's health checks are requested there, and at the entry of Open Cluster Management, where the
    /// path names a cluster.
    ///
    /// # Errors
    /// [`Unauthenticated`] without accepted credentials.
    pub async fn authenticate(
        &self,
        head: &mut Parts,
        mount: &Mount,
        chain: &Arc<ClientChain>,
        client: IpAddr,
    ) -> Result<AuthenticatedSender, Unauthenticated> {
        let tokens = bearer::remove_tokens(&mut head.headers);
        let known = match self {
            Self::Hub(hub) => hub.authenticate(head, chain, &tokens, client).await,
            Self::Personal(digest) => match tokens.iter().any(|token| digest.matches(token)) {
                true => Ok(personal_user().into()),
                false => {
                    let token = (!tokens.is_empty()).then(|| "the token is not the token of this server".to_owned());
                    Err(Unauthenticated { token, ..Unauthenticated::default() })
                }
            },
            Self::Shared(shared) => shared.authenticate(head, mount, chain, &tokens, client).await,
            Self::Managed(managed) => managed.authenticate(head, mount, chain, &tokens, client).await,
        };
        match known {
            Err(_) if is_plain_health_check(head, mount) => Ok(anonymous_user().into()),
            known => known,
        }
    }

    /// At the aggregated entry, removes the client's audit ID, unless the request comes from the front proxy of the
    /// hub. Must be called before the audit ID is used.
    pub(crate) fn remove_untrusted_audit_id(&self, head: &mut Parts, chain: &ClientChain) {
        if let Self::Hub(hub) = self {
            hub.remove_untrusted_audit_id(head, chain);
        }
    }

    /// Checks that the hub allows a request for a resource of Tributary's own API group at the aggregated entry. Must
    /// be called within a tokio runtime. Cancel: safe.
    ///
    /// # Errors
    /// The Status for the answer, as for [`HubAuthenticator::authorize_door`].
    pub(crate) async fn authorize_door(&self, head: &Parts, context: &RequestContext) -> Result<(), Status> {
        match self {
            Self::Hub(_) if door::impersonates_at_entry(head, &context.arrival) => {
                Err(Status::forbidden(None, "", door::IMPERSONATION_AT_ENTRY))
            }
            Self::Hub(hub) => {
                if let Some(attributes) = door::attributes(head, &context.arrival) {
                    hub.authorize_door(&context.sender, &attributes).await?;
                }
                match door::inner_attributes(head, &context.arrival)? {
                    Some(attributes) => hub.authorize_inner(&context.sender, &attributes).await,
                    None => Ok(()),
                }
            }
            // At the entry of Open Cluster Management, as in its user-server, the member alone decides.
            Self::Personal(_) | Self::Shared(_) | Self::Managed(_) => Ok(()),
        }
    }
}

fn is_plain_health_check(head: &Parts, mount: &Mount) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
        && matches!(mount, Mount::Merged | Mount::Aggregated(_))
        && head.uri.query().is_none()
        && matches!(head.uri.path(), "/healthz" | "/livez" | "/readyz")
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use futures::FutureExt;
    use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
    use tributary_proxy::headers::BEARER_SUBPROTOCOL;

    use super::*;

    fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    /// Authenticates a request to the merged view, and returns the user name.
    fn authenticate(head: &mut Parts) -> Option<String> {
        authenticate_at(&Mount::Merged, head)
    }

    fn authenticate_at(mount: &Mount, head: &mut Parts) -> Option<String> {
        let (personal, chain) = (Authenticator::Personal(TokenDigest::from_token(b"secret")), Arc::default());
        let known = personal.authenticate(head, mount, &chain, IpAddr::from([127, 0, 0, 1])).now_or_never();
        Some(known.unwrap().ok()?.user.info.username)
    }

    #[test]
    fn bearer_token_is_accepted_only_from_authorization_and_websocket_headers() {
        let subprotocol = format!("{BEARER_SUBPROTOCOL}{}", URL_SAFE_NO_PAD.encode("secret"));
        let beside = format!("{subprotocol}, v4.channel.k8s.io");
        let twice = format!("{subprotocol}, {beside}");
        let wrong = format!("{BEARER_SUBPROTOCOL}{}, v4.channel.k8s.io", URL_SAFE_NO_PAD.encode("wrong"));
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        let cases: [(Vec<(&str, &str)>, bool); 13] = [
            (vec![("authorization", "Bearer secret")], true),
            (vec![("authorization", "bearer  secret ")], true),
            (vec![("authorization", "Bearer wrong")], false),
            (vec![("authorization", "Bearer")], false),
            (vec![("authorization", "Bearersecret")], false),
            (vec![("authorization", "Basic secret")], false),
            (vec![("authorization", "Bearer wrong"), ("authorization", "Bearer secret")], false),
            (vec![], false),
            ([&upgrade[..], &[("sec-websocket-protocol", beside.as_str())]].concat(), true),
            (vec![("sec-websocket-protocol", beside.as_str())], false),
            ([&upgrade[..], &[("sec-websocket-protocol", subprotocol.as_str())]].concat(), false),
            ([&upgrade[..], &[("sec-websocket-protocol", twice.as_str())]].concat(), false),
            ([&upgrade[..], &[("sec-websocket-protocol", wrong.as_str())]].concat(), false),
        ];
        for (headers, known) in cases {
            let got = authenticate(&mut head("/api", &headers));
            assert_eq!(got == Some(personal_user().info.username), known, "{headers:?}");
        }
    }

    #[test]
    fn authenticator_removes_credentials_from_the_request() {
        let subprotocol = format!("v5.channel.k8s.io, {BEARER_SUBPROTOCOL}c2VjcmV0, v4.channel.k8s.io");
        let mut head = head(
            "/api",
            &[
                ("authorization", "Bearer secret"),
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-protocol", &subprotocol),
            ],
        );
        authenticate(&mut head);
        assert!(!head.headers.contains_key(AUTHORIZATION));
        assert_eq!(head.headers[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io, v4.channel.k8s.io");
    }

    #[test]
    fn plain_health_checks_need_no_credentials() {
        let open = || Some(anonymous_user().info.username);
        let cases = [
            ("/healthz", open()),
            ("/livez", open()),
            ("/readyz", open()),
            ("/readyz?verbose", None),
            ("/readyz/ping", None),
            ("/readyz/", None),
            ("/metrics", None),
            ("/", None),
        ];
        for (uri, expected) in cases {
            assert_eq!(authenticate(&mut head(uri, &[])), expected, "{uri}");
        }
        let mut of_cluster = head("/healthz", &[]);
        let eu = Mount::Cluster("eu".parse().unwrap());
        assert_eq!(authenticate_at(&eu, &mut of_cluster), None);
        assert_eq!(authenticate_at(&Mount::OpenClusterManagement(Arc::default()), &mut head("/healthz", &[])), None);
        let mut post = head("/healthz", &[]);
        post.method = Method::POST;
        assert_eq!(authenticate(&mut post), None);
    }
}
