//! Certificates, keys and tokens in foreign objects.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tributary_crds::{Credentials, SecretText};

use crate::SourceRefusal;

/// Checks PEM text. Returns base64 of the text. `place` names the field in error messages.
pub(crate) fn encode_pem(text: &str, place: &str) -> Result<String, SourceRefusal> {
    if text.contains("-----BEGIN") {
        return Ok(STANDARD.encode(text));
    }
    let message = format!("{place} is not PEM text. Give text with a line that begins with -----BEGIN.");
    Err(SourceRefusal::new("InvalidCredential", message))
}

/// Checks base64 of PEM text, as in a kubeconfig. Returns the base64 without white space; `None` if the field is empty.
pub(crate) fn read_pem_data(data: &str, place: &str) -> Result<Option<String>, SourceRefusal> {
    let data: String = data.split_ascii_whitespace().collect();
    if data.is_empty() {
        return Ok(None);
    }
    let decoded = STANDARD.decode(&data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    if decoded.is_some_and(|text| text.contains("-----BEGIN")) {
        return Ok(Some(data));
    }
    let message = format!("{place} is not base64 of PEM text. Encode the text by `base64 -w0`.");
    Err(SourceRefusal::new("InvalidCredential", message))
}

/// Checks a bearer token. Surrounding white space is removed; `None` if the field is empty.
pub(crate) fn read_token(text: &str, place: &str) -> Result<Option<SecretText>, SourceRefusal> {
    let token = text.trim();
    if token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(Some(token).filter(|token| !token.is_empty()).map(SecretText::new));
    }
    let message = format!("{place} contains a space, a line break or a character outside ASCII. Give only the token.");
    Err(SourceRefusal::new("InvalidCredential", message))
}

/// Returns credentials with a token.
pub(crate) fn with_token(token: SecretText) -> Credentials {
    Credentials { token: Some(token), ..Credentials::default() }
}

/// Returns credentials with a client certificate and its key, both as base64 of PEM text.
pub(crate) fn with_certificate(certificate: String, key: String) -> Credentials {
    Credentials {
        client_certificate_data: Some(certificate),
        client_key_data: Some(SecretText::new(key)),
        ..Credentials::default()
    }
}

/// Returns credentials with the token, or with the client certificate and its key. In error messages, `place` names the
/// object, and `fields` names its fields with credentials.
///
/// # Errors
/// The object has a token and a client certificate, or no complete credential.
pub(crate) fn choose_credentials(
    token: Option<SecretText>,
    certificate: Option<String>,
    key: Option<String>,
    place: &str,
    fields: &str,
) -> Result<Credentials, SourceRefusal> {
    match (token, certificate, key) {
        (Some(token), None, None) => Ok(with_token(token)),
        (None, Some(certificate), Some(key)) => Ok(with_certificate(certificate, key)),
        (Some(_), ..) => {
            let message = format!("{place} has a token and a client certificate. Give only {fields}.");
            Err(SourceRefusal::new("InvalidCredential", message))
        }
        _ => {
            let message = format!("{place} lacks a credential. Give {fields}.");
            Err(SourceRefusal::new("MissingCredential", message))
        }
    }
}
