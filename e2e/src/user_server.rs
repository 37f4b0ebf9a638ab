//! A stand-in for the user-server of Open Cluster Management's cluster-proxy: HTTP/1.1 alone, a certificate for the
//! name of its Service, each cluster below a path, and errors as text. Source: cluster-proxy `pkg/userserver`.

use crate::{kubeconfig::Access, person::PeopleAuthority};
use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The name in the certificate of the user-server.
pub const SERVICE: &str = "cluster-proxy-addon-user.open-cluster-management-addon.svc";

type ProxiedAnswer = Response<Either<Incoming, Full<Bytes>>>;

/// A running user-server. Dropping it stops the server and closes its connections.
#[derive(Debug)]
pub struct UserServer {
    address: SocketAddr,
    authority: String,
    requests: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// The address of a member, and the verification of its certificate.
struct Backend {
    address: String,
    connector: TlsConnector,
}

impl Backend {
    fn new(access: &Access) -> anyhow::Result<Self> {
        let server: Uri = access.server.parse().context("parse the address of a member")?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(access.certificate_authority.as_bytes()) {
            roots.add(certificate?)?;
        }
        let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let address = server.authority().context("no authority")?.to_string();
        Ok(Self { address, connector: TlsConnector::from(Arc::new(tls)) })
    }
}

impl UserServer {
    /// Starts a server in front of members, by the names of their clusters.
    ///
    /// # Errors
    /// When no certificate can be made, or no port is free.
    pub async fn start(members: &[(&str, Access)]) -> anyhow::Result<Self> {
        let authority = PeopleAuthority::new("the authority of the user-server")?;
        let (certificate, key) = authority.serving(&[SERVICE])?;
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("read the key")?;
        let mut tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let backends = members.iter().map(|(name, access)| Ok(((*name).to_owned(), Backend::new(access)?)));
        let backends = Arc::new(backends.collect::<anyhow::Result<BTreeMap<_, _>>>()?);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let address = listener.local_addr().context("read the port")?;
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            // The end of this task drops the `JoinSet`, which aborts the tasks of all connections.
            let mut all = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                all.spawn(serve(stream, acceptor.clone(), Arc::clone(&backends), Arc::clone(&counted)));
            }
        });
        Ok(Self { address, authority: authority.pem().to_owned(), requests, task })
    }

    /// The URL of the server. Its certificate has the name [`SERVICE`] instead.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The authority that signed the server's certificate, PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The number of requests so far.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for UserServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    backends: Arc<BTreeMap<String, Backend>>,
    requests: Arc<AtomicUsize>,
) {
    let Ok(tls) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| {
        requests.fetch_add(1, Ordering::Relaxed);
        let backends = Arc::clone(&backends);
        async move { anyhow::Ok(answer(&backends, request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), service);
    if let Err(error) = connection.with_upgrades().await {
        tracing::debug!(%error, "a connection to the user-server");
    }
}

async fn answer(backends: &BTreeMap<String, Backend>, mut request: Request<Incoming>) -> ProxiedAnswer {
    let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let Some((cluster, inner)) = target.strip_prefix('/').and_then(|rest| rest.split_once('/')) else {
        return text(StatusCode::BAD_REQUEST, "no cluster");
    };
    let Some(backend) = backends.get(cluster) else { return text(StatusCode::BAD_GATEWAY, "unknown cluster") };
    let Ok(inner) = format!("/{inner}").parse() else { return text(StatusCode::BAD_REQUEST, "the path is invalid") };
    *request.uri_mut() = inner;
    match forward(backend, request).await {
        Ok(answer) => answer.map(Either::Left),
        Err(error) => text(StatusCode::BAD_GATEWAY, &format!("{error:#}")),
    }
}

/// Sends a request over a connection of its own, as the user-server opens a tunnel for each request.
async fn forward(backend: &Backend, mut request: Request<Incoming>) -> anyhow::Result<Response<Incoming>> {
    let stream = TcpStream::connect(&backend.address).await.context("connect")?;
    let host = backend.address.split(':').next().unwrap_or_default().to_owned();
    let tls = backend.connector.connect(ServerName::try_from(host)?, stream).await.context("TLS")?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await?;
    tokio::spawn(connection.with_upgrades());
    let client = hyper::upgrade::on(&mut request);
    let mut answer = sender.send_request(request).await?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let member = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            let (client, member) = (client.await?, member.await?);
            tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(member)).await?;
            anyhow::Ok(())
        });
    }
    ensure!(answer.version() == http::Version::HTTP_11, "{:?}", answer.version());
    Ok(answer)
}

fn text(code: StatusCode, text: &str) -> ProxiedAnswer {
    let mut answer = Response::new(Either::Right(Full::from(text.to_owned())));
    *answer.status_mut() = code;
    answer
}
