//! The stages of a request, in their order.
//!
//! The server has done the stages before: it has chosen the merged view or a cluster by host name, and it has
//! authenticated the user. `server/src/front.rs` lists those.

use std::pin::pin;
use std::sync::Arc;

use http::{Request, Response};
use tributary_answers::refusal::Refusal;
use tributary_sharing::body::Body;

use crate::Router;
use crate::request_context::{Answer, RequestContext};
use crate::stages::admit::{Admitted, admit_request};
use crate::stages::answer::answer_planned;
use crate::stages::authorize::answer_by_rights;
use crate::stages::configure::refuse_replaced_user;
use crate::stages::deadline::answer_in_time;
use crate::stages::dispatch::{apply_policies, note_denied_clusters};
use crate::stages::encode::{encode_answer, encode_unread, finish_answer};
use crate::stages::limit::wait_for_place;
use crate::stages::observe::Observation;
use crate::stages::parse::ParsedRequest;
use crate::stages::plan::plan_answer;
use crate::stages::staged_request::StagedRequest;

impl Router {
    /// Answers one request. Never fails: an error is a Status. Dropping the future cancels what it started.
    ///
    /// The context has the results of the server's stages.
    pub async fn handle(self: &Arc<Self>, mut message: Request<Body>, context: &RequestContext) -> Answer {
        let (arrival, user) = (&context.arrival, &context.sender.user);
        // Observe. First and last, so that metrics count every request, also with an unreadable path.
        let observation = Observation::begin(&arrival.trace, message.headers());
        // Parse. The server has read the path; all later stages decide by the same reading.
        let parsed = ParsedRequest::new(&arrival.reading, &message);
        // Configure. Once, so that a request does not see two configurations.
        let configuration = self.configuration();
        let (counted, response) = match parsed.received(&mut message) {
            Ok(received) => {
                let (router, configuration, trace) = (self, &configuration, &arrival.trace);
                let mut request =
                    StagedRequest { router, received, configuration, user, trace, schema: None, warning: None };
                observation.note_read(&request);
                let answer = pass_stages(&mut request, message, context).await;
                let answer = refuse_replaced_user(&request, answer);
                let counted = observation.counted(&request, answer.as_ref().err());
                // Encode. One function makes a Status of every refusal.
                (counted, encode_answer(request, answer))
            }
            Err(status) => (observation.counted_unread(), encode_unread(&parsed, status)),
        };
        let answer = finish_answer(self, &parsed, &arrival.trace, response);
        observation.finish(self, &counted, answer.response.status());
        answer
    }
}

/// The stages of a request that was read. Each may refuse the request. A later stage stands inside an earlier one: its
/// part of the answer ends first.
async fn pass_stages(
    request: &mut StagedRequest<'_>,
    message: Request<Body>,
    context: &RequestContext,
) -> Result<Response<Body>, Refusal> {
    let admitting = request.trace.stage("admit");
    // Admit. Before all that costs something; a place among long-running requests is kept until the body ends.
    let Admitted { mut caller, place } = admit_request(request, message.headers(), context)?;
    // Dispatch. Before the schema, which a policy may choose.
    apply_policies(request, message.headers(), &mut caller)?;
    let answer = {
        let (request, caller) = (&*request, &caller);
        let answer = pin!(async {
            // Limit. Before the plan, so that a plan is not out of date after the wait.
            let place = wait_for_place(request, caller).await?;
            drop(admitting);
            // Authorize. Around plan and answer, because both may need the rights. Where the rights are unknown, the
            // answer says so.
            let answer = pin!(async {
                // Plan. A pure function decides by the path, the media types and the objects in memory.
                let planned = plan_answer(request, caller, message.headers()).await?;
                // Answer. The rights decide its contents.
                answer_planned(request, caller, message, planned).await
            });
            let answer = answer_by_rights(request, caller, answer).await;
            place.keep_for_body(answer)
        });
        // Deadline. Around the rest, because the wait for a place counts.
        answer_in_time(request, caller, answer).await
    };
    note_denied_clusters(request, &caller);
    Ok(place.kept_by_body(answer?))
}

#[cfg(test)]
mod tests {
    use tributary_answers::negotiate::Preferences;
    use tributary_apimachinery::RequestInfo;
    use tributary_sharing::body;

    use super::*;
    use crate::caller::Caller;
    use crate::received::Received;
    use crate::{RouterConfig, User, forward};

    /// The size of a request's future in bytes, until the answer begins: 32 MB for 4,000 requests in flight. An idle
    /// watch holds no such future: the listener boxes it, and drops the box when the head of the answer is there.
    const FUTURE_BYTES_MAX: usize = 31 << 8;

    /// The size of a forwarded request's further future in bytes. The future is allocated and copied for each request.
    /// With the whole state of a dial it had 32 KB, two thirds of a core's L1 cache.
    const PASSED_BYTES_MAX: usize = 9 << 10;

    #[tokio::test]
    async fn a_request_in_flight_is_small() {
        let router = Router::new(RouterConfig::default());
        let user = User::named("test", "somebody");
        let message = Request::new(body::empty());
        let context = RequestContext::for_user(&user, &message);
        let bytes = size_of_val(&router.handle(message, &context));
        assert!(bytes <= FUTURE_BYTES_MAX, "{bytes} bytes");
    }

    #[tokio::test]
    async fn a_request_that_is_passed_on_is_small() {
        let router = Router::new(RouterConfig::default());
        let (caller, message) = (Caller::named("somebody", router.rights()), Request::new(body::empty()));
        let info = RequestInfo::parse("GET", "/clusters/a/api/v1/pods", None).unwrap();
        let (name, preferences) = (info.cluster.clone().unwrap(), Preferences::from_headers(message.headers(), None));
        let (configuration, is_head) = (router.configuration(), false);
        let may_switch = false;
        let received = Received { info: &info, query: None, is_head, may_switch, preferences: &preferences };
        let passed = forward::one_cluster::forward(&router, &configuration, &caller, message, received, &name);
        let bytes = size_of_val(&passed);
        assert!(bytes <= PASSED_BYTES_MAX, "{bytes} bytes");
    }
}
