//! Makes a connection stop accepting requests: after a random number of requests ([`GoawayChance`]), or at a random age
//! ([`ConnectionAge`]).

use http::Version;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::or_pending;

use crate::settings::{ConnectionAge, GoawayChance};

/// Decides at random when a connection stops accepting requests.
#[derive(Debug, Default)]
pub(super) struct RandomGoaway {
    chance: GoawayChance,
    due: Notify,
    /// The time at which the connection stops accepting requests; `None` without a maximal age.
    end: Option<Instant>,
}

impl RandomGoaway {
    /// Creates the state of a new connection, whose age begins now.
    pub(super) fn new(chance: GoawayChance, age: Option<ConnectionAge>) -> Self {
        Self { chance, due: Notify::new(), end: age.map(|age| Instant::now() + age.draw()) }
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
        tokio::select! {
            () = self.due.notified() => {}
            () = or_pending(self.end.map(sleep_until)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connection_stops_at_its_age() {
        let goaway = RandomGoaway::new(GoawayChance::default(), Some(ConnectionAge::AGGREGATED));
        let minute = Duration::from_secs(60);
        tokio::time::advance(10 * minute - Duration::from_millis(1)).await;
        assert!(goaway.wait_until_drawn().now_or_never().is_none());
        let start = Instant::now();
        // The wait is cancelled and repeated after each interruption of the connection.
        goaway.wait_until_drawn().await;
        assert!(start.elapsed() <= 10 * minute + Duration::from_millis(2));
        assert!(goaway.wait_until_drawn().now_or_never().is_some(), "a repeated wait completes at once");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_an_age_lasts() {
        let goaway = RandomGoaway::new(GoawayChance::default(), None);
        let day = Duration::from_secs(86_400);
        assert!(tokio::time::timeout(day, goaway.wait_until_drawn()).await.is_err());
    }
}
