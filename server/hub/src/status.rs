//! The status of an object of the hub, as Tributary wants it to be. Without I/O.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tributary_router::Report;
use tributary_router::cluster_status::{ClusterOrigin, ClusterStatus, ClusterStatusCondition};

use crate::collections::PresentStatus;
use crate::verdict::shorten;
use crate::{ConditionState, HubKind, ItemVerdict, ObjectReference, SourceVerdict, Verdict};

/// The most refused items in the status of a source.
const REFUSED_SHOWN_MAX: usize = 20;

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

/// The last write of this process to an object. It has fingerprints, because a status takes several kilobytes.
#[derive(Clone, Debug)]
pub(crate) struct LastWrite {
    status: u64,
    conditions: u64,
    /// Tributary's fields in the hub's answer. A CustomResourceDefinition of another version may have dropped fields.
    answered: u64,
    pub(crate) at: Instant,
    /// The resourceVersion before the write. `None` if the write changed nothing.
    replaced_version: Option<String>,
}

impl LastWrite {
    /// Records a write. `answered` is the status in the hub's answer.
    pub(crate) fn new(status: &DesiredStatus, answered: &Value, at: Instant, replaced_version: Option<String>) -> Self {
        Self {
            status: fingerprint(status),
            conditions: fingerprint(&status.conditions),
            answered: status.own_fingerprint(answered),
            at,
            replaced_version,
        }
    }
}

/// Returns a hash of the value's debug text.
pub(crate) fn fingerprint(value: &impl Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{value:?}").hash(&mut hasher);
    hasher.finish()
}

/// Urgency of a write. Writes are sent in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteUrgency {
    /// A condition has changed.
    Condition,
    /// Only other values have changed, or a different writer has changed Tributary's fields.
    Values,
}

impl DesiredStatus {
    /// Renders the status of an object. `present` is the object's present status.
    pub(crate) fn render(verdict: &Verdict, state: &ObjectState, present: &Value) -> Self {
        let mut conditions = vec![NamedCondition { name: "Accepted", state: verdict.accepted.clone() }];
        let refs = verdict.resolved_refs.clone();
        conditions.extend(refs.map(|state| NamedCondition { name: "ResolvedRefs", state }));
        let mut values = Map::new();
        if let Some(source) = &verdict.source {
            conditions.extend(state.source.clone().map(|state| NamedCondition { name: "Synced", state }));
            values = source_values(source);
        }
        let member = state.member.as_ref();
        if verdict.object.kind == HubKind::UpstreamCluster {
            let indexed = verdict.indexed.clone();
            conditions.extend(indexed.map(|state| NamedCondition { name: "Indexed", state }));
            conditions.push(NamedCondition { name: "Ready", state: ready(verdict, member) });
            if let Some(member) = member {
                conditions.push(NamedCondition { name: "Synced", state: condition(&member.status.synced) });
                conditions.push(NamedCondition { name: "UniqueUID", state: unique_uid(member) });
                values = member_values(&member.status, present);
            }
        }
        Self { object: verdict.object.clone(), conditions, values }
    }

    /// Returns the urgency of a write now; `None` if the status must not be written now. `last` is the last write to
    /// this object. Without an earlier write of this process, the object's present status decides.
    pub(crate) fn urgency(
        &self,
        present: &PresentStatus,
        last: Option<&LastWrite>,
        now: Instant,
    ) -> Option<WriteUrgency> {
        let condition = self.has_changed_condition(&present.status).then_some(WriteUrgency::Condition);
        let Some(last) = last else {
            let differs = self.values.iter().any(|(field, value)| present.status[field] != *value);
            return condition.or(differs.then_some(WriteUrgency::Values));
        };
        // The watch has not delivered the last write, so the hub would refuse the resourceVersion of this write.
        if last.replaced_version.as_ref() == Some(&present.resource_version) {
            return None;
        }
        // The conditions of the last write are compared, too: if the hub drops conditions, the present status always
        // differs, and writes would never end.
        if condition.is_some() && last.conditions != fingerprint(&self.conditions) {
            return condition;
        }
        let differs = || last.status != fingerprint(self) || last.answered != self.own_fingerprint(&present.status);
        (now.duration_since(last.at) >= VALUES_INTERVAL && differs()).then_some(WriteUrgency::Values)
    }

    fn has_changed_condition(&self, present: &Value) -> bool {
        self.conditions.iter().any(|condition| {
            let own = present_condition(present, condition.name);
            let text = |field: &str| own[field].as_str().unwrap_or_default();
            text("status") != condition.state.status.as_str()
                || text("reason") != condition.state.reason
                || own["observedGeneration"].as_i64() != Some(self.object.generation)
        })
    }

    /// Returns the fingerprint of the parts of a status that Tributary writes.
    fn own_fingerprint(&self, status: &Value) -> u64 {
        let conditions = self.conditions.iter().map(|condition| present_condition(status, condition.name));
        let values = self.values.keys().map(|field| &status[field]);
        fingerprint(&conditions.chain(values).collect::<Vec<_>>())
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

/// Returns a condition of a status; null if the status lacks it.
pub(crate) fn present_condition<'a>(present: &'a Value, name: &str) -> &'a Value {
    let mut conditions = present["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == json!(name)).unwrap_or(&Value::Null)
}

/// The parts of an object's status that do not come from the verdict.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectState {
    /// The state of the member, if Tributary knows it.
    pub(crate) member: Option<MemberState>,
    /// The condition `Synced` of a ClusterSource.
    pub(crate) source: Option<ConditionState>,
}

#[derive(Clone, Debug)]
pub(crate) struct MemberState {
    status: ClusterStatus,
    /// The reason why the member may be a different cluster than its name says.
    identity_problem: Option<String>,
}

impl MemberState {
    /// Returns the state of a member in a report that was made at `now`; `None` if the report lacks the member.
    pub(crate) fn from_report(report: &Report, name: &str, now: Timestamp) -> Option<Self> {
        let identity_problem = report.cluster(name)?.identity_problem.clone();
        let origin = ClusterOrigin { name: name.to_owned(), ..ClusterOrigin::default() };
        Some(Self { status: ClusterStatus::from_report(report, origin, None, now)?, identity_problem })
    }
}

fn ready(verdict: &Verdict, member: Option<&MemberState>) -> ConditionState {
    if verdict.generation_in_force.is_none() {
        return ConditionState::failed("NotAccepted", "No generation of the object is in force.");
    }
    match member {
        None => ConditionState::unknown("Pending", "Tributary has not connected to the cluster yet."),
        Some(member) => condition(&member.status.ready),
    }
}

/// Converts a condition of the API resource `clusters`, so that an UpstreamCluster shows the same state as that
/// resource.
fn condition(own: &ClusterStatusCondition) -> ConditionState {
    ConditionState { status: own.status, reason: own.reason.to_owned(), message: shorten(own.message.clone()) }
}

/// Returns the state of the condition `UniqueUID`. A uid that a different member also reports does not refuse the
/// member, because a hostile member can report any uid.
fn unique_uid(member: &MemberState) -> ConditionState {
    match &member.identity_problem {
        None => ConditionState::fulfilled("NoConflict", "No other cluster reports the same uid of kube-system."),
        Some(problem) => ConditionState::failed("UnclearIdentity", shorten(problem.clone())),
    }
}

/// Returns the fields of a member's status. Values that change all the time are rounded or replaced by a time, so that
/// they cause few writes.
fn member_values(status: &ClusterStatus, present: &Value) -> Map<String, Value> {
    let mut values = Map::new();
    if let Some(version) = &status.version {
        values.insert("version".to_owned(), json!(shorten(version.clone())));
    }
    let (synced, known) = (status.synced_resources, status.known_resources);
    values.insert("syncedResources".to_owned(), json!(synced));
    values.insert("knownResources".to_owned(), json!(known));
    values.insert("synced".to_owned(), json!(format!("{synced}/{known}")));
    values.insert("objects".to_owned(), json!(status.objects));
    if let Some(since) = status.stale_since {
        // The first value stays, because a recomputed one would differ by seconds.
        let since = match &present["staleSince"] {
            Value::Null => json!(format_time(since)),
            since => since.clone(),
        };
        values.insert("staleSince".to_owned(), since);
    }
    values
}

/// Returns the fields of a source's status. Counts are missing until the list is read.
fn source_values(source: &SourceVerdict) -> Map<String, Value> {
    let refused = |item: &ItemVerdict| {
        let ConditionState { reason, message, .. } = &item.accepted;
        json!({"name": item.name, "reason": reason, "message": message})
    };
    let mut values = Map::new();
    values.insert("list".to_owned(), json!(source.list.field()));
    if let (Some(found), Some(accepted)) = (source.found(), source.accepted()) {
        values.insert("found".to_owned(), json!(found));
        values.insert("accepted".to_owned(), json!(accepted));
        values.insert("refused".to_owned(), source.refused().take(REFUSED_SHOWN_MAX).map(refused).collect());
    }
    values
}

/// Formats a time as in `metav1.Time`.
pub(crate) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use tributary_router::report::{ClusterCondition, ClusterReport, CollectionReport, CollectionState};

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
            indexed: None,
            resolved_refs: Some(ConditionState::fulfilled("Resolved", "")),
            generation_in_force: Some(3),
            source: None,
        }
    }

    fn member(condition: ClusterCondition) -> ObjectState {
        member_of(report(condition))
    }

    fn member_of(report: ClusterReport) -> ObjectState {
        let behind = CollectionReport {
            cluster: "eu".to_owned(),
            resource: "pods".to_owned(),
            state: CollectionState::Stale,
            seconds: 60,
            ..CollectionReport::default()
        };
        let is_behind = report.condition != ClusterCondition::Ready;
        let collections = is_behind.then_some(behind).into_iter().collect();
        let report = Report::from_parts(vec![report], Vec::new(), collections, Vec::new());
        let member = MemberState::from_report(&report, "eu", Timestamp::now());
        assert!(member.is_some());
        ObjectState { member, source: None }
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

    /// Returns the status that the hub stores after an apply.
    fn applied(desired: &DesiredStatus, present: &Value) -> Value {
        desired.apply_body(present, "2026-01-01T00:00:00Z")["status"].clone()
    }

    #[test]
    fn status_shows_conditions_and_rounded_values() {
        let desired = DesiredStatus::render(&verdict(), &member(ClusterCondition::Ready), &Value::Null);
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

    fn present(status: Value, version: &str) -> PresentStatus {
        PresentStatus { status, resource_version: version.to_owned() }
    }

    /// Makes a record of a write that replaced resourceVersion 1.
    fn written(status: &DesiredStatus, answered: &Value, at: Instant) -> LastWrite {
        LastWrite::new(status, answered, at, Some("1".to_owned()))
    }

    #[test]
    fn status_shows_a_uid_that_another_cluster_reports() {
        let problem = Some("cluster us and this cluster have the same kube-system uid".to_owned());
        let report = ClusterReport { identity_problem: problem.clone(), ..report(ClusterCondition::Ready) };
        let status = applied(&DesiredStatus::render(&verdict(), &member_of(report), &Value::Null), &Value::Null);
        let unique = present_condition(&status, "UniqueUID");
        assert_eq!((&unique["status"], unique["message"].as_str()), (&json!("False"), problem.as_deref()));
        assert_eq!(present_condition(&status, "Ready")["status"], "True", "an equal uid refuses no member");
    }

    #[test]
    fn calm_status_is_written_once() {
        let (now, verdict) = (Instant::now(), verdict());
        let desired = DesiredStatus::render(&verdict, &member(ClusterCondition::Ready), &Value::Null);
        assert_eq!(desired.urgency(&present(Value::Null, "1"), None, now), Some(WriteUrgency::Condition));
        let status = applied(&desired, &Value::Null);
        let last = written(&desired, &status, now);
        let later = now + Duration::from_secs(3600);
        assert_eq!(desired.urgency(&present(status.clone(), "2"), Some(&last), later), None);
        assert_eq!(desired.urgency(&present(status, "2"), None, later), None, "a new leader finds the right status");
        // A server that drops unknown fields causes no repeated write.
        let last = written(&desired, &json!({}), now);
        assert_eq!(desired.urgency(&present(json!({}), "2"), Some(&last), later), None);
    }

    #[test]
    fn changed_condition_is_written_at_once_and_other_values_after_30_seconds() {
        let (now, verdict) = (Instant::now(), verdict());
        let first = DesiredStatus::render(&verdict, &member(ClusterCondition::Ready), &Value::Null);
        let status = applied(&first, &Value::Null);
        let last = written(&first, &status, now);
        let seen = present(status, "2");
        let more = ClusterReport { objects: 20_000, ..report(ClusterCondition::Ready) };
        let grown = DesiredStatus::render(&verdict, &member_of(more), &seen.status);
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(grown.urgency(&seen, Some(&last), at(29)), None);
        assert_eq!(grown.urgency(&seen, Some(&last), at(30)), Some(WriteUrgency::Values));
        let lost = DesiredStatus::render(&verdict, &member(ClusterCondition::Unreachable), &seen.status);
        assert_eq!(lost.urgency(&seen, Some(&last), now), Some(WriteUrgency::Condition));
        let undelivered = present(Value::Null, "1");
        assert_eq!(lost.urgency(&undelivered, Some(&last), now), None, "the hub would refuse the old version");
        let status = applied(&lost, &seen.status);
        let ready = present_condition(&status, "Ready");
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Unreachable")));
        assert_eq!(ready["message"], "no route to host");
        let again = DesiredStatus::render(&verdict, &member(ClusterCondition::Unreachable), &status);
        assert_eq!(again.values["staleSince"], status["staleSince"], "the date stays");
    }

    #[test]
    fn fields_that_another_writer_has_changed_are_repaired_after_30_seconds() {
        let (now, verdict) = (Instant::now(), verdict());
        let desired = DesiredStatus::render(&verdict, &member(ClusterCondition::Ready), &Value::Null);
        let status = applied(&desired, &Value::Null);
        let last = written(&desired, &status, now);
        let at = |seconds| now + Duration::from_secs(seconds);
        let (mut condition, mut value, mut foreign) = (status.clone(), status.clone(), status);
        condition["conditions"][0]["status"] = json!("False");
        value["version"] = json!("v0.0.0");
        for changed in [condition, value] {
            let changed = present(changed, "3");
            assert_eq!(desired.urgency(&changed, Some(&last), at(29)), None);
            assert_eq!(desired.urgency(&changed, Some(&last), at(30)), Some(WriteUrgency::Values));
        }
        foreign["conditions"].as_array_mut().unwrap().push(json!({"type": "Audited", "status": "True"}));
        assert_eq!(desired.urgency(&present(foreign, "3"), Some(&last), at(30)), None);
    }

    #[test]
    fn transition_time_changes_only_with_the_status_of_a_condition() {
        let desired = DesiredStatus::render(&verdict(), &ObjectState::default(), &Value::Null);
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
