//! Requests that concern every cluster: deleting a collection, and questions about the caller's own rights.

use std::sync::Arc;

use futures::future::join_all;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tributary_apimachinery::{RequestInfo, ResourceRequest, Status, Verb, rewrite};
use tributary_merge::CompositeResourceVersion;

use super::body::Held;
use super::forward::forward;
use crate::Router;
use crate::body::{self, Body};
use crate::discovery::ServedResource;
use crate::response;
use crate::topology::Cluster;

/// Deletes a collection in every cluster that serves it.
///
/// # Errors
/// The first cluster's refusal, with a message that names the clusters where the deletion failed and where it was done.
pub async fn delete_collection(
    router: &Router,
    request: Request<Body>,
    info: &RequestInfo,
    resource: &ResourceRequest,
    query: Option<&str>,
    served: &ServedResource,
) -> Result<Response<Body>, Status> {
    let held = Held::read(request, Verb::DeleteCollection, resource).await?;
    let clusters: Vec<_> = served.clusters.iter().filter_map(|name| router.fleet().cluster(name)).collect();
    let undiscovered: Vec<_> = router
        .fleet()
        .clusters()
        .values()
        .filter(|cluster| cluster.discovery().is_none())
        .map(|cluster| cluster.name().clone())
        .collect();
    if !undiscovered.is_empty() {
        return Err(Status::owner_unknown(&resource.resource, "", &undiscovered));
    }
    let answers = join_all(clusters.iter().map(|cluster| delete_in(router, cluster, &held, info, query))).await;
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for (cluster, answer) in clusters.iter().zip(answers) {
        match answer {
            Ok(()) => done.push(cluster.name().to_string()),
            Err(status) => failed.push((cluster.name().to_string(), status)),
        }
    }
    match failed.first() {
        None => Ok(response::json(
            StatusCode::OK,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#,
        )),
        Some((_, first)) => {
            let mut status = first.clone();
            let causes: Vec<_> =
                failed.iter().map(|(cluster, status)| format!("{cluster}: {}", status.message)).collect();
            status.message = format!("deleted in [{}], not in: {}", done.join(", "), causes.join("; "));
            Err(status)
        }
    }
}

async fn delete_in(
    router: &Router,
    cluster: &Arc<Cluster>,
    held: &Held,
    info: &RequestInfo,
    query: Option<&str>,
) -> Result<(), Status> {
    let mut version = |text: &str| {
        let version = CompositeResourceVersion::decode(text, &router.epochs())
            .map_err(|error| Status::bad_request(format!("resourceVersion: {error}")))?;
        let own = version.get(cluster.name());
        own.map(|own| own.to_string()).ok_or_else(|| {
            Status::bad_request(format!("resourceVersion has no component of cluster {}", cluster.name()))
        })
    };
    let request = held.for_member(true, "application/json", &mut version)?;
    let query = query.map(|query| rewrite::rewrite_query(query, &mut version)).transpose()?;
    let answer = forward(cluster, request, &info.path, query.as_deref()).await?;
    let code = answer.status();
    if code.is_success() {
        return Ok(());
    }
    let text = body::whole(answer.into_body()).await.unwrap_or_default();
    Err(Status::from_response(code.as_u16(), &text))
}

/// Asks every cluster whether the caller may do something: allowed where all allow it; the reason names those that do not.
///
/// # Errors
/// 503 where a cluster does not answer: a guess at rights would be worse than none.
pub async fn access_review(
    router: &Router,
    request: Request<Body>,
    info: &RequestInfo,
    query: Option<&str>,
    served: &ServedResource,
) -> Result<Response<Body>, Status> {
    let Some(resource) = info.resource() else { return Err(Status::path_not_found()) };
    let held = Held::read(request, Verb::Create, resource).await?;
    let clusters: Vec<_> = served.clusters.iter().filter_map(|name| router.fleet().cluster(name)).collect();
    let asked = clusters.iter().map(|cluster| async {
        let request = held.for_member(true, "application/json", &mut |text| Ok(text.to_owned()))?;
        let answer = forward(cluster, request, &info.path, query).await?;
        let code = answer.status();
        let text = body::whole(answer.into_body())
            .await
            .map_err(|error| Status::cluster_unavailable(cluster.name(), error))?;
        if !code.is_success() {
            return Err(Status::from_response(code.as_u16(), &text));
        }
        serde_json::from_slice::<Value>(&text).map_err(|error| Status::cluster_unavailable(cluster.name(), error))
    });
    let answers: Vec<Value> = join_all(asked).await.into_iter().collect::<Result<_, Status>>()?;
    let review = join_reviews(clusters.iter().map(|cluster| cluster.name().as_str()).zip(answers));
    let review = review.ok_or_else(|| Status::service_unavailable("no cluster can be asked"))?;
    Ok(response::json(StatusCode::CREATED, serde_json::to_vec(&review).unwrap_or_default()))
}

/// One review of all: the first answer, allowed only where every one is.
fn join_reviews<'a>(answers: impl Iterator<Item = (&'a str, Value)>) -> Option<Value> {
    let mut joined: Option<Value> = None;
    let mut refusals = Vec::new();
    for (cluster, answer) in answers {
        if answer["status"]["allowed"] != Value::Bool(true) {
            let reason = answer["status"]["reason"].as_str().filter(|reason| !reason.is_empty());
            refusals.push(match reason {
                Some(reason) => format!("{cluster}: {reason}"),
                None => cluster.to_owned(),
            });
        }
        joined.get_or_insert(answer);
    }
    let mut joined = joined?;
    if !refusals.is_empty() {
        joined["status"]["allowed"] = json!(false);
        joined["status"]["reason"] = json!(format!("not allowed in {}", refusals.join("; ")));
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_one_that_every_cluster_gives() {
        let yes = json!({"kind": "SelfSubjectAccessReview", "status": {"allowed": true, "reason": "RBAC"}});
        let no = json!({"status": {"allowed": false}});
        let both = join_reviews([("a", yes.clone()), ("b", yes.clone())].into_iter()).unwrap();
        assert_eq!(both["status"]["allowed"], true);
        let one = join_reviews([("a", yes), ("b", no)].into_iter()).unwrap();
        assert_eq!(
            (one["status"]["allowed"].as_bool(), one["status"]["reason"].as_str()),
            (Some(false), Some("not allowed in b"))
        );
        assert!(join_reviews(std::iter::empty()).is_none());
    }
}
