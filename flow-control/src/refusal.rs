//! Refusals (429) by a schema, with the data for the message to the client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::attributes::{Attributes, Dimension};
use crate::schema::{MaxRequestsInflight, TokenBucket};

/// `Retry-After` of a refusal. kube-apiserver and KubeGateway send the same value.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Refusal of a request by a schema. The client gets a 429. The `Display` text names the limit and the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Name of the schema.
    pub schema: Arc<str>,
    /// The limit of the schema that the request exceeds.
    pub limit: ReachedLimit,
    /// Dimensions of the schema's keys.
    pub by: Vec<Dimension>,
    /// Cause of the refusal.
    pub cause: RefusalCause,
    /// Value of `Retry-After`. `None` for requests that write Events, as in KubeGateway, because clients that write
    /// Events do not retry.
    pub retry_after: Option<Duration>,
}

/// The limit that a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// Limit of requests in flight.
    MaxRequestsInflight(MaxRequestsInflight),
    /// Limit of requests per second.
    TokenBucket(TokenBucket),
}

/// Cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// The limit of the schema is 0, so every request is refused.
    Closed,
    /// The limit is reached, and the schema has no queues.
    Exceeded,
    /// The limit is reached, and the queue of the flow is full.
    QueueFull,
    /// The request has waited for the maximal time (the value), and no slot or token became free.
    TimedOut(Duration),
}

/// Values of the metric label for the cause of a refusal. If kube-apiserver has the same cause, the value is that of
/// `apiserver_flowcontrol_rejected_requests_total`.
pub const REFUSAL_REASONS: [&str; 4] = ["closed", "limit-exceeded", "queue-full", "time-out"];

impl RefusalCause {
    /// Returns the value of the metric label for this cause.
    pub fn reason(self) -> &'static str {
        REFUSAL_REASONS[self.number()]
    }

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

fn format_requests(number: u32) -> String {
    if number == 1 { "1 request".to_owned() } else { format!("{number} requests") }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow control schema \"{}\" ", self.schema)?;
        match self.limit {
            ReachedLimit::MaxRequestsInflight(MaxRequestsInflight { max: 0, .. }) => {
                return f.write_str("admits no requests");
            }
            ReachedLimit::MaxRequestsInflight(MaxRequestsInflight { max, .. }) => {
                write!(f, "admits {} in flight", format_requests(max))?;
            }
            ReachedLimit::TokenBucket(TokenBucket { qps, burst }) => {
                write!(f, "admits {} per second, with bursts of {burst}", format_requests(qps.get()))?;
            }
        }
        for (at, dimension) in self.by.iter().enumerate() {
            let joint = if at == 0 { " for each" } else { " and" };
            write!(f, "{joint} {}", dimension.noun())?;
        }
        match self.cause {
            RefusalCause::Closed | RefusalCause::Exceeded => f.write_str("; there were more"),
            RefusalCause::QueueFull => f.write_str("; the limit was reached, and the queue of the request is full"),
            RefusalCause::TimedOut(wait) => {
                write!(f, "; the limit was reached, and the request was not admitted within {wait:?}")
            }
        }
    }
}

impl std::error::Error for Refused {}
