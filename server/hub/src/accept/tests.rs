//! The acceptance of objects against each other and against other sources.

mod commands;
mod decisions;
mod figures;
mod files;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_apimachinery::{ClusterName, ObjectDecoder, Snapshot};
use tributary_crds::InsecureMembers;
use tributary_proxy::{CommandPolicy, DialPolicy};
use tributary_router::ForeignMember;
use tributary_sources::ClusterSpec;
use tributary_sources::clusters::indices::IndexOwners;

use super::*;
use crate::placement_decisions::ListedDecisions;
use crate::{AccessProviders, OwnEndpoint};

/// An authority in the form of a Secret.
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
    /// The items of each readable source, and the Secrets of a source with the name `SOURCE/secrets`.
    lists: BTreeMap<String, BTreeMap<String, Value>>,
    in_force: InForce,
    guard: DisappearanceGuard,
    version: u64,
    others: Vec<ClusterSpec>,
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
            Some((name.clone(), ListedSource { items: list(name)?, secrets, is_current: true }))
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

#[tokio::test]
async fn refused_object_keeps_its_last_generation_and_changes_no_other_object() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.put_member("b", json!({"index": 1}));
    assert_outcome(&hub.accept().await, &["a", "b"], &[]);
    for wrong in [
        json!({"index": 10_000}),
        json!({"unknown": 1}),
        json!({"endpoints": ["http://a.example"]}),
        json!({"endpoints": ["https://a.example", "https://127.0.0.1"]}),
        json!({"endpoints": ["https://[::ffff:169.254.169.254]"]}),
        json!({"proxyURL": "http://127.0.0.1:3128"}),
        json!({"caFile": "/etc/passwd"}),
        json!({"kubeconfig": {"path": "/kubeconfig"}}),
        json!({"credentials": {"token": "hunter2"}}),
        json!({"index": 1}),
    ] {
        hub.put_member("a", wrong.clone());
        let accepted = hub.accept().await;
        let (names, refused) = outcome(&accepted);
        assert_eq!((names.len(), refused.len()), (2, 1), "{wrong}: {refused:?}");
        let verdict = accepted.verdicts.iter().find(|verdict| verdict.object.name == "a").unwrap();
        assert_eq!(verdict.generation_in_force, Some(1), "{wrong}");
        assert!(!verdict.accepted.message.contains("hunter2"));
        let spec = accepted.configuration.clusters.iter().find(|spec| spec.name.as_str() == "a").unwrap();
        assert_eq!(spec.config.as_ref().unwrap().cluster_url.host(), Some("a.example"));
    }
    hub.put_member("a", json!({"index": 2}));
    assert_outcome(&hub.accept().await, &["a", "b"], &[]);
}

#[tokio::test]
async fn object_that_was_accepted_first_wins_a_conflict() {
    let mut hub = Hub::default();
    hub.put_member("b", json!({"index": 1, "serverNames": ["b.example.com"]}));
    assert_outcome(&hub.accept().await, &["b"], &[]);
    hub.put_member("a", json!({"index": 1}));
    hub.put_member("c", json!({"serverNames": ["B.example.com"]}));
    assert_outcome(&hub.accept().await, &["b"], &["a IndexConflict", "c HostConflict"]);
    // Two new objects conflict: the older one wins.
    hub.put_member("z", json!({"index": 5}));
    hub.put_member("d", json!({"index": 5}));
    assert_outcome(&hub.accept().await, &["b", "z"], &["a IndexConflict", "c HostConflict", "d IndexConflict"]);
    // A changed object does not take the index of an unchanged one, although it was accepted first.
    hub.put_member("b", json!({"index": 5}));
    let refused = ["a IndexConflict", "b IndexConflict", "c HostConflict", "d IndexConflict"];
    assert_outcome(&hub.accept().await, &["b", "z"], &refused);
    hub.delete_member("z");
    assert_outcome(&hub.accept().await, &["a", "b", "c"], &["d IndexConflict"]);
}

#[tokio::test]
async fn cluster_that_a_flag_trusts_does_not_come_from_the_hub() {
    let mut hub = Hub::default();
    hub.put_member("reviewer", json!({}));
    assert_outcome(&hub.accept().await, &[], &["reviewer NameConflict"]);
}

#[tokio::test]
async fn member_with_an_address_or_a_host_of_this_server_is_refused() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({"endpoints": ["https://all.example.com:7443"]}));
    hub.put_member("b", json!({"endpoints": ["https://b.example.com", "https://B.example.com:7443"]}));
    hub.put_member("c", json!({"serverNames": ["All.example.com"]}));
    hub.put_member("d", json!({"serverNames": ["localhost"]}));
    hub.put_member("e", json!({"endpoints": ["https://all.example.com:6443"], "serverNames": ["e.example.com"]}));
    let mut file = ClusterSpec::new(ClusterName::new("file").unwrap(), "a file".to_owned(), Err(String::new()));
    file.hosts.names = vec!["b.example.com".parse().unwrap()];
    hub.others = vec![file];
    let refused = ["a RefusedAddress", "b RefusedAddress", "c HostConflict", "d HostConflict"];
    assert_outcome(&hub.accept().await, &["e", "file"], &refused);
}

#[tokio::test]
async fn member_has_hosts_only_if_the_merged_view_has_hosts_of_its_own() {
    let mut hub = Hub { has_no_merged_host: true, ..Hub::default() };
    hub.put_member("a", json!({"serverNames": ["a.example.com"]}));
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &[], &["a Invalid"]);
    assert!(accepted.verdicts[0].accepted.message.contains("--merged-host"));
    hub.has_no_merged_host = false;
    assert_outcome(&hub.accept().await, &["a"], &[]);
}

#[tokio::test]
async fn member_does_not_take_the_stored_index_of_a_different_cluster() {
    let mut hub = Hub::default();
    hub.indexes.0.insert(1, ClusterName::new("file").unwrap());
    hub.indexes.0.insert(2, ClusterName::new("b").unwrap());
    hub.put_member("a", json!({"index": 1}));
    hub.put_member("b", json!({"index": 2}));
    assert_outcome(&hub.accept().await, &["b"], &["a IndexConflict"]);
}

#[tokio::test]
async fn rotated_credential_takes_effect_while_the_present_generation_is_refused() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.accept().await;
    hub.put_member("a", json!({"endpoints": ["https://127.0.0.1"]}));
    hub.accept().await;
    hub.put_secret("a", json!({"token": "bmV3", "ca.crt": authority()}));
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a"], &["a RefusedAddress"]);
    assert!(accepted.is_changed);
    let resolved = hub.in_force.members["a"].resolved.as_ref().unwrap();
    assert_eq!(resolved.credentials.as_ref().unwrap().token.as_ref().unwrap().expose(), "new");
    assert!(!hub.accept().await.is_changed);
}

#[tokio::test]
async fn withdrawn_credential_ends_while_the_present_generation_is_refused() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.accept().await;
    hub.put_member("a", json!({"endpoints": ["https://127.0.0.1"]}));
    assert!(hub.accept().await.configuration.clusters[0].config.is_ok());
    let mut secret = hub.secrets["a"].clone();
    secret["metadata"]["annotations"]["tributary.dev/credential-of"] = json!("b");
    secret["metadata"]["resourceVersion"] = json!("900");
    hub.secrets.insert("a".to_owned(), secret);
    assert!(hub.accept().await.configuration.clusters[0].config.is_err());
}

#[tokio::test]
async fn refused_member_keeps_its_index_against_a_changed_member() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.put_member("b", json!({"index": 1}));
    hub.accept().await;
    hub.put_member("b", json!({"index": 1, "caFile": "ca.pem"}));
    hub.put_member("a", json!({"index": 1}));
    assert_outcome(&hub.accept().await, &["a", "b"], &["a IndexConflict", "b Invalid"]);
}

#[tokio::test]
async fn other_sources_have_priority_over_the_hub() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    assert_outcome(&hub.accept().await, &["a"], &[]);
    let config = Err("a context".to_owned());
    hub.others = vec![ClusterSpec::new(ClusterName::new("a").unwrap(), "context \"a\"".to_owned(), config)];
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a"], &["a NameConflict"]);
    assert!(!accepted.configuration.clusters[0].is_from_hub);
    hub.others.clear();
    assert_outcome(&hub.accept().await, &["a"], &[]);
}

#[tokio::test]
async fn member_keeps_its_credential_unless_the_secret_refuses_it() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.accept().await;
    let state = |accepted: &Acceptance| {
        let verdict = &accepted.verdicts[0];
        let is_connected = accepted.configuration.clusters[0].config.is_ok();
        (verdict.resolved_refs.clone().unwrap().reason, is_connected)
    };
    let secret = hub.secrets.remove("a").unwrap();
    assert_eq!(state(&hub.accept().await), ("SecretNotFound".to_owned(), true));
    hub.put_secret("a", json!({"other": "dA=="}));
    assert_eq!(state(&hub.accept().await), ("KeyNotFound".to_owned(), true));
    hub.put_secret("a", json!({"token": "eA=="}));
    assert_eq!(state(&hub.accept().await), ("KeyNotFound".to_owned(), true), "no authorities");
    hub.put_secret("a", json!({"token": "eA==", "ca.crt": authority()}));
    let accepted = hub.accept().await;
    assert_eq!(state(&accepted), ("Resolved".to_owned(), true));
    let mut foreign = secret.clone();
    foreign["metadata"]["annotations"]["tributary.dev/credential-of"] = json!("b");
    foreign["metadata"]["resourceVersion"] = json!("900");
    hub.secrets.insert("a".to_owned(), foreign);
    assert_eq!(state(&hub.accept().await), ("SecretOfOtherCluster".to_owned(), false));
    let mut limited = secret;
    limited["metadata"]["annotations"]["tributary.dev/hosts"] = json!("b.example, c.example");
    limited["metadata"]["resourceVersion"] = json!("901");
    hub.secrets.insert("a".to_owned(), limited.clone());
    assert_eq!(state(&hub.accept().await), ("HostNotAllowed".to_owned(), false));
    limited["metadata"]["annotations"]["tributary.dev/hosts"] = json!("A.example");
    limited["metadata"]["resourceVersion"] = json!("902");
    hub.secrets.insert("a".to_owned(), limited);
    assert_eq!(state(&hub.accept().await), ("Resolved".to_owned(), true));
    // A proxy and authorities of the object's own would lead the credential to a different server.
    let mut object = hub.objects[&(HubKind::UpstreamCluster as usize, "a".to_owned())].clone();
    for (field, value, reason) in [
        ("proxyURL", json!("http://evil.example:3128"), "HostNotAllowed"),
        ("caData", authority(), "AuthoritiesNotAllowed"),
        ("insecureSkipVerify", json!(true), "AuthoritiesNotAllowed"),
    ] {
        let before = object.clone();
        object["spec"][field] = value;
        hub.put(HubKind::UpstreamCluster, "a", object);
        assert_eq!(state(&hub.accept().await), (reason.to_owned(), false), "{field}");
        object = before;
    }
}

#[tokio::test]
async fn object_made_anew_gets_no_credential_of_the_earlier_object() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.accept().await;
    hub.delete_member("a");
    hub.put_member("a", json!({}));
    hub.secrets.clear();
    let accepted = hub.accept().await;
    assert!(accepted.configuration.clusters[0].config.is_err());
}

#[tokio::test(start_paused = true)]
async fn members_stay_when_most_of_them_disappear_at_once() {
    let mut hub = Hub::default();
    for name in ["a", "b", "c", "d"] {
        hub.put_member(name, json!({}));
    }
    hub.accept().await;
    hub.delete_member("a");
    assert_outcome(&hub.accept().await, &["b", "c", "d"], &[]);
    hub.put_member("a", json!({}));
    hub.accept().await;
    hub.objects.clear();
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a", "b", "c", "d"], &[]);
    tokio::time::sleep_until(accepted.decides_at.unwrap()).await;
    assert_outcome(&hub.accept().await, &[], &[]);
}

#[tokio::test(start_paused = true)]
async fn no_object_leaves_while_most_members_disappear() {
    let mut hub = Hub::default();
    for name in ["a", "b", "c", "d"] {
        hub.put_member(name, json!({}));
    }
    put_one_of_each_other_kind(&mut hub);
    hub.accept().await;
    hub.objects.retain(|(kind, name), _| *kind == HubKind::UpstreamCluster as usize && name == "a");
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a", "b", "c", "d"], &[]);
    assert_eq!(numbers_of_other_kinds(&accepted), (1, 1, 1));
    tokio::time::sleep_until(accepted.decides_at.unwrap()).await;
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a"], &[]);
    assert_eq!(numbers_of_other_kinds(&accepted), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn no_object_leaves_while_all_denied_users_disappear() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    put_one_of_each_other_kind(&mut hub);
    hub.put(HubKind::DeniedUsers, "others", json!({"deniedUsers": ["bob"]}));
    hub.accept().await;
    hub.objects.remove(&(HubKind::DeniedUsers as usize, "others".to_owned()));
    assert_eq!(hub.accept().await.denied.into_iter().collect::<Vec<_>>(), ["ann"]);
    hub.objects.clear();
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a"], &[]);
    assert_eq!(numbers_of_other_kinds(&accepted), (1, 1, 1));
    tokio::time::sleep_until(accepted.decides_at.unwrap()).await;
    assert_eq!(numbers_of_other_kinds(&hub.accept().await), (0, 0, 0));
}

fn put_one_of_each_other_kind(hub: &mut Hub) {
    hub.put(HubKind::DeniedUsers, "leavers", json!({"deniedUsers": ["ann"]}));
    hub.put(HubKind::ResourceRegistry, "pods", json!({"spec": {"resources": ["pods"]}}));
    hub.put(HubKind::MergedEndpoint, "all", json!({"spec": {}}));
}

/// The numbers of denied users, registries and MergedEndpoints in force.
fn numbers_of_other_kinds(accepted: &Acceptance) -> (usize, usize, usize) {
    let objects = &accepted.configuration.objects;
    (accepted.denied.len(), objects.registries.len(), objects.merged_endpoints.len())
}

#[tokio::test]
async fn many_conflicts_of_the_whole_configuration_refuse_only_their_causes() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.accept().await;
    hub.put_member("a", json!({"index": 1}));
    for index in 0..=40 {
        hub.put_member(&format!("bad-{index}"), json!({}));
    }
    hub.put_member("z", json!({}));
    let accepted = hub.accept_checked(&no_bad_member).await;
    let (names, refused) = outcome(&accepted);
    assert_eq!((names, refused.len()), (vec!["a".to_owned(), "z".to_owned()], 41), "{refused:?}");
    assert!(refused.iter().all(|refused| refused.starts_with("bad-") && refused.ends_with(" Conflict")));
    assert_eq!(accepted.configuration.clusters[0].index, Some(1), "the changed member has its new generation");
}

fn no_bad_member(configuration: &LoadedConfiguration) -> Result<(), String> {
    let bad = configuration.clusters.iter().find(|spec| spec.name.as_str().starts_with("bad"));
    bad.map_or(Ok(()), |spec| Err(format!("{} leads to this server", spec.name)))
}

#[tokio::test]
async fn registry_that_fails_the_whole_check_keeps_its_last_generation() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.put(HubKind::ResourceRegistry, "pods", json!({"spec": {"resources": ["pods"]}}));
    hub.accept().await;
    hub.put(HubKind::ResourceRegistry, "pods", json!({"spec": {"resources": ["services"]}}));
    hub.put(HubKind::MergedEndpoint, "all", json!({"spec": {}}));
    let check = |configuration: &LoadedConfiguration| {
        let objects = &configuration.objects;
        let is_bad = objects.registries.iter().any(|registry| registry.spec.resources == ["services"]);
        if is_bad || !objects.merged_endpoints.is_empty() { Err("a flag forbids it".to_owned()) } else { Ok(()) }
    };
    let accepted = hub.accept_checked(&check).await;
    assert_outcome(&accepted, &["a"], &["all Conflict", "pods Conflict"]);
    assert_eq!(accepted.configuration.objects.registries[0].spec.resources, ["pods"]);
    assert!(check(&accepted.configuration).is_ok());
}

#[tokio::test]
async fn conflict_of_the_whole_configuration_refuses_only_its_cause() {
    let mut hub = Hub::default();
    for name in ["a", "b", "c", "d", "e"] {
        hub.put_member(name, json!({}));
    }
    hub.accept().await;
    let check = |configuration: &LoadedConfiguration| {
        let bad = ["worse", "bad"]
            .into_iter()
            .find(|bad| configuration.clusters.iter().any(|spec| spec.name.as_str() == *bad));
        bad.map_or(Ok(()), |bad| Err(format!("{bad} leads to this server")))
    };
    for name in ["bad", "f", "worse"] {
        hub.put_member(name, json!({}));
    }
    let accepted = hub.accept_checked(&check).await;
    assert_outcome(&accepted, &["a", "b", "c", "d", "e", "f"], &["bad Conflict", "worse Conflict"]);
    for name in ["bad", "worse"] {
        let verdict = accepted.verdicts.iter().find(|verdict| verdict.object.name == name).unwrap();
        assert_eq!(verdict.accepted.message, format!("{name} leads to this server"));
    }
}

#[tokio::test]
async fn copy_of_the_objects_in_force_serves_without_the_hub() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({"index": 3}));
    hub.put(HubKind::DeniedUsers, "leavers", json!({"deniedUsers": ["ann"]}));
    hub.put(HubKind::ResourceRegistry, "pods", json!({"spec": {"resources": ["pods"]}}));
    hub.accept().await;
    let copy = serde_json::to_string(&hub.in_force).unwrap();
    let mut restarted = Hub { in_force: serde_json::from_str(&copy).unwrap(), ..Hub::default() };
    let accepted = restarted.accept_snapshot(&HubSnapshot::default(), &|_| Ok(())).await;
    let spec = &accepted.configuration.clusters[0];
    assert!(spec.config.as_ref().unwrap().auth_info.token.is_some() && spec.index == Some(3));
    assert_eq!(accepted.denied.into_iter().collect::<Vec<_>>(), ["ann"]);
    assert_eq!(accepted.configuration.objects.registries.len(), 1);
}

#[tokio::test]
async fn registries_are_accepted_one_by_one() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.put(HubKind::ResourceRegistry, "first", json!({"spec": {"resources": ["pods"]}}));
    hub.put(HubKind::ResourceRegistry, "second", json!({"spec": {"resources": ["pods", "secrets"]}}));
    hub.put(HubKind::ResourceRegistry, "third", json!({"spec": {"resources": ["services"], "placement": "absent"}}));
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a"], &["second ResourceConflict"]);
    let third = accepted.verdicts.iter().find(|verdict| verdict.object.name == "third").unwrap();
    assert_eq!(third.resolved_refs.as_ref().unwrap().reason, "ClusterNotFound");
    assert_eq!(accepted.configuration.objects.registries.len(), 2);
}

#[tokio::test]
async fn policies_of_a_member_are_in_the_configuration() {
    let mut hub = Hub::default();
    let schemas = json!([{"name": "few", "maxRequestsInflight": {"max": 1}}]);
    let spec = json!({
        "dispatch": "DenyAll",
        "dispatchPolicies": [{"mode": "Audit", "rules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}],
        "flowControl": {"flowControlSchemas": schemas},
        "logging": {"mode": "Disabled"},
    });
    hub.put_member("a", spec);
    let LoadedConfiguration { dispatch, flow_control, logging, .. } = hub.accept().await.configuration;
    let name = ClusterName::new("a").unwrap();
    assert!(dispatch.clusters[&name].denies_all && dispatch.clusters[&name].policies.len() == 1);
    assert_eq!(flow_control.clusters[&name].schemas.len(), 1);
    assert!(logging.clusters[&name].mode.is_some());
}

#[tokio::test]
async fn member_without_index_is_named_if_a_registry_needs_indexes() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({"index": 1}));
    hub.put_member("b", json!({}));
    let reasons = |accepted: &Acceptance| -> Vec<Option<String>> {
        let members = accepted.verdicts.iter().filter(|verdict| verdict.object.kind == HubKind::UpstreamCluster);
        members.map(|verdict| verdict.indexed.as_ref().map(|state| state.reason.clone())).collect()
    };
    assert_eq!(reasons(&hub.accept().await), [None, None]);
    let spec = json!({"resources": ["pods"], "itemResourceVersions": "Integer"});
    hub.put(HubKind::ResourceRegistry, "pods", json!({ "spec": spec }));
    assert_eq!(reasons(&hub.accept().await), [Some("Indexed".to_owned()), Some("IndexMissing".to_owned())]);
}

const GATEWAY_TYPE: &str = "cluster.core.oam.dev/cluster-credential-type";

/// Sources and their lists, in addition to a hub.
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

#[tokio::test]
async fn items_of_a_source_come_change_and_go() {
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    hub.put_gateway_secret("eu", json!({}), json!({}));
    hub.put_gateway_secret("A.B", json!({}), json!({}));
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a-b-4b861d8bb4", "eu"], &[]);
    assert_eq!(items(&accepted, "kubevela"), ["A.B a-b-4b861d8bb4 Accepted", "eu eu Accepted"]);
    let eu = accepted.configuration.clusters.iter().find(|spec| spec.name.as_str() == "eu").unwrap();
    assert_eq!(eu.origin, "Secret vela-system/eu of ClusterSource kubevela");
    assert!(eu.is_from_hub && eu.dial_policy.is_some());
    let foreign: Vec<_> =
        accepted.configuration.foreign.iter().map(|own| (own.name.as_str(), own.cluster.as_str())).collect();
    // The item that was accepted first comes first.
    assert_eq!(foreign, [("eu", "eu"), ("A.B", "a-b-4b861d8bb4")]);
    assert!(!accepted.configuration.objects.clusters.iter().any(|own| own.spec.credentials.is_some()));
    assert!(!hub.accept().await.is_changed);

    // A changed annotation renames the member.
    hub.put_gateway_secret("A.B", json!({}), json!({"tributary.dev/cluster-name": "ab"}));
    let accepted = hub.accept().await;
    assert!(accepted.is_changed);
    assert_outcome(&accepted, &["ab", "eu"], &[]);
    // A rotated credential changes the description.
    let before = hub.in_force.members["eu"].spec.as_ref().unwrap().user_fingerprint.clone();
    hub.put_gateway_secret("eu", json!({"token": "bmV3"}), json!({}));
    assert!(hub.accept().await.is_changed);
    assert_ne!(hub.in_force.members["eu"].spec.as_ref().unwrap().user_fingerprint, before);
    // A new version of the object without a change of the item changes nothing.
    hub.put_gateway_secret("eu", json!({"token": "bmV3"}), json!({}));
    assert!(!hub.accept().await.is_changed);
    hub.delete_item("kubevela", "eu");
    assert_outcome(&hub.accept().await, &["ab"], &[]);
}

#[tokio::test]
async fn refused_item_keeps_its_last_form() {
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    hub.put_gateway_secret("eu", json!({}), json!({}));
    hub.accept().await;
    for (data, reason) in [
        (json!({"endpoint": "https://127.0.0.1:6443"}), "RefusedAddress"),
        (json!({"endpoint": "https://localhost"}), "RefusedAddress"),
        (json!({"endpoint": "https://[fe80::1]"}), "RefusedAddress"),
        (json!({"endpoint": "https://all.example.com:7443"}), "RefusedAddress"),
        (json!({"proxy-url": STANDARD.encode("http://169.254.169.254:80")}), "RefusedAddress"),
        (json!({"ca.crt": null}), "MissingCA"),
        (json!({"ca.crt": STANDARD.encode("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")}), "Invalid"),
        (json!({"token": null}), "MissingCredential"),
    ] {
        hub.put_gateway_secret("eu", data.clone(), json!({}));
        let accepted = hub.accept().await;
        assert_eq!(items(&accepted, "kubevela"), [format!("eu eu {reason}")], "{data}");
        let server = accepted.configuration.clusters[0].config.as_ref().unwrap().cluster_url.clone();
        assert_eq!(server.host(), Some("eu.example"), "{data}");
    }
    // A new Secret of the same name does not keep the credential of the deleted one.
    let refused = hub.lists["kubevela"]["eu"].clone();
    hub.delete_item("kubevela", "eu");
    hub.put_item("kubevela", "eu", json!({"metadata": {"namespace": "vela-system"}, "data": refused["data"]}));
    let accepted = hub.accept().await;
    assert_eq!(items(&accepted, "kubevela"), ["eu - MissingLabel"]);
    assert_outcome(&accepted, &[], &[]);
}

#[tokio::test]
async fn item_does_not_take_the_name_of_a_different_source() {
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    hub.put_gateway_secret("eu", json!({}), json!({}));
    hub.put_gateway_secret("us", json!({}), json!({}));
    hub.put_gateway_secret("reviewer", json!({}), json!({}));
    let accepted = hub.accept().await;
    assert_eq!(items(&accepted, "kubevela"), ["eu eu Accepted", "reviewer - NameConflict", "us us Accepted"]);
    // A younger item, also of a different source, does not displace an older one.
    hub.put_gateway_secret("hostile", json!({}), json!({"tributary.dev/cluster-name": "eu"}));
    let accepted = hub.accept().await;
    assert_eq!(items(&accepted, "kubevela")[1], "hostile - NameConflict");
    let server = |accepted: &Acceptance| {
        let eu = accepted.configuration.clusters.iter().find(|spec| spec.name.as_str() == "eu").unwrap();
        eu.config.as_ref().unwrap().cluster_url.host().unwrap().to_owned()
    };
    assert_eq!(server(&accepted), "eu.example");
    // UpstreamClusters, files and contexts have priority.
    hub.put_member("eu", json!({"endpoints": ["https://own.example"]}));
    let config = Err("a context".to_owned());
    hub.others = vec![ClusterSpec::new(ClusterName::new("us").unwrap(), "context \"us\"".to_owned(), config)];
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["eu", "us"], &[]);
    assert_eq!(server(&accepted), "own.example");
    assert_eq!(items(&accepted, "kubevela").last().unwrap(), "us - NameConflict");
    hub.delete_member("eu");
    assert_eq!(server(&hub.accept().await), "eu.example");
}

#[tokio::test]
async fn name_in_a_foreign_system_belongs_to_one_item() {
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    hub.put_gateway_secret("eu", json!({}), json!({}));
    hub.accept().await;
    // A second source has a Secret of the same name, whose member has a name of its own.
    hub.put_source("other", json!({"clusterGatewaySecrets": {"namespace": "other"}}));
    hub.put_gateway_secret("second", json!({}), json!({"tributary.dev/cluster-name": "evil"}));
    let second = hub.lists["kubevela"]["second"].clone();
    hub.delete_item("kubevela", "second");
    hub.put_item("other", "eu", second);
    for _ in 0..2 {
        let accepted = hub.accept().await;
        assert_eq!(items(&accepted, "other"), ["eu - NameConflict"]);
        let foreign: Vec<_> = accepted.configuration.foreign.iter().map(|own| own.cluster.as_str()).collect();
        assert_eq!(foreign, ["eu"]);
        // The first item has priority, also after a change.
        hub.put_gateway_secret("eu", json!({"token": "bmV3"}), json!({}));
    }
}

#[tokio::test]
async fn stricter_source_applies_to_items_that_are_refused_or_not_listed() {
    let gateway = |more: Value| {
        let mut spec = json!({"clusterGatewaySecrets": {"namespace": "vela-system"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let mut hub = Hub::default();
    hub.put_source("kubevela", gateway(json!({"identity": {"type": "Stored"}, "missingCA": "Insecure"})));
    hub.put_gateway_secret("eu", json!({}), json!({}));
    hub.put_gateway_secret("insecure", json!({"ca.crt": null}), json!({}));
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["eu", "insecure"], &[]);
    let identities = |accepted: &Acceptance| {
        let identity = |own: &ForeignMember| format!("{} {:?}", own.name, own.identity);
        accepted.configuration.foreign.iter().map(identity).collect::<Vec<_>>()
    };
    assert_eq!(identities(&accepted), ["eu Stored", "insecure Stored"]);
    // The Secret is refused now, and its last form stays.
    hub.put_gateway_secret("eu", json!({"token": null}), json!({}));
    assert_eq!(identities(&hub.accept().await), ["eu Stored", "insecure Stored"]);
    // A member without verification ends when the source no longer allows it.
    hub.put_source("kubevela", gateway(json!({"identity": {"type": "Impersonate"}})));
    let accepted = hub.accept().await;
    assert_eq!(items(&accepted, "kubevela"), ["eu eu MissingCredential", "insecure - MissingCA"]);
    assert_eq!(identities(&accepted), ["eu Impersonate"]);
    // The same holds while the list is not readable.
    hub.put_source("kubevela", gateway(json!({"identity": {"type": "Stored"}})));
    assert_eq!(identities(&hub.accept().await), ["eu Stored"]);
    hub.put_source("kubevela", gateway(json!({"identity": {"type": "Impersonate"}})));
    hub.lists.remove("kubevela");
    assert_eq!(identities(&hub.accept().await), ["eu Impersonate"]);
}

#[tokio::test]
async fn remembered_member_without_verification_needs_the_flag() {
    let mut hub = Hub::default();
    hub.put_source("kubevela", json!({"clusterGatewaySecrets": {"namespace": "vela-system"}, "missingCA": "Insecure"}));
    hub.put_gateway_secret("eu", json!({"ca.crt": null}), json!({}));
    assert_outcome(&hub.accept().await, &["eu"], &[]);
    let copy = serde_json::to_vec(&hub.in_force).unwrap();
    let mut in_force: InForce = serde_json::from_slice(&copy).unwrap();
    describe_remembered(&mut in_force, &HubRules { insecure: InsecureMembers::Refused, ..rules() }).await;
    assert!(in_force.members["eu"].spec.is_none());
    describe_remembered(&mut in_force, &rules()).await;
    assert!(in_force.members["eu"].spec.is_some());
}

#[tokio::test]
async fn members_of_a_source_stay_until_the_source_is_deleted() {
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    for index in 0..4 {
        hub.put_gateway_secret(&format!("member-{index}"), json!({}), json!({}));
    }
    assert_eq!(hub.accept().await.configuration.clusters.len(), 4);
    // The list is not readable, for example after a start.
    let list = hub.lists.remove("kubevela").unwrap();
    let accepted = hub.accept().await;
    assert_eq!(accepted.configuration.clusters.len(), 4);
    assert_eq!(accepted.verdicts[0].source.as_ref().unwrap().found(), None);
    // Most items disappear at once.
    hub.lists.insert("kubevela".to_owned(), list.clone().into_iter().take(1).collect());
    let accepted = hub.accept().await;
    assert_eq!((accepted.configuration.clusters.len(), accepted.decides_at.is_some()), (4, true));
    hub.lists.insert("kubevela".to_owned(), list);
    // A wrong generation of the source changes nothing.
    hub.put_source("kubevela", json!({"clusterGatewaySecrets": {"namespace": "vela-system"}, "unknown": 1}));
    let accepted = hub.accept().await;
    assert_eq!(accepted.verdicts[0].accepted.reason, "Invalid");
    assert_eq!((accepted.configuration.clusters.len(), accepted.decides_at), (4, None));
    hub.objects.remove(&(HubKind::ClusterSource as usize, "kubevela".to_owned()));
    assert_outcome(&hub.accept().await, &[], &[]);
}

#[tokio::test]
async fn clusters_of_karmada_use_only_their_own_secrets() {
    let mut hub = Hub::default();
    hub.put_source("karmada", json!({"karmadaClusters": {}}));
    let reference = |name: &str| json!({"namespace": "karmada-cluster", "name": name});
    let spec = json!({
        "apiEndpoint": "https://eu.example:6443", "secretRef": reference("eu"),
        "impersonatorSecretRef": reference("eu-impersonator"), "region": "eu-1",
        "proxyURL": "http://proxy.example:3128", "proxyHeader": {"X-Team": "a, b"},
    });
    hub.put_item("karmada", "eu", json!({"metadata": {}, "spec": spec}));
    let data = json!({"token": "dG9rZW4=", "caBundle": authority()});
    for name in ["eu", "eu-impersonator"] {
        let annotations = json!({"tributary.dev/credential-of": "eu"});
        hub.put_item(
            "karmada/secrets",
            name,
            json!({
                "metadata": {"namespace": "karmada-cluster", "annotations": annotations}, "data": data,
            }),
        );
    }
    let accepted = hub.accept().await;
    assert_eq!(items(&accepted, "karmada"), ["eu eu Accepted"]);
    let eu = &accepted.configuration.clusters[0];
    assert_eq!(eu.impersonator.as_ref().unwrap().expose(), "token");
    assert_eq!(eu.labels["topology.kubernetes.io/region"], "eu-1");
    assert_eq!(eu.proxy_headers.get_all("x-team").iter().collect::<Vec<_>>(), ["a", "b"]);
    // The owner of the Secret withdraws the credential.
    hub.put_item("karmada/secrets", "eu", json!({"metadata": {"namespace": "karmada-cluster"}, "data": data}));
    let accepted = hub.accept().await;
    assert_eq!(items(&accepted, "karmada"), ["eu - SecretOfOtherCluster"]);
    assert_outcome(&accepted, &[], &[]);
}

#[tokio::test]
async fn second_secret_of_argo_cd_for_a_server_is_refused() {
    let mut hub = Hub::default();
    hub.put_source("argo", json!({"argoCDSecrets": {"namespace": "argocd"}}));
    for (name, server) in [("a", "https://eu.example/"), ("b", "https://eu.example")] {
        let config = json!({"bearerToken": "hunter2", "tlsClientConfig": {"caData": authority()}}).to_string();
        let data = json!({"server": STANDARD.encode(server), "config": STANDARD.encode(config)});
        hub.put_item("argo", name, json!({"metadata": {"namespace": "argocd"}, "data": data}));
    }
    assert_eq!(items(&hub.accept().await, "argo"), ["a a Accepted", "b - ServerConflict"]);
    let namespaces = json!({"namespaces": STANDARD.encode("shop")});
    hub.lists.get_mut("argo").unwrap().get_mut("b").unwrap()["data"]["server"] = json!(STANDARD.encode("https://us"));
    let mut scoped = hub.lists["argo"]["b"].clone();
    scoped["data"].as_object_mut().unwrap().extend(namespaces.as_object().unwrap().clone());
    hub.put_item("argo", "b", scoped);
    assert_eq!(items(&hub.accept().await, "argo"), ["a a Accepted", "b - NotSupported"]);
}

#[tokio::test]
async fn copy_of_the_configuration_has_the_items_with_their_credentials() {
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    hub.put_gateway_secret("eu", json!({}), json!({}));
    hub.accept().await;
    let text = serde_json::to_string(&hub.in_force).unwrap();
    let mut restored = Hub { in_force: serde_json::from_str(&text).unwrap(), ..Hub::default() };
    let empty = HubSnapshot::default();
    let accepted = restored.accept_snapshot(&empty, &|_| Ok(())).await;
    assert_outcome(&accepted, &["eu"], &[]);
    assert_eq!(accepted.configuration.foreign.len(), 1);
    assert!(accepted.configuration.clusters[0].config.is_ok());
    // The unchanged list changes nothing.
    restored.objects.clone_from(&hub.objects);
    restored.lists.clone_from(&hub.lists);
    let accepted = restored.accept().await;
    assert_outcome(&accepted, &["eu"], &[]);
    assert!(!accepted.is_changed);
}

/// The goals are 3 s for all items and 5 ms for a change, in a release build.
#[tokio::test]
async fn thousand_items_are_read_once_and_a_change_reads_one_item() {
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    for index in 0..1_000 {
        hub.put_gateway_secret(&format!("member-{index:04}"), json!({}), json!({}));
    }
    let (snapshot, begun) = (hub.snapshot(), Instant::now());
    let accepted = hub.accept_snapshot(&snapshot, &|_| Ok(())).await;
    println!("1,000 items are accepted in {:?}", begun.elapsed());
    assert_eq!(accepted.configuration.clusters.len(), 1_000);
    let specs = |hub: &Hub| -> Vec<_> {
        hub.in_force.members.values().map(|member| Arc::as_ptr(member.spec.as_ref().unwrap())).collect()
    };
    let before = specs(&hub);
    hub.put_gateway_secret("member-0500", json!({"token": "bmV3"}), json!({}));
    let (snapshot, begun) = (hub.snapshot(), Instant::now());
    let accepted = hub.accept_snapshot(&snapshot, &|_| Ok(())).await;
    println!("a changed item is accepted in {:?}", begun.elapsed());
    assert!(accepted.is_changed);
    let changed = before.iter().zip(specs(&hub)).filter(|(before, now)| **before != *now).count();
    assert_eq!(changed, 1);
}
