//! Configuration snapshot of a request, taken by [`Router::configuration`](crate::Router).

use http::Response;
use tributary_answers::refusal::Refusal;
use tributary_sharing::body::Body;

use super::staged_request::StagedRequest;
use crate::forward::send::refuse_replaced;

/// Refuses a user whom an earlier cluster of the same name has authenticated: in the cluster that has the name now, an
/// equal user name may mean a different user.
///
/// # Errors
/// The errors of the answer; 503 for such a user.
pub(crate) fn refuse_replaced_user(
    request: &StagedRequest<'_>,
    answer: Result<Response<Body>, Refusal>,
) -> Result<Response<Body>, Refusal> {
    let home = request.user.authority.home().and_then(|home| request.configuration.clusters.get(home));
    match home.filter(|home| home.incarnation().has_ended()) {
        Some(home) => Err(refuse_replaced(home)),
        None => answer,
    }
}
