//! Separate write permits for medium and long answers, so that a client that reads a megabyte never waits behind lists
//! of all objects.

use std::sync::Arc;

use crate::flow::share_key::ShareKey;

use super::{NoWritePermit, WritePermit, WritePermitMetrics, WritePermits};

/// Maximal size of an answer of medium length, in bytes. 1 MiB is a namespace of 150 pods, or a page of 500 small
/// objects, gathered in under a millisecond.
pub const MEDIUM_BYTES: usize = 1 << 20;

/// Length of an answer, as far as Tributary knows it at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// At most [`MEDIUM_BYTES`], or unknown. An answer that later exceeds [`MEDIUM_BYTES`] changes to a write permit
    /// for long answers.
    Medium,
    /// More than [`MEDIUM_BYTES`].
    Long,
}

/// Write permits for answers of both lengths. A process has one value.
#[derive(Debug)]
pub struct AnswerPermits {
    medium: Arc<WritePermits>,
    long: Arc<WritePermits>,
}

/// Metrics of the write permits of both lengths.
#[derive(Clone, Debug, Default)]
pub struct AnswerPermitMetrics {
    /// Metrics of write permits for answers of up to [`MEDIUM_BYTES`].
    pub medium: WritePermitMetrics,
    /// Metrics of write permits for longer answers.
    pub long: WritePermitMetrics,
}

/// Permission to write one answer. The write permit inside may change: a slow answer loses its permit and takes a new
/// one, and a growing answer changes to a permit for long answers.
#[derive(Debug)]
pub struct AnswerPermit {
    answer_permits: Arc<AnswerPermits>,
    share_key: ShareKey,
    length: Length,
    /// Bytes that the answer may still write with a permit for medium answers.
    remaining_bytes: usize,
    permit: WritePermit,
}

impl AnswerPermits {
    /// Creates a limit of `at_once` write permits for each length.
    pub fn new(at_once: usize, metrics: &AnswerPermitMetrics) -> Arc<Self> {
        Arc::new(Self {
            medium: WritePermits::new(at_once, metrics.medium.clone()),
            long: WritePermits::new(at_once, metrics.long.clone()),
        })
    }

    /// Returns, for each length, the number of active write permits, the limit, and the number of refused answers since
    /// the start.
    pub fn usage(&self) -> [(&'static str, (usize, usize, u64)); 2] {
        [("medium", self.medium.usage()), ("long", self.long.usage())]
    }

    /// Waits for a write permit of this length. Cancellation is safe: a dropped future leaves the queue.
    ///
    /// # Errors
    /// [`NoWritePermit`] if too many requests wait, or after the maximum wait.
    pub async fn acquire(self: &Arc<Self>, length: Length, share_key: ShareKey) -> Result<AnswerPermit, NoWritePermit> {
        let permit = self.permits(length).acquire(share_key).await?;
        Ok(AnswerPermit { answer_permits: Arc::clone(self), share_key, length, remaining_bytes: MEDIUM_BYTES, permit })
    }

    fn permits(&self, length: Length) -> &Arc<WritePermits> {
        match length {
            Length::Medium => &self.medium,
            Length::Long => &self.long,
        }
    }
}

impl AnswerPermit {
    /// Waits until the answer may write more bytes. Returns at once, unless the answer lost its write permit because
    /// the client was slow, or the answer has become long.
    ///
    /// # Errors
    /// [`NoWritePermit`] if too many requests wait, or after the maximum wait.
    pub async fn wait_to_continue(&mut self) -> Result<(), NoWritePermit> {
        if !self.permit.is_live() {
            self.permit = self.answer_permits.permits(self.length).acquire(self.share_key).await?;
        }
        Ok(())
    }

    /// Subtracts written bytes from the allowance of a medium answer. An answer that exceeds the medium length releases
    /// its write permit, and continues with a permit for long answers.
    pub fn count_written(&mut self, bytes: usize) {
        self.remaining_bytes = self.remaining_bytes.saturating_sub(bytes);
        if self.length == Length::Medium && self.remaining_bytes == 0 {
            self.length = Length::Long;
            self.permit.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn medium_answer_does_not_wait_for_long_answers() {
        let metrics = AnswerPermitMetrics::default();
        let answer_permits = AnswerPermits::new(1, &metrics);
        let long = answer_permits.acquire(Length::Long, ShareKey::Unknown).await.unwrap();
        assert!(answer_permits.acquire(Length::Long, ShareKey::Unknown).now_or_never().is_none());
        let mut medium = answer_permits.acquire(Length::Medium, ShareKey::Unknown).now_or_never().unwrap().unwrap();
        medium.count_written(MEDIUM_BYTES - 1);
        assert_eq!(medium.wait_to_continue().now_or_never(), Some(Ok(())));
        // The answer becomes long, releases its medium write permit, and waits behind the other long answer.
        medium.count_written(1);
        let mut moved = Box::pin(medium.wait_to_continue());
        assert!(moved.as_mut().now_or_never().is_none());
        assert_eq!((metrics.medium.active.get(), metrics.long.waiting.get()), (0, 1));
        drop(long);
        assert_eq!(moved.await, Ok(()));
        assert_eq!((metrics.medium.active.get(), metrics.long.active.get()), (0, 1));
    }
}
