//! Questions about the caller: what it may do, and who it is. Asked of every cluster and answered as one.

use futures::future::join_all;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tributary_apimachinery::{ClusterName, ResourceRequest, Status, Verb};

use super::Call;
use super::body::Held;
use super::forward::forward;
use crate::body::{self, Body};
use crate::response;

/// Asks every cluster.
///
/// # Errors
/// 406 for a Table alone. 503 where a cluster does not answer: a guess at rights would be worse than none. 409 where the clusters know the caller by
/// different names.
pub async fn self_review(call: Call<'_>, request: Request<Body>) -> Result<Response<Body>, Status> {
    let Call { router, info, resource, query, served, .. } = call;
    let form = call.review_form()?;
    let held = Held::read(request, Verb::Create, resource).await?;
    let clusters: Vec<_> = served.clusters.iter().filter_map(|name| router.fleet().cluster(name)).collect();
    let asked = clusters.iter().map(|cluster| async {
        let request = held.for_member(true, "application/json", &mut |_, text| Ok(text.to_owned()))?;
        let answer = forward(cluster, request, &info.path, query).await?;
        let code = answer.status();
        let text = body::whole(answer.into_body())
            .await
            .map_err(|error| Status::cluster_unavailable(cluster.name(), error))?;
        if !code.is_success() {
            return Err(Status::from_response(code.as_u16(), &text));
        }
        let answer = serde_json::from_slice(&text);
        answer
            .map(|answer: Value| (cluster.name().clone(), answer))
            .map_err(|error| Status::cluster_unavailable(cluster.name(), error))
    });
    let answers: Vec<_> = join_all(asked).await.into_iter().collect::<Result<_, Status>>()?;
    let joined = match &*resource.resource.resource {
        "selfsubjectrulesreviews" => join_rules(answers),
        "selfsubjectreviews" => join_identities(resource, answers)?,
        _ => join_decisions(answers),
    };
    let joined = joined.ok_or_else(|| Status::service_unavailable("no cluster can be asked"))?;
    Ok(response::whole(StatusCode::CREATED, form, serde_json::to_vec(&joined).unwrap_or_default()))
}

/// One decision of all: the first answer, allowed only where every one is; the reason names those that do not allow it.
fn join_decisions(answers: Vec<(ClusterName, Value)>) -> Option<Value> {
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
    let mut joined = joined?;
    if !refusals.is_empty() {
        joined["status"]["allowed"] = json!(false);
        joined["status"]["reason"] = json!(format!("not allowed in {}", refusals.join("; ")));
    }
    Some(joined)
}

/// The rules that every cluster has; incomplete where they are not the same everywhere.
fn join_rules(answers: Vec<(ClusterName, Value)>) -> Option<Value> {
    let mut answers = answers.into_iter().map(|(_, answer)| answer);
    let mut joined = answers.next()?;
    for answer in answers {
        for rules in ["resourceRules", "nonResourceRules"] {
            let theirs = answer["status"][rules].as_array().cloned().unwrap_or_default();
            let Some(ours) = joined["status"][rules].as_array_mut() else { continue };
            let before = ours.len();
            ours.retain(|rule| theirs.contains(rule));
            if ours.len() < before.max(theirs.len()) {
                joined["status"]["incomplete"] = json!(true);
            }
        }
        if answer["status"]["incomplete"] == json!(true) {
            joined["status"]["incomplete"] = json!(true);
        }
    }
    Some(joined)
}

/// Who the caller is, where the clusters agree on it.
fn join_identities(resource: &ResourceRequest, answers: Vec<(ClusterName, Value)>) -> Result<Option<Value>, Status> {
    let user = |answer: &Value| answer["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned();
    let users: Vec<_> = answers.iter().map(|(cluster, answer)| (cluster, user(answer))).collect();
    if users.iter().any(|(_, user)| *user != users[0].1) {
        let told: Vec<_> = users.iter().map(|(cluster, user)| format!("{cluster}: {user}")).collect();
        let cause =
            format!("the clusters know you by different names ({}); ask one under /clusters/<name>", told.join(", "));
        return Err(Status::conflict(&resource.resource, "", &cause));
    }
    Ok(answers.into_iter().next().map(|(_, answer)| answer))
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::RequestInfo;

    use super::*;

    fn answers(statuses: &[Value]) -> Vec<(ClusterName, Value)> {
        let names = ["a", "b", "c"].map(|name| ClusterName::new(name).unwrap());
        names.into_iter().zip(statuses).map(|(name, status)| (name, json!({ "status": status }))).collect()
    }

    #[test]
    fn a_right_is_one_that_every_cluster_gives() {
        let (yes, no) = (json!({"allowed": true, "reason": "RBAC"}), json!({"allowed": false}));
        let both = join_decisions(answers(&[yes.clone(), yes.clone()])).unwrap();
        assert_eq!(both["status"]["allowed"], true);
        let one = join_decisions(answers(&[yes, no])).unwrap();
        assert_eq!(
            (one["status"]["allowed"].as_bool(), one["status"]["reason"].as_str()),
            (Some(false), Some("not allowed in b"))
        );
        assert!(join_decisions(Vec::new()).is_none());
    }

    #[test]
    fn rules_are_those_that_every_cluster_has() {
        let rules = |verbs: &[&str]| json!({"resourceRules": verbs, "nonResourceRules": [], "incomplete": false});
        let same = join_rules(answers(&[rules(&["get"]), rules(&["get"])])).unwrap();
        assert_eq!(same["status"], rules(&["get"]));
        let some = join_rules(answers(&[rules(&["get"]), rules(&["list", "get"])])).unwrap();
        assert_eq!(some["status"], json!({"resourceRules": ["get"], "nonResourceRules": [], "incomplete": true}));
    }

    #[test]
    fn one_name_everywhere_or_none() {
        let user = |name: &str| json!({"userInfo": {"username": name}});
        let info = RequestInfo::parse("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", None).unwrap();
        let resource = info.resource().unwrap();
        let same = join_identities(resource, answers(&[user("x"), user("x")])).unwrap().unwrap();
        assert_eq!(same["status"], user("x"));
        let error = join_identities(resource, answers(&[user("x"), user("y")])).unwrap_err();
        assert!(error.code == 409 && error.message.contains("a: x, b: y"), "{error:?}");
    }
}
