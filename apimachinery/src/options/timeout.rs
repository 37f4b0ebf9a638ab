//! The time limit of a request from `timeoutSeconds`.

use std::time::Duration;

/// A time of at most [`Timeout::MAX`], so that it can be added to any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timeout(Duration);

impl Timeout {
    /// The maximum, a year. Longer times are reduced to it: a server may end a watch at any time, and no process runs
    /// that long.
    pub const MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// Creates a timeout, reduced to the maximum.
    pub fn new(time: Duration) -> Self {
        Self(time.min(Self::MAX))
    }

    /// Converts a client's number of seconds; `None` for 0, which leaves the limit to the server. A negative number is
    /// a time that has passed.
    ///
    /// kube-apiserver multiplies in 64 bits: from 9,223,372,037 s (292 years) on the product wraps around, and some of
    /// these watches end at once. The status is 200, as here.
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        (seconds != 0).then(|| Self::new(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())))
    }

    /// Returns the time limit.
    pub fn duration(self) -> Duration {
        self.0
    }
}
