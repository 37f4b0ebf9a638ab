//! Whether it is known who is at the other end of a connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::heads::HeldHead;
use super::strangers::Stranger;
use super::user_connections::{UserConnection, UserConnections};
use crate::front::{AuthenticationOutcome, Room};

/// How long a connection may live without one authenticated request. 30 s: no client opens one this long before it uses
/// it, and who is not known shall not hold what is there for those who are.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the last answers to a stranger may take once its connection is being closed: it may not read them.
const STRANGER_FAREWELL: Duration = Duration::from_secs(5);

/// Whether a connection has had one authenticated request. One that never had is closed: after a 401, as kube-apiserver
/// does it against floods of requests that cost the sender nothing (CVE-2023-44487), or after a while.
pub(super) struct Acquaintance {
    stranger: Stranger,
    known: AtomicBool,
    users: Arc<UserConnections>,
    /// Its place among those of the user who was known on it first.
    place: OnceLock<UserConnection>,
    /// It is to be closed, unless somebody is known on it.
    refused: Notify,
}

impl Acquaintance {
    /// Nobody is known yet.
    pub(super) fn new(stranger: Stranger, users: Arc<UserConnections>) -> Self {
        let (known, place) = (AtomicBool::new(false), OnceLock::new());
        Self { stranger, known, users, place, refused: Notify::new() }
    }

    /// Holds the head of a request, as far as nobody is known yet. `None` where there is no room for it.
    pub(super) fn hold(&self, bytes: usize) -> Option<Option<HeldHead>> {
        match self.known.load(Ordering::Relaxed) {
            true => Some(None),
            false => self.stranger.hold(bytes).map(Some),
        }
    }

    /// Ends when a connection on which nobody is known has to make room for another. Cancel: safe.
    pub(super) async fn sent_away(&self) {
        self.stranger.sent_away().await;
        if self.known.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }

    /// Notes who asked. Whoever is known on it first has it; there may be no room for one more of theirs.
    pub(super) fn note(&self, outcome: AuthenticationOutcome<'_>) -> Room {
        match outcome {
            AuthenticationOutcome::Known { .. } if self.known.load(Ordering::Relaxed) => Room::Enough,
            AuthenticationOutcome::Known { user } => match user.map(|user| self.users.take(user)) {
                Some(None) => {
                    self.refused.notify_one();
                    Room::Connections
                }
                place => {
                    // Of two requests at once one has taken it; the other gives its own back.
                    let _one_is_enough = place.flatten().map(|place| self.place.set(place));
                    self.known.store(true, Ordering::Relaxed);
                    self.stranger.is_known();
                    Room::Enough
                }
            },
            AuthenticationOutcome::Unauthorized => {
                self.refused.notify_one();
                Room::Enough
            }
        }
    }

    /// Ends when the connection is to take no more requests. Nothing that others do on a connection that is known ends it.
    /// Cancel: safe.
    pub(super) async fn refused(&self) {
        let _ = tokio::time::timeout(STRANGER_TIMEOUT, self.refused.notified()).await;
        if self.known.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }

    /// Ends when the last answers to a stranger have had their time. Who was refused first may become known by a request
    /// that was already under way, and what is answered to that goes on until it ends. Cancel: safe.
    pub(super) async fn taken_leave(&self) {
        tokio::time::sleep(STRANGER_FAREWELL).await;
        if self.known.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }
}
