//! The Lease of the writer of status in the hub. As in client-go's `tools/leaderelection`, a candidate measures the age
//! of a renewal from its own observation, so the clocks of replicas may differ.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::{HubClient, HubError, Leadership};

/// The name of the Lease.
pub(crate) const LEASE_NAME: &str = "tributary-status";

/// Time without a renewal after which another replica may take the Lease.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Time from the last renewal during which the holder may write. 5 s shorter than [`LEASE_DURATION`], so that a write
/// in flight ends before another replica begins.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// Interval of attempts to take or renew the Lease. Also the time limit of an attempt.
pub(crate) const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// The next step of a candidate.
#[derive(Debug, PartialEq)]
enum LeaseStep {
    /// The Lease does not exist: create it.
    Create(Value),
    /// The Lease is free, expired or held by this candidate: replace it.
    Replace(Value),
    /// A different replica holds the Lease.
    Wait,
}

/// A candidate for the Lease.
pub struct LeaseCandidate {
    namespace: String,
    identity: String,
    /// The holder and the renewal time of the Lease, and the time at which this candidate first saw them.
    observed: Option<(Value, Instant)>,
    /// End of this candidate's right to write.
    held_until: watch::Sender<Option<Instant>>,
}

impl LeaseCandidate {
    /// Creates a candidate. `identity` must differ from the identities of all other replicas.
    pub fn new(namespace: String, identity: String) -> Self {
        Self { namespace, identity, observed: None, held_until: watch::Sender::new(None) }
    }

    /// Returns the time for which this candidate may still write; `None` if it does not hold the Lease.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        self.held_until
            .borrow()
            .and_then(|end| end.checked_duration_since(now))
            .filter(|remaining| !remaining.is_zero())
    }

    /// Returns the right to write, for other writers of this replica that use the same Lease.
    pub fn leadership(&self) -> Leadership {
        Leadership(self.held_until.subscribe())
    }

    /// Tries to take or renew the Lease.
    ///
    /// # Errors
    /// [`HubError`]. The candidate keeps the Lease until its last renewal expires.
    pub(crate) async fn attempt(&mut self, client: &HubClient) -> Result<(), HubError> {
        let begun = Instant::now();
        match timeout(RETRY_PERIOD, self.exchange(client)).await {
            Ok(Ok(true)) => {
                self.held_until.send_replace(Some(begun + RENEW_DEADLINE));
                Ok(())
            }
            Ok(Ok(false)) => {
                self.held_until.send_replace(None);
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(HubError::Unreachable("no answer to the request for the Lease".to_owned())),
        }
    }

    /// Removes this candidate from the Lease. A different replica then takes the Lease at once.
    pub(crate) async fn release(&mut self, client: &HubClient) -> Result<(), HubError> {
        if self.held_until.send_replace(None).is_none() {
            return Ok(());
        }
        let mut lease = client.get(&self.path()).await?;
        if lease["spec"]["holderIdentity"] == json!(self.identity) {
            lease["spec"]["holderIdentity"] = json!("");
            client.send(Method::PUT, &self.path(), "application/json", Some(&lease)).await?;
        }
        Ok(())
    }

    async fn exchange(&mut self, client: &HubClient) -> Result<bool, HubError> {
        let present = match client.get(&self.path()).await {
            Ok(lease) => Some(lease),
            Err(error) if error.code() == Some(404) => None,
            Err(error) => return Err(error),
        };
        let (method, path, lease) = match self.step(present, Instant::now()) {
            LeaseStep::Wait => return Ok(false),
            LeaseStep::Create(lease) => (Method::POST, self.collection(), lease),
            LeaseStep::Replace(lease) => (Method::PUT, self.path(), lease),
        };
        match client.send(method, &path, "application/json", Some(&lease)).await {
            Ok(_) => Ok(true),
            // Another replica was faster.
            Err(error) if error.code() == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{LEASE_NAME}", self.collection())
    }

    /// Decides the next step from the present Lease. The renewal time of another holder is only compared with its last
    /// value, never interpreted, because the clocks of replicas may differ.
    fn step(&mut self, present: Option<Value>, now: Instant) -> LeaseStep {
        let renewed = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let Some(mut lease) = present else {
            return LeaseStep::Create(json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": LEASE_NAME, "namespace": self.namespace},
                "spec": self.spec(&renewed, &renewed, 0),
            }));
        };
        let spec = &lease["spec"];
        let record = json!([spec["holderIdentity"], spec["renewTime"]]);
        let seen = match &self.observed {
            Some((before, seen)) if *before == record => *seen,
            _ => now,
        };
        self.observed = Some((record, seen));
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        let is_own = holder == self.identity;
        if !is_own && !holder.is_empty() && now.duration_since(seen) < LEASE_DURATION {
            return LeaseStep::Wait;
        }
        let transitions = spec["leaseTransitions"].as_u64().unwrap_or_default() + u64::from(!is_own);
        let acquired = spec["acquireTime"].as_str().filter(|_| is_own).unwrap_or(&renewed).to_owned();
        lease["spec"] = self.spec(&acquired, &renewed, transitions);
        LeaseStep::Replace(lease)
    }

    fn spec(&self, acquired: &str, renewed: &str, transitions: u64) -> Value {
        json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_DURATION.as_secs(),
            "acquireTime": acquired,
            "renewTime": renewed,
            "leaseTransitions": transitions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(identity: &str) -> LeaseCandidate {
        LeaseCandidate::new("tributary-system".to_owned(), identity.to_owned())
    }

    fn written(step: LeaseStep) -> Value {
        match step {
            LeaseStep::Create(lease) | LeaseStep::Replace(lease) => lease,
            LeaseStep::Wait => panic!("the candidate waits"),
        }
    }

    #[test]
    fn second_candidate_takes_the_lease_only_after_it_stayed_unchanged_for_15_seconds() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut first, mut second) = (candidate("a"), candidate("b"));
        let lease = written(first.step(None, at(0)));
        assert_eq!(lease["spec"]["holderIdentity"], "a");
        // The clock of the second replica is an hour ahead, which does not matter.
        let mut old = lease.clone();
        old["spec"]["renewTime"] = json!("2001-01-01T00:00:00.000000Z");
        assert_eq!(second.step(Some(old.clone()), at(1)), LeaseStep::Wait);
        assert_eq!(second.step(Some(old.clone()), at(15)), LeaseStep::Wait);
        old["spec"]["renewTime"] = json!("2001-01-01T00:00:02.000000Z");
        assert_eq!(second.step(Some(old.clone()), at(15)), LeaseStep::Wait, "the first replica has renewed the Lease");
        assert_eq!(second.step(Some(old.clone()), at(29)), LeaseStep::Wait);
        let taken = written(second.step(Some(old), at(30)));
        assert_eq!((&taken["spec"]["holderIdentity"], &taken["spec"]["leaseTransitions"]), (&json!("b"), &json!(1)));
        assert_eq!(first.step(Some(taken.clone()), at(31)), LeaseStep::Wait, "the first replica has lost the Lease");
        let renewed = written(second.step(Some(taken.clone()), at(32)));
        assert_eq!(renewed["spec"]["leaseTransitions"], 1);
        assert_eq!(renewed["spec"]["acquireTime"], taken["spec"]["acquireTime"]);
    }

    #[test]
    fn released_lease_is_taken_at_once() {
        let mut lease = written(candidate("a").step(None, Instant::now()));
        lease["spec"]["holderIdentity"] = json!("");
        let taken = written(candidate("b").step(Some(lease), Instant::now()));
        assert_eq!(taken["spec"]["holderIdentity"], "b");
    }

    #[tokio::test(start_paused = true)]
    async fn holder_stops_to_write_10_seconds_after_its_last_renewal() {
        let holder = candidate("a");
        assert_eq!(holder.remaining(Instant::now()), None);
        holder.held_until.send_replace(Some(Instant::now() + RENEW_DEADLINE));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(holder.remaining(Instant::now()), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(holder.remaining(Instant::now()), None);
    }
}
