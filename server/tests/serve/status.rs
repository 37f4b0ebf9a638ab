//! `tributary status`.

use std::path::Path;
use std::time::Duration;

use tributary_simulator::kubeconfig;

use crate::fixture::{Program, get, member, run};

/// `tributary status` with these arguments: its exit code, what it printed, and its errors.
async fn status(arguments: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    run(&[&["status"], arguments].concat(), directory).await
}

#[tokio::test]
async fn status_shows_a_server_and_says_what_to_do_where_there_is_none() {
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

    // A cluster's own context leads to the same server.
    let (code, json, _) = status(&[&flag[..], &["--context", "one", "-o", "json"]].concat(), directory.path()).await;
    let report: tributary_router::Report = serde_json::from_str(&json).unwrap();
    assert_eq!((code, report.clusters.len()), (Some(0), 2), "{json}");
    assert!(report.cluster("one").unwrap().objects >= 10 && report.resident_bytes > Some(0), "{json}");
    assert!(report.limits.iter().any(|limit| limit.limit == "connections" && limit.used > 0), "{json}");
    for secret in [one.token(), two.token()] {
        assert!(!json.contains(secret) && !screen.contains(secret));
    }

    let (code, _, errors) = status(&["--kubeconfig", source_text, "--context", "one"], directory.path()).await;
    assert!(code == Some(1) && errors.contains("is no Tributary, or an older one: it answered 404"), "{errors}");
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
