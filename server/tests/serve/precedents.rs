//! Known faults of other gateways for Kubernetes APIs, each with a test that has the fault's name. This module covers
//! faults of the running program. `docs/precedents.md` lists all faults.

use tributary_simulator::kubeconfig;

use crate::fixture::{Program, config, get, member};

/// No log may contain secrets at any level: credentials, queries (the query of an exec contains its command), and
/// bodies.
#[tokio::test]
async fn vulndb_4074_no_secret_is_logged_at_any_level() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&[&arguments[..], &["--log-level", "trace"]].concat(), directory.path());
    program.ready().await;
    let objects = "/api/v1/namespaces/default/configmaps";
    let object = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"s","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"applied-hunter2"}},"data":{"password":"body-hunter2"},"binaryData":{"p":"Ym9keS1odW50ZXIy"}}"#;
    let (json, yaml, patch) = ("application/json", "application/yaml", "application/merge-patch+json");
    for (method, path, content_type, body) in [
        ("POST", objects.to_owned(), json, object),
        ("GET", format!("{objects}?labelSelector=query-hunter2"), json, ""),
        ("GET", format!("{objects}?labelSelector=query-hunter2,,=="), json, ""),
        ("GET", format!("{objects}/s"), json, ""),
        ("PATCH", format!("{objects}/s"), patch, r#"{"data":{"p":"body-hunter2"}}"#),
        ("POST", objects.to_owned(), json, r#"{"kind":"ConfigMap" body-hunter2"#),
        ("POST", objects.to_owned(), yaml, "kind: [body-hunter2"),
        ("PUT", format!("/clusters/one{objects}/s"), json, r#"{"kind":"ConfigMap" body-hunter2"#),
        ("POST", "/clusters/one/api/v1/namespaces/default/pods/p/exec?command=argv-hunter2".to_owned(), json, ""),
        ("POST", "/api/v1/namespaces/default/pods/p/exec?command=argv-hunter2".to_owned(), json, ""),
        ("GET", "/api/v1/namespaces/default/pods/p/proxy/?token=query-hunter2".to_owned(), json, ""),
        ("DELETE", format!("{objects}/s?token=query-hunter2"), json, ""),
    ] {
        for token in [None, Some("wrong-hunter2")] {
            let mut config = config(&written, "all").await;
            if let Some(token) = token {
                config.auth_info.token = Some(token.to_owned().into());
            }
            let client = kube::Client::try_from(config).unwrap();
            let request = http::Request::builder().method(method).uri(&path).header("content-type", content_type);
            let request =
                request.header("impersonate-extra-token", "extra-hunter2").header("cookie", "session=hunter2");
            // The program refuses most of these requests, so their results are ignored.
            let _ = client.request_text(request.body(body.as_bytes().to_vec()).unwrap()).await;
        }
    }
    one.control().disconnect();
    get(&written, "all", objects).await.unwrap();
    program.signal("TERM");
    assert!(program.end().await.success());
    let log = program.errors().await;
    assert!(log.contains(objects) && log.contains("status=401"), "requests are logged at this level: {log}");
    let own = std::fs::read_to_string(directory.path().join(".local/share/tributary/token")).unwrap();
    for secret in ["hunter2", "Ym9keS1odW50ZXIy", own.trim(), one.token()] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}
