//! The acceptance of objects against each other and against other sources.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_apimachinery::{ClusterName, ObjectDecoder, Snapshot};
use tributary_crds::InsecureMembers;
use tributary_proxy::DialPolicy;
use tributary_sources::ClusterSpec;
use tributary_sources::clusters::indices::IndexOwners;

use super::*;
use crate::OwnEndpoint;

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
    in_force: InForce,
    guard: DisappearanceGuard,
    version: u64,
    others: Vec<ClusterSpec>,
    indexes: IndexOwners,
    has_no_merged_host: bool,
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
        HubSnapshot {
            objects: std::array::from_fn(of_kind),
            secrets: collect(self.secrets.values().collect()),
            sources: BTreeMap::new(),
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
        let base = LoadedConfiguration { clusters: self.others.clone(), ..LoadedConfiguration::default() };
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
