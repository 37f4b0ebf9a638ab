//! Conflicts between members, and with other sources.

use super::*;

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
    hub.others = vec![Arc::new(file)];
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
    let spec = ClusterSpec::new(ClusterName::new("a").unwrap(), "context \"a\"".to_owned(), config);
    hub.others = vec![Arc::new(spec)];
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a"], &["a NameConflict"]);
    assert!(!accepted.configuration.clusters[0].is_from_hub);
    hub.others.clear();
    assert_outcome(&hub.accept().await, &["a"], &[]);
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
