//! The certificates of users, signed by an authority for client certificates: X.509 v3, for client authentication,
//! without the right to sign.
//!
//! rcgen creates the certificate, except for its two names. The issuer must equal the authority's name byte by byte, in
//! any encoding, and rcgen supports only one organization (group). So the names are inserted into rcgen's certificate,
//! and the result is signed.

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair};
use rcgen::{KeyUsagePurpose, PublicKeyData, SigningKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tributary_authentication::{CertificateError, ClientCertificates, UserInfo};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer;

use super::pem;

/// The time between the beginning of a new certificate's validity and its creation. Servers with a slow clock then
/// accept the certificate.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// The object identifiers of common name and organization, 2.5.4.3 and 2.5.4.10, in DER (X.520).
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x0a];

/// The tags of DER (X.690).
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;

/// The reason why no user certificate was created.
#[derive(Debug, thiserror::Error)]
pub enum UserCertificateError {
    /// The key file contains no unencrypted private key.
    #[error("the file has no private key that can be read; give an unencrypted PEM key: openssl pkey -in FILE")]
    NoKey,
    /// The type of the authority's key is not supported.
    #[error("the type of the key is not supported; give an ECDSA, Ed25519 or RSA key")]
    Key(#[source] rcgen::Error),
    /// The key belongs to none of the authority's certificates.
    #[error("the key belongs to none of the authority's certificates; give the key that belongs to one of them")]
    OtherKey,
    /// The certificates of the authority are unusable.
    #[error("the certificates of the authority cannot be used")]
    Authority(#[source] CertificateError),
    /// The user certificate cannot be generated.
    #[error("a certificate could not be made")]
    Make(#[from] rcgen::Error),
    /// The new user certificate is not valid DER.
    #[error("the new certificate cannot be read")]
    Form,
    /// An endpoint with this authority would refuse the certificate.
    #[error("a server with this authority would reject the certificate")]
    Refused(#[source] CertificateError),
}

impl UserCertificateError {
    /// Returns whether the error concerns the key file, not the authority's file.
    pub fn is_about_key(&self) -> bool {
        matches!(self, Self::NoKey | Self::Key(_) | Self::OtherKey)
    }
}

/// The private key of an authority.
pub struct AuthorityKey(KeyPair);

impl AuthorityKey {
    /// Reads the first private key of a PEM text: PKCS#8, SEC1 or PKCS#1.
    ///
    /// # Errors
    /// [`UserCertificateError::NoKey`], [`UserCertificateError::Key`].
    pub fn read(text: &[u8]) -> Result<Self, UserCertificateError> {
        let key = PrivateKeyDer::from_pem_slice(text).map_err(|_| UserCertificateError::NoKey)?;
        KeyPair::try_from(&key).map(Self).map_err(UserCertificateError::Key)
    }
}

/// An authority for client certificates, with its key.
pub struct ClientAuthority {
    all: ClientCertificates,
    /// The authority's certificate that belongs to the key.
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

/// A user's certificate and its key.
pub struct UserCertificate {
    /// The user's certificate in PEM, followed by the certificate of an intermediate authority.
    pub chain_pem: String,
    /// The user's private key in PKCS#8, as PEM.
    pub key_pem: String,
    /// The end of the certificate's validity, as time since 1970.
    pub end: Duration,
    /// True if the end of the authority's certificate shortens the requested lifetime.
    pub is_shortened: bool,
}

impl ClientAuthority {
    /// Parses a bundle of PEM certificates. One of the certificates must belong to the key.
    ///
    /// # Errors
    /// [`UserCertificateError::Authority`], [`UserCertificateError::OtherKey`].
    pub fn new(bundle: &[u8], AuthorityKey(key): AuthorityKey) -> Result<Self, UserCertificateError> {
        let all = ClientCertificates::new(bundle).map_err(UserCertificateError::Authority)?;
        let is_its_key = |certificate: &CertificateDer<'static>| {
            X509Certificate::from_der(certificate)
                .is_ok_and(|(_, parsed)| parsed.public_key().subject_public_key.data == key.der_bytes())
        };
        let certificate = CertificateDer::pem_slice_iter(bundle).flatten().find(is_its_key);
        Ok(Self { all, certificate: certificate.ok_or(UserCertificateError::OtherKey)?, key })
    }

    /// Signs a certificate for a user that is valid for `lifetime`, but not longer than the authority's certificate.
    /// The user name becomes the common name, and the groups become the organizations. Verifies the certificate as an
    /// endpoint with this authority does. `now` is the time since 1970.
    ///
    /// # Errors
    /// [`UserCertificateError`], except errors of the key and the bundle.
    pub fn issue(
        &self,
        user: &UserInfo,
        now: Duration,
        lifetime: Duration,
    ) -> Result<UserCertificate, UserCertificateError> {
        let (_, authority) = X509Certificate::from_der(&self.certificate).map_err(|_| UserCertificateError::Form)?;
        let authority_end = u64::try_from(authority.validity().not_after.timestamp()).unwrap_or(0);
        let (asked, authority_end) = (now + lifetime, Duration::from_secs(authority_end));
        let end = asked.min(authority_end);
        let key = KeyPair::generate()?;
        let unnamed = self.make_unnamed(&authority, &key, (now.saturating_sub(CLOCK_SKEW), end))?;
        let names = (authority.subject().as_raw(), &*distinguished_name(user));
        let certificate = insert_names(&unnamed, names, &self.key)?;
        let mut chain = vec![CertificateDer::from(certificate)];
        if authority.subject().as_raw() != authority.issuer().as_raw() {
            chain.push(self.certificate.clone());
        }
        let known = self.all.user(&chain, UnixTime::since_unix_epoch(now)).map_err(UserCertificateError::Refused)?.0;
        if known.username != user.username || known.groups != user.groups {
            return Err(UserCertificateError::Form);
        }
        let chain_pem = pem::certificates(chain.iter().map(AsRef::as_ref));
        Ok(UserCertificate { chain_pem, key_pem: key.serialize_pem(), end, is_shortened: authority_end < asked })
    }

    /// Creates a certificate with empty names for a key.
    fn make_unnamed(
        &self,
        authority: &X509Certificate<'_>,
        key: &KeyPair,
        (begin, end): (Duration, Duration),
    ) -> Result<Vec<u8>, UserCertificateError> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        (parameters.not_before, parameters.not_after) = (epoch + begin, epoch + end);
        let mut of_issuer = CertificateParams::default();
        of_issuer.distinguished_name = DistinguishedName::new();
        // OpenSSL compares the key identifier with the identifier in the authority's certificate.
        if let Some(identifier) = key_identifier(authority) {
            parameters.use_authority_key_identifier_extension = true;
            of_issuer.key_identifier_method = KeyIdMethod::PreSpecified(identifier);
        }
        Ok(parameters.signed_by(key, &Issuer::new(of_issuer, &self.key))?.der().to_vec())
    }
}

fn key_identifier(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
        _ => None,
    })
}

/// Inserts the names of issuer and subject (DER) into a certificate, and signs the resulting certificate with the
/// issuer's key.
fn insert_names(
    certificate: &[u8],
    (issuer, subject): (&[u8], &[u8]),
    key: &KeyPair,
) -> Result<Vec<u8>, UserCertificateError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| UserCertificateError::Form)?;
    let to_be_signed = parsed.tbs_certificate.as_ref();
    // The parsed names are slices of `certificate`, so their addresses give their positions.
    let place = |part: &[u8]| (part.as_ptr().addr() - to_be_signed.as_ptr().addr(), part.len());
    let (issuer_at, issuer_length) = place(parsed.issuer().as_raw());
    let (subject_at, subject_length) = place(parsed.subject().as_raw());
    let content = [
        &to_be_signed[header_length(to_be_signed)..issuer_at],
        issuer,
        &to_be_signed[issuer_at + issuer_length..subject_at],
        subject,
        &to_be_signed[subject_at + subject_length..],
    ];
    let signed = element(SEQUENCE, &content.concat());
    let after = place(to_be_signed).1 + (to_be_signed.as_ptr().addr() - certificate.as_ptr().addr());
    let algorithm = &certificate[after..];
    let algorithm = &algorithm[..header_length(algorithm) + content_length(algorithm)];
    // The first byte of a bit string is the number of unused bits in its last byte.
    let signature = element(BIT_STRING, &[&[0][..], &key.sign(&signed)?].concat());
    Ok(element(SEQUENCE, &[&signed, algorithm, &signature].concat()))
}

/// Encodes a user as a distinguished name (DER): organizations for the groups, then the common name.
fn distinguished_name(user: &UserInfo) -> Vec<u8> {
    let part = |kind: [u8; 5], text: &str| {
        element(SET, &element(SEQUENCE, &[&kind[..], &element(UTF8_STRING, text.as_bytes())].concat()))
    };
    let groups = user.groups.iter().map(|group| part(ORGANIZATION, group));
    element(SEQUENCE, &groups.chain([part(COMMON_NAME, &user.username)]).collect::<Vec<_>>().concat())
}

// Encodes an element in DER (X.690, section 8.1): a tag, a length and the content.

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let digits = &length[length.iter().position(|digit| *digit != 0).unwrap_or(length.len() - 1)..];
    let mut element = vec![tag];
    match digits {
        [short] if *short < 0x80 => element.push(*short),
        // The length of an element is a `usize`, which has at most 8 bytes.
        long => {
            element.push(0x80 | u8::try_from(long.len()).unwrap_or(8));
            element.extend(long);
        }
    }
    element.extend(content);
    element
}

fn header_length(element: &[u8]) -> usize {
    match element.get(1) {
        Some(length) if *length >= 0x80 => 2 + usize::from(length & 0x7f),
        _ => 2,
    }
}

fn content_length(element: &[u8]) -> usize {
    match element.get(1) {
        Some(length) if *length >= 0x80 => {
            element[2..header_length(element)].iter().fold(0, |length, digit| length << 8 | usize::from(*digit))
        }
        Some(length) => usize::from(*length),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, DnType, DnValue, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256};
    use x509_parser::x509::X509Version;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn now() -> Duration {
        super::super::certificates::now()
    }

    /// Returns an authority's certificate for a key, valid for 90 days.
    fn authority(key: &KeyPair) -> String {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // The authority's name has two attributes with two string types. rcgen alone would change the string type of
        // the first attribute.
        let printable = "Example".try_into().unwrap();
        parameters.distinguished_name.push(DnType::OrganizationName, DnValue::PrintableString(printable));
        parameters.distinguished_name.push(DnType::CommonName, "people");
        parameters.not_after = rcgen::date_time_ymd(1970, 1, 1) + now() + 90 * DAY;
        parameters.self_signed(key).unwrap().pem()
    }

    fn opened(key: &KeyPair) -> ClientAuthority {
        let read = AuthorityKey::read(key.serialize_pem().as_bytes()).unwrap();
        ClientAuthority::new(authority(key).as_bytes(), read).unwrap()
    }

    #[test]
    fn issued_certificate_authenticates_its_user_at_endpoints_of_the_authority() {
        let long: Vec<String> = (0..40).map(|number| format!("group-{number}-{}", "x".repeat(60))).collect();
        let few = ["dev", "Ärzte, Ost"].map(str::to_owned);
        for algorithm in [&PKCS_ECDSA_P384_SHA384, &PKCS_ED25519, &PKCS_RSA_SHA256] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let authority = opened(&key);
            for groups in [&[][..], &few, &long] {
                let user =
                    UserInfo { username: "ann@example.com".to_owned(), groups: groups.to_vec(), ..UserInfo::default() };
                let made = authority.issue(&user, now(), 30 * DAY).unwrap();
                assert!(!made.is_shortened);
                let chain: Vec<_> =
                    CertificateDer::pem_slice_iter(made.chain_pem.as_bytes()).map(Result::unwrap).collect();
                assert_eq!(chain.len(), 1, "the authority is its own");
                let (rest, parsed) = X509Certificate::from_der(&chain[0]).unwrap();
                assert!(rest.is_empty() && parsed.version() == X509Version::V3);
                let usage = parsed.extended_key_usage().unwrap().unwrap().value;
                assert!(usage.client_auth && !usage.server_auth && !usage.any);
                assert!(!parsed.basic_constraints().unwrap().unwrap().value.ca);
                let end = u64::try_from(parsed.validity().not_after.timestamp()).unwrap();
                assert_eq!(end, made.end.as_secs());
                assert_eq!(parsed.issuer().to_string(), "CN=people, O=Example");
                // The certificate contains the user's own key. Another authority with the same name, but a different
                // key, must not verify the certificate.
                let own = AuthorityKey::read(made.key_pem.as_bytes()).unwrap();
                assert_eq!(parsed.public_key().subject_public_key.data, own.0.der_bytes());
                let other = ClientCertificates::new(authority_of_same_name().as_bytes()).unwrap();
                assert!(other.verify(&chain, UnixTime::now()).is_err());
            }
        }
    }

    fn authority_of_same_name() -> String {
        authority(&KeyPair::generate().unwrap())
    }

    #[test]
    fn issued_certificate_ends_no_later_than_its_authority() {
        let key = KeyPair::generate().unwrap();
        let user = UserInfo { username: "ann".to_owned(), ..UserInfo::default() };
        let made = opened(&key).issue(&user, now(), 365 * DAY).unwrap();
        assert!(made.is_shortened);
        assert!(made.end <= now() + 90 * DAY && made.end > now() + 89 * DAY);
        // An expired authority signs no certificate.
        let refused = opened(&key).issue(&user, now() + 91 * DAY, DAY).err().unwrap();
        assert!(matches!(refused, UserCertificateError::Refused(_)), "{refused}");
    }

    #[test]
    fn issued_certificate_chain_includes_the_intermediate_authority() {
        let root_key = KeyPair::generate().unwrap();
        let mut of_root = CertificateParams::default();
        of_root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        of_root.distinguished_name.push(DnType::CommonName, "root");
        let root = of_root.self_signed(&root_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let mut parameters = of_root.clone();
        parameters.distinguished_name.push(DnType::CommonName, "team");
        let own = parameters.signed_by(&key, &Issuer::new(of_root, root_key)).unwrap().pem();
        let read = AuthorityKey::read(key.serialize_pem().as_bytes()).unwrap();
        let authority = ClientAuthority::new(format!("{root}{own}").as_bytes(), read).unwrap();
        let made =
            authority.issue(&UserInfo { username: "ann".to_owned(), ..UserInfo::default() }, now(), DAY).unwrap();
        let chain: Vec<_> = CertificateDer::pem_slice_iter(made.chain_pem.as_bytes()).map(Result::unwrap).collect();
        let alone = ClientCertificates::new(root.as_bytes()).unwrap();
        assert_eq!(alone.user(&chain, UnixTime::now()).unwrap().0.username, "ann");
    }

    #[test]
    fn wrong_authority_key_or_certificate_is_refused() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let read = |key: &KeyPair| AuthorityKey::read(key.serialize_pem().as_bytes()).unwrap();
        let error = ClientAuthority::new(authority(&key).as_bytes(), read(&other)).err().unwrap();
        assert!(matches!(error, UserCertificateError::OtherKey), "{error}");
        let error = ClientAuthority::new(b"no PEM", read(&key)).err().unwrap();
        assert!(matches!(error, UserCertificateError::Authority(_)), "{error}");
        assert!(matches!(AuthorityKey::read(b"no PEM"), Err(UserCertificateError::NoKey)));
        let server = CertificateParams::default().self_signed(&key).unwrap().pem();
        let none = ClientAuthority::new(server.as_bytes(), read(&key)).unwrap();
        let error =
            none.issue(&UserInfo { username: "ann".to_owned(), ..UserInfo::default() }, now(), DAY).err().unwrap();
        assert!(matches!(error, UserCertificateError::Refused(_)), "{error}");
    }
}
