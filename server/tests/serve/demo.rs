//! Tests of `tributary demo`.

use std::path::Path;

use crate::fixture::{PATIENCE, Program, contexts, get, hold_the_drain};

#[tokio::test]
async fn demo_removes_its_files_at_exit() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = Program::start(&["demo", "--clusters", "2", "--pods", "20", "--churn", "5"], directory.path());
    let ready = program.ready().await;
    assert!(ready.ends_with("clusters=member1,member2"), "{ready}");
    let mut printed = String::new();
    while !printed.contains("Ctrl-C") {
        let line = tokio::time::timeout(PATIENCE, program.lines.next_line()).await.unwrap().unwrap().unwrap();
        printed.push_str(&line);
        printed.push('\n');
    }
    for missing in ["auth whoami", "kubectl top", "kubectl explain"] {
        assert!(printed.contains(missing), "it tells that {missing} is missing: {printed}");
    }
    let kubeconfig = printed.split_whitespace().skip_while(|word| *word != "--kubeconfig").nth(1).unwrap();
    assert_eq!(contexts(Path::new(kubeconfig)), ["all", "member1", "member2"]);
    assert_eq!(get(Path::new(kubeconfig), "all", "/readyz").await.unwrap(), "ok");
    let token = std::fs::read_to_string(Path::new(kubeconfig).parent().unwrap().join("data/token")).unwrap();
    assert!(!printed.contains(&token), "the token is in files alone");
    program.signal("INT");
    assert_eq!(program.end().await.code(), Some(0));
    let log = program.errors().await;
    assert!(!log.contains("memory limits: objects "), "that is for whoever sizes a machine: {log}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn demo_removes_its_files_after_a_second_signal() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = Program::start(&["demo", "--clusters", "1", "--pods", "5", "--churn", "0"], directory.path());
    let ready = program.ready().await;
    let kubeconfig = ready.split_whitespace().find_map(|word| word.strip_prefix("kubeconfig=")).unwrap().to_owned();
    let _held = hold_the_drain(Path::new(&kubeconfig), "member1").await;
    program.signal("INT");
    program.logged("a second signal ends at once", 1).await;
    assert!(program.child.try_wait().unwrap().is_none(), "the drain waits");
    program.signal("INT");
    assert_eq!(program.end().await.code(), Some(1));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
