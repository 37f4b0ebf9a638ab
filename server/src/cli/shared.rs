//! The flags of shared mode. A flag that kube-apiserver has, too, gets the same name and syntax.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::header::HeaderName;
use tributary_apimachinery::ClusterName;
use tributary_authentication::TokenReviews;
use tributary_listener::{PeerNetwork, TLS_1_2, TLS_1_3, TlsVersions};
use tributary_router::SharedMode;

use super::duration::parse_duration;
use super::sni_cert_key::SniCertKey;

/// The flags of shared mode: many users, each with their own rights.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Shared mode: many users, each with their own rights")]
pub struct SharedArguments {
    /// Certificate authorities for client certificates: the common name is the user, organizations are groups. This
    /// flag enables shared mode, as do --authentication-config, --token-review-cluster, --requestheader-client-ca-file,
    /// --hub-kubeconfig, --hub-in-cluster and spec.secureServing.clientCAFile or clientCAData of an UpstreamCluster.
    /// The generated token is then refused
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// The serving certificate, followed by its intermediates [default: a generated certificate for loopback names]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// The private key of --tls-cert-file
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// A serving certificate and its key for host names (SNI) or IP addresses; names can begin with *. Default names:
    /// the names in the certificate. Given names have priority over names of certificates, and earlier flags over later
    /// flags. The certificate of spec.secureServing has priority over all. May be given several times
    #[arg(long, value_name = "CERT,KEY[:NAME,...]")]
    pub tls_sni_cert_key: Vec<SniCertKey>,
    /// Minimum TLS version of client connections
    #[arg(long, value_enum, value_name = "VERSION", default_value = "VersionTLS12")]
    pub tls_min_version: TlsVersion,
    /// Certificate authorities for authenticating proxies, which send user names in headers
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of authenticating proxies; if empty, each certificate of the authorities is accepted. Required with
    /// --client-ca-file
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "requestheader_client_ca_file")]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers to inspect for user names; the first header that is present is used
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "x-remote-user")]
    pub requestheader_username_headers: Vec<HeaderName>,
    /// Headers to inspect for uids, for example X-Remote-Uid
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<HeaderName>,
    /// Headers to inspect for groups
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "x-remote-group")]
    pub requestheader_group_headers: Vec<HeaderName>,
    /// Header prefixes to inspect for extras
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "x-remote-extra-", value_parser = header_prefix)]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// An AuthenticationConfiguration of apiserver.config.k8s.io/v1 with the issuers of tokens
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
    /// The cluster that reviews (TokenReview) tokens of no configured issuer and of no cluster's ServiceAccounts. Its
    /// users are known in all clusters, except names that begin with system:
    #[arg(long, value_name = "NAME")]
    pub token_review_cluster: Option<ClusterName>,
    /// Time for which the result of a TokenReview is cached, at most 2m
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = cache_ttl)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// Accepted audiences of tokens that a cluster reviews [default: the audiences of the cluster's API server]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// Networks of load balancers that send a PROXY protocol header (version 1 or 2). Connections from these networks
    /// need the header; from any other address the header is refused
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    pub proxy_protocol_from: Vec<PeerNetwork>,
    /// A DeniedUsers file. Requests of its users are refused, and their open requests end
    #[arg(long, value_name = "FILE")]
    pub denied_users_file: Option<PathBuf>,
    /// Time for which the last known rights in an unreachable cluster remain valid
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = parse_duration)]
    pub stale_rights: Duration,
    /// Maximum duration of watches, followed logs, exec, attach and port-forward; 0 for no limit
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    pub max_stream_age: Duration,
    /// True if a cluster in the first configuration has its own authorities for client certificates
    /// (`spec.secureServing`).
    #[arg(skip)]
    pub hosts_vouch: bool,
    /// True in hub mode, which is always shared mode.
    #[arg(skip)]
    pub has_hub: bool,
}

/// The default flag values, which select personal mode.
impl Default for SharedArguments {
    fn default() -> Self {
        Self {
            client_ca_file: None,
            tls_cert_file: None,
            tls_private_key_file: None,
            tls_sni_cert_key: Vec::new(),
            tls_min_version: TlsVersion::Tls12,
            requestheader_client_ca_file: None,
            requestheader_allowed_names: Vec::new(),
            requestheader_username_headers: vec![HeaderName::from_static("x-remote-user")],
            requestheader_uid_headers: Vec::new(),
            requestheader_group_headers: vec![HeaderName::from_static("x-remote-group")],
            requestheader_extra_headers_prefix: vec!["x-remote-extra-".to_owned()],
            authentication_config: None,
            token_review_cluster: None,
            authentication_token_webhook_cache_ttl: TokenReviews::default().cache_ttl,
            api_audiences: Vec::new(),
            proxy_protocol_from: Vec::new(),
            denied_users_file: None,
            stale_rights: SharedMode::default().stale_rights,
            max_stream_age: SharedMode::default().max_stream_age.unwrap_or(Duration::ZERO),
            hosts_vouch: false,
            has_hub: false,
        }
    }
}

impl SharedArguments {
    /// Returns the settings of shared mode.
    pub fn mode(&self) -> SharedMode {
        let max_stream_age = Some(self.max_stream_age).filter(|age| !age.is_zero());
        SharedMode { stale_rights: self.stale_rights, max_stream_age }
    }

    /// Returns whether a flag enables shared mode.
    pub fn is_shared(&self) -> bool {
        self.client_ca_file.is_some()
            || self.requestheader_client_ca_file.is_some()
            || self.authentication_config.is_some()
            || self.token_review_cluster.is_some()
            || self.hosts_vouch
            || self.has_hub
    }

    /// Returns the settings of token reviews.
    pub fn token_reviews(&self) -> TokenReviews {
        TokenReviews {
            cluster: self.token_review_cluster.clone(),
            audiences: self.api_audiences.clone(),
            cache_ttl: self.authentication_token_webhook_cache_ttl,
        }
    }
}

/// The minimum TLS version, with the values of kube-apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsVersion {
    /// Accept TLS 1.2 and later.
    #[value(name = "VersionTLS12")]
    Tls12,
    /// Accept only TLS 1.3.
    #[value(name = "VersionTLS13")]
    Tls13,
}

impl TlsVersion {
    /// Returns the accepted TLS versions.
    pub fn and_later(self) -> TlsVersions {
        match self {
            Self::Tls12 => TLS_1_2,
            Self::Tls13 => TLS_1_3,
        }
    }
}

/// Parses the prefix of a header name into lower case. An empty prefix is refused, because it would match every header.
fn header_prefix(text: &str) -> Result<String, String> {
    match text.parse::<HeaderName>() {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(_) => Err("must be the beginning of a header name".to_owned()),
    }
}

/// The longest time for which the answer to a TokenReview may be cached: kube-apiserver's default. With a longer time,
/// deleted users would keep their access for too long.
const CACHE_TTL_MAX: Duration = Duration::from_secs(120);

fn cache_ttl(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(ttl) if ttl > CACHE_TTL_MAX => Err(format!("must be at most {} s", CACHE_TTL_MAX.as_secs())),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        shared: SharedArguments,
    }

    #[test]
    fn stale_rights_and_max_stream_age_accept_durations_and_seconds() {
        let mode = |arguments: &[&str]| Line::parse_from([&["serve"][..], arguments].concat()).shared.mode();
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        assert_eq!(mode(&[]), SharedMode::default());
        assert_eq!(SharedArguments::default().mode(), SharedMode::default());
        for age in ["10800", "3h", "2h60m"] {
            let (stale_rights, max_stream_age) = (hours(3), Some(hours(3)));
            let expected = SharedMode { stale_rights, max_stream_age };
            assert_eq!(mode(&["--stale-rights", age, "--max-stream-age", age]), expected, "{age}");
        }
        for never in ["0", "0s"] {
            assert_eq!(mode(&["--max-stream-age", never]).max_stream_age, None, "{never}");
        }
    }
}
