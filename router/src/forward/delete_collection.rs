//! Deletion of a collection in every cluster.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use http::{Request, Response, StatusCode};
use serde::Deserialize;
use tokio::time::Instant;
use tributary_answers::answer;
use tributary_answers::helm_record::is_record;
use tributary_answers::refusal::{
    ClusterFailure, ClusterRefusal, ForbiddenRequest, MemberRefusal, PreconditionRefusal, Refusal,
};
use tributary_apimachinery::json::null_is_default;
use tributary_apimachinery::rewrite::{self, Rewritten};
use tributary_apimachinery::{ClusterName, ClusterSelector, ListOptions, ObjectKey, ResourceVersion, Verb};
use tributary_authorization::Attributes;
use tributary_fleet::topology::Cluster;
use tributary_merge::OpaqueVersion;
use tributary_sharing::body::Body;
use tributary_sharing::limits::{self, DELETE_OPTIONS_BYTES_MAX};
use tributary_views::view::{Deletion, cache_state};

use super::buffered::BufferedRequest;
use super::rewritten::translating;
use super::send::send;
use super::whole::{Reserve, inspect_whole};
use crate::asked::attributes;
use crate::request::ClientRequest;
use crate::selected_names;
use crate::time_limit;
use crate::versions::ClientVersion;

/// Deletes a collection in each selected cluster that serves the resource, after a renewal of the clusters' discovery.
///
/// # Errors
/// Before the first deletion: 403 if the caller may list but not delete the collection in a selected cluster; 429 if
/// the request's schema has no free permit for a cluster; 503 if a selected cluster or its aggregated server is
/// unreachable, or has not answered discovery. After the first deletion: the refusal of the first cluster, with a
/// message that names the clusters of failed and of successful deletions.
pub(crate) async fn delete_collection(
    request: ClientRequest<'_>,
    message: Request<Body>,
) -> Result<Response<Body>, Refusal> {
    let renewed = request.renewed().await;
    let request = renewed.as_ref().map_or(request, |renewed| renewed.renew_request(request));
    let ClientRequest { router, info, resource, query, .. } = request;
    let until = Instant::now() + time_limit::time_for(info, query, router.request_timeout());
    let options = ListOptions::parse(query, limits::SELECTOR).map_err(Refusal::malformed)?;
    let (_, wanted) = ClusterSelector::split(&options.label_selector).map_err(Refusal::malformed)?;
    let policy = request.configuration.policy(&resource.resource);
    if request.candidates.is_one_unknown_of(&wanted, |cluster| policy.selects(cluster)) {
        let resource = resource.resource.clone();
        return Err(ClusterRefusal::rights_unknown(resource, String::new()).into());
    }
    let buffered = BufferedRequest::read(request, Verb::DeleteCollection, message, DELETE_OPTIONS_BYTES_MAX).await?;
    let shared = buffered.for_all(router.large_bodies()).await?;
    let (clusters, unknown) = (wanted_clusters(request, &wanted), unknown_troubles(request, &wanted));
    let is_nowhere = clusters.is_empty() && unknown.is_empty();
    check_rights(request, &clusters, is_nowhere).await?;
    check_reach(request, &clusters, unknown)?;
    // This memory is reserved before the first deletion. Without memory, Tributary could not read the members' answers,
    // and later reads would not wait for the deletions.
    let reserve = Reserve::for_request(router, request.caller, until)?;
    let deletions: Vec<BoxFuture<'_, _>> = clusters
        .iter()
        .map(|cluster| {
            async { (cluster.name(), delete_in_cluster(request, cluster, &buffered, shared.as_ref(), &reserve).await) }
                .boxed()
        })
        .collect();
    let mut answers: Vec<_> = stream::iter(deletions).buffer_unordered(DELETED_AT_ONCE).collect().await;
    answers.sort_by_key(|(cluster, _)| *cluster);
    combine_answers(answers)?;
    let success = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;
    let mut response = answer::json(StatusCode::OK, success);
    selected_names::warn(response.headers_mut(), &request, &wanted, |cluster| request.candidates.has(cluster));
    let left_out = request.left_out();
    cache_state::warn_left_out(response.headers_mut(), request.caller.door, &resource.resource, &left_out);
    Ok(response)
}

/// Returns the clusters of the deletion: clusters whose objects a list of the collection shows.
fn wanted_clusters(request: ClientRequest<'_>, wanted: &ClusterSelector) -> Vec<Arc<Cluster>> {
    let selected = request.serving().filter(|name| selects(request, wanted, name));
    selected.filter_map(|name| request.cluster(name)).collect()
}

fn selects(request: ClientRequest<'_>, wanted: &ClusterSelector, name: &ClusterName) -> bool {
    request.configuration.policy(&request.resource.resource).selects(name) && wanted.matches(name)
}

/// Returns the failures of the selected clusters that may serve the resource, although Tributary has no discovery of
/// the cluster that describes it.
fn unknown_troubles(request: ClientRequest<'_>, wanted: &ClusterSelector) -> Vec<ClusterFailure> {
    let may_serve = request.may_serve().into_iter().map(|cluster| cluster.failure());
    let failures = may_serve.chain(request.undescribed());
    failures.filter(|failure| selects(request, wanted, &failure.cluster)).collect()
}

/// Checks that the caller may delete the collection wherever the caller may list it. `is_nowhere`: no candidate serves
/// or may serve the resource.
///
/// # Errors
/// 403 with the clusters that forbid the deletion, without names if `is_nowhere`; 503 if the rights in a cluster are
/// unknown.
async fn check_rights(request: ClientRequest<'_>, clusters: &[Arc<Cluster>], is_nowhere: bool) -> Result<(), Refusal> {
    let ClientRequest { caller, resource, .. } = request;
    let Some(rights) = caller.rights() else { return Ok(()) };
    let requested = attributes(resource, Verb::DeleteCollection.as_str());
    let names = || clusters.iter().map(|cluster| cluster.name());
    let allowing =
        rights.decide_after_reviews(|rights| rights.candidates(names(), &[Attributes::Resource(requested)])).await;
    if allowing.is_one_unknown_among(|cluster| clusters.iter().any(|own| own.name() == cluster)) {
        return Err(ClusterRefusal::rights_unknown(resource.resource.clone(), String::new()).into());
    }
    let refusing: Vec<_> = names().filter(|cluster| !allowing.has(cluster)).cloned().collect();
    // With `is_nowhere`, a list of the collection shows the caller no objects either, so the refusal reveals no
    // cluster.
    if refusing.is_empty() && !is_nowhere {
        return Ok(());
    }
    let refused = ForbiddenRequest {
        user: String::new(),
        verb: requested.verb.to_owned().into(),
        resource: resource.resource.clone(),
        subresource: String::new(),
        namespace: requested.namespace.to_owned(),
        name: String::new(),
        clusters: refusing,
        reason: String::new(),
    };
    Err(rights.forbids(names(), refused))
}

/// Checks that all clusters are reachable, so that the whole collection is deleted. `unknown` has the failures of
/// clusters that may serve the resource.
///
/// # Errors
/// 503 with the unreachable clusters, and the clusters in `unknown`.
fn check_reach(
    request: ClientRequest<'_>,
    clusters: &[Arc<Cluster>],
    unknown: Vec<ClusterFailure>,
) -> Result<(), Refusal> {
    let failures: Vec<_> = clusters.iter().filter_map(|cluster| cluster.out_of_reach()).chain(unknown).collect();
    if failures.is_empty() {
        return Ok(());
    }
    let mut named = failures.iter().filter_map(|failure| request.router.fleet().cluster(&failure.cluster));
    let is_lasting = named.any(|cluster| !cluster.may_answer_soon(&request.resource.resource));
    Err(MemberRefusal::NothingDeleted { failures, is_lasting }.into())
}

/// Combines the answers of the members.
///
/// # Errors
/// The first refusal, with the clusters of failed and of successful deletions.
fn combine_answers(answers: Vec<(&ClusterName, Result<(), Refusal>)>) -> Result<(), Refusal> {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for (cluster, answer) in answers {
        match answer {
            Ok(()) => done.push(cluster.clone()),
            Err(refusal) => failed.push((cluster.clone(), refusal)),
        }
    }
    let mut failed = failed.into_iter();
    match failed.next() {
        None => Ok(()),
        Some(first) => Err(MemberRefusal::PartlyDeleted { done, first, others: failed.collect() }.into()),
    }
}

/// Maximum of parallel deletions. A cluster answers with all deleted objects, up to 8 MiB, which stay in memory until
/// Tributary has read them. At the limit of body bytes, Tributary reads one answer after the other into the reserved
/// memory.
const DELETED_AT_ONCE: usize = 16;

/// Deletes the collection in one cluster. `shared` is a body that is equal for all members, if there is one. `reserve`
/// is memory for an answer that exceeds the limit of body bytes.
async fn delete_in_cluster(
    request: ClientRequest<'_>,
    cluster: &Arc<Cluster>,
    buffered: &BufferedRequest,
    shared: Option<&Rewritten>,
    reserve: &Reserve,
) -> Result<(), Refusal> {
    let ClientRequest { router, info, query, resource, .. } = request;
    let versions = request.versions();
    let mut version = |_, text: &str| {
        if text == "0" {
            return Ok(text.to_owned());
        }
        let decoded = versions.decode(text).map_err(PreconditionRefusal::Invalid)?;
        match (decoded.component(cluster.name()), decoded) {
            (Some(own), _) => Ok(own.revision().to_string()),
            // The versions in the last two arms belong to no object of this cluster, so each deletion would fail.
            (None, ClientVersion::Opaque(decoded)) if decoded.cluster == *cluster.name() => Ok(decoded.version),
            (None, ClientVersion::Item(owner, _) | ClientVersion::Opaque(OpaqueVersion { cluster: owner, .. })) => {
                let (resource, text) = (resource.resource.clone(), text.to_owned());
                Err(PreconditionRefusal::OfOtherObject { resource, text, owner }.into())
            }
            (None, ClientVersion::Vector(_)) => {
                Err(PreconditionRefusal::LacksCluster { cluster: cluster.name().clone() }.into())
            }
        }
    };
    let message = match shared {
        Some(shared) => buffered.with_body(shared.clone(), "application/json"),
        None => {
            let body_permit =
                router.large_bodies().body_permit(buffered.share_key(), buffered.body.readable_bytes()).await;
            body_permit.run(|| buffered.for_member(true, "application/json", &mut version))?
        }
    };
    let rewritten = |query| {
        translating(&mut version, |version| rewrite::rewrite_query(&rewrite::without_clusters(query)?, version))
    };
    let query = query.map(rewritten).transpose()?;
    let reservation = router.held_bytes().acquire(request.caller.share_key, 0)?;
    let answer = send(cluster, request.caller, message, info, query.as_deref()).await?;
    let code = answer.status();
    let look = |text: &[u8]| {
        if !code.is_success() {
            return Err(Refusal::from_member_answer(code, text));
        }
        if !buffered.is_dry_run() {
            record_deletions(request, cluster, text);
        }
        Ok(())
    };
    // The member has deleted the objects even if Tributary cannot read the answer (late, too large, no free bytes).
    // Later reads then do not wait for the deletion.
    inspect_whole(answer.into_body(), reservation, reserve, router.large_bodies(), look)
        .await
        .unwrap_or_else(|_| look(&[]))
}

/// Makes later reads wait for the deletions, and removes the Helm releases of deleted records from the cache. A member
/// answers with the objects before their deletion. For an answer above 8 MiB, later reads do not wait.
fn record_deletions(request: ClientRequest<'_>, cluster: &Cluster, answer: &[u8]) {
    let ClientRequest { router, resource, .. } = request;
    let deletions: Vec<Deletion> = deletions(answer);
    if deletions.is_empty() {
        return;
    }
    let resource_name = &resource.resource;
    for (namespace, name) in deletions.iter().filter_map(|deletion| deletion.key.split_once('/')) {
        if is_record(resource_name, name.as_bytes()) {
            router.releases().forget(namespace);
        }
    }
    let namespaced = resource.namespace.as_deref().map(|namespace| router.views().get(resource_name, Some(namespace)));
    for view in [router.views().get(resource_name, None), namespaced.flatten()].into_iter().flatten() {
        view.read_your_writes.record_deletions(request.caller.writer(), cluster.name(), deletions.iter().cloned());
    }
}

#[derive(Deserialize)]
struct Deleted {
    #[serde(default, deserialize_with = "null_is_default")]
    items: Vec<CollectionItem>,
}

#[derive(Deserialize)]
struct CollectionItem {
    metadata: CollectionItemMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CollectionItemMetadata {
    #[serde(default, deserialize_with = "null_is_default")]
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
}

/// Reads the deletions from a member's answer, without objects whose deletion had begun earlier: this request may not
/// have changed such objects. A Status names no object.
fn deletions(answer: &[u8]) -> Vec<Deletion> {
    let items = serde_json::from_slice::<Deleted>(answer).map(|answer| answer.items).unwrap_or_default();
    let untouched = items.into_iter().map(|item| item.metadata).filter(|item| item.deletion_timestamp.is_none());
    let deletion = |item: CollectionItemMetadata| {
        let before = ResourceVersion::parse(&item.resource_version).ok()?;
        let key = ObjectKey::new(&item.namespace, &item.name).as_str().to_owned();
        Some(Deletion { key, uid: item.uid, before: Some(before) })
    };
    untouched.filter_map(deletion).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_do_not_wait_for_deletions_that_began_earlier() {
        let answer = br#"{"kind":"PodList","items":[
            {"metadata":{"namespace":"n","name":"a","uid":"1","resourceVersion":"7"}},
            {"metadata":{"namespace":"n","name":"b","uid":"2","resourceVersion":"8","deletionTimestamp":"2026-01-01T00:00:00Z"}},
            {"metadata":{"name":"c","uid":"3","resourceVersion":"9"}}]}"#;
        let found = deletions(answer);
        let found: Vec<_> = found.iter().map(|deletion| (&*deletion.key, &*deletion.uid, deletion.before)).collect();
        assert_eq!(found, [("n/a", "1", Some(ResourceVersion(7))), ("c", "3", Some(ResourceVersion(9)))]);
        for nothing in [r#"{"kind":"Status","status":"Success"}"#, r#"{"items":[{}]}"#, "[", ""] {
            assert!(deletions(nothing.as_bytes()).is_empty(), "{nothing}");
        }
    }
}
