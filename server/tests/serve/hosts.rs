//! Tests of the hosts of single clusters.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};

use crate::fixture::{PATIENCE, Program, add_to_upstream_cluster, config, get, member, write_upstream_cluster};

/// Sends a GET to a host over HTTP/1.1, with the host in a header. Returns the status and the body.
pub(crate) async fn get_at(kubeconfig: &Path, host: &str, path: &str) -> (u16, String) {
    use kube::client::ConfigExt;
    use secrecy::ExposeSecret;
    let config = config(kubeconfig, "all").await;
    let mut tls = config.rustls_client_config().unwrap();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let address: std::net::SocketAddr = config.cluster_url.authority().unwrap().as_str().parse().unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(address.ip().into(), stream).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let token = config.auth_info.token.unwrap();
    let authorization = format!("Bearer {}", token.expose_secret());
    let request = http::Request::get(path).header("host", host).header("authorization", authorization);
    let answer = sender.send_request(request.body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    let (status, body) = (answer.status().as_u16(), answer.into_body().collect().await.unwrap());
    (status, String::from_utf8(body.to_bytes().to_vec()).unwrap())
}

#[tokio::test]
async fn cluster_hosts_work_in_personal_mode_with_a_written_kubeconfig() {
    const HOST: &str = "  serverNames: [One.test]\n";
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let (config, written) = (directory.path().join("config"), directory.path().join("all.kubeconfig"));
    std::fs::create_dir(&config).unwrap();
    write_upstream_cluster(&config, &one);
    write_upstream_cluster(&config, &two);
    let (config_text, written_text) = (config.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--config", config_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;
    let nodes = "/api/v1/nodes";
    assert!(get_at(&written, "nope.test", nodes).await.1.contains("tributary.dev/cluster"), "nobody names hosts");
    add_to_upstream_cluster(&config, &one, HOST);
    let wait = async {
        while get_at(&written, "nope.test", nodes).await.0 != 503 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, wait).await;
    assert!(in_time.is_ok(), "hosts were not told apart: {}", program.log.lock().unwrap());
    let (status, own) = get_at(&written, "one.test:6443", nodes).await;
    assert!(
        status == 200 && own.contains("one-node") && !own.contains("two-node") && !own.contains("tributary"),
        "{own}"
    );
    // When a cluster gets its own host, the contexts of the kubeconfig that was written before stay valid.
    for context in ["all", "one"] {
        assert!(get(&written, context, nodes).await.unwrap().contains("one-node"), "{context}");
    }
    assert!(get(&written, "all", "/readyz?verbose").await.unwrap().contains("two"));

    // The server was started in personal mode, so it refuses a configuration with an authority for client certificates
    // of a host.
    add_to_upstream_cluster(&config, &one, &format!("{HOST}  secureServing: {{ clientCAFile: one.ca }}\n"));
    program.logged("the server was started in personal mode", 1).await;
    assert_eq!(get_at(&written, "one.test", nodes).await.0, 200, "the old configuration stays");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));

    let shared = ["serve", "--config", config_text, "--listen", "127.0.0.1:0"];
    let data = directory.path().join("data");
    let shared = [&shared[..], &["--data-dir", data.to_str().unwrap()]].concat();
    let mut program = Program::start(&shared, directory.path());
    program.ready().await;
    program.logged("clients refuse the certificate of the host", 1).await;
    assert!(!data.join("token").exists(), "no credential is made for one person");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));

    let mut program =
        Program::start(&[&shared[..], &["--merged-host", "all.test,ONE.test"]].concat(), directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let message = program.errors().await;
    let expected =
        "UpstreamCluster \"one\": spec.serverNames: \"one.test\" is a name of the merged view (--merged-host)";
    assert!(message.contains(expected), "{message}");
}
