//! A DNS server (RFC 1035) of one name, for a program that has no other way to find it.

use anyhow::Context as _;
use parking_lot::Mutex;
use std::{net::Ipv4Addr, sync::Arc};
use tokio::{net::UdpSocket, task::JoinHandle};

/// The port of DNS. A C library asks at no other, so that the server has an address of its own instead.
const PORT: u16 = 53;

/// What a message begins with, in bytes.
const HEADER_BYTES: usize = 12;

/// The largest query that is read, in bytes: more than any of a single name has.
const QUERY_BYTES_MAX: usize = 1024;

/// The type of an IPv4 address.
const A: u16 = 1;

/// A running server. Dropping it stops it.
pub(super) struct NameServer {
    /// Where it is: an address of the loopback network, all of which Linux leads to this machine.
    pub(super) address: Ipv4Addr,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl NameServer {
    /// Starts one that knows the address of one name. Only root may.
    pub(super) async fn start(name: &'static str, known: Ipv4Addr) -> anyhow::Result<Self> {
        let [second, third, fourth] = rand::random::<[u8; 3]>();
        let address = Ipv4Addr::new(127, 1 + second % 254, third, 1 + fourth % 254);
        let socket = UdpSocket::bind((address, PORT)).await.with_context(|| format!("listen at {address}:{PORT}"))?;
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            let mut query = [0; QUERY_BYTES_MAX];
            while let Ok((length, client)) = socket.recv_from(&mut query).await {
                let Some((question, answer)) = answer(&query[..length], name, known) else { continue };
                all.lock().push(question);
                // Whoever asked may have gone.
                let _unsent = socket.send_to(&answer, client).await;
            }
        });
        Ok(Self { address, asked, task })
    }

    /// The names that it was asked for.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The name that a query asks for, and the answer: the address of the name that is known, where that type is asked for,
/// and that there is no other name. `None` for what is no query.
fn answer(query: &[u8], name: &str, known: Ipv4Addr) -> Option<(String, Vec<u8>)> {
    let (asked, end) = name_at(query, HEADER_BYTES)?;
    let kind = u16::from_be_bytes(query.get(end..end + 2)?.try_into().ok()?);
    let question = query.get(HEADER_BYTES..end + 4)?;
    let is_known = asked == name;
    let has_address = is_known && kind == A;
    let mut answer = query.get(..2)?.to_vec();
    // An answer with authority, to a question and by a server that may ask others; without an error, or NXDOMAIN.
    answer.extend([0x85, if is_known { 0x80 } else { 0x83 }]);
    // One question, and as many answers.
    answer.extend([0, 1, 0, u8::from(has_address), 0, 0, 0, 0]);
    answer.extend(question);
    if has_address {
        // The name of the question; type A, class IN, to be kept for no time, 4 bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(known.octets());
    }
    Some((asked, answer))
}

/// The name that begins there, in lower case, and where it ends.
fn name_at(query: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
}
