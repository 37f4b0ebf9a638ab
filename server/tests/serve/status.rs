//! Tests of `tributary status`.

use std::path::Path;
use std::time::Duration;

use tributary_simulator::kubeconfig;

use crate::fixture::{Program, get, member, run};

/// Runs `tributary status`. Returns its exit code, its standard output, and its standard error.
async fn status(arguments: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    run(&[&["status"], arguments].concat(), directory).await
}

#[tokio::test]
async fn status_shows_a_server_or_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&one, &two])).unwrap();
    let (source_text, written_text) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments =
        ["serve", "--kubeconfig", source_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    let mut program = Program::start(&arguments, directory.path());
    let ready = program.ready().await;
    let address = ready.split_whitespace().nth(1).unwrap().trim_end_matches('/').to_owned();
    get(&written, "all", "/api/v1/pods").await.unwrap();
    two.control().stop_listening().await;
    while !get(&written, "all", "/readyz?verbose").await.unwrap().contains("[-]cluster/two failed: ") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let flag = ["--kubeconfig", written_text];
    let (code, screen, errors) = status(&flag, directory.path()).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""), "without a terminal it is printed once");
    let row = |name: &str| screen.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(screen.starts_with("tributary ") && screen.contains("1 ready, 1 unreachable"), "{screen}");
    assert!(row("one ").contains("ready") && row("two ").contains("unreachable"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 110), "{screen}");

    // The kubeconfig context of a single cluster leads to the same server, so it returns the same report.
    let (code, json, _) = status(&[&flag[..], &["--context", "one", "-o", "json"]].concat(), directory.path()).await;
    let report: tributary_router::Report = serde_json::from_str(&json).unwrap();
    assert_eq!((code, report.clusters.len()), (Some(0), 2), "{json}");
    assert!(report.cluster("one").unwrap().objects >= 10 && report.resident_bytes > Some(0), "{json}");
    assert!(report.limits.iter().any(|limit| limit.limit == "connections" && limit.used > 0), "{json}");
    for secret in [one.token(), two.token()] {
        assert!(!json.contains(secret) && !screen.contains(secret));
    }

    let (code, _, errors) = status(&["--kubeconfig", source_text, "--context", "one"], directory.path()).await;
    assert!(
        code == Some(1) && errors.contains("is not Tributary, or an older version: the server answered 404"),
        "{errors}"
    );
    let (code, _, errors) = status(&[&flag[..], &["--context", "none"]].concat(), directory.path()).await;
    assert!(code == Some(2) && errors.contains("no context \"none\"; it has: all, one, two"), "{errors}");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let (code, screen, errors) = status(&flag, directory.path()).await;
    assert_eq!((code, screen.as_str()), (Some(1), ""));
    for part in [&*address, written_text, "nothing answers at", "tributary serve", "--kubeconfig"] {
        assert!(errors.contains(part), "{part} in {errors}");
    }
}

/// Starts a server that, like Go's TLS servers, answers every client in HTTP without TLS.
async fn answer_as_of_tls() -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1 << 12]).await;
                let answer = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn status_names_each_cause_of_an_outage() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let tls_port = answer_as_of_tls().await;
    let encoded = |pem: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
    let (own, foreign) = (encoded(one.ca_pem()), encoded(two.ca_pem()));
    let token = || serde_json::json!({ "token": one.token() });
    let plugin = serde_json::json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/none/plugin", "interactiveMode": "Never" } });
    let of = |server: &str, authority: Option<&str>| {
        let mut cluster = serde_json::json!({ "server": server });
        if let Some(authority) = authority {
            cluster["certificate-authority-data"] = authority.into();
        }
        cluster
    };
    let (secure, plain) = (one.url(), format!("http://{tls_port}"));
    let broken = [
        ("rejected", of(&secure, Some(&own)), serde_json::json!({ "token": "stale" }), "unauthorized"),
        ("stranger", of(&secure, Some(&foreign)), token(), "untrusted"),
        ("plugin", of(&secure, Some(&own)), plugin, "without credentials"),
        ("plain", of(&plain, None), token(), "misconfigured"),
        ("secure", of(&format!("https://{tls_port}"), Some(&own)), token(), "misconfigured"),
        ("closed", of("https://127.0.0.1:1", Some(&own)), token(), "unreachable"),
    ];
    let list = |field: &str, content: &dyn Fn(usize) -> serde_json::Value| {
        let all = broken.iter().enumerate();
        all.map(|(at, (name, ..))| serde_json::json!({ "name": name, field: content(at) })).collect::<Vec<_>>()
    };
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": list("cluster", &|at| broken[at].1.clone()),
        "users": list("user", &|at| broken[at].2.clone()),
        "contexts": list("context", &|at| serde_json::json!({ "cluster": broken[at].0, "user": broken[at].0 })),
    });
    let (source, written) = (directory.path().join("broken.kubeconfig"), directory.path().join("all.kubeconfig"));
    std::fs::write(&source, config.to_string()).unwrap();
    let (source, written) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", written];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;
    let mut screen = String::new();
    let row =
        |screen: &str, name: &str| screen.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    let all_are_told = async {
        while !broken.iter().all(|(name, .., word)| row(&screen, name).contains(word)) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            screen = status(&["--kubeconfig", written], directory.path()).await.1;
        }
    };
    let in_time = tokio::time::timeout(crate::fixture::PATIENCE, all_are_told).await;
    assert!(in_time.is_ok(), "{screen}");
    assert!(screen.contains("the port of the cluster uses TLS, write https://"), "{screen}");
    let report = status(&["--kubeconfig", written, "-o", "json"], directory.path()).await.1;
    let said = "answered with 400 Bad Request: Client sent an HTTP request to an HTTPS server.";
    assert!(report.contains(said), "the member's own words: {report}");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}
