//! The time limit of a request from its `timeoutSeconds`.

use std::time::Duration;

/// A duration of at most [`Timeout::MAX`], which can be added to any time without overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timeout(Duration);

impl Timeout {
    /// The maximum, one year. Longer timeouts are reduced to the maximum: a server may end a watch at any time, and no
    /// process runs that long.
    pub const MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// Creates a timeout, reduced to [`Timeout::MAX`].
    pub fn new(time: Duration) -> Self {
        Self(time.min(Self::MAX))
    }

    /// Converts a client's number of seconds. Returns `None` for 0, which leaves the limit to the server. A negative
    /// number becomes a timeout of zero.
    ///
    /// From 9,223,372,037 s (292 years) on, kube-apiserver's multiplication in 64 bits overflows, and some of these
    /// watches end at once. Tributary uses the maximum instead. The status is 200 in both cases.
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        (seconds != 0).then(|| Self::new(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())))
    }

    /// Returns the duration.
    pub fn duration(self) -> Duration {
        self.0
    }
}
