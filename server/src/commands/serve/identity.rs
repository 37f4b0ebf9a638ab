//! The credentials of an endpoint, opened at the start and renewed at runtime.

use std::sync::Arc;

use tributary_listener::ListenAddress;
use tributary_listener::tls::ServingCertificate;
use tributary_sources::data_directory::{DataDirectory, default_data_directory};

use crate::authentication::AuthenticationFiles;
use crate::cli::ServeArguments;
use crate::credentials::{BearerToken, Certificates, certificates};
use crate::exit::Failure;

/// The serving certificate, and the token of the only client in personal mode.
pub(super) struct ServingIdentity {
    pub(super) directory: DataDirectory,
    /// The token of personal mode; `None` in shared mode.
    pub(super) token: Option<BearerToken>,
    listen: ListenAddress,
    /// The authority of the serving certificate in PEM, for kubeconfigs. `None` if the certificate comes from a file.
    pub(super) authority_pem: Option<String>,
    pub(super) certificate: Arc<ServingCertificate>,
}

impl ServingIdentity {
    pub(super) async fn open(arguments: &ServeArguments) -> Result<Self, Failure> {
        let path = match &arguments.data_dir {
            Some(path) => path.clone(),
            None => default_data_directory().map_err(Failure::usage)?,
        };
        let directory = DataDirectory::open(path).map_err(Failure::runtime)?;
        // Without this lock, two processes that start at the same time could create two certificate authorities.
        let _lock = directory.lock().await.map_err(Failure::runtime)?;
        let is_shared = arguments.shared.is_shared();
        let token = (!is_shared).then(|| BearerToken::open(&directory)).transpose().map_err(Failure::runtime)?;
        let given =
            AuthenticationFiles::from_arguments(&arguments.shared).serving_certificate().map_err(Failure::usage)?;
        let (certificate, authority_pem) = match given {
            Some(given) => (given, None),
            None => {
                let names = arguments.listen.certificate_names();
                let made = Certificates::open(&directory, &names, certificates::now()).map_err(Failure::runtime)?;
                (made.certified_key().map_err(Failure::runtime)?, Some(made.authority_pem().to_owned()))
            }
        };
        let certificate = ServingCertificate::new(certificate);
        Ok(Self { directory, token, listen: arguments.listen, authority_pem, certificate })
    }

    /// Replaces the generated serving certificate shortly before it expires. A certificate from a file is never
    /// replaced, because the administrator renews it.
    pub(super) async fn renew(&mut self) -> Result<(), certificates::CertificateError> {
        if self.authority_pem.is_none() {
            return Ok(());
        }
        let _lock = self.directory.lock().await?;
        let made = Certificates::open(&self.directory, &self.listen.certificate_names(), certificates::now())?;
        self.certificate.replace(made.certified_key()?);
        self.authority_pem = Some(made.authority_pem().to_owned());
        Ok(())
    }
}
