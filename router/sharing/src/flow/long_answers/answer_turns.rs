//! Separate write permits for medium and long answers: a client that reads a megabyte never waits behind lists of
//! everything.

use std::sync::Arc;

use crate::flow::holder::Holder;

use super::{NoTurn, TurnMetrics, Turns, WriteTurn};

/// Maximal size of an answer of medium length, in bytes. 1 MiB is a namespace of 150 pods, or a page of 500 small
/// objects, gathered in under a millisecond.
pub const MEDIUM_BYTES: usize = 1 << 20;

/// Length of an answer, as known at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// At most [`MEDIUM_BYTES`], or unknown. An answer that later exceeds [`MEDIUM_BYTES`] changes to a write permit
    /// for long answers.
    Medium,
    /// More than [`MEDIUM_BYTES`].
    Long,
}

/// Write permits for answers of both lengths. One value for each process.
#[derive(Debug)]
pub struct AnswerTurns {
    medium: Arc<Turns>,
    long: Arc<Turns>,
}

/// Metrics of the write permits of both lengths.
#[derive(Clone, Debug, Default)]
pub struct AnswerTurnMetrics {
    /// Metrics of write permits for answers of up to [`MEDIUM_BYTES`].
    pub medium: TurnMetrics,
    /// Metrics of write permits for longer answers.
    pub long: TurnMetrics,
}

/// Permission to write one answer. The write permit inside may change: a slow answer loses its permit and takes a new
/// one, and a growing answer changes to a permit for long answers.
#[derive(Debug)]
pub struct AnswerTurn {
    answer_turns: Arc<AnswerTurns>,
    holder: Holder,
    length: Length,
    /// Bytes that a write permit of medium length still allows.
    left: usize,
    turn: WriteTurn,
}

impl AnswerTurns {
    /// Creates a limit of `at_once` write permits for each length.
    pub fn new(at_once: usize, metrics: &AnswerTurnMetrics) -> Arc<Self> {
        Arc::new(Self {
            medium: Turns::new(at_once, metrics.medium.clone()),
            long: Turns::new(at_once, metrics.long.clone()),
        })
    }

    /// Returns, for each length, the number of active write permits, the limit, and the number of refused answers since
    /// the start.
    pub fn usage(&self) -> [(&'static str, (usize, usize, u64)); 2] {
        [("medium", self.medium.usage()), ("long", self.long.usage())]
    }

    /// Waits for a write permit of this length. Cancellation: dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`NoTurn`].
    pub async fn acquire(self: &Arc<Self>, length: Length, holder: Holder) -> Result<AnswerTurn, NoTurn> {
        let turn = self.turns(length).acquire(holder).await?;
        Ok(AnswerTurn { answer_turns: Arc::clone(self), holder, length, left: MEDIUM_BYTES, turn })
    }

    fn turns(&self, length: Length) -> &Arc<Turns> {
        match length {
            Length::Medium => &self.medium,
            Length::Long => &self.long,
        }
    }
}

impl AnswerTurn {
    /// Waits until the answer may write more bytes. Returns at once unless the answer lost its write permit because the
    /// client was slow, or the answer has become long.
    ///
    /// # Errors
    /// [`NoTurn`].
    pub async fn go_on(&mut self) -> Result<(), NoTurn> {
        if !self.turn.is_live() {
            self.turn = self.answer_turns.turns(self.length).acquire(self.holder).await?;
        }
        Ok(())
    }

    /// Counts written bytes. An answer that exceeds the medium length releases its write permit, and continues with a
    /// permit for long answers.
    pub fn wrote(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        if self.length == Length::Medium && self.left == 0 {
            self.length = Length::Long;
            self.turn.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn medium_answer_does_not_wait_for_long_answers() {
        let metrics = AnswerTurnMetrics::default();
        let answer_turns = AnswerTurns::new(1, &metrics);
        let long = answer_turns.acquire(Length::Long, Holder::Unknown).await.unwrap();
        assert!(answer_turns.acquire(Length::Long, Holder::Unknown).now_or_never().is_none());
        let mut medium = answer_turns.acquire(Length::Medium, Holder::Unknown).now_or_never().unwrap().unwrap();
        medium.wrote(MEDIUM_BYTES - 1);
        assert_eq!(medium.go_on().now_or_never(), Some(Ok(())));
        // The answer becomes long, releases its medium write permit, and waits behind the other long answer.
        medium.wrote(1);
        let mut moved = Box::pin(medium.go_on());
        assert!(moved.as_mut().now_or_never().is_none());
        assert_eq!((metrics.medium.active.get(), metrics.long.waiting.get()), (0, 1));
        drop(long);
        assert_eq!(moved.await, Ok(()));
        assert_eq!((metrics.medium.active.get(), metrics.long.active.get()), (0, 1));
    }
}
