//! Detection of the method by which a cluster's rights are decided: mirrored roles and bindings, or access reviews.
//! Tributary sends reviews to each endpoint every minute, and also after new connections. If roles do not decide, the
//! detection only checks whether the cluster answers access reviews.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::Guard;
use futures::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tributary_apimachinery::{ClusterAuthorization, ClusterName, NOBODY, UserInfo};
use tributary_authorization::{Attributes, FleetRights, RbacKind, ResourceAttributes, Sample};
use tributary_fleet::topology::Cluster;
use tributary_proxy::{ClusterClient, Transport, nearest_tick};

use super::access_review::{self, AccessReviewError};
use super::decider::{ClusterFacts, Decider, Evidence, OPENSHIFT, ReviewCause, decide};
use super::rounds::{CONNECTIONS_INTERVAL, INTERVAL, UNANSWERED_MAX, well};

/// Delay before a difference between mirror and cluster is checked again. 2 s: the mirror and the kube-apiserver each
/// follow roles and bindings by watches, about one second late.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
const DETECTIONS_MAX: usize = 3;

/// Number of sample requests in one detection. At most `SAMPLES_AT_ONCE` of their reviews are sent at the same time.
const SAMPLES: usize = 20;
const SAMPLES_AT_ONCE: usize = 4;

/// Namespace for which the cluster's rules of Tributary's account are compared with the mirror. Each cluster has this
/// namespace.
const NAMESPACE: &str = "default";

/// Source of the mirrored roles and bindings, and receiver of the detected method.
pub(super) trait MirroredRules: Send + Sync + 'static {
    /// Subscribes to changes of roles and bindings. The end of their first read is also a change.
    fn changes(&self) -> watch::Receiver<u64>;

    fn has_read(&self, cluster: &Arc<Cluster>) -> bool;

    fn compiled(&self) -> Guard<Arc<FleetRights>>;

    /// Returns up to `count` requests that a cluster's roles and bindings allow, each by a different binding. Each
    /// `round` gives different requests.
    fn samples(&self, cluster: &ClusterName, count: usize, round: usize) -> Vec<Sample>;

    fn set_decider(&self, cluster: &Arc<Cluster>, decider: Decider);
}

struct Detector {
    mirror: Weak<dyn MirroredRules>,
    cluster: Arc<Cluster>,
    client: ClusterClient,
}

/// Starts the detection for a cluster. It runs until the returned guard is dropped. Must be called within a tokio
/// runtime.
pub(super) fn start(mirror: Weak<dyn MirroredRules>, cluster: &Arc<Cluster>) -> Option<DropGuard> {
    let client = cluster.setup.client.as_ref().ok()?.clone();
    let detector = Detector { mirror, cluster: Arc::clone(cluster), client };
    let stop = CancellationToken::new();
    tokio::spawn(stop.clone().run_until_cancelled_owned(detector.run()));
    Some(stop.drop_guard())
}

impl Detector {
    async fn run(self) {
        let (mut round, mut refuted, mut answered) = (0, Vec::new(), Instant::now());
        loop {
            let (begun, connections) = (Instant::now(), self.client.connections_made());
            if !self.wait_until_read().await {
                return;
            }
            // The detection needs the cluster's discovery documents, which may arrive after the roles and bindings.
            self.cluster.asked_once().await;
            let found = self.found(round, &mut refuted).await;
            let Some(mirror) = self.mirror.upgrade() else { return };
            match found {
                Ok(decider) => {
                    answered = Instant::now();
                    round += 1;
                    mirror.set_decider(&self.cluster, decider);
                }
                // An unreachable cluster answers no review. Its method stays, because the age of the mirrored roles
                // already limits the rights.
                Err(_) if self.cluster.is_out_of_reach() => answered = Instant::now(),
                Err(_) if answered.elapsed() >= UNANSWERED_MAX => {
                    mirror.set_decider(&self.cluster, Decider::Review(ReviewCause::Unanswered));
                }
                Err(_) => {}
            }
            drop(mirror);
            let pause = if found_nothing(answered, begun) { CONNECTIONS_INTERVAL } else { INTERVAL };
            // The timer may fire a little early. So the pause ends if less than half a check interval is left.
            while begun.elapsed() + CONNECTIONS_INTERVAL / 2 < pause && self.client.connections_made() == connections {
                sleep_until(nearest_tick(Instant::now() + CONNECTIONS_INTERVAL)).await;
            }
        }
    }

    /// Waits until the mirror has read the roles and bindings. Returns false after the mirror is dropped.
    async fn wait_until_read(&self) -> bool {
        loop {
            let Some(mirror) = self.mirror.upgrade() else { return false };
            let mut changes = mirror.changes();
            if mirror.has_read(&self.cluster) {
                return true;
            }
            drop(mirror);
            if changes.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Detects the method of the cluster. Repeats the reviews while a delay of the mirror can explain a difference.
    /// `refuted` contains the samples that the cluster denied in the previous detection, and then the samples that it
    /// denied now.
    async fn found(&self, round: usize, refuted: &mut Vec<Sample>) -> Result<Decider, AccessReviewError> {
        let mut detections = 0;
        loop {
            let found = self.detect_decider(round, refuted).await?;
            detections += 1;
            match &found {
                Decider::Review(cause) if cause.may_be_of_delay() && detections < DETECTIONS_MAX => {
                    sleep(AGAIN_AFTER).await
                }
                _ => return Ok(found),
            }
        }
    }

    async fn detect_decider(&self, round: usize, refuted: &mut Vec<Sample>) -> Result<Decider, AccessReviewError> {
        let found = match self.settled()? {
            // The result of the review does not matter. The review only shows whether the cluster answers reviews.
            Some(cause) => denied_sample(self.client.transport(), unknown_user()).await.map(|_| Decider::Review(cause)),
            None => self.evidence(round, refuted).await.map(|evidence| decide(&evidence)),
        };
        match found {
            Ok(decider) => Ok(decider),
            Err(AccessReviewError::ReviewsForbidden { resource, code }) => {
                Ok(Decider::Review(ReviewCause::ReviewsForbidden { resource, code }))
            }
            Err(AccessReviewError::Unavailable) => Err(AccessReviewError::Unavailable),
        }
    }

    fn settled(&self) -> Result<Option<ReviewCause>, AccessReviewError> {
        if self.cluster.setup.authorization == ClusterAuthorization::Review {
            return Ok(Some(ReviewCause::Configured));
        }
        let discovery = self.cluster.discovery().ok_or(AccessReviewError::Unavailable)?;
        let serves_openshift = discovery.named.items.iter().any(|group| group.metadata.name == OPENSHIFT);
        Ok(ClusterFacts { serves_openshift, has_base_path: self.client.has_base_path() }.cause())
    }

    async fn evidence(&self, round: usize, refuted: &mut Vec<Sample>) -> Result<Evidence, AccessReviewError> {
        let account = access_review::own_account(self.client.transport()).await?;
        let endpoints = well(&self.client.endpoints());
        let mut reviews = Vec::new();
        for endpoint in &endpoints {
            reviews.push(access_review::own_rules(self.client.transport_to(*endpoint), NAMESPACE).await?);
        }
        let (mirrored, may_read_roles, samples) = {
            let mirror = self.mirror.upgrade().ok_or(AccessReviewError::Unavailable)?;
            let (compiled, name) = (mirror.compiled(), self.cluster.name());
            let may_read = RbacKind::ALL.into_iter().all(|kind| {
                let (group, resource) = (RbacKind::GROUP, kind.resource());
                let attributes = ResourceAttributes { verb: "list", group, resource, ..ResourceAttributes::default() };
                compiled.allows(name, &account, &Attributes::Resource(attributes))
            });
            let mirrored = compiled.rules(name, &account, NAMESPACE).into_iter().cloned().collect();
            let is_allowed =
                |sample: &Sample| compiled.allows(name, &sample.user, &Attributes::Resource(sample.attributes()));
            let samples = choose_samples(refuted.as_slice(), mirror.samples(name, SAMPLES, round), is_allowed);
            (mirrored, may_read, samples)
        };
        let places = endpoints.iter().copied().cycle();
        let questions =
            samples.into_iter().zip(places).map(|(sample, at)| denied_sample(self.client.transport_to(at), sample));
        let questions: Vec<_> = questions.collect();
        // `buffered` keeps the order of the samples, so the first refuted sample is the reported reason.
        let mut answers = stream::iter(questions).buffered(SAMPLES_AT_ONCE);
        let mut not_allowed = Vec::new();
        while let Some(answer) = answers.next().await {
            not_allowed.extend(answer?);
        }
        *refuted = not_allowed;
        let open = denied_sample(self.client.transport(), unknown_user()).await?.is_none().then(unknown_user);
        Ok(Evidence { may_read_roles, mirrored, reviews, refuted: refuted.first().cloned(), open })
    }
}

/// Selects the samples. The first ones are the samples that the cluster denied in the previous detection, if roles and
/// bindings still allow them. So roles decide again only after the cluster allows the same requests that it denied.
fn choose_samples(refuted: &[Sample], others: Vec<Sample>, is_allowed: impl Fn(&Sample) -> bool) -> Vec<Sample> {
    let mut chosen: Vec<_> = refuted.iter().filter(|sample| is_allowed(sample)).cloned().collect();
    for sample in others {
        if !chosen.contains(&sample) {
            chosen.push(sample);
        }
    }
    chosen.truncate(SAMPLES);
    chosen
}

async fn denied_sample(transport: Transport, sample: Sample) -> Result<Option<Sample>, AccessReviewError> {
    let allowed = access_review::access(transport, &sample.user, &Attributes::Resource(sample.attributes())).await?;
    Ok((!allowed).then_some(sample))
}

/// A request that no role allows, by a user without roles.
fn unknown_user() -> Sample {
    Sample {
        user: UserInfo::with_groups(NOBODY, &[]),
        verb: "get".to_owned(),
        group: String::new(),
        resource: "secrets".to_owned(),
        subresource: String::new(),
        namespace: NAMESPACE.to_owned(),
        name: String::new(),
    }
}

/// Returns whether the cluster has not answered since the reviews were sent at `begun`.
fn found_nothing(answered: Instant, begun: Instant) -> bool {
    answered < begun
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_requests_that_the_cluster_denied_are_reviewed_first() {
        let sample = |user: &str| Sample { user: UserInfo::with_groups(user, &[]), ..unknown_user() };
        let others = |count: usize| (0..count).map(|number| sample(&number.to_string())).collect::<Vec<_>>();
        let [refuted, withdrawn] = ["refuted", "gone"].map(sample);
        let chosen =
            choose_samples(&[refuted.clone(), withdrawn.clone(), sample("1")], others(3), |own| *own != withdrawn);
        assert_eq!(chosen, [refuted.clone(), sample("1"), sample("0"), sample("2")]);
        let chosen = choose_samples(std::slice::from_ref(&refuted), others(SAMPLES), |_| true);
        assert_eq!((chosen.len(), &chosen[0]), (SAMPLES, &refuted));
        assert_eq!(choose_samples(&[], others(2), |_| false), others(2));
    }
}
