//! Several processes that serve the same, as a user runs them: they share the limits of flow control, and clients come
//! to each.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use secrecy::ExposeSecret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tributary_simulator::SimulatedCluster;

use crate::fixture::{PATIENCE, Program, config, member, write_upstream_cluster};

/// How many requests both let in together, in a second and at once.
const QPS: u32 = 60;
const NAMESPACES: &str = "/api/v1/namespaces?limit=1";

/// Everything passes one schema.
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

/// The authority of the replicas, and a certificate that all of them have: `ca.crt`, `own.crt` and `own.key`.
fn write_credentials(folder: &Path) {
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    for (name, text) in
        [("ca.crt", authority_certificate.pem()), ("own.crt", own.pem()), ("own.key", key.serialize_pem())]
    {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

/// One of them, and how it is asked.
struct Replica {
    program: Program,
    client: kube::Client,
    kubeconfig: PathBuf,
}

impl Replica {
    /// One that shares with another.
    async fn start(folder: &Path, name: &str, listen: u16, other: u16) -> Self {
        let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let shared = [
            format!("--peer-listen=127.0.0.1:{listen}"),
            // By a name, which is resolved, and which the certificate is for.
            format!("--peer=https://localhost:{other}"),
            format!("--peer-ca-file={}", file("ca.crt")),
            format!("--peer-cert-file={}", file("own.crt")),
            format!("--peer-key-file={}", file("own.key")),
        ];
        Self::with(folder, name, &shared.each_ref().map(String::as_str)).await
    }

    /// With these arguments, over what `config` in the folder says.
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

    /// The value of the line of its metrics that begins so.
    async fn metric(&self, line: &str) -> u64 {
        let metrics = self.get("/metrics").await.unwrap();
        let found = metrics.lines().find_map(|own| own.strip_prefix(line));
        found.unwrap_or_else(|| panic!("{line} in {metrics}")).trim().parse().unwrap()
    }

    /// What it has of the limit now.
    async fn limit(&self) -> u64 {
        self.metric("tributary_flow_control_limit{cluster=\"\",schema=\"everybody\"}").await
    }

    async fn admitted(&self) -> u64 {
        let line = "tributary_flow_control_requests_total{cluster=\"\",schema=\"everybody\",decision=\"admitted\"}";
        self.metric(line).await
    }

    /// Sends as many requests as it answers, until something holds, and no longer than one is patient.
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

/// A folder with the configuration of all, in `config`: a member, and one limit for all requests.
async fn governed() -> (tempfile::TempDir, SimulatedCluster) {
    let (directory, one) = (tempfile::tempdir().unwrap(), member("one").await);
    let configuration = directory.path().join("config");
    std::fs::create_dir(&configuration).unwrap();
    write_upstream_cluster(&configuration, &one);
    std::fs::write(configuration.join("all.yaml"), GOVERNED).unwrap();
    (directory, one)
}

#[tokio::test]
async fn two_share_a_limit_and_one_goes_on_with_its_part() {
    let (directory, _one) = governed().await;
    let folder = directory.path();
    write_credentials(folder);
    let free = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [first_port, second_port] = free.map(|socket| socket.local_addr().unwrap().port());
    let (first, mut second) = tokio::join!(
        Replica::start(folder, "first", first_port, second_port),
        Replica::start(folder, "second", second_port, first_port),
    );
    for replica in [&first, &second] {
        replica.program.logged("the other replica is reached", 1).await;
        assert_eq!(replica.limit().await, u64::from(QPS) / 2);
        assert_eq!(replica.metric("tributary_flow_control_peers_reached").await, 1);
    }
    strangers_are_not_heard(first_port, &folder.join("ca.crt")).await;

    // One that is busy has what the other does not use.
    first.offer_until(async |own| own.limit().await >= u64::from(QPS) * 3 / 4).await;
    assert!(second.limit().await < u64::from(QPS) / 2);
    // Whoever is asked, no more is let in than the limit says.
    let (began, before) = (Instant::now(), first.admitted().await + second.admitted().await);
    let over = |began: Instant| began.elapsed() >= Duration::from_secs(4);
    tokio::join!(first.offer_until(async |_| over(began)), second.offer_until(async |_| over(began)));
    let admitted = first.admitted().await + second.admitted().await - before;
    let allowed = f64::from(QPS) * (began.elapsed().as_secs_f64() + 1.0) * 1.1;
    assert!(admitted as f64 <= allowed, "{admitted} of {allowed}");
    assert!(admitted >= u64::from(QPS), "{admitted}");

    // The other is gone: its part of the limit is nobody's.
    first.offer_until(async |own| own.limit().await > u64::from(QPS) / 2).await;
    second.program.child.kill().await.unwrap();
    first.offer_until(async |own| own.limit().await == u64::from(QPS) / 2).await;
    first.program.logged("another replica is out of reach", 1).await;
    first.offer_until(async |own| own.get(NAMESPACES).await.is_ok()).await;
    assert_eq!(first.metric("tributary_flow_control_peers_reached").await, 0);
}

/// Without `--peer` each has its part of every limit, whatever the others use.
#[tokio::test]
async fn one_of_four_that_know_nothing_of_each_other_has_a_quarter_of_a_limit() {
    let (directory, _one) = governed().await;
    let own = Replica::with(directory.path(), "own", &["--replica-count=4"]).await;
    assert_eq!(own.limit().await, u64::from(QPS) / 4);
    let (began, before) = (Instant::now(), own.admitted().await);
    own.offer_until(async |_| began.elapsed() >= Duration::from_secs(3)).await;
    let admitted = own.admitted().await - before;
    let allowed = f64::from(QPS / 4) * (began.elapsed().as_secs_f64() + 1.0) * 1.1;
    assert!(admitted as f64 <= allowed, "{admitted} of {allowed}");
    assert!(admitted >= u64::from(QPS) / 4, "{admitted}");
    assert_eq!(own.limit().await, u64::from(QPS) / 4, "nobody lends it anything");
}

/// So clients come to a replica that was started later, by way of the load balancer.
#[tokio::test]
async fn by_chance_a_client_is_told_to_come_again() {
    // So many are enough: that none of them is the last happens once in 10^16 times.
    const REQUESTS: usize = 1_900;
    let (directory, _one) = governed().await;
    std::fs::remove_file(directory.path().join("config/all.yaml")).unwrap();
    let own = Replica::with(directory.path(), "own", &["--goaway-chance=0.02"]).await;
    let config = config(&own.kubeconfig, "all").await;
    let (mut client, mut answered) = (http2(&config).await, 0);
    while answered < REQUESTS && client.ready().await.is_ok() {
        // It may be told just before it sends this one.
        let Ok(answer) = client.send_request(request(&config)).await else { break };
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
        answered += 1;
    }
    assert!(answered < REQUESTS, "none was the last");
    let answer = http2(&config).await.send_request(request(&config)).await.unwrap();
    assert_eq!(answer.status(), 200, "the next connection is served");
}

/// A connection to the server of a kubeconfig.
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

/// Who has no certificate of the replicas' authority is told nothing.
async fn strangers_are_not_heard(port: u16, authority: &Path) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = std::net::IpAddr::from([127, 0, 0, 1]).into();
    // In TLS 1.3 a client learns only afterwards that its handshake is refused.
    let Ok(mut stream) = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, stream).await else { return };
    let _ = stream.write_all(b"POST /flow-control/shares HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    let mut answer = Vec::new();
    assert!(stream.read_to_end(&mut answer).await.is_err() && answer.is_empty(), "{answer:?}");
}
