//! Credential plugins of a kubeconfig (`users[].user.exec`), as in client-go's `plugin/pkg/client/auth/exec`.
//!
//! This module replaces the implementation of the crate `kube`. That implementation runs a plugin again for each use of
//! its certificate, blocks a thread without a time limit, prints the plugin's output (its token) in errors, and never
//! runs the plugin again after a 401. A plugin gets no terminal here, because Tributary is a server. Errors show the
//! plugin's standard error, without words that may be secrets.

use std::process::Stdio;
use std::time::SystemTime;

use base64::Engine as _;
use http::HeaderValue;
use kube::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::Duration;

use crate::command_policy::CommandPolicy;
use crate::credentials::certificate::PluginCertificate;

/// Maximal length of a plugin's output, in bytes. Credentials have a few kilobytes.
const MAX_OUTPUT: u64 = 1 << 20;
/// Minimal length of a word that may be a secret. Messages omit such words of a plugin's standard error, except
/// addresses.
const SECRET_LENGTH: usize = 32;

/// Version of the plugin protocol that is used if the configuration names no version.
const DEFAULT_API_VERSION: &str = "client.authentication.k8s.io/v1";

pub(crate) struct PluginCredential {
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) certificate: Option<PluginCertificate>,
    pub(crate) expires: Option<SystemTime>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecInfo<'a> {
    api_version: &'a str,
    kind: &'static str,
    spec: ExecSpec<'a>,
}

#[derive(Serialize)]
struct ExecSpec<'a> {
    interactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ExecAuthCluster>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    api_version: String,
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Checks a configuration without running the plugin.
///
/// # Errors
/// A message that names the invalid field.
pub(crate) fn check(config: &ExecConfig) -> Result<(), String> {
    if config.command.as_deref().is_none_or(str::is_empty) {
        return Err("exec has no command".to_owned());
    }
    if config.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(
            "exec has interactiveMode: Always, but Tributary has no terminal; set it to IfAvailable or Never, and \
             sign in beforehand"
                .to_owned(),
        );
    }
    if config.provide_cluster_info && config.cluster.is_none() {
        return Err("exec has provideClusterInfo, but the cluster's information is missing".to_owned());
    }
    Ok(())
}

/// Runs the plugin once. Cancellation kills the plugin. With a policy, the plugin must be allowed, and its environment
/// has only the variables of the configuration and of the protocol.
///
/// # Errors
/// The failure, for people and without secrets.
pub(crate) async fn run(
    config: &ExecConfig,
    policy: Option<&CommandPolicy>,
    limit: Duration,
) -> Result<PluginCredential, String> {
    check(config)?;
    let name = config.command.as_deref().unwrap_or_default();
    if let Some(policy) = policy {
        policy.verify(name).await.map_err(|refused| refused.to_string())?;
    }
    let output = match tokio::time::timeout(limit, execute(config, name, policy.is_some())).await {
        Err(_) => return Err(format!("credential plugin {name} did not finish within {limit:?}")),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            let hint = config.install_hint.as_deref().map(|hint| format!("; {}", hint.trim())).unwrap_or_default();
            return Err(format!("credential plugin {name} is not installed or not in PATH{hint}"));
        }
        Ok(Err(error)) => return Err(format!("credential plugin {name} cannot be run: {error}")),
        Ok(Ok(output)) => output,
    };
    let message = first_line_without_secrets(&output.stderr);
    if !output.success {
        let message = if message.is_empty() { "the plugin printed nothing".to_owned() } else { message };
        return Err(format!(
            "credential plugin {name} failed ({}): {message}; run it in a terminal to sign in or to see why",
            output.status
        ));
    }
    if !message.is_empty() {
        tracing::info!(plugin = name, said = %message, "credential plugin");
    }
    parse(&output.stdout, api_version(config))
        .map_err(|problem| format!("credential plugin {name} returned no usable ExecCredential: {problem}"))
}

struct PluginOutput {
    success: bool,
    status: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

fn api_version(config: &ExecConfig) -> &str {
    config.api_version.as_deref().unwrap_or(DEFAULT_API_VERSION)
}

async fn execute(config: &ExecConfig, name: &str, is_isolated: bool) -> std::io::Result<PluginOutput> {
    let mut command = Command::new(name);
    if is_isolated {
        command.env_clear();
    }
    command.args(config.args.iter().flatten());
    for pair in config.env.iter().flatten() {
        if let (Some(name), Some(value)) = (pair.get("name"), pair.get("value")) {
            command.env(name, value);
        }
    }
    let info = ExecInfo {
        api_version: api_version(config),
        kind: "ExecCredential",
        spec: ExecSpec { interactive: false, cluster: config.cluster.as_ref().filter(|_| config.provide_cluster_info) },
    };
    command.env("KUBERNETES_EXEC_INFO", serde_json::to_string(&info)?);
    for variable in config.drop_env.iter().flatten() {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = tokio::try_join!(read(stdout), read(stderr))?;
    let status = child.wait().await?;
    Ok(PluginOutput { success: status.success(), status: status.to_string(), stdout, stderr })
}

async fn read(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(MAX_OUTPUT).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Parses an ExecCredential of the requested version. Accepts JSON and YAML, as client-go's decoder does. Errors never
/// quote the input.
fn parse(output: &[u8], requested_version: &str) -> Result<PluginCredential, &'static str> {
    let credential: ExecCredential = match serde_json::from_slice(output) {
        Ok(credential) => credential,
        Err(_) => {
            serde_saphyr::from_slice(output).map_err(|_| "the output is neither JSON nor YAML of an ExecCredential")?
        }
    };
    if credential.api_version != requested_version {
        return Err("the apiVersion of the output differs from users[].user.exec.apiVersion in the kubeconfig");
    }
    let status = credential.status.ok_or("the output has no status")?;
    let expires = match status.expiration_timestamp.as_deref() {
        Some(text) => {
            Some(text.parse::<jiff::Timestamp>().map_err(|_| "status.expirationTimestamp is not an RFC 3339 time")?)
        }
        None => None,
    };
    let authorization = match status.token.as_deref().filter(|token| !token.is_empty()) {
        Some(token) => Some(bearer(token).ok_or("status.token has characters that cannot be sent in a header")?),
        None => None,
    };
    let encode = |pem: String| -> Box<str> { base64::engine::general_purpose::STANDARD.encode(pem).into() };
    let certificate = match (status.client_certificate_data, status.client_key_data) {
        (Some(chain), Some(key)) => Some(PluginCertificate { chain_base64: encode(chain), key_base64: encode(key) }),
        (None, None) => None,
        _ => return Err("only one of status.clientCertificateData and status.clientKeyData is set"),
    };
    if authorization.is_none() && certificate.is_none() {
        return Err("status has neither a token nor a certificate");
    }
    Ok(PluginCredential { authorization, certificate, expires: expires.map(SystemTime::from) })
}

/// Returns `Bearer TOKEN` as a header value that is marked as sensitive. Debug output and the HTTP/2 header table omit
/// sensitive values.
pub(crate) fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn first_line_without_secrets(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut shown = String::new();
    let mut after_label = false;
    for word in line.split_whitespace().take(60) {
        let lower = word.to_ascii_lowercase();
        let is_address = lower.starts_with("http://") || lower.starts_with("https://") || lower.starts_with('/');
        let is_secret = after_label
            || (word.len() >= SECRET_LENGTH && !is_address)
            || ["token=", "token:", "password=", "secret=", "key="]
                .iter()
                .any(|label| lower.find(label).is_some_and(|at| at + label.len() < lower.len()));
        after_label = matches!(lower.as_str(), "bearer" | "token:" | "password:" | "secret:");
        if !shown.is_empty() {
            shown.push(' ');
        }
        shown.push_str(if is_secret { "<left out>" } else { word });
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_plugin_error_contains_its_standard_error_without_secrets() {
        for (stderr, shown) in [
            ("", ""),
            ("\n  please run: aws sso login\nsecond line", "please run: aws sso login"),
            ("got token=abc123 and failed", "got <left out> and failed"),
            ("Bearer abc failed", "Bearer <left out> failed"),
            ("eyJhbGciOiJSUzI1NiIsImtpZCI6IjEyMyJ9.x rejected", "<left out> rejected"),
            (
                "open https://login.example.com/device/0123456789abcdef",
                "open https://login.example.com/device/0123456789abcdef",
            ),
        ] {
            assert_eq!(first_line_without_secrets(stderr.as_bytes()), shown);
        }
    }

    #[test]
    fn plugin_credentials_are_parsed_from_json_and_yaml() {
        let json = br#"{"kind":"ExecCredential","apiVersion":"v","status":{"token":"t","expirationTimestamp":"2030-01-01T00:00:00Z"}}"#;
        let credential = parse(json, "v").unwrap();
        assert_eq!(credential.authorization.unwrap(), "Bearer t");
        assert!(credential.expires.is_some() && credential.certificate.is_none());
        let yaml = b"kind: ExecCredential\napiVersion: v\nstatus:\n  clientCertificateData: c\n  clientKeyData: k\n";
        assert!(parse(yaml, "v").unwrap().certificate.is_some());
        for bad in ["{}", r#"{"status":{}}"#, r#"{"status":{"clientKeyData":"k"}}"#, r#"{"status":{"token":"a\nb"}}"#] {
            let bad = bad.replacen('{', r#"{"apiVersion":"v","#, 1).replace(",}", "}");
            assert!(parse(bad.as_bytes(), "v").is_err(), "{bad}");
        }
        assert!(parse(b"", "v").is_err());
    }

    #[test]
    fn plugin_output_with_another_api_version_is_refused() {
        for (answered, is_accepted) in
            [(r#""apiVersion":"a/v1","#, true), (r#""apiVersion":"a/v1beta1","#, false), ("", false)]
        {
            let output = format!(r#"{{{answered}"status":{{"token":"t"}}}}"#);
            assert_eq!(parse(output.as_bytes(), "a/v1").is_ok(), is_accepted, "{output}");
        }
    }
}
