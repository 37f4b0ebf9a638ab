//! Whether others are answered, whatever goes on: they ask for `/livez`, as a kubelet does.
//!
//! The bound is of the wall clock. A machine that is busy otherwise is no fault of ours, so what goes on is tried
//! several times, and the best of them counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::harness::Client;

/// For how long nobody may be answered: what a probe allows by default (`timeoutSeconds` of a Pod's `livenessProbe`).
const ALIVE_WITHIN: Duration = Duration::from_secs(1);

/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(10);

/// How often something is tried before it is said to keep others from being answered.
const ATTEMPTS: usize = 3;

/// Somebody who asks for `/livez` over and over, on a worker of the runtime.
pub(crate) struct Probes {
    is_over: Arc<AtomicBool>,
    asking: JoinHandle<Duration>,
}

impl Probes {
    /// Begins to ask.
    pub(crate) fn start(client: Client) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        // From here on, so that a worker which does not come to the first question counts as well.
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

    /// Asks once more, and gives the longest time without an answer since the start.
    pub(crate) async fn longest_silence(self) -> Duration {
        self.is_over.store(true, Ordering::SeqCst);
        self.asking.await.unwrap()
    }
}

/// Checks that others are answered while something goes on. An attempt does it and gives the
/// [`Probes::longest_silence`] meanwhile.
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
