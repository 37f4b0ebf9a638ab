//! Runs the program over simulated members, and sends requests to the program.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tributary_apimachinery::body::Body;
use tributary_proxy::{ClientTuning, ClusterClient, RequestIdentity};
use tributary_simulator::{SimulatedCluster, Simulator, SimulatorConfig};

/// The time limit for an expected event. The limit detects missing events and does not measure speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn member(name: &str) -> SimulatedCluster {
    Simulator::start(SimulatorConfig { name: name.to_owned(), pods: 10, ..SimulatorConfig::default() }).await.unwrap()
}

pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
    pub(crate) log: Arc<Mutex<String>>,
    logging: JoinHandle<()>,
}

impl Program {
    pub(crate) fn start(arguments: &[&str], directory: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tributary"))
            .args(arguments)
            .env("HOME", directory)
            .env("TMPDIR", directory)
            .env_remove("XDG_DATA_HOME")
            .env_remove("KUBECONFIG")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        let logging = tokio::spawn(async move {
            while let Some(line) = errors.next_line().await.unwrap() {
                *written.lock().unwrap() += &(line + "\n");
            }
        });
        Self { child, lines, log, logging }
    }

    pub(crate) async fn ready(&mut self) -> String {
        match tokio::time::timeout(PATIENCE, self.lines.next_line()).await.unwrap().unwrap() {
            Some(line) => line,
            None => panic!("it ended: {}", self.errors().await),
        }
    }

    /// Returns the complete standard error output after the program has ended.
    pub(crate) async fn errors(&mut self) -> String {
        tokio::time::timeout(PATIENCE, &mut self.logging).await.unwrap().unwrap();
        self.log.lock().unwrap().clone()
    }

    pub(crate) async fn logged(&self, part: &str, times: usize) {
        let wait = async {
            while self.log.lock().unwrap().matches(part).count() < times {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, wait).await;
        assert!(in_time.is_ok(), "{part:?} was not logged: {}", self.log.lock().unwrap());
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    pub(crate) async fn end(&mut self) -> ExitStatus {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap()
    }
}

pub(crate) fn contexts(path: &Path) -> Vec<String> {
    let config = Kubeconfig::read_from(path).unwrap();
    config.contexts.into_iter().map(|context| context.name).collect()
}

pub(crate) async fn wait_for_contexts(path: &Path, expected: &[&str]) {
    let wait = async {
        while contexts(path) != expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("{:?} never became {expected:?}", contexts(path)));
}

pub(crate) async fn config(kubeconfig: &Path, context: &str) -> kube::Config {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig).unwrap(), &options).await.unwrap()
}

pub(crate) async fn get(kubeconfig: &Path, context: &str, path: &str) -> Result<String, kube::Error> {
    let client = kube::Client::try_from(config(kubeconfig, context).await).unwrap();
    client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await
}

/// Returns a socket that is bound to a free port and does not listen, so that no other process gets the port. A
/// listener with `SO_REUSEADDR`, which Tributary and tokio set, can still bind the port.
pub(crate) fn reserve() -> tokio::net::TcpSocket {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

/// Writes an UpstreamCluster object to a file, with the CA and the token in files beside it.
pub(crate) fn write_upstream_cluster(directory: &Path, member: &SimulatedCluster) {
    let name = member.name();
    std::fs::write(directory.join(format!("{name}.ca")), member.ca_pem()).unwrap();
    std::fs::write(directory.join(format!("{name}.token")), member.token()).unwrap();
    let text = format!(
        "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {{ name: {name} }}\nspec:\n  endpoints: \
         [\"{}\"]\n  caFile: {name}.ca\n  credentials: {{ tokenFile: {name}.token }}\n",
        member.url()
    );
    std::fs::write(directory.join(format!("{name}.yaml")), text).unwrap();
}

/// Opens a followed log of a pod through the program. A drain of the program waits until the returned response is
/// dropped.
pub(crate) async fn hold_the_drain(kubeconfig: &Path, cluster: &str) -> http::Response<Body> {
    let pods = format!("/clusters/{cluster}/api/v1/pods?fieldSelector=status.phase%3DRunning&limit=1");
    let pods: serde_json::Value = serde_json::from_str(&get(kubeconfig, "all", &pods).await.unwrap()).unwrap();
    let pod = &pods["items"][0]["metadata"];
    let (namespace, name) = (pod["namespace"].as_str().unwrap(), pod["name"].as_str().unwrap());
    let path = format!("/clusters/{cluster}/api/v1/namespaces/{namespace}/pods/{name}/log?follow=true");
    let request = http::Request::get(path).body(Empty::new().map_err(|never| match never {}).boxed_unsync()).unwrap();
    let config = config(kubeconfig, "all").await;
    let client = ClusterClient::connect("own".parse().unwrap(), config, ClientTuning::default()).await.unwrap();
    let answer = client.forward(request, RequestIdentity::Member).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer
}

/// Adds fields to the configuration of a cluster.
pub(crate) fn add_to_upstream_cluster(directory: &Path, member: &SimulatedCluster, fields: &str) {
    write_upstream_cluster(directory, member);
    let path = directory.join(format!("{}.yaml", member.name()));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}{fields}")).unwrap();
}

/// Runs the program to its end. Returns its exit code, its standard output, and its standard error.
pub(crate) async fn run(arguments: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tributary"));
    command.args(arguments).env("HOME", directory).env_remove("KUBECONFIG");
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}
