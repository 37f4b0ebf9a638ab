//! Simulates a DNS server (RFC 1035) that resolves one name.

use anyhow::Context as _;
use parking_lot::Mutex;
use std::{net::Ipv4Addr, sync::Arc};
use tokio::{net::UdpSocket, task::JoinHandle};

/// Port of DNS. A C library queries only this port, so the server uses a separate loopback address instead of a free
/// port.
const PORT: u16 = 53;

/// Size of the header of a DNS message in bytes.
const HEADER_BYTES: usize = 12;

/// Largest size of a query that the server accepts, in bytes. A query for one name is smaller.
const QUERY_BYTES_MAX: usize = 1024;

/// DNS record type of an IPv4 address.
const A: u16 = 1;

pub(super) struct NameServer {
    /// Loopback address of the server. Linux routes the whole network 127.0.0.0/8 to this machine.
    pub(super) address: Ipv4Addr,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl NameServer {
    /// Starts a server that resolves one name to one address. Only root may bind the DNS port.
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
                // The client may have closed its socket.
                let _unsent = socket.send_to(&answer, client).await;
            }
        });
        Ok(Self { address, asked, task })
    }

    /// Returns the names in all queries since the start.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the name in a query, and the response. The response has the address for the known name and type A, and
/// NXDOMAIN for other names. Returns `None` for an invalid query.
fn answer(query: &[u8], name: &str, known: Ipv4Addr) -> Option<(String, Vec<u8>)> {
    let (asked, end) = name_at(query, HEADER_BYTES)?;
    let kind = u16::from_be_bytes(query.get(end..end + 2)?.try_into().ok()?);
    let question = query.get(HEADER_BYTES..end + 4)?;
    let is_known = asked == name;
    let has_address = is_known && kind == A;
    let mut answer = query.get(..2)?.to_vec();
    // Header flags of an authoritative answer: recursion is desired and available. The code is "no error" or NXDOMAIN.
    answer.extend([0x85, if is_known { 0x80 } else { 0x83 }]);
    // Record counts in the header: one question, and at most one answer.
    answer.extend([0, 1, 0, u8::from(has_address), 0, 0, 0, 0]);
    answer.extend(question);
    if has_address {
        // Answer record: a pointer to the name in the question, type A, class IN, TTL 0, and 4 bytes of address.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(known.octets());
    }
    Some((asked, answer))
}

/// Decodes the name at this offset. Returns the name in lower case, and the offset of its end.
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
