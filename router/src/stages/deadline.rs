//! The time that a request may take until its answer begins.

use std::pin::Pin;

use tributary_answers::refusal::{LimitRefusal, Refusal};

use super::staged_request::StagedRequest;
use crate::caller::Caller;
use crate::time_limit::limit_for;

/// The answer, if it begins within the request's time. The future is borrowed: each place that a future is moved to
/// takes its size, and this future is the largest part of a request's. The future still lives when the time is over, so
/// the refusal can name the clusters that have not answered.
///
/// # Errors
/// 400 for a limit that is no duration, 504 after the limit; those of the answer.
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
