//! The state that all connections of a simulated member share.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::SimulatorConfig;
use crate::control::{Control, Faults};
use crate::store::MemberStore;

pub(crate) struct Api {
    control: Control,
    token: String,
    watch_list: bool,
    bookmark_interval: Duration,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Api {
    pub(crate) fn new(
        config: &SimulatorConfig,
        control: Control,
        token: String,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self { control, token, watch_list: config.watch_list, bookmark_interval: config.bookmark_interval, tasks, stop }
    }

    pub(crate) fn store(&self) -> &Arc<MemberStore> {
        &self.control.store
    }

    pub(crate) fn faults(&self) -> &Arc<Faults> {
        &self.control.faults
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn watch_list(&self) -> bool {
        self.watch_list
    }

    pub(crate) fn bookmark_interval(&self) -> Duration {
        self.bookmark_interval
    }

    /// Spawns a task. The task is cancelled when the member stops, if it has not ended earlier.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }
}
