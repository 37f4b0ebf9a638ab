//! A TCP relay between a client and a server that can cut, slow and silence connections.
//!
//! The relayed bytes are TLS, so a cut can be at any byte of an HTTP frame, TLS record or handshake.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

/// The maximum number of bytes per read.
const CHUNK: usize = 16 * 1024;

const TICK: Duration = Duration::from_millis(20);

/// How a relay treats the bytes of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayMode {
    /// All bytes are forwarded immediately.
    Clear,
    /// Bytes are forwarded at this speed in each direction.
    Slow {
        /// The number of bytes per second.
        bytes_per_second: usize,
    },
    /// No byte is forwarded. The relay keeps the bytes, and accepts connections.
    Silent,
    /// Each connection is cut after a random number of bytes.
    Cut {
        /// The maximum number of bytes before the cut.
        within: u64,
    },
}

/// A running relay. Dropping the value closes the relay's port and all its connections.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    relay_mode: watch::Sender<RelayMode>,
    cuts: watch::Sender<u64>,
    passed: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Listens on a free port of 127.0.0.1 and forwards connections to `target`, a port of 127.0.0.1. `seed` determines
    /// the positions of cuts.
    ///
    /// # Errors
    /// The port cannot be bound.
    pub async fn start(target: u16, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (relay_mode, _) = watch::channel(RelayMode::Clear);
        let (cuts, _) = watch::channel(0);
        let passed = Arc::new(AtomicU64::new(0));
        let wire = RelayShared {
            relay_mode: relay_mode.subscribe(),
            cuts: cuts.subscribe(),
            random: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))),
            passed: Arc::clone(&passed),
        };
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(wire.clone().connect(client, target));
            }
        });
        Ok(Self { port, relay_mode, cuts, passed, accepting })
    }

    /// Returns the port of the relay on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the treatment of bytes, also in open connections.
    pub fn set(&self, relay_mode: RelayMode) {
        self.relay_mode.send_replace(relay_mode);
    }

    /// Cuts all open connections.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Returns the number of forwarded bytes, in both directions of all connections.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

#[derive(Clone)]
struct RelayShared {
    relay_mode: watch::Receiver<RelayMode>,
    cuts: watch::Receiver<u64>,
    random: Arc<Mutex<StdRng>>,
    passed: Arc<AtomicU64>,
}

impl RelayShared {
    async fn connect(mut self, client: TcpStream, target: u16) {
        self.cuts.mark_unchanged();
        // If the server refuses the connection, the relay closes the client's connection.
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return };
        let _best_effort = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let left = Arc::new(Mutex::new(BytesUntilCut::default()));
        let upward = self.clone().pass(from_client, to_server, Arc::clone(&left));
        let downward = self.clone().pass(from_server, to_client, left);
        // The connection is closed when one direction ends. HTTP needs no half-closed connections.
        tokio::select! {
            () = upward => {}
            () = downward => {}
            _ = self.cuts.changed() => {}
        }
    }

    /// Forwards the bytes of one direction until the direction ends or the connection is cut.
    async fn pass(
        mut self,
        mut from: tcp::OwnedReadHalf,
        mut to: tcp::OwnedWriteHalf,
        left: Arc<Mutex<BytesUntilCut>>,
    ) {
        let mut buffer = vec![0; CHUNK];
        loop {
            if self.relay_mode.wait_for(|relay_mode| *relay_mode != RelayMode::Silent).await.is_err() {
                return;
            }
            let read = tokio::select! {
                read = from.read(&mut buffer) => read,
                changed = self.relay_mode.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            match read {
                Ok(read) if read > 0 => {
                    if !self.send(&mut to, &buffer[..read], &left).await {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    /// Forwards bytes as the current [`RelayMode`] requires. Returns false if the connection is cut or broken.
    async fn send(&mut self, to: &mut tcp::OwnedWriteHalf, mut bytes: &[u8], left: &Mutex<BytesUntilCut>) -> bool {
        while !bytes.is_empty() {
            let relay_mode = *self.relay_mode.borrow_and_update();
            let (allowed, cut) = match relay_mode {
                RelayMode::Silent => match self.relay_mode.changed().await {
                    Ok(()) => continue,
                    Err(_) => return false,
                },
                RelayMode::Clear => (bytes.len(), false),
                RelayMode::Slow { bytes_per_second } => {
                    sleep(TICK).await;
                    (bytes.len().min((bytes_per_second / 50).max(1)), false)
                }
                RelayMode::Cut { within } => self.allowance(within, bytes.len(), left),
            };
            let (now, later) = bytes.split_at(allowed);
            if to.write_all(now).await.is_err() || cut {
                return false;
            }
            self.passed.fetch_add(allowed as u64, Ordering::Relaxed);
            bytes = later;
        }
        true
    }

    /// Returns how many of `wanted` bytes the relay may forward, and whether the connection must be cut after these
    /// bytes.
    fn allowance(&self, within: u64, wanted: usize, left: &Mutex<BytesUntilCut>) -> (usize, bool) {
        let (Ok(mut left), Ok(mut random)) = (left.lock(), self.random.lock()) else { return (0, true) };
        let budget = left.0.get_or_insert_with(|| random.random_range(0..=within));
        let allowed = usize::try_from(*budget).unwrap_or(usize::MAX).min(wanted);
        *budget -= allowed as u64;
        (allowed, *budget == 0)
    }
}

/// The number of bytes until a connection is cut. The number is chosen at the connection's first byte under
/// [`RelayMode::Cut`].
#[derive(Default)]
struct BytesUntilCut(Option<u64>);

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        Ok(port)
    }

    async fn exchange(stream: &mut TcpStream, text: &[u8]) -> io::Result<Vec<u8>> {
        stream.write_all(text).await?;
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn relay_forwards_silences_and_cuts_connections() -> io::Result<()> {
        let relay = Relay::start(echo().await?, 1).await?;
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).await?;
        assert_eq!(exchange(&mut stream, b"clear").await?, b"clear");

        relay.set(RelayMode::Silent);
        stream.write_all(b"later").await?;
        let mut answer = [0; 5];
        let silent = tokio::time::timeout(Duration::from_millis(100), stream.read_exact(&mut answer)).await;
        assert!(silent.is_err(), "{silent:?}");
        relay.set(RelayMode::Slow { bytes_per_second: 100 });
        stream.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"later", "silence loses no byte");

        relay.set(RelayMode::Clear);
        relay.cut();
        assert!(exchange(&mut stream, b"cut").await.is_err());
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).await?;
        assert_eq!(exchange(&mut stream, b"again").await?, b"again", "connections after a cut work");
        Ok(())
    }

    #[tokio::test]
    async fn relay_cuts_each_connection_within_the_byte_limit() -> io::Result<()> {
        let relay = Relay::start(echo().await?, 7).await?;
        relay.set(RelayMode::Cut { within: 1_000 });
        for _ in 0..5 {
            let before = relay.passed();
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).await?;
            assert!(exchange(&mut stream, &[b'x'; 4_000]).await.is_err());
            assert!(relay.passed() - before <= 1_000, "{} bytes", relay.passed() - before);
        }
        Ok(())
    }
}
