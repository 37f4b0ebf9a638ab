//! Search for the clusters that have records of a Helm release, in memory or by lookups in the clusters.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, timeout};
use tributary_answers::helm_record::has_type;
use tributary_answers::refusal::{ClusterFailure, Refusal};
use tributary_apimachinery::json::null_is_default;
use tributary_apimachinery::{ClusterName, Consistency, GroupVersionResource, Scope, Snapshot};
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::metrics::LookupSubject;
use tributary_fleet::topology::Cluster;
use tributary_views::view::WriterSelector;

use super::known_releases::ReleaseKey;
use super::release::Release;
use crate::forward::lookup::{LookupRequest, LookupTimeout, Reply, look_up_in_each};
use crate::forward::owner::decision::Evidence;
use crate::forward::owner::evidence::{Gathered, object_request};
use crate::request::ClientRequest;

/// Finds the clusters that have records of a release. With a single cluster, no search is needed.
///
/// A hook without a release name may belong to releases in several clusters. The hook then belongs to the release with
/// a pending status.
///
/// Takes 3 s at most: the lookups in all clusters run in parallel, for Secrets and ConfigMaps together.
pub(in crate::forward::owner) async fn find_records(request: ClientRequest<'_>, release: &Release) -> Gathered {
    if request.clusters().len() < 2 {
        return Gathered::default();
    }
    let end = Instant::now() + ANSWERED_WITHIN;
    let found = find_records_until(request, release, end).await;
    if found.evidence.has.len() > 1
        && let Some(pending) = release.if_several()
    {
        let mut pending = find_records_until(request, &pending, end).await;
        let Evidence { has, is_weak, .. } = &pending.evidence;
        // A ConfigMap can be the work of any client, so it does not decide if the releases have Secrets.
        let is_one = has.len() == 1 && (found.evidence.is_weak || !is_weak);
        if is_one || (has.is_empty() && pending.not_sent.is_some()) {
            // A cluster that may have a release may have a pending release, so it stays unknown.
            pending.evidence.may.extend(found.evidence.may);
            return pending;
        }
    }
    found
}

/// Finds the clusters that have records of a release, until the deadline.
async fn find_records_until(request: ClientRequest<'_>, release: &Release, end: Instant) -> Gathered {
    let merged_discovery = request.router.fleet().merged_discovery();
    let resources = release.resources();
    let served: Vec<_> = resources.iter().filter_map(|resource| merged_discovery.get(resource)).collect();
    let searches = served.iter().map(|served| Box::pin(find_records_of_resource(request, release, served, end)));
    let (found, unsure): (Vec<_>, Vec<_>) = join_all(searches).await.into_iter().unzip();
    let undiscovered = request.undiscovered();
    let undiscovered = undiscovered.iter().map(|cluster| cluster.name());
    let all = |clusters: fn(&Evidence) -> &Vec<ClusterName>| {
        found.iter().flat_map(|found| clusters(&found.evidence)).collect::<BTreeSet<_>>()
    };
    let may = all(|own| &own.may).into_iter().chain(undiscovered).collect::<BTreeSet<_>>();
    let names = |all: BTreeSet<&ClusterName>| -> Vec<_> { all.into_iter().cloned().collect() };
    // A client that may write ConfigMaps can create a ConfigMap that looks like a record. But only Helm creates Secrets
    // of the record type, so Secrets decide first.
    let in_secrets =
        served.iter().zip(&found).find(|(served, own)| has_type(&served.resource) && !own.evidence.has.is_empty());
    let (has, is_weak) = match in_secrets {
        Some((_, own)) => (own.evidence.has.iter().collect(), false),
        None => (all(|own| &own.has), true),
    };
    let forbidden = names(all(|own| &own.forbidden));
    let evidence = Evidence { has: names(has), may: names(may), forbidden, is_weak, is_one_hidden: false };
    if !evidence.has.is_empty() && !evidence.is_weak {
        // Clusters without an answer cannot change this result, so it is cached although it is incomplete. This saves
        // lookups for the other objects of the release.
        for Unsure { key, generation, evidence } in unsure.into_iter().flatten() {
            request.router.releases().insert(key, generation, evidence);
        }
    }
    let (mut failures, mut not_sent) = (Vec::new(), None);
    for found in found {
        failures.extend(found.failures);
        not_sent = not_sent.or(found.not_sent);
    }
    Gathered { evidence, failures, not_sent }
}

/// Result of a lookup that some clusters did not answer.
struct Unsure {
    key: ReleaseKey,
    generation: u64,
    evidence: Evidence,
}

/// Finds the clusters that have records of one resource: in memory if memory caches the resource, and by lookups in
/// other clusters.
async fn find_records_of_resource(
    request: ClientRequest<'_>,
    release: &Release,
    served: &ServedResource,
    end: Instant,
) -> (Gathered, Option<Unsure>) {
    let wanted = object_request(served.resource.clone(), Some(release.namespace().to_owned()), None);
    let candidates = request.candidates_of(&wanted, "list").await;
    let records = request.about(&wanted, served, &candidates);
    let serving: Vec<_> = records.serving().cloned().collect();
    let is_readable = !request.caller.impersonates_another()
        && records.is_cached()
        && request.router.views().get(&served.resource, None).is_some()
        && records.left_out().is_empty();
    let known = match is_readable {
        true => timeout(REMEMBERED_WITHIN, find_in_memory(records, release)).await.ok().and_then(Result::ok),
        false => None,
    };
    let (mut found, unsure) = match known {
        Some(known) if known.may.is_empty() => (known.into(), None),
        Some(known) => {
            let (mut answered, unsure) = look_up_in_clusters(records, release, &known.may, end).await;
            answered.evidence.has.extend(known.has);
            (answered, unsure)
        }
        None => look_up_in_clusters(records, release, &serving, end).await,
    };
    forgive_denials(&mut found, serving.len());
    (found, unsure)
}

/// Moves the clusters that forbid the lookup to the clusters that may have records. If all `clusters` forbid the
/// lookup, nothing changes: a client without the right in any cluster does not depend on records.
fn forgive_denials(found: &mut Gathered, clusters: usize) {
    let Evidence { may, forbidden, .. } = &mut found.evidence;
    let cause = || "the cluster forbids you to list the records of the release".to_owned();
    let failures =
        forbidden.iter().map(|cluster| ClusterFailure { cluster: cluster.clone(), cause: cause(), age: None });
    found.failures.extend(failures);
    if forbidden.len() < clusters {
        may.append(forbidden);
    }
}

/// Finds the clusters with records in memory, after all writes through Tributary have appeared in memory.
async fn find_in_memory(request: ClientRequest<'_>, release: &Release) -> Result<Evidence, Refusal> {
    let (view, mut before) = request.view().await?;
    view.newest(WriterSelector::AnyWriter, &mut before, Consistency::Cached).await?;
    let snapshots = Arc::clone(view.log().latest());
    let mut has = Vec::new();
    for (cluster, snapshot) in snapshots.iter().filter(|(cluster, _)| request.candidates.has(cluster)) {
        if has_record(snapshot, release, &request.served.resource).await {
            has.push(cluster.clone());
        }
    }
    let cache_states = view.cache_states_with(before, &snapshots)?;
    let may = cache_states.unknown().filter(|name| request.candidates.has(name)).cloned().collect();
    Ok(Evidence { has, may, ..Evidence::default() })
}

/// Returns whether a snapshot has a record. The search reads only objects with the prefix of a record's name, and
/// yields to other tasks: many such objects may be no records.
async fn has_record(snapshot: &Snapshot, release: &Release, resource: &GroupVersionResource) -> bool {
    let (keys, scope) = (release.key_prefix(), Scope { namespace: Some(release.namespace()), ..Scope::default() });
    let mut after = keys.clone();
    loop {
        let (mut looked_at, mut last) = (0, None);
        for object in snapshot.range(&scope, Some(&after)).take(LOOKED_AT) {
            if !object.key().as_str().starts_with(&keys) {
                return false;
            }
            if release.has_record(resource, object) {
                return true;
            }
            (looked_at, last) = (looked_at + 1, Some(object.key().as_str().to_owned()));
        }
        match last {
            Some(last) if looked_at == LOOKED_AT => after = last,
            _ => return false,
        }
        tokio::task::yield_now().await;
    }
}

/// Looks up records in clusters, unless the cache has a recent answer.
async fn look_up_in_clusters(
    request: ClientRequest<'_>,
    release: &Release,
    clusters: &[ClusterName],
    end: Instant,
) -> (Gathered, Option<Unsure>) {
    let ClientRequest { router, caller, .. } = request;
    let resource = request.served.resource.clone();
    let (caller, release) = (caller.key(), release.clone());
    let key = ReleaseKey { caller, resource, release, clusters: clusters.into() };
    if let Some(known) = router.releases().get(&key) {
        return (known.into(), None);
    }
    let generation = router.releases().generation();
    let found = clusters.iter().filter_map(|name| request.cluster(name));
    let (askable, troubled): (Vec<_>, Vec<_>) = found.partition(|cluster: &Arc<Cluster>| cluster.can_be_asked());
    let question = question(request, &key, end);
    let may = troubled.iter().map(|own| own.name().clone()).collect();
    let mut found = Gathered::from(Evidence { may, ..Evidence::default() });
    for (cluster, reply) in look_up_in_each(askable, question).await {
        add_reply(&mut found, &key.release, cluster.name(), reply);
    }
    if found.evidence.may.is_empty() {
        router.releases().insert(key, generation, found.evidence.clone());
        return (found, None);
    }
    let unsure = Unsure { key, generation, evidence: found.evidence.clone() };
    (found, Some(unsure))
}

/// Makes the lookup of records in the client's name.
fn question(request: ClientRequest<'_>, key: &ReleaseKey, end: Instant) -> LookupRequest {
    let ClientRequest { router, caller, .. } = request;
    LookupRequest {
        path: key.release.lookup_path(&key.resource).into(),
        review: None,
        accept: HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
        caller: caller.for_shared_lookup(),
        held_bytes: Arc::clone(router.held_bytes()),
        answer_bytes_max: ANSWER_BYTES_MAX,
        timeout_policy: LookupTimeout::Until(end),
        put: router.metrics().lookups(LookupSubject::Release),
    }
}

/// Adds the reply of a cluster. Compares the names in the list, because the selector of the lookup cannot match names
/// by prefix.
fn add_reply(found: &mut Gathered, release: &Release, cluster: &ClusterName, reply: Reply) {
    match reply {
        Reply::Answer(StatusCode::NOT_FOUND, ..) => {}
        Reply::Forbidden(_) => found.evidence.forbidden.push(cluster.clone()),
        Reply::Answer(StatusCode::OK, text, _) => match serde_json::from_slice::<RecordList>(&text) {
            Ok(list) if list.items.iter().any(|item| release.has_name(&item.metadata.name)) => {
                found.evidence.has.push(cluster.clone());
            }
            Ok(list) if list.metadata.rest.as_deref().is_none_or(str::is_empty) => {}
            Ok(_) => found
                .add_unknown(cluster, "the cluster has more possible records of the release than the limit".to_owned()),
            Err(error) => found.add_unknown(cluster, format!("the answer cannot be read: {error}")),
        },
        Reply::Answer(code, ..) => found.add_unknown(cluster, format!("the cluster answered {code}")),
        Reply::NotSent(why) => found.add_not_sent(cluster, why),
        Reply::Unanswered(cause) => found.add_unknown(cluster, cause),
    }
}

#[derive(Deserialize)]
struct RecordList {
    #[serde(default, deserialize_with = "null_is_default")]
    metadata: RecordsMetadata,
    #[serde(default, deserialize_with = "null_is_default")]
    items: Vec<Record>,
}

#[derive(Default, Deserialize)]
struct RecordsMetadata {
    /// Continue token of a longer list.
    #[serde(rename = "continue")]
    rest: Option<String>,
}

#[derive(Deserialize)]
struct Record {
    metadata: RecordMetadata,
}

#[derive(Deserialize)]
struct RecordMetadata {
    name: String,
}

/// Time limit of the search for Helm records. The write waits for the search.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// Time limit of the search in memory, before the lookups in clusters. 1 s leaves most of the time for the clusters.
const REMEMBERED_WITHIN: Duration = Duration::from_secs(1);

/// Number of objects between two yields. The check of an object reads only a few labels.
const LOOKED_AT: usize = 256;

/// Maximal size of an answer, in bytes. A hundred records have about 1 KiB of metadata each, and annotations may add a
/// few hundred KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;
    use tributary_apimachinery::ObjectDecoder;

    use super::*;

    fn objects(names: impl Iterator<Item = String>, labels: &str) -> Snapshot {
        let decoder = ObjectDecoder::new("v1", "ConfigMap", [].into());
        let object = |name| {
            let text = format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"u","resourceVersion":"1","labels":{labels}}}}}"#
            );
            Arc::new(decoder.decode(text.as_bytes()).unwrap())
        };
        names.map(object).collect()
    }

    #[tokio::test]
    async fn search_for_helm_release_records_yields_to_other_tasks() {
        let resource = GroupVersionResource::new("", "v1", "configmaps");
        let release = Release::named("n", "r");
        let others = objects((0..100_000).map(|number| format!("a-{number}")), "{}");
        // The search reads no object with a different name.
        assert!(poll!(pin!(has_record(&others, &release, &resource))).is_ready());
        let names = || (0..1_000).map(|number| format!("sh.helm.release.v1.r.v{number:04}"));
        let unlabelled = objects(names(), "{}");
        let mut search = pin!(has_record(&unlabelled, &release, &resource));
        for _ in 0..3 {
            assert!(poll!(&mut search).is_pending());
        }
        assert!(!search.await);
        let records = objects(names(), r#"{"owner":"helm","name":"r"}"#);
        assert!(has_record(&records, &release, &resource).await);
    }
}
