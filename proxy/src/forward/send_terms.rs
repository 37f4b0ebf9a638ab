//! Conditions of a request's attempts: connections, endpoints, time limit and permit.

use tokio::time::Duration;
use tributary_apimachinery::permit::RequestPermit;

use crate::endpoints::destination::Destination;
use crate::pool::PoolKey;

/// Conditions of a request's attempts.
pub(crate) struct SendTerms<'a> {
    pub(crate) pool_key: PoolKey,
    pub(crate) destination: &'a Destination,
    /// Time limit of the response head; `None` without a limit.
    pub(crate) limit: Option<Duration>,
    /// Permit of the client's request, kept until the member has finished the request.
    pub(crate) permit: Option<&'a RequestPermit>,
}
