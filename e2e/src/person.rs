//! Certificate authority for users, and the client certificates that it issues.

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SigningKey};
use serde_json::{Value, json};

/// Certificate authority that issues client certificates for users.
#[derive(Debug)]
pub struct PeopleAuthority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl PeopleAuthority {
    /// Makes a certificate authority with a new key.
    ///
    /// # Errors
    /// If key generation or signing fails.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let pem = parameters.self_signed(&key).context("sign the authority")?.pem();
        Ok(Self { pem, issuer: Issuer::new(parameters, key) })
    }

    /// Certificate of the certificate authority (PEM).
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a serving certificate for these host names. Returns the certificate and its private key (PEM).
    ///
    /// # Errors
    /// If key generation or signing fails.
    pub fn serving(&self, names: &[&str]) -> anyhow::Result<(String, String)> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut parameters = CertificateParams::new(names)?;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer).context("sign a server's certificate")?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// Issues a client certificate for a user with this name and these groups. Returns the `user` entry of a
    /// kubeconfig.
    ///
    /// # Errors
    /// If key generation or signing fails.
    pub fn user(&self, name: &str, groups: &[&str]) -> anyhow::Result<Value> {
        let (certificate, key) = self.client(name, groups)?;
        Ok(json!({
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key),
        }))
    }

    /// Issues a client certificate with this common name and these organizations. Returns the certificate and its
    /// private key (PEM).
    ///
    /// # Errors
    /// If key generation or signing fails.
    pub fn client(&self, name: &str, groups: &[&str]) -> anyhow::Result<(String, String)> {
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            parameters.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), *group);
        }
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer).context("sign a person's certificate")?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// Makes a `user` entry like [`Self::user`], but with an X.509 version 1 certificate. The command `openssl x509
    /// -req` without `-extfile` makes such certificates.
    ///
    /// # Errors
    /// If key generation or signing fails.
    pub fn user_of_version_one(&self, name: &str) -> anyhow::Result<Value> {
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer).context("sign a person's certificate")?;
        let certificate = as_version_one(certificate.der(), self.issuer.key())?;
        let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(certificate));
        Ok(json!({
            "client-certificate-data": STANDARD.encode(pem),
            "client-key-data": STANDARD.encode(key.serialize_pem()),
        }))
    }
}

/// Converts a certificate (DER) to X.509 version 1, which has no extensions, and signs the result.
fn as_version_one(certificate: &[u8], signer: &impl SigningKey) -> anyhow::Result<Vec<u8>> {
    let (_, contents, _) = element(certificate)?;
    let (_, mut rest, _) = element(contents)?;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (field, _, behind) = element(rest)?;
        fields.push(field);
        rest = behind;
    }
    // An X.509 version 1 certificate has no version field (tag 0xa0) and no extensions (tag 0xa3).
    fields.retain(|field| ![0xa0, 0xa3].contains(&field[0]));
    let algorithm = fields.get(1).context("no algorithm")?.to_vec();
    let signed = wrapped(0x30, &fields.concat())?;
    let signature = [&[0], &signer.sign(&signed)?[..]].concat();
    wrapped(0x30, &[signed, algorithm, wrapped(0x03, &signature)?].concat())
}

/// Reads the first DER element. Returns the whole element, its contents, and the bytes after the element.
fn element(der: &[u8]) -> anyhow::Result<(&[u8], &[u8], &[u8])> {
    let length = *der.get(1).context("no length")?;
    let (head, length) = match length {
        0..0x80 => (2, usize::from(length)),
        _ => {
            let head = 2 + usize::from(length & 0x7f);
            let bytes = der.get(2..head).context("a short length")?;
            (head, bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
        }
    };
    let (own, rest) = der.split_at_checked(head + length).context("a short element")?;
    Ok((own, &own[head..], rest))
}

fn wrapped(tag: u8, contents: &[u8]) -> anyhow::Result<Vec<u8>> {
    let length = u16::try_from(contents.len())?.to_be_bytes();
    // DER requires the shortest encoding of a length.
    let head = match length {
        [0, short @ 0..0x80] => vec![tag, short],
        [0, long] => vec![tag, 0x81, long],
        [high, low] => vec![tag, 0x82, high, low],
    };
    Ok([head, contents.to_vec()].concat())
}
