//! What is written into the configuration directory: an UpstreamCluster, and the account's token beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tributary_apimachinery::ClusterName;

use super::account::Account;
use crate::data_directory::write_private;

/// The first line of an UpstreamCluster that was written here, and may be written again.
const MARK: &str = "# Written by tributary join, which writes it again. Change a copy under another name.";

/// The files of one cluster.
pub(super) struct Written {
    /// The UpstreamCluster.
    pub(super) cluster: PathBuf,
    /// The token.
    pub(super) token: PathBuf,
    text: String,
}

impl Written {
    /// What is to be written for a cluster that is reached in this way.
    ///
    /// # Errors
    /// Where no UpstreamCluster can say it, or a file is there that was not written here.
    pub(super) fn plan(
        directory: &Path,
        name: &ClusterName,
        config: &kube::Config,
        account: &Account,
    ) -> anyhow::Result<Self> {
        if !directory.is_dir() {
            bail!("--config {}: is not a directory; make it first", directory.display());
        }
        let (cluster, token) = (directory.join(format!("{name}.yaml")), directory.join(format!("{name}.token")));
        let text = format!("{MARK}\n{}", serde_saphyr::to_string(&object(name, config, account)?)?);
        match fs::read_to_string(&cluster) {
            Ok(present) if !present.starts_with(MARK) => {
                bail!(
                    "{} is there already and was not written by tributary join; choose another --name",
                    cluster.display()
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

fn object(name: &ClusterName, config: &kube::Config, account: &Account) -> anyhow::Result<Value> {
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
    if let Some(proxy) = &config.proxy_url {
        spec["proxyURL"] = proxy.to_string().into();
    }
    if account.uid || !account.extra.is_empty() {
        let told = json!({"uid": account.uid, "extra": account.extra});
        spec["impersonation"] = told;
    }
    if account.tokens {
        spec["tokenReview"] = true.into();
    }
    Ok(json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": name.as_str()},
        "spec": spec}))
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
