//! Client certificate of a connection.

use std::sync::Arc;

use kube::config::AuthInfo;
use secrecy::ExposeSecret;

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Certificate {
    /// Certificate in the configuration, or in files of the configuration.
    Configured(Arc<ConfiguredCertificate>),
    /// Certificate from a credential plugin.
    Plugin(Arc<PluginCertificate>),
}

/// The certificate fields of a kubeconfig user. All fields are empty for a user without a certificate.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct ConfiguredCertificate {
    chain_base64: Option<String>,
    key_base64: Option<Box<str>>,
    chain_file: Option<String>,
    key_file: Option<String>,
}

/// A certificate and its key, in the form that the configuration of the crate `kube` requires: PEM in base64.
#[derive(PartialEq, Eq)]
pub(crate) struct PluginCertificate {
    pub(crate) chain_base64: Box<str>,
    pub(crate) key_base64: Box<str>,
}

impl Certificate {
    pub(crate) fn configured(user: &AuthInfo) -> Self {
        Self::Configured(Arc::new(ConfiguredCertificate {
            chain_base64: user.client_certificate_data.clone(),
            key_base64: user.client_key_data.as_ref().map(|key| key.expose_secret().into()),
            chain_file: user.client_certificate.clone(),
            key_file: user.client_key.clone(),
        }))
    }

    /// Returns whether connections have a client certificate.
    pub(crate) fn is_present(&self) -> bool {
        !matches!(self, Self::Configured(fields) if **fields == ConfiguredCertificate::default())
    }

    /// Returns whether the certificate is in files, which may change.
    pub(crate) fn is_in_files(&self) -> bool {
        matches!(self, Self::Configured(fields) if fields.chain_file.is_some() || fields.key_file.is_some())
    }

    /// Returns a kubeconfig user with this certificate and without other credentials.
    pub(crate) fn as_user(&self) -> AuthInfo {
        match self {
            Self::Configured(fields) => AuthInfo {
                client_certificate_data: fields.chain_base64.clone(),
                client_key_data: fields.key_base64.as_deref().map(|key| key.to_owned().into()),
                client_certificate: fields.chain_file.clone(),
                client_key: fields.key_file.clone(),
                ..AuthInfo::default()
            },
            Self::Plugin(certificate) => AuthInfo {
                client_certificate_data: Some(certificate.chain_base64.to_string()),
                client_key_data: Some(certificate.key_base64.to_string().into()),
                ..AuthInfo::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfig_user_with_a_client_certificate_has_no_other_credentials() {
        let user = AuthInfo {
            client_certificate_data: Some("Yw==".to_owned()),
            client_key_data: Some("aw==".to_owned().into()),
            token: Some("t".to_owned().into()),
            ..AuthInfo::default()
        };
        let certificate = Certificate::configured(&user);
        assert!(!certificate.is_in_files());
        let alone = certificate.as_user();
        assert!(alone.token.is_none() && certificate == Certificate::configured(&alone));
        let other = AuthInfo { client_key_data: Some("bA==".to_owned().into()), ..user };
        assert!(certificate != Certificate::configured(&other), "another key is another certificate");
        let file = AuthInfo { client_key: Some("key.pem".to_owned()), ..AuthInfo::default() };
        assert!(Certificate::configured(&file).is_in_files());
    }
}
