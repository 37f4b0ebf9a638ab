//! Writes kubeconfig files for members, and reads a server's address and a client's credentials from kubeconfig files.

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::{fs, path::Path};

/// Address and credentials of one server. A context of a kubeconfig has the same data.
#[derive(Clone, Debug)]
pub struct Access {
    /// Common name of the kubeconfig's context, cluster and user entries.
    pub name: String,
    /// URL of the server.
    pub server: String,
    /// Certificate authority that signed the serving certificate (PEM).
    pub certificate_authority: String,
    /// The bearer token of the user.
    pub token: String,
}

impl Access {
    /// Returns the kubeconfig entries for this server. A test can change the entries to make an invalid kubeconfig.
    #[must_use]
    pub fn entries(&self) -> ContextParts {
        ContextParts {
            cluster: json!({
                "server": self.server,
                "certificate-authority-data": STANDARD.encode(&self.certificate_authority),
            }),
            user: json!({"token": self.token}),
            name: self.name.clone(),
        }
    }
}

/// Kubeconfig entries of one context as JSON. A test can change the entries to make an invalid kubeconfig.
#[derive(Clone, Debug)]
pub struct ContextParts {
    /// Common name of the context, cluster and user entries.
    pub name: String,
    /// Fields of the `cluster` entry, such as the server's URL.
    pub cluster: Value,
    /// Fields of the `user` entry, such as the token.
    pub user: Value,
}

/// Writes a kubeconfig with one context per member. The first member's context is the current context.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write(path: &Path, members: &[&Access]) -> anyhow::Result<()> {
    let entries: Vec<ContextParts> = members.iter().map(|member| member.entries()).collect();
    write_entries(path, &entries)
}

/// Writes a kubeconfig with these entries. The file is JSON, which is also YAML.
///
/// # Errors
/// If the file cannot be written.
pub fn write_entries(path: &Path, entries: &[ContextParts]) -> anyhow::Result<()> {
    let named = |key: &str, value: fn(&ContextParts) -> Value| -> Vec<Value> {
        entries.iter().map(|entry| json!({"name": entry.name, key: value(entry)})).collect()
    };
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": entries.first().map(|entry| entry.name.clone()).unwrap_or_default(),
        "clusters": named("cluster", |entry| entry.cluster.clone()),
        "users": named("user", |entry| entry.user.clone()),
        "contexts": named("context", |entry| json!({"cluster": entry.name, "user": entry.name})),
    });
    let text = serde_json::to_string_pretty(&document).context("encode the kubeconfig")?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Reads one context as a client configuration, with the crate `kube`. `None` selects the current context.
///
/// # Errors
/// If the file or the context cannot be read.
pub async fn config(path: &Path, context: Option<&str>) -> anyhow::Result<kube::Config> {
    let file = Kubeconfig::read_from(path).with_context(|| format!("read {}", path.display()))?;
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    kube::Config::from_custom_kubeconfig(file, &options)
        .await
        .with_context(|| format!("use context {context:?} of {}", path.display()))
}

/// Returns the names of the contexts of a kubeconfig, and the name of its current context.
///
/// # Errors
///
/// When the file cannot be read.
pub fn contexts(path: &Path) -> anyhow::Result<(Vec<String>, Option<String>)> {
    let file = Kubeconfig::read_from(path).with_context(|| format!("read {}", path.display()))?;
    Ok((file.contexts.into_iter().map(|context| context.name).collect(), file.current_context))
}
