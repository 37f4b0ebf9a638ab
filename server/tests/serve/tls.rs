//! Tests of the TLS versions that the program accepts from clients.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http_body_util::Empty;
use rustls::version::{TLS12, TLS13};

use crate::fixture::{Program, config, member, write_upstream_cluster};

/// Returns the status of a response to a client that supports only this TLS version.
///
/// # Errors
/// The handshake fails.
async fn request_with_version(
    kubeconfig: &Path,
    version: &'static rustls::SupportedProtocolVersion,
) -> std::io::Result<u16> {
    let config = config(kubeconfig, "all").await;
    let mut roots = rustls::RootCertStore::empty();
    for authority in config.root_cert.unwrap() {
        roots.add(authority.into()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let address: SocketAddr = config.cluster_url.authority().unwrap().as_str().parse().unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(address.ip().into(), stream).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("/livez").header("host", address.to_string());
    let answer = sender.send_request(request.body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    Ok(answer.status().as_u16())
}

#[tokio::test]
async fn clients_below_the_minimum_tls_version_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let member = member("one").await;
    let (config, written) = (directory.path().join("config"), directory.path().join("all.kubeconfig"));
    std::fs::create_dir(&config).unwrap();
    write_upstream_cluster(&config, &member);
    let (config, written_text) = (config.to_str().unwrap(), written.to_str().unwrap());
    let serve = ["serve", "--config", config, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    for (oldest, takes_tls_1_2) in [(None, true), (Some("VersionTLS12"), true), (Some("VersionTLS13"), false)] {
        let flag = oldest.map(|oldest| format!("--tls-min-version={oldest}"));
        let arguments: Vec<&str> = serve.into_iter().chain(flag.as_deref()).collect();
        let mut program = Program::start(&arguments, directory.path());
        program.ready().await;
        assert_eq!(request_with_version(&written, &TLS13).await.unwrap(), 200, "{oldest:?}");
        match request_with_version(&written, &TLS12).await {
            Ok(status) => assert!(takes_tls_1_2 && status == 200, "{oldest:?}: {status}"),
            Err(error) => {
                let told = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
                // The TLS alert of the server gives the protocol version as the reason.
                let version = rustls::Error::AlertReceived(rustls::AlertDescription::ProtocolVersion);
                assert!(!takes_tls_1_2 && told == Some(&version), "{oldest:?}: {error}");
            }
        }
        program.signal("TERM");
        assert_eq!(program.end().await.code(), Some(0));
    }
}
