use serde_json::{Value, json};
use tributary_cluster_sources::{Program, RefusedItem, SourceItem, SourceReader};
use tributary_crds::{ClusterSource, ClusterSourceSpec, InsecureMembers};

use crate::{CA, assert_refused, changed, encode, read as read_document, reader};

fn cluster(change: &Value) -> Value {
    changed(json!({"server": "https://eu.example:6443", "certificate-authority-data": encode(CA)}), change)
}

fn healthy(status: &str) -> Value {
    json!([{"type": "ControlPlaneHealthy", "status": status}])
}

/// Makes a profile with this status.
fn document(status: &Value) -> Value {
    let status = changed(json!({"conditions": healthy("True"), "version": {"kubernetes": "v1.36.0"}}), status);
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": "eu", "namespace": "fleet", "uid": "u", "resourceVersion": "1",
            "labels": {"x-k8s.io/cluster-manager": "manager"}},
        "spec": {"displayName": "Europe", "clusterManager": {"name": "manager"}},
        "status": status,
    })
}

fn read(status: &Value) -> Result<SourceItem, RefusedItem> {
    read_document(&reader(json!({"clusterProfiles": {}})), &document(status), &[])
}

/// Reads a profile whose provider `first` has a cluster with these changes.
fn read_with(change: &Value) -> Result<SourceItem, RefusedItem> {
    read(&json!({"accessProviders": [{"name": "first", "cluster": cluster(change)}]}))
}

#[test]
fn profile_becomes_a_member_by_the_first_provider_of_the_file() {
    let at = |server: &str| cluster(&json!({ "server": server }));
    let status = json!({"accessProviders": [
        {"name": "other", "cluster": at("https://other")},
        {"name": "second", "cluster": at("https://second")},
        {"name": "first", "cluster": at("https://first")},
    ]});
    let item = read(&status).unwrap();
    assert_eq!(item.spec.endpoints, ["https://first"]);
    assert_eq!((item.foreign_name.as_str(), item.object.name.as_str()), ("fleet/eu", "eu"));
    assert!(item.name.as_str().starts_with("fleet-eu-"), "{}", item.name);
    let command = item.command.unwrap();
    assert_eq!(command.program, Program::Path("/usr/bin/first".to_owned()));
    assert!(command.provide_cluster_info && command.cluster_config.is_none());
    assert!(item.spec.credentials.is_none() && item.not_ready.is_none());
}

#[test]
fn deprecated_twin_is_read_and_has_less_priority() {
    let of = |name: &str, server: &str| json!({"name": name, "cluster": cluster(&json!({ "server": server }))});
    let item = read(&json!({"credentialProviders": [of("second", "https://twin")]})).unwrap();
    assert_eq!(item.spec.endpoints, ["https://twin"]);
    let both =
        json!({"credentialProviders": [of("first", "https://twin")], "accessProviders": [of("first", "https://now")]});
    assert_eq!(read(&both).unwrap().spec.endpoints, ["https://now"]);
    // The order of the file decides, and not the field.
    let mixed =
        json!({"credentialProviders": [of("first", "https://twin")], "accessProviders": [of("second", "https://now")]});
    assert_eq!(read(&mixed).unwrap().spec.endpoints, ["https://twin"]);
}

#[test]
fn each_field_of_a_cluster_is_honoured() {
    let extensions = json!([
        {"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": "eu"}},
        {"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-args", "extension": ["--evil"]},
        {"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs", "extension": {"LD_PRELOAD": "x"}},
        {"name": "example.com/other", "extension": {"a": 1}},
    ]);
    let change = json!({"proxy-url": "http://proxy:3128", "tls-server-name": "kubernetes", "extensions": extensions,
        "disable-compression": false, "insecure-skip-tls-verify": false, "certificate-authority": ""});
    let item = read_with(&change).unwrap();
    assert_eq!(item.spec.proxy_url.as_deref(), Some("http://proxy:3128"));
    assert_eq!(item.spec.tls_server_name.as_deref(), Some("kubernetes"));
    assert_eq!(item.spec.ca_data, Some(encode(CA)));
    let command = item.command.unwrap();
    assert_eq!(command.cluster_config, Some(json!({"clusterName": "eu"})));
    assert!(command.args.is_empty() && command.env.is_empty(), "{command:?}");

    // The provider `second` allows additional arguments.
    let given = json!({"accessProviders": [{"name": "second", "cluster": cluster(&change)}]});
    assert_eq!(read(&given).unwrap().command.unwrap().args, ["get", "--evil"]);
    let empty = json!({"extensions": [
        {"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-args"},
        {"name": "client.authentication.k8s.io/exec", "extension": {}},
    ]});
    let given = json!({"accessProviders": [{"name": "second", "cluster": cluster(&empty)}]});
    let command = read(&given).unwrap().command.unwrap();
    assert_eq!((command.args, command.cluster_config), (vec!["get".to_owned()], None));
}

#[test]
fn wrong_profiles_are_refused_with_the_field_and_the_remedy() {
    for (change, reason, text) in [
        (json!({"server": ""}), "MissingEndpoint", "status.accessProviders[first].cluster.server"),
        (json!({"server": "http://eu"}), "InvalidEndpoint", "cluster.server"),
        (json!({"certificate-authority-data": null}), "MissingCA", "certificate-authority-data"),
        (json!({"certificate-authority-data": "hunter2"}), "InvalidCredential", "certificate-authority-data"),
        (json!({"certificate-authority": "/etc/hunter"}), "FileNotAllowed", "certificate-authority names a file"),
        (json!({"insecure-skip-tls-verify": true}), "InsecureSkipVerify", "insecure-skip-tls-verify"),
        (json!({"proxy-url": "x"}), "InvalidProxy", "proxy-url"),
        (json!({"disable-compression": true}), "NotSupported", "disable-compression"),
        (json!({"future": 1}), "NotSupported", "the field \"future\""),
        (json!({"extensions": "hunter2"}), "Unreadable", "wrong type"),
    ] {
        assert_refused(read_with(&change), reason, text);
    }
    assert_refused(read(&json!({})), "ProviderNotFound", "first, second");
    let unnamed = json!({"accessProviders": [{"name": "first"}]});
    assert_refused(read(&unnamed), "MissingEndpoint", "cluster.server");
    let wrong = json!({"accessProviders": [{"name": "second", "cluster": cluster(&json!({"extensions": [
        {"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-args", "extension": "hunter2"},
    ]}))}]});
    assert_refused(read(&wrong), "InvalidExec", "additional-args");
}

#[test]
fn profile_of_an_unhealthy_control_plane_is_not_ready() {
    let with = |conditions: Value| {
        let status =
            json!({"conditions": conditions, "accessProviders": [{"name": "first", "cluster": cluster(&json!({}))}]});
        read(&status).unwrap().not_ready
    };
    assert!(with(healthy("True")).is_none());
    for (conditions, text) in [
        (healthy("False"), "is \"False\""),
        (healthy("Unknown"), "is \"Unknown\""),
        (json!([]), "is missing"),
        (json!(null), "is missing"),
    ] {
        let problem = with(conditions).unwrap();
        assert!(problem.reason == "NotReady" && problem.message.contains(text), "{problem:?}");
    }
}

#[test]
fn profile_that_tributary_publishes_is_no_member() {
    let reader = reader(json!({"clusterProfiles": {"namespace": "fleet"}}));
    let document = document(&json!({"accessProviders": [{"name": "first", "cluster": cluster(&json!({}))}]}));
    for change in [
        json!({"spec": {"clusterManager": {"name": "tributary"}}}),
        json!({"metadata": {"labels": {"tributary.dev/published-by": "x"}}}),
    ] {
        let read = read_document(&reader, &changed(document.clone(), &change), &[]);
        assert_refused(read, "PublishedByTributary", "leads back to Tributary");
    }
}

#[test]
fn source_of_profiles_needs_a_file_of_providers() {
    let spec: ClusterSourceSpec = serde_json::from_value(json!({"clusterProfiles": {}})).unwrap();
    let source = ClusterSource::new("source", spec);
    let refusal = SourceReader::new(&source, InsecureMembers::Refused, None).unwrap_err();
    assert!(refusal.message.contains("--cluster-profile-providers"), "{refusal:?}");
}
