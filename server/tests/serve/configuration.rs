//! Tests of flags and configuration files, and of the messages about invalid ones.

use crate::fixture::{Program, contexts, get, member, wait_for_contexts, write_upstream_cluster};

#[tokio::test]
async fn changed_configuration_files_are_reloaded() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let config = directory.path().join("config");
    let written = directory.path().join("all.kubeconfig");
    std::fs::create_dir(&config).unwrap();
    write_upstream_cluster(&config, &one);
    let (config_text, written_text) = (config.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--config", config_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=one"));
    let namespaces = get(&written, "one", "/api/v1/namespaces?limit=1").await.unwrap();
    assert!(namespaces.contains("NamespaceList"), "{namespaces}");
    write_upstream_cluster(&config, &two);
    wait_for_contexts(&written, &["all", "one", "two"]).await;
    std::fs::write(config.join("bad.yaml"), "kind: Nonsense\n").unwrap();
    std::fs::remove_file(config.join("one.yaml")).unwrap();
    program.logged("the new configuration is refused", 1).await;
    assert_eq!(contexts(&written), ["all", "one", "two"], "a broken whole changes nothing");
    std::fs::remove_file(config.join("bad.yaml")).unwrap();
    wait_for_contexts(&written, &["all", "two"]).await;
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}

/// The program logs a mistyped resource once, after every cluster that may serve the resource has answered the
/// discovery request.
#[tokio::test]
async fn unserved_resource_is_logged_once() {
    const TOLD: &str = "no cluster serves a resource of the configuration";
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let config = directory.path().join("config");
    std::fs::create_dir(&config).unwrap();
    write_upstream_cluster(&config, &one);
    write_upstream_cluster(&config, &two);
    two.control().stop_listening().await;
    let registry = "apiVersion: tributary.dev/v1alpha1\nkind: ResourceRegistry\nmetadata: { name: main }\nspec: { \
                    resources: [services, xylophones.example] }\n";
    std::fs::write(config.join("registry.yaml"), registry).unwrap();
    let arguments = ["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let resources = ["--resources", "pods,deploments.apps"];
    let mut program = Program::start(&[&arguments[..], &resources].concat(), directory.path());
    program.ready().await;
    assert!(!program.log.lock().unwrap().contains(TOLD), "the other may serve it");
    std::fs::remove_file(config.join("two.yaml")).unwrap();
    program.logged(TOLD, 2).await;
    program.signal("HUP");
    program.logged("configuration reloaded", 2).await;
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let log = program.errors().await;
    let told: Vec<_> = log.lines().filter(|line| line.contains(TOLD)).collect();
    let [flag, registry] = &told[..] else { panic!("{log}") };
    for part in ["--resources", "deploments.apps", "did_you_mean", "deployments.apps"] {
        assert!(flag.contains(part), "{part} in {flag}");
    }
    assert!(registry.contains("ResourceRegistry main: spec.resources"), "{registry}");
    assert!(registry.contains("xylophones.example") && !registry.contains("did_you_mean"), "{registry}");
}

#[tokio::test]
async fn token_review_cluster_must_be_configured() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let config = directory.path().join("config");
    std::fs::create_dir(&config).unwrap();
    write_upstream_cluster(&config, &one);
    let arguments =
        ["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0", "--token-review-cluster"];
    let mut program = Program::start(&[&arguments[..], &["two"]].concat(), directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let message = program.errors().await;
    assert!(message.contains("--token-review-cluster two: there is no such cluster"), "{message}");
    // A reload that removes the token-review cluster is also refused, because no client could then be authenticated.
    write_upstream_cluster(&config, &two);
    let mut program = Program::start(&[&arguments[..], &["two"]].concat(), directory.path());
    program.ready().await;
    std::fs::remove_file(config.join("two.yaml")).unwrap();
    program.logged("the new configuration is refused", 1).await;
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}

/// Neither the kubeconfig nor the files in the flags exist. Errors in the flags themselves are reported first.
#[tokio::test]
async fn conflicting_flags_are_reported_before_any_file_is_read() {
    let directory = tempfile::tempdir().unwrap();
    for (flags, expected) in [
        ("--listen 0.0.0.0:7443", "0.0.0.0:7443 is not a loopback address"),
        ("--listen 0.0.0.0:7443 --client-ca-file nowhere.crt", "give a certificate with --tls-cert-file"),
        ("--client-ca-file nowhere.crt --write-kubeconfig all.kubeconfig", "shared mode has none"),
        ("--denied-users-file nowhere.yaml", "--denied-users-file needs shared mode"),
        (
            "--client-ca-file nowhere.crt --requestheader-client-ca-file nowhere.crt",
            "--requestheader-allowed-names is not",
        ),
        ("--config nowhere --client-ca-file nowhere.crt --write-kubeconfig all.kubeconfig", "shared mode has none"),
    ] {
        let arguments: Vec<_> = ["serve"].into_iter().chain(flags.split(' ')).collect();
        let mut program = Program::start(&arguments, directory.path());
        assert_eq!(program.end().await.code(), Some(2), "{flags}");
        let message = program.errors().await;
        assert!(message.contains(expected), "{flags}: {message}");
    }
}
