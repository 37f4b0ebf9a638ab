//! Merging of the clusters' answers to a review. A pure decision, for tables of tests.

use http::HeaderValue;
use serde_json::{Value, json};
use tributary_answers::refusal::{ClusterRefusal, MemberRefusal, Refusal};
use tributary_answers::warnings::lacking;
use tributary_apimachinery::{ClusterName, Partial, ResourceRequest};

use super::reviewed_right::ReviewedRight;
use super::rules;

/// Rule that merges the rights in the clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joining {
    /// Each cluster has to allow the action.
    Each,
    /// For reads one cluster is sufficient, because memory answers with the objects that the clusters together allow.
    /// For writes each cluster has to allow the action.
    AnyRead,
}

/// Note about clusters with unknown rights. It contains no names, because no client may see them.
const UNKNOWN: &str = "your rights in some clusters are not known";

/// A cluster, and its answer or refusal.
pub(super) type ReviewResult = (ClusterName, Result<Value, Refusal>);

#[derive(Debug)]
pub(super) struct Joined {
    pub(super) review: Value,
    /// Clusters without an answer, each with its cause.
    unknown: Vec<String>,
}

impl Joined {
    pub(super) fn warnings(&self) -> impl Iterator<Item = HeaderValue> {
        lacking(&self.unknown)
    }
}

/// Merges the answers. With `partial: Allow` the reachable clusters decide.
///
/// # Errors
/// 503 for unreachable clusters, with `partial: Deny` or if no other cluster answers; 409 if the clusters have
/// different names for the caller. A cluster's refusal of the request itself. 403 if no cluster allows the user's
/// impersonation.
pub(super) fn joined(
    resource: &ResourceRequest,
    results: Vec<ReviewResult>,
    partial: Partial,
    joining: Joining,
) -> Result<Joined, Refusal> {
    let (answers, unknown) = part(results)?;
    let is_decided = joining == Joining::AnyRead && answers.iter().any(|(_, answer)| is_allowed(answer));
    if answers.is_empty() || (partial == Partial::Deny && !unknown.is_empty() && !is_decided) {
        return Err(MemberRefusal::Undecided { unknown }.into());
    }
    let (mut review, is_evaluated) = match &*resource.resource.resource {
        "selfsubjectrulesreviews" => (join_rules(answers, joining), true),
        "selfsubjectreviews" => (join_identities(resource, answers)?, false),
        _ => (join_decisions(answers, joining), !is_decided),
    };
    if is_evaluated && !unknown.is_empty() {
        review["status"]["evaluationError"] = json!(format!("clusters that cannot be queried: {}", unknown.join("; ")));
        if review["status"].get("incomplete").is_some() {
            review["status"]["incomplete"] = json!(true);
        }
    }
    Ok(Joined { review, unknown })
}

/// Answers of clusters, and the missing clusters with their causes.
type Parted = (Vec<(ClusterName, Value)>, Vec<String>);

/// Separates the clusters' answers from the reasons for missing answers. A cluster that forbids the user's
/// impersonation is excluded without a reason.
///
/// # Errors
/// A cluster's refusal of the request itself (400, 403, 422): the other clusters would refuse the request, too. 403 if
/// every cluster forbids the user's impersonation.
fn part(results: Vec<ReviewResult>) -> Result<Parted, Refusal> {
    let (mut answers, mut unknown, mut forbidden) = (Vec::new(), Vec::new(), None);
    for (cluster, result) in results {
        match result {
            Ok(answer) => answers.push((cluster, answer)),
            Err(refusal) if refusal.is_impersonation_forbidden_by_cluster() => forbidden = Some(refusal),
            Err(refusal) if refusal.is_about_request() => return Err(refusal),
            Err(refusal) => unknown.push(format!("{cluster} ({refusal})")),
        }
    }
    match forbidden {
        Some(refusal) if answers.is_empty() && unknown.is_empty() => Err(refusal),
        _ => Ok((answers, unknown)),
    }
}

/// Makes the answer to an access review about a resource of Tributary's own API group.
pub(super) fn of_own_group(resource: &ResourceRequest, reviewed_right: &ReviewedRight) -> Value {
    json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": resource.resource.group_version().to_string(),
        "metadata": {"creationTimestamp": null},
        "spec": reviewed_right.spec(),
        "status": {"allowed": reviewed_right.is_read_of_clusters()},
    })
}

/// Makes the answer for a caller to whom a review may not reveal any cluster.
pub(super) fn of_nobody(resource: &ResourceRequest, reviewed_right: &ReviewedRight, has_unknown: bool) -> Value {
    let api_version = resource.resource.group_version().to_string();
    let (kind, spec, status) = match &*resource.resource.resource {
        "selfsubjectrulesreviews" => {
            let status = json!({"resourceRules": [], "nonResourceRules": [], "incomplete": has_unknown});
            ("SelfSubjectRulesReview", json!({"namespace": reviewed_right.namespace}), status)
        }
        _ => ("SelfSubjectAccessReview", reviewed_right.spec(), json!({"allowed": false})),
    };
    let metadata = json!({"creationTimestamp": null});
    let mut review =
        json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "spec": spec, "status": status});
    if has_unknown {
        add_unknown_note(&mut review);
    }
    review
}

/// Adds a note to the review: the rights in some clusters are unknown.
pub(super) fn add_unknown_note(review: &mut Value) {
    let status = &mut review["status"];
    if status["allowed"] == json!(true) {
        return;
    }
    let error = match status["evaluationError"].as_str().filter(|error| !error.is_empty()) {
        Some(error) => format!("{error}; {UNKNOWN}"),
        None => UNKNOWN.to_owned(),
    };
    status["evaluationError"] = error.into();
    if status.get("incomplete").is_some() {
        status["incomplete"] = json!(true);
    }
}

fn is_allowed(answer: &Value) -> bool {
    answer["status"]["allowed"] == Value::Bool(true)
}

/// Merges the clusters' decisions into one answer. If `joining` is `AnyRead`, one cluster that allows the action is
/// sufficient. Otherwise every cluster has to allow it, and the reason names the clusters that do not.
fn join_decisions(mut answers: Vec<(ClusterName, Value)>, joining: Joining) -> Value {
    if let Some(place) =
        answers.iter().position(|(_, answer)| is_allowed(answer)).filter(|_| joining == Joining::AnyRead)
    {
        return answers.swap_remove(place).1;
    }
    let mut refusals = Vec::new();
    for (cluster, answer) in &answers {
        if !is_allowed(answer) {
            let reason = answer["status"]["reason"].as_str().filter(|reason| !reason.is_empty());
            refusals.push(match reason {
                Some(reason) => format!("{cluster}: {reason}"),
                None => cluster.to_string(),
            });
        }
    }
    let mut joined = answers.into_iter().next().map(|(_, answer)| answer).unwrap_or_default();
    if !refusals.is_empty() {
        joined["status"]["allowed"] = json!(false);
        joined["status"]["reason"] = json!(format!("not allowed in {}", refusals.join("; ")));
    }
    joined
}

/// Returns the rules that every cluster gives, and for reads the rules of any cluster.
fn join_rules(answers: Vec<(ClusterName, Value)>, joining: Joining) -> Value {
    let list = |review: &Value, member: &str| review["status"][member].as_array().cloned().unwrap_or_default();
    let mut answers = answers.into_iter().map(|(_, answer)| answer);
    let mut joined = answers.next().unwrap_or_default();
    let members = ["resourceRules", "nonResourceRules"];
    let mut reads = members.map(|member| rules::reads(&list(&joined, member)));
    let mut is_one = true;
    for answer in answers {
        is_one = false;
        for (member, reads) in members.into_iter().zip(&mut reads) {
            let theirs = list(&answer, member);
            reads.extend(rules::reads(&theirs));
            joined["status"][member] = Value::Array(rules::common(&list(&joined, member), &theirs));
        }
        if answer["status"]["incomplete"] == json!(true) {
            joined["status"]["incomplete"] = json!(true);
        }
    }
    if joining == Joining::AnyRead && !is_one {
        for (member, reads) in members.into_iter().zip(reads) {
            joined["status"][member] = Value::Array(rules::with(list(&joined, member), reads));
        }
    }
    joined
}

/// Returns the identity of the caller, if the clusters agree on it.
fn join_identities(resource: &ResourceRequest, answers: Vec<(ClusterName, Value)>) -> Result<Value, Refusal> {
    let user = |answer: &Value| answer["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned();
    let users: Vec<_> = answers.iter().map(|(cluster, answer)| (cluster.clone(), user(answer))).collect();
    if users.iter().any(|(_, user)| *user != users[0].1) {
        return Err(ClusterRefusal::DifferentUsers { resource: resource.resource.clone(), users }.into());
    }
    Ok(answers.into_iter().next().map(|(_, answer)| answer).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tributary_apimachinery::{RequestInfo, Status};

    use super::*;

    const GROUPS: [(&str, &str); 3] = [
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    ];

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

    fn with_silent(mut results: Vec<ReviewResult>) -> Vec<ReviewResult> {
        results.push(silent());
        results
    }

    fn join(question: usize, results: Vec<ReviewResult>, partial: Partial) -> Result<Joined, Refusal> {
        let (group, resource) = GROUPS[question];
        let info = RequestInfo::parse("POST", &format!("/apis/{group}/v1/{resource}"), None).unwrap();
        joined(info.resource().unwrap(), results, partial, Joining::Each)
    }

    fn status(question: usize, results: Vec<ReviewResult>) -> Value {
        join(question, results, Partial::Allow).unwrap().review["status"].clone()
    }

    fn is_undecided(refusal: &Refusal) -> bool {
        matches!(refusal, Refusal::Member(refusal) if matches!(**refusal, MemberRefusal::Undecided { .. }))
    }

    #[test]
    fn review_allows_an_action_only_if_every_cluster_allows_it() {
        let (yes, no) = (json!({"allowed": true, "reason": "RBAC"}), json!({"allowed": false}));
        assert_eq!(status(0, answers(&[yes.clone(), yes.clone()])), yes);
        for results in [answers(&[yes.clone(), no.clone()]), with_silent(answers(&[yes.clone(), no]))] {
            let one = status(0, results);
            assert_eq!((&one["allowed"], &one["reason"]), (&json!(false), &json!("not allowed in b")));
        }
        let mut refused = answers(&[yes]);
        refused.push((name("e"), Err(Refusal::from_member_answer(StatusCode::BAD_REQUEST, b"no"))));
        let refused = join(0, refused, Partial::Allow).unwrap_err();
        assert!(refused.member_status().is_some_and(|status| status.code == 400));
    }

    #[test]
    fn cluster_that_forbids_impersonation_is_excluded_from_a_review() {
        let forbids = || -> ReviewResult {
            let forbidden = MemberRefusal::ForbidsImpersonation(Status::forbidden(None, "", "no"));
            (name("f"), Err(forbidden.into()))
        };
        let yes = json!({"allowed": true});
        let mut results = answers(std::slice::from_ref(&yes));
        results.push(forbids());
        let joined = join(0, results, Partial::Deny).unwrap();
        assert_eq!((&joined.review["status"], joined.warnings().count()), (&yes, 0));
        assert_eq!(join(0, vec![forbids()], Partial::Allow).unwrap_err().status().code, 403);
        assert!(is_undecided(&join(0, vec![forbids(), silent()], Partial::Allow).unwrap_err()));
    }

    fn of_any(question: usize, results: Vec<ReviewResult>, partial: Partial) -> Result<Value, Refusal> {
        let (group, resource) = GROUPS[question];
        let info = RequestInfo::parse("POST", &format!("/apis/{group}/v1/{resource}"), None).unwrap();
        let joined = joined(info.resource().unwrap(), results, partial, Joining::AnyRead)?;
        Ok(joined.review["status"].clone())
    }

    #[test]
    fn review_allows_a_read_if_any_cluster_allows_it() {
        let (yes, no) = (json!({"allowed": true, "reason": "RBAC"}), json!({"allowed": false}));
        for (partial, results) in [
            (Partial::Allow, answers(&[no.clone(), yes.clone()])),
            (Partial::Deny, answers(&[yes.clone(), no.clone()])),
            (Partial::Deny, with_silent(answers(&[no.clone(), yes.clone()]))),
        ] {
            assert_eq!(of_any(0, results, partial).unwrap(), yes);
        }
        let none = of_any(0, answers(&[no.clone(), no.clone()]), Partial::Deny).unwrap();
        assert_eq!((&none["allowed"], &none["reason"]), (&json!(false), &json!("not allowed in a; b")));
        assert!(is_undecided(&of_any(0, with_silent(answers(&[no])), Partial::Deny).unwrap_err()));
    }

    #[test]
    fn rules_review_has_common_rules_and_read_rules_of_any_cluster() {
        let rules = |rules: &[(&[&str], &str)]| {
            let rule = |(verbs, resource): &(&[&str], &str)| json!({"verbs": verbs, "apiGroups": [""], "resources": [resource]});
            json!({"resourceRules": rules.iter().map(rule).collect::<Vec<_>>(), "nonResourceRules": [], "incomplete": false})
        };
        let ours = rules(&[(&["*"], "pods"), (&["delete"], "nodes")]);
        let theirs = rules(&[(&["list", "create"], "pods"), (&["get"], "secrets")]);
        let both = of_any(1, answers(&[ours.clone(), theirs]), Partial::Deny).unwrap();
        let expected = rules(&[
            (&["list", "create"], "pods"),
            (&["get", "list", "watch"], "pods"),
            (&["list"], "pods"),
            (&["get"], "secrets"),
        ]);
        assert_eq!(both, expected);
        assert_eq!(of_any(1, answers(std::slice::from_ref(&ours)), Partial::Deny).unwrap(), ours);
    }

    #[test]
    fn review_names_unreachable_clusters() {
        let reviewed_right = [
            json!({"allowed": true}),
            json!({"resourceRules": [], "nonResourceRules": [], "incomplete": false}),
            json!({"userInfo": {"username": "x"}}),
        ];
        let cause = "d (cluster \"d\" is unavailable: gone)";
        for (question, own) in reviewed_right.into_iter().enumerate() {
            let results = || with_silent(answers(std::slice::from_ref(&own)));
            let refused = join(question, results(), Partial::Deny).unwrap_err();
            assert!(is_undecided(&refused) && refused.to_string().contains(cause), "{refused:?}");
            assert!(is_undecided(&join(question, vec![silent()], Partial::Allow).unwrap_err()));
            assert!(is_undecided(&join(question, Vec::new(), Partial::Allow).unwrap_err()));
            let joined = join(question, results(), Partial::Allow).unwrap();
            assert_eq!(joined.warnings().count(), 1);
            let status = &joined.review["status"];
            for (key, value) in own.as_object().unwrap() {
                assert_eq!(status[key], if key == "incomplete" { json!(true) } else { value.clone() });
            }
            let error = status["evaluationError"].as_str().unwrap_or_default();
            assert_eq!(error.contains(cause), question < 2, "{error}");
            assert_eq!(join(question, answers(&[own]), Partial::Deny).unwrap().warnings().count(), 0);
        }
    }

    #[test]
    fn rules_review_has_only_rules_that_every_cluster_returns() {
        let rules = |verbs: &[&str]| {
            let rules: Vec<_> =
                verbs.iter().map(|verb| json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]})).collect();
            json!({"resourceRules": rules, "nonResourceRules": [], "incomplete": false})
        };
        assert_eq!(status(1, answers(&[rules(&["get"]), rules(&["get"])])), rules(&["get"]));
        assert_eq!(status(1, answers(&[rules(&["get"]), rules(&["list", "get"])])), rules(&["get"]));
    }

    #[test]
    fn identity_review_needs_an_equal_user_name_in_every_cluster() {
        let user = |name: &str| json!({"userInfo": {"username": name}});
        assert_eq!(status(2, answers(&[user("x"), user("x")])), user("x"));
        let error = join(2, answers(&[user("x"), user("y")]), Partial::Allow).unwrap_err();
        let Refusal::Cluster(error) = error else { panic!("{error:?}") };
        let ClusterRefusal::DifferentUsers { users, .. } = *error else { panic!("{error:?}") };
        assert_eq!(users, [(name("a"), "x".to_owned()), (name("b"), "y".to_owned())]);
    }
}
