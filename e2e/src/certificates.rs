//! A certificate authority and a serving certificate for one member.

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::{fs, path::Path};

/// The certificates and keys of a member, all as PEM. The member's servers read them from files, and its clients read
/// them from a kubeconfig.
#[derive(Clone, Debug)]
pub struct TestCertificates {
    /// PEM certificate of the certificate authority that signed the serving certificate.
    pub authority: String,
    /// The serving certificate for 127.0.0.1 and localhost.
    pub serving_certificate: String,
    /// Private key of the serving certificate (PEM).
    pub serving_key: String,
    /// The key that signs service account tokens.
    pub service_account_key: String,
    /// The public key for verifying service account tokens.
    pub service_account_public_key: String,
}

impl TestCertificates {
    /// Makes new certificates and keys in a few milliseconds (ECDSA P-256).
    ///
    /// # Errors
    /// When key generation or signing fails.
    pub fn generate(common_name: &str) -> anyhow::Result<Self> {
        let mut authority = CertificateParams::new(Vec::<String>::new()).context("make the authority")?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, format!("{common_name} authority"));
        authority.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_key = KeyPair::generate().context("make the authority's key")?;
        let authority_certificate = authority.self_signed(&authority_key).context("sign the authority")?;
        let issuer = Issuer::new(authority, authority_key);

        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut serving = CertificateParams::new(names).context("make the serving certificate")?;
        serving.distinguished_name.push(DnType::CommonName, common_name);
        serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let serving_key = KeyPair::generate().context("make the serving key")?;
        let serving_certificate = serving.signed_by(&serving_key, &issuer).context("sign the serving certificate")?;

        let service_account_key = KeyPair::generate().context("make the service account key")?;

        Ok(Self {
            authority: authority_certificate.pem(),
            serving_certificate: serving_certificate.pem(),
            serving_key: serving_key.serialize_pem(),
            service_account_key: service_account_key.serialize_pem(),
            service_account_public_key: service_account_key.public_key_pem(),
        })
    }

    /// Writes `ca.crt`, `serving.crt`, `serving.key`, `service-account.key` and `service-account.pub` into `folder`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        for (name, text) in [
            ("ca.crt", &self.authority),
            ("serving.crt", &self.serving_certificate),
            ("serving.key", &self.serving_key),
            ("service-account.key", &self.service_account_key),
            ("service-account.pub", &self.service_account_public_key),
        ] {
            fs::write(folder.join(name), text).with_context(|| format!("write {name}"))?;
        }
        Ok(())
    }
}
