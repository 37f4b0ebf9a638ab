//! Tests of reloads, signals, and core dumps after a crash.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tributary_simulator::kubeconfig;

use crate::fixture::{Program, contexts, get, hold_the_drain, member, wait_for_contexts};

#[tokio::test]
async fn program_serves_reloads_and_drains() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    let (source_text, written_text) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments =
        ["serve", "--kubeconfig", source_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    let mut program = Program::start(&arguments, directory.path());
    let ready = program.ready().await;
    assert!(ready.starts_with("ready: https://127.0.0.1:"), "{ready}");
    assert!(ready.ends_with(&format!("kubeconfig={written_text} clusters=one")), "{ready}");

    let data = directory.path().join(".local/share/tributary");
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(data.clone()), 0o700);
    for file in std::fs::read_dir(&data).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(path.clone()), 0o600, "{}", path.display());
    }
    assert_eq!(mode(written.clone()), 0o600);
    assert_eq!(get(&written, "all", "/readyz").await.unwrap(), "ok");
    assert_eq!(contexts(&written), ["all", "one"]);

    std::fs::write(&source, kubeconfig([&one, &two])).unwrap();
    wait_for_contexts(&written, &["all", "one", "two"]).await;
    std::fs::write(&source, "{ broken").unwrap();
    program.signal("HUP");
    program.logged("the new configuration is refused", 1).await;
    assert_eq!(get(&written, "all", "/readyz").await.unwrap(), "ok", "the old configuration stays");
    assert_eq!(contexts(&written), ["all", "one", "two"]);
    std::fs::write(&source, kubeconfig([&two])).unwrap();
    wait_for_contexts(&written, &["all", "two"]).await;

    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let log = program.errors().await;
    assert!(log.contains("the new configuration is refused") && log.contains("does not parse"), "{log}");
    assert!(log.contains("memory limits: objects "), "{log}");
    for secret in [one.token(), two.token(), &std::fs::read_to_string(data.join("token")).unwrap()] {
        assert!(!log.contains(secret), "no token in the log: {log}");
    }
}

#[tokio::test]
async fn second_signal_ends_the_program_immediately() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;
    let _held = hold_the_drain(&written, "one").await;
    program.signal("TERM");
    program.logged("a second signal ends at once", 1).await;
    assert!(program.child.try_wait().unwrap().is_none(), "the drain waits");
    program.signal("TERM");
    // The exit code is 1, because the second signal ends the program before the drain completes.
    assert_eq!(program.end().await.code(), Some(1));
}

/// Log lines are written at the end of a request. Requests that the end of the process cuts must also have lines in the
/// logs.
#[tokio::test]
async fn requests_cut_at_exit_are_in_access_and_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, written) = (file("members.kubeconfig"), file("all.kubeconfig"));
    let (policy, access_log, audit_log) = (file("policy.yaml"), file("access.log"), file("audit.log"));
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    std::fs::write(&policy, "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}").unwrap();
    let flag = |name: &str, value: &str| format!("--{name}={value}");
    let arguments = [
        "serve".to_owned(),
        flag("kubeconfig", &source),
        flag("listen", "127.0.0.1:0"),
        flag("write-kubeconfig", &written),
        flag("access-log-path", &access_log),
        flag("audit-policy-file", &policy),
        flag("audit-log-path", &audit_log),
        flag("audit-log-mode", "batch"),
    ];
    let mut program = Program::start(&arguments.each_ref().map(String::as_str), directory.path());
    program.ready().await;
    let _held = hold_the_drain(Path::new(&written), "one").await;
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let errors = program.errors().await;
    assert!(errors.contains("cut=1"), "{errors}");
    let lines = |path: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let line = lines(&access_log).into_iter().find(|line| line["resource"] == "pods/log").expect("a line of it");
    let told = ["status", "complete", "decision"].map(|field| line[field].clone());
    assert_eq!(told, [json!(200), json!(false), json!("forwarded")], "{line}");
    let audited = lines(&audit_log).into_iter().filter(|event| event["objectRef"]["subresource"] == "log");
    let stages: Vec<_> = audited.map(|event| event["stage"].as_str().unwrap().to_owned()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
}

/// A core dump would contain the tokens of members and clients.
#[tokio::test]
async fn core_dump_limit_of_the_program_is_zero() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&member("one").await])).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", program.child.id().unwrap())).unwrap();
    let cores: Vec<&str> = limits.lines().find(|line| line.starts_with("Max core")).unwrap().split("  ").collect();
    assert_eq!(cores.iter().filter(|part| part.trim() == "0").count(), 2, "soft and hard: {cores:?}");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}
