//! The task that lists and watches: it carries out what the [machine](crate::machine) decides.
//!
//! One task owns the store. It reads bytes, makes events of them, applies them, tells the observer and then publishes
//! the snapshot; nothing else writes. While it waits for anything it also keeps the state that readers see up to date
//! and listens for [`Cacher::reset`](crate::Cacher::reset).
//!
//! What cannot be read: an object or frame that is not what a member should send is skipped and counted, and the stream
//! lives on. What was known of that object (if anything) stays as it was until its next readable event or the next
//! list: a skipped DELETED leaves the object in place, a skipped item of a list leaves it out. The log names the
//! version after which it came or the item's number, at most once a minute, and never any content.
//!
//! The walk of an event goes down through these files: `open` sends the request, `watch` or `list` reads the answer,
//! `collection` applies what came and publishes it. `latest` is what the member says of its latest version, `failures`
//! what is told where something went wrong, `task` what all of them work on.

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
use self::task::{ReflectorStream, ResetAsked};
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
            let input = done.unwrap_or_else(|ResetAsked| self.went_back());
            self.show_state();
            // Of a target of its own, which one level more writes: see the server's `log.rs`.
            tracing::debug!(target: "tributary_cacher::events", ?input, "reflector");
            (self.machine, action) = self.machine.clone().step(input.clone());
            if action.begins_list() && self.store.is_some() {
                tracing::debug!(?input, held = %self.version(), "the collection is to be listed anew");
            }
        }
    }

    /// Waits out a failure, unless the next attempt is to be made at once.
    async fn wait(&mut self, failures: u32, at_least: Option<Duration>) -> Result<Input, ResetAsked> {
        self.reading = ReflectorStream::Nothing;
        self.list_place = None;
        self.failed_at = Some(Instant::now());
        let tuning = &self.shared.config.tuning;
        let at_least = at_least.map(|asked| asked.min(tuning.retry_after_max));
        let delay = backoff::delay(tuning.backoff_min, tuning.backoff_max, failures, at_least, rand::random());
        tracing::debug!(?delay, failures, "waiting before the next attempt");
        let (mut member, begun_at) = (self.member.clone(), self.recoveries);
        let wake = self.wakes.next(Instant::now(), tuning.backoff_max, rand::random());
        let woken = async {
            // The sender lives as long as the reflector.
            let _ = member.wait_for(|known| known.lost.is_none() && known.recoveries > begun_at).await;
            sleep(wake.after).await;
        };
        let shared = self.shared.clone();
        let ended = self.attend(async {
            tokio::select! {
                () = shared.retry.notified() => {}
                () = sleep(delay) => {}
                () = woken => {}
            }
        });
        ended.await?;
        // However the wait ended: what is asked now is asked after it was said.
        if self.member.borrow().recoveries == begun_at {
            return Ok(Input::Elapsed);
        }
        self.wakes.woken(Instant::now(), wake);
        Ok(if wake.is_believed { Input::Woken } else { Input::Elapsed })
    }

    async fn read(&mut self) -> Result<Input, ResetAsked> {
        match std::mem::replace(&mut self.reading, ReflectorStream::Nothing) {
            ReflectorStream::Watch(stream) => self.read_watch(stream).await,
            ReflectorStream::Page(page) => self.read_page(*page).await,
            ReflectorStream::Nothing => Ok(self.failed(StaleReason::Other("there is nothing to read".to_owned()))),
        }
    }
}
