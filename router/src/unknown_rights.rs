//! Warnings of answers that exclude clusters because the caller's right to list is unknown.

use http::{HeaderValue, Response, header};
use tributary_answers::refusal::ClusterFailure;
use tributary_answers::warnings::warning_header;

use tributary_views::view::cache_state::WARNINGS_MAX;

use crate::caller::Caller;

/// Text of the Warning for users who may not know all clusters, so it names no cluster.
const RIGHTS_UNKNOWN: &str = "your rights in some clusters are not known, and the objects of these clusters are \
                              missing";

/// Adds the Warning to an answer. Also records in the caller that the answer lacks clusters: if the caller may know all
/// clusters, a later stage adds their names.
pub(crate) fn warn<T>(answer: &mut Response<T>, caller: &Caller) {
    answer.headers_mut().extend(warning_header(RIGHTS_UNKNOWN).map(|warning| (header::WARNING, warning)));
    caller.record_unknown_rights();
}

/// Returns a Warning for each of these clusters, for callers who may know all clusters.
pub(crate) fn warnings(obstacles: &[ClusterFailure]) -> impl Iterator<Item = HeaderValue> {
    let warnings = obstacles.iter().take(WARNINGS_MAX).map(|ClusterFailure { cluster, cause, .. }| {
        warning_header(&format!("cluster {cluster}: your rights to list are not known: {cause}"))
    });
    warnings.flatten()
}
