//! Tunnels to a member that is reached through a proxy of each kind: each side may finish its half, and neither has to
//! say anything. Each test is a process of its own: a proxy over TLS is checked against the system's roots, and the
//! environment says which those are.

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

/// Says in the environment that this is such a process.
const IS_OWN: &str = "TRIBUTARY_TEST_PROXIED_TUNNELS";

/// Says in the environment in which file the system's roots are.
const ROOTS: &str = "SSL_CERT_FILE";

/// What is said last, in bytes: many times what a tunnel holds, so that it is passed on while its reader reads.
const LONG_BYTES: usize = 2 << 20;

/// How long nothing is said.
const SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// In which pieces that passes. Half an hour: longer than every limit of what is idle, each of which comes to its end
/// again and again.
const LEAP: Duration = Duration::from_secs(30 * 60);

/// Both ends of a tunnel through a proxy.
struct Tunnel {
    client: TcpStream,
    member: TlsStream<TcpStream>,
    tuning: ClientTuning,
}

impl Tunnel {
    /// Opens one to a member that is reached through the proxy of this URL alone.
    async fn open(proxy: &str, asked: &mut UnboundedReceiver<String>) -> Self {
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
        let asked = soon(asked.recv()).await.unwrap();
        assert!(asked.contains(&address), "the proxy was asked for {asked}");
        Self { client, member: soon(switches).await.unwrap(), tuning }
    }
}

/// Shows something of a tunnel through a proxy of each kind, in a process of its own, of the test of this name.
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
        for (proxy, mut asked) in proxies::of_each_kind(&authority).await {
            // Is seen if it fails.
            println!("through {proxy}");
            show(Tunnel::open(&proxy, &mut asked).await).await;
        }
    });
}

/// What has to come, and does not wait for time to pass.
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

/// One side says something, and the other one hears it at once.
async fn says(speaker: &mut (impl AsyncWrite + Unpin), hearer: &mut (impl AsyncRead + Unpin), words: &[u8]) {
    speaker.write_all(words).await.unwrap();
    speaker.flush().await.unwrap();
    let mut heard = vec![0; words.len()];
    soon(hearer.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, words);
}

/// One side says the last that it has to say, and the other one is to hear that it was all.
async fn finishes(speaker: &mut (impl AsyncWrite + Unpin), hearer: &mut (impl AsyncRead + Unpin), words: &[u8]) {
    let speaks = async {
        speaker.write_all(words).await.unwrap();
        speaker.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let ((), read) = soon(async { tokio::join!(speaks, hearer.read_to_end(&mut heard)) }).await;
    read.expect("an end that is none of a break");
    assert!(heard == words, "{} bytes came of {}", heard.len(), words.len());
}

fn long() -> Vec<u8> {
    b"and I have this to say. ".iter().copied().cycle().take(LONG_BYTES).collect()
}

#[test]
fn a_tunnel_through_a_proxy_on_which_nothing_is_said_for_a_day_is_there() {
    through_each("a_tunnel_through_a_proxy_on_which_nothing_is_said_for_a_day_is_there", async |mut tunnel| {
        silence().await;
        assert_eq!(tunnel.tuning.tunnels.len(), 1);
        says(&mut tunnel.member, &mut tunnel.client, b"still there?").await;
        says(&mut tunnel.client, &mut tunnel.member, b"still there.").await;
    });
}

#[test]
fn a_client_that_has_finished_hears_through_a_proxy_what_its_member_says_a_day_later() {
    let test = "a_client_that_has_finished_hears_through_a_proxy_what_its_member_says_a_day_later";
    through_each(test, async |Tunnel { mut client, mut member, tuning }| {
        finish_a_day_apart(&mut client, &mut member, &tuning).await;
    });
}

#[test]
fn a_member_that_has_finished_hears_through_a_proxy_what_its_client_says_a_day_later() {
    let test = "a_member_that_has_finished_hears_through_a_proxy_what_its_client_says_a_day_later";
    through_each(test, async |Tunnel { mut client, mut member, tuning }| {
        finish_a_day_apart(&mut member, &mut client, &tuning).await;
    });
}

/// One side of a tunnel finishes its half, and the other one its own a day later: that is the tunnel's end.
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
    // While either side still holds its own.
    eventually("the tunnel ends with both halves", || tuning.tunnels.is_empty()).await;
}
