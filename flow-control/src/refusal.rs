//! Why a request is refused, with what a client is told of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::attributes::{Attributes, Dimension};
use crate::schema::{MaxRequestsInflight, TokenBucket};

/// When a client that is refused is to come again, as kube-apiserver and KubeGateway say it.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request is refused by a schema: 429. It displays what a person reads of it: what the limit is, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The schema.
    pub schema: Arc<str>,
    /// What it limits.
    pub limit: ReachedLimit,
    /// For each of what.
    pub by: Vec<Dimension>,
    /// Why it does not wait, or no longer.
    pub cause: RefusalCause,
    /// When to come again. `None` for events, as in KubeGateway: who writes them goes on without, and is not to try
    /// again.
    pub retry_after: Option<Duration>,
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// Of requests in flight.
    MaxRequestsInflight(MaxRequestsInflight),
    /// Of requests that begin.
    TokenBucket(TokenBucket),
}

/// Why a request does not wait, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// The schema lets nothing in.
    Closed,
    /// The schema has nobody wait.
    Exceeded,
    /// Too many wait.
    QueueFull,
    /// It has waited for as long as one may.
    TimedOut(Duration),
}

/// The words for causes in metrics. Where kube-apiserver has one (`apiserver_flowcontrol_rejected_requests_total`) it
/// is the same.
pub const REFUSAL_REASONS: [&str; 4] = ["closed", "limit-exceeded", "queue-full", "time-out"];

impl RefusalCause {
    /// Its word for metrics.
    pub fn reason(self) -> &'static str {
        REFUSAL_REASONS[self.number()]
    }

    /// Its place among [`REFUSAL_REASONS`].
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Closed => 0,
            Self::Exceeded => 1,
            Self::QueueFull => 2,
            Self::TimedOut(_) => 3,
        }
    }
}

impl Refused {
    pub(crate) fn new(
        schema: &Arc<str>,
        limit: ReachedLimit,
        by: &[Dimension],
        cause: RefusalCause,
        attributes: &Attributes<'_>,
    ) -> Self {
        let is_event = attributes.resource.is_some_and(|own| own.resource == "events");
        let retry_after = (!is_event).then_some(RETRY_AFTER);
        Self { schema: Arc::clone(schema), limit, by: by.to_vec(), cause, retry_after }
    }
}

/// Formats a number of requests.
fn format_requests(number: u32) -> String {
    if number == 1 { "1 request".to_owned() } else { format!("{number} requests") }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow control schema \"{}\" ", self.schema)?;
        match self.limit {
            ReachedLimit::MaxRequestsInflight(MaxRequestsInflight { max: 0, .. }) => {
                return f.write_str("lets no request in");
            }
            ReachedLimit::MaxRequestsInflight(MaxRequestsInflight { max, .. }) => {
                write!(f, "lets {} in at once", format_requests(max))?;
            }
            ReachedLimit::TokenBucket(TokenBucket { qps, burst }) => {
                write!(f, "lets {} in each second, and {burst} at once", format_requests(qps.get()))?;
            }
        }
        for (at, dimension) in self.by.iter().enumerate() {
            let joint = if at == 0 { " for each" } else { " and" };
            write!(f, "{joint} {}", dimension.noun())?;
        }
        match self.cause {
            RefusalCause::Closed | RefusalCause::Exceeded => f.write_str("; there were more"),
            RefusalCause::QueueFull => f.write_str("; there were more, and too many wait already"),
            RefusalCause::TimedOut(wait) => write!(f, "; there were more, and this one waited for {wait:?} in vain"),
        }
    }
}

impl std::error::Error for Refused {}
