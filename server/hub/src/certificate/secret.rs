//! The Secret with the serving certificate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_crds::SecretText;

use super::generated::SharedServingCertificate;

pub(super) const SECRET_NAME: &str = "tributary-aggregated-serving";

/// Reads the certificate of a Secret.
///
/// # Errors
/// The reason as a text without data of the Secret.
pub(super) fn read_secret(secret: &Value) -> Result<SharedServingCertificate, String> {
    let value = |key: &str| {
        let text = secret["data"][key].as_str().ok_or_else(|| format!("the Secret has no {key}"))?;
        let bytes = STANDARD.decode(text).map_err(|_| format!("{key} is not base64"))?;
        String::from_utf8(bytes).map_err(|_| format!("{key} is not PEM"))
    };
    let key = SecretText::new(value("tls.key")?);
    Ok(SharedServingCertificate { chain: value("tls.crt")?, key, authorities: value("ca.crt")? })
}

/// Returns a Secret with this certificate: a new Secret, or the `existing` Secret with new data.
pub(super) fn secret_with(certificate: &SharedServingCertificate, existing: Option<&Value>) -> Value {
    let mut secret = existing.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": SECRET_NAME, "labels": { "app.kubernetes.io/managed-by": "tributary" } },
            "type": "kubernetes.io/tls",
        })
    });
    secret["data"] = json!({
        "tls.crt": STANDARD.encode(&certificate.chain),
        "tls.key": STANDARD.encode(certificate.key.expose()),
        "ca.crt": STANDARD.encode(&certificate.authorities),
    });
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_keeps_the_certificate_and_the_metadata() {
        let [chain, authorities] = ["chain", "authorities"].map(str::to_owned);
        let certificate = SharedServingCertificate { chain, authorities, key: SecretText::new("key") };
        let new = secret_with(&certificate, None);
        assert_eq!(new["type"], "kubernetes.io/tls");
        assert_eq!(read_secret(&new), Ok(certificate.clone()));
        let existing = json!({ "metadata": { "resourceVersion": "7" }, "data": { "old": "" } });
        let replaced = secret_with(&certificate, Some(&existing));
        assert_eq!((&replaced["metadata"], &replaced["data"]["old"]), (&existing["metadata"], &Value::Null));
    }

    #[test]
    fn unreadable_secret_is_refused_without_quoting_it() {
        let good = STANDARD.encode("x");
        for (key, value, expected) in [
            ("tls.crt", json!(null), "the Secret has no tls.crt"),
            ("tls.key", json!("hunter2!"), "tls.key is not base64"),
            ("ca.crt", json!(STANDARD.encode([0xff])), "ca.crt is not PEM"),
        ] {
            let mut secret = json!({ "data": { "tls.crt": good, "tls.key": good, "ca.crt": good } });
            secret["data"][key] = value;
            assert_eq!(read_secret(&secret).unwrap_err(), expected);
        }
    }
}
