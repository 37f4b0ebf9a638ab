//! Tests of the binary as a user runs it: exit codes, messages, files and signals.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn tributary(arguments: &[&str], environment: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tributary"));
    command.args(arguments).env_remove("KUBECONFIG").env_remove("XDG_DATA_HOME").env_remove("TRIBUTARY_LOG_LEVEL");
    for (name, value) in environment {
        command.env(name, value);
    }
    command.output().unwrap()
}

fn refused(arguments: &[&str], environment: &[(&str, &Path)]) -> (Option<i32>, String) {
    let output = tributary(arguments, environment);
    assert!(output.stdout.is_empty(), "nothing on standard output: {}", String::from_utf8_lossy(&output.stdout));
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Writes a kubeconfig with one valid context and several invalid ones.
fn kubeconfig(directory: &Path) -> PathBuf {
    let path = directory.join("config");
    let text = r#"
apiVersion: v1
kind: Config
clusters:
- name: good
  cluster: { server: "https://127.0.0.1:1", insecure-skip-tls-verify: true }
- name: no-file
  cluster: { server: "https://127.0.0.1:1", certificate-authority: missing.pem }
- name: no-ca
  cluster: { server: "https://127.0.0.1:1" }
- name: plain
  cluster: { server: "http://example.com" }
- name: password
  cluster: { server: "https://robot:hunter2@127.0.0.1:1", insecure-skip-tls-verify: true }
- name: through-proxy
  cluster: { server: "http://127.0.0.1:8001", proxy-url: "http://robot:hunter2@127.0.0.1:3128" }
contexts:
- { name: good, context: { cluster: good, user: admin } }
- { name: Good, context: { cluster: good, user: admin } }
- { name: no-cluster, context: { cluster: nowhere, user: admin } }
- { name: no-user, context: { cluster: good, user: nobody } }
- { name: no-file, context: { cluster: no-file, user: admin } }
- { name: no-ca, context: { cluster: no-ca, user: admin } }
- { name: plain, context: { cluster: plain, user: admin } }
- { name: password, context: { cluster: password, user: admin } }
- { name: through-proxy, context: { cluster: through-proxy, user: admin } }
- { name: no-key, context: { cluster: good, user: no-key } }
users:
- { name: admin, user: { token: hunter2 } }
- { name: no-key, user: { client-certificate-data: eA== } }
"#;
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn kubeconfig_error_names_file_context_and_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let path = kubeconfig(directory.path());
    let file = path.to_str().unwrap();
    for (contexts, expected) in [
        ("nope", vec!["no context \"nope\"", "\"good\""]),
        ("no-cluster", vec!["context \"no-cluster\"", "context.cluster", "no cluster \"nowhere\"", "add it"]),
        ("no-user", vec!["context \"no-user\"", "context.user", "no user \"nobody\""]),
        ("no-file", vec!["clusters[no-file].cluster.certificate-authority", "missing.pem", "restore the file"]),
        ("no-ca", vec!["clusters[no-ca].cluster.certificate-authority", "insecure-skip-tls-verify"]),
        ("plain", vec!["clusters[plain].cluster.server", "without encryption"]),
        ("password", vec!["clusters[password].cluster.server", "\"https://127.0.0.1:1\"", "user name or password"]),
        ("through-proxy", vec!["clusters[through-proxy].cluster.proxy-url", "without encryption", "remove it"]),
        ("no-key", vec!["users[no-key].user.client-key", "add the key"]),
        ("good,Good", vec!["\"good\" and \"Good\"", "cluster good"]),
        ("no-user,no-file", vec!["\"no-user\"", "\"no-file\""]),
    ] {
        let (code, message) =
            refused(&["serve", "--kubeconfig", file, "--contexts", contexts], &[("HOME", directory.path())]);
        assert_eq!(code, Some(2), "{contexts}: {message}");
        for part in expected.into_iter().chain([file]) {
            assert!(message.contains(part), "{contexts}: {part} in {message}");
        }
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn error_for_a_malformed_kubeconfig_does_not_quote_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    for text in ["users:\n- name: a\n  user: { token: [hunter2] }\n", "{ hunter2", "hunter2"] {
        std::fs::write(&path, text).unwrap();
        let (code, message) =
            refused(&["serve", "--kubeconfig", path.to_str().unwrap()], &[("HOME", directory.path())]);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("does not parse") && message.contains(path.to_str().unwrap()), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
    let (code, message) = refused(&["serve", "--kubeconfig", "/no/such/file"], &[]);
    assert_eq!(code, Some(2));
    assert!(message.contains("/no/such/file cannot be read") && message.contains("--kubeconfig"), "{message}");
}

#[test]
fn default_configuration_files_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let (code, message) = refused(&["serve"], &[("HOME", directory.path())]);
    assert_eq!(code, Some(2));
    assert!(message.contains(".kube/config"), "{message}");
    let path = kubeconfig(directory.path());
    let (code, message) =
        refused(&["serve", "--contexts", "nope"], &[("HOME", directory.path()), ("KUBECONFIG", &path)]);
    assert_eq!(code, Some(2));
    assert!(message.contains("no context \"nope\""), "{message}");
}

#[test]
fn contradictory_flags_are_usage_errors() {
    let directory = tempfile::tempdir().unwrap();
    let path = kubeconfig(directory.path());
    let file = path.to_str().unwrap();
    let (code, message) =
        refused(&["serve", "--kubeconfig", file, "--contexts", "good", "--listen", "0.0.0.0:7443"], &[]);
    assert_eq!(code, Some(2));
    assert!(message.contains("not a loopback address") && message.contains("ssh -L"), "{message}");
    let serve = ["serve", "--kubeconfig", file, "--contexts", "good", "--listen", "127.0.0.1:0"];
    let (code, message) = refused(&[&serve[..], &["--write-kubeconfig", file]].concat(), &[("HOME", directory.path())]);
    assert_eq!(code, Some(2));
    assert!(message.contains("is read as well"), "{message}");
    let foreign = directory.path().join("foreign");
    std::fs::copy(&path, &foreign).unwrap();
    let foreign = foreign.to_str().unwrap();
    let (code, message) =
        refused(&[&serve[..], &["--write-kubeconfig", foreign]].concat(), &[("HOME", directory.path())]);
    assert_eq!(code, Some(2));
    assert!(message.contains("was not written by tributary"), "{message}");
    let (code, message) = refused(&[&serve[..], &["--create-in", "nowhere"]].concat(), &[("HOME", directory.path())]);
    assert_eq!(code, Some(2));
    assert!(message.contains("--create-in") && message.contains("good"), "{message}");
}

#[test]
fn unsupported_tls_version_error_lists_the_supported_ones() {
    for version in ["VersionTLS10", "VersionTLS11", "VersionTLS14", "1.3", "nonsense"] {
        let (code, message) = refused(&["serve", "--tls-min-version", version], &[]);
        assert_eq!(code, Some(2), "{version}: {message}");
        for part in ["--tls-min-version", version, "VersionTLS12", "VersionTLS13"] {
            assert!(message.contains(part), "{version}: {part} in {message}");
        }
    }
}

#[test]
fn used_port_is_a_runtime_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = kubeconfig(directory.path());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["serve", "--kubeconfig", path.to_str().unwrap(), "--contexts", "good", "--listen", &address];
    let (code, message) = refused(&arguments, &[("HOME", directory.path())]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(&address) && message.contains("in use"), "{message}");
}

#[test]
fn command_decodes_composite_resource_versions() {
    let output = tributary(&["rv", "decode", "eyJjbHVzdGVyMSI6IjEyMzQifQ", "-o", "json"], &[]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "{\n  \"cluster1\": \"1234\"\n}\n");
    let (code, message) = refused(&["rv", "decode", "nonsense!"], &[]);
    assert_eq!(code, Some(2));
    assert!(message.starts_with("error: \"nonsense!\" is not a composite resourceVersion"), "{message}");
    assert!(String::from_utf8(tributary(&["--version"], &[]).stdout).unwrap().starts_with("tributary "));
}

#[test]
fn each_shell_gets_a_completion_script() {
    let directory = tempfile::tempdir().unwrap();
    for (shell, part) in [
        ("bash", "complete -F _tributary"),
        ("zsh", "#compdef tributary"),
        ("fish", "complete -c tributary"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let output = tributary(&["completion", shell], &[]);
        assert_eq!(output.status.code(), Some(0));
        let script = String::from_utf8(output.stdout).unwrap();
        for part in [part, "write-kubeconfig"] {
            assert!(script.contains(part), "{shell}: {part} in {script}");
        }
        std::fs::write(directory.path().join(shell), script).unwrap();
    }
    let script = directory.path().join("bash");
    let valid = Command::new("bash").arg("-n").arg(&script).output().unwrap();
    assert!(valid.status.success() && valid.stderr.is_empty(), "{valid:?}");
    let completed = "source \"$0\"; COMP_WORDS=(tributary ser); COMP_CWORD=1; _tributary tributary ser tributary; \
                     printf '%s\n' \"${COMPREPLY[@]}\"";
    let completed = Command::new("bash").args(["-c", completed]).arg(&script).output().unwrap();
    assert_eq!(String::from_utf8(completed.stdout).unwrap(), "serve\n");
    let (code, message) = refused(&["completion", "tcsh"], &[]);
    assert_eq!(code, Some(2));
    assert!(message.contains("bash") && message.contains("zsh"), "{message}");
}

#[test]
fn program_named_kubectl_tributary_is_a_plugin() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-tributary");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tributary"), &plugin).unwrap();
    let run = |arguments: &[&str]| {
        let output =
            Command::new(&plugin).args(arguments).env("HOME", directory.path()).env_remove("KUBECONFIG").output();
        let output = output.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, help, _) = run(&["which", "--help"]);
    assert!(code == Some(0) && help.contains("Usage: kubectl tributary which"), "{help}");
    let (code, versions, _) = run(&["rv", "decode", "eyJjbHVzdGVyMSI6IjEyMzQifQ", "-o", "json"]);
    assert_eq!((code, versions.as_str()), (Some(0), "{\n  \"cluster1\": \"1234\"\n}\n"));
    let (code, _, errors) = run(&["serve"]);
    assert!(code == Some(2) && errors.contains("unrecognized subcommand 'serve'"), "{errors}");
    let (code, _, errors) = run(&["which", "pods"]);
    assert_eq!(
        (code, errors.as_str()),
        (Some(2), "error: \"pods\" names no object; write TYPE/NAME, for example deploy/web\n")
    );
    let (code, _, errors) = run(&["which", "pods/a"]);
    assert!(code == Some(2) && errors.contains(".kube/config cannot be read"), "{errors}");
    let config = kubeconfig(directory.path());
    let config = config.to_str().unwrap();
    let (code, _, errors) = run(&["which", "pods/a", "--kubeconfig", config]);
    assert!(code == Some(2) && errors.contains("no current context; name one by --context"), "{errors}");
    let asked = ["pods/a", "--kubeconfig", config, "--context", "good"];
    for (command, expected) in [("which", 1), ("diff", 2)] {
        let (code, _, errors) = run(&[&[command], &asked[..]].concat());
        assert!(
            code == Some(expected) && errors.contains("context \"good\" (https://127.0.0.1:1/) cannot be queried: "),
            "{code:?}: {errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn policy_test_warns_or_fails_for_an_unknown_verb_or_resource() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policies.yaml");
    std::fs::write(
        &path,
        "{apiVersion: tributary.dev/v1alpha1, kind: MergedEndpoint, metadata: {name: all}, spec: {}}\n",
    )
    .unwrap();
    let asked = |verb: &str, resource: &str| {
        let file = path.to_str().unwrap();
        tributary(&["policy", "test", "--config", file, "--user", "ann", "--verb", verb, "--resource", resource], &[])
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let refused = asked("gett", "pods");
    let errors = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && errors.contains("allowed are get, list, watch"), "{errors}");
    let doubted = asked("get", "podss");
    let said = text(&doubted.stdout);
    assert_eq!(doubted.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with("warning: ")
            && said.contains("did you mean pods? ")
            && said.contains("\nMergedEndpoint all:\n"),
        "{said}"
    );
    let said = text(&asked("get", "pods").stdout);
    assert!(said.starts_with("MergedEndpoint all:\n"), "{said}");
}

#[test]
fn check_command_validates_configurations() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("clusters.yaml");
    let good = "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: { name: eu }\nspec:\n  endpoints: \
                [\"https://127.0.0.1:6443\"]\n  insecureSkipVerify: true\n  credentials: { token: hunter2 }\n";
    std::fs::write(&path, good).unwrap();
    let output = tributary(&["check", "--config", path.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("1 cluster would be served") && text.contains("eu: https://127.0.0.1:6443"), "{text}");
    std::fs::write(&path, good.replace("endpoints", "endpoint")).unwrap();
    let output = tributary(&["check", "--config", path.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(2));
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(text.starts_with("error: ") && text.contains("spec.endpoint"), "{text}");
    assert!(errors.contains("1 error"), "{errors}");
    assert!(!text.contains("hunter2") && !errors.contains("hunter2"));
    let (code, message) = refused(&["serve", "--config", path.to_str().unwrap()], &[("HOME", directory.path())]);
    assert_eq!(code, Some(2));
    assert!(message.contains("spec.endpoint"), "{message}");
    // The folder contains no objects, so the start fails. The error message contains the path and a remedy.
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    let (code, message) = refused(&["serve", "--config", empty], &[("HOME", directory.path())]);
    assert_eq!(code, Some(2));
    for part in [empty, "has no UpstreamCluster", "tributary join CONTEXT"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let output = tributary(&["check", "--config", empty], &[]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(2) && said.starts_with(&format!("error: {empty} has no .yaml")), "{said}");
    let (code, message) = refused(&["check"], &[]);
    assert!(code == Some(2) && message.starts_with("error: there is nothing to check; name"), "{message}");
    let registry = "---\napiVersion: tributary.dev/v1alpha1\nkind: ResourceRegistry\nmetadata: { name: r }\nspec:\n  \
                    resources: [pods]\n  namespaces: [a]\n  consistency: Quorum\n";
    std::fs::write(&path, format!("{good}{registry}")).unwrap();
    let output = tributary(&["check", "--config", path.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "r: pods; of namespaces a, requests for others are forwarded",
        "reads without a resourceVersion are confirmed by the clusters",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// Unauthenticated clients open as many connections as they can. The program reserves file descriptors for connections
/// to members, and still accepts the connection of a new client.
#[test]
fn idle_connections_do_not_exhaust_file_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_tributary");
    let command = format!("ulimit -n 200 && exec {program} demo --clusters 1 --pods 1 --listen 127.0.0.1:0");
    let mut demo = Command::new("sh")
        .args(["-c", &command])
        .env("XDG_DATA_HOME", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let ready =
        lines.find_map(|line| line.unwrap().split_once("ready: https://").map(|(_, url)| url.to_owned())).unwrap();
    let address = ready.split_whitespace().next().unwrap().trim_end_matches('/').to_owned();
    let held: Vec<_> = (0..250).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("there is room");
    drop(held);
    assert!(answer.starts_with("HTTP/1.0 400"), "{answer}");
    demo.kill().unwrap();
    let mut log = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    demo.wait().unwrap();
    assert!(log.contains("there are too few file descriptors for so many connections"), "{log}");
    assert!(!log.contains("connections cannot be accepted"), "{log}");
}

#[test]
fn clusterpedia_cluster_without_an_authority_is_refused_by_default() {
    let directory = tempfile::tempdir().unwrap();
    let path = kubeconfig(directory.path());
    let arguments = ["serve", "--kubeconfig", path.to_str().unwrap(), "--contexts", "no-ca"];
    let (code, message) = refused(&arguments, &[("HOME", directory.path())]);
    assert_eq!(code, Some(2), "{message}");
    for part in ["clusters[no-ca].cluster.certificate-authority", "insecure-skip-tls-verify"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let path = directory.path().join("clusters.yaml");
    for (trust, code, says) in [
        ("", 2, "spec.caData: is missing"),
        ("insecureSkipVerify: false, ", 2, "spec.caData: is missing"),
        ("insecureSkipVerify: true, ", 0, "spec.insecureSkipVerify: true"),
    ] {
        let text = format!(
            "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {{ name: eu }}\nspec: {{ {trust}endpoints: \
             ['https://127.0.0.1:6443'], credentials: {{ token: hunter2 }} }}\n"
        );
        std::fs::write(&path, text).unwrap();
        let output = tributary(&["check", "--config", path.to_str().unwrap()], &[]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{trust:?}: {said}");
        assert!(said.contains(says), "{trust:?}: {said}");
    }
}
