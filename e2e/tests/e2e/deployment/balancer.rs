//! TCP load balancer that checks `/readyz`, as Kubernetes does for the endpoints of a Service. If a server refuses a
//! connection, the balancer does not try the next server.

use parking_lot::Mutex;
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tributary_e2e::HttpClient;

/// Interval between two health checks. After a server becomes unready, it must continue to serve for longer than this.
const PERIOD: Duration = Duration::from_millis(100);

/// Number of consecutive failed health checks after which the balancer removes a server, as in the chart's probe. A
/// busy machine may cause a single failure.
const FAILURES: u32 = 2;

/// A running balancer. Dropping it closes its connections.
pub(crate) struct Balancer {
    pub(crate) port: u16,
    ready: Arc<Mutex<Vec<bool>>>,
    /// Number of connections to each server since the start.
    connections: Arc<Vec<AtomicUsize>>,
    _tasks: JoinSet<()>,
}

impl Balancer {
    /// Starts a balancer in front of these servers. The client in each pair sends the health checks to the server at
    /// that address.
    pub(crate) async fn start(servers: Vec<(SocketAddr, HttpClient)>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let ready = Arc::new(Mutex::new(vec![false; servers.len()]));
        let addresses: Vec<SocketAddr> = servers.iter().map(|(address, _)| *address).collect();
        let mut tasks = JoinSet::new();
        for (index, (_, client)) in servers.into_iter().enumerate() {
            tasks.spawn(probe(index, client, Arc::clone(&ready)));
        }
        let connections: Arc<Vec<_>> = Arc::new(addresses.iter().map(|_| AtomicUsize::new(0)).collect());
        tasks.spawn(accept(listener, addresses, Arc::clone(&ready), Arc::clone(&connections)));
        Ok(Self { port, ready, connections, _tasks: tasks })
    }

    pub(crate) fn connections(&self, index: usize) -> usize {
        self.connections[index].load(Ordering::Relaxed)
    }

    /// Returns whether the balancer forwards new connections to a server.
    pub(crate) fn is_ready(&self, index: usize) -> bool {
        self.ready.lock()[index]
    }
}

async fn probe(index: usize, client: HttpClient, ready: Arc<Mutex<Vec<bool>>>) {
    let mut failures = 0;
    loop {
        let answer = timeout(PERIOD * 5, client.get("/readyz").send()).await;
        failures = match answer {
            Ok(Ok(answer)) if answer.status == 200 => 0,
            _ => failures + 1,
        };
        match failures {
            0 => ready.lock()[index] = true,
            FAILURES.. => ready.lock()[index] = false,
            _ => {}
        }
        tokio::time::sleep(PERIOD).await;
    }
}

async fn accept(
    listener: TcpListener,
    servers: Vec<SocketAddr>,
    ready: Arc<Mutex<Vec<bool>>>,
    counts: Arc<Vec<AtomicUsize>>,
) {
    let (mut connections, turn) = (JoinSet::new(), AtomicUsize::new(0));
    loop {
        let Ok((mut client, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let ready: Vec<usize> =
            ready.lock().iter().enumerate().filter(|(_, ready)| **ready).map(|(index, _)| index).collect();
        if ready.is_empty() {
            continue;
        }
        let index = ready[turn.fetch_add(1, Ordering::Relaxed) % ready.len()];
        counts[index].fetch_add(1, Ordering::Relaxed);
        let server = servers[index];
        connections.spawn(async move {
            let Ok(mut server) = TcpStream::connect(server).await else { return };
            // The client or the server may close the connection at any time.
            let _ended = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}
