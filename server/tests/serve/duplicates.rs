//! Tests of several clusters with an equal uid of kube-system: one cluster under two names, or a cluster that reports a
//! forged uid.

use std::time::Duration;

use tributary_simulator::kubeconfig;

use crate::fixture::{PATIENCE, Program, get, member, reserve, write_upstream_cluster};

/// Forwards connections from a local port to another address.
async fn forward(from: u16, to: std::net::SocketAddr) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", from)).await.unwrap();
    while let Ok((mut near, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
    }
}

#[tokio::test]
#[ignore = "takes as long as a member is left alone after a failure, up to 20 s"]
async fn second_context_of_one_cluster_is_refused_when_reachable() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let reserved = reserve();
    let later = reserved.local_addr().unwrap().port();
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    let text = kubeconfig([&one]);
    let twin = text.replace(&one.url(), &format!("https://127.0.0.1:{later}")).replace("one", "twin");
    let other = directory.path().join("twin.kubeconfig");
    std::fs::write(&source, text).unwrap();
    std::fs::write(&other, twin).unwrap();
    let config = directory.path().join("twin.yaml");
    let reference = "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: { name: twin }\nspec: { kubeconfig: { path: twin.kubeconfig } }\n";
    std::fs::write(&config, reference).unwrap();
    let (source, config, path) = (source.to_str().unwrap(), config.to_str().unwrap(), written.to_str().unwrap());
    let arguments =
        ["serve", "--kubeconfig", source, "--config", config, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=one,twin"));
    let forwarding = tokio::spawn(forward(later, one.address()));
    let refused = async {
        while !get(&written, "all", "/readyz?verbose").await.unwrap().contains("same uid") {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.unwrap();
    forwarding.abort();
    program.signal("TERM");
    program.end().await;
    let log = program.errors().await;
    assert_eq!(log.matches("the cluster is refused").count(), 1, "{log}");
}

/// A hostile cluster can report another cluster's uid of kube-system, which is no secret. Tributary serves both
/// clusters from the start, and logs a warning.
#[tokio::test]
async fn cluster_with_a_forged_uid_does_not_block_the_endpoint() {
    let directory = tempfile::tempdir().unwrap();
    let victim = member("victim").await;
    // A simulator with the same name and seed has an equal uid, but a different certificate and token.
    let hostile = member("victim").await;
    let config = directory.path().join("config");
    std::fs::create_dir(&config).unwrap();
    write_upstream_cluster(&config, &hostile);
    for end in ["ca", "token"] {
        std::fs::rename(config.join(format!("victim.{end}")), config.join(format!("a.{end}"))).unwrap();
    }
    let text = std::fs::read_to_string(config.join("victim.yaml")).unwrap();
    std::fs::write(config.join("a.yaml"), text.replace("victim", "a")).unwrap();
    write_upstream_cluster(&config, &victim);
    let arguments = ["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=a,victim"));
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let log = program.errors().await;
    assert_eq!(log.matches("two clusters have the same kube-system uid").count(), 1, "{log}");
}

#[tokio::test]
async fn two_contexts_of_one_cluster_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let source = directory.path().join("members.kubeconfig");
    let text = kubeconfig([&one]);
    let twice = text.replace("contexts:\n", "contexts:\n- name: twin\n  context:\n    cluster: one\n    user: one\n");
    assert_ne!(text, twice);
    std::fs::write(&source, twice).unwrap();
    let arguments = ["serve", "--kubeconfig", source.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut program = Program::start(&arguments, directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let message = program.errors().await;
    for part in ["context \"one\"", "context \"twin\"", "same uid", "exclude one of them, as by --contexts '!twin'"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    assert!(!message.contains("ERROR"), "no line of the log says that both are served: {message}");
    let excluding = [&arguments[..], &["--contexts", "!twin"]].concat();
    let mut program = Program::start(&excluding, directory.path());
    assert!(program.ready().await.ends_with("clusters=one"));
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}
