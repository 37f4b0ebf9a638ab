//! Writes the status of the hub's objects. The holder of the Lease writes for all replicas.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tributary_crds::{GROUP, VERSION};
use tributary_router::Report;

use crate::collections::PresentStatus;
use crate::lease::{LeaseCandidate, RETRY_PERIOD};
use crate::status::{DesiredStatus, LastWrite, MemberState, ObjectState, format_time};
use crate::write_limits::{REFUSED_INTERVAL, WRITE_INTERVAL, WRITE_TIMEOUT, no_answer};
use crate::{HubClient, HubCollections, HubError, ObjectReference, Publisher, Verdict};

/// Returns the present report of all clusters.
pub type ReadReport = Box<dyn Fn() -> BoxFuture<'static, Report> + Send + Sync>;

/// A write that returns the object in the hub's answer.
type PendingWrite = BoxFuture<'static, Result<Value, HubError>>;

/// Writes the status of the hub's objects while this replica holds the Lease.
pub struct StatusWriter {
    pub(crate) client: Arc<HubClient>,
    pub(crate) collections: Arc<HubCollections>,
    pub(crate) verdicts: watch::Receiver<Arc<[Verdict]>>,
    pub(crate) candidate: LeaseCandidate,
    pub(crate) record: WriteRecord,
    /// Publishes the members; `None` if nothing is published.
    pub(crate) publisher: Option<Publisher>,
}

impl StatusWriter {
    /// Adds a publisher, whose writes follow those of the status.
    pub fn with_publisher(self, publisher: Option<Publisher>) -> Self {
        Self { publisher, ..self }
    }

    /// Writes until `stop` is cancelled, and then gives the Lease up. Never fails: after an error, the next attempt
    /// follows after 2 s.
    pub async fn run(mut self, read_report: ReadReport, stop: CancellationToken) {
        let mut ticks = interval(RETRY_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut problem = None;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let Some(attempt) = stop.run_until_cancelled(self.candidate.attempt(&self.client)).await else { break };
            let now = attempt.err().map(|error| error.to_string());
            match (&now, &problem) {
                (Some(_), before) if now != *before => {
                    tracing::warn!(problem = now, "the Lease tributary-status cannot be read or renewed");
                }
                (None, Some(_)) => tracing::info!("the Lease tributary-status can be read and renewed again"),
                _ => {}
            }
            problem = now;
            if self.candidate.remaining(Instant::now()).is_none() {
                // Without the Lease, another replica may write, so the recorded writes become outdated.
                self.record.written.clear();
                if let Some(publisher) = &mut self.publisher {
                    publisher.pause();
                }
            } else {
                stop.run_until_cancelled(async {
                    let report = read_report().await;
                    self.write_due(&report).await;
                    if let Some(publisher) = &mut self.publisher {
                        let is_complete = self.verdicts.borrow().iter().all(Verdict::has_known_members);
                        publisher.write_due(&report, is_complete, &self.candidate.leadership()).await;
                    }
                })
                .await;
            }
        }
        if let Err(error) = self.candidate.release(&self.client).await {
            tracing::info!(%error, "the Lease tributary-status was not given up; another replica takes it after 15 s");
        }
    }

    /// Writes the status of objects that are due, until the Lease must be renewed.
    async fn write_due(&mut self, report: &Report) {
        let now = Timestamp::now();
        let verdicts = Arc::clone(&self.verdicts.borrow_and_update());
        let (client, candidate, collections) = (&self.client, &self.candidate, &self.collections);
        let statuses = verdicts.iter().filter_map(|verdict| {
            let present = collections.status_of(&verdict.object)?;
            let (name, source) = (&verdict.object.name, &verdict.source);
            let state = ObjectState {
                member: MemberState::from_report(report, name, now),
                source: source.as_ref().map(|_| collections.source_condition(name)),
            };
            Some((DesiredStatus::render(verdict, &state, &present.status), present))
        });
        let write = |desired: &DesiredStatus, present: &PresentStatus| {
            // Each write checks the Lease first.
            let remaining = candidate.remaining(Instant::now())?;
            Some(write(Arc::clone(client), desired, present, remaining.min(WRITE_TIMEOUT)))
        };
        self.record.write_round(statuses, write).await;
    }
}

/// The writes of this process.
#[derive(Default)]
pub(crate) struct WriteRecord {
    /// The last write to each object, by the uid of the object.
    written: HashMap<String, LastWrite>,
    /// The time of the refusal of each refused write, by the uid of the object.
    refused: HashMap<String, Instant>,
}

impl WriteRecord {
    /// Writes the statuses that are due: changed conditions first, then by the time of the last write, so that a large
    /// number of objects delays no object without end. `write` returns `None` without the Lease. The round ends after
    /// [`RETRY_PERIOD`], because the Lease must be renewed.
    async fn write_round(
        &mut self,
        statuses: impl Iterator<Item = (DesiredStatus, PresentStatus)>,
        mut write: impl FnMut(&DesiredStatus, &PresentStatus) -> Option<PendingWrite>,
    ) {
        let begun = Instant::now();
        self.refused.retain(|_, at| begun.duration_since(*at) < REFUSED_INTERVAL);
        for (desired, present) in self.due(statuses, begun) {
            let (object, now) = (desired.object.clone(), Instant::now());
            let Some(pending) = write(&desired, &present) else { return };
            match pending.await {
                Ok(mut answer) => {
                    let is_changed = answer["metadata"]["resourceVersion"] != json!(present.resource_version);
                    let replaced_version = is_changed.then_some(present.resource_version);
                    let answered = answer["status"].take();
                    self.written.insert(object.uid, LastWrite::new(&desired, &answered, now, replaced_version));
                }
                // The object was deleted, deleted and made anew, or changed since the snapshot.
                Err(error) if matches!(error.code(), Some(404 | 409)) => {}
                Err(HubError::Unreachable(_)) => return,
                Err(error) => {
                    let (kind, name) = (object.kind.as_str(), &object.name);
                    tracing::warn!(kind, name, %error, "the hub refuses the status of an object");
                    self.refused.insert(object.uid, now);
                }
            }
            sleep(WRITE_INTERVAL).await;
            if begun.elapsed() >= RETRY_PERIOD {
                return;
            }
        }
    }

    /// Returns the statuses that are due, in the order of writes. Forgets the writes to absent objects.
    fn due(
        &mut self,
        statuses: impl Iterator<Item = (DesiredStatus, PresentStatus)>,
        now: Instant,
    ) -> Vec<(DesiredStatus, PresentStatus)> {
        let (mut due, mut before) = (Vec::new(), std::mem::take(&mut self.written));
        for (desired, present) in statuses {
            let uid = desired.object.uid.clone();
            let last = before.remove(&uid);
            let urgency = desired.urgency(&present, last.as_ref(), now);
            if let Some(urgency) = urgency.filter(|_| !self.refused.contains_key(&uid)) {
                due.push(((urgency, last.as_ref().map(|last| last.at)), desired, present));
            }
            self.written.extend(last.map(|last| (uid, last)));
        }
        due.sort_by_key(|(order, ..)| *order);
        due.into_iter().map(|(_, desired, present)| (desired, present)).collect()
    }
}

/// Sends a server-side apply, and returns the object in the answer. Conditions of other writers stay.
fn write(
    client: Arc<HubClient>,
    desired: &DesiredStatus,
    present: &PresentStatus,
    time_limit: Duration,
) -> PendingWrite {
    let ObjectReference { kind, name, .. } = &desired.object;
    let path = format!("/apis/{GROUP}/{VERSION}/{}/{name}/status?fieldManager=tributary&force=true", kind.plural());
    let mut body = desired.apply_body(&present.status, &format_time(Timestamp::now()));
    // With this resourceVersion, the hub answers 409 if the object was changed, or replaced by a new object of the same
    // name. The next round writes again.
    body["metadata"]["resourceVersion"] = json!(present.resource_version);
    async move {
        let sent = client.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(&body));
        timeout(time_limit, sent).await.unwrap_or_else(|_| Err(no_answer()))
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{ConditionState, HubKind};

    const MEMBERS: usize = 200;

    /// A hub that stores each write.
    #[derive(Default)]
    struct Hub {
        /// The status and the version of each object.
        objects: BTreeMap<String, (Value, u64)>,
        writes: Vec<(String, Instant)>,
    }

    impl Hub {
        fn present(&self, name: &str) -> PresentStatus {
            let (status, version) = self.objects.get(name).cloned().unwrap_or_default();
            PresentStatus { status, resource_version: version.to_string() }
        }

        fn apply(&mut self, desired: &DesiredStatus, present: &PresentStatus) -> Option<PendingWrite> {
            let name = desired.object.name.clone();
            let status = desired.apply_body(&present.status, "2026-01-01T00:00:00Z")["status"].clone();
            let version = self.objects.get(&name).map_or(0, |(_, version)| *version) + 1;
            self.objects.insert(name.clone(), (status.clone(), version));
            self.writes.push((name, Instant::now()));
            let answer = json!({"metadata": {"resourceVersion": version.to_string()}, "status": status});
            Some(std::future::ready(Ok(answer)).boxed())
        }
    }

    fn verdict(index: usize, reason: &str) -> Verdict {
        let name = format!("member-{index:03}");
        let object = ObjectReference { kind: HubKind::UpstreamCluster, uid: name.clone(), name, generation: 1 };
        let accepted = ConditionState::failed(reason, "");
        Verdict { object, accepted, resolved_refs: None, indexed: None, generation_in_force: Some(1), source: None }
    }

    /// 10,000 changes per second: 200 objects change 50 times per second.
    #[tokio::test(start_paused = true)]
    async fn many_changes_cause_at_most_five_writes_per_second_and_each_object_has_its_turn() {
        let (mut record, mut hub, mut ticks) = (WriteRecord::default(), Hub::default(), interval(RETRY_PERIOD));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(100) {
            ticks.tick().await;
            let change = format!("Change{}", begun.elapsed().as_millis() / 20);
            let statuses = (0..MEMBERS).map(|index| {
                let present = hub.present(&format!("member-{index:03}"));
                (DesiredStatus::render(&verdict(index, &change), &ObjectState::default(), &present.status), present)
            });
            record
                .write_round(statuses.collect::<Vec<_>>().into_iter(), |desired, present| hub.apply(desired, present))
                .await;
        }
        for window in hub.writes.windows(6) {
            assert!(window[5].1 - window[0].1 >= Duration::from_secs(1), "{window:?}");
        }
        let mut counts = BTreeMap::<&str, usize>::new();
        hub.writes.iter().for_each(|(name, _)| *counts.entry(name).or_default() += 1);
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(counts.len() == MEMBERS && most - least <= 1, "{counts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn changed_conditions_are_written_before_other_values() {
        let (mut record, mut hub) = (WriteRecord::default(), Hub::default());
        let all = |hub: &Hub, reason: &dyn Fn(usize) -> &'static str| -> Vec<_> {
            let statuses = (0..8).map(|index| {
                let present = hub.present(&format!("member-{index:03}"));
                (
                    DesiredStatus::render(&verdict(index, reason(index)), &ObjectState::default(), &present.status),
                    present,
                )
            });
            statuses.collect()
        };
        record.write_round(all(&hub, &|_| "First").into_iter(), |desired, present| hub.apply(desired, present)).await;
        assert_eq!(hub.writes.len(), 8);
        // A foreign writer changes the messages of all objects. Only the last object gets a new condition.
        for (status, version) in hub.objects.values_mut() {
            status["conditions"][0]["message"] = json!("changed");
            *version += 1;
        }
        hub.writes.clear();
        tokio::time::advance(Duration::from_secs(60)).await;
        let second = all(&hub, &|index| if index == 7 { "Second" } else { "First" });
        record.write_round(second.into_iter(), |desired, present| hub.apply(desired, present)).await;
        let names: Vec<&str> = hub.writes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names.len(), names[0], names[1]), (8, "member-007", "member-000"));
    }

    #[tokio::test(start_paused = true)]
    async fn refused_write_is_repeated_after_a_minute() {
        let (mut record, mut attempts) = (WriteRecord::default(), 0);
        for pause in [0, 30, 29, 2] {
            tokio::time::advance(Duration::from_secs(pause)).await;
            let present = PresentStatus { status: Value::Null, resource_version: "1".to_owned() };
            let statuses =
                vec![(DesiredStatus::render(&verdict(0, "First"), &ObjectState::default(), &Value::Null), present)];
            let refusal = HubError::Refused { code: 403, reason: "Forbidden".to_owned(), message: String::new() };
            let refuse = |_: &DesiredStatus, _: &PresentStatus| -> Option<PendingWrite> {
                attempts += 1;
                Some(std::future::ready(Err(refusal.clone())).boxed())
            };
            record.write_round(statuses.into_iter(), refuse).await;
        }
        assert_eq!(attempts, 2);
    }
}
