//! Client certificates of X.509 version 1, which `openssl x509 -req` without `-extfile` makes (OpenSSL before 3.2).
//!
//! Go, and so kube-apiserver, accepts these certificates. webpki, and so rustls, reads only version 3. Version 1 has no
//! extensions, so only the issuer, the time and the signature need a check; webpki checks the signature. Version 2
//! differs from version 1 only by unique identifiers, which no certificate uses in practice.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::{DigitallySignedStruct, PeerMisbehaved};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use webpki::RawPublicKeyEntity;
use x509_parser::asn1_rs::BitString;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AlgorithmIdentifier, X509Version};

/// The reason why a certificate of X.509 version 1 is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VersionOneError {
    /// The certificate names another authority as its issuer.
    #[error("the certificate is of X.509 version 1, and no authority in the bundle issued it directly")]
    OtherIssuer,
    /// The certificate, or the certificate of its authority, is not acceptable for the contained reason.
    #[error("the certificate is of X.509 version 1, and {0}")]
    Unusable(&'static str),
}

/// The tag of an OBJECT IDENTIFIER (ITU-T X.690).
const OBJECT_IDENTIFIER: u8 = 6;

/// The name and the key of an authority. Each certificate of the authority contains this name as its issuer.
pub(crate) struct AuthorityKey<'a> {
    /// The name of the authority, as DER.
    pub(crate) subject: &'a [u8],
    pub(crate) key: &'a SubjectPublicKeyInfoDer<'static>,
}

/// Verifies the signature of a TLS 1.2 handshake by the key of a client's certificate.
///
/// # Errors
/// The errors of [`rustls::crypto::verify_tls12_signature`].
pub(crate) fn verify_tls12_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let Some(key) = key(certificate) else {
        return rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms);
    };
    // rustls verifies a TLS 1.2 signature only with a certificate that webpki can read, and webpki cannot read X.509
    // version 1. So this code verifies the signature with the public key alone.
    let advertised = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
    let (_, candidates) = advertised.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    let bad = rustls::CertificateError::BadSignature;
    let key = RawPublicKeyEntity::try_from(&key).map_err(|_| rustls::CertificateError::BadEncoding)?;
    let is_valid =
        candidates.iter().any(|algorithm| key.verify_signature(*algorithm, message, signature.signature()).is_ok());
    if is_valid { Ok(HandshakeSignatureValid::assertion()) } else { Err(bad.into()) }
}

/// Verifies the signature of a TLS 1.3 handshake by the key of a client's certificate.
///
/// # Errors
/// The errors of [`rustls::crypto::verify_tls13_signature`].
pub(crate) fn verify_tls13_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    match key(certificate) {
        Some(key) => rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, algorithms),
        None => rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms),
    }
}

/// Returns the public key of a certificate of X.509 version 1 or 2, which webpki cannot read. `None` for version 3, and
/// for a malformed certificate.
fn key(certificate: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    (parsed.version() != X509Version::V3).then(|| parsed.public_key().raw.to_vec().into())
}

/// Verifies that the authority signed a certificate of X.509 version 1 directly. Returns the expiry of the certificate,
/// in seconds since 1970; the caller checks the time.
///
/// # Errors
/// [`VersionOneError`].
pub(crate) fn verify(certificate: &CertificateDer<'_>, signer: &AuthorityKey<'_>) -> Result<i64, VersionOneError> {
    use VersionOneError::{OtherIssuer, Unusable};
    let (rest, parsed) = X509Certificate::from_der(certificate).map_err(|_| Unusable("cannot be read"))?;
    if !rest.is_empty() || !parsed.extensions().is_empty() {
        return Err(Unusable("has extensions, or bytes after its end"));
    }
    if parsed.issuer().as_raw() != signer.subject {
        return Err(OtherIssuer);
    }
    if parsed.subject().as_raw() == signer.subject {
        return Err(Unusable("is the certificate of an authority"));
    }
    if parsed.signature_algorithm != parsed.tbs_certificate.signature {
        return Err(Unusable("names two signature algorithms"));
    }
    if !is_signed(parsed.tbs_certificate.as_ref(), &parsed.signature_algorithm, &parsed.signature_value, signer.key) {
        return Err(Unusable("its signature is not from the authority, or has an unsupported algorithm"));
    }
    Ok(parsed.validity().not_after.timestamp())
}

fn is_signed(
    message: &[u8],
    algorithm: &AlgorithmIdentifier<'_>,
    signature: &BitString<'_>,
    key: &SubjectPublicKeyInfoDer<'_>,
) -> bool {
    let identifier = algorithm.algorithm.as_bytes();
    let Ok(length) = u8::try_from(identifier.len()) else { return false };
    // The RSA-PSS algorithms have the same object identifier and differ only in their parameters. So the search
    // compares only the identifier, and each matching algorithm is tried.
    let named = [&[OBJECT_IDENTIFIER, length], identifier].concat();
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
    let mut candidates = algorithms.iter().filter(|own| own.signature_alg_id().as_ref().starts_with(&named));
    let Ok(key) = RawPublicKeyEntity::try_from(key) else { return false };
    signature.unused_bits == 0
        && candidates.any(|algorithm| key.verify_signature(*algorithm, message, &signature.data).is_ok())
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair, SigningKey};

    use super::*;

    /// The tags of a SEQUENCE, a BIT STRING, and of a certificate's version and extensions.
    const SEQUENCE: u8 = 0x30;
    const BIT_STRING: u8 = 3;
    const VERSION: u8 = 0xa0;
    const EXTENSIONS: u8 = 0xa3;

    /// Splits DER: the first element, the contents of this element, and the bytes after it.
    fn element(der: &[u8]) -> (&[u8], &[u8], &[u8]) {
        let (head, length) = match der[1] {
            short @ 0..0x80 => (2, usize::from(short)),
            long => {
                let head = 2 + usize::from(long & 0x7f);
                (head, der[2..head].iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
            }
        };
        (&der[..head + length], &der[head..head + length], &der[head + length..])
    }

    fn wrap(tag: u8, contents: &[u8]) -> Vec<u8> {
        // DER requires that a length has its shortest form.
        let head = match u16::try_from(contents.len()).unwrap().to_be_bytes() {
            [0, short @ 0..0x80] => vec![tag, short],
            [0, long] => vec![tag, 0x81, long],
            [high, low] => vec![tag, 0x82, high, low],
        };
        [&head, contents].concat()
    }

    /// Converts a certificate to version 1, and replaces its signature by a signature of `signer`.
    pub(crate) fn as_version_one(certificate: &[u8], signer: &impl SigningKey) -> CertificateDer<'static> {
        as_version_one_with(certificate, signer, |_| {})
    }

    fn as_version_one_with(
        certificate: &[u8],
        signer: &impl SigningKey,
        change: impl Fn(&mut Vec<Vec<u8>>),
    ) -> CertificateDer<'static> {
        let mut rest = element(element(certificate).1).1;
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let (field, _, behind) = element(rest);
            fields.push(field.to_vec());
            rest = behind;
        }
        fields.retain(|field| ![VERSION, EXTENSIONS].contains(&field[0]));
        let algorithm = fields[1].clone();
        change(&mut fields);
        let signed = wrap(SEQUENCE, &fields.concat());
        let signature = wrap(BIT_STRING, &[&[0], &signer.sign(&signed).unwrap()[..]].concat());
        wrap(SEQUENCE, &[signed, algorithm, signature].concat()).into()
    }

    pub(crate) fn named(name: &str) -> CertificateParams {
        let mut parameters = CertificateParams::new([name.to_owned()]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters
    }

    #[test]
    fn version_1_certificate_is_verified_only_by_the_key_of_its_issuer() {
        let key = || KeyPair::generate().unwrap();
        let (authority, stranger) = (Issuer::new(named("people"), key()), Issuer::new(named("people"), key()));
        let own = named("people").self_signed(authority.key()).unwrap().der().clone();
        let (_, parsed) = X509Certificate::from_der(&own).unwrap();
        let signer = AuthorityKey { subject: parsed.subject().as_raw(), key: &parsed.public_key().raw.to_vec().into() };
        let ann = named("ann").signed_by(&key(), &authority).unwrap();
        let of_other = named("ann").signed_by(&key(), &Issuer::new(named("others"), key())).unwrap();
        let good = as_version_one(ann.der(), authority.key());
        let mut changed = good.to_vec();
        let name = changed.windows(3).position(|bytes| bytes == b"ann").unwrap();
        changed[name] = b'b';
        let longer = [&good[..], &[5, 0]].concat();
        let other_algorithm = as_version_one_with(ann.der(), authority.key(), |fields| {
            // The two fields for the algorithm disagree: the signed part of the certificate names ecdsa-with-SHA384,
            // and the unsigned field ecdsa-with-SHA256.
            *fields[1].last_mut().unwrap() = 3;
        });
        let with_extensions = as_version_one_with(ann.der(), authority.key(), |fields| {
            // Version 1 forbids extensions. This certificate has the extension basicConstraints.
            let extension = wrap(SEQUENCE, &[6, 3, 0x55, 0x1d, 0x13, 4, 2, 0x30, 0]);
            fields.push(wrap(EXTENSIONS, &wrap(SEQUENCE, &extension)));
        });
        for (case, certificate, expected) in [
            ("its own", good, true),
            ("a stranger's with its name", as_version_one(ann.der(), stranger.key()), false),
            ("another authority's", as_version_one(of_other.der(), authority.key()), false),
            ("changed", changed.into(), false),
            ("longer", longer.into(), false),
            ("of two algorithms", other_algorithm, false),
            ("with extensions", with_extensions, false),
            ("the authority's", as_version_one(&own, authority.key()), false),
            ("nothing", vec![0x30, 0].into(), false),
        ] {
            let verified = verify(&certificate, &signer);
            assert_eq!(verified.is_ok(), expected, "{case}: {verified:?}");
        }
    }
}
