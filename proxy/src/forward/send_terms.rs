//! The terms on which a request is sent.

use tokio::time::Duration;
use tributary_apimachinery::permit::RequestPermit;

use crate::endpoints::destination::Destination;
use crate::pool::Claim;

/// The terms on which a request is sent, at each try.
pub(crate) struct SendTerms<'a> {
    pub(crate) claim: Claim,
    /// The endpoints that the request may be sent to.
    pub(crate) destination: &'a Destination,
    /// The time until the head of the answer; `None` without a limit.
    pub(crate) limit: Option<Duration>,
    /// Kept until the member has done with the request.
    pub(crate) permit: Option<&'a RequestPermit>,
}
