//! Tests of `tributary policy test` with a running server.

use std::time::Duration;

use crate::fixture::{PATIENCE, Program, add_to_upstream_cluster, member, run};

#[tokio::test]
async fn policy_test_uses_a_running_server() {
    const POLICY: &str = "  dispatchPolicies:\n  - rules: [{verbs: [get], apiGroups: [''], resources: [secrets], users: \
                          [-admin]}]\n    deny: {message: ask the team}\n";
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let (config, written) = (directory.path().join("config"), directory.path().join("all.kubeconfig"));
    std::fs::create_dir(&config).unwrap();
    add_to_upstream_cluster(&config, &one, POLICY);
    let (config_text, written_text) = (config.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--config", config_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;
    let ask = async |more: &[&str]| {
        let from = ["policy", "test", "--kubeconfig", written_text, "--user", "ann", "--group", "a & b"];
        run(&[&from[..], more].concat(), directory.path()).await
    };
    let secret = ["--verb", "get", "--path", "/clusters/one/api/v1/namespaces/shop/secrets/s"];
    let (code, told, errors) = ask(&secret).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(told.starts_with("UpstreamCluster one:\n  spec.dispatchPolicies[0].rules[0] applies:\n"), "{told}");
    assert!(told.contains("  The request is denied (403): ask the team\nVerdict:\n"), "{told}");
    // The command returns the same result for the configuration files as for the running server.
    let of_files =
        [&["policy", "test", "--config", config_text, "--user", "ann", "--group", "a & b"][..], &secret].concat();
    assert_eq!(run(&of_files, directory.path()).await.1, told);
    // After a reload, the server uses the new policies.
    add_to_upstream_cluster(&config, &one, "  dispatch: DenyAll\n");
    let changed = async {
        while !ask(&secret).await.1.contains("dispatch is DenyAll") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, changed).await.is_ok(), "{}", program.log.lock().unwrap());
    let (code, _, errors) = ask(&["--verb", "get", "--resource", "pods", "--cluster", "asia"]).await;
    assert!(code == Some(2) && errors.contains("there is no UpstreamCluster \"asia\""), "{errors}");
    let (code, _, errors) = ask(&["--verb", "get", "--path", "/api/v1/pods"]).await;
    assert!(code == Some(2) && errors.contains("has the verb"), "{errors}");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let (code, told, errors) = ask(&secret).await;
    assert_eq!((code, told.as_str()), (Some(1), ""));
    assert!(errors.contains("nothing answers at"), "{errors}");
}
