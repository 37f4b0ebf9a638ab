//! The certificate authority and the serving certificate of personal mode.
//!
//! The authority lives for ten years, and kubeconfigs contain it. The serving certificate lives for one year, and is
//! renewed by the same authority, so that kubeconfigs stay valid. Each file contains certificate and key together, so
//! that one rename replaces both.
//!
//! Users install the authority into browsers and systems. So the authority is constrained to `localhost` and loopback
//! addresses (RFC 5280 §4.2.1.10).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tributary_apimachinery::text::hex;

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use tributary_sources::data_directory::{DataDirectory, DataDirectoryError};

/// The file of the certificate authority and its key.
const AUTHORITY_FILE: &str = "certificate-authority.json";
/// The file of the authority's certificate without its key, for `curl --cacert`.
const AUTHORITY_CERTIFICATE_FILE: &str = "ca.crt";
/// The file of the serving certificate and its key.
const SERVING_FILE: &str = "serving-certificate.json";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The lifetime of the authority, which exceeds the lifetime of a machine.
const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(3650);
/// The lifetime of a serving certificate. Clients on Apple platforms refuse more than 825 days.
const SERVING_LIFETIME: Duration = DAY.saturating_mul(365);
/// The remaining validity below which a certificate is replaced. The validity is checked at each start, and repeatedly
/// at runtime, so 30 days leave time for many attempts.
const RENEW_BEFORE: Duration = DAY.saturating_mul(30);
/// The time between the beginning of a new certificate's validity and its creation. Clients with a slow clock then
/// accept the certificate.
const CLOCK_SKEW: Duration = DAY;

/// The reason why the certificate cannot be read or created.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file in the data directory cannot be read or written.
    #[error("the serving certificate is not available")]
    File(#[from] DataDirectoryError),
    /// A key or certificate of personal mode cannot be generated.
    #[error("a certificate could not be made")]
    Make(#[from] rcgen::Error),
    /// A host name is invalid in a certificate.
    #[error("{0:?} is not allowed in a certificate")]
    Name(String),
    /// The TLS library refuses the certificate.
    #[error("the serving certificate cannot be used")]
    Use(#[from] rustls::Error),
    /// The stored certificate is not valid PEM.
    #[error("the stored serving certificate is not PEM; delete {SERVING_FILE} from the data directory")]
    Pem(#[from] rustls_pki_types::pem::Error),
}

/// The stored form of a certificate and its key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCertificate {
    /// The names and addresses of the certificate; empty for the authority.
    names: Vec<String>,
    /// The end of the certificate's validity, in seconds since 1970.
    not_after_seconds: u64,
    certificate: String,
    /// The private key in PKCS#8, as PEM.
    key: String,
    /// True if the authority is constrained to loopback names. Authorities of the first releases are not constrained.
    #[serde(default)]
    constrained: bool,
}

impl StoredCertificate {
    fn is_fresh(&self, now: Duration) -> bool {
        Duration::from_secs(self.not_after_seconds) > now + RENEW_BEFORE
    }
}

/// The authority's certificate, and the serving certificate that it has signed.
pub struct Certificates {
    authority_pem: String,
    serving: StoredCertificate,
}

impl Certificates {
    /// Reads the certificates of a data directory. Creates a certificate that is missing, damaged, about to expire, or
    /// for different names.
    ///
    /// `names` are DNS names and IP addresses. `now` is the time since 1970. A new authority needs a new serving
    /// certificate. Cost: up to two P-256 keys and signatures, about a millisecond.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn open(directory: &DataDirectory, names: &[String], now: Duration) -> Result<Self, CertificateError> {
        let stored_authority = read(directory, AUTHORITY_FILE)?.filter(|stored| usable_authority(stored, now));
        let stored_serving = stored_authority.is_some().then(|| read(directory, SERVING_FILE)).transpose()?.flatten();
        let authority = match stored_authority {
            Some(authority) if authority.constrained => authority,
            Some(authority) => {
                let authority = constrained(&authority, now)?;
                write(directory, AUTHORITY_FILE, &authority)?;
                authority
            }
            None => {
                let authority = make_authority(now)?;
                // The serving certificate is removed before the authority is replaced, so that a crash leaves no
                // serving certificate of the old authority beside the new authority.
                directory.remove(SERVING_FILE)?;
                write(directory, AUTHORITY_FILE, &authority)?;
                authority
            }
        };
        directory.write(AUTHORITY_CERTIFICATE_FILE, authority.certificate.as_bytes())?;
        let usable =
            |stored: &StoredCertificate| stored.is_fresh(now) && names.iter().all(|name| stored.names.contains(name));
        let serving = match stored_serving.filter(usable) {
            Some(serving) => serving,
            None => {
                let serving = make_serving(&authority, names, now)?;
                write(directory, SERVING_FILE, &serving)?;
                serving
            }
        };
        Ok(Self { authority_pem: authority.certificate, serving })
    }

    /// Returns the authority's certificate in PEM, for clients.
    pub fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    /// Returns the path of the authority's certificate, for `curl --cacert`.
    pub fn authority_file(directory: &DataDirectory) -> std::path::PathBuf {
        directory.file(AUTHORITY_CERTIFICATE_FILE)
    }

    /// Converts the serving certificate and its key to rustls's form.
    ///
    /// # Errors
    /// [`CertificateError::Pem`] and [`CertificateError::Use`].
    pub fn certified_key(&self) -> Result<CertifiedKey, CertificateError> {
        let certificate = CertificateDer::from_pem_slice(self.serving.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(self.serving.key.as_bytes())?;
        Ok(CertifiedKey::from_der(vec![certificate], key, &rustls::crypto::aws_lc_rs::default_provider())?)
    }
}

/// Creates a certificate for these DNS names and IP addresses that is its own authority. The certificate lives for a
/// year and is not stored. Cost: a P-256 key and a signature, less than a millisecond.
///
/// # Errors
/// [`CertificateError::Make`], [`CertificateError::Name`] and [`CertificateError::Use`].
pub fn self_signed(names: &[String], now: Duration) -> Result<CertifiedKey, CertificateError> {
    let key = KeyPair::generate()?;
    let mut parameters = serving_parameters(names)?;
    set_validity(&mut parameters, now, SERVING_LIFETIME);
    let certificate = parameters.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    Ok(CertifiedKey::from_der(vec![certificate.der().clone()], key, &provider)?)
}

/// Returns the time since 1970 by the system's clock; zero for a clock before 1970.
pub fn now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

fn usable_authority(stored: &StoredCertificate, now: Duration) -> bool {
    stored.is_fresh(now) && KeyPair::from_pem(&stored.key).is_ok()
}

fn read(directory: &DataDirectory, file: &str) -> Result<Option<StoredCertificate>, DataDirectoryError> {
    let Some(bytes) = directory.read(file)? else { return Ok(None) };
    let stored = serde_json::from_slice(&bytes).ok();
    if stored.is_none() {
        tracing::warn!(path = %directory.file(file).display(), "the file is damaged; a new certificate is made");
    }
    Ok(stored)
}

fn write(directory: &DataDirectory, file: &str, stored: &StoredCertificate) -> Result<(), DataDirectoryError> {
    // Serialization cannot fail: the stored certificate is a struct of strings and a number.
    let bytes = serde_json::to_vec(stored).unwrap_or_default();
    directory.write(file, &bytes)
}

fn make_authority(now: Duration) -> Result<StoredCertificate, CertificateError> {
    sign_authority(&KeyPair::generate()?, now, now + AUTHORITY_LIFETIME)
}

/// Adds constraints to an existing authority. The authority's name and key stay, so the existing serving certificates
/// and kubeconfigs remain valid.
fn constrained(authority: &StoredCertificate, now: Duration) -> Result<StoredCertificate, CertificateError> {
    sign_authority(&KeyPair::from_pem(&authority.key)?, now, Duration::from_secs(authority.not_after_seconds))
}

fn sign_authority(key: &KeyPair, now: Duration, end: Duration) -> Result<StoredCertificate, CertificateError> {
    let mut parameters = authority_parameters(key);
    set_validity(&mut parameters, now, end.saturating_sub(now));
    let certificate = parameters.self_signed(key)?;
    Ok(StoredCertificate { constrained: true, ..stored(Vec::new(), end, &certificate, key) })
}

/// Returns the parameters for creating an authority, and for signing with it later. The name depends only on the key.
/// Each key has a unique name, because some clients select an issuer by name.
fn authority_parameters(key: &KeyPair) -> CertificateParams {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(key.public_key_raw());
    let serial = hex(&digest[..4]);
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = name(&format!("tributary personal authority {serial}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    parameters.name_constraints =
        Some(NameConstraints { permitted_subtrees: loopback(), excluded_subtrees: Vec::new() });
    parameters
}

/// Returns the names and addresses that the authority may certify: those of loopback listeners, see
/// [`ListenAddress`](tributary_listener::ListenAddress).
fn loopback() -> Vec<GeneralSubtree> {
    let network = Ipv4Addr::new(127, 0, 0, 0);
    vec![
        GeneralSubtree::DnsName("localhost".to_owned()),
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(network.into(), 8)),
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(Ipv6Addr::LOCALHOST.into(), 128)),
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(network.to_ipv6_mapped().into(), 96 + 8)),
    ]
}

fn make_serving(
    authority: &StoredCertificate,
    names: &[String],
    now: Duration,
) -> Result<StoredCertificate, CertificateError> {
    let authority_key = KeyPair::from_pem(&authority.key)?;
    let issuer = Issuer::new(authority_parameters(&authority_key), authority_key);
    let key = KeyPair::generate()?;
    let mut parameters = serving_parameters(names)?;
    parameters.use_authority_key_identifier_extension = true;
    let authority_end = Duration::from_secs(authority.not_after_seconds);
    set_validity(&mut parameters, now, SERVING_LIFETIME.min(authority_end.saturating_sub(now)));
    let certificate = parameters.signed_by(&key, &issuer)?;
    Ok(stored(names.to_vec(), (now + SERVING_LIFETIME).min(authority_end), &certificate, &key))
}

/// Returns the parameters of a serving certificate without its validity.
fn serving_parameters(names: &[String]) -> Result<CertificateParams, CertificateError> {
    let mut parameters =
        CertificateParams::new(names.to_vec()).map_err(|_| CertificateError::Name(names.join(", ")))?;
    parameters.distinguished_name = name("tributary");
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(parameters)
}

fn stored(
    names: Vec<String>,
    not_after: Duration,
    certificate: &rcgen::Certificate,
    key: &KeyPair,
) -> StoredCertificate {
    let (certificate, key) = (certificate.pem(), key.serialize_pem());
    StoredCertificate { names, not_after_seconds: not_after.as_secs(), certificate, key, constrained: false }
}

fn name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn set_validity(parameters: &mut CertificateParams, now: Duration, lifetime: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    parameters.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    parameters.not_after = epoch + now + lifetime;
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn names() -> Vec<String> {
        ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec()
    }

    fn directory(parent: &tempfile::TempDir) -> DataDirectory {
        DataDirectory::open(parent.path().to_owned()).unwrap()
    }

    #[test]
    fn self_signed_certificate_is_valid_for_its_names() {
        let now = now();
        let made = self_signed(&["tributary.system.svc".to_owned(), "127.0.0.1".to_owned()], now).unwrap();
        for (host, expected) in [("tributary.system.svc", true), ("other.system.svc", false)] {
            assert_eq!(tributary_hosts::is_valid_for(&made, &host.parse().unwrap()), expected, "{host}");
        }
        assert!(matches!(self_signed(&["a b\u{e9}".to_owned()], now), Err(CertificateError::Name(_))));
    }

    #[test]
    fn certificates_survive_restarts_and_are_renewed_near_their_end() {
        let parent = tempfile::tempdir().unwrap();
        let directory = directory(&parent);
        let first = Certificates::open(&directory, &names(), NOW).unwrap();
        let again = Certificates::open(&directory, &names(), NOW + DAY).unwrap();
        assert_eq!(first.serving.certificate, again.serving.certificate);
        let renewed = Certificates::open(&directory, &names(), NOW + DAY * 340).unwrap();
        assert_ne!(first.serving.certificate, renewed.serving.certificate);
        assert_eq!(first.authority_pem(), renewed.authority_pem(), "kubeconfigs stay valid");
        renewed.certified_key().unwrap();
        let much_later = Certificates::open(&directory, &names(), NOW + DAY * 3640).unwrap();
        assert_ne!(first.authority_pem(), much_later.authority_pem());
    }

    /// Returns whether a client that trusts the authority accepts the serving certificate for this name.
    fn accepts(authority_pem: &str, serving: &StoredCertificate, name: &str) -> bool {
        use rustls::client::danger::ServerCertVerifier;
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(der(authority_pem)).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let (name, at) = (name.to_owned().try_into().unwrap(), rustls_pki_types::UnixTime::since_unix_epoch(NOW));
        verifier.verify_server_cert(&der(&serving.certificate), &[], &name, &[], at).is_ok()
    }

    #[test]
    fn authority_is_valid_only_for_loopback_names() {
        for listen in ["127.0.0.1:1", "127.0.0.2:1", "127.255.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            let parent = tempfile::tempdir().unwrap();
            let names = listen.parse::<tributary_listener::ListenAddress>().unwrap().certificate_names();
            let made = Certificates::open(&directory(&parent), &names, NOW).unwrap();
            for name in &names {
                assert!(accepts(made.authority_pem(), &made.serving, name), "{name}");
            }
        }
        let parent = tempfile::tempdir().unwrap();
        let others = ["example.com", "192.0.2.1", "2001:db8::1"].map(str::to_owned);
        let made = Certificates::open(&directory(&parent), &others, NOW).unwrap();
        for name in &others {
            assert!(!accepts(made.authority_pem(), &made.serving, name), "{name}");
        }
    }

    #[test]
    fn old_authority_gains_constraints_and_its_kubeconfigs_stay_valid() {
        let parent = tempfile::tempdir().unwrap();
        let directory = directory(&parent);
        // The first releases created CAs without name constraints.
        let key = KeyPair::generate().unwrap();
        let mut parameters = authority_parameters(&key);
        parameters.name_constraints = None;
        set_validity(&mut parameters, NOW, AUTHORITY_LIFETIME);
        let old = stored(Vec::new(), NOW + AUTHORITY_LIFETIME, &parameters.self_signed(&key).unwrap(), &key);
        let serving_of_old = make_serving(&old, &names(), NOW).unwrap();
        write(&directory, AUTHORITY_FILE, &old).unwrap();
        write(&directory, SERVING_FILE, &serving_of_old).unwrap();

        let now = Certificates::open(&directory, &names(), NOW).unwrap();
        assert_ne!(now.authority_pem(), old.certificate);
        assert_eq!(now.serving.certificate, serving_of_old.certificate, "the serving certificate stays");
        let renewed = Certificates::open(&directory, &[&names()[..], &["127.0.0.2".to_owned()]].concat(), NOW).unwrap();
        assert_eq!(renewed.authority_pem(), now.authority_pem(), "once");
        for serving in [&serving_of_old, &renewed.serving] {
            for authority in [&old.certificate, now.authority_pem()] {
                assert!(accepts(authority, serving, "localhost") && accepts(authority, serving, "127.0.0.1"));
            }
        }
    }

    #[test]
    fn new_listen_name_causes_a_new_certificate() {
        let parent = tempfile::tempdir().unwrap();
        let directory = directory(&parent);
        let first = Certificates::open(&directory, &names(), NOW).unwrap();
        let mut more = names();
        more.push("127.0.0.2".to_owned());
        let second = Certificates::open(&directory, &more, NOW).unwrap();
        assert_ne!(first.serving.certificate, second.serving.certificate);
        let fewer = Certificates::open(&directory, &names(), NOW).unwrap();
        assert_eq!(second.serving.certificate, fewer.serving.certificate, "a certificate for more names will do");
    }

    #[test]
    fn damaged_certificate_files_are_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let directory = directory(&parent);
        Certificates::open(&directory, &names(), NOW).unwrap();
        directory.write(SERVING_FILE, b"{").unwrap();
        directory.write(AUTHORITY_FILE, b"not json").unwrap();
        Certificates::open(&directory, &names(), NOW).unwrap().certified_key().unwrap();
    }
}
