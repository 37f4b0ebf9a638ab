//! State of a cluster in the form of the resource `clusters`.
//!
//! A status must not change while the cluster does not change, because each change causes a watch event. Therefore
//! numbers of objects are rounded, and the status contains timestamps in place of durations.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::aggregated_group::{GROUP, VERSION};
use crate::report::{ClusterCondition, ClusterReport, CollectionReport, CollectionState, Report};

/// Tolerance for a timestamp that is computed from a duration in a report. If a new timestamp differs from the previous
/// one by at most this value, the previous timestamp stays, so that the status does not change. 2 s: durations in a
/// report are whole seconds, and the report is made a moment after the clock was read.
const SAME_TIME: SignedDuration = SignedDuration::from_secs(2);

/// Value of a condition (`metav1.ConditionStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The condition applies to the object.
    True,
    /// The condition does not apply.
    False,
    /// Tributary does not know whether the condition applies.
    Unknown,
}

impl ConditionStatus {
    /// Returns the spelling of `metav1.Condition`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatusCondition {
    /// Value of the condition.
    pub status: ConditionStatus,
    /// Reason for programs, in CamelCase.
    pub reason: &'static str,
    /// Reason for people; empty if the reason for programs suffices.
    pub message: String,
    /// Time of the last change of the value.
    pub since: Timestamp,
}

/// The object of the hub that describes a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSource {
    /// Kind of the object: `UpstreamCluster` or `ClusterSource`.
    pub kind: &'static str,
    /// Name of the object.
    pub name: String,
    /// The item of the ClusterSource: kind, namespace and name. `None` for an UpstreamCluster.
    pub item: Option<String>,
}

impl MemberSource {
    fn to_json(&self) -> Value {
        let mut source = json!({"kind": self.kind, "name": self.name});
        if let Some(item) = &self.item {
            source["item"] = json!(item);
        }
        source
    }
}

/// Identity of a cluster, and the object that describes it. Uid and age do not change while the name means the same
/// cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterOrigin {
    /// Name of the cluster.
    pub name: String,
    /// Uid of the cluster's namespace kube-system, if the cluster has reported it.
    pub uid: Option<String>,
    /// Time at which the namespace kube-system was created, which is the age of the cluster.
    pub created: Option<Timestamp>,
    /// Object of the hub that describes the cluster; `None` for a cluster of a file or kubeconfig.
    pub source: Option<MemberSource>,
}

impl ClusterOrigin {
    /// Returns whether the name now belongs to a different cluster. False if the uid of either cluster is unknown.
    pub fn is_replaced_by(&self, next: &Self) -> bool {
        matches!((&self.uid, &next.uid), (Some(own), Some(next)) if own != next)
    }
}

/// State of a cluster, as the resource `clusters` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Identity of the cluster.
    pub origin: ClusterOrigin,
    /// Whether the cluster answers.
    pub ready: ClusterStatusCondition,
    /// Whether all cached collections are up to date.
    pub synced: ClusterStatusCondition,
    /// Version of the cluster's server, if known.
    pub version: Option<String>,
    /// Number of cached collections that are up to date.
    pub synced_resources: u64,
    /// Number of collections that are cached, or are being read.
    pub known_resources: u64,
    /// Number of cached objects, [rounded](round_count).
    pub objects: String,
    /// Time at which the oldest outdated collection was last up to date; `None` if no collection is outdated.
    pub stale_since: Option<Timestamp>,
}

impl ClusterStatus {
    /// Creates the status of one cluster from a report that was made at `now`. `before` is the previous status of the
    /// same cluster. A timestamp of `before` stays if its condition has the same value as before. `None` if the report
    /// lacks the cluster.
    pub fn from_report(report: &Report, origin: ClusterOrigin, before: Option<&Self>, now: Timestamp) -> Option<Self> {
        let cluster = report.cluster(&origin.name)?;
        let behind: Vec<_> = report.behind.iter().filter(|collection| collection.cluster == origin.name).collect();
        let before = before.filter(|before| !before.origin.is_replaced_by(&origin));
        let stale_since = stale_since(&behind, now);
        let before_stale = before.and_then(|before| before.stale_since);
        Some(Self {
            ready: ready(cluster).since(before.map(|before| &before.ready), now),
            synced: synced(cluster, &behind).since(before.map(|before| &before.synced), now),
            version: cluster.version.clone(),
            synced_resources: cluster.collections.saturating_sub(cluster.behind),
            known_resources: cluster.collections,
            objects: round_count(cluster.objects),
            stale_since: stale_since.map(|since| nearly_equal(before_stale, since).unwrap_or(since)),
            origin,
        })
    }

    /// Returns the object of the resource `clusters`. `revision` becomes the resourceVersion as a plain number.
    /// Responses to clients contain the composite resourceVersion instead.
    pub fn to_object(&self, revision: u64) -> Value {
        let ClusterOrigin { name, created, .. } = &self.origin;
        let mut metadata = json!({"name": name, "uid": self.object_uid(), "resourceVersion": revision.to_string()});
        if let Some(created) = created {
            metadata["creationTimestamp"] = json!(seconds(*created));
        }
        let mut status = json!({
            "conditions": [self.ready.to_json("Ready"), self.synced.to_json("Synced")],
            "synced": format!("{}/{}", self.synced_resources, self.known_resources),
            "syncedResources": self.synced_resources,
            "knownResources": self.known_resources,
            "objects": self.objects,
        });
        if let Some(version) = &self.version {
            status["version"] = json!(version);
        }
        if let Some(source) = &self.origin.source {
            status["source"] = source.to_json();
        }
        if let Some(since) = self.stale_since {
            status["staleSince"] = json!(seconds(since));
        }
        json!({"kind": "Cluster", "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": metadata, "status": status})
    }

    /// Returns the uid of the object: a UUID of version 8 (RFC 9562) that is computed from the name. So the uid is
    /// equal in all replicas, and does not change when a cluster answers for the first time.
    pub fn object_uid(&self) -> String {
        let mut digest = Sha256::new();
        for part in [GROUP, &self.origin.name] {
            digest.update(part);
            digest.update([0]);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.finalize()[..16]);
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

/// A condition without the time of its last change.
struct Judgement {
    status: ConditionStatus,
    reason: &'static str,
    message: String,
}

impl Judgement {
    fn since(self, before: Option<&ClusterStatusCondition>, now: Timestamp) -> ClusterStatusCondition {
        let Self { status, reason, message } = self;
        let since = before.filter(|before| before.status == status).map_or(now, |before| before.since);
        ClusterStatusCondition { status, reason, message, since }
    }
}

impl ClusterStatusCondition {
    fn to_json(&self, kind: &str) -> Value {
        json!({"type": kind, "status": self.status.as_str(), "reason": self.reason, "message": self.message,
            "lastTransitionTime": seconds(self.since)})
    }
}

/// Returns the condition `Ready`: whether the cluster answers. If the cluster answers, the reason is the reason of the
/// condition `Synced`, so that one printer column shows both conditions.
fn ready(cluster: &ClusterReport) -> Judgement {
    let (status, reason) = match cluster.condition {
        ClusterCondition::Unreachable => (ConditionStatus::False, "Unreachable"),
        ClusterCondition::Untrusted => (ConditionStatus::False, "Untrusted"),
        ClusterCondition::Unauthorized => (ConditionStatus::False, "Unauthorized"),
        ClusterCondition::NoCredentials => (ConditionStatus::False, "NoCredentials"),
        ClusterCondition::Misconfigured => (ConditionStatus::False, "Misconfigured"),
        ClusterCondition::Troubled => (ConditionStatus::False, "Troubled"),
        ClusterCondition::Pending => (ConditionStatus::Unknown, "Pending"),
        ClusterCondition::Refusing => (ConditionStatus::True, "Refusing"),
        ClusterCondition::Ready if cluster.behind > 0 => (ConditionStatus::True, "Syncing"),
        ClusterCondition::Ready => (ConditionStatus::True, "Synced"),
    };
    let message = cluster.problem.clone().or_else(|| cluster.refusal.clone()).unwrap_or_default();
    Judgement { status, reason, message }
}

fn synced(cluster: &ClusterReport, behind: &[&CollectionReport]) -> Judgement {
    let (status, reason) = match (cluster.condition, behind) {
        (ClusterCondition::Pending, _) => (ConditionStatus::Unknown, "Pending"),
        // A cluster that has never answered has no collection that could be outdated.
        (_, []) if cluster.collections == 0 && ready(cluster).status == ConditionStatus::False => {
            (ConditionStatus::Unknown, ready(cluster).reason)
        }
        (_, []) => (ConditionStatus::True, "Synced"),
        (_, behind) if behind.iter().any(|collection| collection.refused) => (ConditionStatus::False, "Refusing"),
        (_, behind) if behind.iter().any(|collection| collection.state == CollectionState::Stale) => {
            (ConditionStatus::False, "Stale")
        }
        _ => (ConditionStatus::False, "Syncing"),
    };
    let message = match behind {
        [] => String::new(),
        [only] => format!("{} is not up to date", only.resource),
        [first, rest @ ..] => format!("{} and {} more collections are not up to date", first.resource, rest.len()),
    };
    Judgement { status, reason, message }
}

fn stale_since(behind: &[&CollectionReport], now: Timestamp) -> Option<Timestamp> {
    let stale = behind.iter().filter(|collection| collection.state == CollectionState::Stale);
    let oldest = stale.map(|collection| collection.seconds).max()?;
    let age = SignedDuration::from_secs(i64::try_from(oldest).ok()?);
    now.checked_sub(age).ok()
}

fn nearly_equal(before: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    before.filter(|before| before.duration_until(now).abs() <= SAME_TIME)
}

/// Formats a time like `metav1.Time`: in UTC, in whole seconds.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Rounds a number to two digits: `42`, `~120`, `~1.2k`, `~12k`, `~3M`. Numbers below 100 are exact. A decimal zero is
/// omitted.
pub fn round_count(count: u64) -> String {
    if count < 100 {
        return count.to_string();
    }
    let mut unit = 1;
    while count / unit >= 100 {
        unit *= 10;
    }
    // `unit` is the weight of the second digit. Rounding up may add a digit: 996 becomes 1000.
    let rounded = (count.saturating_add(unit / 2) / unit).saturating_mul(unit);
    let (weight, letter) = match rounded {
        0..1_000 => (1, ""),
        1_000..1_000_000 => (1_000, "k"),
        1_000_000..1_000_000_000 => (1_000_000, "M"),
        _ => (1_000_000_000, "G"),
    };
    let (whole, tenth) = (rounded / weight, rounded % weight * 10 / weight);
    match tenth {
        0 => format!("~{whole}{letter}"),
        tenth => format!("~{whole}.{tenth}{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn origin() -> ClusterOrigin {
        let created = Some(time("2026-01-01T00:00:00Z"));
        ClusterOrigin { name: "us".into(), uid: Some("1".into()), created, source: None }
    }

    fn report(condition: ClusterCondition, behind: &[(CollectionState, u64)]) -> Report {
        let collection = |(state, seconds)| CollectionReport {
            cluster: "us".into(),
            resource: "pods".into(),
            state,
            seconds,
            objects: 8_960,
            ..CollectionReport::default()
        };
        let version = Some("v1.36.3".to_owned());
        let cluster = ClusterReport { name: "us".into(), condition, version, ..ClusterReport::default() };
        let behind = behind.iter().copied();
        let all = std::iter::once((CollectionState::Current, 0)).chain(behind).map(collection).collect();
        Report::from_parts(vec![cluster], Vec::new(), all, Vec::new())
    }

    #[test]
    fn counts_are_rounded_to_two_digits() {
        let cases = [
            (0, "0"),
            (99, "99"),
            (100, "~100"),
            (123, "~120"),
            (996, "~1k"),
            (1_234, "~1.2k"),
            (8_960, "~9k"),
            (12_345, "~12k"),
            (123_456, "~120k"),
            (999_999, "~1M"),
            (2_500_000, "~2.5M"),
            (12_000_000_000, "~12G"),
        ];
        for (count, expected) in cases {
            assert_eq!(round_count(count), expected, "{count}");
        }
        assert!(round_count(u64::MAX).ends_with('G'));
    }

    #[test]
    fn status_has_the_condition_of_the_report() {
        use ClusterCondition as C;
        let stale: &[_] = &[(CollectionState::Stale, 240)];
        let cases: [(C, &[_], _, _); 11] = [
            (C::Ready, &[], ("True", "Synced"), ("True", "Synced")),
            (C::Ready, &[(CollectionState::Unknown, 1)], ("True", "Syncing"), ("False", "Syncing")),
            (C::Refusing, &[], ("True", "Refusing"), ("True", "Synced")),
            (C::Pending, &[], ("Unknown", "Pending"), ("Unknown", "Pending")),
            (C::Unreachable, stale, ("False", "Unreachable"), ("False", "Stale")),
            (C::Untrusted, stale, ("False", "Untrusted"), ("False", "Stale")),
            (C::Unauthorized, stale, ("False", "Unauthorized"), ("False", "Stale")),
            (C::NoCredentials, stale, ("False", "NoCredentials"), ("False", "Stale")),
            (C::Misconfigured, &[], ("False", "Misconfigured"), ("True", "Synced")),
            (C::Troubled, &[], ("False", "Troubled"), ("True", "Synced")),
            (C::Ready, stale, ("True", "Syncing"), ("False", "Stale")),
        ];
        for (condition, behind, ready, synced) in cases {
            let status = ClusterStatus::from_report(&report(condition, behind), origin(), None, Timestamp::UNIX_EPOCH);
            let object = status.unwrap().to_object(7);
            let shown = |at: usize| {
                let condition = &object["status"]["conditions"][at];
                (condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
            };
            assert_eq!((shown(0), shown(1)), (ready, synced), "{condition:?}");
        }
    }

    #[test]
    fn sync_of_a_cluster_that_never_answered_is_unknown() {
        use ClusterCondition as C;
        let cases = [(C::Misconfigured, "Misconfigured"), (C::Unreachable, "Unreachable"), (C::Pending, "Pending")];
        for (condition, reason) in cases {
            let cluster = ClusterReport { name: "us".into(), condition, ..ClusterReport::default() };
            let report = Report::from_parts(vec![cluster], Vec::new(), Vec::new(), Vec::new());
            let status = ClusterStatus::from_report(&report, origin(), None, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!((status.synced.status, status.synced.reason), (ConditionStatus::Unknown, reason));
        }
    }

    #[test]
    fn transition_times_stay_while_conditions_stay() {
        let (first, later) = (time("2026-02-01T00:00:00Z"), time("2026-02-01T00:01:00Z"));
        let status = |seconds, before: Option<&ClusterStatus>, now| {
            let report = report(ClusterCondition::Unreachable, &[(CollectionState::Stale, seconds)]);
            ClusterStatus::from_report(&report, origin(), before, now).unwrap()
        };
        let before = status(240, None, first);
        assert_eq!(before.stale_since, Some(time("2026-01-31T23:56:00Z")));
        assert_eq!((before.ready.since, &*before.objects), (first, "~18k"));
        // The durations in a report are whole seconds, so a computed timestamp may differ by a second from the previous
        // one.
        assert_eq!(status(301, Some(&before), later), before);
        let other = status(300, Some(&before), later).to_object(1);
        assert_eq!(other["status"]["conditions"][0]["lastTransitionTime"], "2026-02-01T00:00:00Z");
        let ready = ClusterStatus::from_report(&report(ClusterCondition::Ready, &[]), origin(), Some(&before), later);
        let ready = ready.unwrap();
        assert_eq!((ready.ready.since, ready.stale_since), (later, None));
    }

    #[test]
    fn uid_of_a_cluster_object_stays_when_the_cluster_first_answers() {
        let uid = |origin| {
            let report = report(ClusterCondition::Ready, &[]);
            ClusterStatus::from_report(&report, origin, None, Timestamp::UNIX_EPOCH).unwrap().object_uid()
        };
        let own = uid(origin());
        assert_eq!(own, uid(ClusterOrigin { created: None, ..origin() }));
        assert_eq!(own, uid(ClusterOrigin { uid: None, ..origin() }));
        let replaced =
            |uid: Option<&str>| origin().is_replaced_by(&ClusterOrigin { uid: uid.map(str::to_owned), ..origin() });
        assert!(replaced(Some("another")) && !replaced(None) && !replaced(origin().uid.as_deref()));
        assert_eq!((own.len(), &own[14..15]), (36, "8"));
    }

    #[test]
    fn status_names_the_object_that_describes_the_cluster() {
        let shown = |source| {
            let report = report(ClusterCondition::Ready, &[]);
            let origin = ClusterOrigin { source, ..origin() };
            let status = ClusterStatus::from_report(&report, origin, None, Timestamp::UNIX_EPOCH).unwrap();
            status.to_object(1)["status"]["source"].clone()
        };
        assert_eq!(shown(None), Value::Null);
        let item = Some("Secret vela-system/eu".to_owned());
        let source = MemberSource { kind: "ClusterSource", name: "kubevela".to_owned(), item };
        let expected = json!({"kind": "ClusterSource", "name": "kubevela", "item": "Secret vela-system/eu"});
        assert_eq!(shown(Some(source)), expected);
    }

    #[test]
    fn status_of_a_missing_cluster_is_none() {
        let missing = ClusterOrigin { name: "eu".into(), ..ClusterOrigin::default() };
        let report = report(ClusterCondition::Ready, &[]);
        assert!(ClusterStatus::from_report(&report, missing, None, Timestamp::UNIX_EPOCH).is_none());
    }
}
