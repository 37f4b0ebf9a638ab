//! The fuzzed properties of objects in the lists of clusters that a ClusterSource reads.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_apimachinery::{ClusterName, Object, ObjectDecoder, Snapshot};
use tributary_authentication::{ExchangedIdentity, IdentityRules, UserInfo};
use tributary_cluster_sources::{
    AccessProviders, KarmadaRegistry, Program, Secrets, SourceItem, SourceKind, SourceReader,
    convert_karmada_registries, parse_identity_rules,
};
use tributary_crds::{ClusterSource, ClusterSourceSpec, InsecureMembers};

use crate::choice;

/// Provider `a` ignores the arguments and variables of profiles; provider `b` allows them.
const PROVIDERS: &str = r#"{"providers": [
    {"name": "a", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/a"}},
    {"name": "b", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/b"},
     "profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "AppendIfNotExists"}]}"#;

/// The first byte chooses a list, and the rest is an object of the list as JSON. A Secret may follow after a NUL byte.
/// The first byte can also choose the file of access providers, whose commands are absolute paths.
/// `stringData` has the values of a Secret as text. The reading of an object is repeatable. An accepted member has a
/// valid name, only `https://` endpoints without user information, authorities, no file name, and a credential or a
/// command. The object is also read as a ResourceRegistry of Karmada.
pub fn cluster_source(data: &[u8]) {
    let (list, data) = choice(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if list % 8 == 7 {
        return check_providers(text);
    }
    let (object, secret) = text.split_once('\0').unwrap_or((text, "{}"));
    let decoder = ObjectDecoder::new("v1", "Secret", Arc::default());
    let Ok(object) = decoder.decode(encode_values(object).as_bytes()) else { return };
    let secrets: Snapshot = decoder.decode(encode_values(secret).as_bytes()).ok().map(Arc::new).into_iter().collect();
    check_registry(&object);
    let reader = reader(list);
    let secrets = Secrets::new(Some(&secrets));
    let read = reader.read_item(&object, &secrets);
    assert_eq!(read, reader.read_item(&object, &secrets), "the same input has the same result");
    match read {
        Ok(item) => check_member(&item),
        Err(refused) => assert!(!refused.reason.is_empty() && refused.message.ends_with('.'), "{refused:?}"),
    }
}

/// Checks that a registry of Karmada without members registers nothing: no selection of members would stand for all.
fn check_registry(object: &Object) {
    let Ok(registry) = KarmadaRegistry::read(object) else { return };
    assert!(registry.problems().iter().all(|problem| problem.contains("Karmada")));
    assert!(convert_karmada_registries(&[registry], &[], &[]).is_empty());
}

fn reader(list: u8) -> SourceReader {
    let secrets = json!({"namespace": "ns"});
    let spec = match list % 8 {
        0 => json!({"clusterGatewaySecrets": secrets, "identity": {"type": "Rules", "rules": [
            {"type": "PrivilegedIdentityExchanger", "source": {"group": "admins"}},
        ]}}),
        1 => json!({"karmadaClusters": {"namespace": "ns"}}),
        2 => json!({"kubeconfigSecrets": secrets}),
        3 => json!({"argoCDSecrets": secrets, "placementLabels": ["*"]}),
        4 => json!({"managedClusters": {"managedServiceAccount": "msa"}}),
        5 => json!({"kubeGatewayClusters": {}}),
        _ => json!({"clusterProfiles": {}}),
    };
    let spec: ClusterSourceSpec = serde_json::from_value(spec).expect("a source");
    let providers = Arc::new(AccessProviders::parse(PROVIDERS).expect("a valid file"));
    SourceReader::new(&ClusterSource::new("source", spec), InsecureMembers::Refused, Some(&providers))
        .expect("a valid source")
}

fn check_providers(text: &str) {
    let Ok(providers) = AccessProviders::parse(text) else { return };
    for command in providers.commands() {
        assert!(matches!(&command.program, Program::Path(path) if path.starts_with('/')), "{command:?}");
        assert!(command.cluster_config.is_none(), "only a profile has a configuration of its cluster");
    }
}

/// Encodes the texts in `stringData` as base64 in `data`, so that a random change of the input changes a value of the
/// Secret.
fn encode_values(document: &str) -> String {
    let Ok(mut document) = serde_json::from_str::<Value>(document) else { return document.to_owned() };
    let Some(Value::Object(texts)) = document.get("stringData").cloned() else { return document.to_string() };
    let values = texts.iter().filter_map(|(key, text)| Some((key.clone(), json!(STANDARD.encode(text.as_str()?)))));
    document["data"] = values.collect::<serde_json::Map<_, _>>().into();
    document.to_string()
}

fn check_member(item: &SourceItem) {
    let (name, spec) = (item.name.as_str(), &item.spec);
    assert!(ClusterName::new(name).is_ok() && name != "local", "{name}");
    assert!(!spec.endpoints.is_empty());
    for endpoint in &spec.endpoints {
        assert!(endpoint.starts_with("https://") && !endpoint.contains(['@', '?', '#', '\n']), "{endpoint}");
    }
    assert!(spec.proxy_url.as_ref().is_none_or(|url| !url.contains('@') || url.contains('/')), "{:?}", spec.proxy_url);
    assert!(spec.ca_data.is_some() && !spec.insecure_skip_verify, "the servers are verified");
    assert!(spec.ca_file.is_none() && spec.kubeconfig.is_none() && spec.secret_ref.is_none());
    if let Some(command) = &item.command {
        let is_named = match &command.program {
            Program::Path(path) => path.starts_with('/'),
            Program::FileName(name) => name == "argocd-k8s-auth",
        };
        assert!(is_named && spec.credentials.is_none(), "{command:?}");
        let may_have_variables = item.list == SourceKind::ClusterProfiles;
        assert!(command.env.is_empty() || may_have_variables, "only the file allows variables");
        return;
    }
    let credentials = spec.credentials.as_ref().expect("a credential");
    let files = [&credentials.token_file, &credentials.client_certificate_file, &credentials.client_key_file];
    assert!(files.into_iter().all(Option::is_none), "no file of this machine");
}

/// The input is a ClusterGatewayProxyConfiguration. The name of a user and a NUL byte may precede it. A rule that
/// matches strictly also matches loosely, and rules that are followed by no rules stay as they are.
pub fn identity_rules(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (user, text) = text.split_once('\0').unwrap_or(("ann", text));
    let Ok(loose) = parse_identity_rules(text, false, "rules") else { return };
    let Ok(strict) = parse_identity_rules(text, true, "rules") else { return };
    let groups = vec!["dev-eu".to_owned(), user.to_owned()];
    let caller = UserInfo { username: user.to_owned(), groups, uid: "7".to_owned(), ..UserInfo::default() };
    let found = loose.exchange(&caller, "eu");
    assert_eq!(found, loose.exchange(&caller, "eu"));
    assert_eq!(loose.clone().followed_by(&IdentityRules::default()), loose);
    assert!(
        found != ExchangedIdentity::Caller || strict.exchange(&caller, "eu") == ExchangedIdentity::Caller,
        "a whole name is also a part of the name"
    );
}
