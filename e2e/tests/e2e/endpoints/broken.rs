//! One endpoint of a cluster suddenly answers 500 to every request except `/readyz`. Tributary may send at most 2 % of
//! the requests to this endpoint from 3 s after the first 500. After the endpoint recovers, Tributary must send it as
//! many requests as before.

use super::load::{RATE_MIN, Scene};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tokio_rustls::TlsAcceptor;
use tributary_e2e::{PeopleAuthority, TestCluster};

/// Longest time until Tributary uses the recovered endpoint again.
const SOON: Duration = Duration::from_secs(60);

/// Time after the first 500 until Tributary must send almost no requests to the endpoint.
const KNOWN_AFTER: Duration = Duration::from_secs(3);

/// Duration of the measurement of the endpoint's share of requests. It includes a thousand requests.
const MEASURED: Duration = Duration::from_secs(5);

pub(super) fn cases() -> Vec<Case> {
    cases!["endpoints::broken"; endpoint_that_returns_http_500_gets_few_requests]
}

async fn endpoint_that_returns_http_500_gets_few_requests(context: TestContext) -> anyhow::Result<()> {
    let _permits = context.fixture.load_on_own_member().await?;
    let member = TestCluster::builder("broken").start(context.fixture.tools().await?).await?;
    let second = member.start_another_apiserver().await?;
    let authority = PeopleAuthority::new("the front's authority")?;
    let namespace = member.http().get("/api/v1/namespaces/kube-system").send().await?.expect(200)?;
    let front = Front::start(&authority, member.apiserver_port(), namespace.body).await?;
    let endpoints = [front.port, second].map(|port| format!("https://127.0.0.1:{port}"));
    let scene = Scene::new(&context, member, &endpoints, authority.pem()).await?;
    let address = format!("127.0.0.1:{}", front.port);
    let requests = async || scene.metric("tributary_endpoint_requests_total", &address).await;
    let ((errors, reads), load_counts) = scene
        .under_load(false, async |load_counts| {
            sleep(Duration::from_secs(1)).await;
            ensure!(requests().await? > 20, "it has its part while it is well");
            front.is_broken(true);
            eventually(SOON, async || {
                ensure!(front.first_error().is_some(), "no request has met it");
                Ok(())
            })
            .await?;
            sleep_until(front.first_error().context("the first error")? + KNOWN_AFTER).await;
            let before = (front.errors(), load_counts.reads.load(Ordering::Relaxed));
            sleep(MEASURED).await;
            let measured = (front.errors() - before.0, load_counts.reads.load(Ordering::Relaxed) - before.1);
            front.is_broken(false);
            let used = requests().await?;
            eventually(SOON, async || {
                let now = requests().await?;
                ensure!(now > used + 100, "{now} requests after {used}: it is not used again");
                Ok(())
            })
            .await?;
            Ok(measured)
        })
        .await?;
    ensure!(reads as f64 >= RATE_MIN * MEASURED.as_secs_f64(), "{reads} requests in {MEASURED:?}");
    ensure!(errors * 50 <= reads, "{errors} of {reads} requests");
    let (lost, all) = (load_counts.lost.lock().len(), load_counts.reads.load(Ordering::Relaxed));
    ensure!(lost * 4 < all, "{lost} of {all} requests were not answered 200");
    Ok(())
}

/// Proxy in front of a kube-apiserver. It forwards bytes, or answers each request with 500.
struct Front {
    port: u16,
    broken: watch::Sender<bool>,
    load_counts: Arc<FrontErrors>,
    _accepting: JoinSet<()>,
}

/// Number of 500 answers that the proxy has sent, and time of the first 500 answer.
#[derive(Default)]
struct FrontErrors {
    errors: AtomicUsize,
    first: Mutex<Option<Instant>>,
}

impl Front {
    /// Starts the proxy. `namespace` is the kube-apiserver's answer to a get of the namespace kube-system, which
    /// contains the uid of the cluster. The proxy sends it also while it is broken, because Tributary does not use an
    /// endpoint without this uid.
    async fn start(authority: &PeopleAuthority, to: u16, namespace: Bytes) -> anyhow::Result<Self> {
        let (certificate, key) = authority.serving(&["127.0.0.1"])?;
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let mut config = config.with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (broken, load_counts) = (watch::Sender::new(false), Arc::<FrontErrors>::default());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, acceptor, to, broken.subscribe(), (Arc::clone(&load_counts), namespace)));
        Ok(Self { port, broken, load_counts, _accepting: accepting })
    }

    /// Switches between forwarding and answering 500, and closes every connection.
    fn is_broken(&self, is_broken: bool) {
        self.broken.send_replace(is_broken);
    }

    fn errors(&self) -> usize {
        self.load_counts.errors.load(Ordering::Relaxed)
    }

    fn first_error(&self) -> Option<Instant> {
        *self.load_counts.first.lock()
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    to: u16,
    broken: watch::Receiver<bool>,
    (load_counts, namespace): (Arc<FrontErrors>, Bytes),
) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let (acceptor, mut broken, load_counts) = (acceptor.clone(), broken.clone(), Arc::clone(&load_counts));
        let namespace = namespace.clone();
        let is_broken = *broken.borrow_and_update();
        connections.spawn(async move {
            let serving = async {
                match is_broken {
                    true => answer(near, acceptor, load_counts, namespace).await,
                    false => pass(near, to).await,
                }
            };
            tokio::select! {
                () = serving => {}
                _ = broken.changed() => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(mut near: TcpStream, to: u16) {
    if let Ok(mut far) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, to))).await {
        let _ended = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    }
}

/// Answers requests for `/readyz` and for the namespace kube-system like a healthy server, and all other requests with
/// 500.
async fn answer(near: TcpStream, acceptor: TlsAcceptor, load_counts: Arc<FrontErrors>, namespace: Bytes) {
    let Ok(tls) = acceptor.accept(near).await else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let (load_counts, namespace) = (Arc::clone(&load_counts), namespace.clone());
        async move {
            let is_namespace = request.uri().path() == "/api/v1/namespaces/kube-system";
            let is_well = is_namespace || matches!(request.uri().path(), "/readyz" | "/livez/ping");
            // Tributary's health checks also reach this server, so only the test's requests are counted.
            if request.uri().path().ends_with("/configmaps/one") {
                load_counts.errors.fetch_add(1, Ordering::Relaxed);
                load_counts.first.lock().get_or_insert_with(Instant::now);
            }
            let text = if is_namespace { namespace } else { Bytes::from_static(b"ok") };
            let mut answer = Response::new(Full::new(text));
            *answer.status_mut() = if is_well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
            Ok::<_, Infallible>(answer)
        }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ended = server.serve_connection(TokioIo::new(tls), service).await;
}
