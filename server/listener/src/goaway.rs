//! Stops connections after random requests; see [`GoawayChance`].

use http::Version;
use tokio::sync::Notify;

use crate::settings::GoawayChance;

/// Decides at random when a connection stops accepting requests.
#[derive(Debug, Default)]
pub(super) struct RandomGoaway {
    chance: GoawayChance,
    due: Notify,
}

impl RandomGoaway {
    pub(super) fn by(chance: GoawayChance) -> Self {
        Self { chance, due: Notify::new() }
    }

    /// Decides at random whether a request is the last on its connection. Called at the beginning of the request's
    /// answer.
    pub(super) fn draw(&self, version: Version) {
        if self.chance.is_drawn(version) {
            self.due.notify_one();
        }
    }

    /// Completes when the connection should stop accepting requests. Cancel: safe.
    pub(super) async fn wait_until_drawn(&self) {
        self.due.notified().await;
    }
}
