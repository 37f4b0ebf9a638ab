//! The acceptance of objects against each other and against other sources.

mod commands;
mod conflicts;
mod credentials;
mod decisions;
mod disappearance;
mod figures;
mod files;
mod items;
mod property;
mod registries;
mod remembered;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_apimachinery::{ClusterName, ObjectDecoder, Snapshot};
use tributary_crds::InsecureMembers;
use tributary_proxy::{CommandPolicy, DialPolicy};
use tributary_sources::ClusterSpec;
use tributary_sources::clusters::indices::IndexOwners;

use super::*;
use crate::placement_decisions::ListedDecisions;
use crate::{AccessProviders, OwnEndpoint};

/// The certificate of a CA, in base64 as in a Secret.
fn authority() -> Value {
    static AUTHORITY: LazyLock<String> = LazyLock::new(|| {
        let key = rcgen::KeyPair::generate().unwrap();
        STANDARD.encode(rcgen::CertificateParams::default().self_signed(&key).unwrap().pem())
    });
    json!(*AUTHORITY)
}

/// The flags of a listener at `127.0.0.1:7443` with the merged view's host `all.example.com`.
fn rules() -> HubRules {
    HubRules {
        namespace: "ns".to_owned(),
        reserved_names: vec!["reviewer".to_owned()],
        insecure: InsecureMembers::Allowed,
        dial_policy: Arc::new(DialPolicy::default()),
        command_policy: Arc::default(),
        access_providers: Some(Arc::new(AccessProviders::parse(commands::PROVIDERS).unwrap())),
        own: OwnEndpoint {
            address: Some("127.0.0.1:7443".parse().unwrap()),
            merged_hosts: vec!["all.example.com".parse().unwrap()],
            local_hosts: vec!["localhost".parse().unwrap()],
        },
    }
}

/// A hub in memory, and the objects in force.
#[derive(Default)]
struct Hub {
    objects: BTreeMap<(usize, String), Value>,
    secrets: BTreeMap<String, Value>,
    /// The items of each readable source, the Secrets of a source with the name `SOURCE/secrets`, and Karmada's
    /// ResourceRegistries with the name `SOURCE/registries`.
    lists: BTreeMap<String, BTreeMap<String, Value>>,
    in_force: InForce,
    guard: DisappearanceGuard,
    version: u64,
    others: Vec<Arc<ClusterSpec>>,
    indexes: IndexOwners,
    has_no_merged_host: bool,
    decisions: ListedDecisions,
    /// The ClusterSources of files.
    file_sources: Vec<ClusterSource>,
    /// The values of `--exec-allow`.
    allowed_commands: Vec<String>,
}

impl Hub {
    fn put(&mut self, kind: HubKind, name: &str, mut document: Value) {
        self.version += 1;
        let key = (kind as usize, name.to_owned());
        let before = self.objects.get(&key);
        let uid = before.map_or(json!(format!("uid-{}", self.version)), |before| before["metadata"]["uid"].clone());
        let generation = before.and_then(|before| before["metadata"]["generation"].as_i64()).unwrap_or_default() + 1;
        let created = format!("2026-01-01T00:{:02}:{:02}Z", self.version / 60, self.version % 60);
        let created = before.map_or(json!(created), |before| before["metadata"]["creationTimestamp"].clone());
        document["apiVersion"] = json!(tributary_crds::API_VERSION);
        document["kind"] = json!(kind.as_str());
        document["metadata"] = json!({
            "name": name, "uid": uid, "generation": generation, "creationTimestamp": created,
            "resourceVersion": self.version.to_string(),
        });
        self.objects.insert(key, document);
    }

    /// Creates or changes a member with a Secret of the same name.
    fn put_member(&mut self, name: &str, more: Value) {
        self.put_secret(name, json!({"token": "dA==", "ca.crt": authority()}));
        let mut spec = json!({
            "endpoints": [format!("https://{name}.example:6443")],
            "secretRef": {"name": name},
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.put(HubKind::UpstreamCluster, name, json!({ "spec": spec }));
    }

    fn put_secret(&mut self, name: &str, data: Value) {
        self.version += 1;
        let metadata = json!({
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": self.version.to_string(),
            "annotations": {"tributary.dev/credential-of": name},
        });
        self.secrets
            .insert(name.to_owned(), json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}));
    }

    fn delete_member(&mut self, name: &str) {
        self.objects.remove(&(HubKind::UpstreamCluster as usize, name.to_owned()));
    }

    fn snapshot(&self) -> HubSnapshot {
        let decoder = ObjectDecoder::new("", "", Arc::default());
        let collect = |documents: Vec<&Value>| {
            let mut snapshot = Snapshot::default();
            for document in documents {
                snapshot.insert(Arc::new(decoder.decode(document.to_string().as_bytes()).unwrap()));
            }
            Some(snapshot)
        };
        let of_kind = |kind: usize| {
            collect(self.objects.iter().filter(|((own, _), _)| *own == kind).map(|(_, document)| document).collect())
        };
        let list = |name: &str| collect(self.lists.get(name).into_iter().flat_map(BTreeMap::values).collect());
        let names = self.lists.keys().filter(|name| !name.contains('/'));
        let sources = names.filter_map(|name| {
            let secrets = list(&format!("{name}/secrets"));
            let registries = format!("{name}/registries");
            let registries = self.lists.contains_key(&registries).then(|| list(&registries)).flatten();
            Some((name.clone(), ListedSource { items: list(name)?, secrets, registries, is_current: true }))
        });
        HubSnapshot {
            objects: std::array::from_fn(of_kind),
            secrets: collect(self.secrets.values().collect()),
            sources: sources.collect(),
            decisions: self.decisions.clone(),
            is_current: true,
        }
    }

    async fn accept(&mut self) -> Acceptance {
        self.accept_checked(&|_| Ok(())).await
    }

    async fn accept_checked(&mut self, check: ConfigurationCheck<'_>) -> Acceptance {
        self.accept_snapshot(&self.snapshot(), check).await
    }

    async fn accept_snapshot(&mut self, snapshot: &HubSnapshot, check: ConfigurationCheck<'_>) -> Acceptance {
        let mut rules = rules();
        if self.has_no_merged_host {
            rules.own.merged_hosts.clear();
        }
        let allowed = self.allowed_commands.iter().map(|command| command.parse().unwrap());
        rules.command_policy = Arc::new(CommandPolicy::new(allowed.collect()));
        let mut base = LoadedConfiguration { clusters: self.others.clone(), ..LoadedConfiguration::default() };
        base.objects.sources.clone_from(&self.file_sources);
        let others = OtherSources { configuration: &base, indexes: self.indexes.clone() };
        accept(&mut self.in_force, &mut self.guard, snapshot, &others, &rules, check).await
    }
}

/// The names of the clusters in force, and the reasons of refusals by object.
fn outcome(accepted: &Acceptance) -> (Vec<String>, Vec<String>) {
    let mut names: Vec<String> = accepted.configuration.clusters.iter().map(|spec| spec.name.to_string()).collect();
    names.sort();
    let refused = accepted.verdicts.iter().filter(|verdict| verdict.accepted.reason != "Accepted");
    let mut refused: Vec<String> =
        refused.map(|verdict| format!("{} {}", verdict.object.name, verdict.accepted.reason)).collect();
    refused.sort();
    (names, refused)
}

fn assert_outcome(accepted: &Acceptance, names: &[&str], refused: &[&str]) {
    let (found, reasons) = outcome(accepted);
    assert_eq!(
        (found.iter().map(String::as_str).collect::<Vec<_>>(), reasons.iter().map(String::as_str).collect::<Vec<_>>()),
        (names.to_vec(), refused.to_vec())
    );
}

const GATEWAY_TYPE: &str = "cluster.core.oam.dev/cluster-credential-type";

impl Hub {
    fn put_source(&mut self, name: &str, spec: Value) {
        self.put(HubKind::ClusterSource, name, json!({ "spec": spec }));
        self.lists.entry(name.to_owned()).or_default();
    }

    fn put_gateway_source(&mut self, name: &str) {
        self.put_source(name, json!({"clusterGatewaySecrets": {"namespace": "vela-system"}}));
    }

    /// Creates or changes an item of a source. An item keeps its uid and creation time.
    fn put_item(&mut self, source: &str, name: &str, document: Value) {
        self.version += 1;
        let version = self.version;
        let items = self.lists.entry(source.to_owned()).or_default();
        let before = items.get(name).map(|before| before["metadata"].clone()).unwrap_or_default();
        let uid = before["uid"].as_str().map_or(format!("uid-{version}"), str::to_owned);
        let created = before["creationTimestamp"].as_str();
        let created = created.map_or(format!("2026-01-01T00:{:02}:{:02}Z", version / 60, version % 60), str::to_owned);
        let mut document = document;
        let metadata = &mut document["metadata"];
        metadata["name"] = json!(name);
        metadata["uid"] = json!(uid);
        metadata["resourceVersion"] = json!(version.to_string());
        metadata["creationTimestamp"] = json!(created);
        items.insert(name.to_owned(), document);
    }

    /// Creates or changes a Secret of cluster-gateway. Data with `null` is removed.
    fn put_gateway_secret(&mut self, name: &str, data: Value, annotations: Value) {
        let mut all = json!({"endpoint": format!("https://{name}.example:6443"), "token": "dG9rZW4="});
        all.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        let endpoint = all["endpoint"].as_str().unwrap_or_default().to_owned();
        all["endpoint"] = json!(STANDARD.encode(endpoint));
        if all.get("ca.crt").is_none() {
            all["ca.crt"] = authority();
        }
        all.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let metadata = json!({
            "namespace": "vela-system", "labels": {GATEWAY_TYPE: "ServiceAccountToken"}, "annotations": annotations,
        });
        self.put_item(
            "kubevela",
            name,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": all}),
        );
    }

    fn delete_item(&mut self, source: &str, name: &str) {
        self.lists.get_mut(source).unwrap().remove(name);
    }
}

/// The accepted items of a source with their members, and the reasons of refusals, both with the name of the item.
fn items(accepted: &Acceptance, source: &str) -> Vec<String> {
    let verdict = accepted.verdicts.iter().find(|verdict| verdict.object.name == source).unwrap();
    let items = verdict.source.as_ref().unwrap().items.as_ref().unwrap();
    let line = |item: &ItemVerdict| {
        let member = item.member.as_deref().unwrap_or("-");
        format!("{} {member} {}", item.name, item.accepted.reason)
    };
    items.iter().map(line).collect()
}

/// A check of the whole configuration that refuses some names.
fn no_bad_member(configuration: &LoadedConfiguration) -> Result<(), String> {
    let bad = configuration.clusters.iter().find(|spec| spec.name.as_str().starts_with("bad"));
    bad.map_or(Ok(()), |spec| Err(format!("{} leads to this server", spec.name)))
}

/// Creates a Cluster of Karmada with its Secret.
fn put_karmada_cluster(hub: &mut Hub, name: &str, labels: Value) {
    let reference = json!({"namespace": "karmada-cluster", "name": name});
    hub.put_item(
        "karmada",
        name,
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"labels": labels},
            "spec": {"apiEndpoint": format!("https://{name}.example"), "secretRef": reference}}),
    );
    let owner = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": name,
        "uid": hub.lists["karmada"][name]["metadata"]["uid"]});
    let metadata = json!({"namespace": "karmada-cluster", "ownerReferences": [owner]});
    let data = json!({"token": "dG9rZW4=", "caBundle": authority()});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    hub.put_item("karmada/secrets", name, secret);
}

#[tokio::test]
async fn resource_registries_of_karmada_register_resources_of_its_members() {
    let mut hub = Hub::default();
    hub.put_source("karmada", json!({"karmadaClusters": {}}));
    put_karmada_cluster(&mut hub, "eu", json!({"tier": "prod"}));
    put_karmada_cluster(&mut hub, "us", json!({}));
    hub.put_member("own", json!({}));
    let registered = |accepted: &Acceptance| -> Vec<Value> {
        let registries = accepted.configuration.objects.registries.iter();
        registries.map(|own| json!([own.spec.resources, own.spec.clusters.names])).collect()
    };
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["eu", "own", "us"], &[]);
    assert_eq!(registered(&accepted), [Value::Null; 0]);
    let registry = |target: Value, kind: &str| {
        json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry", "metadata": {},
            "spec": {"targetCluster": target, "backendStore": {"openSearch": {}},
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": kind}]}})
    };
    hub.put_item("karmada/registries", "all", registry(json!({}), "Deployment"));
    let prod = json!({"labelSelector": {"matchLabels": {"tier": "prod"}}});
    hub.put_item("karmada/registries", "prod", registry(prod, "DaemonSet"));
    let accepted = hub.accept().await;
    assert!(accepted.is_changed);
    let expected = [json!([["daemonsets.apps"], ["eu"]]), json!([["deployments.apps"], ["eu", "us"]])];
    assert_eq!(registered(&accepted), expected);
    assert_eq!(accepted.problems.len(), 2, "{:?}", accepted.problems);
    let source = &accepted.configuration.sources[&ClusterName::new("eu").unwrap()];
    assert_eq!((source.kind, &*source.name, source.item.as_deref()), ("ClusterSource", "karmada", Some("Cluster eu")));
    // Without an answer of the hub, also after a restart, the last ones stay.
    hub.lists.remove("karmada/registries");
    hub.in_force = serde_json::from_value(serde_json::to_value(&hub.in_force).unwrap()).unwrap();
    assert_eq!(registered(&hub.accept().await), expected);
    // A registry of Tributary has priority.
    hub.put(HubKind::ResourceRegistry, "own", json!({"spec": {"resources": ["deployments.apps"]}}));
    assert_eq!(registered(&hub.accept().await), [json!([["deployments.apps"], []]), expected[0].clone()]);
    hub.objects.remove(&(HubKind::ClusterSource as usize, "karmada".to_owned()));
    assert_eq!(registered(&hub.accept().await), [json!([["deployments.apps"], []])]);
}
