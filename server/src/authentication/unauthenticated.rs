//! A request that failed authentication: the message of the answer 401, and the log line.

use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;
use tributary_apimachinery::text::printable;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// The least interval between two log lines of the same kind, because anybody can send any number of unauthenticated
/// requests.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The longest subject in the log, in characters. Common names have some dozens of characters, but a client can create
/// a certificate with a longer name.
const SUBJECT_MAX: usize = 200;

/// The reasons why a request is not authenticated. No field contains a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unauthenticated {
    /// The refused client certificate, with the reason.
    pub(super) certificate: Option<Box<RefusedCertificate>>,
    /// The reason why the headers of a front proxy are refused.
    pub(super) front_proxy: Option<String>,
    /// The reason why the bearer token is refused.
    pub(super) token: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedCertificate {
    pub(super) subject: String,
    pub(super) why: String,
}

/// The kinds of log lines about unauthenticated connections and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthenticationFailureKind {
    /// A TLS handshake that failed because of the client's certificate.
    Handshake,
    Certificate,
    FrontProxy,
    Token,
    NoCredential,
}

impl Unauthenticated {
    /// Returns the reason that the client receives. Only the answer for a refused certificate contains a reason,
    /// because only the certificate's owner can present the certificate. As in kube-apiserver, the answer contains no
    /// reason for a token.
    pub(crate) fn message(&self) -> Option<&str> {
        self.certificate.as_deref().map(|certificate| &*certificate.why)
    }

    fn kind(&self) -> AuthenticationFailureKind {
        match self {
            Self { certificate: Some(_), .. } => AuthenticationFailureKind::Certificate,
            Self { front_proxy: Some(_), .. } => AuthenticationFailureKind::FrontProxy,
            Self { token: Some(_), .. } => AuthenticationFailureKind::Token,
            _ => AuthenticationFailureKind::NoCredential,
        }
    }

    fn reason(&self) -> String {
        let certificate = self.certificate.as_deref();
        let certificate = certificate.map(|own| format!("{} (subject {:?})", own.why, own.subject));
        let reasons = [certificate, self.front_proxy.clone(), self.token.clone()];
        let reasons: Vec<_> = reasons.into_iter().flatten().collect();
        if reasons.is_empty() { "the request has no credential".to_owned() } else { reasons.join("; ") }
    }
}

/// Returns the subject of a client's certificate for the log.
pub(super) fn subject(certificate: Option<&CertificateDer<'_>>) -> String {
    let parsed = certificate.and_then(|own| X509Certificate::from_der(own).ok());
    let subject = parsed.map(|(_, parsed)| parsed.subject().to_string()).unwrap_or_default();
    printable(&subject).chars().take(SUBJECT_MAX).collect()
}

/// Limits the log lines about unauthenticated clients to one line of each kind in a minute.
#[derive(Debug, Default)]
pub(crate) struct AuthenticationFailureLog([Mutex<Lines>; 5]);

#[derive(Debug, Default)]
struct Lines {
    last: Option<Instant>,
    /// The number of log lines of this kind that were omitted since the last written line.
    omitted: u64,
}

impl AuthenticationFailureLog {
    /// Logs a request that gets a 401.
    pub(crate) fn log_request(&self, client: SocketAddr, why: &Unauthenticated) {
        if let Some(others) = self.admit_line(why.kind(), Instant::now()) {
            tracing::info!(%client, reason = why.reason(), others, "a request is answered 401");
        }
    }

    /// Logs a TLS handshake that failed because of the client's certificate.
    pub(crate) fn log_handshake(&self, client: SocketAddr, reason: &str) {
        if let Some(others) = self.admit_line(AuthenticationFailureKind::Handshake, Instant::now()) {
            tracing::info!(%client, reason, others, "a client's certificate ends its TLS handshake");
        }
    }

    /// Decides whether a log line of this kind is written. Returns the number of lines that were omitted before this
    /// line. Returns `None` if this line must be omitted, too.
    fn admit_line(&self, kind: AuthenticationFailureKind, now: Instant) -> Option<u64> {
        let mut lines = self.0[kind as usize].lock();
        if lines.last.is_some_and(|last| now < last + LOG_INTERVAL) {
            lines.omitted += 1;
            return None;
        }
        lines.last = Some(now);
        Some(std::mem::take(&mut lines.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authentication_failures_are_logged_once_a_minute_per_kind() {
        let (clients, begin) = (AuthenticationFailureLog::default(), Instant::now());
        let admit_line = |kind, seconds| clients.admit_line(kind, begin + Duration::from_secs(seconds));
        assert_eq!(admit_line(AuthenticationFailureKind::Token, 0), Some(0));
        assert_eq!(
            (admit_line(AuthenticationFailureKind::Token, 1), admit_line(AuthenticationFailureKind::Token, 59)),
            (None, None)
        );
        assert_eq!(
            admit_line(AuthenticationFailureKind::Certificate, 1),
            Some(0),
            "a flood of one kind hides no other"
        );
        assert_eq!(admit_line(AuthenticationFailureKind::Token, 60), Some(2));
        assert_eq!(admit_line(AuthenticationFailureKind::Token, 200), Some(0));
    }

    #[test]
    fn authentication_failure_reason_describes_the_certificate_but_no_token() {
        let certificate = RefusedCertificate { subject: "CN=ann".to_owned(), why: "it is old".to_owned() };
        let both = Unauthenticated {
            certificate: Some(Box::new(certificate)),
            token: Some("invalid bearer token".to_owned()),
            ..Unauthenticated::default()
        };
        assert_eq!(both.reason(), "it is old (subject \"CN=ann\"); invalid bearer token");
        assert_eq!(both.message(), Some("it is old"));
        let nothing = Unauthenticated::default();
        assert_eq!((nothing.reason(), nothing.message()), ("the request has no credential".to_owned(), None));
    }
}
