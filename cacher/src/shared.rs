//! What the reflector's task and the handle that readers hold have in common.

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tributary_apimachinery::Snapshot;

use crate::config::Config;
use crate::state::State;
use crate::stats::Counts;
use crate::wait::Wanted;

/// What the reflector's task and the handle share. The task writes, the handle reads.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) published: watch::Sender<Option<Snapshot>>,
    pub(crate) state: watch::Sender<State>,
    pub(crate) wanted: Wanted,
    pub(crate) reset: Notify,
    /// When the watch is to be opened anew, if it is.
    pub(crate) reopen_at: watch::Sender<Option<Instant>>,
    pub(crate) counts: Counts,
}

impl Shared {
    /// As it is before the first request: nothing is held, and nobody waits.
    pub(crate) fn new(config: Config) -> Self {
        Self {
            published: watch::Sender::new(None),
            state: watch::Sender::new(State::Syncing { since: Instant::now(), reason: None }),
            wanted: Wanted::default(),
            reset: Notify::new(),
            reopen_at: watch::Sender::new(None),
            counts: Counts::default(),
            config,
        }
    }
}
