//! Valid and invalid client certificates, for the comparison with a kube-apiserver.

use anyhow::Context;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls_pki_types::CertificateDer;

pub(super) struct ClientAuthority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Client certificate with its key. If `stricter` is true, Tributary refuses the certificate although a kube-apiserver
/// accepts it.
pub(super) struct CertificateCase {
    pub(super) name: &'static str,
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) stricter: bool,
    pem: String,
    key: String,
}

impl CertificateCase {
    pub(super) fn certificate_base64(&self) -> String {
        STANDARD.encode(&self.pem)
    }

    pub(super) fn key_base64(&self) -> String {
        STANDARD.encode(&self.key)
    }
}

impl ClientAuthority {
    pub(super) fn new(name: &str) -> anyhow::Result<Self> {
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let pem = parameters.self_signed(&key).context("sign the authority")?.pem();
        Ok(Self { pem, issuer: Issuer::new(parameters, key) })
    }

    pub(super) fn pem(&self) -> String {
        self.pem.clone()
    }

    fn case(
        &self,
        name: &'static str,
        stricter: bool,
        change: impl FnOnce(&mut CertificateParams),
    ) -> anyhow::Result<CertificateCase> {
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.distinguished_name.remove(DnType::CommonName);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut parameters);
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer).context(name)?;
        let (pem, chain) = (certificate.pem(), vec![certificate.der().clone()]);
        Ok(CertificateCase { name, chain, stricter, pem, key: key.serialize_pem() })
    }
}

pub(super) fn cases(authority: &ClientAuthority) -> anyhow::Result<Vec<CertificateCase>> {
    let stranger = ClientAuthority::new("the clients' authority")?;
    let uid = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
    let named = |parameters: &mut CertificateParams| parameters.distinguished_name.push(DnType::CommonName, "ann");
    Ok(vec![
        authority.case("a name", false, named)?,
        authority.case("groups", false, |own| {
            named(own);
            own.distinguished_name.push(DnType::OrganizationName, "dev");
            own.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), "ops");
        })?,
        authority.case("a name of other letters", false, |own| {
            own.distinguished_name.push(DnType::CommonName, "jürgen");
        })?,
        authority.case("two names", false, |own| {
            named(own);
            own.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "bob");
        })?,
        authority.case("a uid", false, |own| {
            named(own);
            own.distinguished_name.push(uid(), "u-1");
        })?,
        authority.case("an empty uid", false, |own| {
            named(own);
            own.distinguished_name.push(uid(), "");
        })?,
        authority.case("no name", false, |own| own.distinguished_name.push(DnType::OrganizationName, "dev"))?,
        authority.case("expired", false, |own| {
            named(own);
            own.not_after = date_time_ymd(2020, 1, 1);
        })?,
        authority.case("not valid yet", false, |own| {
            named(own);
            own.not_before = date_time_ymd(3000, 1, 1);
        })?,
        authority.case("for servers", false, |own| {
            named(own);
            own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        })?,
        authority.case("for any use", true, |own| {
            named(own);
            own.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
        })?,
        authority.case("for no stated use", false, |own| {
            named(own);
            own.extended_key_usages = Vec::new();
        })?,
        stranger.case("of a stranger with the authority's name", false, named)?,
    ])
}
