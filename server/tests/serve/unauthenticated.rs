//! Tests of thousands of unauthenticated connections with unfinished requests, and of the memory that they use.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tributary_server::process::descriptors;
use tributary_simulator::kubeconfig;

use crate::fixture::{Program, get, member};

const CONNECTIONS: usize = 4_096;
const OPENED_AT_ONCE: usize = 64;

/// The maximum growth of the process by unauthenticated connections according to `docs/operating.md`, in bytes: 64 long
/// heads of 2 MiB, and 1,024 connections of 128 KiB.
const GROWTH_MAX: usize = (64 * 2 + 128) << 20;

/// The preface of HTTP/2, and a SETTINGS frame with `SETTINGS_INITIAL_WINDOW_SIZE` 0. The server may then send no body
/// (RFC 9113 §6.5.2).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[length[1], length[2], length[3], kind, flags, 0, 0, 0, 1], payload].concat()
}

/// Returns ALPN protocols, each with the bytes of an unfinished request.
fn hostile_requests() -> [(&'static str, Vec<u8>); 4] {
    // An indexed header of one byte (`age` without a value, RFC 7541 appendix A) needs at least 72 bytes of memory.
    let head = frame(HEADERS, 0, &[0x95; 7_400]);
    // The head contains `:method: POST`, `:scheme: https`, `:path: /`, and `:authority` without a value.
    let post = frame(HEADERS, END_HEADERS, &[0x83, 0x87, 0x84, 0x81]);
    let body = frame(DATA, 0, &[b'x'; 16_000]).repeat(16);
    let long_line = [b"GET /api HTTP/1.1\r\nHost: x\r\nX-Long: ".to_vec(), vec![b'a'; 240_000]].concat();
    let chunk = b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n".to_vec();
    [
        ("h2", [PREFACE, &head].concat()),
        ("h2", [PREFACE, &post, &body].concat()),
        ("http/1.1", long_line),
        ("http/1.1", [chunk, vec![b'x'; 240_000]].concat()),
    ]
}

/// Returns a TLS client that trusts the program's authority.
fn connector(authority: &[u8], alpn: &str) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// Sends bytes and returns the connection, or `None` if the server closes the connection.
async fn send(address: SocketAddr, connector: &TlsConnector, bytes: &[u8]) -> Option<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.ok()?;
    let name = ServerName::try_from(address.ip().to_string()).unwrap();
    let mut stream = connector.connect(name, stream).await.ok()?;
    // If the server does not read all bytes, the buffers of the kernel become full and the write blocks. So the write
    // has a time limit.
    let written = tokio::time::timeout(std::time::Duration::from_millis(200), stream.write_all(bytes)).await;
    let _may_be_closed = (written, stream.flush().await);
    Some(stream)
}

/// Returns the peak memory of a process, in bytes (`VmHWM`).
fn peak_memory(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_unfinished_requests_use_limited_memory() {
    descriptors::raise_limit();
    let (directory, one) = (tempfile::tempdir().unwrap(), member("one").await);
    let (source, written) = (directory.path().join("members.kubeconfig"), directory.path().join("all.kubeconfig"));
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    let (source, kubeconfig) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", kubeconfig];
    let mut program = Program::start(&arguments, directory.path());
    let ready = program.ready().await;
    let address = ready.split_whitespace().find_map(|word| word.strip_prefix("https://")).unwrap().parse().unwrap();
    let authority = std::fs::read(directory.path().join(".local/share/tributary/ca.crt")).unwrap();
    get(&written, "all", "/api/v1/pods").await.unwrap();
    let before = peak_memory(program.child.id().unwrap());

    let requests = hostile_requests().map(|(alpn, bytes)| (connector(&authority, alpn), bytes));
    // Each of the four unfinished requests uses a quarter of the permitted unauthenticated connections, so together
    // they use all of these connections.
    let opened = stream::iter(requests.iter().flat_map(|request| std::iter::repeat_n(request, CONNECTIONS / 4)))
        .map(|(connector, bytes)| send(address, connector, bytes))
        .buffer_unordered(OPENED_AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    get(&written, "all", "/api/v1/pods").await.expect("others are answered");
    let growth = peak_memory(program.child.id().unwrap()) - before;
    let open = opened.iter().flatten().count();
    assert!(open > CONNECTIONS / 2, "only {open} connections were opened");
    assert!(growth <= GROWTH_MAX, "{CONNECTIONS} connections took {} MiB", growth >> 20);
}
