//! Secrets with credentials of clusters.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tributary_apimachinery::Object;
use tributary_crds::{Credentials, PUBLISHED_BY, SecretText};

use crate::SourceRefusal;
use crate::credential_text::{encode_pem, read_token, with_certificate};
use crate::object_metadata::{ObjectMetadata, decode_object, or_null};

/// The default keys of a Secret: those of `kubernetes.io/tls` and of `kubernetes.io/service-account-token`.
pub(crate) const TOKEN: &str = "token";
pub(crate) const CERTIFICATE: &str = "tls.crt";
pub(crate) const KEY: &str = "tls.key";
pub(crate) const AUTHORITIES: &str = "ca.crt";

/// Finds a Secret. The argument depends on the list: the name of the Secret, or the namespace of the
/// ManagedServiceAccount.
pub(crate) type FindSecret<'a> = &'a dyn Fn(&str) -> Result<Secret, SourceRefusal>;

/// A Secret of the hub.
#[derive(Deserialize)]
pub(crate) struct Secret {
    pub(crate) metadata: ObjectMetadata,
    /// The values, as base64.
    #[serde(default, deserialize_with = "or_null")]
    data: BTreeMap<String, String>,
}

impl Secret {
    pub(crate) fn decode(object: &Object) -> Result<Self, SourceRefusal> {
        let secret: Self = decode_object(object, &format!("Secret {}", object.name()))?;
        if secret.metadata.labels.contains_key(PUBLISHED_BY) {
            let message = format!(
                "Secret {}: the label {PUBLISHED_BY} marks a Secret of Tributary's own members, which leads back to \
                 Tributary. Select other Secrets by labelSelector or namespace.",
                object.name()
            );
            return Err(SourceRefusal::new("PublishedByTributary", message));
        }
        Ok(secret)
    }

    /// Returns the place of a key for error messages, for example `Secret eu: key "token"`.
    pub(crate) fn place(&self, key: &str) -> String {
        format!("Secret {}: key {key:?}", self.metadata.name)
    }

    /// Returns the text of a key without surrounding white space; `None` if the key is missing or empty.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, SourceRefusal> {
        let Some(encoded) = self.data.get(key) else { return Ok(None) };
        let decoded = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = decoded.ok_or_else(|| {
            let message = format!("{} is not base64 of UTF-8 text. Write the value as text.", self.place(key));
            SourceRefusal::new("Unreadable", message)
        })?;
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    /// Returns the PEM text of a key as base64; `None` if the key is missing or empty.
    pub(crate) fn pem(&self, key: &str) -> Result<Option<String>, SourceRefusal> {
        self.text(key)?.map(|text| encode_pem(&text, &self.place(key))).transpose()
    }

    /// Returns the bearer token of a key.
    ///
    /// # Errors
    /// The key is missing or empty, or is not a token.
    pub(crate) fn token(&self, key: &str) -> Result<SecretText, SourceRefusal> {
        let token = read_token(&self.text(key)?.unwrap_or_default(), &self.place(key))?;
        token.ok_or_else(|| self.missing(key, "a bearer token"))
    }

    /// Returns the client certificate of the keys `tls.crt` and `tls.key`.
    ///
    /// # Errors
    /// One of the keys is missing, empty or not PEM text.
    pub(crate) fn client_certificate(&self) -> Result<Credentials, SourceRefusal> {
        let Some(certificate) = self.pem(CERTIFICATE)? else {
            return Err(self.missing(CERTIFICATE, "a client certificate"));
        };
        let Some(key) = self.pem(KEY)? else { return Err(self.missing(KEY, "the key of the client certificate")) };
        Ok(with_certificate(certificate, key))
    }

    fn missing(&self, key: &str, content: &str) -> SourceRefusal {
        let message = format!("{} is missing or empty. Add the key with {content}.", self.place(key));
        SourceRefusal::new("MissingCredential", message)
    }
}
