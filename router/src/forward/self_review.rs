//! Questions about the caller: what it may do, and who it is. Asked of every cluster and answered as one.

mod rules;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tributary_apimachinery::{ClusterName, ResourceRequest, Status, Verb};

use super::buffered::Held;
use super::send::send;
use crate::body::{self, Body};
use crate::caller::Caller;
use crate::flow::fair_share::{Exceeded, Portion};
use crate::limits::{REVIEW_ANSWER_BYTES_MAX, REVIEW_BYTES_MAX};
use crate::negotiate::Answer;
use crate::request::ClientRequest;
use crate::response;
use crate::topology::Cluster;

/// How many clusters are asked at once. 64: as for where an object is; `kubectl auth can-i` over 1,000 clusters makes 16 rounds.
const ASKED_AT_ONCE: usize = 64;

/// How long a cluster may take to answer a question about rights. They are answered from memory there.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What one cluster says: its answer, or why there is none.
type Said = (ClusterName, Result<Value, Status>);

/// What an answer occupies of the bytes that may be held, as long as it is.
type Room = Result<Portion, Exceeded>;

/// Asks every cluster.
///
/// # Errors
/// 406 for a Table alone; what a cluster says of the request itself. 503 naming the clusters that do not answer, where those that do answer do not
/// decide it: a guess at rights would be worse than none. 409 where the clusters know the caller by different names.
pub(crate) async fn self_review(request: ClientRequest<'_>, message: Request<Body>) -> Result<Response<Body>, Status> {
    let ClientRequest { router, caller, info, resource, query, served, preferences, .. } = request;
    let form = preferences.form(Answer::Review)?;
    let held = Held::read(request, Verb::Create, message, REVIEW_BYTES_MAX).await?;
    let body = held.for_all()?.ok_or_else(|| Status::bad_request("a question about rights has no resourceVersion"))?;
    let clusters: Vec<_> = served.clusters.iter().filter_map(|name| router.fleet().cluster(name)).collect();
    let asked = clusters.iter().map(|cluster| async {
        let message = held.with_body(body.clone(), "application/json");
        let mut room = router.held_bytes().take(caller.connection, 0);
        let said = ask(cluster, caller, message, &info.path, query, &mut room);
        let said = tokio::time::timeout(ANSWER_WITHIN, said).await;
        let said = said.unwrap_or_else(|_| {
            let cause = format_args!("it did not answer within {} s", ANSWER_WITHIN.as_secs());
            Err(Status::cluster_unavailable(cluster.name(), cause))
        });
        ((cluster.name().clone(), said), room)
    });
    let asked: Vec<_> = asked.collect();
    let (mut said, _rooms): (Vec<Said>, Vec<Room>) = stream::iter(asked).buffered(ASKED_AT_ONCE).unzip().await;
    said.extend(
        router.fleet().undiscovered().iter().map(|cluster| {
            (cluster.name().clone(), Err(Status::cluster_unavailable(cluster.name(), cluster.trouble())))
        }),
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
    room: &mut Room,
) -> Result<Value, Status> {
    let room = room.as_mut().map_err(|exceeded| Status::from(*exceeded))?;
    let answer = send(cluster, caller, message, path, query).await?;
    let code = answer.status();
    let text = body::whole_within(answer.into_body(), REVIEW_ANSWER_BYTES_MAX, room).await;
    let text = text.map_err(|error| match error.downcast_ref::<Exceeded>() {
        Some(exceeded) => Status::from(*exceeded),
        None => Status::cluster_unavailable(cluster.name(), format!("its answer: {error}")),
    })?;
    if !code.is_success() {
        return Err(Status::from_response(code.as_u16(), &text));
    }
    serde_json::from_slice(&text).map_err(|error| Status::cluster_unavailable(cluster.name(), error))
}

/// The clusters' answers, and those of which there is none, each with its cause.
type Parted = (Vec<(ClusterName, Value)>, Vec<String>);

/// Parts the answers from what is not known.
///
/// # Errors
/// What a cluster says of the request itself (400, 403, 422): the others would say the same.
fn part(said: Vec<Said>) -> Result<Parted, Status> {
    let (mut answers, mut unknown) = (Vec::new(), Vec::new());
    for (cluster, said) in said {
        match said {
            Ok(answer) => answers.push((cluster, answer)),
            Err(status) if status.code < 500 && status.code != 429 => return Err(status),
            Err(status) => unknown.push(format!("{cluster} ({})", status.message)),
        }
    }
    Ok((answers, unknown))
}

/// 503: these clusters would have to be asked. Without the advice to try again at once: they have been tried.
fn not_known(unknown: &[String]) -> Status {
    let clusters = if unknown.is_empty() { "no cluster is configured".to_owned() } else { unknown.join("; ") };
    Status::service_unavailable(format!("the answer depends on clusters that cannot be asked now: {clusters}"))
}

/// One decision of all: the first answer, allowed only where every one is; the reason names those that do not allow it. One
/// refusal decides, whatever clusters that cannot be asked would say.
fn join_decisions(said: Vec<Said>) -> Result<Value, Status> {
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
        _ => Err(not_known(&unknown)),
    }
}

/// The rules that every cluster has. They are for people and never the last word, so clusters that cannot be asked make them
/// incomplete, no more.
fn join_rules(said: Vec<Said>) -> Result<Value, Status> {
    let (answers, unknown) = part(said)?;
    let mut answers = answers.into_iter().map(|(_, answer)| answer);
    let mut joined = answers.next().ok_or_else(|| not_known(&unknown))?;
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
fn join_identities(resource: &ResourceRequest, said: Vec<Said>) -> Result<Value, Status> {
    let (answers, unknown) = part(said)?;
    let user = |answer: &Value| answer["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned();
    let users: Vec<_> = answers.iter().map(|(cluster, answer)| (cluster, user(answer))).collect();
    if users.iter().any(|(_, user)| *user != users[0].1) {
        let told: Vec<_> = users.iter().map(|(cluster, user)| format!("{cluster}: {user}")).collect();
        let cause =
            format!("the clusters know you by different names ({}); ask one under /clusters/<name>", told.join(", "));
        return Err(Status::conflict(&resource.resource, "", &cause));
    }
    let first = answers.into_iter().next().map(|(_, answer)| answer);
    first.filter(|_| unknown.is_empty()).ok_or_else(|| not_known(&unknown))
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::RequestInfo;

    use super::*;

    fn answers(statuses: &[Value]) -> Vec<Said> {
        let names = ["a", "b", "c"].map(|name| ClusterName::new(name).unwrap());
        names.into_iter().zip(statuses).map(|(name, status)| (name, Ok(json!({ "status": status })))).collect()
    }

    fn silent() -> Said {
        (ClusterName::new("d").unwrap(), Err(Status::service_unavailable("gone")))
    }

    fn with_silent(mut said: Vec<Said>) -> Vec<Said> {
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
        assert!(open.code == 503 && open.message.contains("d (gone)"), "{open:?}");
        assert_eq!(join_decisions(Vec::new()).unwrap_err().code, 503);
        let mut refused = answers(&[yes]);
        refused.push((ClusterName::new("e").unwrap(), Err(Status::bad_request("no"))));
        assert_eq!(join_decisions(refused).unwrap_err().code, 400);
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
        assert!(part["status"]["evaluationError"].as_str().unwrap().contains("d (gone)"));
        assert_eq!(join_rules(vec![silent()]).unwrap_err().code, 503);
    }

    #[test]
    fn one_name_everywhere_or_none() {
        let user = |name: &str| json!({"userInfo": {"username": name}});
        let info = RequestInfo::parse("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", None).unwrap();
        let resource = info.resource().unwrap();
        let same = join_identities(resource, answers(&[user("x"), user("x")])).unwrap();
        assert_eq!(same["status"], user("x"));
        let error = join_identities(resource, answers(&[user("x"), user("y")])).unwrap_err();
        assert!(error.code == 409 && error.message.contains("a: x, b: y"), "{error:?}");
        assert_eq!(join_identities(resource, with_silent(answers(&[user("x")]))).unwrap_err().code, 503);
    }
}
