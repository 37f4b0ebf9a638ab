//! Time limit until a request's answer begins.

use std::pin::Pin;

use tributary_answers::refusal::{LimitRefusal, Refusal};

use super::staged_request::StagedRequest;
use crate::caller::Caller;
use crate::time_limit::limit_for;

/// Returns the answer, if the answer begins within the request's time limit. The future is borrowed, because each move
/// copies it, and it is the largest part of a request's future. It must also live longer than the time limit, so that
/// the refusal can name the clusters that have not answered.
///
/// # Errors
/// 400 for a limit that is not a duration, 504 after the limit; the errors of the answer.
pub(crate) async fn answer_in_time<T>(
    request: &StagedRequest<'_>,
    caller: &Caller,
    answer: Pin<&mut impl Future<Output = Result<T, Refusal>>>,
) -> Result<T, Refusal> {
    let received = request.received;
    let limit = limit_for(received.info, received.query, request.router.request_timeout())?;
    let Some(limit) = limit else { return answer.await };
    match tokio::time::timeout(limit.time, answer).await {
        Ok(answer) => answer,
        Err(_) => {
            let clusters = caller.awaited.clusters();
            Err(LimitRefusal::Time { limit: limit.time, is_own: limit.is_own, clusters }.into())
        }
    }
}
