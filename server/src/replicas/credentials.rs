//! By what replicas know each other: a certificate, its key, and the authorities that vouch for the others.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::cli::ReplicaArguments;
use crate::credentials::{ServingCertificateError, certified_key};
use crate::listener::tls::{ServingCertificate, TLS_1_3};

/// Why the files cannot be used. Each names the flag, the file and what is wrong.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialError {
    /// It cannot be read.
    #[error("{flag} {}: it cannot be read", path.display())]
    Read {
        flag: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It is no certificate, or no key.
    #[error("{flag} {}", path.display())]
    Certificate {
        flag: &'static str,
        path: PathBuf,
        #[source]
        source: ServingCertificateError,
    },
    /// It is no bundle of authorities.
    #[error("{CA_FILE} {}: {problem}", path.display())]
    Authorities { path: PathBuf, problem: String },
    /// TLS cannot be spoken so.
    #[error("replicas cannot be told apart by {CA_FILE}")]
    Tls(#[source] rustls::Error),
}

const CA_FILE: &str = "--peer-ca-file";
const CERT_FILE: &str = "--peer-cert-file";
const KEY_FILE: &str = "--peer-key-file";

/// The files that the flags name.
#[derive(Clone, Debug)]
pub(super) struct CredentialFiles {
    authorities: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// What the files hold.
pub(super) struct ReplicaCredentials {
    /// DER.
    authorities: Vec<Vec<u8>>,
    /// PEM, the leaf first.
    certificate: Vec<u8>,
    /// PEM.
    key: secrecy::SecretSlice<u8>,
    server: Arc<ServerConfig>,
}

impl CredentialFiles {
    /// Those of the flags; `None` where they are not given.
    pub(super) fn of(arguments: &ReplicaArguments) -> Option<Self> {
        let ReplicaArguments { peer_ca_file, peer_cert_file, peer_key_file, .. } = arguments;
        let (authorities, certificate) = peer_ca_file.clone().zip(peer_cert_file.clone())?;
        Some(Self { authorities, certificate, key: peer_key_file.clone()? })
    }

    /// All of them, to be watched.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        vec![self.authorities.clone(), self.certificate.clone(), self.key.clone()]
    }
}

impl ReplicaCredentials {
    /// Reads them.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub(super) fn read(files: &CredentialFiles) -> Result<Self, CredentialError> {
        let (bundle, certificate) = (read(CA_FILE, &files.authorities)?, read(CERT_FILE, &files.certificate)?);
        let key: secrecy::SecretSlice<u8> = read(KEY_FILE, &files.key)?.into();
        let own = certified_key(&certificate, secrecy::ExposeSecret::expose_secret(&key)).map_err(|source| {
            let is_of_key = source.is_of_key();
            let (flag, path) = if is_of_key { (KEY_FILE, &files.key) } else { (CERT_FILE, &files.certificate) };
            CredentialError::Certificate { flag, path: path.clone(), source }
        })?;
        let wrong = |problem: String| CredentialError::Authorities { path: files.authorities.clone(), problem };
        let authorities = CertificateDer::pem_slice_iter(&bundle).collect::<Result<Vec<_>, _>>();
        let authorities = authorities.map_err(|error| wrong(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots.add(authority.clone()).map_err(|error| wrong(error.to_string()))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = verifier.map_err(|error| wrong(error.to_string()))?;
        let server = ServerConfig::builder_with_provider(provider()).with_protocol_versions(TLS_1_3);
        let server = server.map_err(CredentialError::Tls)?.with_client_cert_verifier(verifier);
        let server = Arc::new(server.with_cert_resolver(ServingCertificate::new(own)));
        let authorities = authorities.iter().map(|authority| authority.to_vec()).collect();
        Ok(Self { authorities, certificate, key, server })
    }

    /// How the others' connections are taken.
    pub(super) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// What a connection to another proves itself by, and believes.
    pub(super) fn put_into(&self, config: &mut kube::Config) {
        let encoded_key = STANDARD.encode(secrecy::ExposeSecret::expose_secret(&self.key));
        config.root_cert = Some(self.authorities.clone());
        config.auth_info.client_certificate_data = Some(STANDARD.encode(&self.certificate));
        config.auth_info.client_key_data = Some(encoded_key.into());
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, CredentialError> {
    fs::read(path).map_err(|source| CredentialError::Read { flag, path: path.to_owned(), source })
}
