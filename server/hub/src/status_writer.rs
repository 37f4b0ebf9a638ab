//! Writes the status of the hub's objects. The holder of the Lease writes for all replicas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::Method;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tributary_crds::{GROUP, VERSION};
use tributary_router::report::ClusterReport;

use crate::collections::PresentStatus;
use crate::lease::{LeaseCandidate, RETRY_PERIOD};
use crate::status::{DesiredStatus, LastWrite};
use crate::{HubClient, HubCollections, HubError, ObjectReference, Verdict};

/// Least time between two writes: at most five writes per second.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);

/// Time limit of a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// Time after which a refused write is repeated.
const REFUSED_INTERVAL: Duration = Duration::from_secs(60);

/// Returns the present reports of all clusters.
pub type ReadReports = Box<dyn Fn() -> BoxFuture<'static, Vec<ClusterReport>> + Send + Sync>;

/// Writes the status of the hub's objects while this replica holds the Lease.
pub struct StatusWriter {
    pub(crate) client: Arc<HubClient>,
    pub(crate) collections: Arc<HubCollections>,
    pub(crate) verdicts: watch::Receiver<Vec<Verdict>>,
    pub(crate) candidate: LeaseCandidate,
    pub(crate) written: BTreeMap<ObjectReference, LastWrite>,
    pub(crate) refused: BTreeMap<String, Instant>,
}

impl StatusWriter {
    /// Writes until `stop` is cancelled, and then gives the Lease up. Never fails: a hub out of contact is tried again.
    pub async fn run(mut self, read_reports: ReadReports, stop: CancellationToken) {
        let mut ticks = interval(RETRY_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut problem = None;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let Some(attempt) = stop.run_until_cancelled(self.candidate.attempt(&self.client)).await else { break };
            let now = attempt.err().map(|error| error.to_string());
            if now.is_some() && now != problem {
                tracing::warn!(problem = now, "the Lease of the status writer is out of reach");
            }
            problem = now;
            if self.candidate.remaining(Instant::now()).is_none() {
                // Another replica may write meanwhile.
                self.written.clear();
            } else {
                stop.run_until_cancelled(async { self.write_due(read_reports().await).await }).await;
            }
        }
        if let Err(error) = self.candidate.release(&self.client).await {
            tracing::info!(%error, "the Lease of the status writer was not given up; another replica takes it after 15 s");
        }
    }

    /// Writes the status of each object that is due. Stops when the Lease must be renewed.
    async fn write_due(&mut self, reports: Vec<ClusterReport>) {
        let reports: BTreeMap<String, ClusterReport> =
            reports.into_iter().map(|report| (report.name.clone(), report)).collect();
        let verdicts = self.verdicts.borrow_and_update().clone();
        let begun = Instant::now();
        self.written.retain(|object, _| verdicts.iter().any(|verdict| verdict.object.uid == object.uid));
        for verdict in verdicts {
            let Some(present) = self.collections.status_of(&verdict.object) else { continue };
            let report = reports.get(&verdict.object.name);
            let desired = DesiredStatus::render(&verdict, report, &present.status);
            let key = ObjectReference { generation: 0, ..verdict.object };
            let now = Instant::now();
            let is_refused = self.refused.get(&key.uid).is_some_and(|at| now.duration_since(*at) < REFUSED_INTERVAL);
            if is_refused || !desired.is_due(&present.status, self.written.get(&key), now) {
                continue;
            }
            // Each write checks the Lease first.
            let Some(remaining) = self.candidate.remaining(now) else { return };
            match timeout(remaining.min(WRITE_TIMEOUT), self.write(&desired, &present)).await {
                Ok(Ok(())) => {
                    self.written.insert(key, LastWrite { status: desired, at: now });
                }
                // The object was deleted, or deleted and made anew.
                Ok(Err(error)) if matches!(error.code(), Some(404 | 409)) => {}
                Ok(Err(HubError::Unreachable(_))) | Err(_) => return,
                Ok(Err(error)) => {
                    let (kind, name) = (key.kind.as_str(), &key.name);
                    tracing::warn!(kind, name, %error, "the hub refuses the status of an object");
                    self.refused.insert(key.uid, now);
                }
            }
            sleep(WRITE_INTERVAL).await;
            if begun.elapsed() >= RETRY_PERIOD {
                return;
            }
        }
    }

    /// Sends a server-side apply. It leaves the conditions of other writers unchanged.
    async fn write(&self, desired: &DesiredStatus, present: &PresentStatus) -> Result<(), HubError> {
        let ObjectReference { kind, name, .. } = &desired.object;
        let path = format!("/apis/{GROUP}/{VERSION}/{}/{name}/status?fieldManager=tributary&force=true", kind.plural());
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut body = desired.apply_body(&present.status, &now);
        // The version keeps the status away from a new object of the same name. A change in between causes a 409, and
        // the next round writes again.
        body["metadata"]["resourceVersion"] = json!(present.resource_version);
        self.client.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(&body)).await.map(drop)
    }
}
