//! Tests of tunnels through each kind of proxy. The client or the member may close its half of the connection, and an
//! idle tunnel stays open.
//!
//! Each test runs in a separate process, because an environment variable sets the root certificates that verify the TLS
//! proxy.

use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tributary_proxy::ClientTuning;

use crate::member::{self, Authority, SOON, eventually};
use crate::upgrades::{WEBSOCKET, ask, front, member_that_switches};
use crate::{own_process, proxies};

/// Environment variable that marks the separate process of a test.
const IS_OWN: &str = "TRIBUTARY_TEST_PROXIED_TUNNELS";

/// Environment variable with the path of the system's root certificates.
const ROOTS: &str = "SSL_CERT_FILE";

/// Size of the last message, in bytes. 2 MiB, many times a tunnel's buffers, so the message arrives only if its
/// receiver reads.
const LONG_BYTES: usize = 2 << 20;

const SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Step in which the idle time advances. Longer than each idle timeout, so that each timeout expires in every step.
const LEAP: Duration = Duration::from_secs(30 * 60);

struct Tunnel {
    client: TcpStream,
    member: TlsStream<TcpStream>,
    tuning: ClientTuning,
}

impl Tunnel {
    async fn open(proxy: &str, proxy_requests: &mut UnboundedReceiver<String>) -> Self {
        let (switched, switches) = oneshot::channel();
        let mut config = member_that_switches(|tls| async move {
            let _the_test_may_be_over = switched.send(tls);
        })
        .await;
        let address = config.cluster_url.authority().unwrap().to_string();
        config.proxy_url = Some(proxy.parse().unwrap());
        let tuning = ClientTuning::default();
        let (client, head) = ask(front(member::connect(config, tuning.clone()).await).await, WEBSOCKET).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let request = soon(proxy_requests.recv()).await.unwrap();
        assert!(request.contains(&address), "the proxy was asked for {request}");
        Self { client, member: soon(switches).await.unwrap(), tuning }
    }
}

/// Calls `show` with a tunnel through each kind of proxy, in a separate process.
fn through_each(test: &str, show: impl AsyncFn(Tunnel)) {
    if std::env::var_os(IS_OWN).is_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(IS_OWN, "1").env(ROOTS, folder.path().join("roots.pem"));
        return own_process::run(&mut command, &format!("proxied_tunnels::{test}"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let authority = Authority::new();
        std::fs::write(std::env::var_os(ROOTS).unwrap(), &authority.pem).unwrap();
        for (proxy, mut proxy_requests) in proxies::of_each_kind(&authority).await {
            // If the test fails, its output shows which proxy was used.
            println!("through {proxy}");
            show(Tunnel::open(&proxy, &mut proxy_requests).await).await;
        }
    });
}

/// Waits for an event that happens without an advance of the clock.
async fn soon<T>(coming: impl Future<Output = T>) -> T {
    timeout(SOON, coming).await.expect("it does not come")
}

async fn silence() {
    for _ in 0..SILENCE.as_secs() / LEAP.as_secs() {
        tokio::time::pause();
        tokio::time::advance(LEAP).await;
        tokio::time::resume();
    }
}

/// Sends bytes from `responder`. `hearer`, at the other end of the tunnel, must receive the bytes without delay.
async fn says(responder: &mut (impl AsyncWrite + Unpin), hearer: &mut (impl AsyncRead + Unpin), words: &[u8]) {
    responder.write_all(words).await.unwrap();
    responder.flush().await.unwrap();
    let mut received = vec![0; words.len()];
    soon(hearer.read_exact(&mut received)).await.unwrap();
    assert_eq!(received, words);
}

/// Sends the last bytes of `responder` and closes its half of the connection. `hearer`, at the other end of the tunnel,
/// must receive the bytes and the end.
async fn finishes(responder: &mut (impl AsyncWrite + Unpin), hearer: &mut (impl AsyncRead + Unpin), words: &[u8]) {
    let speaks = async {
        responder.write_all(words).await.unwrap();
        responder.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let ((), read) = soon(async { tokio::join!(speaks, hearer.read_to_end(&mut received)) }).await;
    read.expect("an end that is none of a break");
    assert!(received == words, "{} bytes came of {}", received.len(), words.len());
}

fn long() -> Vec<u8> {
    b"and I have this to say. ".iter().copied().cycle().take(LONG_BYTES).collect()
}

#[test]
fn idle_proxied_tunnel_stays_open_for_a_day() {
    through_each("idle_proxied_tunnel_stays_open_for_a_day", async |mut tunnel| {
        silence().await;
        assert_eq!(tunnel.tuning.tunnels.len(), 1);
        says(&mut tunnel.member, &mut tunnel.client, b"still there?").await;
        says(&mut tunnel.client, &mut tunnel.member, b"still there.").await;
    });
}

#[test]
fn proxied_tunnel_carries_member_bytes_a_day_after_the_client_finished() {
    let test = "proxied_tunnel_carries_member_bytes_a_day_after_the_client_finished";
    through_each(test, async |Tunnel { mut client, mut member, tuning }| {
        finish_a_day_apart(&mut client, &mut member, &tuning).await;
    });
}

#[test]
fn proxied_tunnel_carries_client_bytes_a_day_after_the_member_finished() {
    let test = "proxied_tunnel_carries_client_bytes_a_day_after_the_member_finished";
    through_each(test, async |Tunnel { mut client, mut member, tuning }| {
        finish_a_day_apart(&mut member, &mut client, &tuning).await;
    });
}

/// One end of the tunnel closes its half of the connection, and the other end closes its half a day later. The tunnel
/// ends after the second close.
async fn finish_a_day_apart(
    first: &mut (impl AsyncRead + AsyncWrite + Unpin),
    last: &mut (impl AsyncRead + AsyncWrite + Unpin),
    tuning: &ClientTuning,
) {
    says(last, first, b"what now?").await;
    finishes(first, last, b"that was all").await;
    silence().await;
    assert_eq!(tuning.tunnels.len(), 1, "one half is open");
    says(last, first, b"well,").await;
    finishes(last, first, &long()).await;
    // The tunnel ends although both of its sockets are still open.
    eventually("the tunnel ends with both halves", || tuning.tunnels.is_empty()).await;
}
