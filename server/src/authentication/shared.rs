//! Authenticates the users of shared mode by a front proxy's headers, a client certificate, or a token.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use http::request::Parts;
use rustls_pki_types::UnixTime;
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, Mount, MountTarget};
use tributary_authentication::{
    Authenticated, Authority, ClientCertificates, RequestHeaders, TokenAuthenticationError, TokenAuthenticator,
    UserInfo,
};
use tributary_hosts::Hosts;
use tributary_listener::tls::RequestedAuthorities;
use tributary_router::{AuthenticatedSender, CredentialValidity, User, user_authorization};

use super::client_chain::ClientChain;
use super::cross_origin::is_cross_origin;
use super::unauthenticated::{RefusedCertificate, Unauthenticated};
use crate::authentication::token_review::ReviewErrorLog;

/// The authenticator of shared mode. Clones are cheap, and share the same replaceable authorities.
#[derive(Clone, Debug, Default)]
pub struct SharedAuthenticator {
    /// The authorities for client certificates (`--client-ca-file`).
    pub certificates: Option<Arc<ClientCertificates>>,
    /// The authorities and headers of front proxies (`--requestheader-*`).
    pub front_proxy: Option<Arc<RequestHeaders>>,
    /// The authenticator of bearer tokens.
    pub tokens: Option<Arc<TokenAuthenticator>>,
    /// Limits the log lines about clusters that fail to review tokens.
    pub review_errors: Arc<ReviewErrorLog>,
    /// The hosts of clusters, which may have their own authorities for client certificates.
    pub hosts: Arc<Hosts>,
}

impl SharedAuthenticator {
    /// Returns the names of all authorities for client certificates and front proxies, for the TLS handshake.
    pub fn subjects(&self) -> RequestedAuthorities {
        let clients = self.certificates.as_ref().map(|own| own.subjects()).unwrap_or_default();
        let proxies = self.front_proxy.as_ref().map(|proxy| proxy.authorities.subjects()).unwrap_or_default();
        RequestedAuthorities { clients, proxies }
    }

    /// Returns whether clients may have certificates while the certificates of front proxies may have any common name.
    /// With such flags, a client counts as a front proxy if the front proxies' authority has signed the clients'
    /// authority. A comparison of the two bundles would not detect this chain.
    pub(super) fn any_client_counts_as_proxy(&self) -> bool {
        self.certificates.is_some() && self.accepts_any_proxy_name()
    }

    /// Returns whether every certificate of the front proxies' authorities is accepted, whatever its common name.
    pub fn accepts_any_proxy_name(&self) -> bool {
        self.front_proxy.as_ref().is_some_and(|proxy| proxy.allowed_names.is_empty())
    }

    /// Authenticates a request by the first valid credential, in kube-apiserver's order
    /// (`pkg/kubeapiserver/authenticator/config.go`). An invalid credential does not prevent the use of a later one.
    ///
    /// # Errors
    /// [`Unauthenticated`] without a valid credential.
    pub(super) async fn authenticate(
        &self,
        head: &mut Parts,
        mount: &Mount,
        chain: &Arc<ClientChain>,
        tokens: &[Vec<u8>],
        client: IpAddr,
    ) -> Result<AuthenticatedSender, Unauthenticated> {
        let (now, mut refused) = (UnixTime::now(), Unauthenticated::default());
        let named = self.authenticate_front_proxy(head, chain, now, &mut refused);
        if let Some(proxy) = &self.front_proxy {
            // The headers of front proxies are removed from every request, so that later stages cannot trust forged
            // headers.
            proxy.headers.remove_from(&mut head.headers);
        }
        let authority = if named.is_some() { Authority::FrontProxy } else { self.certificate_authority(mount) };
        let known = named.or_else(|| self.authenticate_certificate(&authority, chain, now, &mut refused));
        let Some((user, until)) = known else {
            let addressed_cluster = addressed_cluster(mount, head.uri.path());
            return self.authenticate_token(addressed_cluster, tokens, client, refused).await;
        };
        let left = Duration::from_secs(until.as_secs().saturating_sub(now.as_secs()));
        let credential_validity = Some(self.credential_validity(mount, chain, authority.clone()));
        // The cross-origin check concerns only certificates of users. A front proxy must do its own check, because the
        // browser sends the proxy's host, not the host of this endpoint.
        let is_cross_origin = authority != Authority::FrontProxy && is_cross_origin(head);
        let (user, until) = (User { info: user.authenticated(), authority }, Instant::now().checked_add(left));
        Ok(AuthenticatedSender { user, until, credential_validity, own_credential: None, is_cross_origin })
    }

    /// Returns the authority of client certificates at the host of a request. At a cluster's host with authorities of
    /// its own, only those authorities count, and their users are valid in that cluster alone.
    fn certificate_authority(&self, mount: &Mount) -> Authority {
        match mount {
            Mount::Cluster(cluster) if self.hosts.authorities(cluster).is_some() => {
                Authority::ClientCertificatesOf(cluster.clone())
            }
            _ => Authority::ClientCertificates,
        }
    }

    /// Returns the certificates of an authority; `None` if none are configured.
    fn certificates_of(&self, authority: &Authority) -> Option<Arc<ClientCertificates>> {
        match authority {
            Authority::ClientCertificatesOf(cluster) => self.hosts.authorities(cluster),
            _ => self.certificates.clone(),
        }
    }

    /// Creates the check whether a connection's certificate is still accepted, because the authorities may be replaced
    /// during a long-running request.
    fn credential_validity(&self, mount: &Mount, chain: &Arc<ClientChain>, authority: Authority) -> CredentialValidity {
        let chain = Arc::clone(chain);
        match authority {
            Authority::FrontProxy => {
                let proxy = self.front_proxy.clone();
                CredentialValidity::new(move || {
                    proxy.as_ref().is_some_and(|proxy| chain.verify_front_proxy(proxy, UnixTime::now()).is_ok())
                })
            }
            authority => {
                let (own, mount) = (self.clone(), mount.clone());
                CredentialValidity::new(move || {
                    let is_same = own.certificate_authority(&mount) == authority;
                    let certificates = own.certificates_of(&authority).filter(|_| is_same);
                    certificates.is_some_and(|certificates| chain.user(&certificates, UnixTime::now()).is_ok())
                })
            }
        }
    }

    fn authenticate_front_proxy(
        &self,
        head: &Parts,
        chain: &ClientChain,
        now: UnixTime,
        refused: &mut Unauthenticated,
    ) -> Option<(UserInfo, UnixTime)> {
        let proxy = self.front_proxy.as_ref()?;
        // Without a client certificate or without a front proxy's user headers, the client authenticates with its own
        // credentials.
        if chain.is_empty() || !proxy.headers.has_user_header(&head.headers) {
            return None;
        }
        let named = chain
            .verify_front_proxy(proxy, now)
            .and_then(|until| Ok(proxy.headers.read(&head.headers)?.zip(Some(until))));
        let named = named.inspect_err(|error| {
            tracing::debug!(%error, "the user headers of an authenticating proxy are rejected");
            refused.front_proxy = Some(format!("the user headers of an authenticating proxy are rejected: {error}"));
        });
        named.ok().flatten()
    }

    /// Authenticates a request by its bearer tokens. The origin is not checked, because a page of another origin cannot
    /// send a token.
    async fn authenticate_token(
        &self,
        addressed_cluster: Option<ClusterName>,
        tokens: &[Vec<u8>],
        client: IpAddr,
        mut refused: Unauthenticated,
    ) -> Result<AuthenticatedSender, Unauthenticated> {
        let Some(authenticator) = &self.tokens else {
            refused.token = (!tokens.is_empty()).then(|| "no issuer of tokens is configured".to_owned());
            return Err(refused);
        };
        for token in tokens {
            match authenticator.authenticate(token, addressed_cluster.as_ref(), client).await {
                Ok(known) => {
                    let left = known.expires.map(|until| until.duration_since(SystemTime::now()).unwrap_or_default());
                    let (info, authority) = (known.user.clone().authenticated(), known.authority.clone());
                    let own_credential = match (&authority, &addressed_cluster) {
                        // The cluster's configuration decides later whether the token is forwarded to the cluster.
                        (Authority::Member(vouching), Some(addressed_cluster)) if vouching == addressed_cluster => {
                            user_authorization(token)
                        }
                        _ => None,
                    };
                    return Ok(AuthenticatedSender {
                        user: User { info, authority },
                        until: left.and_then(|left| Instant::now().checked_add(left)),
                        credential_validity: Some(still_known_by_token(authenticator, &known, token)),
                        own_credential,
                        is_cross_origin: false,
                    });
                }
                Err(error) => {
                    refused.token = Some(error.to_string());
                    match error {
                        // A failed review is logged as a warning, because an administrator can fix its cause.
                        TokenAuthenticationError::NotReviewed { cluster, problem }
                            if self.review_errors.is_line_due(&cluster) =>
                        {
                            tracing::warn!(%cluster, %problem, "the cluster does not review tokens: requests with a token are refused");
                        }
                        error => tracing::debug!(%error, %client, "a token is rejected"),
                    }
                }
            }
        }
        Err(refused)
    }

    fn authenticate_certificate(
        &self,
        authority: &Authority,
        chain: &ClientChain,
        now: UnixTime,
        refused: &mut Unauthenticated,
    ) -> Option<(UserInfo, UnixTime)> {
        if chain.is_empty() {
            return None;
        }
        let mut refuse = |why: String| {
            refused.certificate = Some(Box::new(RefusedCertificate { subject: chain.subject(), why }));
        };
        let Some(certificates) = self.certificates_of(authority) else {
            refuse("no authority for client certificates is configured".to_owned());
            return None;
        };
        let user = chain.user(&certificates, now).inspect_err(|error| {
            tracing::debug!(%error, "a client certificate is rejected");
            refuse(error.to_string());
        });
        user.ok()
    }
}

/// Creates the check whether a token is still accepted: its issuer's configuration may change, and its cluster may
/// revoke the token. Only long-running requests call this check. The token's reviews are repeated only from the first
/// call on.
pub(super) fn still_known_by_token(
    tokens: &Arc<TokenAuthenticator>,
    known: &Arc<Authenticated>,
    token: &[u8],
) -> CredentialValidity {
    let (tokens, known, token) = (Arc::clone(tokens), Arc::clone(known), token.to_vec());
    let followed = OnceLock::new();
    CredentialValidity::new(move || {
        let followed: &Option<_> = followed.get_or_init(|| tokens.follow(&token, &known));
        tokens.is_verifier_unchanged(&known) && followed.as_ref().is_none_or(|followed| followed.is_known())
    })
}

/// Returns the cluster whose own API a request addresses, by its path or by its host. Returns `None` for an invalid
/// path, for which no cluster reviews a token.
pub(super) fn addressed_cluster(mount: &Mount, path: &str) -> Option<ClusterName> {
    match mount.resolve(path).ok()?.target {
        MountTarget::Cluster(cluster) => Some(cluster),
        MountTarget::Merged | MountTarget::Entry => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures::FutureExt;
    use futures::future::BoxFuture;
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use rustls_pki_types::CertificateDer;
    use serde_json::json;
    use tributary_authentication::{TokenReviewer, TokenReviews, UserHeaders};
    use tributary_hosts::{ClusterHosts, HostTable, HostTls};

    use super::*;
    use crate::authentication::issuer_documents::IssuerDocuments;

    /// Creates an authority and a certificate of the user ann with this certificate lifetime. Also returns the
    /// authority's PEM.
    fn authority_and_ann(time: Duration) -> (Arc<ClientCertificates>, CertificateDer<'static>, String) {
        let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = authority.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(authority, key);
        let mut ann = CertificateParams::new(Vec::<String>::new()).unwrap();
        ann.distinguished_name.push(DnType::CommonName, "ann");
        ann.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        ann.not_after = (std::time::SystemTime::now() + time).into();
        let certificate = ann.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
        (Arc::new(ClientCertificates::new(pem.as_bytes()).unwrap()), certificate, pem)
    }

    #[test]
    fn long_running_request_ends_with_its_client_certificate() {
        const TIME: Duration = Duration::from_secs(600);
        let (certificates, certificate, _) = authority_and_ann(TIME);
        let authenticator = SharedAuthenticator { certificates: Some(certificates), ..SharedAuthenticator::default() };
        let chain = Arc::new(ClientChain::new(&[certificate]));
        // The second iteration uses the connection's cached result, which must be the same.
        for _ in 0..2 {
            let (mut head, ()) = http::Request::get("/api").body(()).unwrap().into_parts();
            let known =
                authenticator.authenticate(&mut head, &Mount::Merged, &chain, &[], IpAddr::from([127, 0, 0, 1]));
            let known = known.now_or_never().unwrap();
            let sender = known.unwrap();
            assert_eq!(sender.user.info.username, "ann");
            let until = sender.until.unwrap();
            let left = until.duration_since(Instant::now());
            assert!(left <= TIME && left > TIME - Duration::from_secs(60), "{left:?}");
        }
    }

    #[test]
    fn long_running_request_ends_with_its_certificate_authority() {
        let (certificates, certificate, pem) = authority_and_ann(Duration::from_secs(600));
        let others = authority_and_ann(Duration::from_secs(600)).2;
        let authenticator =
            SharedAuthenticator { certificates: Some(Arc::clone(&certificates)), ..SharedAuthenticator::default() };
        let chain = Arc::new(ClientChain::new(&[certificate]));
        let (mut head, ()) = http::Request::get("/api").body(()).unwrap().into_parts();
        let known = authenticator.authenticate(&mut head, &Mount::Merged, &chain, &[], IpAddr::from([127, 0, 0, 1]));
        let sender = known.now_or_never().unwrap().unwrap();
        let credential_validity = sender.credential_validity.unwrap();
        for (bundle, expected) in [(pem.clone(), true), (format!("{others}{pem}"), true), (others, false), (pem, true)]
        {
            certificates.reload(bundle.as_bytes()).unwrap();
            assert_eq!(credential_validity.is_valid(), expected);
        }
    }

    /// A cluster whose TokenReview authenticates each token as ann, until it rejects all tokens. Counts the reviews.
    #[derive(Debug, Default)]
    struct Reviewing {
        asked: AtomicUsize,
        forgets: AtomicBool,
    }

    #[derive(Debug)]
    struct Reviewer(Arc<Reviewing>);

    impl TokenReviewer for Reviewer {
        fn review(&self, _: &ClusterName, _: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
            self.0.asked.fetch_add(1, Ordering::Relaxed);
            let is_known = !self.0.forgets.load(Ordering::Relaxed);
            let status = json!({"authenticated": is_known, "user": {"username": "ann"}});
            let review = json!({"kind": "TokenReview", "status": status});
            async move { Ok(review.to_string().into_bytes()) }.boxed()
        }
    }

    /// Reviews of a token are repeated only after the first check of a long-running request.
    #[tokio::test(start_paused = true)]
    async fn long_running_request_ends_when_a_review_rejects_its_token() {
        let hub = Arc::new(Reviewing::default());
        let reviews = TokenReviews { cluster: Some(ClusterName::new("hub").unwrap()), ..TokenReviews::default() };
        let reviewer = Arc::new(Reviewer(Arc::clone(&hub)));
        let tokens = TokenAuthenticator::new(reviews, Arc::new(IssuerDocuments), reviewer);
        let tokens = Arc::new(tokens);
        let authenticator = SharedAuthenticator { tokens: Some(Arc::clone(&tokens)), ..SharedAuthenticator::default() };
        let chain = Arc::new(ClientChain::new(&[]));
        let (mut head, ()) = http::Request::get("/api").body(()).unwrap().into_parts();
        let own = [b"opaque".to_vec()];
        let known =
            authenticator.authenticate(&mut head, &Mount::Merged, &chain, &own, IpAddr::from([127, 0, 0, 1])).await;
        let sender = known.unwrap();
        assert_eq!(sender.user.info.username, "ann");
        let asked = || hub.asked.load(Ordering::Relaxed);
        let minute = async || {
            tokio::time::advance(Duration::from_secs(60)).await;
            tokens.review_followed().await
        };
        assert!(!minute().await);
        assert_eq!(asked(), 1, "nothing lasts by it");
        let credential_validity = sender.credential_validity.unwrap();
        assert!(credential_validity.is_valid());
        assert!(!minute().await && credential_validity.is_valid());
        assert_eq!(asked(), 2);
        hub.forgets.store(true, Ordering::Relaxed);
        assert!(minute().await && !credential_validity.is_valid());
        drop(credential_validity);
        assert!(!minute().await);
        assert_eq!(asked(), 3, "it has ended");
    }

    #[test]
    fn client_authority_with_an_unrestricted_front_proxy_is_detected() {
        let (certificates, _, pem) = authority_and_ann(Duration::from_secs(600));
        let proxy = |allowed_names: &[&str]| {
            Some(Arc::new(RequestHeaders {
                authorities: ClientCertificates::new(pem.as_bytes()).unwrap(),
                allowed_names: allowed_names.iter().map(|&name| name.to_owned()).collect(),
                headers: UserHeaders::default(),
            }))
        };
        for (certificates, front_proxy, expected) in [
            (Some(&certificates), proxy(&[]), true),
            (Some(&certificates), proxy(&["front"]), false),
            (Some(&certificates), None, false),
            (None, proxy(&[]), false),
        ] {
            let certificates = certificates.cloned();
            let own = SharedAuthenticator { certificates, front_proxy, ..SharedAuthenticator::default() };
            assert_eq!(own.any_client_counts_as_proxy(), expected, "{own:?}");
        }
    }

    /// The users of a cluster's own authorities are valid at that cluster's host alone. The common users are not
    /// accepted at that host.
    #[test]
    fn users_of_a_hosts_authorities_belong_to_its_cluster() {
        let (own, of_all) = (authority_and_ann(Duration::from_secs(600)), authority_and_ann(Duration::from_secs(600)));
        let [eu, us]: [ClusterName; 2] = ["eu", "us"].map(|name| name.parse().unwrap());
        let replace = |hosts: &Hosts, authorities: Option<Arc<ClientCertificates>>| {
            let tls = HostTls { fingerprint: String::new(), serving: None, client_authorities: authorities };
            let named = |name: &str, tls| ClusterHosts { names: vec![name.parse().unwrap()], tls };
            let (first, second) = (named("eu.test", Some(Arc::new(tls))), named("us.test", None));
            let clusters = [(&eu, &first), (&us, &second)];
            hosts.replace(HostTable::new(&[], Vec::new(), clusters, &HostTable::default()).unwrap());
        };
        let hosts = Arc::<Hosts>::default();
        replace(&hosts, Some(Arc::clone(&own.0)));
        let authenticator = SharedAuthenticator {
            certificates: Some(Arc::clone(&of_all.0)),
            hosts: Arc::clone(&hosts),
            ..SharedAuthenticator::default()
        };
        let chains =
            [&own.1, &of_all.1].map(|certificate| Arc::new(ClientChain::new(std::slice::from_ref(certificate))));
        let known = |chain: &Arc<ClientChain>, host: &str| {
            let (mut head, ()) = http::Request::get("/api").header("host", host).body(()).unwrap().into_parts();
            let mount = hosts.mount(&head, Some(&host.parse().unwrap())).unwrap();
            let asked = authenticator.authenticate(&mut head, &mount, chain, &[], IpAddr::from([127, 0, 0, 1]));
            let sender = asked.now_or_never().unwrap().ok()?;
            Some((sender.user.authority, sender.credential_validity.unwrap()))
        };
        let everywhere = Authority::ClientCertificates;
        let of_eu = Authority::ClientCertificatesOf(eu.clone());
        // The second iteration uses cached results, which must belong to the authorities that verified them.
        for _ in 0..2 {
            for (chain, host, expected) in [
                (&chains[0], "eu.test", Some(&of_eu)),
                (&chains[1], "eu.test", None),
                (&chains[0], "us.test", None),
                (&chains[1], "us.test", Some(&everywhere)),
            ] {
                assert_eq!(known(chain, host).map(|(authority, _)| authority).as_ref(), expected, "{host}");
            }
        }
        let still = known(&chains[0], "eu.test").unwrap().1;
        assert!(still.is_valid());
        for (authorities, expected) in [(Some(of_all.0), false), (Some(own.0), true), (None, false)] {
            replace(&hosts, authorities);
            assert_eq!(still.is_valid(), expected);
        }
    }

    #[test]
    fn request_path_determines_the_addressed_cluster() {
        for (path, expected) in [
            ("/clusters/a/api/v1/pods", Some("a")),
            ("/clusters/a", Some("a")),
            ("/k8s/clusters/a/api/v1/pods", Some("a")),
            ("/k8s/clusters/a.b/apis", None),
            ("/clusters/a-b/apis", Some("a-b")),
            ("/clusters/a.b/apis", None),
            ("/clusters/", None),
            ("/clusters/%61/api", None),
            ("//clusters/a/api", None),
            ("/api/v1/clusters/a", None),
            ("/clusters", None),
        ] {
            assert_eq!(addressed_cluster(&Mount::Merged, path).as_ref().map(ClusterName::as_str), expected, "{path}");
            let own = Mount::Cluster("own".parse().unwrap());
            assert_eq!(addressed_cluster(&own, path).as_ref().map(ClusterName::as_str), Some("own"), "{path}");
        }
    }
}
