//! Reads the files and the inline data to which a kubeconfig refers, to check them and to compute the fingerprint.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The problem with data to which a kubeconfig refers, and the problem's remedy. The texts never quote the data.
pub(crate) type ReferenceProblem = (String, &'static str);

/// Data of a kubeconfig in one of two fields: inline as base64, or as a file's path. Inline data takes precedence, as
/// in client-go.
pub(crate) struct Referenced<'a> {
    /// The value of an inline field, such as `certificate-authority-data`.
    pub(crate) data: Option<&'a str>,
    /// The value of a path field, such as `certificate-authority`: an absolute path.
    pub(crate) file: Option<&'a str>,
}

impl Referenced<'_> {
    pub(crate) fn is_absent(&self) -> bool {
        self.data.is_none_or(str::is_empty) && self.file.is_none_or(str::is_empty)
    }

    /// Returns the referenced data; `None` if the inline field and the path field are absent.
    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, ReferenceProblem> {
        if let Some(data) = self.data.filter(|data| !data.is_empty()) {
            let bytes = STANDARD.decode(data.trim()).map_err(|_| {
                ("the value is not base64".to_owned(), "encode the PEM text by `base64 -w0`, or name a file instead")
            })?;
            return Ok(Some(bytes));
        }
        match self.file.filter(|file| !file.is_empty()) {
            None => Ok(None),
            Some(file) => read_file(Path::new(file)).map(Some),
        }
    }
}

pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, ReferenceProblem> {
    fs::read(path).map_err(|error| {
        let problem = format!("the file {} cannot be read: {error}", path.display());
        (problem, "restore the file, or correct its path")
    })
}

/// Checks that the data is a bearer token. Surrounding white space is ignored. An empty file is allowed, because a
/// volume mount may provide the token later.
pub(super) fn check_token(path: &Path, token: &[u8]) -> Result<(), ReferenceProblem> {
    match std::str::from_utf8(token).map(|token| HeaderValue::from_bytes(token.trim().as_bytes())) {
        Ok(Ok(_)) => Ok(()),
        _ => {
            let problem = format!("{} has a character that is not allowed in a token", path.display());
            Err((problem, "write only the token into the file"))
        }
    }
}

/// Checks that the referenced data contains at least one certificate in PEM.
pub(super) fn check_certificates(pem: &[u8]) -> Result<(), ReferenceProblem> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(()),
        _ => Err(("the value has no certificate".to_owned(), "give it PEM text with BEGIN CERTIFICATE")),
    }
}

/// Checks that the referenced data is a private key in PEM.
pub(super) fn check_key(pem: &[u8]) -> Result<(), ReferenceProblem> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(_) => Ok(()),
        Err(_) => {
            Err(("the value has no private key".to_owned(), "give it PEM text with BEGIN PRIVATE KEY, RSA or EC"))
        }
    }
}
