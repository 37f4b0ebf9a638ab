//! The addresses of one member, and which of them a request goes to.
//!
//! A request goes to the endpoint that has the fewest of its kind in flight, so that watches and short requests spread
//! each for themselves and a slow endpoint gets less. An endpoint that cannot be reached is left out until it answers the
//! question whether it is ready (`checks.rs`), so that no request has to try it. One that answers with errors by its own
//! fault is the last choice (`outlier.rs`), and gets its share back little by little.
//! Where nothing is known to be well, all are tried at once.
//!
//! tower's `Balance` would have every request pass through one task (it needs `&mut self`), asks services whether they
//! are ready where ours open connections as they are needed, and forgets one that fails. With the few endpoints that a
//! cluster has, a look at each one's counter is as cheap as its choice of two, and takes the better one always.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::Uri;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, timeout};
use tributary_apimachinery::ClusterName;

use crate::destination::Destination;
use crate::endpoint::{Endpoint, EndpointRequest, EndpointStatus};
use crate::error::ForwardError;
use crate::left_out::LeftOut;
use crate::pool::LaneKind;
use crate::reachability::{Observer, Reachability, ReachabilityState};

/// How long a request waits for a connection to one endpoint while another may have one. Longer than the handshakes
/// with a member on another continent take; a client waits that long once, after which the endpoint is left out.
const PATIENCE: Duration = Duration::from_secs(1);

/// All addresses of one member; at least one.
pub(crate) struct Endpoints {
    cluster: ClusterName,
    all: Arc<[Arc<Endpoint>]>,
    /// What is known of the member.
    member: Arc<Observer>,
    /// Where the next choice begins to look, so that equals take turns.
    turn: AtomicUsize,
}

impl Endpoints {
    /// Takes the endpoints, and tends them for as long as they live if there are several. `observer` is the member's.
    pub(crate) fn new(all: Vec<Arc<Endpoint>>, cluster: &ClusterName, observer: &Arc<Observer>) -> Self {
        let all: Arc<[Arc<Endpoint>]> = all.into();
        if all.len() > 1 {
            for (at, endpoint) in all.iter().enumerate() {
                let tended =
                    Tended { cluster: cluster.clone(), all: Arc::downgrade(&all), at, member: observer.clone() };
                tokio::spawn(tended.run(endpoint.observer.subscribe()));
            }
        }
        Self { cluster: cluster.clone(), all, member: observer.clone(), turn: AtomicUsize::new(0) }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.all.iter()
    }

    /// Whether there are several.
    pub(crate) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    pub(crate) fn statuses(&self) -> Vec<EndpointStatus> {
        self.all.iter().map(|endpoint| endpoint.status()).collect()
    }

    /// Whether a request's path can be joined to each endpoint's.
    pub(crate) fn check(&self, uri: &Uri) -> Result<(), &'static str> {
        self.all.iter().try_for_each(|endpoint| endpoint.target.check(uri))
    }

    /// Opens something at one of the endpoints that it may be opened at: the best first, and another if it cannot be
    /// reached. `avoid` has just failed and is asked last.
    ///
    /// # Errors
    /// Of the only endpoint that there is; [`ForwardError::NoEndpoint`] where there are others, or a policy chooses.
    pub(crate) async fn open<T, F: Future<Output = Result<T, ForwardError>>>(
        &self,
        kind: LaneKind,
        destination: &Destination,
        avoid: Option<&Arc<Endpoint>>,
        open: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<(EndpointRequest, T), ForwardError> {
        let begin = |endpoint: &Arc<Endpoint>| {
            let held = endpoint.hold(kind);
            open(endpoint.clone()).map(|opened| opened.map(|opened| (held, opened)))
        };
        let candidates: Vec<&Arc<Endpoint>> = match (destination, &*self.all) {
            (Destination::Any | Destination::At(_), [only]) => return begin(only).await,
            (Destination::At(place), all) => return begin(&all[(*place).min(all.len() - 1)]).await,
            (Destination::Any, all) => all.iter().collect(),
            (Destination::Chosen(subset), all) => {
                all.iter().filter(|endpoint| subset.urls().any(|url| endpoint.target.is(url))).collect()
            }
        };
        let is_avoided = |endpoint: &&Arc<Endpoint>| avoid.is_some_and(|avoid| Arc::ptr_eq(avoid, endpoint));
        let (mut last, mut left): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_avoided);
        let mut failures = Failures::default();
        while let Some(at) = self.best(&left, kind) {
            let endpoint = left.swap_remove(at);
            let another = left.iter().chain(&last).any(|other| other.is_usable());
            let made = endpoint.pool.connections_made();
            match timeout(if another { PATIENCE } else { Duration::MAX }, begin(endpoint)).await {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(error)) if error.is_of_endpoint() => failures.note(endpoint, error),
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    // Where many wait, connections are made one after the other.
                    if endpoint.pool.connections_made() == made {
                        endpoint.observer.unreachable(format!(
                            "no connection to {} within {} s",
                            endpoint.target.address,
                            PATIENCE.as_secs()
                        ));
                    }
                    last.push(endpoint);
                }
            }
        }
        last.extend(left);
        let mut tries: FuturesUnordered<_> =
            last.into_iter().map(|endpoint| begin(endpoint).map(move |opened| (endpoint, opened))).collect();
        while let Some((endpoint, opened)) = tries.next().await {
            match opened {
                Ok(opened) => return Ok(opened),
                Err(error) => failures.note(endpoint, error),
            }
        }
        Err(self.none_left(failures, matches!(destination, Destination::Chosen(_))))
    }

    /// Whether there is another endpoint that a request may be sent to, and nothing is known against it.
    pub(crate) fn has_another(&self, than: &Arc<Endpoint>, destination: &Destination) -> bool {
        let is_well = |endpoint: &&Arc<Endpoint>| !Arc::ptr_eq(endpoint, than) && endpoint.is_first_choice();
        let mut others = self.all.iter().filter(is_well);
        match destination {
            Destination::Any => others.next().is_some(),
            Destination::Chosen(subset) => others.any(|other| subset.urls().any(|url| other.target.is(url))),
            Destination::At(_) => false,
        }
    }

    /// What to say where nothing could be opened.
    fn none_left(&self, failures: Failures, is_chosen: bool) -> ForwardError {
        let Failures { of_request, of_endpoints } = failures;
        if let Some(error) = of_request {
            return error;
        }
        match of_endpoints.last() {
            // There is no more room at any, which waiting alone helps.
            Some((_, error)) if of_endpoints.iter().all(|(_, error)| matches!(error, ForwardError::Full { .. })) => {
                return error.clone();
            }
            Some((_, error)) if !is_chosen && !self.all.iter().any(|endpoint| endpoint.is_usable()) => {
                self.lost_all(&error.to_string());
            }
            _ => {}
        }
        let left_out = of_endpoints.iter().map(|(address, error)| (address.clone(), LeftOut::by(error))).collect();
        ForwardError::NoEndpoint { cluster: self.cluster.clone(), is_chosen, left_out }
    }

    /// None is left, which the tasks that tend them find out a moment later: whoever is told of it is not to be told that
    /// the member is well.
    fn lost_all(&self, reason: &str) {
        if !self.member.is_unreachable() {
            self.member.unreachable(none_can_be_reached(&self.cluster, self.all.len(), reason));
        }
    }

    /// Notes whether one of several is ready. Of an only one it is noted already.
    pub(crate) fn note_ready(&self, member: &Observer) {
        if self.all.len() > 1 {
            member.ready(self.all.iter().any(|endpoint| endpoint.is_usable() && endpoint.observer.is_ready()));
        }
    }

    /// The place of the usable endpoint with the least to do. One that is not ready, or answers with errors, is the last
    /// choice: where all are, the least loaded of them is asked as before.
    fn best(&self, among: &[&Arc<Endpoint>], kind: LaneKind) -> Option<usize> {
        let count = among.len();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let places = (0..count).map(|step| turn.wrapping_add(step) % count);
        places.filter(|at| among[*at].is_usable()).min_by_key(|at| {
            let endpoint = among[*at];
            (!endpoint.is_first_choice(), endpoint.lets_pass(turn, now), endpoint.outstanding(kind))
        })
    }
}

fn none_can_be_reached(cluster: &ClusterName, count: usize, reason: &str) -> String {
    format!("cluster {cluster}: none of its {count} endpoints can be reached: {reason}")
}

/// Why nothing could be opened.
#[derive(Default)]
struct Failures {
    /// What would have gone wrong at any endpoint.
    of_request: Option<ForwardError>,
    /// What went wrong at each.
    of_endpoints: Vec<(Arc<str>, ForwardError)>,
}

impl Failures {
    fn note(&mut self, endpoint: &Endpoint, error: ForwardError) {
        match error.is_of_endpoint() {
            true => self.of_endpoints.push((endpoint.target.address.clone(), error)),
            false => self.of_request = Some(error),
        }
    }
}

/// One endpoint of several, as its task sees it.
struct Tended {
    cluster: ClusterName,
    all: Weak<[Arc<Endpoint>]>,
    at: usize,
    /// What is known of the member.
    member: Arc<Observer>,
}

impl Tended {
    /// Says once that the endpoint is lost, and that it is back; and at each change, that the member is lost if nothing is
    /// left. Ends with the endpoints.
    ///
    /// Changes that come fast are seen as one: whether something is left is asked of all of them as they are now.
    async fn run(self, mut reachability: watch::Receiver<Reachability>) {
        let mut is_told = false;
        loop {
            let state = reachability.borrow_and_update().state.clone();
            match state {
                ReachabilityState::Unreachable { reason } => {
                    self.lost(&reason, is_told);
                    is_told = true;
                }
                ReachabilityState::Reachable if is_told => {
                    self.back();
                    is_told = false;
                }
                ReachabilityState::Reachable | ReachabilityState::Unknown => {}
            }
            if reachability.changed().await.is_err() {
                return;
            }
        }
    }

    fn lost(&self, reason: &str, is_told: bool) {
        let Some(all) = self.all.upgrade() else { return };
        let others = all.iter().filter(|endpoint| endpoint.is_usable()).count();
        let endpoint = &all[self.at].target.address;
        if !is_told {
            tracing::warn!(cluster = %self.cluster, %endpoint, reason, others, "an endpoint cannot be reached; the others are used");
        }
        if others == 0 {
            self.member.unreachable(none_can_be_reached(&self.cluster, all.len(), reason));
        }
    }

    fn back(&self) {
        let Some(all) = self.all.upgrade() else { return };
        let endpoint = &all[self.at].target.address;
        tracing::info!(cluster = %self.cluster, %endpoint, "the endpoint can be reached again");
    }
}
