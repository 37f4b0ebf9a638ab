//! Registries whose clusters a scheduler chooses.

use super::*;

impl Hub {
    /// Replaces the slices of the decision `batch` by slices with these profiles, in the order of their indexes.
    fn put_slices(&mut self, slices: &[(usize, &[&str])]) {
        let decoder = ObjectDecoder::new("", "", Arc::default());
        let slices = slices.iter().map(|(index, profiles)| {
            let decisions: Vec<Value> = profiles
                .iter()
                .map(|name| json!({"clusterProfileRef": {"name": name, "namespace": "fleet"}}))
                .collect();
            let labels = json!({
                "multicluster.x-k8s.io/decision-key": "batch",
                "multicluster.x-k8s.io/decision-index": index.to_string(),
            });
            let name = format!("batch-{index}");
            let metadata =
                json!({"name": name, "namespace": "jobs", "uid": name, "resourceVersion": "1", "labels": labels});
            let document = json!({"metadata": metadata, "decisions": decisions});
            Arc::new(decoder.decode(document.to_string().as_bytes()).unwrap())
        });
        self.decisions = [("jobs".to_owned(), Ok(slices.collect()))].into();
    }
}

/// The names of the chosen profiles, and the reason of `ResolvedRefs`.
fn chosen(accepted: &Acceptance) -> (Vec<String>, Option<String>) {
    let registry = &accepted.configuration.objects.registries[0];
    assert!(!registry.spec.clusters.is_all(), "an empty decision selects no cluster");
    // A name is `fleet-PROFILE-HASH`.
    let names = registry.spec.clusters.names.iter();
    let mut names: Vec<String> = names.map(|name| name.split('-').nth(1).unwrap().to_owned()).collect();
    names.sort();
    let verdict = accepted.verdicts.iter().find(|verdict| verdict.object.name == "pods").unwrap();
    assert_eq!(verdict.accepted.reason, "Accepted");
    (names, verdict.resolved_refs.as_ref().map(|state| state.reason.clone()))
}

#[tokio::test]
async fn last_complete_decision_selects_the_members_of_a_registry() {
    let mut hub = Hub::default();
    hub.allow(&["/usr/bin/provider"]);
    hub.put_source("fleet", json!({"clusterProfiles": {"namespace": "fleet"}}));
    for name in ["a", "b", "c"] {
        hub.put_profile(name, "True", &format!("https://{name}.example"));
    }
    let clusters = json!({"placementDecision": {"namespace": "jobs", "key": "batch"}});
    hub.put(HubKind::ResourceRegistry, "pods", json!({"spec": {"resources": ["pods"], "clusters": clusters}}));
    let of = |names: &[&str], reason: Option<&str>| {
        (names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), reason.map(str::to_owned))
    };
    const INCOMPLETE: Option<&str> = Some("DecisionIncomplete");
    assert_eq!(chosen(&hub.accept().await), of(&[], INCOMPLETE), "no decision is read");
    assert_eq!(hub.in_force.decision_namespaces().into_iter().collect::<Vec<_>>(), ["jobs"]);
    hub.put_slices(&[(0, &["a"]), (1, &["b", "absent"])]);
    let accepted = hub.accept().await;
    assert!(accepted.is_changed);
    assert_eq!(chosen(&accepted), of(&["a", "b"], Some("Resolved")));

    // A slice is missing: the last complete decision stays, also after a restart.
    hub.put_slices(&[(1, &["c"])]);
    let accepted = hub.accept().await;
    assert!(!accepted.is_changed);
    assert_eq!(chosen(&accepted), of(&["a", "b"], INCOMPLETE));
    let copy = serde_json::to_string(&hub.in_force).unwrap();
    hub.in_force = serde_json::from_str(&copy).unwrap();
    assert_eq!(chosen(&hub.accept().await), of(&["a", "b"], INCOMPLETE));
    hub.decisions = [("jobs".to_owned(), Err("placementdecisions: Forbidden.".to_owned()))].into();
    assert_eq!(chosen(&hub.accept().await), of(&["a", "b"], INCOMPLETE));
    hub.put_slices(&[]);
    assert_eq!(chosen(&hub.accept().await), of(&["a", "b"], INCOMPLETE));
    hub.put_slices(&[(0, &["c"])]);
    assert_eq!(chosen(&hub.accept().await), of(&["c"], Some("Resolved")));
    // A complete decision can be empty.
    hub.put_slices(&[(0, &[])]);
    assert_eq!(chosen(&hub.accept().await), of(&[], Some("Resolved")));
}
