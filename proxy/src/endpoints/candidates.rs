//! Which of a member's endpoints a request is sent to, one after the other, and which are left for the end: a decision
//! by what is known of each at that moment, apart from whoever sends (`endpoints.rs`).

use std::sync::Arc;

use tokio::time::{Duration, Instant};
use tributary_apimachinery::ClusterName;

use crate::endpoints::destination::Destination;
use crate::endpoints::endpoint::Endpoint;
use crate::endpoints::failures::{self, Failures};
use crate::endpoints::refusals::Load;
use crate::places::Asker;
use crate::pool::LaneKind;

/// Where a request was sent before.
#[derive(Clone, Default)]
pub(crate) enum Tried {
    #[default]
    Nowhere,
    /// It failed there: it is sent there again only where no other is left.
    Failed(Arc<Endpoint>),
    /// It was answered there, and is asked of others alone.
    Answered(Arc<Endpoint>),
}

impl Tried {
    fn has_failed_at(&self, endpoint: &Arc<Endpoint>) -> bool {
        matches!(self, Self::Failed(before) if Arc::ptr_eq(before, endpoint))
    }

    pub(crate) fn was_answered_at(&self, endpoint: &Arc<Endpoint>) -> bool {
        matches!(self, Self::Answered(before) if Arc::ptr_eq(before, endpoint))
    }
}

/// What of a request decides where it may be sent.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) kind: LaneKind,
    pub(crate) asker: Asker,
    pub(crate) destination: &'a Destination,
    pub(crate) tried: &'a Tried,
}

impl Wanted<'_> {
    /// Whether bounds and breakers count. What this process asks for itself is asked in any case.
    pub(crate) fn is_gated(self) -> bool {
        self.asker != Asker::Ourselves
    }

    /// Whether it is for one endpoint alone, which may be drained.
    pub(crate) fn is_to_one(self) -> bool {
        matches!(self.destination, Destination::At(_))
    }

    /// Whether an endpoint has room for it.
    pub(crate) fn has_room_at(self, endpoint: &Endpoint) -> bool {
        !self.is_gated() || endpoint.has_room(self.kind)
    }

    /// Whether an endpoint may be asked before the end: it can be reached, as far as is known, and lets it in.
    fn may_be_asked_of(self, endpoint: &Endpoint) -> bool {
        endpoint.is_usable() && !(self.is_gated() && endpoint.breaker.closed_for().is_some())
    }
}

/// The endpoints that are left for a request.
pub(crate) struct Candidates<'a> {
    wanted: Wanted<'a>,
    /// To be tried one after the other.
    left: Vec<&'a Arc<Endpoint>>,
    /// To be tried at the end: those at which it failed before, and those that gave no connection in time.
    last: Vec<&'a Arc<Endpoint>>,
}

impl<'a> Candidates<'a> {
    /// Those of a member's endpoints that it may be sent to. Why it may not be sent to others is noted.
    pub(crate) fn among(
        all: &'a [Arc<Endpoint>],
        wanted: Wanted<'a>,
        cluster: &ClusterName,
        failures: &mut Failures,
    ) -> Self {
        let Wanted { destination, tried, .. } = wanted;
        let mut candidates = Self { wanted, left: Vec::new(), last: Vec::new() };
        let named = all.iter().filter(|one| destination.includes(&one.target) && !tried.was_answered_at(one));
        for endpoint in named {
            match endpoint.check_drain(cluster, wanted.is_to_one()) {
                Err(error) => failures.note(endpoint, error),
                Ok(()) if !wanted.has_room_at(endpoint) => failures.note(endpoint, failures::full(cluster, endpoint)),
                Ok(()) if tried.has_failed_at(endpoint) => candidates.last.push(endpoint),
                Ok(()) => candidates.left.push(endpoint),
            }
        }
        candidates
    }

    /// Takes the best of those that may be asked, and says whether there is another one; `None` where none of them is
    /// left. Which of equals that is goes by the `turn`. A short request usually takes so long as `usual`.
    pub(crate) fn next(&mut self, turn: usize, usual: Duration) -> Option<(&'a Arc<Endpoint>, bool)> {
        let endpoint = self.left.swap_remove(self.best(turn, usual)?);
        let mut others = self.left.iter().chain(&self.last);
        Some((endpoint, others.any(|other| self.wanted.may_be_asked_of(other))))
    }

    /// The place of the endpoint with the least to do, of those that may be asked. One against which something is known
    /// is the last choice: where all are, the least loaded of them is asked as before.
    fn best(&self, turn: usize, usual: Duration) -> Option<usize> {
        // Most clusters have one, which is neither compared nor held back.
        if let [only] = self.left[..] {
            return self.wanted.may_be_asked_of(only).then_some(0);
        }
        let (count, now) = (self.left.len(), Instant::now());
        let places = (0..count).map(|step| turn.wrapping_add(step) % count);
        let asked = places.filter(|at| self.wanted.may_be_asked_of(self.left[*at]));
        let mut ranked: Vec<_> = asked.map(|at| Ranked::of(at, self.left[at], turn, now)).collect();
        let first = ranked.iter().map(|one| one.is_behind).min()?;
        ranked.retain(|one| one.is_behind == first);
        let loads = ranked.into_iter().map(|one| (one.at, self.left[one.at].load(self.wanted.kind, usual, now)));
        least_loaded(&loads.collect::<Vec<_>>())
    }

    /// This one gave no connection in time: it is tried again at the end.
    pub(crate) fn postpone(&mut self, endpoint: &'a Arc<Endpoint>) {
        self.last.push(endpoint);
    }

    /// All that are left, to be tried at once.
    pub(crate) fn rest(mut self) -> Vec<&'a Arc<Endpoint>> {
        self.last.append(&mut self.left);
        self.last
    }
}

/// An endpoint that may be asked, by its place.
struct Ranked {
    at: usize,
    /// Whether something is known against it, and whether it lets this turn pass: it is asked after those that are
    /// neither.
    is_behind: (bool, bool),
}

impl Ranked {
    fn of(at: usize, endpoint: &Endpoint, turn: usize, now: Instant) -> Self {
        Self { at, is_behind: (!endpoint.is_first_choice(), endpoint.lets_pass(turn, now)) }
    }
}

/// The place of the one with the least to do, the first of equals.
fn least_loaded(loads: &[(usize, Load)]) -> Option<usize> {
    let counts_as = |(at, load): (usize, Load)| {
        load.beside(loads.iter().filter(move |(other, _)| *other != at).map(|(_, other)| *other))
    };
    loads.iter().copied().min_by_key(|one| counts_as(*one)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use kube::config::AuthInfo;

    use super::*;
    use crate::credentials::certificate::Certificate;
    use crate::endpoints::endpoint_maker::EndpointMaker;
    use crate::health::reachability::Observer;
    use crate::target::{Address, targets};
    use crate::tuning::ClientTuning;

    /// How long a short request usually takes.
    const USUAL: Duration = Duration::from_millis(10);

    /// Three endpoints of which nothing is known.
    async fn endpoints(cluster: &ClusterName) -> Vec<Arc<Endpoint>> {
        let [first, second, third] = [1, 2, 3].map(|port| format!("http://127.0.0.1:{port}").parse::<Uri>().unwrap());
        let config = kube::Config::new(first);
        let maker = EndpointMaker {
            cluster,
            config: &config,
            tuning: &ClientTuning::default(),
            certificate: &Certificate::configured(&AuthInfo::default()),
            proofs: &Arc::default(),
            connector: None,
            uid: None,
            member: &Arc::new(Observer::new(cluster.clone())),
            is_one_of_several: true,
        };
        let mut all = Vec::new();
        for target in targets(cluster, &config, &[second, third].map(Address::from)).unwrap() {
            all.push(maker.make(target).await.unwrap());
        }
        all
    }

    /// The places in which a request is tried, and those that are left for the end.
    fn order(all: &[Arc<Endpoint>], cluster: &ClusterName, asker: Asker, tried: &Tried) -> (Vec<usize>, Vec<usize>) {
        let wanted = Wanted { kind: LaneKind::Short, asker, destination: &Destination::Any, tried };
        let mut candidates = Candidates::among(all, wanted, cluster, &mut Failures::new(cluster));
        let at = |endpoint: &Arc<Endpoint>| all.iter().position(|one| Arc::ptr_eq(one, endpoint)).unwrap();
        let mut tries = Vec::new();
        while let Some((endpoint, has_another)) = candidates.next(0, USUAL) {
            let others = candidates.left.iter().chain(&candidates.last);
            let are_usable = others.filter(|other| other.is_usable() && other.breaker.closed_for().is_none()).count();
            assert!(has_another == (are_usable > 0) || !wanted.is_gated());
            tries.push(at(endpoint));
        }
        (tries, candidates.rest().into_iter().map(at).collect())
    }

    #[tokio::test]
    async fn the_best_come_first_and_those_against_which_something_is_known_last() {
        let cluster = ClusterName::new("a").unwrap();
        let order_of = |all: &[Arc<Endpoint>], tried: &Tried| order(all, &cluster, Asker::Client, tried);
        let all = endpoints(&cluster).await;
        let held = [all[0].hold(LaneKind::Short), all[0].hold(LaneKind::Short), all[1].hold(LaneKind::Short)];
        assert_eq!(order_of(&all, &Tried::Nowhere), (vec![2, 1, 0], vec![]), "the least loaded first");
        assert_eq!(order_of(&all, &Tried::Failed(all[2].clone())), (vec![1, 0], vec![2]));
        assert_eq!(order_of(&all, &Tried::Answered(all[2].clone())), (vec![1, 0], vec![]));
        all[2].ready(false);
        assert_eq!(order_of(&all, &Tried::Nowhere), (vec![1, 0, 2], vec![]), "not ready is the last choice");
        all[1].observer.unreachable("refused".to_owned());
        assert_eq!(order_of(&all, &Tried::Nowhere), (vec![0, 2], vec![1]), "what cannot be reached is left");
        for _ in 0..5 {
            all[0].breaker.failed();
        }
        assert_eq!(order_of(&all, &Tried::Nowhere), (vec![2], vec![0, 1]), "nor is an open breaker asked");
        let (own, rest) = order(&all, &cluster, Asker::Ourselves, &Tried::Nowhere);
        assert_eq!((own, rest), (vec![0, 2], vec![1]), "by ourselves it is");
        all[2].set_drained(true);
        assert_eq!(order_of(&all, &Tried::Nowhere), (vec![], vec![0, 1]), "one that is drained is none of them");
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_refused_requests_at_once_is_not_preferred_and_comes_after_nobody_for_it() {
        let cluster = ClusterName::new("a").unwrap();
        let all = endpoints(&cluster).await;
        let first = |all: &[Arc<Endpoint>]| order(all, &cluster, Asker::Client, &Tried::Nowhere).0[0];
        let held = [0, 0, 1, 1].map(|at: usize| all[at].hold(LaneKind::Short));
        assert_eq!(first(&all), 2, "the least loaded");
        for _ in 0..100 {
            all[2].refused(Duration::ZERO, USUAL);
        }
        // Nothing but the turn decides: the first of equals is the first in it.
        assert_eq!(first(&all), 0);
        assert_eq!(first(&all[1..]), 0);
        tokio::time::advance(USUAL * 20).await;
        assert_eq!(first(&all), 2, "it is soon forgotten");
        drop(held);
    }

    #[test]
    fn where_all_have_refused_watches_the_fewest_of_them_count() {
        let load = |in_flight, refused| Load { in_flight, refused, usual: Duration::ZERO };
        let all = [(0, load(30, usize::MAX)), (1, load(2, usize::MAX)), (2, load(30, usize::MAX))];
        assert_eq!(least_loaded(&all), Some(1), "one that came back empty catches up");
        let one_of_two = [(0, load(30, 0)), (1, load(2, usize::MAX))];
        assert_eq!(least_loaded(&one_of_two), Some(0), "equals, of which the first is taken");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_starts_slowly_comes_after_the_others_and_before_those_that_are_the_last_choice() {
        let cluster = ClusterName::new("a").unwrap();
        let all = endpoints(&cluster).await;
        let order_at = |turn: usize| {
            let (destination, tried) = (Destination::Any, Tried::Nowhere);
            let wanted =
                Wanted { kind: LaneKind::Short, asker: Asker::Client, destination: &destination, tried: &tried };
            let mut candidates = Candidates::among(&all, wanted, &cluster, &mut Failures::new(&cluster));
            let at = |endpoint: &Arc<Endpoint>| all.iter().position(|one| Arc::ptr_eq(one, endpoint)).unwrap();
            let mut tries = Vec::new();
            while let Some((endpoint, _)) = candidates.next(turn, USUAL) {
                tries.push(at(endpoint));
            }
            tries
        };
        // It was lost, and answers.
        all[0].observer.unreachable("refused".to_owned());
        all[0].answered();
        assert_eq!(order_at(7 * 3).last(), Some(&0), "a turn that it lets pass");
        assert_eq!(order_at(0).first(), Some(&0), "one that it takes");
        all[2].ready(false);
        assert_eq!(order_at(7 * 3), [1, 0, 2]);
        all[1].observer.unreachable("refused".to_owned());
        assert_eq!(order_at(7 * 3), [0, 2], "where no other is well it is asked whatever the turn");
        all[1].answered();
        all[2].ready(true);
        assert_eq!(order_at(7 * 3).first(), Some(&0), "where all start slowly none is behind the others");
        // Those of which nothing was known are new with the process.
        let all = endpoints(&cluster).await;
        all.iter().for_each(|endpoint| endpoint.answered());
        assert!(all.iter().all(|endpoint| !endpoint.lets_pass(7 * 3, Instant::now())));
        all[0].set_drained(true);
        all[0].set_drained(false);
        assert!(all[0].lets_pass(7 * 3, Instant::now()), "one that is drained no longer");
    }
}
