//! Reads a serving certificate and its key from PEM.

use std::time::{Duration, SystemTime};

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tributary_authentication::time_text;
use x509_parser::certificate::{Validity, X509Certificate};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// An error in a serving certificate or its key. The error never contains data of the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServingCertificateError {
    /// The certificate file is not valid PEM.
    #[error("{0}")]
    Certificate(String),
    /// The certificate file contains no certificate.
    #[error("the PEM text has no certificate")]
    NoCertificate,
    /// The key cannot be parsed. The parser's message is omitted, because the message could quote the key.
    #[error("the PEM text has no private key")]
    NoKey,
    /// The key belongs to a different certificate, or has an unsupported type.
    #[error("the key does not belong to the certificate: {0}")]
    OtherKey(String),
}

impl ServingCertificateError {
    /// Returns whether the error lies in the key, not in the certificate.
    pub fn is_caused_by_key(&self) -> bool {
        matches!(self, Self::NoKey | Self::OtherKey(_))
    }
}

/// Parses a certificate chain, leaf first, and the leaf's key, both in PEM.
///
/// # Errors
/// [`ServingCertificateError`].
pub fn certified_key(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, ServingCertificateError> {
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|error| ServingCertificateError::Certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(ServingCertificateError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| ServingCertificateError::NoKey)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = CertifiedKey::from_der(chain, key, &provider);
    key.map_err(|error| ServingCertificateError::OtherKey(error.to_string()))
}

/// The remaining validity below which `serve` warns about a certificate. A week contains a working day for manual
/// renewal, and automatic renewal happens earlier.
const EXPIRY_WARNING_PERIOD: Duration = Duration::from_secs(7 * 24 * 3600);

/// Returns the reasons why clients refuse a serving certificate, now or within a week.
pub fn certificate_warnings(certificate: &CertifiedKey, now: SystemTime) -> Vec<String> {
    let Some(Ok((_, parsed))) = certificate.cert.first().map(|leaf| X509Certificate::from_der(leaf)) else {
        return Vec::new();
    };
    let is_host = |name: &GeneralName<'_>| matches!(name, GeneralName::DNSName(_) | GeneralName::IPAddress(_));
    let names = parsed.subject_alternative_name();
    let names_a_host = names.is_ok_and(|names| names.is_some_and(|own| own.value.general_names.iter().any(is_host)));
    let usage = parsed.extended_key_usage();
    let is_for_servers = usage.is_ok_and(|usage| usage.is_none_or(|own| own.value.server_auth || own.value.any));
    let all = [
        (!names_a_host, "the certificate has no host name (subjectAltName), and clients ignore its common name"),
        (!is_for_servers, "the certificate is not for servers (its extendedKeyUsage lacks serverAuth)"),
        (parsed.is_ca(), "the certificate is of an authority (CA:TRUE), which some clients reject for a server"),
    ];
    let of_names = all.into_iter().filter(|(applies, _)| *applies).map(|(_, doubt)| doubt.to_owned());
    validity_warning(parsed.validity(), now).into_iter().chain(of_names).collect()
}

/// Returns the problem of a certificate's validity period, now or within a week.
fn validity_warning(validity: &Validity, now: SystemTime) -> Option<String> {
    let seconds = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    };
    let Validity { not_before, not_after } = *validity;
    if seconds(now) < not_before.timestamp() {
        return Some(format!("the certificate is not valid before {}", time_text(not_before)));
    }
    if seconds(now) > not_after.timestamp() {
        return Some(format!("the certificate expired at {}", time_text(not_after)));
    }
    let ends_soon = seconds(now + EXPIRY_WARNING_PERIOD) > not_after.timestamp();
    ends_soon.then(|| format!("the certificate expires at {}, in less than a week", time_text(not_after)))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn serving_certificate_that_clients_would_refuse_gets_a_warning() {
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
        let authority = || IsCa::Ca(BasicConstraints::Unconstrained);
        for (host, usages, is_ca, expected) in [
            ("all.example.com", vec![ServerAuth], IsCa::ExplicitNoCa, ""),
            ("10.0.0.1", vec![], IsCa::NoCa, ""),
            ("all.example.com", vec![Any], IsCa::NoCa, ""),
            ("", vec![ServerAuth], IsCa::NoCa, "has no host name"),
            ("all.example.com", vec![ClientAuth], IsCa::NoCa, "lacks serverAuth"),
            ("all.example.com", vec![], authority(), "CA:TRUE"),
        ] {
            let names: Vec<String> = [host].into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect();
            let mut parameters = CertificateParams::new(names).unwrap();
            (parameters.extended_key_usages, parameters.is_ca) = (usages, is_ca);
            let key = KeyPair::generate().unwrap();
            let chain = parameters.self_signed(&key).unwrap().pem();
            let certificate = certified_key(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
            let found = certificate_warnings(&certificate, SystemTime::now());
            assert_eq!(found.is_empty(), expected.is_empty(), "{expected}: {found:?}");
            assert!(found.iter().all(|doubt| doubt.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn expired_or_expiring_serving_certificate_gets_a_warning() {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let mut parameters = CertificateParams::new(vec!["all.example.com".to_owned()]).unwrap();
        parameters.not_before = date_time_ymd(2030, 1, 1);
        parameters.not_after = date_time_ymd(2030, 3, 1);
        let key = KeyPair::generate().unwrap();
        let chain = parameters.self_signed(&key).unwrap().pem();
        let certificate = certified_key(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        // Day 0 of the table is the beginning of the year 2030, as seconds since 1970.
        let begins = SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        for (day, expected) in [
            (0, None),
            (51, None),
            (53, Some("the certificate expires at 2030-03-01T00:00:00Z, in less than a week")),
            (60, Some("the certificate expired at 2030-03-01T00:00:00Z")),
        ] {
            let found = certificate_warnings(&certificate, begins + DAY * day + DAY / 2);
            assert_eq!(found, expected.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{day}");
        }
        assert_eq!(
            certificate_warnings(&certificate, begins - DAY),
            ["the certificate is not valid before 2030-01-01T00:00:00Z"]
        );
    }
}
