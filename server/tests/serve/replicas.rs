//! Two processes that share the limits of flow control, as a user runs them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

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

/// One of the two, and how it is asked.
struct Replica {
    program: Program,
    client: kube::Client,
}

impl Replica {
    async fn start(folder: &Path, name: &str, listen: u16, other: u16) -> Self {
        let own = folder.join(name);
        std::fs::create_dir(&own).unwrap();
        let written = own.join("all.kubeconfig");
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let arguments = [
            "serve".to_owned(),
            "--listen=127.0.0.1:0".to_owned(),
            format!("--config={}", text(folder.join("config"))),
            format!("--write-kubeconfig={}", text(written.clone())),
            format!("--peer-listen=127.0.0.1:{listen}"),
            // By a name, which is resolved, and which the certificate is for.
            format!("--peer=https://localhost:{other}"),
            format!("--peer-ca-file={}", text(folder.join("ca.crt"))),
            format!("--peer-cert-file={}", text(folder.join("own.crt"))),
            format!("--peer-key-file={}", text(folder.join("own.key"))),
        ];
        let mut program = Program::start(&arguments.each_ref().map(String::as_str), &own);
        program.ready().await;
        let mut config = config(&written, "all").await;
        config.default_retry = false;
        Self { program, client: kube::Client::try_from(config).unwrap() }
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

#[tokio::test]
async fn two_share_a_limit_and_one_goes_on_with_its_part() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let one = member("one").await;
    std::fs::create_dir(folder.join("config")).unwrap();
    write_upstream_cluster(&folder.join("config"), &one);
    std::fs::write(folder.join("config/all.yaml"), GOVERNED).unwrap();
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
