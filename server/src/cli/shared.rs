//! The flags of the shared mode. They have kube-apiserver's names and forms wherever it has them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::header::HeaderName;
use tributary_apimachinery::ClusterName;
use tributary_authentication::TokenReviews;
use tributary_router::SharedMode;

use super::duration::parse_duration;
use super::sni_cert_key::SniCertKey;
use crate::listener_settings::PeerNetwork;
use crate::listener_settings::{TLS_1_2, TLS_1_3, TlsVersions};

/// Who may connect, and how: many users, each with their own rights.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Shared mode: many users, each with their own rights")]
pub struct SharedArguments {
    /// Certificates of the authorities that vouch for clients: the common name is the user, organizations are groups.
    /// With this flag, --authentication-config, --token-review-cluster, --requestheader-client-ca-file or an
    /// UpstreamCluster with spec.secureServing.clientCAFile or clientCAData the endpoint is shared: its generated token
    /// is refused, and each user sees and does what they may in each cluster
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// The serving certificate, followed by its intermediates; without it one for loopback names is made
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// The key of --tls-cert-file
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// A serving certificate and its key for clients that ask for certain names (SNI), or come to certain addresses; a
    /// name may begin with *. Without names it is for those of the certificate. Given names come before certificates'
    /// own, and the first flag before the others. May be repeated. A cluster's own certificate
    /// (spec.secureServing) comes before them
    #[arg(long, value_name = "CERT,KEY[:NAME,...]")]
    pub tls_sni_cert_key: Vec<SniCertKey>,
    /// The oldest TLS that is spoken
    #[arg(long, value_enum, value_name = "VERSION", default_value = "VersionTLS12")]
    pub tls_min_version: TlsVersion,
    /// Certificates of the authorities that vouch for a proxy in front, which names users in headers
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// The common names that such a proxy may have; without it each that the authorities vouch for. Required beside
    /// --client-ca-file
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "requestheader_client_ca_file")]
    pub requestheader_allowed_names: Vec<String>,
    /// The headers of the user's name, the first of which counts that is there
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "x-remote-user")]
    pub requestheader_username_headers: Vec<HeaderName>,
    /// The headers of the user's uid, none if not given; X-Remote-Uid is usual
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<HeaderName>,
    /// The headers of groups
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "x-remote-group")]
    pub requestheader_group_headers: Vec<HeaderName>,
    /// How the headers of extras begin
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "x-remote-extra-", value_parser = header_prefix)]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// An AuthenticationConfiguration of apiserver.config.k8s.io/v1: the issuers whose tokens are verified here
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
    /// The cluster that is asked (TokenReview) about tokens that are no configured issuer's and no ServiceAccount's of
    /// a cluster. Whom it names is known in all clusters, but for names that begin with system:
    #[arg(long, value_name = "NAME")]
    pub token_review_cluster: Option<ClusterName>,
    /// How long what a cluster said of a token is remembered
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = cache_ttl)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// Audiences: a token that a cluster reviews must be for one of them; without it, for that cluster's own API
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// Networks of load balancers that say by the PROXY protocol, version 1 or 2, where each connection comes from;
    /// from them a connection without it is refused, and from all others one with it
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    pub proxy_protocol_from: Vec<PeerNetwork>,
    /// A DeniedUsers file: the users that it names are answered nothing, and what they have open ends
    #[arg(long, value_name = "FILE")]
    pub denied_users_file: Option<PathBuf>,
    /// How long the last known rights in a cluster hold that is cut off as a whole
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = parse_duration)]
    pub stale_rights: Duration,
    /// After how long what lasts is ended: watches, logs that are followed, exec, attach, port-forward; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    pub max_stream_age: Duration,
    /// Whether authorities of clusters' own hosts (`spec.secureServing`) vouch for clients, as the first configuration
    /// says.
    #[arg(skip)]
    pub hosts_vouch: bool,
}

impl Default for SharedArguments {
    /// One person's endpoint.
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
        }
    }
}

impl SharedArguments {
    /// How many users are served.
    pub fn mode(&self) -> SharedMode {
        let max_stream_age = Some(self.max_stream_age).filter(|age| !age.is_zero());
        SharedMode { stale_rights: self.stale_rights, max_stream_age }
    }

    /// Whether many users are served, each with their own rights.
    pub fn is_shared(&self) -> bool {
        self.client_ca_file.is_some()
            || self.requestheader_client_ca_file.is_some()
            || self.authentication_config.is_some()
            || self.token_review_cluster.is_some()
            || self.hosts_vouch
    }

    /// How clusters are asked about tokens.
    pub fn token_reviews(&self) -> TokenReviews {
        TokenReviews {
            cluster: self.token_review_cluster.clone(),
            audiences: self.api_audiences.clone(),
            cache_ttl: self.authentication_token_webhook_cache_ttl,
        }
    }
}

/// The oldest TLS, in kube-apiserver's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2 and later.
    #[value(name = "VersionTLS12")]
    Tls12,
    /// TLS 1.3 alone.
    #[value(name = "VersionTLS13")]
    Tls13,
}

impl TlsVersion {
    /// The versions that are spoken.
    pub fn and_later(self) -> TlsVersions {
        match self {
            Self::Tls12 => TLS_1_2,
            Self::Tls13 => TLS_1_3,
        }
    }
}

/// The beginning of a header's name, in lower case. An empty one would take every header for an extra.
fn header_prefix(text: &str) -> Result<String, String> {
    match text.parse::<HeaderName>() {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(_) => Err("must be the beginning of a header's name".to_owned()),
    }
}

/// Longer than kube-apiserver's own default would let users who are gone go on for long.
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
    fn how_long_rights_and_streams_last_is_said_as_a_duration_or_in_seconds() {
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
