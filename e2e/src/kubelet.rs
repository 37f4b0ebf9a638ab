//! Simulates a kubelet that trusts a client CA of a different cluster. The kubelet rejects every client, also the
//! kube-apiserver of its cluster.

use crate::{TestCluster, certificates::TestCertificates};
use anyhow::Context;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::json;
use std::{convert::Infallible, sync::Arc};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

/// Simulated kubelet that rejects all requests. Dropping it stops the server.
#[derive(Debug)]
pub struct RefusingKubelet {
    port: u16,
    task: JoinHandle<()>,
}

impl RefusingKubelet {
    /// Starts a kubelet on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no certificate can be made or no port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let certificates = TestCertificates::generate("kubelet")?;
        let chain = CertificateDer::pem_slice_iter(certificates.serving_certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("read the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(certificates.serving_key.as_bytes()).context("read the key")?;
        let mut tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr().context("read the port")?.port();
        let task = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls))));
        Ok(Self { port, task })
    }

    /// Registers a node with this kubelet in a member.
    ///
    /// # Errors
    /// When the member refuses the node.
    pub async fn register(&self, member: &TestCluster, node: &str) -> anyhow::Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        member.http().post("/api/v1/nodes", &object).send().await?.expect(201)?;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }});
        let path = format!("/api/v1/nodes/{node}/status");
        member.http().patch(&path, "strategic-merge-patch+json", &status).send().await?.expect(200)?;
        Ok(())
    }
}

impl Drop for RefusingKubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    // The end of this task drops the `JoinSet`, which aborts the tasks of all connections.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|_request| async { Ok::<_, Infallible>(empty_answer()) });
            let _ended =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn empty_answer() -> Response<Full<Bytes>> {
    // A real kubelet answers with the same text (`InstallAuthFilter` in its `server.go`), so the test compares real
    // messages.
    let mut response = Response::new(Full::from("Unauthorized"));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response
}
