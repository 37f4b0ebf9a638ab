//! Ends connections at random; see [`GoawayChance`].

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

    /// Draws a random number for a request at the beginning of its answer.
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
