//! Tests of the kubeconfigs that the program reads and writes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use kube::config::Kubeconfig;
use tributary_simulator::{SimulatedCluster, kubeconfig};

use crate::fixture::{Program, contexts, get, member, reserve, wait_for_contexts};

/// The time limit for the program to apply a changed file.
const SOON: std::time::Duration = std::time::Duration::from_secs(60);

#[tokio::test]
async fn written_kubeconfig_stays_valid_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let reserved = reserve();
    let address = reserved.local_addr().unwrap().to_string();
    for _ in 0..2 {
        let mut program = Program::start(
            &["serve", "--kubeconfig", source, "--listen", &address, "--write-kubeconfig", path],
            directory.path(),
        );
        assert!(program.ready().await.contains(&address));
        let first = std::fs::read(&written).unwrap();
        assert_eq!(get(&written, "all", "/livez").await.unwrap(), "ok");
        program.signal("INT");
        assert_eq!(program.end().await.code(), Some(0));
        assert_eq!(std::fs::read(&written).unwrap(), first);
    }
}

#[tokio::test]
async fn broken_context_does_not_prevent_serving_other_contexts() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    let text = kubeconfig([&one])
        .replace("contexts:\n", "contexts:\n- name: broken\n  context:\n    cluster: broken\n    user: one\n")
        .replace("clusters:\n", "clusters:\n- name: broken\n  cluster:\n    server: https://127.0.0.1:1\n    certificate-authority: gone.pem\n");
    std::fs::write(&source, text).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=broken,one"));
    let ready = get(&written, "all", "/readyz?verbose").await.unwrap();
    assert!(ready.contains("broken") && ready.contains("gone.pem"), "{ready}");
    assert!(get(&written, "one", "/api/v1/namespaces?limit=1").await.is_ok());
    for round in 1..=2 {
        program.signal("HUP");
        program.logged("configuration reloaded", round).await;
    }
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let log = program.errors().await;
    assert_eq!(log.matches("gone.pem").count(), 1, "said once: {log}");
    let mut program = Program::start(&[&arguments[..], &["--contexts", "one,broken"]].concat(), directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let log = program.errors().await;
    assert!(log.contains("gone.pem") && log.contains("context \"broken\""), "{log}");
}

#[tokio::test]
async fn contexts_are_merged_into_the_user_kubeconfig_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let config = directory.path().join(".kube/config");
    std::fs::create_dir(config.parent().unwrap()).unwrap();
    let text = |members: &[&SimulatedCluster]| format!("# mine\n{}", kubeconfig(members.iter().copied()));
    std::fs::write(&config, text(&[&one])).unwrap();
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o640)).unwrap();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--merge-into-kubeconfig"];
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=one"));
    let below = program.lines.next_line().await.unwrap();
    assert_eq!(below.as_deref(), Some("Try it: kubectl --context tributary-all get pods -A"));
    assert_eq!(contexts(&config), ["one", "tributary-all", "tributary-one"]);
    let current = |config: &Path| Kubeconfig::read_from(config).unwrap().current_context;
    assert_eq!(current(&config).as_deref(), Some("one"));
    // The kubeconfig now contains a token, so the file's group must not have read access.
    assert_eq!(std::fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(get(&config, "tributary-all", "/readyz").await.unwrap(), "ok");
    assert!(get(&config, "tributary-one", "/api/v1/namespaces?limit=1").await.is_ok());
    program.signal("HUP");
    program.logged("configuration reloaded", 1).await;
    assert!(get(&config, "tributary-all", "/readyz?verbose").await.unwrap().contains("one"));

    // The user rewrites the file with an additional cluster, without Tributary's contexts.
    std::fs::write(&config, text(&[&one, &two])).unwrap();
    let expected = ["one", "two", "tributary-all", "tributary-one", "tributary-two"];
    wait_for_contexts(&config, &expected).await;
    program.child.kill().await.unwrap();
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=one,two"), "its own contexts are not served");
    assert_eq!(contexts(&config), expected);
    assert_eq!(get(&config, "tributary-all", "/readyz").await.unwrap(), "ok", "the new port is there");
    program.child.kill().await.unwrap();

    let mut removal = Program::start(&["kubeconfig", "remove"], directory.path());
    let said = removal.ready().await;
    assert!(said.ends_with("/.kube/config: tributary-all, tributary-one, tributary-two"), "{said}");
    assert!(removal.end().await.success());
    assert_eq!(std::fs::read_to_string(&config).unwrap(), text(&[&one, &two]), "every byte");

    std::fs::write(&config, "contexts:\n- name: [hunter2\n").unwrap();
    let mut program = Program::start(&[&arguments[..], &["--config", "none.yaml"]].concat(), directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let message = program.errors().await;
    assert!(message.contains("does not parse at line") && !message.contains("hunter2"), "{message}");
}

#[tokio::test]
async fn written_contexts_follow_the_namespace_of_their_original_context() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    let own = directory.path().join(".kube/config");
    std::fs::create_dir(own.parent().unwrap()).unwrap();
    std::fs::write(&own, "apiVersion: v1\nkind: Config\n").unwrap();
    let write = |namespace: &str| {
        let with = format!("    user: one\n    namespace: {namespace}\n");
        std::fs::write(&source, kubeconfig([&one, &two]).replace("    user: one\n", &with)).unwrap();
    };
    write("shop");
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let merge = [&arguments[..], &["--merge-into-kubeconfig"]].concat();
    let mut program = Program::start(&merge, directory.path());
    program.ready().await;
    let namespaces = |file: &Path| -> Vec<_> {
        let contexts = Kubeconfig::read_from(file).unwrap().contexts;
        contexts.into_iter().map(|named| named.context.and_then(|context| context.namespace)).collect()
    };
    let expected = |namespace: &str| vec![None, Some(namespace.to_owned()), None];
    assert_eq!(namespaces(&written), expected("shop"));
    assert_eq!(namespaces(&own), expected("shop"));
    write("team");
    program.logged("configuration reloaded", 1).await;
    let changed = async {
        while namespaces(&written) != expected("team") {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, changed).await.expect("the written context keeps the old namespace");
}

#[tokio::test]
async fn name_conflict_in_the_users_kubeconfig_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let (one, taken) = (member("one").await, member("tributary-all").await);
    let config = directory.path().join(".kube/config");
    std::fs::create_dir(config.parent().unwrap()).unwrap();
    std::fs::write(&config, kubeconfig([&one, &taken])).unwrap();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--contexts", "one", "--merge-into-kubeconfig"];
    let mut program = Program::start(&arguments, directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let message = program.errors().await;
    assert_eq!(message.matches("which tributary did not add").count(), 1, "{message}");
    assert!(message.contains("\"tributary-all\"") && message.contains("--kubeconfig-prefix"), "{message}");
}
