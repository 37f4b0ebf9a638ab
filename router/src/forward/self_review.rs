//! Reviews of the caller's rights and identity. Every cluster gets the review, and Tributary merges the answers.

mod concerned;
mod identity;
mod join;
mod reviewed_right;
mod rules;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use http::{HeaderValue, Request, Response, StatusCode, header};
use serde_json::Value;
use tributary_answers::negotiate::ResponseKind;
use tributary_answers::refusal::{MemberRefusal, Refusal, RequestRefusal};
use tributary_apimachinery::Verb;
use tributary_apimachinery::rewrite::Rewritten;
use tributary_authorization::Attributes;
use tributary_fleet::topology::Cluster;
use tributary_rights::Candidates;
use tributary_sharing::body::Body;
use tributary_sharing::flow::buffered_body::read_whole_within;
use tributary_sharing::flow::fair_semaphore::{Exceeded, FairPermit};
use tributary_sharing::limits::{PARALLEL_REQUESTS_MAX, REVIEW_ANSWER_BYTES_MAX, REVIEW_BYTES_MAX};

use self::concerned::choose_concerned;
use self::join::{Joining, ReviewResult};
use self::reviewed_right::ReviewedRight;
use super::buffered::BufferedRequest;
use super::send::send;
use crate::request::ClientRequest;
use crate::response;

/// Time limit for a cluster's answer to a review. kube-apiserver answers reviews from memory.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Reserved bytes for an answer, kept as long as the answer.
type ReviewReservation = Result<FairPermit, Exceeded>;

/// Sends the review to every cluster that the caller may know.
///
/// Unreachable clusters get no review. With `partial: Allow` the reachable clusters decide, and the answer names the
/// missing clusters: each missing cluster will check its own requests.
///
/// # Errors
/// 406 if the client accepts only a Table; a cluster's refusal of the request itself. 503 with the missing clusters,
/// with `partial: Deny` or if no cluster answers. 409 if the clusters have different names for the caller.
pub(crate) async fn self_review(request: ClientRequest<'_>, message: Request<Body>) -> Result<Response<Body>, Refusal> {
    let ClientRequest { caller, resource, served, preferences, .. } = request;
    let form = preferences.form(ResponseKind::Review)?;
    if let Some(rights) = caller.rights().filter(|_| &*resource.resource.resource == "selfsubjectreviews") {
        return identity::answer_review(request, rights);
    }
    let buffered = BufferedRequest::read(request, Verb::Create, message, REVIEW_BYTES_MAX).await?;
    let body = buffered.for_all(request.router.large_bodies()).await?.ok_or(RequestRefusal::VersionInReview)?;
    let scope = ReviewScope::read(request, &buffered).await?;
    let candidates = scope.candidates.as_ref().unwrap_or(request.candidates);
    let request = request.about(resource, served, candidates);
    let is_of_own_group =
        &*resource.resource.resource == "selfsubjectaccessreviews" && scope.reviewed_right.is_of_own_group();
    let (review, warnings) = match scope.candidates.is_some() && candidates.is_empty() {
        _ if is_of_own_group => (join::of_own_group(resource, &scope.reviewed_right), Vec::new()),
        true => (join::of_nobody(resource, &scope.reviewed_right, candidates.has_unknown()), Vec::new()),
        false => of_clusters(request, &buffered, &body, &scope).await?,
    };
    let mut response = response::whole(StatusCode::CREATED, form, serde_json::to_vec(&review).unwrap_or_default());
    response.headers_mut().extend(warnings.into_iter().map(|warning| (header::WARNING, warning)));
    Ok(response)
}

/// A review: the right to check, the clusters, and the rule that merges their answers.
struct ReviewScope {
    reviewed_right: ReviewedRight,
    /// Clusters that the review concerns and the caller may know; `None` for all clusters of the request.
    candidates: Option<Candidates>,
    joining: Joining,
}

impl ReviewScope {
    /// Reads a review. By default each cluster that the review concerns has to allow the action; for a read in shared
    /// mode, one cluster is sufficient.
    ///
    /// # Errors
    /// 400 for a malformed body.
    async fn read(request: ClientRequest<'_>, buffered: &BufferedRequest) -> Result<Self, Refusal> {
        let resource = &*request.resource.resource.resource;
        let is_of_rules = resource == "selfsubjectrulesreviews";
        let body_permit =
            request.router.large_bodies().body_permit(buffered.share_key(), buffered.body.readable_bytes()).await;
        let reviewed_right = body_permit.run(|| ReviewedRight::read(&buffered.body, is_of_rules))?;
        let is_of_many = request.caller.rights().is_some();
        let joining =
            if is_of_many && (is_of_rules || reviewed_right.is_read()) { Joining::AnyRead } else { Joining::Each };
        let known = find_known_clusters(request, &reviewed_right).await;
        let candidates = match resource {
            "selfsubjectreviews" => known,
            _ => Some(choose_concerned(request, &reviewed_right, known.as_ref().unwrap_or(request.candidates)).await),
        };
        Ok(Self { reviewed_right, candidates, joining })
    }
}

/// Returns the clusters whose existence the answer may show to a user in shared mode; `None` for all clusters of the
/// request.
async fn find_known_clusters(request: ClientRequest<'_>, reviewed_right: &ReviewedRight) -> Option<Candidates> {
    let (rights, clusters) = (request.caller.rights()?, request.configuration.clusters.keys());
    let itself = Attributes::from_request(request.info);
    match &*request.resource.resource.resource {
        "selfsubjectrulesreviews" => Some(
            rights
                .decide_after_reviews(|rights| rights.with_rules(clusters.clone(), &reviewed_right.namespace, &itself))
                .await,
        ),
        "selfsubjectaccessreviews" => {
            let attributes = reviewed_right.attributes();
            Some(
                rights
                    .decide_after_reviews(|rights| rights.candidates_for_review(clusters.clone(), &attributes, &itself))
                    .await,
            )
        }
        _ => None,
    }
}

/// Returns the merged answer of the clusters.
///
/// # Errors
/// As [`self_review`].
async fn of_clusters(
    request: ClientRequest<'_>,
    buffered: &BufferedRequest,
    body: &Rewritten,
    scope: &ReviewScope,
) -> Result<(Value, Vec<HeaderValue>), Refusal> {
    let ClientRequest { resource, served, .. } = request;
    let (mut results, _rooms): (Vec<ReviewResult>, Vec<ReviewReservation>) = {
        let clusters: Vec<_> = request.serving().filter_map(|name| request.cluster(name)).collect();
        let lookup =
            |cluster| review_in_cluster(cluster, request, buffered.with_body(body.clone(), "application/json"));
        let reviewed_right: Vec<_> = clusters.iter().map(lookup).collect();
        stream::iter(reviewed_right).buffered(PARALLEL_REQUESTS_MAX).unzip().await
    };
    let undiscovered = request.undiscovered();
    let unheard = undiscovered.iter().filter(|cluster| !served.clusters.contains(cluster.name()));
    results.extend(unheard.map(|cluster| (cluster.name().clone(), Err(unavailable(cluster, cluster.failure().cause)))));
    let partial = request.configuration.policy(&resource.resource).partial;
    let mut joined = join::joined(resource, results, partial, scope.joining)?;
    if request.candidates.has_unknown() {
        join::add_unknown_note(&mut joined.review);
    }
    let warnings = joined.warnings().collect();
    Ok((joined.review, warnings))
}

/// Sends the review to one cluster, unless the cluster is unreachable. A terminal UI sends a review before each screen,
/// and must not wait for an unreachable cluster each time.
async fn review_in_cluster(
    cluster: &Arc<Cluster>,
    request: ClientRequest<'_>,
    message: Request<Body>,
) -> (ReviewResult, ReviewReservation) {
    let mut reservation = request.router.held_bytes().acquire(request.caller.share_key, 0);
    let result = match cluster.out_of_reach() {
        Some(failure) => Err(unavailable(cluster, failure.cause)),
        None => {
            let answer = send_review(cluster, request, message, &mut reservation);
            tokio::time::timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(|_| {
                Err(unavailable(
                    cluster,
                    format_args!("the cluster did not answer within {} s", ANSWER_WITHIN.as_secs()),
                ))
            })
        }
    };
    ((cluster.name().clone(), result), reservation)
}

async fn send_review(
    cluster: &Arc<Cluster>,
    request: ClientRequest<'_>,
    message: Request<Body>,
    reservation: &mut ReviewReservation,
) -> Result<Value, Refusal> {
    let reservation = reservation.as_mut().map_err(|exceeded| *exceeded)?;
    let answer = send(cluster, request.caller, message, request.info, request.query).await?;
    let code = answer.status();
    let text = read_whole_within(answer.into_body(), REVIEW_ANSWER_BYTES_MAX, reservation).await;
    let text = text.map_err(|error| match error.downcast_ref::<Exceeded>() {
        Some(exceeded) => (*exceeded).into(),
        None => unavailable(cluster, format_args!("the answer cannot be read: {error}")),
    })?;
    if !code.is_success() {
        return Err(Refusal::from_member_answer(code, &text));
    }
    serde_json::from_slice(&text).map_err(|error| unavailable(cluster, error))
}

fn unavailable(cluster: &Cluster, cause: impl Display) -> Refusal {
    MemberRefusal::unavailable(cluster.name(), cause).into()
}
