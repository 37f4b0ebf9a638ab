//! How long a request may take at most, as `timeoutSeconds` says it.

use std::time::Duration;

/// A time of at most [`Timeout::MAX`], so that it can be added to any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timeout(Duration);

impl Timeout {
    /// A year. Whoever asks for more is given this: a server may end a watch whenever it likes,
    /// and no process runs that long.
    pub const MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// This time, or the longest there is.
    pub fn new(time: Duration) -> Self {
        Self(time.min(Self::MAX))
    }

    /// What a client's number of seconds says; `None` for 0, which leaves it to the server.
    /// One below zero is a time that has passed.
    ///
    /// kube-apiserver multiplies in 64 bits: from 9,223,372,037 s (292 years) on its product wraps around, and some of
    /// these watches end at once. They are answered with 200 as here.
    pub fn of_seconds(seconds: i64) -> Option<Self> {
        (seconds != 0).then(|| Self::new(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())))
    }

    /// The time.
    pub fn duration(self) -> Duration {
        self.0
    }
}
