//! Rights of the user during the answer: refusals and Warnings because of unknown rights. `candidates_by_plan` finds
//! the clusters for forwarded requests, and [`memory`](crate::memory) the objects for reads.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use http::request::Parts;
use http::{Response, header};
use tributary_answers::negotiate::Preferences;
use tributary_answers::refusal::Refusal;
use tributary_fleet::report;
use tributary_rights::CallerRights;
use tributary_sharing::body::Body;

use super::staged_request::StagedRequest;
use crate::caller::Caller;
use crate::request_context::RequestContext;
use crate::{Router, response, unknown_rights};

/// Returns the answer, unless too many reviews of rights wait already: without these reviews, the answer would lack
/// objects that the caller may see. If rights are unknown in some clusters, a user who may see the report gets the
/// clusters and the causes.
///
/// # Errors
/// 429; those of the answer.
pub(crate) async fn answer_by_rights(
    request: &StagedRequest<'_>,
    caller: &Caller,
    mut answer: Pin<&mut impl Future<Output = Result<Response<Body>, Refusal>>>,
) -> Result<Response<Body>, Refusal> {
    let verb = request.received.info.verb;
    let answer = poll_fn(|context| match caller.refusing_limit(verb) {
        Some(exceeded) => Poll::Ready(Err(exceeded.into())),
        None => answer.as_mut().poll(context),
    });
    let answer = answer.await;
    let is_about_unknown_rights = match &answer {
        Err(refusal) => refusal.is_about_unknown_rights(),
        Ok(_) => caller.lacks_rights(),
    };
    match is_about_unknown_rights {
        true => Box::pin(name_unknown_rights(request.router, caller, answer)).await,
        false => answer,
    }
}

/// Adds the names of the clusters with unknown rights to the answer, if the user may see the report.
async fn name_unknown_rights(
    router: &Router,
    caller: &Caller,
    answer: Result<Response<Body>, Refusal>,
) -> Result<Response<Body>, Refusal> {
    let Some(mirror) = router.rights() else { return answer };
    let is_permanent = || caller.rights().is_some_and(CallerRights::stay_unknown);
    let answer = answer.map_err(|refusal| refusal.of_lasting_cause(is_permanent()));
    if caller.may_get_non_resource_url(report::PATH).await.is_err() {
        return answer;
    }
    let unknown_rights_reasons = mirror.unknown_rights_reasons();
    let mut answer = answer.map_err(|refusal| refusal.with_unknown_rights(unknown_rights_reasons.clone()))?;
    answer
        .headers_mut()
        .extend(unknown_rights::warnings(&unknown_rights_reasons).map(|warning| (header::WARNING, warning)));
    Ok(answer)
}

impl Router {
    /// Checks that the user may get metrics or the report, by the right to get their path. Metrics and report describe
    /// all clusters, and are not part of the Kubernetes API. In personal mode the user may see metrics and report.
    ///
    /// # Errors
    /// The answer to send instead: 403 with kube-apiserver's message.
    pub async fn may_get_non_resource_url(
        &self,
        head: &Parts,
        context: &RequestContext,
    ) -> Result<(), Box<Response<Body>>> {
        let (path, query) = (head.uri.path(), head.uri.query());
        let preferences = Preferences::from_headers(&head.headers, query);
        let caller = Caller::from_request(&head.headers, context, self.rights());
        let permission = match caller {
            Ok(caller) => caller.may_get_non_resource_url(path).await,
            Err(refusal) => Err(refusal),
        };
        match permission {
            Ok(()) => Ok(()),
            Err(refusal) => Err(Box::new(response::status(&refusal.status(), preferences.error_form()))),
        }
    }
}
