//! What is written into the configuration directory: an UpstreamCluster, and the account's token beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use rustls_pki_types::CertificateDer;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tributary_apimachinery::ClusterName;

use super::account::Purpose;
use crate::data_directory::write_private;

/// The first line of an UpstreamCluster that was written here, and may be written again.
const MARK: &str = "# Written by tributary join, which writes it again. Change a copy under another name.";

/// The annotation of an UpstreamCluster that says which cluster it is of: the uid of its namespace kube-system.
const UID: &str = "tributary.dev/cluster-uid";

/// The files of one cluster.
pub(super) struct Written {
    /// The UpstreamCluster.
    pub(super) cluster: PathBuf,
    /// The token.
    pub(super) token: PathBuf,
    text: String,
}

impl Written {
    /// What is to be written for a cluster that is reached in this way, through the proxy that its kubeconfig names.
    /// One of the environment is not written: whoever serves takes it from their own.
    ///
    /// # Errors
    /// Where no UpstreamCluster can say it, or a file is there that was not written here, or of another cluster.
    pub(super) fn plan(
        directory: &Path,
        (name, uid): (&ClusterName, &str),
        (config, proxy): (&kube::Config, Option<&Uri>),
        purpose: &Purpose,
    ) -> anyhow::Result<Self> {
        if !directory.is_dir() {
            bail!("--config {}: is not a directory; make it first", directory.display());
        }
        let (cluster, token) = (directory.join(format!("{name}.yaml")), directory.join(format!("{name}.token")));
        let object = object((name, uid), (config, proxy), purpose)?;
        let text = format!("{MARK}\n{}", serde_saphyr::to_string(&object)?);
        match fs::read_to_string(&cluster) {
            Ok(present) if !present.starts_with(MARK) => {
                bail!(
                    "{} is there already and was not written by tributary join; choose another --name",
                    cluster.display()
                )
            }
            Ok(present) if !is_same(&present, &object) => {
                bail!(
                    "{} is of another cluster than {}; choose another --name, or delete it first",
                    cluster.display(),
                    config.cluster_url
                )
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| cluster.display().to_string());
            }
            // A token that no such UpstreamCluster is beside is somebody else's.
            Err(_) if token.symlink_metadata().is_ok() => {
                bail!(
                    "{} is there already and was not written by tributary join; choose another --name",
                    token.display()
                )
            }
            Ok(_) | Err(_) => {}
        }
        Ok(Self { cluster, token, text })
    }

    /// Writes them, the token first: whoever serves the directory reads the UpstreamCluster at once.
    ///
    /// # Errors
    /// What the system says, with the file.
    pub(super) fn write(&self, token: &SecretString) -> anyhow::Result<()> {
        let write = |path: &Path, bytes: &[u8]| {
            write_private(path, bytes).with_context(|| format!("{} cannot be written", path.display()))
        };
        write(&self.token, token.expose_secret().as_bytes())?;
        write(&self.cluster, self.text.as_bytes())
    }
}

/// Whether the UpstreamCluster of a file is of the same cluster: by its uid. One that does not say it has to be reached
/// in the same way.
fn is_same(present: &str, object: &Value) -> bool {
    let Ok(present) = serde_saphyr::from_str::<Value>(present) else { return false };
    match present["metadata"]["annotations"][UID].as_str() {
        Some(uid) => object["metadata"]["annotations"][UID] == uid,
        None => ["endpoints", "caData"].iter().all(|field| present["spec"][field] == object["spec"][field]),
    }
}

fn object(
    (name, uid): (&ClusterName, &str),
    (config, proxy): (&kube::Config, Option<&Uri>),
    purpose: &Purpose,
) -> anyhow::Result<Value> {
    let url = config.cluster_url.to_string();
    let mut spec =
        json!({"endpoints": [url.trim_end_matches('/')], "credentials": {"tokenFile": format!("{name}.token")}});
    match &config.root_cert {
        _ if config.accept_invalid_certs => spec["insecureSkipVerify"] = true.into(),
        Some(authorities) => spec["caData"] = STANDARD.encode(pem(authorities)).into(),
        None => bail!(
            "the kubeconfig names no certificate authority for {url}; put one in by `kubectl config set-cluster \
             --certificate-authority FILE --embed-certs`"
        ),
    }
    if let Some(server_name) = &config.tls_server_name {
        spec["tlsServerName"] = server_name.clone().into();
    }
    if let Some(proxy) = proxy {
        spec["proxyURL"] = proxy.to_string().into();
    }
    if purpose.uid || !purpose.extra.is_empty() {
        let told = json!({"uid": purpose.uid, "extra": purpose.extra});
        spec["impersonation"] = told;
    }
    if purpose.tokens {
        spec["tokenReview"] = true.into();
    }
    let metadata = json!({"name": name.as_str(), "annotations": {UID: uid}});
    Ok(json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": metadata, "spec": spec}))
}

/// Certificates as PEM text (RFC 7468).
fn pem(certificates: &[Vec<u8>]) -> String {
    let block = |der: &Vec<u8>| {
        let text = STANDARD.encode(CertificateDer::from_slice(der));
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    certificates.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Profile, TokenLifetime};
    use crate::commands::join::account::Impersonation;

    fn purpose() -> Purpose {
        Purpose {
            profile: Profile::Read,
            impersonation: Impersonation::Any,
            uid: false,
            extra: Vec::new(),
            tokens: false,
            token_lifetime: TokenLifetime::Lasting,
        }
    }

    /// What is written has to be what `serve` takes.
    #[test]
    fn a_proxy_is_written_only_where_the_kubeconfig_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let eu = ClusterName::new("eu").unwrap();
        let mut config = kube::Config::new("https://eu.example".parse().unwrap());
        config.root_cert = Some(vec![b"authority".to_vec()]);
        // As the environment gives it.
        config.proxy_url = Some(Uri::from_static("http://me:hunter2@proxy.example:3128"));
        let named = Uri::from_static("socks5h://proxy.example:1080");
        let plan = |proxy| Written::plan(directory.path(), (&eu, "u1"), (&config, proxy), &purpose()).unwrap();
        assert!(!plan(None).text.contains("proxy"), "{}", plan(None).text);
        let text = plan(Some(&named)).text;
        let read = tributary_crds::load::parse(&text, Path::new("eu.yaml")).unwrap();
        assert_eq!(read.clusters[0].spec.proxy_url.as_deref(), Some("socks5h://proxy.example:1080/"));
        let problems: Vec<_> = read.validate().iter().map(ToString::to_string).collect();
        assert_eq!(problems, Vec::<String>::new());
    }

    #[test]
    fn the_file_of_another_cluster_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let eu = ClusterName::new("eu").unwrap();
        let plan = |uid: &str, url: &str| {
            let mut config = kube::Config::new(url.parse().unwrap());
            config.root_cert = Some(vec![b"authority".to_vec()]);
            Written::plan(directory.path(), (&eu, uid), (&config, None), &purpose())
        };
        let token = SecretString::from("t");
        plan("u1", "https://one").unwrap().write(&token).unwrap();
        plan("u1", "https://moved").unwrap().write(&token).unwrap();
        let refused = plan("u2", "https://moved").err().unwrap().to_string();
        assert!(refused.contains("eu.yaml is of another cluster than https://moved"), "{refused}");
        // One that was written before it said its cluster.
        let file = directory.path().join("eu.yaml");
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.contains("annotations") && !line.contains(UID)).collect();
        fs::write(&file, lines.join("\n")).unwrap();
        assert!(plan("u2", "https://moved").is_ok());
        assert!(plan("u2", "https://one").is_err());
    }
}
