//! The place of a request in its flow-control schema. [`flow_control`](crate::flow_control) has the schemas.

use http::Response;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::Permit;
use tributary_sharing::body::{self, Body};

use super::staged_request::StagedRequest;
use crate::caller::Caller;

/// The place of a request in its schema; empty without a schema.
pub(crate) struct SchemaPlace(Option<Permit>);

/// Waits for a place, as the schema provides. Cancel: a request that gives up leaves nothing behind.
///
/// # Errors
/// 429.
pub(crate) async fn wait_for_place(request: &StagedRequest<'_>, caller: &Caller) -> Result<SchemaPlace, Refusal> {
    let StagedRequest { received, user, configuration, .. } = *request;
    Ok(SchemaPlace(match request.schema {
        Some(schema) => Some(schema.admit(received, user, caller, &configuration.union).await?),
        None => None,
    }))
}

impl SchemaPlace {
    /// Has the answer's body keep the place until its end.
    pub(crate) fn keep_for_body(self, answer: Result<Response<Body>, Refusal>) -> Result<Response<Body>, Refusal> {
        match self.0 {
            Some(permit) => answer.map(|answer| answer.map(|body| body::holding(body, permit))),
            None => answer,
        }
    }
}
