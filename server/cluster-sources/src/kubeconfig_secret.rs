//! Kubeconfig Secrets of multicluster-runtime. Source: multicluster-runtime `providers/kubeconfig`. A kubeconfig that
//! names files or commands is refused, because they would be used on Tributary's machine.

use serde::Deserialize;
use serde_json::Value;
use tributary_crds::{Credentials, SecretText};

use crate::SourceRefusal;
use crate::credential_text::{choose_credentials, read_pem_data, read_token};
use crate::draft::ItemDraft;
use crate::object_metadata::or_null;
use crate::secret::Secret;
use crate::server_trust::{ServerTrust, UnverifiedServers};
use crate::url::{read_endpoint, read_proxy};

/// Label selector of the Secrets that describe clusters.
pub(crate) const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig=true";

const KUBECONFIG: &str = "kubeconfig";

/// Names of the fields with credentials, for error messages.
const FIELDS: &str = "token, or client-certificate-data and client-key-data";

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default, deserialize_with = "or_null")]
    current_context: String,
    #[serde(default, deserialize_with = "or_null")]
    contexts: Vec<KubeconfigEntry>,
    #[serde(default, deserialize_with = "or_null")]
    clusters: Vec<KubeconfigEntry>,
    #[serde(default, deserialize_with = "or_null")]
    users: Vec<KubeconfigEntry>,
}

/// A named entry in a kubeconfig's list of contexts, clusters or users. The fields of the entry are decoded only after
/// its name matches.
#[derive(Deserialize)]
struct KubeconfigEntry {
    name: String,
    #[serde(flatten)]
    entry: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KubeconfigContext {
    cluster: String,
    #[serde(deserialize_with = "or_null")]
    user: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct KubeconfigCluster {
    server: String,
    #[serde(deserialize_with = "or_null")]
    certificate_authority_data: String,
    #[serde(deserialize_with = "or_null")]
    certificate_authority: String,
    #[serde(deserialize_with = "or_null")]
    insecure_skip_tls_verify: bool,
    #[serde(deserialize_with = "or_null")]
    proxy_url: String,
    #[serde(deserialize_with = "or_null")]
    tls_server_name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct KubeconfigUser {
    #[serde(deserialize_with = "or_null")]
    token: SecretText,
    #[serde(rename = "tokenFile", deserialize_with = "or_null")]
    token_file: String,
    #[serde(deserialize_with = "or_null")]
    client_certificate_data: String,
    #[serde(deserialize_with = "or_null")]
    client_key_data: SecretText,
    #[serde(deserialize_with = "or_null")]
    client_certificate: String,
    #[serde(deserialize_with = "or_null")]
    client_key: String,
    username: Option<Value>,
    password: Option<Value>,
    exec: Option<Value>,
    auth_provider: Option<Value>,
    #[serde(rename = "as")]
    impersonated: Option<Value>,
}

pub(crate) fn read_kubeconfig_secret(
    secret: Secret,
    unverified: UnverifiedServers,
) -> Result<ItemDraft, SourceRefusal> {
    let place = secret.place(KUBECONFIG);
    let Some(text) = secret.text(KUBECONFIG)? else {
        let message = format!("{place} is missing or empty. Add the key with a kubeconfig.");
        return Err(SourceRefusal::new("MissingCredential", message));
    };
    // The parser's message is omitted, because it can quote secrets.
    let options = serde_saphyr::options! { with_snippet: false };
    let kubeconfig: Kubeconfig = serde_saphyr::from_str_with_options(&text, options).map_err(|_| {
        SourceRefusal::new("Unreadable", format!("{place} is not a kubeconfig. Write the kubeconfig as YAML or JSON."))
    })?;
    let (cluster, user) = choose_context(kubeconfig, &place)?;
    let at_cluster = |field: &str| format!("{place}: cluster.{field}");
    refuse_files(&cluster, &user, &place)?;
    let endpoint = read_endpoint(&cluster.server, &at_cluster("server"))?;
    let proxy = read_proxy(&cluster.proxy_url, &at_cluster("proxy-url"))?;
    let switch = at_cluster("insecure-skip-tls-verify");
    let switch = cluster.insecure_skip_tls_verify.then_some(switch.as_str());
    let authorities = at_cluster("certificate-authority-data");
    let ca_data = read_pem_data(&cluster.certificate_authority_data, &authorities)?;
    let trust = ServerTrust::decide(ca_data, &authorities, switch, unverified)?;
    let credentials = read_user(&user, &place)?;

    let mut draft = ItemDraft::new(&secret.metadata.name.clone(), secret.metadata)?;
    draft.connect(endpoint, trust, credentials);
    draft.spec.proxy_url = proxy;
    draft.spec.tls_server_name = Some(cluster.tls_server_name).filter(|name| !name.is_empty());
    Ok(draft)
}

/// Returns the cluster and the user of the current context.
fn choose_context(kubeconfig: Kubeconfig, place: &str) -> Result<(KubeconfigCluster, KubeconfigUser), SourceRefusal> {
    let Kubeconfig { current_context, contexts, clusters, users } = kubeconfig;
    let context: KubeconfigContext = find_entry(&contexts, "context", &current_context, place)?;
    let cluster = find_entry(&clusters, "cluster", &context.cluster, place)?;
    let user = match context.user.as_str() {
        "" => KubeconfigUser::default(),
        name => find_entry(&users, "user", name, place)?,
    };
    Ok((cluster, user))
}

fn find_entry<T: for<'de> Deserialize<'de>>(
    entries: &[KubeconfigEntry],
    kind: &str,
    name: &str,
    place: &str,
) -> Result<T, SourceRefusal> {
    let entry = entries.iter().find(|named| named.name == name).map(|named| named.entry[kind].clone());
    let Some(entry) = entry else {
        let message = format!("{place} has no {kind} {name:?}. Correct current-context or the entries of the context.");
        return Err(SourceRefusal::new("Unreadable", message));
    };
    serde_json::from_value(entry).map_err(|_| {
        let message = format!("{place}: a field of {kind} {name:?} has a wrong type. Correct the kubeconfig.");
        SourceRefusal::new("Unreadable", message)
    })
}

/// Refuses a kubeconfig with paths of files, because Tributary would read these files on its own machine.
fn refuse_files(cluster: &KubeconfigCluster, user: &KubeconfigUser, place: &str) -> Result<(), SourceRefusal> {
    for (field, path, data) in [
        ("cluster.certificate-authority", &cluster.certificate_authority, "certificate-authority-data"),
        ("user.client-certificate", &user.client_certificate, "client-certificate-data"),
        ("user.client-key", &user.client_key, "client-key-data"),
        ("user.tokenFile", &user.token_file, "token"),
    ] {
        if !path.is_empty() {
            let message = format!("{place}: {field} names a file. Give the content in {data}.");
            return Err(SourceRefusal::new("FileNotAllowed", message));
        }
    }
    Ok(())
}

fn read_user(user: &KubeconfigUser, place: &str) -> Result<Credentials, SourceRefusal> {
    for (field, value, reason) in [
        ("exec", &user.exec, "ExecNotAllowed"),
        ("auth-provider", &user.auth_provider, "ExecNotAllowed"),
        ("username", &user.username, "PasswordNotAllowed"),
        ("password", &user.password, "PasswordNotAllowed"),
        ("as", &user.impersonated, "NotSupported"),
    ] {
        if value.is_some() {
            let message = format!("{place}: user.{field} is not allowed. Give {FIELDS}.");
            return Err(SourceRefusal::new(reason, message));
        }
    }
    let token = read_token(user.token.expose(), &format!("{place}: user.token"))?;
    let certificate = read_pem_data(&user.client_certificate_data, &format!("{place}: user.client-certificate-data"))?;
    let key = read_pem_data(user.client_key_data.expose(), &format!("{place}: user.client-key-data"))?;
    choose_credentials(token, certificate, key, &format!("{place}: user"), FIELDS)
}
