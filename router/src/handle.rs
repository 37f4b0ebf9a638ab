//! Stages of a request in the router, in their order.
//!
//! The server has already chosen the merged view or a cluster by host name, and has authenticated the user.
//! `server/src/front.rs` lists the server's stages.

use std::pin::pin;
use std::sync::Arc;

use http::{Request, Response};
use tributary_answers::refusal::Refusal;
use tributary_sharing::body::Body;

use crate::Router;
use crate::request_context::{Answer, RequestContext};
use crate::stages::admit::{Admitted, admit};
use crate::stages::answer::answer_planned;
use crate::stages::authorize::answer_by_rights;
use crate::stages::configure::refuse_replaced_user;
use crate::stages::deadline::answer_in_time;
use crate::stages::dispatch::{apply_policies, record_denied_clusters};
use crate::stages::encode::{encode_answer, encode_unread, finish_answer};
use crate::stages::limit::acquire_schema_permit;
use crate::stages::observe::Observation;
use crate::stages::parse::ParsedRequest;
use crate::stages::plan::plan_answer;
use crate::stages::staged_request::StagedRequest;

impl Router {
    /// Answers one request. Errors become Statuses. Dropping the future cancels the work that the request started.
    ///
    /// The context has the results of the server's stages.
    pub async fn handle(self: &Arc<Self>, mut message: Request<Body>, context: &RequestContext) -> Answer {
        let (arrival, user) = (&context.arrival, &context.sender.user);
        // Observe. This stage is the first and the last, so that metrics count every request, also requests with an
        // unreadable path.
        let observation = Observation::begin(&arrival.trace, message.headers());
        // Parse. The server has parsed the path, and all later stages use the parsed request.
        let parsed = ParsedRequest::new(arrival, &message);
        // Configure. One snapshot serves all later stages, so that a request does not see two configurations.
        let configuration = self.configuration();
        let (labels, response) = match parsed.received(&mut message) {
            Ok(received) => {
                let (router, configuration, trace) = (self, &configuration, &arrival.trace);
                let mut request =
                    StagedRequest { router, received, configuration, user, trace, schema: None, warning: None };
                observation.record_read(&request);
                let answer = pass_stages(&mut request, message, context).await;
                let answer = refuse_replaced_user(&request, answer);
                let labels = observation.metric_labels(&request, answer.as_ref().err());
                // Encode. Every refusal becomes a Status in one function.
                (labels, encode_answer(request, answer))
            }
            Err(status) => (observation.counted_unread(), encode_unread(&parsed, status)),
        };
        let answer = finish_answer(self, &parsed, &arrival.trace, response);
        observation.finish(self, &labels, answer.response.status());
        answer
    }
}

/// Runs the stages of a valid request. Each stage may refuse the request. A later stage runs inside the earlier stages,
/// and ends before them.
async fn pass_stages(
    request: &mut StagedRequest<'_>,
    message: Request<Body>,
    context: &RequestContext,
) -> Result<Response<Body>, Refusal> {
    let admitting = request.trace.stage("admit");
    // Admit. This stage precedes all costly stages. A long-running request keeps its permit until the body ends.
    let Admitted { mut caller, permit } =
        admit(request.router, request.received, message.headers(), context, &request.configuration.foreign)?;
    // Dispatch. This stage precedes the choice of the schema, because a policy may choose the schema.
    apply_policies(request, message.headers(), &mut caller)?;
    let answer = {
        let (request, caller) = (&*request, &caller);
        let answer = pin!(async {
            // Limit. This stage precedes the plan, because the wait for a permit could make a plan outdated.
            let StagedRequest { schema, received, user, configuration, .. } = *request;
            let merged_discovery = &configuration.merged_discovery;
            let permit = acquire_schema_permit(schema, received, user, caller, merged_discovery).await?;
            drop(admitting);
            // Authorize. This stage surrounds the stages Plan and Answer, because both may need the rights. Its answer
            // reports unknown rights.
            let answer = pin!(async {
                // Plan. A pure function decides by the path, the media types and the objects in memory.
                let planned = plan_answer(request, caller, message.headers()).await?;
                // Answer. The rights decide the contents of the answer.
                answer_planned(request, caller, message, planned).await
            });
            let answer = answer_by_rights(request, caller, answer).await;
            permit.attach_to_answer(answer)
        });
        // Deadline. This stage surrounds the stages from Limit to Answer, because the time limit includes the wait for
        // a permit.
        answer_in_time(request, caller, answer).await
    };
    record_denied_clusters(request, &caller);
    Ok(permit.attach_to_body(answer?))
}

#[cfg(test)]
mod tests {
    use tributary_answers::negotiate::Preferences;
    use tributary_apimachinery::{Door, RequestInfo};
    use tributary_sharing::body;

    use super::*;
    use crate::caller::Caller;
    use crate::received::ReceivedRequest;
    use crate::{RouterConfig, User, forward};

    /// Maximal size of a request's future in bytes, until the answer begins: 32 MB for 4,000 requests in flight. An
    /// idle watch has no such future: the listener boxes the future, and drops the box at the head of the answer.
    const FUTURE_BYTES_MAX: usize = 31 << 8;

    /// Maximal size of the additional future of a forwarded request, in bytes. The future is allocated and copied for
    /// each request. When the future contained the whole state of a new connection, its size was 32 KB, two thirds of a
    /// core's L1 cache.
    const PASSED_BYTES_MAX: usize = 9 << 10;

    #[tokio::test]
    async fn future_of_a_request_in_flight_is_small() {
        let router = Router::new(RouterConfig::default());
        let user = User::named("test", "somebody");
        let message = Request::new(body::empty());
        let context = RequestContext::for_user(&user, &message);
        let bytes = size_of_val(&router.handle(message, &context));
        assert!(bytes <= FUTURE_BYTES_MAX, "{bytes} bytes");
    }

    #[tokio::test]
    async fn future_of_a_forwarded_request_is_small() {
        let router = Router::new(RouterConfig::default());
        let (caller, message) = (Caller::named("somebody", router.rights()), Request::new(body::empty()));
        let info = RequestInfo::parse("GET", "/clusters/a/api/v1/pods", None).unwrap();
        let (name, preferences) = (info.cluster.clone().unwrap(), Preferences::from_headers(message.headers(), None));
        let (configuration, is_head) = (router.configuration(), false);
        let may_switch = false;
        let door = Door::Direct;
        let received = ReceivedRequest {
            info: &info,
            query: None,
            is_head,
            may_switch,
            door,
            is_entry_path: false,
            preferences: &preferences,
        };
        let passed = forward::one_cluster::forward(&router, &configuration, &caller, message, received, &name);
        let bytes = size_of_val(&passed);
        assert!(bytes <= PASSED_BYTES_MAX, "{bytes} bytes");
    }
}
