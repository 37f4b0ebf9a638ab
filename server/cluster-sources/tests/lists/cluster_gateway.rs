use serde_json::{Value, json};
use tributary_cluster_sources::{Program, RefusedItem, SourceItem};
use tributary_crds::InsecureMembers;

use crate::{
    CA, CERTIFICATE, KEY, assert_refused, changed, encode, read as read_document, reader, reader_with, secret,
};

const TYPE: &str = "cluster.core.oam.dev/cluster-credential-type";
const ENDPOINT_TYPE: &str = "cluster.core.oam.dev/cluster-endpoint-type";

fn source() -> Value {
    json!({"clusterGatewaySecrets": {"namespace": "vela-system"}})
}

fn with_token(change: &Value) -> Value {
    let data = json!({"endpoint": "https://eu.example:6443\n", "ca.crt": CA, "token": "hunter2\n"});
    secret("vela-system", "eu", &json!({TYPE: "ServiceAccountToken"}), &changed(data, change))
}

fn read(document: &Value) -> Result<SourceItem, RefusedItem> {
    read_document(&reader(source()), document, &[])
}

#[test]
fn secret_with_a_token_becomes_a_member() {
    let mut document = with_token(&json!({"proxy-url": "socks5://proxy:1080"}));
    document["metadata"]["annotations"] = json!({"cluster.core.oam.dev/cluster-alias": "Europe"});
    let item = read(&document).unwrap();
    assert_eq!((item.name.as_str(), item.foreign_name.as_str()), ("eu", "eu"));
    assert_eq!(item.alias.as_deref(), Some("Europe"));
    assert_eq!(item.spec.endpoints, ["https://eu.example:6443"]);
    assert_eq!(item.spec.ca_data, Some(encode(CA.trim())));
    assert_eq!(item.spec.proxy_url.as_deref(), Some("socks5://proxy:1080"));
    let credentials = item.spec.credentials.unwrap();
    assert_eq!(credentials.token.unwrap().expose(), "hunter2");
    assert_eq!((item.warnings, item.spec.insecure_skip_verify), (Vec::new(), false));
}

#[test]
fn secret_with_a_certificate_becomes_a_member() {
    let data = json!({"endpoint": "https://eu/base/", "ca": CA, "tls.crt": CERTIFICATE, "tls.key": KEY});
    let labels = json!({TYPE: "X509Certificate", ENDPOINT_TYPE: "Const"});
    let item = read(&secret("vela-system", "eu", &labels, &data)).unwrap();
    assert_eq!(item.spec.endpoints, ["https://eu/base"]);
    let credentials = item.spec.credentials.unwrap();
    assert_eq!(credentials.client_certificate_data, Some(encode(CERTIFICATE.trim())));
    assert_eq!(credentials.client_key_data.unwrap().expose(), encode(KEY.trim()));
    assert!(credentials.token.is_none());
}

#[test]
fn secret_key_ca_crt_takes_precedence_over_ca() {
    let other = CA.replace("authority", "other");
    assert_eq!(read(&with_token(&json!({"ca": other}))).unwrap().spec.ca_data, Some(encode(CA.trim())));
    let item = read(&with_token(&json!({"ca": other, "ca.crt": null}))).unwrap();
    assert_eq!(item.spec.ca_data, Some(encode(other.trim())));
}

#[test]
fn secret_without_ca_needs_the_source_and_the_process() {
    let document = with_token(&json!({"ca.crt": null}));
    let insecure = changed(source(), &json!({"missingCA": "Insecure"}));
    let read = |spec: &Value, flag| read_document(&reader_with(spec.clone(), flag), &document, &[]);
    for flag in [InsecureMembers::Refused, InsecureMembers::Allowed] {
        assert_refused(read(&source(), flag), "MissingCA", "\"ca.crt\" is missing");
        assert_refused(read(&source(), flag), "MissingCA", "spec.missingCA: Insecure");
    }
    assert_refused(read(&insecure, InsecureMembers::Refused), "MissingCA", "--hub-allow-insecure-skip-verify");
    let item = read(&insecure, InsecureMembers::Allowed).unwrap();
    assert!(item.spec.insecure_skip_verify && item.spec.ca_data.is_none());
    assert_eq!(item.warnings.len(), 1);
    assert_eq!(item.warnings[0].reason, "MissingCA");
}

#[test]
fn wrong_secrets_are_refused_with_the_key_and_the_remedy() {
    for (data, reason, text) in [
        (json!({"endpoint": null}), "MissingEndpoint", "key \"endpoint\""),
        (json!({"endpoint": "\n"}), "MissingEndpoint", "key \"endpoint\""),
        (json!({"endpoint": "http://eu"}), "InvalidEndpoint", "https://"),
        (json!({"endpoint": "https://ann:hunter2@eu"}), "InvalidEndpoint", "a user or a password"),
        (json!({"endpoint": "https://eu:99999"}), "InvalidEndpoint", "key \"endpoint\""),
        (json!({"proxy-url": "http://ann:hunter2@proxy"}), "InvalidProxy", "key \"proxy-url\""),
        (json!({"proxy-url": "proxy:3128"}), "InvalidProxy", "socks5://"),
        (json!({"token": null}), "MissingCredential", "key \"token\""),
        (json!({"token": " \n"}), "MissingCredential", "key \"token\""),
        (json!({"token": "hunter2 hunter2"}), "InvalidCredential", "key \"token\""),
        (json!({"ca.crt": "hunter2"}), "InvalidCredential", "key \"ca.crt\""),
        (json!({"unused": "x".repeat(1 << 20)}), "TooLarge", "512 KiB"),
    ] {
        assert_refused(read(&with_token(&data)), reason, text);
    }
    let mut not_text = with_token(&json!({}));
    not_text["data"]["token"] = json!("////");
    assert_refused(read(&not_text), "Unreadable", "key \"token\"");
    not_text["data"] = json!(["hunter2"]);
    assert_refused(read(&not_text), "Unreadable", "Secret eu");
    assert_refused(
        read(&with_token(&json!({"token": null, "ca.crt": null, "endpoint": null}))),
        "MissingCredential",
        "token",
    );
}

#[test]
fn certificate_without_its_key_is_refused() {
    for (key, text) in [("tls.crt", "a client certificate"), ("tls.key", "the key of the client certificate")] {
        let data = json!({"endpoint": "https://eu", "ca.crt": CA, "tls.crt": CERTIFICATE, "tls.key": KEY});
        let data = changed(data, &json!({ key: null }));
        let read = read(&secret("vela-system", "eu", &json!({TYPE: "X509Certificate"}), &data));
        assert_refused(read, "MissingCredential", text);
    }
}

#[test]
fn unsupported_labels_are_refused_by_name() {
    for (labels, reason, text) in [
        (json!({TYPE: "ServiceAccountToken", ENDPOINT_TYPE: "ClusterProxy"}), "NotSupported", "\"ClusterProxy\""),
        (json!({TYPE: "Basic"}), "UnknownCredentialType", "\"Basic\""),
        (json!({}), "MissingLabel", TYPE),
        (json!({"cluster.core.oam.dev/cluster-credential": "tls"}), "MissingLabel", "in place of its old form"),
    ] {
        let mut document = with_token(&json!({}));
        document["metadata"]["labels"] = labels;
        assert_refused(read(&document), reason, text);
    }
}

#[test]
fn secret_with_a_command_has_no_stored_credential() {
    let with_exec = |exec: Value| {
        let data = json!({"endpoint": "https://eu", "ca.crt": CA, "exec": exec, "token": "hunter2"});
        read(&secret("vela-system", "eu", &json!({TYPE: "Dynamic"}), &data))
    };
    let exec = |change: Value| {
        let config =
            json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/usr/bin/aws", "args": ["get"]});
        with_exec(json!(changed(config, &change).to_string()))
    };
    let item = exec(json!({})).unwrap();
    assert!(item.spec.credentials.is_none());
    let command = item.command.unwrap();
    assert_eq!(command.program, Program::Path("/usr/bin/aws".to_owned()));
    assert_eq!((command.args, command.provide_cluster_info), (vec!["get".to_owned()], false));

    for path in ["aws", "./aws", ""] {
        assert_refused(exec(json!({ "command": path })), "InvalidExec", "is not an absolute path");
    }
    assert_refused(exec(json!({"apiVersion": "v1alpha1"})), "InvalidExec", "apiVersion is \"v1alpha1\"");
    let env = json!([{"name": "LD_PRELOAD", "value": "hunter2"}]);
    assert_refused(exec(json!({ "env": env })), "ExecNotAllowed", "env is not allowed");
    assert_refused(exec(json!({"args": "hunter2"})), "InvalidExec", "is not JSON");
    assert_refused(with_exec(json!("hunter2")), "InvalidExec", "is not JSON");
    assert_refused(with_exec(json!(null)), "MissingCredential", "key \"exec\"");
}
