//! Turns for answers of two lengths, apart: whoever wants a megabyte never waits behind those who want everything.

use std::sync::Arc;

use crate::flow::holder::Holder;

use super::{NoTurn, TurnMetrics, Turns, WriteTurn};

/// What an answer of medium length has at most, in bytes. 1 MiB: a namespace of 150 pods, or a page of 500 small
/// objects, gathered in under a millisecond.
pub const MEDIUM_BYTES: usize = 1 << 20;

/// How long an answer will be, as far as that is known when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// At most [`MEDIUM_BYTES`], or not known: it takes a turn of the long ones when it has become longer.
    Medium,
    /// Longer.
    Long,
}

/// The turns for answers of both lengths. One per process.
#[derive(Debug)]
pub struct AnswerTurns {
    medium: Arc<Turns>,
    long: Arc<Turns>,
}

/// What is counted about the turns of both lengths.
#[derive(Clone, Debug, Default)]
pub struct AnswerTurnMetrics {
    /// Answers of up to [`MEDIUM_BYTES`].
    pub medium: TurnMetrics,
    /// Longer ones.
    pub long: TurnMetrics,
}

/// One answer's right to be written, however long that takes. No `Permit`: it is lost and taken again, and an answer
/// that grows long takes another.
#[derive(Debug)]
pub struct AnswerTurn {
    answer_turns: Arc<AnswerTurns>,
    holder: Holder,
    length: Length,
    /// How many bytes may still be written by a turn of medium length.
    left: usize,
    turn: WriteTurn,
}

impl AnswerTurns {
    /// Gives `at_once` turns at a time for each length.
    pub fn new(at_once: usize, metrics: &AnswerTurnMetrics) -> Arc<Self> {
        Arc::new(Self {
            medium: Turns::new(at_once, metrics.medium.clone()),
            long: Turns::new(at_once, metrics.long.clone()),
        })
    }

    /// How many turns of medium length and of long ones are taken, how many there are at a time of each, and how many
    /// were refused since the start.
    pub fn usage(&self) -> [(&'static str, (usize, usize, u64)); 2] {
        [("medium", self.medium.usage()), ("long", self.long.usage())]
    }

    /// Takes a turn for this length, waiting for one if need be. Cancel:
    /// dropping the future gives up the place.
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
    /// Waits until more may be written. That is at once, unless the turn has been lost to somebody who waited, because
    /// the reader was slow, or the answer has become a long one.
    ///
    /// # Errors
    /// [`NoTurn`].
    pub async fn go_on(&mut self) -> Result<(), NoTurn> {
        if !self.turn.is_live() {
            self.turn = self.answer_turns.turns(self.length).acquire(self.holder).await?;
        }
        Ok(())
    }

    /// Notes that so much was written. An answer that has become a long one loses its turn,
    /// and goes on by one of the long ones.
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
    async fn who_wants_little_does_not_wait_for_who_wants_all() {
        let metrics = AnswerTurnMetrics::default();
        let answer_turns = AnswerTurns::new(1, &metrics);
        let long = answer_turns.acquire(Length::Long, Holder::Unknown).await.unwrap();
        assert!(answer_turns.acquire(Length::Long, Holder::Unknown).now_or_never().is_none());
        let mut medium = answer_turns.acquire(Length::Medium, Holder::Unknown).now_or_never().unwrap().unwrap();
        medium.wrote(MEDIUM_BYTES - 1);
        assert_eq!(medium.go_on().now_or_never(), Some(Ok(())));
        // It turns out to be long: its place is free for the next, and it lines up behind the other long one.
        medium.wrote(1);
        let mut moved = Box::pin(medium.go_on());
        assert!(moved.as_mut().now_or_never().is_none());
        assert_eq!((metrics.medium.active.get(), metrics.long.waiting.get()), (0, 1));
        drop(long);
        assert_eq!(moved.await, Ok(()));
        assert_eq!((metrics.medium.active.get(), metrics.long.active.get()), (0, 1));
    }
}
