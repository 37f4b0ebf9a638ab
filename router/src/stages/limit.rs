//! Permit of a request in its flow-control schema. [`flow_control`](crate::flow_control) has the schemas.

use http::Response;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::Permit;
use tributary_sharing::body::{self, Body};

use super::staged_request::StagedRequest;
use crate::caller::Caller;

/// Permit of a request in its schema; empty without a schema.
pub(crate) struct SchemaPermit(Option<Permit>);

/// Waits for a permit of the schema. Cancellation is safe: the request leaves the queue.
///
/// # Errors
/// 429.
pub(crate) async fn acquire_schema_permit(
    request: &StagedRequest<'_>,
    caller: &Caller,
) -> Result<SchemaPermit, Refusal> {
    let StagedRequest { received, user, configuration, .. } = *request;
    Ok(SchemaPermit(match request.schema {
        Some(schema) => Some(schema.admit(received, user, caller, &configuration.merged_discovery).await?),
        None => None,
    }))
}

impl SchemaPermit {
    /// Attaches the permit to the answer's body.
    pub(crate) fn attach_to_answer(self, answer: Result<Response<Body>, Refusal>) -> Result<Response<Body>, Refusal> {
        match self.0 {
            Some(permit) => answer.map(|answer| answer.map(|body| body::attach_permit(body, permit))),
            None => answer,
        }
    }
}
