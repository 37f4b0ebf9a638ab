//! Shares of long-running requests (watches, followed logs, exec, attach, port-forward, proxied requests) on shared
//! endpoints. Users share them over all connections and clusters. kube-apiserver exempts such requests from its own
//! limits, and its connections bound them; here thousands of watches of one user would take the memory of other users,
//! and a thousand port-forwards would take all places.

use std::sync::Arc;

use http::{Response, StatusCode};
use tributary_apimachinery::Permit;
use tributary_apimachinery::permit::{RequestPermit, TunnelPermits};

use super::fair_semaphore::{Exceeded, FairSemaphore};
use super::holder::Holder;
use crate::body::{self, Body};

/// Bytes of a request's text for one place: 8 KiB, the maximum of a name. Most requests have a tenth: path and query,
/// user and groups, impersonation. The text is kept while the request lasts.
const TEXT_BYTES: usize = 8 << 10;

/// Bounds that users share.
#[derive(Debug)]
pub struct LongRunningShares {
    /// All long-running requests.
    pub requests: Arc<FairSemaphore>,
    /// Requests that switch their connection.
    pub upgrades: Arc<FairSemaphore>,
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
    use crate::flow::fair_semaphore::ShareMetrics;

    #[test]
    fn a_place_is_kept_by_what_lasts() {
        let share = |max| FairSemaphore::new("of a test", max, ShareMetrics::default());
        let shares = LongRunningShares { requests: share(16), upgrades: share(8) };
        let held = || (shares.requests.used(), shares.upgrades.used());
        let (eve, ann) = (Holder::user("test", "eve"), Holder::user("test", "ann"));
        let mut places: Vec<_> = std::iter::from_fn(|| shares.acquire(eve, true, 100).ok()).collect();
        // A request without a place for its connection keeps no other place.
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
        // The body of an answer without a switch keeps the place.
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
        let requests = FairSemaphore::new("of a test", 64, ShareMetrics::default());
        let upgrades = FairSemaphore::new("of a test", 64, ShareMetrics::default());
        let shares = LongRunningShares { requests, upgrades };
        let take = |text| shares.acquire(Holder::user("test", "eve"), false, text).ok();
        for (text, places) in [(0, 1), (TEXT_BYTES - 1, 1), (TEXT_BYTES, 2), (10 * TEXT_BYTES, 11)] {
            let held = take(text);
            assert_eq!((held.is_some(), shares.requests.used()), (true, places), "{text}");
        }
        assert!(take(30 * TEXT_BYTES).is_none() && shares.requests.used() == 0);
    }
}
