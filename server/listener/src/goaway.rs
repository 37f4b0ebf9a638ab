//! The end of a connection by chance; see [`GoawayChance`].

use http::Version;
use tokio::sync::Notify;

use crate::settings::GoawayChance;

/// Whether a connection is to take no more requests.
#[derive(Debug, Default)]
pub(super) struct Parting {
    chance: GoawayChance,
    due: Notify,
}

impl Parting {
    /// By this chance.
    pub(super) fn by(chance: GoawayChance) -> Self {
        Self { chance, due: Notify::new() }
    }

    /// Draws for a request whose answer begins.
    pub(super) fn draw(&self, version: Version) {
        if self.chance.falls_on(version) {
            self.due.notify_one();
        }
    }

    /// Ends once a request was the last. Cancel: safe.
    pub(super) async fn is_due(&self) {
        self.due.notified().await;
    }
}
