//! Persistence of discovery and OpenAPI answers of clusters, some seconds after each change.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tributary_fleet::last_heard::{KeepLastHeard, LastHeard};

use crate::Router;

/// Delay between a new answer and its persistence. With 5 s, the answers of a starting fleet are written only once or
/// twice. If the process is killed, the answers of its last seconds are lost.
const KEEP_PAUSE: Duration = Duration::from_secs(5);

/// Minimum time between two writes. With a minute, a fleet with endless changes, or a malicious cluster, costs at most
/// a second of CPU time each minute (64 MiB of text, compressed).
const KEEP_INTERVAL: Duration = Duration::from_secs(60);

impl Router {
    /// Returns the last discovery and OpenAPI answers of the present clusters, from this process or from an earlier
    /// one.
    fn last_heard(&self) -> LastHeard {
        LastHeard { discovery: self.fleet.served(), openapi: self.openapi.known_documents(), ..LastHeard::default() }
    }

    /// Waits until the last answers are written, after a call of [`drain`](Self::drain). Cancellation is safe.
    pub async fn last_heard_is_kept(&self) {
        let keeping = self.keeping.lock().take();
        if let Some(keeping) = keeping {
            // The task fails only at the end of the runtime.
            let _ = keeping.await;
        }
    }

    /// Starts the task that writes the last answers of the present clusters, some seconds after each change. Equal
    /// answers are not written again.
    pub(crate) fn follow_last_heard(self: &Arc<Self>, keep: Option<KeepLastHeard>) {
        let Some(keep) = keep.map(Arc::new) else { return };
        let (mut changes, news) = (self.fleet.changes(), self.openapi.news());
        let (weak, draining) = (Arc::downgrade(self), self.draining.clone());
        let task: JoinHandle<()> = tokio::spawn(async move {
            let mut stored: Option<(LastHeard, Instant)> = None;
            loop {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { break },
                    () = news.notified() => {}
                    () = draining.cancelled() => {}
                }
                pause(stored.as_ref().map(|(_, at)| *at), &draining).await;
                changes.mark_unchanged();
                let is_last = draining.is_cancelled();
                let Some(current) = weak.upgrade().map(|router| router.last_heard()) else { break };
                if stored.as_ref().is_none_or(|(stored, _)| *stored != current) {
                    let (keep, written) = (Arc::clone(&keep), current.clone());
                    // The task fails only at the end of the runtime.
                    let _ = tokio::task::spawn_blocking(move || keep(written)).await;
                    stored = Some((current, Instant::now()));
                }
                if is_last {
                    break;
                }
            }
        });
        *self.keeping.lock() = Some(task);
    }
}

/// Waits until the next write is due, at once if the process drains.
async fn pause(stored: Option<Instant>, draining: &CancellationToken) {
    let since = stored.map_or(KEEP_INTERVAL, |stored| stored.elapsed());
    let pause = KEEP_PAUSE.max(KEEP_INTERVAL.saturating_sub(since));
    let _ = tokio::time::timeout(pause, draining.cancelled()).await;
}
