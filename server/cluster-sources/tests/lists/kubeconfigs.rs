use serde_json::{Value, json};
use tributary_cluster_sources::{RefusedItem, SourceItem};

use crate::{CA, CERTIFICATE, KEY, assert_refused, changed, encode, read as read_document, reader, secret};

fn read_text(text: Option<&str>) -> Result<SourceItem, RefusedItem> {
    let labels = json!({"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"});
    let document = secret("fleet", "eu", &labels, &json!({"kubeconfig": text}));
    read_document(&reader(json!({"kubeconfigSecrets": {"namespace": "fleet"}})), &document, &[])
}

/// Reads a kubeconfig with changes of its cluster and its user. A change to null removes a field.
fn read(cluster: &Value, user: &Value) -> Result<SourceItem, RefusedItem> {
    let whole = json!({"server": "https://eu.example:6443", "certificate-authority-data": encode(CA)});
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "b",
        "contexts": [
            {"name": "a", "context": {"cluster": "none", "user": "none"}},
            {"name": "b", "context": {"cluster": "eu", "user": "admin", "namespace": "shop"}},
        ],
        "clusters": [{"name": "eu", "cluster": changed(whole, cluster)}],
        "users": [{"name": "admin", "user": changed(json!({"token": "hunter2"}), user)}],
    });
    read_text(Some(&kubeconfig.to_string()))
}

#[test]
fn current_context_becomes_a_member() {
    let cluster =
        json!({"proxy-url": "http://proxy:3128", "tls-server-name": "kubernetes", "disable-compression": true});
    let item = read(&cluster, &json!({})).unwrap();
    assert_eq!(item.name.as_str(), "eu");
    assert_eq!(item.spec.endpoints, ["https://eu.example:6443"]);
    assert_eq!(item.spec.ca_data, Some(encode(CA)));
    assert_eq!(item.spec.proxy_url.as_deref(), Some("http://proxy:3128"));
    assert_eq!(item.spec.tls_server_name.as_deref(), Some("kubernetes"));
    assert_eq!(item.spec.credentials.unwrap().token.unwrap().expose(), "hunter2");
    let certificate =
        json!({"token": null, "client-certificate-data": encode(CERTIFICATE), "client-key-data": encode(KEY)});
    let credentials = read(&json!({}), &certificate).unwrap().spec.credentials.unwrap();
    assert_eq!(credentials.client_key_data.unwrap().expose(), encode(KEY));
}

#[test]
fn kubeconfig_in_yaml_is_read() {
    let ca = encode(CA);
    let text = format!(
        "current-context: eu\ncontexts:\n- name: eu\n  context: {{cluster: eu, user: eu}}\nclusters:\n- name: eu\n  cluster:\n    \
         server: https://eu\n    certificate-authority-data: {ca}\nusers:\n- name: eu\n  user:\n    token: hunter2\n"
    );
    assert_eq!(read_text(Some(&text)).unwrap().spec.endpoints, ["https://eu"]);
}

#[test]
fn kubeconfig_with_files_commands_or_passwords_is_refused() {
    for (cluster, user, reason, text) in [
        (json!({"server": "http://eu"}), json!({}), "InvalidEndpoint", "cluster.server"),
        (json!({"server": "https://ann:hunter2@eu"}), json!({}), "InvalidEndpoint", "cluster.server"),
        (json!({"server": ""}), json!({}), "MissingEndpoint", "cluster.server"),
        (json!({"server": 1}), json!({}), "Unreadable", "cluster \"eu\""),
        (json!({"proxy-url": "x"}), json!({}), "InvalidProxy", "cluster.proxy-url"),
        (json!({"certificate-authority": "/ca"}), json!({}), "FileNotAllowed", "cluster.certificate-authority"),
        (json!({"certificate-authority-data": null}), json!({}), "MissingCA", "cluster.certificate-authority-data"),
        (json!({"certificate-authority-data": "hunter2"}), json!({}), "InvalidCredential", "is not base64 of PEM text"),
        (json!({"insecure-skip-tls-verify": true}), json!({}), "InsecureSkipVerify", "insecure-skip-tls-verify"),
        (json!({}), json!({"exec": {"command": "/bin/sh"}}), "ExecNotAllowed", "user.exec"),
        (json!({}), json!({"auth-provider": {"name": "gcp"}}), "ExecNotAllowed", "user.auth-provider"),
        (json!({}), json!({"username": "ann"}), "PasswordNotAllowed", "user.username"),
        (json!({}), json!({"password": "hunter2"}), "PasswordNotAllowed", "user.password"),
        (json!({}), json!({"as": "root"}), "NotSupported", "user.as"),
        (json!({}), json!({"tokenFile": "/t"}), "FileNotAllowed", "user.tokenFile"),
        (json!({}), json!({"client-certificate": "/c"}), "FileNotAllowed", "user.client-certificate"),
        (json!({}), json!({"client-key": "/k"}), "FileNotAllowed", "user.client-key"),
        (json!({}), json!({"token": null}), "MissingCredential", "lacks a credential"),
        (
            json!({}),
            json!({"token": null, "client-certificate-data": encode(CERTIFICATE)}),
            "MissingCredential",
            "lacks a credential",
        ),
        (
            json!({}),
            json!({"client-key-data": encode(KEY)}),
            "InvalidCredential",
            "has a token and a client certificate",
        ),
        (json!({}), json!({"token": "hunter2 x"}), "InvalidCredential", "user.token"),
        (json!({}), json!({"client-key-data": "hunter2"}), "InvalidCredential", "user.client-key-data"),
    ] {
        assert_refused(read(&cluster, &user), reason, text);
    }
}

#[test]
fn kubeconfig_without_its_context_is_refused() {
    for (text, reason, problem) in [
        (None, "MissingCredential", "key \"kubeconfig\""),
        (Some("hunter2"), "Unreadable", "is not a kubeconfig"),
        (Some("{}"), "Unreadable", "no context \"\""),
        (Some("{current-context: a, contexts: [{name: a}]}"), "Unreadable", "context \"a\""),
        (Some("{current-context: a, contexts: [{name: a, context: {cluster: b}}]}"), "Unreadable", "no cluster \"b\""),
    ] {
        assert_refused(read_text(text), reason, problem);
    }
}

#[test]
fn secret_that_tributary_publishes_is_refused() {
    for (list, label) in [
        (json!({"kubeconfigSecrets": {"namespace": "fleet"}}), "sigs.k8s.io/multicluster-runtime-kubeconfig"),
        (json!({"argoCDSecrets": {"namespace": "fleet"}}), "argocd.argoproj.io/secret-type"),
    ] {
        let labels = json!({label: "true", "tributary.dev/published-by": "tributary-system"});
        let document = secret("fleet", "eu", &labels, &json!({}));
        let refused = read_document(&reader(list), &document, &[]).unwrap_err();
        assert_eq!(refused.reason, "PublishedByTributary", "{}", refused.message);
    }
}
