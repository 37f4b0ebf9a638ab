//! Tests of the exposition of a program that serves a cluster.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tributary_server::metrics::METRICS;
use tributary_simulator::{SimulatedCluster, Simulator, SimulatorConfig, kubeconfig};

use crate::exposition::exposed;

/// Starts `tributary serve` over one member, with a kubeconfig in a file, and waits for the `ready:` line.
async fn serve(directory: &Path, member: &SimulatedCluster) -> Child {
    std::fs::write(directory.join("members"), kubeconfig([member])).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_tributary"))
        .args(["serve", "--kubeconfig", "members", "--listen", "127.0.0.1:0", "--write-kubeconfig", "all"])
        .current_dir(directory)
        .env("HOME", directory)
        .env_remove("XDG_DATA_HOME")
        .env_remove("KUBECONFIG")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let ready = BufReader::new(program.stdout.take().unwrap()).lines().next_line().await.unwrap();
    assert!(ready.is_some_and(|line| line.starts_with("ready: ")));
    program
}

async fn client(directory: &Path) -> kube::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(directory.join("all")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn cluster_metrics_have_the_labels_in_the_list_of_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let member = SimulatorConfig { name: "one".to_owned(), pods: 10, ..SimulatorConfig::default() };
    let member = Simulator::start(member).await.unwrap();
    let _program = serve(directory.path(), &member).await;
    let client = client(directory.path()).await;
    let get = async |path: &str| client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await;
    get("/api/v1/pods").await.unwrap();
    get("/clusters/one/api/v1/pods").await.unwrap();
    get("/clusters/none/api/v1/pods").await.unwrap_err();
    let text = get("/metrics").await.unwrap();
    let exposed = exposed(&text);
    for metric in METRICS {
        let listed: BTreeSet<&str> = metric.labels.iter().copied().collect();
        for labels in exposed.get(metric.name).iter().flat_map(|metric| &metric.labels) {
            assert_eq!(labels.iter().map(String::as_str).collect::<BTreeSet<_>>(), listed, "{}", metric.name);
        }
    }
    for name in [
        "tributary_collection_age_seconds",
        "tributary_unknown_clusters",
        "tributary_forbidden_clusters",
        "tributary_relists_total",
        "tributary_cacher_synced",
        "tributary_endpoint_reachable",
        "tributary_member_limit",
        "tributary_member_limit_used",
        "apiserver_watch_events_total",
    ] {
        assert!(!exposed[name].labels.is_empty(), "no sample of {name}");
    }
    let requests = |cluster: &str, decision: &str| {
        let labels = format!(r#"cluster="{cluster}",verb="list",resource="pods",decision="{decision}",client="other""#);
        text.contains(&format!("tributary_requests_total{{{labels}}} 1\n"))
    };
    assert!(requests("", "memory") && requests("one", "forwarded"), "{text}");
    assert!(!text.contains("\"none\""), "a cluster that nobody serves has no series: {text}");
}
