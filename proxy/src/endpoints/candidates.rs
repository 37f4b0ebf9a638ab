//! Order of endpoints for a request: a decision without I/O, from the state of each endpoint. `endpoints.rs` sends the
//! request.

use std::cmp::Ordering;
use std::sync::Arc;

use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

use crate::endpoints::criteria::EndpointCriteria;
use crate::endpoints::endpoint::Endpoint;
use crate::endpoints::failures::{self, Failures};

/// The endpoints that a request may still try.
pub(crate) struct Candidates<'a> {
    criteria: EndpointCriteria<'a>,
    /// Endpoints to try first.
    first: Vec<&'a Arc<Endpoint>>,
    /// Endpoints to try last: endpoints that failed this request before, and endpoints that gave no connection in time.
    last: Vec<&'a Arc<Endpoint>>,
}

impl<'a> Candidates<'a> {
    /// Selects the endpoints that may get the request. Records for each other endpoint why it is left out.
    pub(crate) fn among(
        all: &'a [Arc<Endpoint>],
        criteria: EndpointCriteria<'a>,
        cluster: &ClusterName,
        failures: &mut Failures,
    ) -> Self {
        let EndpointCriteria { destination, tried, .. } = criteria;
        let mut candidates = Self { criteria, first: Vec::new(), last: Vec::new() };
        let named = all.iter().filter(|one| destination.includes(&one.target) && !tried.was_answered_at(one));
        for endpoint in named {
            match endpoint.check_drain(cluster, criteria.has_fixed_endpoint()) {
                Err(error) => failures.add_failure(endpoint, error),
                Ok(()) if !criteria.has_capacity_at(endpoint) => {
                    failures.add_failure(endpoint, failures::full(cluster, endpoint))
                }
                Ok(()) if tried.has_failed_at(endpoint) => candidates.last.push(endpoint),
                Ok(()) => candidates.first.push(endpoint),
            }
        }
        candidates
    }

    /// Removes and returns the best remaining endpoint, and whether the request could still try another endpoint.
    /// `None` if no endpoint remains. `rotation`, the number of the request, decides between equal endpoints.
    pub(crate) fn next(&mut self, rotation: usize) -> Option<(&'a Arc<Endpoint>, bool)> {
        let endpoint = self.first.swap_remove(self.best(rotation)?);
        let mut others = self.first.iter().chain(&self.last);
        Some((endpoint, others.any(|other| self.criteria.may_be_tried(other))))
    }

    /// Returns the index of the best endpoint. Among the endpoints of the best rank, `rotation` selects a pair, and the
    /// endpoint with less load wins.
    fn best(&self, rotation: usize) -> Option<usize> {
        // Most clusters have a single endpoint, which is chosen even on probation.
        if let [only] = self.first[..] {
            return self.criteria.may_be_tried(only).then_some(0);
        }
        let now = Instant::now();
        let eligible = self.first.iter().enumerate().filter(|(_, endpoint)| self.criteria.may_be_tried(endpoint));
        let mut ranked: Vec<_> =
            eligible.filter_map(|(at, endpoint)| Some((endpoint.state().rank(rotation, now)?, at))).collect();
        let first = ranked.iter().map(|(rank, _)| *rank).min()?;
        ranked.retain(|(rank, _)| *rank == first);
        let (count, at) = (ranked.len(), |place: usize| ranked[place % ranked.len()].1);
        if count == 1 {
            return Some(at(0));
        }
        let (one, other) = (at(rotation), at(rotation + 1 + rotation / count % (count - 1)));
        let load = |at: usize| self.first[at].traffic(self.criteria.kind).load(now);
        Some(if load(other).compare(load(one)) == Ordering::Less { other } else { one })
    }

    /// Moves an endpoint to the end of the order, because it gave no connection in time.
    pub(crate) fn postpone(&mut self, endpoint: &'a Arc<Endpoint>) {
        self.last.push(endpoint);
    }

    /// Returns all remaining endpoints, to be tried at once.
    pub(crate) fn remaining(mut self) -> Vec<&'a Arc<Endpoint>> {
        self.last.append(&mut self.first);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use kube::config::AuthInfo;
    use tokio::time::Duration;

    use super::*;
    use crate::credentials::certificate::Certificate;
    use crate::endpoints::criteria::PreviousAttempt;
    use crate::endpoints::destination::Destination;
    use crate::endpoints::endpoint_maker::EndpointMaker;
    use crate::health::observer::Observer;
    use crate::health::settings::BreakerTuning;
    use crate::health::state::{Input, State};
    use crate::permit_pool::RequestOrigin;
    use crate::pool::StreamClass;
    use crate::target::{Address, targets};
    use crate::tuning::ClientTuning;

    async fn endpoints(cluster: &ClusterName) -> Vec<Arc<Endpoint>> {
        let [first, second, third] = [1, 2, 3].map(|port| format!("http://127.0.0.1:{port}").parse::<Uri>().unwrap());
        let config = kube::Config::new(first);
        let maker = EndpointMaker {
            cluster,
            config: &config,
            tuning: &ClientTuning::default(),
            certificate: &Certificate::configured(&AuthInfo::default()),
            server_identities: &Arc::default(),
            connector: None,
            uid: None,
            member: &Arc::new(Observer::new(cluster.clone(), BreakerTuning::default())),
            is_one_of_several: true,
        };
        let mut all = Vec::new();
        for target in targets(cluster, &config, &[second, third].map(Address::from)).unwrap() {
            all.push(maker.make(target).await.unwrap());
        }
        all
    }

    /// Returns the endpoints in the order in which a request tries them, and the endpoints that are left for the end,
    /// as indexes of `all`.
    fn order(
        all: &[Arc<Endpoint>],
        origin: RequestOrigin,
        tried: &PreviousAttempt,
        rotation: usize,
    ) -> (Vec<usize>, Vec<usize>) {
        let cluster = &ClusterName::new("a").unwrap();
        let criteria = EndpointCriteria { kind: StreamClass::Short, origin, destination: &Destination::Any, tried };
        let mut candidates = Candidates::among(all, criteria, cluster, &mut Failures::new(cluster));
        let at = |endpoint: &Arc<Endpoint>| all.iter().position(|one| Arc::ptr_eq(one, endpoint)).unwrap();
        let mut tries = Vec::new();
        while let Some((endpoint, has_another)) = candidates.next(rotation) {
            let others = candidates.first.iter().chain(&candidates.last);
            let are_usable = others.filter(|other| other.state().is_usable() && other.observer.admit()).count();
            assert!(has_another == (are_usable > 0) || !criteria.has_limits());
            tries.push(at(endpoint));
        }
        (tries, candidates.remaining().into_iter().map(at).collect())
    }

    #[tokio::test]
    async fn best_endpoints_come_first_and_unhealthy_endpoints_last() {
        let cluster = ClusterName::new("a").unwrap();
        let order_of = |all: &[Arc<Endpoint>], tried: &PreviousAttempt| order(all, RequestOrigin::Client, tried, 2);
        let all = endpoints(&cluster).await;
        let requests = [
            all[0].begin_request(StreamClass::Short),
            all[0].begin_request(StreamClass::Short),
            all[1].begin_request(StreamClass::Short),
        ];
        assert_eq!(order_of(&all, &PreviousAttempt::NotTried), (vec![2, 1, 0], vec![]), "the least loaded first");
        assert_eq!(order_of(&all, &PreviousAttempt::Failed(all[2].clone())), (vec![1, 0], vec![2]));
        assert_eq!(order_of(&all, &PreviousAttempt::AnsweredBusy(all[2].clone())), (vec![1, 0], vec![]));
        all[2].ready(false);
        assert_eq!(order_of(&all, &PreviousAttempt::NotTried), (vec![1, 0, 2], vec![]), "not ready is the last choice");
        all[1].observer.unreachable("refused".to_owned());
        assert_eq!(order_of(&all, &PreviousAttempt::NotTried), (vec![0, 2], vec![1]), "what cannot be reached is left");
        for _ in 0..5 {
            all[0].observer.apply(Input::Failure);
        }
        assert_eq!(order_of(&all, &PreviousAttempt::NotTried), (vec![2], vec![0, 1]), "nor is an open breaker asked");
        let (own, rest) = order(&all, RequestOrigin::Ourselves, &PreviousAttempt::NotTried, 2);
        assert_eq!((own, rest), (vec![0, 2], vec![1]), "by ourselves it is");
        all[2].set_drained(true);
        assert_eq!(
            order_of(&all, &PreviousAttempt::NotTried),
            (vec![], vec![0, 1]),
            "one that is drained is none of them"
        );
        drop(requests);
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_with_fast_error_responses_gets_no_more_requests_than_others() {
        let all = endpoints(&ClusterName::new("a").unwrap()).await.split_off(1);
        let first = |rotation: usize| order(&all, RequestOrigin::Client, &PreviousAttempt::NotTried, rotation).0[0];
        let requests = [(); 2].map(|()| all[0].begin_request(StreamClass::Short));
        assert_eq!([first(0), first(1)], [1, 1], "the least loaded");
        for _ in 0..100 {
            all[1].traffic(StreamClass::Short).answers.lock().record_error(Duration::ZERO, 0.01, Instant::now());
        }
        assert_eq!([first(0), first(1)], [0, 1]);
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!([first(0), first(1)], [1, 1], "errors are soon forgotten");
        drop(requests);
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_on_probation_ranks_between_ready_and_unhealthy_endpoints() {
        let cluster = ClusterName::new("a").unwrap();
        let all = endpoints(&cluster).await;
        let order_at = |rotation: usize| order(&all, RequestOrigin::Client, &PreviousAttempt::NotTried, rotation).0;
        all[0].observer.unreachable("refused".to_owned());
        all[0].record_response();
        assert_eq!(order_at(7 * 3).last(), Some(&0), "a turn that it lets pass");
        assert_eq!(order_at(0).first(), Some(&0), "one that it takes");
        all[2].ready(false);
        assert_eq!(order_at(7 * 3), [1, 0, 2]);
        all[1].observer.unreachable("refused".to_owned());
        assert_eq!(order_at(7 * 3), [0, 2], "where no other is well it is asked whatever the turn");
        all[1].record_response();
        all[2].ready(true);
        assert_eq!(order_at(7 * 3).first(), Some(&0), "where all start slowly none is behind the others");
        let all = endpoints(&cluster).await;
        all.iter().for_each(|endpoint| endpoint.record_response());
        assert!(all.iter().all(|endpoint| endpoint.state() == State::Ready));
        all[0].set_drained(true);
        all[0].set_drained(false);
        assert!(matches!(all[0].state(), State::Probation { .. }), "one that is drained no longer");
    }
}
