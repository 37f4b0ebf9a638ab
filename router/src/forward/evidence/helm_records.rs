//! Which clusters have records of a Helm release: as memory knows, or as they are asked.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::{HeaderValue, Request, StatusCode, header};
use tokio::time::timeout;
use tributary_apimachinery::{ClusterName, Consistency, ResourceRequest, Scope};

use super::findings::Findings;
use super::release::{Release, ReleaseKey};
use super::send;
use crate::body;
use crate::caller::Caller;
use crate::discovery::ServedResource;
use crate::grounds::Evidence;
use crate::refusal::{Refusal, Trouble};
use crate::request::ClientRequest;
use crate::topology::Cluster;

/// Which clusters have records of a release.
///
/// # Errors
/// As reads of the records in memory.
pub(super) async fn findings(request: ClientRequest<'_>, release: &Release) -> Result<Findings, Refusal> {
    let union = request.router.fleet().union();
    let Findings { evidence: mut all, mut told } = Findings::default();
    for resource in release.resources() {
        let Some(served) = union.get(&resource) else { continue };
        let wanted = ResourceRequest {
            resource: resource.clone(),
            namespace: release.namespace.clone(),
            name: None,
            subresource: None,
            rest: None,
            selected_name: None,
        };
        let of_records = ClientRequest { resource: &wanted, served, ..request };
        let found = of_resource(of_records, release).await?;
        all.has.extend(found.evidence.has);
        all.may.extend(found.evidence.may);
        told.extend(found.told);
    }
    all.may.extend(request.router.fleet().undiscovered().iter().map(|cluster| cluster.name().clone()));
    for clusters in [&mut all.has, &mut all.may] {
        clusters.sort();
        clusters.dedup();
    }
    Ok(Findings { evidence: all, told })
}

/// Which clusters have records of one resource: as memory knows where it is held anyway; the others are asked.
async fn of_resource(request: ClientRequest<'_>, release: &Release) -> Result<Findings, Refusal> {
    let ClientRequest { router, configuration, served, .. } = request;
    let is_read = !request.caller.is_another()
        && request.is_held()
        && router.views().get(&served.resource, None).is_some()
        && configuration.left_out(served).is_empty();
    let mut known = if is_read { in_memory(request, release).await? } else { Evidence::default() };
    let asked: Vec<_> = match is_read {
        true => std::mem::take(&mut known.may),
        false => served.clusters.to_vec(),
    };
    let mut found = Findings::from(known);
    if !asked.is_empty() {
        let answered = told(request, release, served, &asked).await;
        found.evidence.has.extend(answered.evidence.has);
        found.evidence.may.extend(answered.evidence.may);
        found.told.extend(answered.told);
    }
    Ok(found)
}

/// What memory knows of the records, once this process's own writes are seen.
async fn in_memory(request: ClientRequest<'_>, release: &Release) -> Result<Evidence, Refusal> {
    let (view, mut before) = request.view().await?;
    view.newest(&mut before, Consistency::Cached).await?;
    let held = Arc::clone(view.log().head());
    let scope = Scope { namespace: release.namespace.as_deref(), ..Scope::default() };
    let has = held.iter().filter(|(_, snapshot)| snapshot.range(&scope, None).any(|object| release.has(object)));
    let has = has.map(|(cluster, _)| cluster.clone()).collect();
    let may = view.standings_with(before, &held)?.unknown().cloned().collect();
    Ok(Evidence { has, may })
}

/// What clusters say when they are asked for a record, or have said a moment ago.
async fn told(
    request: ClientRequest<'_>,
    release: &Release,
    served: &ServedResource,
    asked: &[ClusterName],
) -> Findings {
    let ClientRequest { router, caller, .. } = request;
    let (resource, release) = (served.resource.clone(), release.clone());
    let path = release.question(&resource);
    let clusters = asked.into();
    let key = ReleaseKey { impersonation: caller.impersonation(), resource, release, clusters };
    if let Some(known) = router.releases().get(&key) {
        return known.into();
    }
    let asked_at = router.releases().generation();
    let clusters = asked.iter().filter_map(|name| router.fleet().cluster(name));
    let path: Arc<str> = path.into();
    let questions = clusters.map(|cluster| {
        let (path, caller) = (Arc::clone(&path), caller.clone());
        async move {
            let silent = |_| Err(format!("it did not answer within {} s", ASKED_WITHIN.as_secs()));
            let answer = timeout(ASKED_WITHIN, has_record(&cluster, &caller, &path)).await.unwrap_or_else(silent);
            (cluster.name().clone(), answer)
        }
    });
    let questions: Vec<_> = questions.collect();
    let answers: Vec<_> = stream::iter(questions).buffer_unordered(ASKED_AT_ONCE).collect().await;
    let Findings { mut evidence, mut told } = Findings::default();
    for (cluster, answer) in answers {
        match answer {
            Ok(true) => evidence.has.push(cluster),
            Ok(false) => {}
            Err(cause) => {
                told.push(Trouble { cluster: cluster.clone(), cause, age: Duration::ZERO });
                evidence.may.push(cluster);
            }
        }
    }
    if evidence.may.is_empty() {
        router.releases().keep(key, asked_at, evidence.clone());
    }
    Findings { evidence, told }
}

/// Whether a cluster has a record. Who may not read records can have some there: the release may be another's.
///
/// # Errors
/// Why the cluster does not say so.
async fn has_record(cluster: &Arc<Cluster>, caller: &Caller, path: &str) -> Result<bool, String> {
    if let Some(problem) = cluster.problem() {
        return Err(problem);
    }
    let mut question = Request::new(body::empty());
    let accept = HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    question.headers_mut().insert(header::ACCEPT, accept);
    let answer = send::ask(cluster, caller, question, path).await.map_err(|refusal| refusal.status().message)?;
    match answer.status() {
        StatusCode::NOT_FOUND => Ok(false),
        StatusCode::OK => {
            let text = body::whole_up_to(answer.into_body(), ANSWER_BYTES_MAX).await;
            let text = text.map_err(|error| format!("its answer broke off: {error}"))?;
            let list: serde_json::Value =
                serde_json::from_slice(&text).map_err(|error| format!("its answer cannot be read: {error}"))?;
            let items = list.get("items").ok_or("its answer is no list")?;
            Ok(items.as_array().is_some_and(|items| !items.is_empty()))
        }
        StatusCode::FORBIDDEN => Err("it forbids to ask for the records of the release".to_owned()),
        code => Err(format!("it answered {code}")),
    }
}

/// How long a member may take to say whether it has a record.
const ASKED_WITHIN: Duration = Duration::from_secs(3);

/// How many members are asked at once, as for where an object is.
const ASKED_AT_ONCE: usize = 64;

/// The largest answer that is read, in bytes: one object's metadata, of which annotations and managed fields may take a
/// few hundred KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;
