use serde_json::{Value, json};
use tributary_cluster_sources::{NamespaceScope, Program, RefusedItem, SourceItem, SourceReader};

use crate::{CA, CERTIFICATE, KEY, assert_refused, changed, encode, read as read_document, reader, secret};

fn argo_reader() -> SourceReader {
    reader(json!({"argoCDSecrets": {"namespace": "argocd"}}))
}

fn document(data: &Value, config: &Value) -> Value {
    let whole = json!({"bearerToken": "hunter2", "tlsClientConfig": {"caData": encode(CA)}});
    let config = changed(whole, config).to_string();
    let data = changed(json!({"name": "eu", "server": "https://eu.example:6443/", "config": config}), data);
    secret("argocd", "cluster-eu", &json!({"argocd.argoproj.io/secret-type": "cluster"}), &data)
}

fn read(data: &Value, config: &Value) -> Result<SourceItem, RefusedItem> {
    read_document(&argo_reader(), &document(data, config), &[])
}

#[test]
fn cluster_secret_becomes_a_member() {
    let data = json!({"namespaces": "shop, blog,", "clusterResources": "true"});
    let item =
        read(&data, &json!({"proxyUrl": "http://proxy", "tlsClientConfig": {"serverName": "kubernetes"}})).unwrap();
    assert_eq!((item.object.name.as_str(), item.name.as_str()), ("cluster-eu", "eu"));
    assert_eq!(item.spec.endpoints, ["https://eu.example:6443"]);
    assert_eq!(item.spec.ca_data, Some(encode(CA)));
    assert_eq!(item.spec.tls_server_name.as_deref(), Some("kubernetes"));
    assert_eq!(item.spec.proxy_url.as_deref(), Some("http://proxy"));
    assert_eq!(item.spec.credentials.unwrap().token.unwrap().expose(), "hunter2");
    let namespaces = vec!["shop".to_owned(), "blog".to_owned()];
    assert_eq!(item.scope, Some(NamespaceScope { namespaces, cluster_resources: true }));

    let certificate = json!({"certData": encode(CERTIFICATE), "keyData": encode(KEY)});
    let item = read(&json!({}), &json!({"bearerToken": "", "tlsClientConfig": certificate})).unwrap();
    assert_eq!(item.spec.credentials.unwrap().client_certificate_data, Some(encode(CERTIFICATE)));
    assert_eq!(item.scope, None);
}

#[test]
fn free_text_and_missing_names_become_cluster_names() {
    let named = |name: Value| read(&json!({ "name": name }), &json!({})).unwrap();
    let item = named(json!("My cluster (EU)"));
    assert_eq!(item.foreign_name, "My cluster (EU)");
    assert!(item.name.as_str().starts_with("my-cluster-eu-"), "{}", item.name);
    assert_eq!(named(json!(null)).name.as_str(), "cluster-eu");
}

#[test]
fn wrong_cluster_secrets_are_refused_with_the_field_and_the_remedy() {
    for (data, config, reason, text) in [
        (json!({"server": null}), json!({}), "MissingEndpoint", "key \"server\""),
        (json!({"server": "http://eu"}), json!({}), "InvalidEndpoint", "key \"server\""),
        (json!({"config": "hunter2"}), json!({}), "Unreadable", "key \"config\""),
        (json!({"config": null}), json!({}), "MissingCA", "tlsClientConfig.caData"),
        (json!({}), json!({"username": "ann"}), "PasswordNotAllowed", "username"),
        (json!({}), json!({"password": "hunter2"}), "PasswordNotAllowed", "password"),
        (json!({}), json!({"awsAuthConfig": {"roleARN": "arn"}}), "InvalidExec", "awsAuthConfig.clusterName"),
        (json!({}), json!({"awsAuthConfig": "hunter2"}), "Unreadable", "key \"config\""),
        (
            json!({}),
            json!({"execProviderConfig": {"command": "aws"}}),
            "InvalidExec",
            "execProviderConfig: the command",
        ),
        (json!({}), json!({"execProviderConfig": {"command": "/bin/a"}}), "InvalidExec", "apiVersion is \"\""),
        (
            json!({}),
            json!({"execProviderConfig": {"command": "/bin/a", "env": {"LD_PRELOAD": "hunter2"}}}),
            "ExecNotAllowed",
            "execProviderConfig: env is not allowed",
        ),
        (json!({}), json!({"proxyUrl": "x"}), "InvalidProxy", "proxyUrl"),
        (json!({}), json!({"bearerToken": null}), "MissingCredential", "bearerToken"),
        (json!({}), json!({"tlsClientConfig": {"insecure": true}}), "InsecureSkipVerify", "tlsClientConfig.insecure"),
        (
            json!({}),
            json!({"tlsClientConfig": {"certData": encode(CERTIFICATE)}}),
            "InvalidCredential",
            "has a token and a client certificate",
        ),
        (json!({}), json!({"tlsClientConfig": {"keyData": "hunter2"}}), "InvalidCredential", "tlsClientConfig.keyData"),
        (json!({}), json!({"bearerToken": "hunter2 x"}), "InvalidCredential", "bearerToken"),
        (
            json!({}),
            json!({"tlsClientConfig": {"caData": "hunter2"}}),
            "InvalidCredential",
            "is not base64 of PEM text",
        ),
    ] {
        assert_refused(read(&data, &config), reason, text);
    }
}

/// Argo CD identifies a cluster by its server without slashes at the end.
#[test]
fn server_with_and_without_a_slash_is_one_server() {
    let endpoints = |server: &str| read(&json!({ "server": server }), &json!({})).unwrap().spec.endpoints;
    assert_eq!(endpoints("https://eu/"), ["https://eu"]);
    assert_eq!(endpoints("https://eu"), ["https://eu"]);
}

/// Argo CD prefers `awsAuthConfig`, then `execProviderConfig`, to a stored credential.
#[test]
fn commands_of_argo_cd_print_the_credential() {
    let exec = json!({
        "command": "/usr/local/bin/argocd-k8s-auth", "args": ["gcp"], "provideClusterInfo": true, "config": {"a": 1},
        "apiVersion": "client.authentication.k8s.io/v1beta1", "installHint": "x",
    });
    let item = read(&json!({}), &json!({ "execProviderConfig": exec })).unwrap();
    assert!(item.spec.credentials.is_none());
    let command = item.command.unwrap();
    assert_eq!(command.program, Program::Path("/usr/local/bin/argocd-k8s-auth".to_owned()));
    assert_eq!((command.args, command.cluster_config), (vec!["gcp".to_owned()], Some(json!({"a": 1}))));
    assert!(command.provide_cluster_info && command.env.is_empty());

    let aws = json!({"clusterName": "eu-1", "roleARN": "arn:aws:iam::1:role/r", "profile": "p"});
    let item = read(&json!({}), &json!({ "awsAuthConfig": aws, "execProviderConfig": exec })).unwrap();
    let command = item.command.unwrap();
    assert_eq!(command.program, Program::FileName("argocd-k8s-auth".to_owned()));
    let args = ["aws", "--cluster-name", "eu-1", "--role-arn", "arn:aws:iam::1:role/r", "--profile", "p"];
    assert_eq!(command.args, args);
    assert_eq!(command.api_version, "client.authentication.k8s.io/v1beta1");
}
