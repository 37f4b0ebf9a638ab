//! Which clusters have records of a Helm release: as memory knows, or as they are asked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, timeout};
use tributary_answers::helm_record::has_type;
use tributary_answers::refusal::{Refusal, Trouble};
use tributary_apimachinery::json::null_is_default;
use tributary_apimachinery::{ClusterName, Consistency, GroupVersionResource, Scope, Snapshot};
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::metrics::QuestionAbout;
use tributary_fleet::topology::Cluster;
use tributary_views::view::WrittenBy;

use super::gathered::Gathered;
use super::named::object;
use crate::forward::ask::{Patience, Question, Reply, ask_each};
use crate::grounds::Evidence;
use crate::helm_release::Release;
use crate::known_releases::ReleaseKey;
use crate::request::ClientRequest;

/// Which clusters have records of a release. Nobody is asked where there is one cluster, and so nothing to choose.
///
/// Of a hook that does not name its release several clusters may have one: then it is the one that Helm works on.
///
/// Takes 3 s at most: all that may have records are asked at once, Secrets and ConfigMaps together.
pub(in crate::forward) async fn of_release(request: ClientRequest<'_>, release: &Release) -> Gathered {
    if request.clusters().len() < 2 {
        return Gathered::default();
    }
    let end = Instant::now() + ANSWERED_WITHIN;
    let found = of_records(request, release, end).await;
    if found.evidence.has.len() > 1
        && let Some(pending) = release.if_several()
    {
        let mut pending = of_records(request, &pending, end).await;
        let Evidence { has, is_weak, .. } = &pending.evidence;
        // What anyone may make says nothing where releases are in Secrets.
        let is_one = has.len() == 1 && (found.evidence.is_weak || !is_weak);
        if is_one || (has.is_empty() && pending.not_put.is_some()) {
            // Whoever may have a release may have one that is worked on.
            pending.evidence.may.extend(found.evidence.may);
            return pending;
        }
    }
    found
}

/// Which clusters have records of a release, as long as there is time.
async fn of_records(request: ClientRequest<'_>, release: &Release, end: Instant) -> Gathered {
    let union = request.router.fleet().union();
    let resources = release.resources();
    let served: Vec<_> = resources.iter().filter_map(|resource| union.get(resource)).collect();
    let asked = served.iter().map(|served| Box::pin(of_resource(request, release, served, end)));
    let (of_each, unsure): (Vec<_>, Vec<_>) = join_all(asked).await.into_iter().unzip();
    let undiscovered = request.undiscovered();
    let undiscovered = undiscovered.iter().map(|cluster| cluster.name());
    let all = |of: fn(&Evidence) -> &Vec<ClusterName>| {
        of_each.iter().flat_map(|found| of(&found.evidence)).collect::<BTreeSet<_>>()
    };
    let may = all(|own| &own.may).into_iter().chain(undiscovered).collect::<BTreeSet<_>>();
    let names = |all: BTreeSet<&ClusterName>| -> Vec<_> { all.into_iter().cloned().collect() };
    // Whoever may write a ConfigMap can make one that looks like a record; of the type of Helm's Secrets nobody else
    // makes any.
    let in_secrets =
        served.iter().zip(&of_each).find(|(served, own)| has_type(&served.resource) && !own.evidence.has.is_empty());
    let (has, is_weak) = match in_secrets {
        Some((_, own)) => (own.evidence.has.iter().collect(), false),
        None => (all(|own| &own.has), true),
    };
    let evidence = Evidence { has: names(has), may: names(may), forbidden: names(all(|own| &own.forbidden)), is_weak };
    if !evidence.has.is_empty() && !evidence.is_weak {
        // Who is silent changes nothing then, and is not asked again for each object.
        for Unsure { key, asked_at, evidence } in unsure.into_iter().flatten() {
            request.router.releases().insert(key, asked_at, evidence);
        }
    }
    let (mut told, mut not_put) = (Vec::new(), None);
    for found in of_each {
        told.extend(found.told);
        not_put = not_put.or(found.not_put);
    }
    Gathered { evidence, told, not_put }
}

/// An answer to a question that some clusters left open.
struct Unsure {
    key: ReleaseKey,
    /// Of which generation it is.
    asked_at: u64,
    evidence: Evidence,
}

/// Which clusters have records of one resource: as memory knows where it is held anyway; the others are asked.
async fn of_resource(
    request: ClientRequest<'_>,
    release: &Release,
    served: &ServedResource,
    end: Instant,
) -> (Gathered, Option<Unsure>) {
    let wanted = object(served.resource.clone(), Some(release.namespace().to_owned()), None);
    let candidates = request.candidates_of(&wanted, "list").await;
    let of_records = request.about(&wanted, served, &candidates);
    let serving: Vec<_> = of_records.serving().cloned().collect();
    let is_read = !request.caller.is_another()
        && of_records.is_held()
        && request.router.views().get(&served.resource, None).is_some()
        && of_records.left_out().is_empty();
    let known = match is_read {
        true => timeout(REMEMBERED_WITHIN, in_memory(of_records, release)).await.ok().and_then(Result::ok),
        false => None,
    };
    let (mut found, unsure) = match known {
        Some(known) if known.may.is_empty() => (known.into(), None),
        Some(known) => {
            let (mut answered, unsure) = ask_clusters(of_records, release, &known.may, end).await;
            answered.evidence.has.extend(known.has);
            (answered, unsure)
        }
        None => ask_clusters(of_records, release, &serving, end).await,
    };
    only_where_all_forbid(&mut found, serving.len());
    (found, unsure)
}

/// Who forbids to look may have some that show this client none, unless all `clusters` do: then nobody there depends on
/// them.
fn only_where_all_forbid(found: &mut Gathered, clusters: usize) {
    let Evidence { may, forbidden, .. } = &mut found.evidence;
    let cause = || "it forbids to ask for the records of the release".to_owned();
    found.told.extend(forbidden.iter().map(|cluster| Trouble { cluster: cluster.clone(), cause: cause(), age: None }));
    if forbidden.len() < clusters {
        may.append(forbidden);
    }
}

/// What memory knows of the records, once what was written through this process is seen.
async fn in_memory(request: ClientRequest<'_>, release: &Release) -> Result<Evidence, Refusal> {
    let (view, mut before) = request.view().await?;
    view.newest(WrittenBy::Anybody, &mut before, Consistency::Cached).await?;
    let held = Arc::clone(view.log().head());
    let mut has = Vec::new();
    for (cluster, snapshot) in held.iter().filter(|(cluster, _)| request.candidates.has(cluster)) {
        if has_record(snapshot, release, &request.served.resource).await {
            has.push(cluster.clone());
        }
    }
    let standings = view.standings_with(before, &held)?;
    let may = standings.unknown().filter(|name| request.candidates.has(name)).cloned().collect();
    Ok(Evidence { has, may, ..Evidence::default() })
}

/// Whether a snapshot has a record. Only what has a record's name is looked at, and others have their turn in between:
/// of what is none there may be any number.
async fn has_record(snapshot: &Snapshot, release: &Release, resource: &GroupVersionResource) -> bool {
    let (keys, scope) = (release.keys(), Scope { namespace: Some(release.namespace()), ..Scope::default() });
    let mut after = keys.clone();
    loop {
        let (mut looked_at, mut last) = (0, None);
        for object in snapshot.range(&scope, Some(&after)).take(LOOKED_AT) {
            if !object.key().as_str().starts_with(&keys) {
                return false;
            }
            if release.has(resource, object) {
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

/// What clusters say when they are asked for records, or have said a moment ago.
async fn ask_clusters(
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
    let asked_at = router.releases().generation();
    let found = clusters.iter().filter_map(|name| request.cluster(name));
    let (askable, troubled): (Vec<_>, Vec<_>) = found.partition(|cluster: &Arc<Cluster>| cluster.can_be_asked());
    let question = question(request, &key, end);
    let may = troubled.iter().map(|own| own.name().clone()).collect();
    let mut found = Gathered::from(Evidence { may, ..Evidence::default() });
    for (cluster, reply) in ask_each(askable, question).await {
        add_records(&mut found, cluster.name(), read_reply(&key.release, reply));
    }
    if found.evidence.may.is_empty() {
        router.releases().insert(key, asked_at, found.evidence.clone());
        return (found, None);
    }
    let unsure = Unsure { key, asked_at, evidence: found.evidence.clone() };
    (found, Some(unsure))
}

/// The question for records, in the client's name.
fn question(request: ClientRequest<'_>, key: &ReleaseKey, end: Instant) -> Question {
    let ClientRequest { router, caller, .. } = request;
    Question {
        path: key.release.question(&key.resource).into(),
        review: None,
        accept: HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
        caller: caller.of_shared_question(),
        held_bytes: Arc::clone(router.held_bytes()),
        answer_bytes_max: ANSWER_BYTES_MAX,
        patience: Patience::Until(end),
        put: router.metrics().questions(QuestionAbout::Release),
    }
}

/// Adds what a cluster says.
fn add_records(found: &mut Gathered, cluster: &ClusterName, said: RecordsSaid) {
    let Gathered { evidence, told, not_put } = found;
    let of = match said {
        RecordsSaid::Some => &mut evidence.has,
        RecordsSaid::None => return,
        RecordsSaid::Forbidden => &mut evidence.forbidden,
        RecordsSaid::Nothing(cause) => {
            told.push(Trouble { cluster: cluster.clone(), cause, age: None });
            &mut evidence.may
        }
        RecordsSaid::NotPut(why) => {
            *not_put = Some(why);
            &mut evidence.may
        }
    };
    of.push(cluster.clone());
}

/// What a cluster says of the records of a release.
enum RecordsSaid {
    /// It has some.
    Some,
    /// It has none.
    None,
    /// It forbids to look.
    Forbidden,
    /// It does not say it, and why.
    Nothing(String),
    /// It was not asked, and why.
    NotPut(Refusal),
}

/// What a reply says: with names, because a selector cannot ask for those.
fn read_reply(release: &Release, reply: Reply) -> RecordsSaid {
    match reply {
        Reply::Answer(StatusCode::NOT_FOUND, ..) => RecordsSaid::None,
        Reply::Forbidden(_) => RecordsSaid::Forbidden,
        Reply::Answer(StatusCode::OK, text, _) => match serde_json::from_slice::<RecordList>(&text) {
            Ok(list) if list.items.iter().any(|item| release.has_name(&item.metadata.name)) => RecordsSaid::Some,
            Ok(list) if list.metadata.rest.as_deref().is_none_or(str::is_empty) => RecordsSaid::None,
            Ok(_) => RecordsSaid::Nothing("it has more that look like records than are read".to_owned()),
            Err(error) => RecordsSaid::Nothing(format!("its answer cannot be read: {error}")),
        },
        Reply::Answer(code, ..) => RecordsSaid::Nothing(format!("it answered {code}")),
        Reply::NotPut(why) => RecordsSaid::NotPut(why),
        Reply::Unanswered(cause) => RecordsSaid::Nothing(cause),
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
    /// There is more than was asked for.
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

/// Within which time it is known who has records: a write waits for it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// How long memory may take; then all clusters are asked in its place. 1 s, so that the larger part is left for them.
const REMEMBERED_WITHIN: Duration = Duration::from_secs(1);

/// How many objects are looked at before others have their turn. 256, each of them a look at a few labels.
const LOOKED_AT: usize = 256;

/// The largest answer that is read, in bytes: the metadata of a hundred records, about 1 KiB each, of which annotations
/// may take a few hundred KiB.
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
    async fn a_search_among_what_only_looks_like_records_gives_others_their_turn() {
        let resource = GroupVersionResource::new("", "v1", "configmaps");
        let release = Release::named("n", "r");
        let others = objects((0..100_000).map(|number| format!("a-{number}")), "{}");
        // Nothing of another name is looked at.
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
