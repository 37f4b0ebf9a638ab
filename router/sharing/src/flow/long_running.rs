//! What lasts (watches, logs that are followed, exec, attach, port-forward, what workloads send), where many users are
//! served: shared among them, counted over all their connections and all clusters, so that none of them takes every
//! place that there is. kube-apiserver exempts it from its own limits and leaves it to those of its connections; here
//! thousands of watches of one user would be others' memory, and a thousand port-forwards all that there are.

use std::sync::Arc;

use http::{Response, StatusCode};
use tributary_apimachinery::Permit;
use tributary_apimachinery::permit::{RequestPermit, TunnelPermits};

use super::fair_share::{Exceeded, FairShare};
use super::holder::Holder;
use crate::body::{self, Body};

/// How much text of its request one place has room for, in bytes: 8 KiB, as much as a name may have. Most have a tenth
/// of it: their path and query, who sends them with which groups, whom they act as. All of it is kept for as long as
/// they last.
const TEXT_BYTES: usize = 8 << 10;

/// What users share of it.
#[derive(Debug)]
pub struct LongRunningShares {
    /// All of it.
    pub requests: Arc<FairShare>,
    /// What switches its connection.
    pub upgrades: Arc<FairShare>,
}

/// The place of one request, until what keeps it has ended.
pub struct LongRunningPlace(RequestPermit);

impl LongRunningShares {
    /// Takes a place for a request, and one of a switched connection where it may become one: whether it does is the
    /// member's to say. `text` is how many bytes of texts are kept of it; for each 8 KiB it takes one place more.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn acquire(&self, holder: Holder, may_switch: bool, text: usize) -> Result<LongRunningPlace, Exceeded> {
        let request = self.requests.acquire(holder, 1 + text / TEXT_BYTES)?;
        let upgrade = may_switch.then(|| self.upgrades.acquire(holder, 1)).transpose()?;
        Ok(LongRunningPlace(RequestPermit::keeping((request, upgrade))))
    }
}

impl LongRunningPlace {
    /// Keeps the place until a switched connection ends.
    pub fn keep_for_tunnel(&self, permits: &TunnelPermits) {
        permits.push(Permit::keeping(self.0.clone()));
    }

    /// Has an answer's body keep the place, if it is the body that lasts.
    pub fn kept_by_body(self, answer: Response<Body>) -> Response<Body> {
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => answer,
            _ => answer.map(|body| body::holding(body, Permit::keeping(self.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::flow::fair_share::ShareMetrics;

    #[test]
    fn a_place_is_kept_by_what_lasts() {
        let share = |max| FairShare::new("of a test", max, ShareMetrics::default());
        let shares = LongRunningShares { requests: share(16), upgrades: share(8) };
        let held = || (shares.requests.used(), shares.upgrades.used());
        let (eve, ann) = (Holder::user("test", "eve"), Holder::user("test", "ann"));
        let mut places: Vec<_> = std::iter::from_fn(|| shares.acquire(eve, true, 100).ok()).collect();
        // Whoever is refused a connection keeps no place of a request either.
        assert_eq!((places.len(), held()), (3, (3, 3)));
        let of_ann = [shares.acquire(ann, true, 0), shares.acquire(eve, false, 0)].map(Result::ok);
        assert_eq!(held(), (5, 4));
        drop(of_ann);
        // A tunnel keeps it, and what was to be kept besides.
        let (place, others) = (places.pop().unwrap(), Arc::new(AtomicBool::new(false)));
        let (permits, ended) = (TunnelPermits::default(), Arc::clone(&others));
        permits.push(Permit::new(move || ended.store(true, Ordering::Relaxed)));
        place.keep_for_tunnel(&permits);
        let mut switched = Response::new(body::empty());
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        drop(place.kept_by_body(switched));
        assert_eq!((held(), others.load(Ordering::Relaxed)), ((3, 3), false));
        drop(permits);
        assert_eq!((held(), others.load(Ordering::Relaxed)), ((2, 2), true));
        // What is answered otherwise is kept by its body.
        let place = places.pop().unwrap();
        let permits = TunnelPermits::default();
        place.keep_for_tunnel(&permits);
        let answer = place.kept_by_body(Response::new(body::full("x")));
        drop(permits);
        assert_eq!(held(), (2, 2));
        drop(answer);
        assert_eq!(held(), (1, 1));
        drop(places);
        assert_eq!(held(), (0, 0));
    }

    #[test]
    fn what_keeps_long_texts_takes_more_places() {
        let requests = FairShare::new("of a test", 64, ShareMetrics::default());
        let upgrades = FairShare::new("of a test", 64, ShareMetrics::default());
        let shares = LongRunningShares { requests, upgrades };
        let take = |text| shares.acquire(Holder::user("test", "eve"), false, text).ok();
        for (text, places) in [(0, 1), (TEXT_BYTES - 1, 1), (TEXT_BYTES, 2), (10 * TEXT_BYTES, 11)] {
            let held = take(text);
            assert_eq!((held.is_some(), shares.requests.used()), (true, places), "{text}");
        }
        assert!(take(30 * TEXT_BYTES).is_none() && shares.requests.used() == 0);
    }
}
