//! The items of ClusterSources.

use tributary_router::ForeignMember;

use super::*;

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
    let spec = ClusterSpec::new(ClusterName::new("us").unwrap(), "context \"us\"".to_owned(), config);
    hub.others = vec![Arc::new(spec)];
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
