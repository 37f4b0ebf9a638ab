//! The hosts of an UpstreamCluster's own API, and their TLS settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tributary_apimachinery::text::hex;
use tributary_authentication::ClientCertificates;
use tributary_crds::{SecretText, SecureServing, UpstreamClusterSpec};
use tributary_hosts::certified_key;
use tributary_hosts::{ClusterHosts, HostTls};

use crate::kubeconfig::Referenced;

/// The field name, the problem and the remedy, for an invalid field or for an unusable file that the field names.
pub(super) type FieldProblem = (&'static str, String, String);

/// Returns the hosts of a cluster, and the files that were read. Relative paths start at `base`.
///
/// # Errors
/// [`FieldProblem`].
pub(super) fn cluster_hosts(
    spec: &UpstreamClusterSpec,
    base: &Path,
) -> Result<(ClusterHosts, Vec<PathBuf>), FieldProblem> {
    let names = spec.server_names.iter().map(|name| {
        name.parse().map_err(|error| ("serverNames", format!("{name:?} {error}"), "give a DNS name".to_owned()))
    });
    let names = names.collect::<Result<_, _>>()?;
    let Some(serving) = &spec.secure_serving else { return Ok((ClusterHosts { names, tls: None }, Vec::new())) };
    let SecureServing { certificate_data, certificate_file, key_data, key_file, client_ca_data, client_ca_file } =
        serving;
    let file = |path: &Option<String>| path.as_ref().map(|path| base.join(path));
    let files = [certificate_file, key_file, client_ca_file].map(file);
    let [certificate_path, key_path, client_ca_path] = &files;
    let certificate = read("secureServing.certificate", certificate_data.as_deref(), certificate_path.as_deref())?;
    let key = read("secureServing.key", key_data.as_ref().map(SecretText::expose), key_path.as_deref())?;
    let client_ca = read("secureServing.clientCA", client_ca_data.as_deref(), client_ca_path.as_deref())?;
    let mut fingerprint = Sha256::new();
    for bytes in [&certificate, &key, &client_ca] {
        let bytes = bytes.as_deref().unwrap_or_default();
        fingerprint.update(bytes.len().to_be_bytes());
        fingerprint.update(bytes);
    }
    let tls = HostTls {
        fingerprint: hex(fingerprint.finalize()),
        serving: serving_key(certificate, key)?,
        client_authorities: client_ca.map(|bundle| client_authorities(&bundle)).transpose()?,
    };
    let is_of_its_own = tls.serving.is_some() || tls.client_authorities.is_some();
    let tls = is_of_its_own.then(|| Arc::new(tls));
    Ok((ClusterHosts { names, tls }, files.into_iter().flatten().collect()))
}

/// Reads the content of an UpstreamCluster's field, inline or from a file.
fn read(field: &'static str, data: Option<&str>, file: Option<&Path>) -> Result<Option<Vec<u8>>, FieldProblem> {
    let file = file.map(Path::to_string_lossy);
    let referenced = Referenced { data, file: file.as_deref() };
    referenced.read().map_err(|(problem, remedy)| (field, problem, remedy.to_owned()))
}

fn serving_key(
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
) -> Result<Option<Arc<rustls::sign::CertifiedKey>>, FieldProblem> {
    let Some((certificate, key)) = certificate.zip(key) else { return Ok(None) };
    certified_key(&certificate, &key).map(Arc::new).map(Some).map_err(|error| match error.is_caused_by_key() {
        true => ("secureServing.key", error.to_string(), "give the certificate's own key, as PEM".to_owned()),
        false => ("secureServing.certificate", error.to_string(), "give PEM text with BEGIN CERTIFICATE".to_owned()),
    })
}

fn client_authorities(bundle: &[u8]) -> Result<Arc<ClientCertificates>, FieldProblem> {
    ClientCertificates::new(bundle).map(Arc::new).map_err(|error| {
        ("secureServing.clientCA", error.to_string(), "give PEM text with the authorities' certificates".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use serde_json::json;

    use super::*;

    /// Returns a self-signed certificate, which is also an authority, and its key.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec!["eu.test".to_owned()]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn hosts(spec: serde_json::Value, base: &Path) -> Result<(ClusterHosts, Vec<PathBuf>), FieldProblem> {
        cluster_hosts(&serde_json::from_value(spec).unwrap(), base)
    }

    #[test]
    fn certificates_from_files_and_inline_data_are_equivalent() {
        let base = tempfile::tempdir().unwrap();
        let (certificate, key) = pair();
        for (name, text) in [("own.crt", &certificate), ("own.key", &key)] {
            std::fs::write(base.path().join(name), text).unwrap();
        }
        let data = |text: &str| STANDARD.encode(text);
        let by_file = json!({"certificateFile": "own.crt", "keyFile": "own.key", "clientCAFile": "own.crt"});
        let by_data =
            json!({"certificateData": data(&certificate), "keyData": data(&key), "clientCAData": data(&certificate)});
        let of = |serving: serde_json::Value| {
            hosts(json!({"serverNames": ["EU.test"], "secureServing": serving}), base.path()).unwrap()
        };
        let ((by_file, files), (by_data, none)) = (of(by_file), of(by_data));
        assert_eq!(by_file.names, ["eu.test".parse().unwrap()]);
        let (by_file, by_data) = (by_file.tls.unwrap(), by_data.tls.unwrap());
        assert_eq!(by_file.fingerprint, by_data.fingerprint);
        assert!(by_file.serving.is_some() && by_file.client_authorities.is_some());
        assert_eq!(files, ["own.crt", "own.key", "own.crt"].map(|name| base.path().join(name)));
        assert!(none.is_empty());
        // Settings without a serving certificate have a different fingerprint than settings with one.
        let alone = of(json!({"clientCAData": data(&certificate)})).0.tls.unwrap();
        assert!(alone.serving.is_none() && alone.fingerprint != by_file.fingerprint);
        assert!(hosts(json!({"serverNames": ["eu.test"]}), base.path()).unwrap().0.tls.is_none());
        assert!(of(json!({})).0.tls.is_none());
    }

    #[test]
    fn unusable_certificate_error_names_the_field() {
        let base = tempfile::tempdir().unwrap();
        let ((certificate, key), (_, other)) = (pair(), pair());
        let data = |text: &str| STANDARD.encode(text);
        for (serving, field, problem) in [
            (json!({"clientCAFile": "none"}), "secureServing.clientCA", "cannot be read"),
            (
                json!({"clientCAData": data("no certificate")}),
                "secureServing.clientCA",
                "the bundle has no certificate",
            ),
            (
                json!({"certificateData": data(&certificate), "keyData": data(&other)}),
                "secureServing.key",
                "the key does not belong to the certificate",
            ),
            (
                json!({"certificateData": data(&key), "keyData": data(&key)}),
                "secureServing.certificate",
                "the PEM text has no certificate",
            ),
            (
                json!({"certificateData": data(&certificate), "keyData": data("secret")}),
                "secureServing.key",
                "the PEM text has no private key",
            ),
        ] {
            let spec = json!({"serverNames": ["eu.test"], "secureServing": serving});
            let (named, found, _) = hosts(spec, base.path()).unwrap_err();
            assert_eq!(named, field, "{found}");
            assert!(found.contains(problem) && !found.contains("secret"), "{found}");
        }
    }
}
