//! What an endpoint proves itself by, opened at the start and renewed while it runs.

use std::sync::Arc;

use crate::cli::ServeArguments;
use crate::credentials::{BearerToken, Certificates, certificates};
use crate::data_directory::{DataDirectory, default_data_directory};
use crate::exit::Failure;
use crate::listener::ListenAddress;
use crate::listener::tls::ServingCertificate;

/// What this endpoint proves itself by, and what its clients do.
pub(super) struct ServingIdentity {
    pub(super) directory: DataDirectory,
    pub(super) token: BearerToken,
    listen: ListenAddress,
    pub(super) authority_pem: String,
    pub(super) certificate: Arc<ServingCertificate>,
}

impl ServingIdentity {
    pub(super) async fn open(arguments: &ServeArguments) -> Result<Self, Failure> {
        let path = match &arguments.data_dir {
            Some(path) => path.clone(),
            None => default_data_directory().map_err(Failure::usage)?,
        };
        let directory = DataDirectory::open(path).map_err(Failure::runtime)?;
        // Two processes that begin at once must not make two authorities.
        let _lock = directory.lock().await.map_err(Failure::runtime)?;
        let token = BearerToken::open(&directory).map_err(Failure::runtime)?;
        let names = arguments.listen.certificate_names();
        let made = Certificates::open(&directory, &names, certificates::now()).map_err(Failure::runtime)?;
        Ok(Self {
            authority_pem: made.authority_pem().to_owned(),
            certificate: ServingCertificate::new(made.certified_key().map_err(Failure::runtime)?),
            listen: arguments.listen,
            directory,
            token,
        })
    }

    /// Replaces the serving certificate when its end is near.
    pub(super) async fn renew(&mut self) -> Result<(), certificates::CertificateError> {
        let _lock = self.directory.lock().await?;
        let made = Certificates::open(&self.directory, &self.listen.certificate_names(), certificates::now())?;
        self.certificate.replace(made.certified_key()?);
        self.authority_pem = made.authority_pem().to_owned();
        Ok(())
    }
}
