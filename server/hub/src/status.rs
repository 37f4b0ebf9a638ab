//! The status of an object of the hub, as Tributary wants it to be. Without I/O.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tributary_crds::round_count;
use tributary_router::report::{ClusterCondition, ClusterReport};

use crate::members::shorten;
use crate::{ConditionState, ConditionStatus, HubKind, ObjectReference, Verdict};

/// Least time between two writes of the status of an object, if no condition has changed.
const VALUES_INTERVAL: Duration = Duration::from_secs(30);

/// The type of a condition with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedCondition {
    name: &'static str,
    state: ConditionState,
}

/// The status of an object as it should be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredStatus {
    pub(crate) object: ObjectReference,
    conditions: Vec<NamedCondition>,
    /// The fields beside the conditions.
    values: Map<String, Value>,
}

/// The last write of this process to an object.
#[derive(Clone, Debug)]
pub(crate) struct LastWrite {
    pub(crate) status: DesiredStatus,
    pub(crate) at: Instant,
}

impl DesiredStatus {
    /// Renders the status of an object. `report` is the state of the member, `present` the object's present status.
    pub(crate) fn render(verdict: &Verdict, report: Option<&ClusterReport>, present: &Value) -> Self {
        let mut conditions = vec![NamedCondition { name: "Accepted", state: verdict.accepted.clone() }];
        let refs = verdict.resolved_refs.clone();
        conditions.extend(refs.map(|state| NamedCondition { name: "ResolvedRefs", state }));
        let mut values = Map::new();
        if verdict.object.kind == HubKind::UpstreamCluster {
            conditions.push(NamedCondition { name: "Ready", state: ready(verdict, report) });
            if let Some(report) = report {
                conditions.push(NamedCondition { name: "Synced", state: synced(report) });
                conditions.push(NamedCondition { name: "UniqueUID", state: unique_uid(report) });
                values = member_values(report, present);
            }
        }
        Self { object: verdict.object.clone(), conditions, values }
    }

    /// Returns whether the status must be written now. Conditions are compared with the object's present status. Other
    /// values are compared with the last write, because a CustomResourceDefinition of another version may drop some.
    pub(crate) fn is_due(&self, present: &Value, last: Option<&LastWrite>, now: Instant) -> bool {
        let differs = |condition: &NamedCondition| {
            let own = present_condition(present, condition.name);
            let text = |field: &str| own[field].as_str().unwrap_or_default();
            text("status") != condition.state.status.as_str()
                || text("reason") != condition.state.reason
                || own["observedGeneration"].as_i64() != Some(self.object.generation)
        };
        let same_object = last.filter(|last| last.status.object.uid == self.object.uid);
        // A server that drops conditions would otherwise be written to without end.
        if self.conditions.iter().any(differs)
            && same_object.is_none_or(|last| last.status.conditions != self.conditions)
        {
            return true;
        }
        match same_object {
            Some(last) => last.status != *self && now.duration_since(last.at) >= VALUES_INTERVAL,
            None => self.values.iter().any(|(field, value)| present[field] != *value),
        }
    }

    /// Returns the body of a server-side apply. `now` becomes the transition time of changed conditions.
    pub(crate) fn apply_body(&self, present: &Value, now: &str) -> Value {
        let condition = |condition: &NamedCondition| {
            let own = present_condition(present, condition.name);
            let is_same = own["status"] == json!(condition.state.status.as_str());
            let since = own["lastTransitionTime"].as_str().filter(|_| is_same).unwrap_or(now);
            json!({
                "type": condition.name,
                "status": condition.state.status.as_str(),
                "observedGeneration": self.object.generation,
                "lastTransitionTime": since,
                "reason": condition.state.reason,
                "message": condition.state.message,
            })
        };
        let mut status = self.values.clone();
        status.insert("observedGeneration".to_owned(), json!(self.object.generation));
        status.insert("conditions".to_owned(), self.conditions.iter().map(condition).collect());
        json!({
            "apiVersion": tributary_crds::API_VERSION,
            "kind": self.object.kind.as_str(),
            "metadata": {"name": self.object.name},
            "status": status,
        })
    }
}

fn present_condition<'a>(present: &'a Value, name: &str) -> &'a Value {
    let mut conditions = present["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == json!(name)).unwrap_or(&Value::Null)
}

/// Returns the state of the condition `Ready`.
fn ready(verdict: &Verdict, report: Option<&ClusterReport>) -> ConditionState {
    if verdict.generation_in_force.is_none() {
        return ConditionState::failed("NotAccepted", "No generation of the object is in force.");
    }
    let Some(report) = report else {
        let message = "Tributary has not connected to the cluster yet.";
        return ConditionState {
            status: ConditionStatus::Unknown,
            reason: "Pending".to_owned(),
            message: message.into(),
        };
    };
    let problem = [&report.problem, &report.refusal].into_iter().flatten().next().cloned().unwrap_or_default();
    let failed = |reason: &str| ConditionState::failed(reason, shorten(problem.clone()));
    match report.condition {
        ClusterCondition::Ready | ClusterCondition::Refusing if report.behind == 0 => {
            ConditionState::fulfilled("Synced", "The cluster answers, and its cached objects are up to date.")
        }
        ClusterCondition::Ready => ConditionState::fulfilled("Syncing", "The cluster answers."),
        ClusterCondition::Refusing => ConditionState::fulfilled("Refusing", shorten(problem)),
        ClusterCondition::Unreachable => failed("Unreachable"),
        ClusterCondition::Untrusted => failed("Untrusted"),
        ClusterCondition::Unauthorized => failed("Unauthorized"),
        ClusterCondition::NoCredentials => failed("NoCredentials"),
        ClusterCondition::Misconfigured => failed("Misconfigured"),
        ClusterCondition::Troubled => failed("Troubled"),
        ClusterCondition::Pending => {
            let message = "The cluster has not reported its resources yet.";
            ConditionState { status: ConditionStatus::Unknown, reason: "Pending".to_owned(), message: message.into() }
        }
    }
}

fn synced(report: &ClusterReport) -> ConditionState {
    match report.behind {
        0 => ConditionState::fulfilled("Synced", "All cached resources are up to date."),
        _ => ConditionState::failed("Behind", "Some cached resources are not up to date; tributary status names them."),
    }
}

/// Returns the state of the condition `UniqueUID`. An equal uid alone refuses no member, because a hostile member can
/// report any uid.
fn unique_uid(report: &ClusterReport) -> ConditionState {
    match &report.identity_problem {
        None => ConditionState::fulfilled("NoConflict", "No other cluster reports the same uid of kube-system."),
        Some(problem) => ConditionState::failed("UnclearIdentity", shorten(problem.clone())),
    }
}

/// Returns the fields of a member's status. Values that change without end are rounded or dates.
fn member_values(report: &ClusterReport, present: &Value) -> Map<String, Value> {
    let mut values = Map::new();
    if let Some(version) = &report.version {
        values.insert("version".to_owned(), json!(shorten(version.clone())));
    }
    let synced = report.collections.saturating_sub(report.behind);
    values.insert("syncedResources".to_owned(), json!(synced));
    values.insert("knownResources".to_owned(), json!(report.collections));
    values.insert("synced".to_owned(), json!(format!("{synced}/{}", report.collections)));
    values.insert("objects".to_owned(), json!(round_count(report.objects)));
    let is_stale =
        !matches!(report.condition, ClusterCondition::Ready | ClusterCondition::Refusing | ClusterCondition::Pending);
    if is_stale {
        // The first value stays, because a recomputed one would differ by seconds.
        let since = match &present["staleSince"] {
            Value::Null => stale_since(report).map_or(Value::Null, |since| json!(since)),
            since => since.clone(),
        };
        values.insert("staleSince".to_owned(), since);
        values.retain(|_, value| !value.is_null());
    }
    values
}

fn stale_since(report: &ClusterReport) -> Option<String> {
    let seconds = i64::try_from(report.heard_seconds.or(report.problem_seconds)?).ok()?;
    let since = jiff::Timestamp::now().checked_sub(jiff::SignedDuration::from_secs(seconds)).ok()?;
    Some(since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict() -> Verdict {
        let object = ObjectReference {
            kind: HubKind::UpstreamCluster,
            name: "eu".to_owned(),
            uid: "1".to_owned(),
            generation: 3,
        };
        Verdict {
            object,
            accepted: ConditionState::fulfilled("Accepted", "The object is in force."),
            resolved_refs: Some(ConditionState::fulfilled("Resolved", "")),
            generation_in_force: Some(3),
        }
    }

    fn report(condition: ClusterCondition) -> ClusterReport {
        ClusterReport {
            name: "eu".to_owned(),
            condition,
            problem: (condition != ClusterCondition::Ready).then(|| "no route to host".to_owned()),
            version: Some("v1.36.3".to_owned()),
            heard_seconds: Some(5),
            objects: 12_345,
            collections: 24,
            ..ClusterReport::default()
        }
    }

    /// The status that the server has after an apply.
    fn applied(desired: &DesiredStatus, present: &Value) -> Value {
        desired.apply_body(present, "2026-01-01T00:00:00Z")["status"].clone()
    }

    #[test]
    fn status_shows_conditions_and_rounded_values() {
        let desired = DesiredStatus::render(&verdict(), Some(&report(ClusterCondition::Ready)), &Value::Null);
        let status = applied(&desired, &Value::Null);
        let conditions: Vec<_> =
            status["conditions"].as_array().unwrap().iter().map(|one| (&one["type"], &one["reason"])).collect();
        let expected = [
            ("Accepted", "Accepted"),
            ("ResolvedRefs", "Resolved"),
            ("Ready", "Synced"),
            ("Synced", "Synced"),
            ("UniqueUID", "NoConflict"),
        ];
        assert!(
            conditions.iter().map(|(name, reason)| (name.as_str().unwrap(), reason.as_str().unwrap())).eq(expected)
        );
        assert_eq!((&status["objects"], &status["synced"]), (&json!("~12k"), &json!("24/24")));
        assert_eq!(status["staleSince"], Value::Null);
    }

    #[test]
    fn status_shows_a_uid_that_another_cluster_reports() {
        let problem = Some("cluster us and this cluster have the same kube-system uid".to_owned());
        let report = ClusterReport { identity_problem: problem.clone(), ..report(ClusterCondition::Ready) };
        let status = applied(&DesiredStatus::render(&verdict(), Some(&report), &Value::Null), &Value::Null);
        let unique = present_condition(&status, "UniqueUID");
        assert_eq!((&unique["status"], unique["message"].as_str()), (&json!("False"), problem.as_deref()));
        assert_eq!(present_condition(&status, "Ready")["status"], "True", "an equal uid refuses no member");
    }

    #[test]
    fn calm_status_is_written_once() {
        let (now, verdict) = (Instant::now(), verdict());
        let desired = DesiredStatus::render(&verdict, Some(&report(ClusterCondition::Ready)), &Value::Null);
        assert!(desired.is_due(&Value::Null, None, now));
        let present = applied(&desired, &Value::Null);
        let last = LastWrite { status: desired.clone(), at: now };
        let later = now + Duration::from_secs(3600);
        assert!(!desired.is_due(&present, Some(&last), later));
        assert!(!desired.is_due(&present, None, later), "another leader finds the status as it should be");
        // A server that drops unknown fields causes no repeated write.
        assert!(!desired.is_due(&json!({}), Some(&last), later));
    }

    #[test]
    fn changed_condition_is_written_at_once_and_other_values_after_30_seconds() {
        let (now, verdict) = (Instant::now(), verdict());
        let first = DesiredStatus::render(&verdict, Some(&report(ClusterCondition::Ready)), &Value::Null);
        let present = applied(&first, &Value::Null);
        let last = LastWrite { status: first, at: now };
        let more = ClusterReport { objects: 20_000, ..report(ClusterCondition::Ready) };
        let grown = DesiredStatus::render(&verdict, Some(&more), &present);
        assert!(!grown.is_due(&present, Some(&last), now + Duration::from_secs(29)));
        assert!(grown.is_due(&present, Some(&last), now + Duration::from_secs(30)));
        let lost = DesiredStatus::render(&verdict, Some(&report(ClusterCondition::Unreachable)), &present);
        assert!(lost.is_due(&present, Some(&last), now));
        let status = applied(&lost, &present);
        let ready = present_condition(&status, "Ready");
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Unreachable")));
        assert_eq!(ready["message"], "no route to host");
        let again = DesiredStatus::render(&verdict, Some(&report(ClusterCondition::Unreachable)), &status);
        assert_eq!(again.values["staleSince"], status["staleSince"], "the date stays");
    }

    #[test]
    fn transition_time_changes_only_with_the_status_of_a_condition() {
        let desired = DesiredStatus::render(&verdict(), None, &Value::Null);
        let present = json!({"conditions": [
            {"type": "Accepted", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
        ]});
        let body = desired.apply_body(&present, "2026-01-01T00:00:00Z");
        let times: Vec<_> = body["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["lastTransitionTime"].as_str().unwrap())
            .collect();
        assert_eq!(times, ["2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]);
    }
}
