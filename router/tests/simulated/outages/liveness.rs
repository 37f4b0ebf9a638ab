//! Tests that the router answers `/livez` under load, as for a kubelet's probe.
//!
//! The limit is real time. On a busy machine even a correct router may be slow, so the test repeats the load and uses
//! the best result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::harness::Client;

/// The maximum time without a response: the default `timeoutSeconds` of a Pod's `livenessProbe`.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);

/// The pause between two requests for `/livez`.
const PAUSE: Duration = Duration::from_millis(10);

/// The number of attempts before the test reports that the load blocks the router.
const ATTEMPTS: usize = 3;

/// A client that requests `/livez` continuously, on a worker thread of the runtime.
pub(crate) struct Probes {
    is_over: Arc<AtomicBool>,
    asking: JoinHandle<Duration>,
}

impl Probes {
    pub(crate) fn start(client: Client) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        // The time starts before the first request. So it also shows that a worker thread was blocked before this
        // request.
        let mut answered = Instant::now();
        let asking = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            loop {
                let is_last = seen.load(Ordering::SeqCst);
                assert_eq!(client.send("GET", "/livez", &[], "").await.code, 200);
                longest = longest.max(answered.elapsed());
                answered = Instant::now();
                if is_last {
                    return longest;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { is_over, asking }
    }

    /// Sends a last request. Returns the longest time without a response since the start.
    pub(crate) async fn longest_silence(self) -> Duration {
        self.is_over.store(true, Ordering::SeqCst);
        self.asking.await.unwrap()
    }
}

/// Checks that the router answers `/livez` in time under a load. `attempt` runs the load, and returns
/// [`Probes::longest_silence`].
pub(crate) async fn others_live(what: &str, mut attempt: impl AsyncFnMut() -> Duration) {
    let mut tried = Vec::new();
    while tried.len() < ATTEMPTS {
        let silence = attempt().await;
        if silence <= ALIVE_WITHIN {
            return;
        }
        tried.push(silence);
    }
    panic!("{what}: /livez was not answered for {tried:?}");
}
