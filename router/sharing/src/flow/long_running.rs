//! Shares of long-running requests in shared mode: watches, followed logs, exec, attach, port-forward, proxied
//! requests.
//!
//! Users share the limits over all connections and clusters. kube-apiserver exempts long-running requests from its
//! limits, so only the number of its connections bounds them. In Tributary, thousands of watches of one user would take
//! the memory of other users, and a thousand port-forwards would take all connections.

use std::sync::Arc;

use http::{Response, StatusCode};
use tributary_apimachinery::Permit;
use tributary_apimachinery::permit::{RequestPermit, TunnelPermits};

use super::fair_semaphore::{Exceeded, FairSemaphore};
use super::share_key::ShareKey;
use crate::body::{self, Body};

/// Bytes of text (path, query, user, groups, impersonation) for which a request takes one more permit, because the text
/// stays in memory while the request lasts. 8 KiB is the maximum length of a name. Most requests have a tenth of this.
const TEXT_BYTES: usize = 8 << 10;

/// Limits of long-running requests, which users share.
#[derive(Debug)]
pub struct LongRunningShares {
    /// Limit of all long-running requests.
    pub requests: Arc<FairSemaphore>,
    /// Limit of requests that switch protocols, such as exec, on upgraded connections.
    pub upgrades: Arc<FairSemaphore>,
}

/// Permit of one long-running request. The permit is released when the last clone is dropped.
pub struct LongRunningPermit(RequestPermit);

impl LongRunningShares {
    /// Takes the permits for a request. If `may_switch` is true, also takes a permit for an upgraded connection,
    /// because only the member decides whether to switch protocols. `text` is the number of bytes of the request that
    /// Tributary holds. Each 8 KiB of text take one more permit.
    ///
    /// # Errors
    /// [`Exceeded`] if the user has too many long-running requests or upgraded connections.
    pub fn acquire(&self, share_key: ShareKey, may_switch: bool, text: usize) -> Result<LongRunningPermit, Exceeded> {
        let request = self.requests.acquire(share_key, 1 + text / TEXT_BYTES)?;
        let upgrade = may_switch.then(|| self.upgrades.acquire(share_key, 1)).transpose()?;
        Ok(LongRunningPermit(RequestPermit::from_guard((request, upgrade))))
    }
}

impl LongRunningPermit {
    /// Holds the permit until an upgraded connection ends.
    pub fn attach_to_tunnel(&self, permits: &TunnelPermits) {
        permits.push(Permit::from_guard(self.0.clone()));
    }

    /// Attaches the permit to the answer's body, unless the connection has switched protocols.
    pub fn attach_to_body(self, answer: Response<Body>) -> Response<Body> {
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => answer,
            _ => answer.map(|body| body::attach_permit(body, Permit::from_guard(self.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::flow::fair_semaphore::ShareMetrics;

    #[test]
    fn long_running_permit_lasts_until_the_tunnel_or_body_ends() {
        let share = |max| FairSemaphore::new("of a test", max, ShareMetrics::default());
        let shares = LongRunningShares { requests: share(16), upgrades: share(8) };
        let used_permits = || (shares.requests.used(), shares.upgrades.used());
        let (eve, ann) = (ShareKey::user("test", "eve"), ShareKey::user("test", "ann"));
        let mut places: Vec<_> = std::iter::from_fn(|| shares.acquire(eve, true, 100).ok()).collect();
        // A request that gets no permit for its upgraded connection also releases its first permit.
        assert_eq!((places.len(), used_permits()), (3, (3, 3)));
        let of_ann = [shares.acquire(ann, true, 0), shares.acquire(eve, false, 0)].map(Result::ok);
        assert_eq!(used_permits(), (5, 4));
        drop(of_ann);
        // A tunnel keeps the permit, and the permits that the tunnel already had.
        let (place, others) = (places.pop().unwrap(), Arc::new(AtomicBool::new(false)));
        let (permits, ended) = (TunnelPermits::default(), Arc::clone(&others));
        permits.push(Permit::new(move || ended.store(true, Ordering::Relaxed)));
        place.attach_to_tunnel(&permits);
        let mut switched = Response::new(body::empty());
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        drop(place.attach_to_body(switched));
        assert_eq!((used_permits(), others.load(Ordering::Relaxed)), ((3, 3), false));
        drop(permits);
        assert_eq!((used_permits(), others.load(Ordering::Relaxed)), ((2, 2), true));
        // If the connection does not switch protocols, the body of the answer keeps the permit.
        let place = places.pop().unwrap();
        let permits = TunnelPermits::default();
        place.attach_to_tunnel(&permits);
        let answer = place.attach_to_body(Response::new(body::full("x")));
        drop(permits);
        assert_eq!(used_permits(), (2, 2));
        drop(answer);
        assert_eq!(used_permits(), (1, 1));
        drop(places);
        assert_eq!(used_permits(), (0, 0));
    }

    #[test]
    fn request_with_long_text_takes_more_permits() {
        let requests = FairSemaphore::new("of a test", 64, ShareMetrics::default());
        let upgrades = FairSemaphore::new("of a test", 64, ShareMetrics::default());
        let shares = LongRunningShares { requests, upgrades };
        let take = |text| shares.acquire(ShareKey::user("test", "eve"), false, text).ok();
        for (text, places) in [(0, 1), (TEXT_BYTES - 1, 1), (TEXT_BYTES, 2), (10 * TEXT_BYTES, 11)] {
            let permit = take(text);
            assert_eq!((permit.is_some(), shares.requests.used()), (true, places), "{text}");
        }
        assert!(take(30 * TEXT_BYTES).is_none() && shares.requests.used() == 0);
    }
}
