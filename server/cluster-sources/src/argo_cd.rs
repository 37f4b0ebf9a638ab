//! Cluster Secrets of Argo CD. Source: argoproj/argo-cd `SecretToCluster` in `util/db/cluster.go`, and ClusterConfig in
//! `pkg/apis/application/v1alpha1/types.go`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tributary_crds::SecretText;

use crate::SourceRefusal;
use crate::credential_command::{CommandFields, CredentialCommand, aws_command, refuse_variables};
use crate::credential_text::{choose_credentials, read_pem_data, read_token};
use crate::draft::{ItemCredential, ItemDraft};
use crate::item::NamespaceScope;
use crate::object_metadata::or_null;
use crate::secret::Secret;
use crate::server_trust::{ServerTrust, UnverifiedServers};
use crate::url::{read_endpoint, read_proxy};

/// Label selector of the Secrets that describe clusters.
pub(crate) const LABEL: &str = "argocd.argoproj.io/secret-type=cluster";

const SERVER: &str = "server";
const CONFIG: &str = "config";

/// Names of the fields with credentials, for error messages.
const FIELDS: &str = "bearerToken, or tlsClientConfig with certData and keyData";

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterConfig {
    #[serde(deserialize_with = "or_null")]
    username: String,
    #[serde(deserialize_with = "or_null")]
    password: SecretText,
    #[serde(deserialize_with = "or_null")]
    bearer_token: SecretText,
    #[serde(rename = "tlsClientConfig", deserialize_with = "or_null")]
    tls: TlsClientConfig,
    #[serde(rename = "awsAuthConfig")]
    aws: Option<AwsAuthConfig>,
    #[serde(rename = "execProviderConfig")]
    exec: Option<ExecProviderConfig>,
    #[serde(deserialize_with = "or_null")]
    proxy_url: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AwsAuthConfig {
    #[serde(deserialize_with = "or_null")]
    cluster_name: String,
    #[serde(rename = "roleARN", deserialize_with = "or_null")]
    role: String,
    #[serde(deserialize_with = "or_null")]
    profile: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecProviderConfig {
    #[serde(deserialize_with = "or_null")]
    command: String,
    #[serde(deserialize_with = "or_null")]
    args: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    env: BTreeMap<String, SecretText>,
    #[serde(deserialize_with = "or_null")]
    api_version: String,
    #[serde(deserialize_with = "or_null")]
    provide_cluster_info: bool,
    config: Option<Value>,
}

/// `caData`, `certData` and `keyData` contain base64 of PEM text.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TlsClientConfig {
    #[serde(deserialize_with = "or_null")]
    insecure: bool,
    #[serde(deserialize_with = "or_null")]
    server_name: String,
    #[serde(deserialize_with = "or_null")]
    ca_data: String,
    #[serde(deserialize_with = "or_null")]
    cert_data: String,
    #[serde(deserialize_with = "or_null")]
    key_data: SecretText,
}

pub(crate) fn read_argo_cd_secret(secret: Secret, unverified: UnverifiedServers) -> Result<ItemDraft, SourceRefusal> {
    let place = secret.place(CONFIG);
    let endpoint = read_endpoint(&secret.text(SERVER)?.unwrap_or_default(), &secret.place(SERVER))?;
    let config: ClusterConfig = match secret.text(CONFIG)? {
        // The parser's message is omitted, because it can quote secrets.
        Some(text) => serde_json::from_str(&text).map_err(|_| {
            SourceRefusal::new(
                "Unreadable",
                format!("{place} is not a JSON object of Argo CD's form. Correct the value."),
            )
        })?,
        None => ClusterConfig::default(),
    };
    refuse_passwords(&config, &place)?;
    let at = |field: &str| format!("{place}: {field}");
    let proxy = read_proxy(&config.proxy_url, &at("proxyUrl"))?;
    let switch = at("tlsClientConfig.insecure");
    let switch = config.tls.insecure.then_some(switch.as_str());
    let authorities = at("tlsClientConfig.caData");
    let ca_data = read_pem_data(&config.tls.ca_data, &authorities)?;
    let trust = ServerTrust::decide(ca_data, &authorities, switch, unverified)?;
    let tls_server_name = Some(config.tls.server_name.clone()).filter(|name| !name.is_empty());
    let credential = read_credential(config, &place)?;

    let foreign_name = secret.text("name")?.unwrap_or_else(|| secret.metadata.name.clone());
    let scope = read_scope(&secret)?;
    let mut draft = ItemDraft::new(&foreign_name, secret.metadata)?;
    draft.connect(endpoint, trust, credential);
    draft.spec.proxy_url = proxy;
    draft.spec.tls_server_name = tls_server_name;
    draft.scope = scope;
    Ok(draft)
}

fn refuse_passwords(config: &ClusterConfig, place: &str) -> Result<(), SourceRefusal> {
    for (field, is_set) in
        [("username", !config.username.is_empty()), ("password", !config.password.expose().is_empty())]
    {
        if is_set {
            let message = format!("{place}: {field} is not allowed. Give {FIELDS}.");
            return Err(SourceRefusal::new("PasswordNotAllowed", message));
        }
    }
    Ok(())
}

/// Returns the credential by the precedence of Argo CD: `awsAuthConfig`, `execProviderConfig`, then the stored one.
fn read_credential(config: ClusterConfig, place: &str) -> Result<ItemCredential, SourceRefusal> {
    if let Some(aws) = config.aws {
        if aws.cluster_name.is_empty() {
            let message =
                format!("{place}: awsAuthConfig.clusterName is missing. Give the name of the cluster in AWS.");
            return Err(SourceRefusal::new("InvalidExec", message));
        }
        return Ok(aws_command(&aws.cluster_name, &aws.role, &aws.profile).into());
    }
    if let Some(exec) = config.exec {
        return read_command(exec, &format!("{place}: execProviderConfig")).map(Into::into);
    }
    let TlsClientConfig { cert_data, key_data, .. } = &config.tls;
    let token = read_token(config.bearer_token.expose(), &format!("{place}: bearerToken"))?;
    let certificate = read_pem_data(cert_data, &format!("{place}: tlsClientConfig.certData"))?;
    let key = read_pem_data(key_data.expose(), &format!("{place}: tlsClientConfig.keyData"))?;
    choose_credentials(token, certificate, key, place, FIELDS).map(Into::into)
}

fn read_command(exec: ExecProviderConfig, place: &str) -> Result<CredentialCommand, SourceRefusal> {
    if !exec.env.is_empty() {
        return Err(refuse_variables(place));
    }
    let fields = CommandFields {
        api_version: exec.api_version,
        command: exec.command,
        args: exec.args,
        env: Vec::new(),
        provide_cluster_info: exec.provide_cluster_info,
    };
    let command = fields.check_foreign(place)?;
    Ok(CredentialCommand { cluster_config: exec.config, ..command })
}

/// Returns the namespaces to which Argo CD is limited in the cluster; `None` if Argo CD manages all namespaces.
fn read_scope(secret: &Secret) -> Result<Option<NamespaceScope>, SourceRefusal> {
    let text = secret.text("namespaces")?.unwrap_or_default();
    let namespaces: Vec<String> =
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let cluster_resources = secret.text("clusterResources")?.as_deref() == Some("true");
    Ok(Some(NamespaceScope { namespaces, cluster_resources }).filter(|scope| !scope.namespaces.is_empty()))
}
