//! Questions about the caller: what it may do, and who it is. Asked of every cluster and answered as one.

mod rules;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tributary_apimachinery::{ClusterName, ResourceRequest, Verb};

use super::buffered::BufferedRequest;
use super::send::send;
use crate::answer_room;
use crate::body::{self, Body};
use crate::caller::Caller;
use crate::flow::fair_share::{Exceeded, Portion};
use crate::limits::{REVIEW_ANSWER_BYTES_MAX, REVIEW_BYTES_MAX};
use crate::negotiate::ResponseKind;
use crate::refusal::{ClusterRefusal, MemberRefusal, Refusal, RequestRefusal};
use crate::request::ClientRequest;
use crate::response;
use crate::topology::Cluster;

/// How many clusters are asked at once. 64: as for where an object is;
/// `kubectl auth can-i` over 1,000 clusters makes 16 rounds.
const ASKED_AT_ONCE: usize = 64;

/// How long a cluster may take to answer a question about rights. They are answered from memory there.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What one cluster says: its answer, or why there is none.
type ReviewResult = (ClusterName, Result<Value, Refusal>);

/// What an answer occupies of the bytes that may be held, as long as it is.
type ReviewRoom = Result<Portion, Exceeded>;

/// Asks every cluster.
///
/// # Errors
/// 406 for a Table alone; what a cluster says of the request itself. 503 naming the clusters that do not answer, where
/// those that do answer do not decide it: a guess at rights would be worse than none. 409 where the clusters know the
/// caller by different names.
pub(crate) async fn self_review(request: ClientRequest<'_>, message: Request<Body>) -> Result<Response<Body>, Refusal> {
    let ClientRequest { router, caller, info, resource, query, served, preferences, .. } = request;
    let form = preferences.form(ResponseKind::Review)?;
    let held = BufferedRequest::read(request, Verb::Create, message, REVIEW_BYTES_MAX).await?;
    let body = held.for_all()?.ok_or(RequestRefusal::VersionInReview)?;
    answer_room::wait(caller.answer_room.as_ref()).await?;
    let clusters: Vec<_> = served.clusters.iter().filter_map(|name| router.fleet().cluster(name)).collect();
    let asked = clusters.iter().map(|cluster| async {
        let message = held.with_body(body.clone(), "application/json");
        let mut room = router.held_bytes().take(caller.connection, 0);
        let said = ask(cluster, caller, message, &info.path, query, &mut room);
        let said = tokio::time::timeout(ANSWER_WITHIN, said).await;
        let said = said.unwrap_or_else(|_| {
            Err(unavailable(cluster, format_args!("it did not answer within {} s", ANSWER_WITHIN.as_secs())))
        });
        ((cluster.name().clone(), said), room)
    });
    let asked: Vec<_> = asked.collect();
    let (mut said, _rooms): (Vec<ReviewResult>, Vec<ReviewRoom>) =
        stream::iter(asked).buffered(ASKED_AT_ONCE).unzip().await;
    said.extend(
        router
            .fleet()
            .undiscovered()
            .iter()
            .map(|cluster| (cluster.name().clone(), Err(unavailable(cluster, cluster.trouble())))),
    );
    let joined = match &*resource.resource.resource {
        "selfsubjectrulesreviews" => join_rules(said)?,
        "selfsubjectreviews" => join_identities(resource, said)?,
        _ => join_decisions(said)?,
    };
    Ok(response::whole(StatusCode::CREATED, form, serde_json::to_vec(&joined).unwrap_or_default()))
}

async fn ask(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    message: Request<Body>,
    path: &str,
    query: Option<&str>,
    room: &mut ReviewRoom,
) -> Result<Value, Refusal> {
    let room = room.as_mut().map_err(|exceeded| *exceeded)?;
    let answer = send(cluster, caller, message, path, query).await?;
    let code = answer.status();
    let text = body::whole_within(answer.into_body(), REVIEW_ANSWER_BYTES_MAX, room).await;
    let text = text.map_err(|error| match error.downcast_ref::<Exceeded>() {
        Some(exceeded) => (*exceeded).into(),
        None => unavailable(cluster, format_args!("its answer: {error}")),
    })?;
    if !code.is_success() {
        return Err(Refusal::said(code, &text));
    }
    serde_json::from_slice(&text).map_err(|error| unavailable(cluster, error))
}

fn unavailable(cluster: &Cluster, cause: impl Display) -> Refusal {
    MemberRefusal::unavailable(cluster.name(), cause).into()
}

/// The clusters' answers, and those of which there is none, each with its cause.
type Parted = (Vec<(ClusterName, Value)>, Vec<String>);

/// Parts the answers from what is not known.
///
/// # Errors
/// What a cluster says of the request itself (400, 403, 422): the others would say the same.
fn part(said: Vec<ReviewResult>) -> Result<Parted, Refusal> {
    let (mut answers, mut unknown) = (Vec::new(), Vec::new());
    for (cluster, said) in said {
        match said {
            Ok(answer) => answers.push((cluster, answer)),
            Err(refusal) if refusal.is_of_request() => return Err(refusal),
            Err(refusal) => unknown.push(format!("{cluster} ({refusal})")),
        }
    }
    Ok((answers, unknown))
}

/// One decision of all: the first answer, allowed only where every one is; the reason names those that do not allow it.
/// One refusal decides, whatever clusters that cannot be asked would say.
fn join_decisions(said: Vec<ReviewResult>) -> Result<Value, Refusal> {
    let (answers, unknown) = part(said)?;
    let mut joined: Option<Value> = None;
    let mut refusals = Vec::new();
    for (cluster, answer) in answers {
        if answer["status"]["allowed"] != Value::Bool(true) {
            let reason = answer["status"]["reason"].as_str().filter(|reason| !reason.is_empty());
            refusals.push(match reason {
                Some(reason) => format!("{cluster}: {reason}"),
                None => cluster.to_string(),
            });
        }
        joined.get_or_insert(answer);
    }
    match joined {
        Some(mut joined) if !refusals.is_empty() => {
            joined["status"]["allowed"] = json!(false);
            joined["status"]["reason"] = json!(format!("not allowed in {}", refusals.join("; ")));
            Ok(joined)
        }
        Some(joined) if unknown.is_empty() => Ok(joined),
        _ => Err(MemberRefusal::Undecided { unknown }.into()),
    }
}

/// The rules that every cluster has. They are for people and never the last word, so clusters that cannot be asked make
/// them incomplete, no more.
fn join_rules(said: Vec<ReviewResult>) -> Result<Value, Refusal> {
    let (answers, unknown) = part(said)?;
    let mut answers = answers.into_iter().map(|(_, answer)| answer);
    let Some(mut joined) = answers.next() else { return Err(MemberRefusal::Undecided { unknown }.into()) };
    for answer in answers {
        for member in ["resourceRules", "nonResourceRules"] {
            let list = |review: &Value| review["status"][member].as_array().cloned().unwrap_or_default();
            joined["status"][member] = Value::Array(rules::common(&list(&joined), &list(&answer)));
        }
        if answer["status"]["incomplete"] == json!(true) {
            joined["status"]["incomplete"] = json!(true);
        }
    }
    if !unknown.is_empty() {
        joined["status"]["incomplete"] = json!(true);
        joined["status"]["evaluationError"] =
            json!(format!("clusters that cannot be asked now: {}", unknown.join("; ")));
    }
    Ok(joined)
}

/// Who the caller is, where the clusters agree on it.
fn join_identities(resource: &ResourceRequest, said: Vec<ReviewResult>) -> Result<Value, Refusal> {
    let (answers, unknown) = part(said)?;
    let user = |answer: &Value| answer["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned();
    let users: Vec<_> = answers.iter().map(|(cluster, answer)| (cluster.clone(), user(answer))).collect();
    if users.iter().any(|(_, user)| *user != users[0].1) {
        return Err(ClusterRefusal::DifferentUsers { resource: resource.resource.clone(), users }.into());
    }
    let first = answers.into_iter().next().map(|(_, answer)| answer);
    Ok(first.filter(|_| unknown.is_empty()).ok_or(MemberRefusal::Undecided { unknown })?)
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::RequestInfo;

    use super::*;

    fn name(text: &str) -> ClusterName {
        ClusterName::new(text).unwrap()
    }

    fn answers(statuses: &[Value]) -> Vec<ReviewResult> {
        let names = ["a", "b", "c"].map(name);
        names.into_iter().zip(statuses).map(|(name, status)| (name, Ok(json!({ "status": status })))).collect()
    }

    fn silent() -> ReviewResult {
        let cluster = name("d");
        let unavailable = MemberRefusal::unavailable(&cluster, "gone");
        (cluster, Err(unavailable.into()))
    }

    fn is_undecided(refusal: &Refusal) -> bool {
        matches!(refusal, Refusal::Member(refusal) if matches!(**refusal, MemberRefusal::Undecided { .. }))
    }

    fn with_silent(mut said: Vec<ReviewResult>) -> Vec<ReviewResult> {
        said.push(silent());
        said
    }

    #[test]
    fn a_right_is_one_that_every_cluster_gives() {
        let (yes, no) = (json!({"allowed": true, "reason": "RBAC"}), json!({"allowed": false}));
        let both = join_decisions(answers(&[yes.clone(), yes.clone()])).unwrap();
        assert_eq!(both["status"]["allowed"], true);
        for said in [answers(&[yes.clone(), no.clone()]), with_silent(answers(&[yes.clone(), no]))] {
            let one = join_decisions(said).unwrap();
            assert_eq!(one["status"]["allowed"], false);
            assert_eq!(one["status"]["reason"], "not allowed in b");
        }
        let open = join_decisions(with_silent(answers(std::slice::from_ref(&yes)))).unwrap_err();
        assert!(is_undecided(&open) && open.to_string().contains("d (cluster \"d\" is unavailable: gone)"), "{open:?}");
        assert!(is_undecided(&join_decisions(Vec::new()).unwrap_err()));
        let mut refused = answers(&[yes]);
        refused.push((name("e"), Err(Refusal::said(StatusCode::BAD_REQUEST, b"no"))));
        assert!(join_decisions(refused).unwrap_err().said_by_member().is_some_and(|said| said.code == 400));
    }

    #[test]
    fn rules_are_those_that_every_cluster_has() {
        let rules = |verbs: &[&str]| {
            let rules: Vec<_> =
                verbs.iter().map(|verb| json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]})).collect();
            json!({"resourceRules": rules, "nonResourceRules": [], "incomplete": false})
        };
        let same = join_rules(answers(&[rules(&["get"]), rules(&["get"])])).unwrap();
        assert_eq!(same["status"], rules(&["get"]));
        let some = join_rules(answers(&[rules(&["get"]), rules(&["list", "get"])])).unwrap();
        assert_eq!(some["status"], rules(&["get"]));
        let part = join_rules(with_silent(answers(&[rules(&["get"])]))).unwrap();
        assert_eq!(part["status"]["incomplete"], true);
        assert!(part["status"]["evaluationError"].as_str().unwrap().contains("d (cluster \"d\" is unavailable: gone)"));
        assert!(is_undecided(&join_rules(vec![silent()]).unwrap_err()));
    }

    #[test]
    fn one_name_everywhere_or_none() {
        let user = |name: &str| json!({"userInfo": {"username": name}});
        let info = RequestInfo::parse("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", None).unwrap();
        let resource = info.resource().unwrap();
        let same = join_identities(resource, answers(&[user("x"), user("x")])).unwrap();
        assert_eq!(same["status"], user("x"));
        let error = join_identities(resource, answers(&[user("x"), user("y")])).unwrap_err();
        let Refusal::Cluster(error) = error else { panic!("{error:?}") };
        let ClusterRefusal::DifferentUsers { users, .. } = *error else { panic!("{error:?}") };
        assert_eq!(users, [(name("a"), "x".to_owned()), (name("b"), "y".to_owned())]);
        assert!(is_undecided(&join_identities(resource, with_silent(answers(&[user("x")]))).unwrap_err()));
    }
}
