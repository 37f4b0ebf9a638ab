//! TLS to a cluster: trusted certificate authorities, and the client certificate with its renewal.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use kube::client::ConfigExt;
use kube::config::AuthInfo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::ClusterName;

use crate::credentials::CurrentCredentials;
use crate::credentials::certificate::Certificate;
use crate::error::{ConnectError, SharedError};
use crate::failure_class::FailureClass;
use crate::target::ServerUrl;

/// Minimal time between two reads of the client certificate's files. The files are read again before a connection
/// attempt. A renewed certificate is usually on disk long before the old certificate expires.
const FILES_INTERVAL: Duration = Duration::from_secs(60);

/// Protocols that TLS (ALPN) negotiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocols {
    Http2OrHttp1,
    /// HTTP/1.1 only, for upgrades.
    Http1,
}

struct TlsConfigs {
    any: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
    built: Instant,
    certificate: Certificate,
    /// Version of the credentials in these TLS configurations.
    version: u64,
}

pub(crate) struct TlsSource {
    /// The cluster part of the configuration, with certificate authorities and without a user.
    config: kube::Config,
    server_name: ServerName<'static>,
    pub(crate) server_name_text: Arc<str>,
    state: ArcSwapOption<TlsConfigs>,
}

impl TlsSource {
    /// Loads the certificate authorities. The client certificate comes from the credentials.
    ///
    /// # Errors
    /// [`ConnectError::Tls`], [`ConnectError::Server`].
    pub(crate) async fn new(
        cluster: &ClusterName,
        config: &kube::Config,
        target: &ServerUrl,
    ) -> Result<Option<Arc<Self>>, ConnectError> {
        if !target.is_https() {
            return Ok(None);
        }
        let host = config.tls_server_name.as_deref().unwrap_or_else(|| target.host());
        let server_name = ServerName::try_from(host.to_owned()).map_err(|_| ConnectError::Server {
            cluster: cluster.clone(),
            server: host.to_owned(),
            problem: "the host, or tls-server-name, is neither a DNS name nor an IP address",
        })?;
        let mut config = config.clone();
        // The user is removed, because the crate `kube` would run the user's plugin for each new TLS configuration.
        config.auth_info = AuthInfo::default();
        let tls_error = |source| ConnectError::Tls { cluster: cluster.clone(), source };
        if config.root_cert.is_none() && !config.accept_invalid_certs {
            config.root_cert = blocking(|| Ok(system_roots())).await.map_err(tls_error)?;
        }
        let server_name_text = host.into();
        Ok(Some(Arc::new(Self { config, server_name, server_name_text, state: ArcSwapOption::empty() })))
    }

    /// Checks the client certificate and the certificate authorities, without opening a connection.
    ///
    /// # Errors
    /// An error about the certificate, or about the certificate authorities.
    pub(crate) async fn check(&self, certificate: &Certificate) -> Result<(), SharedError> {
        build(&self.config, certificate, 0).await.map(drop)
    }

    pub(crate) fn checks_servers(&self) -> bool {
        !self.config.accept_invalid_certs
    }

    pub(crate) fn server_name(&self) -> ServerName<'static> {
        self.server_name.clone()
    }

    /// Returns the TLS configuration for the next connection. Reloads the client certificate if the credentials have a
    /// new version, or if the certificate's files were last read at least a minute ago. If the files have become
    /// unusable, their last content remains in use.
    ///
    /// # Errors
    /// An error about the client certificate. A certificate of other credentials is not used instead.
    pub(crate) async fn current(
        &self,
        protocols: Protocols,
        credentials: &CurrentCredentials,
    ) -> Result<Arc<ClientConfig>, SharedError> {
        let CurrentCredentials { certificate, version, .. } = credentials;
        let known = self.state.load_full();
        let is_current = |state: &Arc<TlsConfigs>| {
            state.version == *version && !(certificate.is_in_files() && state.built.elapsed() >= FILES_INTERVAL)
        };
        let state = match known {
            Some(state) if is_current(&state) => state,
            known => match (build(&self.config, certificate, *version).await, known) {
                (Ok(built), _) => {
                    let built = Arc::new(built);
                    self.state.store(Some(built.clone()));
                    built
                }
                (Err(error), Some(state)) if certificate.is_in_files() && state.certificate == *certificate => {
                    tracing::warn!(server_name = %self.server_name_text, %error, "client certificate cannot be renewed");
                    state
                }
                (Err(error), _) => return Err(error),
            },
        };
        Ok(match protocols {
            Protocols::Http2OrHttp1 => state.any.clone(),
            Protocols::Http1 => state.http1.clone(),
        })
    }
}

async fn build(config: &kube::Config, certificate: &Certificate, version: u64) -> Result<TlsConfigs, SharedError> {
    let (mut config, certificate) = (config.clone(), certificate.clone());
    config.auth_info = certificate.as_user();
    blocking(move || {
        let mut any = config.rustls_client_config().map_err(|error| -> SharedError { Arc::new(error) })?;
        let mut http1 = any.clone();
        any.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConfigs { any: Arc::new(any), http1: Arc::new(http1), built: Instant::now(), certificate, version })
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SharedError> + Send + 'static,
) -> Result<T, SharedError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Arc::new(error)))
}

/// Returns the operating system's root certificates in DER. `None` if there are none; the crate `kube` then uses
/// Mozilla's root certificates. Blocks, because the function reads files.
pub fn system_roots() -> Option<Vec<Vec<u8>>> {
    let mut store = rustls::RootCertStore::empty();
    let roots: Vec<Vec<u8>> = rustls_native_certs::load_native_certs()
        .certs
        .into_iter()
        .filter(|certificate| store.add(certificate.clone()).is_ok())
        .map(|certificate| certificate.to_vec())
        .collect();
    (!roots.is_empty()).then_some(roots)
}

pub(crate) fn remedy(error: &std::io::Error) -> &'static str {
    use rustls::{CertificateError, Error};
    const NOT_TLS: &str = "check that the server URL's port speaks TLS";
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return NOT_TLS;
    };
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the server's certificate is not signed by the configured authority: check certificate-authority-data"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the server's certificate is for other names: set tls-server-name to one of them",
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the server's certificate has expired, or the clock of this machine is wrong"
        }
        Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            "the server's certificate is not valid yet, or the clock of this machine is wrong"
        }
        // This error comes from the crate `webpki`. rustls returns it without a public type, so only the error's text
        // can be compared.
        Error::InvalidCertificate(CertificateError::Other(other))
            if other.to_string().contains("CaUsedAsEndEntity") =>
        {
            "the server uses the authority's own certificate as its serving certificate: give the server a \
             certificate that the authority has signed"
        }
        Error::InvalidCertificate(_) => "the server's certificate cannot be trusted: check certificate-authority-data",
        Error::AlertReceived(alert) => alert_remedy(&format!("{ALERT}{alert:?}")).unwrap_or(OTHER),
        Error::InvalidMessage(_) => NOT_TLS,
        _ => OTHER,
    }
}

pub(crate) fn handshake_failure_class(error: &std::io::Error) -> FailureClass {
    use rustls::Error;
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(_)) => FailureClass::Trust,
        Some(Error::InvalidMessage(_)) => FailureClass::Protocol,
        Some(Error::AlertReceived(alert)) => alert_failure_class(&format!("{ALERT}{alert:?}")),
        // A connection that ends during the handshake does not show that the server speaks another protocol.
        _ => FailureClass::Network,
    }
}

const ALERT: &str = "received fatal alert: ";
const OTHER: &str = "check the server URL, and proxies on the path to the server";

/// Returns the remedy for a TLS alert in an error text. In TLS 1.3, a server checks the client certificate after the
/// handshake. So the alert arrives as an HTTP error, and the HTTP/2 library keeps only the alert's text.
pub(crate) fn alert_remedy(text: &str) -> Option<&'static str> {
    Some(match alert_name(text)? {
        "CertificateRequired" => {
            "the server requires a client certificate: set client-certificate-data and client-key-data"
        }
        "CertificateExpired" => "the server says that the client certificate has expired: renew it",
        "UnknownCA" | "BadCertificate" | "CertificateUnknown" | "DecryptError" => {
            "the server rejects the client certificate: check client-certificate-data"
        }
        _ => OTHER,
    })
}

/// Returns the class of failure for a TLS alert in an error text.
pub(crate) fn alert_failure_class(text: &str) -> FailureClass {
    match alert_name(text) {
        Some(
            "CertificateRequired"
            | "CertificateExpired"
            | "UnknownCA"
            | "BadCertificate"
            | "CertificateUnknown"
            | "DecryptError",
        ) => FailureClass::Rejection,
        _ => FailureClass::Network,
    }
}

fn alert_name(text: &str) -> Option<&str> {
    let (_, alert) = text.split_once(ALERT)?;
    alert.split(|end: char| !end.is_ascii_alphanumeric()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_failure_is_classified_as_untrusted_server_rejection_or_protocol_error() {
        use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
        let of = |error| handshake_failure_class(&std::io::Error::new(std::io::ErrorKind::InvalidData, error));
        assert_eq!(of(Error::InvalidCertificate(CertificateError::UnknownIssuer)), FailureClass::Trust);
        assert_eq!(of(Error::InvalidCertificate(CertificateError::Expired)), FailureClass::Trust);
        assert_eq!(of(Error::InvalidMessage(InvalidMessage::InvalidContentType)), FailureClass::Protocol);
        assert_eq!(of(Error::AlertReceived(AlertDescription::CertificateExpired)), FailureClass::Rejection);
        assert_eq!(of(Error::AlertReceived(AlertDescription::HandshakeFailure)), FailureClass::Network);
        assert_eq!(handshake_failure_class(&std::io::ErrorKind::UnexpectedEof.into()), FailureClass::Network);
        assert_eq!(
            alert_failure_class("connection error: received fatal alert: CertificateRequired"),
            FailureClass::Rejection
        );
    }

    #[test]
    fn tls_alert_in_an_error_text_determines_the_advice_in_the_message() {
        let remedy = alert_remedy("connection error: received fatal alert: CertificateExpired").unwrap();
        assert!(remedy.contains("expired"), "{remedy}");
        assert_eq!(alert_remedy("received fatal alert: InternalError"), Some(OTHER));
        assert_eq!(alert_remedy("connection reset"), None);
        let error = rustls::Error::AlertReceived(rustls::AlertDescription::UnknownCA);
        assert!(remedy_of(error).contains("rejects the client certificate"));
        assert!(remedy_of(rustls::CertificateError::Expired.into()).contains("clock"));
    }

    /// The texts must not mention a cluster, because `tributary status` also uses them for its connection to a running
    /// Tributary.
    #[test]
    fn advice_about_tls_failures_does_not_mention_a_cluster() {
        let ca = rustls::OtherError(Arc::new(std::io::Error::other("CaUsedAsEndEntity")));
        let certificates = [
            rustls::CertificateError::Other(ca),
            rustls::CertificateError::UnknownIssuer,
            rustls::CertificateError::NotValidForName,
            rustls::CertificateError::Expired,
            rustls::CertificateError::NotValidYet,
            rustls::CertificateError::Revoked,
        ];
        let mut remedies: Vec<_> = certificates.map(|error| remedy_of(error.into())).into();
        assert!(remedies[0].contains("authority's own certificate"), "{remedies:?}");
        let alerts = ["CertificateRequired", "CertificateExpired", "UnknownCA"];
        remedies.extend(alerts.map(|alert| alert_remedy(&format!("{ALERT}{alert}")).unwrap()));
        for remedy in remedies {
            assert!(remedy.starts_with("the server"), "{remedy}");
        }
    }

    fn remedy_of(error: rustls::Error) -> &'static str {
        remedy(&std::io::Error::new(std::io::ErrorKind::InvalidData, error))
    }
}
