//! What answers say that lack clusters of which it is not known what their caller may list there.

use http::{HeaderValue, Response, header};
use tributary_answers::refusal::Trouble;
use tributary_answers::warnings::warning_header;

use tributary_views::view::standing::WARNINGS_MAX;

/// The Warning of such an answer. It names none.
const RIGHTS_UNKNOWN: &str = "what you may list in some clusters is not known, and is missing";

/// An extension of such an answer: whoever may know of all clusters may be told which they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RightsUnknown;

/// Says so of an answer.
pub(crate) fn warn<T>(answer: &mut Response<T>) {
    answer.headers_mut().extend(warning_header(RIGHTS_UNKNOWN).map(|warning| (header::WARNING, warning)));
    answer.extensions_mut().insert(RightsUnknown);
}

/// A Warning for each of these clusters, for whoever may know of all.
pub(crate) fn warnings(obstacles: &[Trouble]) -> impl Iterator<Item = HeaderValue> {
    let told = obstacles.iter().take(WARNINGS_MAX).map(|Trouble { cluster, cause, .. }| {
        warning_header(&format!("cluster {cluster}: what you may list is not known: {cause}"))
    });
    told.flatten()
}
