//! What a cluster's roles and bindings are now, after contact with it was lost.
//!
//! What they were while it was cut off holds for its objects of that time. When it is there again its objects must not
//! come before the loss of a right to them: each collection is followed by a watch of its own, and none waits for
//! another. So other collections are read on only once all roles and bindings are known as of a moment behind the loss.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};
use tributary_cacher::{Cacher, CacherState, Precedence};

/// How long an attempt may take. A kube-apiserver tells of progress 1.2 s after it was asked.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// The pause between two looks while they are not followed. 100 ms: less than it takes to ask.
const PAUSE: Duration = Duration::from_millis(100);

/// Says what these cachers hold to be known whenever somebody waits for that. Runs until it is dropped.
pub(super) async fn confirm(cachers: Vec<Arc<Cacher>>, precedence: Precedence) {
    loop {
        precedence.wanted().await;
        let as_of = loop {
            let begun = Instant::now();
            if are_known_anew(&cachers).await {
                break begun;
            }
            sleep(PAUSE).await;
        };
        precedence.known(as_of);
    }
}

/// Whether all of them hold what the cluster held when this began. Revisions are shared by all resources of a group
/// that is stored in one etcd, so one question will do.
async fn are_known_anew(cachers: &[Arc<Cacher>]) -> bool {
    let are_followed = || cachers.iter().all(|cacher| matches!(cacher.state(), CacherState::Synced));
    if !are_followed() {
        return false;
    }
    let Some(Ok(latest)) = (match cachers.first() {
        Some(cacher) => Some(cacher.latest().await),
        None => None,
    }) else {
        return false;
    };
    let reached = join_all(cachers.iter().map(|cacher| cacher.wait_for(latest, ATTEMPT_MAX))).await;
    reached.iter().all(Result::is_ok) && are_followed()
}
