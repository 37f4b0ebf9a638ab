//! Tests of several replicas as a user runs them: the replicas share the limits of flow control, and clients use each
//! replica.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt;
use secrecy::ExposeSecret;
use tokio::time::Instant;
use tributary_simulator::SimulatedCluster;

use crate::fixture::{PATIENCE, Program, config, member, write_upstream_cluster};

/// The limit for all replicas together, in requests per second.
const QPS: u32 = 60;
const NAMESPACES: &str = "/api/v1/namespaces?limit=1";

/// A MergedEndpoint object with one flow-control schema for all requests.
const GOVERNED: &str = "
apiVersion: tributary.dev/v1alpha1
kind: MergedEndpoint
metadata: {name: all}
spec:
  dispatchPolicies:
  - flowControlSchemaName: everybody
    rules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*'], nonResourceURLs: ['*']}]
  flowControl: {flowControlSchemas: [{name: everybody, tokenBucket: {qps: 60, burst: 60}}]}
";

struct Replica {
    program: Program,
    client: kube::Client,
    kubeconfig: PathBuf,
}

impl Replica {
    /// Starts a replica with these additional flags and the configuration in `folder`.
    async fn with(folder: &Path, name: &str, more: &[&str]) -> Self {
        let own = folder.join(name);
        std::fs::create_dir(&own).unwrap();
        let (configuration, kubeconfig) = (folder.join("config"), own.join("all.kubeconfig"));
        let arguments = [
            "serve",
            "--listen=127.0.0.1:0",
            "--config",
            configuration.to_str().unwrap(),
            "--write-kubeconfig",
            kubeconfig.to_str().unwrap(),
        ];
        let mut program = Program::start(&[&arguments[..], more].concat(), &own);
        program.ready().await;
        let mut config = config(&kubeconfig, "all").await;
        config.default_retry = false;
        Self { program, client: kube::Client::try_from(config).unwrap(), kubeconfig }
    }

    async fn get(&self, path: &str) -> Result<String, kube::Error> {
        self.client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await
    }

    /// Returns the value in the line of `/metrics` that begins with `line`.
    async fn metric(&self, line: &str) -> u64 {
        let metrics = self.get("/metrics").await.unwrap();
        let found = metrics.lines().find_map(|own| own.strip_prefix(line));
        found.unwrap_or_else(|| panic!("{line} in {metrics}")).trim().parse().unwrap()
    }

    /// Returns the replica's current part of the flow-control limit.
    async fn limit(&self) -> u64 {
        self.metric("tributary_flow_control_limit{cluster=\"\",schema=\"everybody\"}").await
    }

    async fn admitted(&self) -> u64 {
        let line = "tributary_flow_control_requests_total{cluster=\"\",schema=\"everybody\",decision=\"admitted\"}";
        self.metric(line).await
    }

    /// Sends batches of 20 requests to the replica until `holds` returns true. Fails after `PATIENCE`.
    async fn offer_until(&self, mut holds: impl AsyncFnMut(&Self) -> bool) {
        let offered = async {
            while !holds(self).await {
                join_all((0..20).map(|_| self.get(NAMESPACES))).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, offered).await;
        assert!(in_time.is_ok(), "it never came to that: {}", self.program.log.lock().unwrap());
    }
}

/// Creates a folder with a configuration in `config`: a member, and one limit for all requests.
async fn governed() -> (tempfile::TempDir, SimulatedCluster) {
    let (directory, one) = (tempfile::tempdir().unwrap(), member("one").await);
    let configuration = directory.path().join("config");
    std::fs::create_dir(&configuration).unwrap();
    write_upstream_cluster(&configuration, &one);
    std::fs::write(configuration.join("all.yaml"), GOVERNED).unwrap();
    (directory, one)
}

/// The DNS name does not resolve, so the replica uses `--replica-count`.
#[tokio::test]
async fn replica_of_four_enforces_a_quarter_of_a_limit() {
    let (directory, _one) = governed().await;
    let flags = ["--replica-count=4", "--replica-dns-name=replicas.invalid"];
    let own = Replica::with(directory.path(), "own", &flags).await;
    own.program.logged("the DNS name of the replicas cannot be resolved", 1).await;
    assert_eq!(own.limit().await, u64::from(QPS) / 4);
    let (began, before) = (Instant::now(), own.admitted().await);
    own.offer_until(async |_| began.elapsed() >= Duration::from_secs(3)).await;
    let admitted = own.admitted().await - before;
    let allowed = f64::from(QPS / 4) * (began.elapsed().as_secs_f64() + 1.0) * 1.1;
    assert!(admitted as f64 <= allowed, "{admitted} of {allowed}");
    assert!(admitted >= u64::from(QPS) / 4, "{admitted}");
    assert_eq!(own.limit().await, u64::from(QPS) / 4);
}

#[tokio::test]
async fn limit_is_divided_by_the_addresses_of_the_replica_dns_name() {
    let (directory, _one) = governed().await;
    let flags = ["--replica-count=4", "--replica-dns-name=localhost"];
    let own = Replica::with(directory.path(), "own", &flags).await;
    own.program.logged("the number of replicas has changed", 1).await;
    assert_eq!(own.limit().await, u64::from(QPS));
}

#[tokio::test]
async fn number_of_deprecated_peer_flags_determines_the_replica_count() {
    let (directory, _one) = governed().await;
    let flags = ["--peer=https://a:1", "--peer=https://b:1", "--peer-listen=127.0.0.1:1", "--peer-ca-file=absent"];
    let own = Replica::with(directory.path(), "own", &flags).await;
    own.program.logged("replicas no longer lend limits", 1).await;
    assert_eq!(own.limit().await, u64::from(QPS) / 3);
}

/// GOAWAY moves clients to new replicas, because the load balancer chooses a replica for the next connection.
#[tokio::test]
async fn random_goaway_makes_a_client_reconnect() {
    // With 1,900 requests, the probability that no request causes a GOAWAY is 10^-16.
    const REQUESTS: usize = 1_900;
    let (directory, _one) = governed().await;
    std::fs::remove_file(directory.path().join("config/all.yaml")).unwrap();
    let own = Replica::with(directory.path(), "own", &["--goaway-chance=0.02"]).await;
    let config = config(&own.kubeconfig, "all").await;
    let (mut client, mut answered) = (http2(&config).await, 0);
    while answered < REQUESTS && client.ready().await.is_ok() {
        // If the GOAWAY arrives just before a request is sent, the request fails.
        let Ok(answer) = client.send_request(request(&config)).await else { break };
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
        answered += 1;
    }
    assert!(answered < REQUESTS, "none was the last");
    let answer = http2(&config).await.send_request(request(&config)).await.unwrap();
    assert_eq!(answer.status(), 200, "the next connection is served");
}

async fn http2(config: &kube::Config) -> SendRequest<Empty<Bytes>> {
    let mut tls = config.rustls_client_config().unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let address: std::net::SocketAddr = config.cluster_url.authority().unwrap().as_str().parse().unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(address.ip().into(), stream).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(config: &kube::Config) -> http::Request<Empty<Bytes>> {
    let url = format!("https://{}/version", config.cluster_url.authority().unwrap());
    let authorization = format!("Bearer {}", config.auth_info.token.as_ref().unwrap().expose_secret());
    http::Request::get(url).header("authorization", authorization).body(Empty::new()).unwrap()
}
