//! Chooses loopback ports that stay free between the stop and the restart of a server.

use anyhow::{Context, bail};
use rand::Rng;
use std::{
    collections::HashSet,
    net::{Ipv4Addr, TcpListener},
    sync::Mutex,
};

/// Range of ports below the ports that Linux assigns to outgoing connections (from 32768), so that no connection takes
/// the port of a stopped member.
const RANGE: std::ops::Range<u16> = 15_000..32_000;

/// Number of ports to try. It suffices even if most ports of the range are in use.
const TRIES: usize = 2_000;

static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// Returns a port on 127.0.0.1 that has no listener, and that this process has not returned before.
///
/// # Errors
/// If no free port is found.
pub fn free_port() -> anyhow::Result<u16> {
    let mut given = GIVEN.lock().map_err(|_| anyhow::anyhow!("a thread panicked while it chose a port"))?;
    let given = given.get_or_insert_with(HashSet::new);
    for _ in 0..TRIES {
        let port = rand::rng().random_range(RANGE);
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.insert(port);
            return Ok(port);
        }
    }
    bail!("no free port in {RANGE:?} on 127.0.0.1")
}

/// Waits until a server accepts connections on a loopback port.
///
/// # Errors
///
/// When no server accepts a connection within `patience`.
pub async fn wait_until_open(port: u16, patience: std::time::Duration) -> anyhow::Result<()> {
    let attempt = async {
        while tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
    };
    tokio::time::timeout(patience, attempt).await.with_context(|| format!("nothing listens on port {port}"))
}
