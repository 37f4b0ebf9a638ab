//! How many reviews strangers can have sent: a token that is nobody's costs a request to a cluster before anybody is
//! known.
//!
//! Counted are tokens that turn out to be nobody's. Those of users give back what they took, so that many users behind
//! one address are not bounded by it; and those that a cluster's key has signed do not count with everybody's, so that
//! guesses from everywhere do not keep ServiceAccounts out. A cluster that does not answer holds up its own reviews
//! alone.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

/// Reviews on their way to one cluster at once. A kube-apiserver answers one in some milliseconds.
const AT_A_CLUSTER: usize = 32;
/// The same to all clusters, some 10 KB each: more than strangers can have sent while clusters do not answer.
const IN_FLIGHT: usize = 1024;
/// Tokens that are nobody's, from one address: at once, and per second after that. A person with an expired token has
/// one every now and then.
const OF_AN_ADDRESS: Rate = Rate { burst: 50.0, per_second: 5.0 };
/// The same from all addresses.
const OF_ALL: Rate = Rate { burst: 500.0, per_second: 100.0 };
/// Addresses that are told apart; more than these share the bound of one.
const MAX_ADDRESSES: usize = 10_000;

/// A review is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyReviews {
    /// As many as may be are on their way.
    #[error("as many tokens as may be are being reviewed")]
    InFlight,
    /// The same at one cluster.
    #[error("as many tokens as may be are being reviewed there")]
    AtCluster,
    /// One address has sent too many tokens that were nobody's.
    #[error("too many tokens from this address were nobody's")]
    OfAddress,
    /// All addresses together have.
    #[error("too many tokens were nobody's")]
    OfAll,
}

#[derive(Clone, Copy)]
struct Rate {
    burst: f64,
    per_second: f64,
}

/// What is left of a rate, and since when.
struct Left {
    left: f64,
    at: Instant,
}

impl Left {
    fn full(rate: Rate) -> Self {
        Self { left: rate.burst, at: Instant::now() }
    }

    fn now(&mut self, rate: Rate) -> f64 {
        let now = Instant::now();
        let since = now.duration_since(self.at).as_secs_f64();
        *self = Self { left: (self.left + since * rate.per_second).min(rate.burst), at: now };
        self.left
    }

    fn give_back(&mut self, rate: Rate) {
        self.left = (self.left + 1.0).min(rate.burst);
    }
}

/// The bounds.
pub(crate) struct ReviewBounds {
    places: Arc<Semaphore>,
    rates: Mutex<Rates>,
    at_clusters: Mutex<HashMap<ClusterName, usize>>,
}

struct Rates {
    of_all: Left,
    of_addresses: HashMap<Option<IpAddr>, Left>,
}

/// A review that may be sent.
pub(crate) struct Admitted {
    bounds: Arc<ReviewBounds>,
    address: Option<IpAddr>,
    is_signed: bool,
    _place: OwnedSemaphorePermit,
}

/// One that is sent to a cluster.
pub(crate) struct SentReview<'a> {
    bounds: &'a ReviewBounds,
    cluster: &'a ClusterName,
}

impl ReviewBounds {
    pub(crate) fn new() -> Arc<Self> {
        let rates = Rates { of_all: Left::full(OF_ALL), of_addresses: HashMap::new() };
        let (places, at_clusters) = (Arc::new(Semaphore::new(IN_FLIGHT)), Mutex::default());
        Arc::new(Self { places, rates: Mutex::new(rates), at_clusters })
    }

    /// Takes a place for a token from this address. `is_signed` says that a cluster's key has signed it.
    ///
    /// # Errors
    /// [`TooManyReviews`].
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, is_signed: bool) -> Result<Admitted, TooManyReviews> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| TooManyReviews::InFlight)?;
        let mut rates = self.rates.lock();
        let address = rates.counted_address(address);
        let Rates { of_all, of_addresses } = &mut *rates;
        let of_address = of_addresses.entry(address).or_insert_with(|| Left::full(OF_AN_ADDRESS));
        if of_address.now(OF_AN_ADDRESS) < 1.0 {
            return Err(TooManyReviews::OfAddress);
        }
        if !is_signed && of_all.now(OF_ALL) < 1.0 {
            return Err(TooManyReviews::OfAll);
        }
        of_address.left -= 1.0;
        if !is_signed {
            of_all.left -= 1.0;
        }
        drop(rates);
        Ok(Admitted { bounds: Arc::clone(self), address, is_signed, _place: place })
    }
}

impl Admitted {
    /// Takes a place at a cluster.
    ///
    /// # Errors
    /// [`TooManyReviews::AtCluster`].
    pub(crate) fn send<'a>(&'a self, cluster: &'a ClusterName) -> Result<SentReview<'a>, TooManyReviews> {
        let mut at_clusters = self.bounds.at_clusters.lock();
        let taken = at_clusters.entry(cluster.clone()).or_default();
        if *taken >= AT_A_CLUSTER {
            return Err(TooManyReviews::AtCluster);
        }
        *taken += 1;
        Ok(SentReview { bounds: &self.bounds, cluster })
    }

    /// The token was somebody's: it does not count.
    pub(crate) fn was_somebodys(self) {
        let mut rates = self.bounds.rates.lock();
        if !self.is_signed {
            rates.of_all.give_back(OF_ALL);
        }
        if let Some(left) = rates.of_addresses.get_mut(&self.address) {
            left.give_back(OF_AN_ADDRESS);
        }
    }
}

impl Drop for SentReview<'_> {
    fn drop(&mut self) {
        let mut at_clusters = self.bounds.at_clusters.lock();
        if let Some(taken) = at_clusters.get_mut(self.cluster) {
            *taken -= 1;
            if *taken == 0 {
                at_clusters.remove(self.cluster);
            }
        }
    }
}

impl Rates {
    /// As what an address is counted. Whoever has an IPv6 address has a whole network of 64 bits.
    fn counted_address(&mut self, address: IpAddr) -> Option<IpAddr> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            address => address,
        };
        if self.of_addresses.len() >= MAX_ADDRESSES && !self.of_addresses.contains_key(&Some(address)) {
            self.of_addresses.retain(|_, left| left.now(OF_AN_ADDRESS) < OF_AN_ADDRESS.burst);
            if self.of_addresses.len() >= MAX_ADDRESSES {
                return None;
            }
        }
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    /// How long all bounds take to be whole again.
    const RECOVERY: Duration = Duration::from_secs(10);

    fn address(last: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + last).into())
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_are_bounded_by_address_and_in_all() {
        let bounds = ReviewBounds::new();
        let nobodys = |last| bounds.admit(address(last), false).map(drop);
        for _ in 0..50 {
            assert_eq!(nobodys(1), Ok(()));
        }
        assert_eq!(nobodys(1), Err(TooManyReviews::OfAddress));
        assert_eq!(nobodys(2), Ok(()), "another address");
        advance(Duration::from_millis(200)).await;
        assert_eq!((nobodys(1), nobodys(1)), (Ok(()), Err(TooManyReviews::OfAddress)));
        advance(RECOVERY).await;
        let taken = (0..600).filter(|last| nobodys(last / 10 + 100).is_ok()).count();
        assert_eq!(taken, 500);
        assert_eq!(nobodys(3), Err(TooManyReviews::OfAll));
        let signed = || bounds.admit(address(4), true).map(drop);
        let taken = (0..100).filter(|_| signed().is_ok()).count();
        assert_eq!((taken, signed()), (50, Err(TooManyReviews::OfAddress)), "of an address, not with everybody's");
    }

    #[tokio::test(start_paused = true)]
    async fn users_are_bounded_by_what_is_on_its_way_alone() {
        let bounds = ReviewBounds::new();
        for _ in 0..10_000 {
            bounds.admit(address(1), false).unwrap().was_somebodys();
            bounds.admit(address(1), true).unwrap().was_somebodys();
        }
        let places: Vec<_> = (0..1024).map(|last| bounds.admit(address(last), true).unwrap()).collect();
        assert_eq!(bounds.admit(address(1), true).map(drop), Err(TooManyReviews::InFlight));
        drop(places);
        bounds.admit(address(1), true).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn each_cluster_has_places_of_its_own() {
        let bounds = ReviewBounds::new();
        let [hung, other] = ["hung", "other"].map(|name| ClusterName::new(name).unwrap());
        let admitted = bounds.admit(address(1), true).unwrap();
        let sent: Vec<_> = (0..32).map(|_| admitted.send(&hung).unwrap()).collect();
        assert_eq!(admitted.send(&hung).map(drop), Err(TooManyReviews::AtCluster));
        assert_eq!(admitted.send(&other).map(drop), Ok(()));
        drop(sent);
        assert_eq!(admitted.send(&hung).map(drop), Ok(()));
        assert!(bounds.at_clusters.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_a_network_are_one_and_their_number_is_bounded() {
        let bounds = ReviewBounds::new();
        let known =
            |text: &str| bounds.rates.lock().counted_address(text.parse().unwrap()).map(|address| address.to_string());
        assert_eq!(known("2001:db8::1:2:3:4"), Some("2001:db8::".to_owned()));
        assert_eq!(known("::ffff:10.0.0.1"), Some("10.0.0.1".to_owned()));
        for last in 0..u32::try_from(MAX_ADDRESSES).unwrap() {
            let left = Left { left: 0.0, at: Instant::now() };
            bounds.rates.lock().of_addresses.insert(Some(address(last)), left);
        }
        assert_eq!(bounds.rates.lock().counted_address(address(99_999)), None);
        assert_eq!(bounds.rates.lock().counted_address(address(1)), Some(address(1)));
        advance(RECOVERY).await;
        assert_eq!(bounds.rates.lock().counted_address(address(99_999)), Some(address(99_999)));
    }
}
