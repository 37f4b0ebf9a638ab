//! Makes and checks the certificate authority and the serving certificate.
//!
//! Each serving certificate has a new authority. The private key of the authority is dropped after the signature, so a
//! reader of the Secret cannot sign a certificate for a different server. After a renewal, the previous authority stays
//! in the bundle, because replicas use the previous certificate until they read the Secret.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tributary_apimachinery::text::hex;
use tributary_crds::SecretText;
use tributary_hosts::{ServingCertificateError, certified_key};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The lifetime of an authority and its certificate.
const LIFETIME: Duration = DAY.saturating_mul(365);

/// A new certificate is valid from this time before its creation, so that clients with a slow clock accept it.
const CLOCK_SKEW: Duration = DAY;

/// The remaining validity below which the leader renews the certificate.
pub(super) const RENEW_BEFORE: Duration = DAY.saturating_mul(30);

/// The last line of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";

/// A serving certificate that all replicas share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedServingCertificate {
    /// The certificate chain in PEM, leaf first.
    pub(super) chain: String,
    /// The private key of the leaf in PEM.
    pub(super) key: SecretText,
    /// The certificate authorities in PEM: the authority of the leaf, then the previous one.
    pub(super) authorities: String,
}

impl SharedServingCertificate {
    /// Parses the certificate chain and the key.
    ///
    /// # Errors
    /// [`ServingCertificateError`], without data of the key.
    pub fn certified_key(&self) -> Result<CertifiedKey, ServingCertificateError> {
        certified_key(self.chain.as_bytes(), self.key.expose().as_bytes())
    }

    /// Makes an authority and a certificate for the DNS `names`. `now` is the time since 1970. The first authority of
    /// `previous` stays in the bundle. Cost: two P-256 keys and signatures, about a millisecond.
    ///
    /// # Errors
    /// A name is not allowed in a certificate.
    pub(super) fn make(names: &[String], previous: Option<&Self>, now: Duration) -> Result<Self, rcgen::Error> {
        // The names are checked before the authority is made, because rcgen panics on a name constraint with an invalid
        // name.
        let subject_alt_names = CertificateParams::new(names.to_vec())?.subject_alt_names;
        let (mut authorities, issuer) = make_authority(names, now)?;
        if let Some(authority) = previous.and_then(|previous| first_certificate(&previous.authorities)) {
            authorities.push_str(authority);
            authorities.push('\n');
        }
        let key = KeyPair::generate()?;
        let mut leaf = parameters("tributary".to_owned(), now);
        leaf.subject_alt_names = subject_alt_names;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.use_authority_key_identifier_extension = true;
        let chain = leaf.signed_by(&key, &issuer)?.pem();
        Ok(Self { chain, key: SecretText::new(key.serialize_pem()), authorities })
    }

    /// Checks that the key belongs to the certificate, and that a client that trusts the bundle accepts the certificate
    /// for all `names` at the time `at` since 1970.
    ///
    /// # Errors
    /// The reason as a text without data of the key.
    pub(super) fn check(&self, names: &[String], at: Duration) -> Result<(), String> {
        let own = self.certified_key().map_err(|error| error.to_string())?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(self.authorities.as_bytes()) {
            let authority = authority.map_err(|error| format!("ca.crt: {error}"))?;
            roots.add(authority).map_err(|error| format!("ca.crt: {error}"))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build();
        let verifier = verifier.map_err(|error| format!("ca.crt: {error}"))?;
        let (leaf, rest) = own.cert.split_first().ok_or("tls.crt has no certificate")?;
        for name in names {
            let server = ServerName::try_from(name.as_str()).map_err(|error| format!("{name}: {error}"))?;
            let at = UnixTime::since_unix_epoch(at);
            let verified = verifier.verify_server_cert(leaf, rest, &server, &[], at);
            verified.map_err(|error| format!("a client refuses the certificate for {name}: {error}"))?;
        }
        Ok(())
    }
}

/// Makes an authority that can certify only `names`. Returns the authority's certificate in PEM, and its key, which the
/// caller drops after use.
fn make_authority(names: &[String], now: Duration) -> Result<(String, Issuer<'static, KeyPair>), rcgen::Error> {
    let key = KeyPair::generate()?;
    // Some clients select an issuer by its name, so each authority has a unique name.
    let unique = key.public_key_raw().rchunks(8).next().unwrap_or_default();
    let mut authority = parameters(format!("tributary aggregated authority {}", hex(unique)), now);
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let permitted_subtrees = names.iter().cloned().map(GeneralSubtree::DnsName).collect();
    authority.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
    let certificate = authority.self_signed(&key)?.pem();
    Ok((certificate, Issuer::new(authority, key)))
}

fn parameters(common_name: String, now: Duration) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    parameters.distinguished_name = name;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    parameters.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    parameters.not_after = epoch + now + LIFETIME;
    parameters
}

/// Returns the first certificate of a bundle in PEM.
fn first_certificate(bundle: &str) -> Option<&str> {
    Some(&bundle[..bundle.find(END)? + END.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn names(service: &str) -> Vec<String> {
        vec![format!("{service}.tributary-system.svc"), format!("{service}.tributary-system")]
    }

    #[test]
    fn made_certificate_is_valid_for_its_names_for_a_year() {
        let own = names("tributary");
        let made = SharedServingCertificate::make(&own, None, NOW).unwrap();
        for (names, day, is_valid) in
            [(&own, 0, true), (&own, 364, true), (&own, 366, false), (&names("other"), 0, false)]
        {
            let checked = made.check(names, NOW + DAY * day);
            assert_eq!(checked.is_ok(), is_valid, "{names:?} {day}: {checked:?}");
        }
        assert!(made.check(&own, NOW - DAY / 2).is_ok(), "a slow clock");
    }

    #[test]
    fn bundle_has_the_new_and_the_previous_authority_only() {
        let own = names("tributary");
        let first = SharedServingCertificate::make(&own, None, NOW).unwrap();
        let second = SharedServingCertificate::make(&own, Some(&first), NOW).unwrap();
        let third = SharedServingCertificate::make(&own, Some(&second), NOW).unwrap();
        let with = |leaf: &SharedServingCertificate, bundle: &SharedServingCertificate| {
            SharedServingCertificate { authorities: bundle.authorities.clone(), ..leaf.clone() }.check(&own, NOW)
        };
        assert!(with(&first, &second).is_ok() && with(&second, &second).is_ok());
        assert!(with(&second, &third).is_ok() && with(&third, &third).is_ok());
        assert!(with(&first, &third).is_err() && with(&second, &first).is_err());
    }

    #[test]
    fn certificate_with_a_foreign_key_or_unreadable_parts_is_refused_without_quoting_the_key() {
        let own = names("tributary");
        let (a, b) = (
            SharedServingCertificate::make(&own, None, NOW).unwrap(),
            SharedServingCertificate::make(&own, None, NOW).unwrap(),
        );
        for damaged in [
            SharedServingCertificate { key: b.key.clone(), ..a.clone() },
            SharedServingCertificate { key: SecretText::new("hunter2"), ..a.clone() },
            SharedServingCertificate { authorities: String::new(), ..a.clone() },
            SharedServingCertificate { chain: String::new(), ..a.clone() },
        ] {
            let problem = damaged.check(&own, NOW).unwrap_err();
            assert!(!problem.contains("hunter2") && !problem.is_empty(), "{problem}");
        }
        assert!(!format!("{a:?}").contains("PRIVATE KEY"));
    }

    #[test]
    fn invalid_name_makes_no_certificate() {
        assert!(SharedServingCertificate::make(&["ü".to_owned()], None, NOW).is_err());
    }
}
