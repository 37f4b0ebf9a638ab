//! People with client certificates, and the authority that makes them.

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

/// An authority that vouches for people.
#[derive(Debug)]
pub struct PeopleAuthority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl PeopleAuthority {
    /// Makes one.
    ///
    /// # Errors
    /// When key generation or signing fails.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let pem = parameters.self_signed(&key).context("sign the authority")?.pem();
        Ok(Self { pem, issuer: Issuer::new(parameters, key) })
    }

    /// Its certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate of a server with these names, which the authority signs as well, and its key. PEM.
    ///
    /// # Errors
    /// When key generation or signing fails.
    pub fn serving(&self, names: &[&str]) -> anyhow::Result<(String, String)> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut parameters = CertificateParams::new(names)?;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer).context("sign a server's certificate")?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// The `user` entry of a kubeconfig for somebody of this name in these groups.
    ///
    /// # Errors
    /// When key generation or signing fails.
    pub fn user(&self, name: &str, groups: &[&str]) -> anyhow::Result<Value> {
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            parameters.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), *group);
        }
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer).context("sign a person's certificate")?;
        Ok(json!({
            "client-certificate-data": STANDARD.encode(certificate.pem()),
            "client-key-data": STANDARD.encode(key.serialize_pem()),
        }))
    }
}
