//! What the router holds at most. Each bound is in the configuration and, as `tributary_limit`, in the metrics, beside what is used
//! of it.

use std::time::Duration;

use tributary_merge::LogConfig;

use crate::body::WHOLE_BODY_BYTES_MAX;
use crate::turns::{AT_ONCE, WAITING_MAX};

/// The bounds that can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What the changes that are remembered of one resource in one cluster may occupy, in bytes. A client that was cut off for
    /// longer than this covers lists again.
    pub history_bytes: usize,
    /// How long changes are remembered.
    pub history_age: Duration,
    /// What encoded watch events that watchers share may occupy, in bytes, per resource.
    pub encodings_bytes: usize,
    /// How many answers of more than a frame are written at once, of medium length and of long ones each.
    pub long_answers: usize,
    /// How long a resource is held that nobody reads or watches.
    pub unused_after: Duration,
}

/// 8 MiB: a second of 1,000 events of 8 KB; a watcher that is further behind encodes for itself.
const ENCODINGS_BYTES: usize = 8 << 20;

/// 30 minutes: a person at a terminal comes back to the same resources, and a list of them anew costs a member more than
/// an idle watch does in a day.
const UNUSED_AFTER: Duration = Duration::from_secs(30 * 60);

/// How many clusters that are not configured a client's version may name: clusters that left since, or were made up. Each is looked
/// for in several places. A fleet that loses more at once has its clients list anew.
pub const UNKNOWN_CLUSTERS: usize = 1024;

/// How many objects that were written through this process, and are not seen yet, are told apart per cluster and resource; beyond it
/// each read waits for all that was written there. They are seen within milliseconds, so there are this many only if the member's watch
/// lags. 1,024 are 100 KB.
pub const FENCE_OBJECTS: usize = 1024;

/// How many past states of a resource are remembered for the next pages of lists. 16: as many as there are turns to write them. One
/// keeps the objects alive that changed since.
pub const PAST_STATES: usize = 16;

impl Default for Limits {
    fn default() -> Self {
        let history = LogConfig::default();
        Self {
            history_bytes: history.history_bytes_max,
            history_age: history.history_age_max,
            encodings_bytes: ENCODINGS_BYTES,
            long_answers: AT_ONCE,
            unused_after: UNUSED_AFTER,
        }
    }
}

impl Limits {
    /// How the log of a resource is bounded.
    pub fn log(&self) -> LogConfig {
        LogConfig { history_bytes_max: self.history_bytes, history_age_max: self.history_age, ..LogConfig::default() }
    }

    /// Every bound under its name in the metrics, those that cannot be set included; times in seconds.
    pub fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("history_bytes", self.history_bytes as u64),
            ("history_age_seconds", self.history_age.as_secs()),
            ("encodings_bytes", self.encodings_bytes as u64),
            ("long_answers", self.long_answers as u64),
            ("long_answers_waiting", WAITING_MAX as u64),
            ("openapi_bytes", crate::openapi::CACHE_BYTES_MAX as u64),
            ("fence_objects", FENCE_OBJECTS as u64),
            ("past_states", PAST_STATES as u64),
            ("request_body_bytes", WHOLE_BODY_BYTES_MAX as u64),
            ("unused_after_seconds", self.unused_after.as_secs()),
        ]
    }
}
