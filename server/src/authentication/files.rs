//! The files of the authentication flags: the authorities for client certificates, the token issuers and the serving
//! certificates. The files are read at the start, and again after each change.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::sign::CertifiedKey;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::text::printable;
use tributary_authentication::{
    AuthenticationConfiguration, CertificateError, ClientCertificates, InvalidConfiguration, RequestHeaders,
    UserHeaders,
};
use tributary_hosts::NamedCertificates;

use super::shared::SharedAuthenticator;
use crate::cli::{SharedArguments, SniCertKey};
use tributary_hosts::{ServingCertificateError, certificate_warnings, certified_key};

/// The reason why a file of the authentication flags cannot be used. Each message names the flag, the file and the
/// problem.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationFilesError {
    /// A file of the authentication flags cannot be read.
    #[error("{flag} {}: the file cannot be read", path.display())]
    Read {
        /// The flag that contains the file's path.
        flag: &'static str,
        /// Path of the unreadable file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a valid bundle of certificate authorities.
    #[error("{flag} {}", path.display())]
    Authorities {
        /// The flag that contains the file's path.
        flag: &'static str,
        /// Path of the certificate bundle.
        path: PathBuf,
        /// The problem of the certificate bundle.
        #[source]
        source: CertificateError,
    },
    /// The file is not a valid AuthenticationConfiguration.
    #[error("{AUTHENTICATION_CONFIG} {}", path.display())]
    Issuers {
        /// Path of the AuthenticationConfiguration.
        path: PathBuf,
        /// All problems of the AuthenticationConfiguration.
        #[source]
        source: InvalidConfiguration,
    },
    /// The serving certificate or its key is invalid.
    #[error("{flag} {}", path.display())]
    Serving {
        /// The flag that contains the file's path.
        flag: &'static str,
        /// Path of the certificate or key file.
        path: PathBuf,
        /// The problem of the serving certificate or its key.
        #[source]
        source: ServingCertificateError,
    },
    /// Without --requestheader-allowed-names, a client with a certificate could act as a front proxy and set any user
    /// name.
    #[error(
        "--requestheader-client-ca-file is given beside --client-ca-file, and --requestheader-allowed-names is not: a \
         client with a certificate of the proxies' authority could claim to be any user; give the common names of the \
         proxies"
    )]
    AnyClientMayBeAProxy,
    /// Without --requestheader-allowed-names, a client of a cluster's own host could act as a front proxy and set any
    /// user name.
    #[error(
        "--requestheader-client-ca-file is given beside authorities for clients in spec.secureServing of \
         UpstreamCluster {0:?}, and --requestheader-allowed-names is not: a client with a certificate of the proxies' \
         authority could claim to be any user; give the common names of the proxies"
    )]
    AnyClientOfAHostMayBeAProxy(ClusterName),
}

/// The paths of all files in the authentication flags.
#[derive(Clone, Debug)]
pub struct AuthenticationFiles {
    client_ca: Option<PathBuf>,
    front_proxy_ca: Option<PathBuf>,
    issuers: Option<PathBuf>,
    serving: Option<(PathBuf, PathBuf)>,
    named: Vec<SniCertKey>,
}

impl AuthenticationFiles {
    /// Collects the file paths from the authentication flags.
    pub fn from_arguments(arguments: &SharedArguments) -> Self {
        let serving = arguments.tls_cert_file.clone().zip(arguments.tls_private_key_file.clone());
        let (client_ca, front_proxy_ca) = (&arguments.client_ca_file, &arguments.requestheader_client_ca_file);
        let issuers = arguments.authentication_config.clone();
        let named = arguments.tls_sni_cert_key.clone();
        Self { client_ca: client_ca.clone(), front_proxy_ca: front_proxy_ca.clone(), issuers, serving, named }
    }

    /// Returns the paths of all authentication files, to be watched for changes.
    pub fn paths(&self) -> Vec<PathBuf> {
        let serving = self.serving.iter().flat_map(|(certificate, key)| [certificate, key]);
        let named = self.named.iter().flat_map(|named| [&named.certificate, &named.key]);
        let authorities = self.client_ca.iter().chain(&self.front_proxy_ca).chain(&self.issuers);
        authorities.chain(serving).chain(named).cloned().collect()
    }

    /// Reads the token issuers. Returns an empty configuration without `--authentication-config`.
    ///
    /// # Errors
    /// [`AuthenticationFilesError::Read`], [`AuthenticationFilesError::Issuers`].
    pub fn issuers(&self) -> Result<AuthenticationConfiguration, AuthenticationFilesError> {
        self.issuers.as_deref().map_or_else(|| Ok(AuthenticationConfiguration { jwt: Vec::new() }), read_issuers)
    }

    /// Reads the authorities for client certificates and for front proxies.
    ///
    /// # Errors
    /// [`AuthenticationFilesError`].
    pub fn authenticator(&self, arguments: &SharedArguments) -> Result<SharedAuthenticator, AuthenticationFilesError> {
        let certificates = self.client_ca.as_deref().map(|path| authorities(CLIENT_CA, path)).transpose()?;
        let front_proxy = self.front_proxy_ca.as_deref().map(|path| authorities(FRONT_PROXY_CA, path)).transpose()?;
        let front_proxy = front_proxy.map(|authorities| RequestHeaders {
            authorities,
            allowed_names: arguments.requestheader_allowed_names.clone(),
            headers: UserHeaders {
                username: arguments.requestheader_username_headers.clone(),
                uid: arguments.requestheader_uid_headers.clone(),
                group: arguments.requestheader_group_headers.clone(),
                extra_prefixes: arguments.requestheader_extra_headers_prefix.clone(),
            },
        });
        let (certificates, front_proxy) = (certificates.map(Arc::new), front_proxy.map(Arc::new));
        let authenticator = SharedAuthenticator { certificates, front_proxy, ..SharedAuthenticator::default() };
        if authenticator.any_client_counts_as_proxy() {
            return Err(AuthenticationFilesError::AnyClientMayBeAProxy);
        }
        Ok(authenticator)
    }

    /// Reads the authorities again, and replaces them in an authenticator in use. After an error, all authorities stay
    /// unchanged.
    ///
    /// # Errors
    /// [`AuthenticationFilesError`].
    pub fn reload(
        &self,
        arguments: &SharedArguments,
        authenticator: &SharedAuthenticator,
    ) -> Result<(), AuthenticationFilesError> {
        // All files are read and validated before any authority is replaced. An invalid file must not leave a mixture
        // of old and new authorities.
        let issuers = self.issuers()?;
        self.authenticator(arguments)?;
        let reload = |flag, path: &Option<PathBuf>, authorities: Option<&ClientCertificates>| {
            let (Some(path), Some(authorities)) = (path, authorities) else { return Ok(()) };
            authorities.reload(&read(flag, path)?).map_err(|source| AuthenticationFilesError::Authorities {
                flag,
                path: path.clone(),
                source,
            })
        };
        reload(CLIENT_CA, &self.client_ca, authenticator.certificates.as_deref())?;
        let front_proxy = authenticator.front_proxy.as_deref().map(|proxy| &proxy.authorities);
        reload(FRONT_PROXY_CA, &self.front_proxy_ca, front_proxy)?;
        if let Some(tokens) = &authenticator.tokens {
            tokens.set_issuers(&issuers);
        }
        Ok(())
    }

    /// Logs warnings about unusable certificates among the authorities. Clients whose certificate such an authority has
    /// issued get a 401 without an explanation.
    pub fn warn_of_authorities(&self, authenticator: &SharedAuthenticator) {
        let front_proxy = authenticator.front_proxy.as_deref().map(|proxy| &proxy.authorities);
        for (flag, path, authorities) in [
            (CLIENT_CA, &self.client_ca, authenticator.certificates.as_deref()),
            (FRONT_PROXY_CA, &self.front_proxy_ca, front_proxy),
        ] {
            let (Some(path), Some(authorities)) = (path, authorities) else { continue };
            for (name, reason) in authorities.unfit() {
                let (path, name) = (path.display(), printable(&name).into_owned());
                tracing::warn!(flag, %path, name, reason, "a certificate of the authorities cannot verify any client");
            }
        }
    }

    /// Reads the serving certificate; returns `None` without the flags. Logs a warning if clients may refuse the
    /// certificate.
    ///
    /// # Errors
    /// [`AuthenticationFilesError::Read`], [`AuthenticationFilesError::Serving`].
    pub fn serving_certificate(&self) -> Result<Option<CertifiedKey>, AuthenticationFilesError> {
        const FLAGS: [&str; 2] = ["--tls-cert-file", "--tls-private-key-file"];
        let Some((certificate, key)) = &self.serving else { return Ok(None) };
        read_serving_certificate(FLAGS, certificate, key).map(Some)
    }

    /// Reads the serving certificates of `--tls-sni-cert-key`.
    ///
    /// # Errors
    /// [`AuthenticationFilesError::Read`], [`AuthenticationFilesError::Serving`].
    pub fn named_certificates(&self) -> Result<NamedCertificates, AuthenticationFilesError> {
        let read = |named: &SniCertKey| {
            let certificate = read_serving_certificate([SNI_CERT_KEY, SNI_CERT_KEY], &named.certificate, &named.key)?;
            Ok((Arc::new(certificate), named.names.clone()))
        };
        let given: Vec<_> = self.named.iter().map(read).collect::<Result<_, AuthenticationFilesError>>()?;
        Ok(NamedCertificates::new(&given))
    }
}

/// Reads a serving certificate and its key. `flags` are the flags with the paths of the certificate and of the key.
/// Logs a warning if clients may refuse the certificate.
///
/// # Errors
/// [`AuthenticationFilesError::Read`], [`AuthenticationFilesError::Serving`].
pub fn read_serving_certificate(
    flags: [&'static str; 2],
    certificate_path: &Path,
    key_path: &Path,
) -> Result<CertifiedKey, AuthenticationFilesError> {
    let (chain, key) = (read(flags[0], certificate_path)?, read(flags[1], key_path)?);
    let certificate = certified_key(&chain, &key).map_err(|source| {
        let (flag, path) = if source.is_caused_by_key() { (flags[1], key_path) } else { (flags[0], certificate_path) };
        AuthenticationFilesError::Serving { flag, path: path.to_owned(), source }
    })?;
    for reason in certificate_warnings(&certificate, SystemTime::now()) {
        let (flag, path) = (flags[0], certificate_path.display());
        tracing::warn!(flag, %path, reason, "clients will refuse the serving certificate");
    }
    Ok(certificate)
}

const CLIENT_CA: &str = "--client-ca-file";
const SNI_CERT_KEY: &str = "--tls-sni-cert-key";
const FRONT_PROXY_CA: &str = "--requestheader-client-ca-file";
const AUTHENTICATION_CONFIG: &str = "--authentication-config";

/// Reads and validates an AuthenticationConfiguration.
///
/// # Errors
/// [`AuthenticationFilesError::Read`], [`AuthenticationFilesError::Issuers`].
pub fn read_issuers(path: &Path) -> Result<AuthenticationConfiguration, AuthenticationFilesError> {
    let text = read(AUTHENTICATION_CONFIG, path)?;
    // The clusters report the issuers of their ServiceAccount tokens only later, so conflicts with these issuers cannot
    // be detected here. If a cluster has the same issuer, the configured issuer takes precedence.
    AuthenticationConfiguration::parse(&String::from_utf8_lossy(&text), &[])
        .map_err(|source| AuthenticationFilesError::Issuers { path: path.to_owned(), source })
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, AuthenticationFilesError> {
    fs::read(path).map_err(|source| AuthenticationFilesError::Read { flag, path: path.to_owned(), source })
}

fn authorities(flag: &'static str, path: &Path) -> Result<ClientCertificates, AuthenticationFilesError> {
    let bundle = read(flag, path)?;
    ClientCertificates::new(&bundle).map_err(|source| AuthenticationFilesError::Authorities {
        flag,
        path: path.to_owned(),
        source,
    })
}
