//! Authentication by client certificates (apiserver `pkg/authentication/request/x509`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, TrustAnchor, UnixTime};
use sha2::{Digest, Sha256};
use tributary_apimachinery::text::hex;
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ExtendedKeyUsage;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME, Oid};
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AttributeTypeAndValue, X509Version};

use crate::user::{CREDENTIAL_ID, UserInfo};
use crate::version_one::{self, AuthorityKey, VersionOneError};

/// The object identifier of the subject's attribute for the user's uid, which kube-apiserver 1.33 and later read by
/// default (apimachinery `pkg/apis/asn1`, 1.3.6.1.4.1.57683.2).
const UID: [u64; 8] = [1, 3, 6, 1, 4, 1, 57683, 2];

/// The maximum number of intermediate certificates from a client. A usual chain has one or two, and each costs a
/// signature check.
const MAX_INTERMEDIATES: usize = 8;

/// The reason why a certificate, or a bundle of authorities, is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The bundle of authorities is malformed, or contains no certificate.
    #[error("the client CA bundle cannot be used: {0}")]
    Bundle(String),
    /// The client sent no certificate.
    #[error("there is no client certificate")]
    Missing,
    /// The client sent too many intermediate certificates.
    #[error("the client sent more than {MAX_INTERMEDIATES} intermediate certificates")]
    TooMany,
    /// The client's certificate has expired.
    #[error("the client certificate expired at {0}")]
    Expired(String),
    /// The client's certificate is not valid yet.
    #[error("the client certificate is not valid before {0}")]
    NotYetValid(String),
    /// The certificate is not valid DER.
    #[error("the client certificate cannot be read")]
    Unreadable,
    /// No authority of the bundle verifies the certificate for use by a client.
    #[error("verifying the client certificate failed: {0}")]
    NotVerified(String),
    /// The subject of the certificate is malformed.
    #[error("the client certificate's subject cannot be read: {0}")]
    Subject(&'static str),
    /// The certificate is valid but has no common name.
    #[error("the client certificate has no common name")]
    NoName,
}

/// The certificate authorities for clients. The authorities can be replaced while requests run.
///
/// The expiry and the authority of a client's certificate are checked for each request: a connection can outlive its
/// certificate, and a resumed TLS session does not check the certificate again.
#[derive(Debug)]
pub struct ClientCertificates {
    authorities: ArcSwap<Vec<TrustedAuthority>>,
    generation: AtomicU64,
}

/// Returns a number that no other bundle in this process has.
fn next_generation() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// An authority with its validity and constraints. webpki accepts any certificate as a root, so this type repeats Go's
/// checks of a root (`crypto/x509`, `Certificate.isValid`, `CheckSignatureFrom`).
#[derive(Debug)]
struct TrustedAuthority {
    /// The subject of the authority's certificate, as DER.
    subject: Vec<u8>,
    /// The issuer of the authority's certificate, as DER.
    issuer: Vec<u8>,
    /// The subject of the authority's certificate as text, for example `CN=people`.
    name: String,
    not_before: i64,
    not_after: i64,
    /// The reason why the authority's certificate does not allow signing client certificates.
    unfit: Option<&'static str>,
    /// The maximum number of intermediate authorities below this authority; `None` for no limit.
    path_length: Option<u32>,
    /// The public key of the authority. Verifies certificates of X.509 version 1, which webpki cannot read.
    key: SubjectPublicKeyInfoDer<'static>,
    /// The trust anchor for webpki, which contains only this authority.
    anchor: [TrustAnchor<'static>; 1],
}

/// The reason why an authority rejects a chain of certificates.
struct Refusal {
    why: String,
    rank: RefusalRank,
}

/// The maximum length of a reason in characters. The limit keeps the 401 response small: it contains the reason, and
/// the rejected client is not authenticated.
const WHY_CHARACTERS_MAX: usize = 200;

/// The severity of a refusal. If several authorities refuse a certificate, the refusal with the greatest severity is
/// reported.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum RefusalRank {
    /// The issuer of the certificate is another authority.
    OtherIssuer,
    /// The authority's own certificate does not allow signing client certificates.
    Authority,
    /// The certificate itself is invalid.
    Certificate,
}

impl Refusal {
    fn from_authority(why: &str) -> Self {
        Self { why: why.to_owned(), rank: RefusalRank::Authority }
    }
}

impl From<webpki::Error> for Refusal {
    fn from(error: webpki::Error) -> Self {
        let why = match &error {
            webpki::Error::UnknownIssuer => "no authority in the bundle issued it".to_owned(),
            webpki::Error::CertExpired { .. } => "an intermediate certificate has expired".to_owned(),
            webpki::Error::CertNotValidYet { .. } => "an intermediate certificate is not valid yet".to_owned(),
            webpki::Error::RequiredEkuNotFoundContext(_) => {
                "the extendedKeyUsage of the certificate lacks clientAuth".to_owned()
            }
            webpki::Error::PathLenConstraintViolated => {
                "the path length of an authority allows fewer intermediate certificates".to_owned()
            }
            // webpki's message for these errors quotes bytes of the certificate, in the worst case tens of kilobytes. A
            // shorter message replaces it.
            webpki::Error::UnsupportedSignatureAlgorithmContext(_)
            | webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
                "the signature algorithm of the certificate is not supported".to_owned()
            }
            error => error.to_string().chars().take(WHY_CHARACTERS_MAX).collect(),
        };
        let is_of_stranger = matches!(error, webpki::Error::UnknownIssuer);
        Self { why, rank: if is_of_stranger { RefusalRank::OtherIssuer } else { RefusalRank::Certificate } }
    }
}

impl TrustedAuthority {
    /// Verifies a chain of certificates from the client's certificate to this authority. Returns the earliest expiry of
    /// the certificates on the path, in seconds since 1970.
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<i64, Refusal> {
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if !(self.not_before..=self.not_after).contains(&seconds) {
            return Err(Refusal::from_authority("no authority is valid now"));
        }
        if let Some(unfit) = self.unfit {
            return Err(Refusal::from_authority(unfit));
        }
        let parsed = match EndEntityCert::try_from(leaf) {
            // A certificate of X.509 version 1 has no subjectAltName, but the authority's name constraints may also
            // restrict the subject. webpki would check this restriction but cannot read the certificate, so the
            // certificate is rejected.
            Err(webpki::Error::UnsupportedCertVersion) if self.anchor[0].name_constraints.is_some() => {
                return Err(Refusal::from_authority(
                    "an authority with name constraints cannot verify certificates of X.509 version 1",
                ));
            }
            Err(webpki::Error::UnsupportedCertVersion) => return self.verify_version_one(leaf),
            parsed => parsed?,
        };
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let usage = KeyUsage::client_auth();
        let is_short = |path: &VerifiedPath<'_>| self.check_path_length(path);
        let path =
            parsed.verify_for_usage(algorithms, &self.anchor, intermediates, now, usage, None, Some(&is_short))?;
        let between = path.intermediate_certificates().map(|own| end_of(&own.der()));
        Ok(between.chain([end_of(leaf)]).fold(self.not_after, i64::min))
    }

    fn verify_version_one(&self, leaf: &CertificateDer<'_>) -> Result<i64, Refusal> {
        let signer = AuthorityKey { subject: &self.subject, key: &self.key };
        let verified = version_one::verify(leaf, &signer).map(|end| end.min(self.not_after));
        verified.map_err(|error| Refusal {
            why: error.to_string(),
            rank: if error == VersionOneError::OtherIssuer {
                RefusalRank::OtherIssuer
            } else {
                RefusalRank::Certificate
            },
        })
    }

    /// Checks the number of intermediate authorities on the path between this authority and a client's certificate.
    /// Ignores certificates that are not on the path. Includes self-issued certificates, as Go and webpki do, although
    /// RFC 5280 exempts them (section 6.1.4 (l)).
    fn check_path_length(&self, path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
        match self.path_length {
            Some(length) if path.intermediate_certificates().count() > length as usize => {
                Err(webpki::Error::PathLenConstraintViolated)
            }
            _ => Ok(()),
        }
    }
}

impl ClientCertificates {
    /// Parses a bundle of PEM certificates.
    ///
    /// # Errors
    /// [`CertificateError::Bundle`].
    pub fn new(bundle: &[u8]) -> Result<Self, CertificateError> {
        Ok(Self {
            authorities: ArcSwap::from_pointee(authorities(bundle)?),
            generation: AtomicU64::new(next_generation()),
        })
    }

    /// Replaces the bundle of authorities. The new bundle also applies to later requests on open connections.
    ///
    /// # Errors
    /// [`CertificateError::Bundle`]; the previous bundle then stays in use.
    pub fn reload(&self, bundle: &[u8]) -> Result<(), CertificateError> {
        self.authorities.store(Arc::new(authorities(bundle)?));
        self.generation.store(next_generation(), Ordering::Release);
        Ok(())
    }

    /// Returns a number that differs for each bundle and each reload. The number is part of the key of cached results,
    /// so that a result for one bundle is never used for another.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the subjects of the authorities, as DER. The server sends the subjects in the TLS handshake, and clients
    /// choose a certificate whose issuer is among the subjects.
    pub fn subjects(&self) -> Vec<Vec<u8>> {
        self.authorities.load().iter().map(|authority| authority.subject.clone()).collect()
    }

    /// Returns whether this bundle accepts clients of the bundle `others`. True if an authority of each bundle has the
    /// same key, or if an authority of this bundle issued an authority of `others`. Longer paths between the bundles
    /// are not detected.
    pub fn accepts_clients_of(&self, others: &Self) -> bool {
        let (own, others) = (self.authorities.load(), others.authorities.load());
        own.iter().any(|own| others.iter().any(|other| own.key == other.key || own.subject == other.issuer))
    }

    /// Returns the certificates of the bundle that cannot sign client certificates: the subject (`CN=people`) and the
    /// reason.
    pub fn unfit(&self) -> Vec<(String, &'static str)> {
        let authorities = self.authorities.load();
        authorities.iter().filter_map(|authority| Some((authority.name.clone(), authority.unfit?))).collect()
    }

    /// Verifies a chain, leaf first, for use by a client at this time (extended key usage clientAuth, or none). Returns
    /// the time until which the result is valid while the bundle is unchanged: the earliest expiry on the path,
    /// including the authority's. Takes one signature check per certificate, about 0.1 ms.
    ///
    /// The rules are stricter than kube-apiserver's. Certificates with only `anyExtendedKeyUsage`, certificates of
    /// X.509 version 1 below an intermediate certificate, and an authority that is used as a client's certificate are
    /// rejected.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<UnixTime, CertificateError> {
        let (leaf, intermediates) = chain.split_first().ok_or(CertificateError::Missing)?;
        if intermediates.len() > MAX_INTERMEDIATES {
            return Err(CertificateError::TooMany);
        }
        // Like Go (`Certificate.isValid`), the code checks the validity period before the authority. The error then
        // tells the owner of an expired certificate to renew it.
        check_time(leaf, now)?;
        let mut refusal: Option<Refusal> = None;
        for authority in self.authorities.load().iter() {
            match authority.verify(leaf, intermediates, now) {
                Ok(end) => {
                    return Ok(UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(end).unwrap_or(0))));
                }
                Err(other) if refusal.as_ref().is_none_or(|previous| previous.rank < other.rank) => {
                    refusal = Some(other)
                }
                Err(_) => {}
            }
        }
        Err(CertificateError::NotVerified(refusal.map(|refusal| refusal.why).unwrap_or_default()))
    }

    /// Verifies a chain, and returns its user and the time until which the result is valid. The user's name is the
    /// common name, the groups are the organizations, and the credential id is the SHA-256 of the certificate.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn user(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(UserInfo, UnixTime), CertificateError> {
        let until = self.verify(chain, now)?;
        Ok((user_of(chain.first().ok_or(CertificateError::Missing)?)?, until))
    }
}

fn check_time(leaf: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| CertificateError::Unreadable)?;
    let (validity, seconds) = (parsed.validity(), i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    if seconds > validity.not_after.timestamp() {
        return Err(CertificateError::Expired(time_text(validity.not_after)));
    }
    if seconds < validity.not_before.timestamp() {
        return Err(CertificateError::NotYetValid(time_text(validity.not_before)));
    }
    Ok(())
}

/// Formats a time of a certificate (RFC 3339).
pub fn time_text(time: ASN1Time) -> String {
    let time = time.to_datetime();
    let (month, day) = (u8::from(time.month()), time.day());
    let (hour, minute, second) = time.to_hms();
    format!("{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", time.year())
}

/// Returns the expiry of a certificate in seconds since 1970; 0 if the certificate is malformed.
fn end_of(certificate: &CertificateDer<'_>) -> i64 {
    X509Certificate::from_der(certificate).map_or(0, |(_, parsed)| parsed.validity().not_after.timestamp())
}

fn authorities(bundle: &[u8]) -> Result<Vec<TrustedAuthority>, CertificateError> {
    let invalid = |problem: &dyn std::fmt::Display| CertificateError::Bundle(problem.to_string());
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate = certificate.map_err(|error| invalid(&error))?;
        let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|error| invalid(&error))?;
        let (validity, issuer) = (parsed.validity(), parsed.issuer().as_raw().to_vec());
        let (subject, name) = (parsed.subject().as_raw().to_vec(), parsed.subject().to_string());
        let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let anchor = [webpki::anchor_from_trusted_cert(&certificate).map_err(|error| invalid(&error))?.to_owned()];
        let (unfit, path_length) = fitness(&parsed);
        let key = parsed.public_key().raw.to_vec().into();
        found.push(TrustedAuthority { subject, issuer, name, not_before, not_after, unfit, path_length, key, anchor });
    }
    if found.is_empty() {
        return Err(invalid(&"the bundle has no certificate"));
    }
    Ok(found)
}

/// Returns the reason why a certificate cannot be an authority for clients (`None` if it can), and the maximum number
/// of intermediate authorities below it. Certificates of version 1 or 2 have no extensions and are accepted, as in Go.
fn fitness(certificate: &X509Certificate<'_>) -> (Option<&'static str>, Option<u32>) {
    let constraints = match certificate.basic_constraints() {
        Ok(constraints) => constraints.map(|extension| extension.value),
        Err(_) => return (Some("the authority's basic constraints cannot be read"), None),
    };
    let is_authority = constraints.map_or(certificate.version() != X509Version::V3, |own| own.ca);
    if !is_authority {
        return (
            Some("the configured certificate is not an authority: its basic constraints do not say CA:TRUE"),
            None,
        );
    }
    if !certificate.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign())) {
        return (Some("the authority may not sign certificates: its key usage lacks keyCertSign"), None);
    }
    let vouches_for_clients = |usage: &ExtendedKeyUsage<'_>| usage.client_auth || usage.any;
    if !certificate.extended_key_usage().is_ok_and(|usage| usage.is_none_or(|usage| vouches_for_clients(usage.value))) {
        return (Some("the authority is not for clients: its extended key usage lacks clientAuth"), None);
    }
    (None, constraints.and_then(|own| own.path_len_constraint))
}

/// Returns the common name of a certificate. If the subject has several common names, returns the last, as Go does.
///
/// # Errors
/// [`CertificateError::Subject`], [`CertificateError::NoName`].
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Result<String, CertificateError> {
    user_of(certificate).map(|user| user.username)
}

/// Returns the user in a certificate's subject. The certificate is not verified.
fn user_of(certificate: &CertificateDer<'_>) -> Result<UserInfo, CertificateError> {
    let unreadable = CertificateError::Subject("the data is not a certificate");
    let (rest, parsed) = X509Certificate::from_der(certificate).map_err(|_| unreadable.clone())?;
    if !rest.is_empty() {
        return Err(unreadable);
    }
    let uid_type = Oid::from(&UID).map_err(|_| CertificateError::Subject("the uid has no type"))?;
    let (mut name, mut groups, mut uids) = (String::new(), Vec::new(), Vec::new());
    for attribute in parsed.subject().iter_attributes() {
        if *attribute.attr_type() == OID_X509_COMMON_NAME {
            name = text(attribute)?;
        } else if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME {
            groups.push(text(attribute)?);
        } else if *attribute.attr_type() == uid_type {
            uids.push(text(attribute)?);
        }
    }
    if name.is_empty() {
        return Err(CertificateError::NoName);
    }
    if uids.len() > 1 {
        return Err(CertificateError::Subject("the subject has more than one uid"));
    }
    if uids.first().is_some_and(String::is_empty) {
        return Err(CertificateError::Subject("the uid is empty"));
    }
    let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![fingerprint(certificate)])]);
    Ok(UserInfo { username: name, uid: uids.pop().unwrap_or_default(), groups, extra })
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Result<String, CertificateError> {
    attribute.as_str().map(str::to_owned).map_err(|_| CertificateError::Subject("a name is not text"))
}

fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    format!("X509SHA256={}", hex(Sha256::digest(certificate)))
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
    };

    use super::*;
    use crate::version_one::tests::as_version_one;

    /// The start of the year 2040, in seconds since 1970.
    const AUTHORITY_ENDS: u64 = 2_208_988_800;

    /// An authority whose certificate expires at the end of 2039.
    pub(crate) struct TestAuthority(String, Issuer<'static, KeyPair>);

    impl TestAuthority {
        pub(crate) fn new() -> Self {
            let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            parameters.not_after = date_time_ymd(2040, 1, 1);
            let key = KeyPair::generate().unwrap();
            Self(parameters.self_signed(&key).unwrap().pem(), Issuer::new(parameters, key))
        }

        pub(crate) fn pem(&self) -> &str {
            &self.0
        }

        /// Returns a chain with only a client certificate, which expires at the end of 2049.
        pub(crate) fn client(&self, name: &str, others: &[(&[u64], &str)]) -> Vec<CertificateDer<'static>> {
            let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
            parameters.distinguished_name.push(DnType::CommonName, name);
            for (kind, value) in others {
                parameters.distinguished_name.push(DnType::CustomDnType(kind.to_vec()), *value);
            }
            parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            parameters.not_after = date_time_ymd(2050, 1, 1);
            vec![parameters.signed_by(&KeyPair::generate().unwrap(), &self.1).unwrap().der().clone()]
        }
    }

    #[test]
    fn user_is_read_from_a_verified_certificate_chain() {
        let authority = TestAuthority::new();
        let certificates = ClientCertificates::new(authority.pem().as_bytes()).unwrap();
        let chain = authority.client("ann", &[(&[2, 5, 4, 10], "dev"), (&UID, "u-1")]);
        let (user, until) = certificates.user(&chain, UnixTime::now()).unwrap();
        assert_eq!(until.as_secs(), AUTHORITY_ENDS, "the authority ends before the certificate");
        assert_eq!((user.username.as_str(), user.uid.as_str(), user.groups), ("ann", "u-1", vec!["dev".to_owned()]));
        assert!(user.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        let unnamed = certificates.user(&authority.client("", &[]), UnixTime::now());
        assert_eq!(unnamed, Err(CertificateError::NoName));
    }

    #[test]
    fn bundle_reports_certificates_that_are_not_authorities() {
        let authority = TestAuthority::new();
        let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, "ann");
        parameters.is_ca = IsCa::ExplicitNoCa;
        let client = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let bundle = format!("{}\n{client}", authority.pem());
        let unfit = ClientCertificates::new(bundle.as_bytes()).unwrap().unfit();
        let [(name, reason)] = &unfit[..] else { panic!("{unfit:?}") };
        assert_eq!((name.as_str(), reason.contains("do not say CA:TRUE")), ("CN=ann", true), "{reason}");
    }

    #[test]
    fn certificate_chain_expires_with_any_of_its_certificates() {
        /// Times in 2045 and 2055, in seconds since 1970. In 2045 the authority has expired. In 2055 the client
        /// certificate has expired, too.
        const AFTER: [u64; 2] = [2_366_841_600, 2_682_374_400];
        let authority = TestAuthority::new();
        let certificates = ClientCertificates::new(authority.pem().as_bytes()).unwrap();
        let chain = authority.client("ann", &[]);
        assert!(certificates.verify(&chain, UnixTime::now()).is_ok());
        let refused = AFTER.map(|seconds| {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            certificates.verify(&chain, time).unwrap_err().to_string()
        });
        assert_eq!(
            refused,
            [
                "verifying the client certificate failed: no authority is valid now",
                "the client certificate expired at 2050-01-01T00:00:00Z",
            ]
        );
    }

    #[test]
    fn version_1_certificate_is_accepted_directly_below_an_authority() {
        let (own, other) = (TestAuthority::new(), TestAuthority::new());
        let chain = |authority: &TestAuthority| {
            vec![as_version_one(&authority.client("ann", &[(&[2, 5, 4, 10], "dev")])[0], authority.1.key())]
        };
        // The two authorities have the same name but different keys.
        let certificates = ClientCertificates::new(format!("{}{}", other.pem(), own.pem()).as_bytes()).unwrap();
        for authority in [&own, &other] {
            let (user, until) = certificates.user(&chain(authority), UnixTime::now()).unwrap();
            assert_eq!((user.username.as_str(), user.groups), ("ann", vec!["dev".to_owned()]));
            assert_eq!(until.as_secs(), AUTHORITY_ENDS);
        }
        let after = UnixTime::since_unix_epoch(Duration::from_secs(2_682_374_400));
        assert!(matches!(certificates.verify(&chain(&own), after), Err(CertificateError::Expired(_))));
        let alone = ClientCertificates::new(own.pem().as_bytes()).unwrap();
        let refused = alone.user(&chain(&other), UnixTime::now()).unwrap_err().to_string();
        assert!(refused.contains("its signature is not from the authority"), "{refused}");
        // A client's intermediate certificate must not act as an authority of the bundle.
        let longer = [chain(&other), other.client("between", &[])].concat();
        assert!(alone.user(&longer, UnixTime::now()).is_err());
    }

    #[test]
    fn bundle_reload_applies_immediately_and_rejects_invalid_bundles() {
        let (first, second) = (TestAuthority::new(), TestAuthority::new());
        let certificates = ClientCertificates::new(first.pem().as_bytes()).unwrap();
        let (old, new) = (first.client("ann", &[]), second.client("ann", &[]));
        let verified = |chain: &[_]| certificates.verify(chain, UnixTime::now()).is_ok();
        assert_eq!((verified(&old), verified(&new)), (true, false));
        for bad in ["", "text", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(certificates.reload(bad.as_bytes()).is_err(), "{bad}");
        }
        let generation = certificates.generation();
        assert_eq!((verified(&old), certificates.generation()), (true, generation));
        certificates.reload(second.pem().as_bytes()).unwrap();
        assert_eq!((verified(&old), verified(&new)), (false, true));
        let same = ClientCertificates::new(second.pem().as_bytes()).unwrap();
        let generations = [generation, certificates.generation(), same.generation()];
        assert_eq!(std::collections::BTreeSet::from(generations).len(), 3, "{generations:?}");
    }

    /// Go checks the same properties of an authority's certificate: basicConstraints, the key usages, and the path
    /// length.
    #[test]
    fn authority_certificate_limits_the_client_certificates_it_may_sign() {
        use rcgen::KeyUsagePurpose::{CrlSign, KeyCertSign};
        type Change = fn(&mut CertificateParams);
        let rows: [(&str, Change, [bool; 2]); 8] = [
            ("any length", |_| {}, [true, true]),
            ("no CA", |own| own.is_ca = IsCa::ExplicitNoCa, [false, false]),
            ("no basic constraints", |own| own.is_ca = IsCa::NoCa, [false, false]),
            ("length 0", |own| own.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)), [true, false]),
            ("length 1", |own| own.is_ca = IsCa::Ca(BasicConstraints::Constrained(1)), [true, true]),
            ("signs lists", |own| own.key_usages = vec![CrlSign], [false, false]),
            ("signs", |own| own.key_usages = vec![KeyCertSign, CrlSign], [true, true]),
            ("for servers", |own| own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth], [false, false]),
        ];
        let key = || KeyPair::generate().unwrap();
        for (what, change, expected) in rows {
            let mut root = CertificateParams::new(Vec::<String>::new()).unwrap();
            root.distinguished_name.push(DnType::CommonName, "root");
            root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            change(&mut root);
            let root_key = key();
            let pem = root.self_signed(&root_key).unwrap().pem();
            let root = Issuer::new(root, root_key);
            let mut between = CertificateParams::new(Vec::<String>::new()).unwrap();
            between.distinguished_name.push(DnType::CommonName, "between");
            between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let between_key = key();
            let between_own = between.signed_by(&between_key, &root).unwrap().der().clone();
            let between = Issuer::new(between, between_key);
            let mut ann = CertificateParams::new(Vec::<String>::new()).unwrap();
            ann.distinguished_name.push(DnType::CommonName, "ann");
            ann.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let direct = vec![ann.signed_by(&key(), &root).unwrap().der().clone()];
            let below = vec![ann.signed_by(&key(), &between).unwrap().der().clone(), between_own];
            let certificates = ClientCertificates::new(pem.as_bytes()).unwrap();
            let verified = [direct, below].map(|chain| certificates.verify(&chain, UnixTime::now()).is_ok());
            assert_eq!(verified, expected, "{what}");
        }
    }

    /// As in Go (`crypto/x509`, `Certificate.isValid`), the path length includes all certificates from the client's
    /// certificate to the root, even self-issued certificates. Certificates that were sent but are not on the path are
    /// ignored.
    #[test]
    fn path_length_limit_applies_only_to_certificates_on_the_verified_path() {
        let key = || KeyPair::generate().unwrap();
        let authority = |name: &str, length| {
            let mut own = CertificateParams::new(Vec::<String>::new()).unwrap();
            own.distinguished_name.push(DnType::CommonName, name);
            own.is_ca = IsCa::Ca(length);
            own
        };
        let mut ann = CertificateParams::new(Vec::<String>::new()).unwrap();
        ann.distinguished_name.push(DnType::CommonName, "ann");
        ann.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        for (length, expected) in [(0, [true, true, false, false]), (1, [true, true, true, false]), (2, [true; 4])] {
            let (root, root_key) = (authority("root", BasicConstraints::Constrained(length)), key());
            let own = root.self_signed(&root_key).unwrap();
            let root = Issuer::new(root, root_key);
            // For a key rollover, an authority issues a self-issued certificate with the root's name and a new key.
            let (next, next_key) = (authority("root", BasicConstraints::Unconstrained), key());
            let next_own = next.signed_by(&next_key, &root).unwrap().der().clone();
            let next = Issuer::new(next, next_key);
            let (team, team_key) = (authority("team", BasicConstraints::Unconstrained), key());
            let team_own = team.signed_by(&team_key, &next).unwrap().der().clone();
            let team = Issuer::new(team, team_key);
            let signed = |issuer: &Issuer<'_, KeyPair>| ann.signed_by(&key(), issuer).unwrap().der().clone();
            let certificates = ClientCertificates::new(own.pem().as_bytes()).unwrap();
            let verified = [
                vec![signed(&root), own.der().clone()],
                vec![signed(&root), next_own.clone(), team_own.clone()],
                vec![signed(&next), next_own.clone()],
                vec![signed(&team), team_own, next_own],
            ]
            .map(|chain| certificates.verify(&chain, UnixTime::now()).is_ok());
            assert_eq!(verified, expected, "{length}");
        }
    }

    #[test]
    fn invalid_certificate_chains_are_rejected() {
        let authority = TestAuthority::new();
        let certificates = ClientCertificates::new(authority.pem().as_bytes()).unwrap();
        assert_eq!(certificates.verify(&[], UnixTime::now()), Err(CertificateError::Missing));
        let garbage = CertificateDer::from(vec![0x30, 0x03, 1, 2, 3]);
        assert!(certificates.verify(&[garbage], UnixTime::now()).is_err());
        let many: Vec<_> = (0..=MAX_INTERMEDIATES + 1).flat_map(|_| authority.client("ann", &[])).collect();
        assert_eq!(certificates.verify(&many, UnixTime::now()), Err(CertificateError::TooMany));
    }
}
