//! The task that lists and watches a collection. The [machine](crate::machine) decides the requests; this module sends
//! them and reads the responses.
//!
//! One task owns the store. The task reads bytes, decodes events, applies the events, calls the observer and then
//! publishes the snapshot; no other task writes. During each wait the task also publishes state changes and listens for
//! [`Cacher::reset`](crate::Cacher::reset).
//!
//! Malformed objects and frames are skipped and counted, and the stream continues. After a malformed MODIFIED event,
//! the store keeps the object's previous state until the object's next readable event or the next list. A skipped
//! DELETED event leaves the object in the store, and a skipped item of a list removes the object. The log contains the
//! version before the event, or the item's number, at most once a minute, and never content.
//!
//! An event passes through these files: `open` sends the request, `watch` or `list` reads the response, `collection`
//! applies and publishes the changes. `latest` handles the member's latest version, `failures` records failures, and
//! `task` has the shared state.

mod collection;
mod failures;
mod latest;
mod list;
mod open;
mod task;
mod watch;

use std::time::Duration;

use tokio::time::{Instant, sleep};

pub(crate) use self::task::Reflector;
use self::task::{ReflectorStream, ResetRequested};
use crate::backoff;
use crate::machine::{Action, Input};
use crate::state::StaleReason;

impl Reflector {
    /// Lists and watches until the task is aborted.
    pub(crate) async fn run(mut self) {
        let mut action = self.first.take().unwrap_or(Action::Read);
        loop {
            let done = match action {
                Action::Open(target) => self.open(target).await,
                Action::Read => self.read().await,
                Action::Wait { failures, at_least } => self.wait(failures, at_least).await,
            };
            let input = done.unwrap_or_else(|ResetRequested| self.went_back());
            self.publish_state();
            // `tributary serve` logs this separate target only at a higher verbosity than the other messages
            // (`output/log.rs` of the server crate).
            tracing::debug!(target: "tributary_cacher::events", ?input, "reflector");
            (self.machine, action) = self.machine.clone().step(input.clone());
            if action.begins_list() && self.store.is_some() {
                tracing::debug!(?input, held = %self.version(), "the collection will be listed again");
            }
        }
    }

    /// Waits after a failure. A recovery of the member or [`Cacher::retry`](crate::Cacher::retry) ends the wait early.
    async fn wait(&mut self, failures: u32, at_least: Option<Duration>) -> Result<Input, ResetRequested> {
        self.reading = ReflectorStream::Nothing;
        self.list_permit = None;
        self.failed_at = Some(Instant::now());
        let tuning = &self.shared.config.tuning;
        let at_least = at_least.map(|retry_after| retry_after.min(tuning.retry_after_max));
        let delay = backoff::delay(tuning.backoff_min, tuning.backoff_max, failures, at_least, rand::random());
        tracing::debug!(?delay, failures, "waiting before the next attempt");
        let (mut member, begun_at) = (self.member.clone(), self.recoveries);
        let wake = self.early_wakeups.next(Instant::now(), tuning.backoff_max, rand::random());
        let woken = async {
            // The result is ignored, because the wait cannot fail: the reflector owns the sender, so the channel stays
            // open.
            let _ = member.wait_for(|health| health.loss.is_none() && health.recoveries > begun_at).await;
            sleep(wake.after).await;
        };
        let shared = self.shared.clone();
        let ended = self.run_until_reset(async {
            tokio::select! {
                () = shared.retry.notified() => {}
                () = sleep(delay) => {}
                () = woken => {}
            }
        });
        ended.await?;
        // If the member has recovered meanwhile, the next request is one after a report of a recovery, whichever branch
        // of the `select!` ended the wait.
        if self.member.borrow().recoveries == begun_at {
            return Ok(Input::Elapsed);
        }
        self.early_wakeups.woken(Instant::now(), wake);
        Ok(if wake.is_trusted { Input::Woken } else { Input::Elapsed })
    }

    async fn read(&mut self) -> Result<Input, ResetRequested> {
        match std::mem::replace(&mut self.reading, ReflectorStream::Nothing) {
            ReflectorStream::Watch(stream) => self.read_watch(stream).await,
            ReflectorStream::Page(page) => self.read_page(*page).await,
            ReflectorStream::Nothing => Ok(self.failed(StaleReason::Other("no watch or list is open".to_owned()))),
        }
    }
}
