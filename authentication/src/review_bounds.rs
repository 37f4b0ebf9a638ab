//! Limits for TokenReviews. A review costs a request to a cluster before the client is authenticated.
//!
//! A token that no cluster accepts spends from two token buckets: the bucket of the client's address, and the bucket of
//! all addresses. A token that a cluster accepts refunds both buckets. So many users behind one address are not
//! limited. A token with a valid signature of a cluster's key spends only from the bucket of the address. So random
//! tokens from many addresses, which empty the bucket of all addresses, do not block ServiceAccounts. A cluster that
//! does not answer delays only its own reviews.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_limiters::{SpentTokens, TokenRate};

/// The maximum number of concurrent reviews at one cluster. A kube-apiserver answers a review in some milliseconds.
const REVIEWS_PER_CLUSTER_MAX: usize = 32;
/// The maximum number of concurrent reviews at all clusters, of some 10 KB each. Unauthenticated clients cannot reach
/// this number, even while clusters do not answer.
const REVIEWS_IN_FLIGHT_MAX: usize = 1024;
/// The limit for unaccepted tokens from one address: a burst of 50, and 5 per second. A person with an expired token
/// sends about one request at a time.
const ADDRESS_BURST: NonZeroU32 = NonZeroU32::new(50).unwrap();
const ADDRESS_INTERVAL: Duration = Duration::from_millis(200);
/// The limit for unaccepted tokens from all addresses: a burst of 500, and 100 per second.
const TOTAL_BURST: NonZeroU32 = NonZeroU32::new(500).unwrap();
const TOTAL_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum number of addresses with their own token bucket. All other addresses share one bucket.
const MAX_ADDRESSES: usize = 10_000;

const ONE: NonZeroU32 = NonZeroU32::MIN;

/// The limit that prevents a TokenReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyReviews {
    /// Too many reviews are in flight at all clusters.
    #[error("the limit of token reviews in flight is reached; try again")]
    InFlight,
    /// Too many reviews are in flight at one cluster.
    #[error("the limit of token reviews in flight at this cluster is reached; try again")]
    PerCluster,
    /// Clusters have rejected too many tokens from one address.
    #[error("too many tokens from this address were rejected recently; try again")]
    PerAddress,
    /// Clusters have rejected too many tokens from all addresses together.
    #[error("too many tokens were rejected recently; try again")]
    Total,
}

pub(crate) struct ReviewBounds {
    permits: Arc<Semaphore>,
    per_address: TokenRate,
    total: TokenRate,
    unknown_tokens: Mutex<UnknownTokens>,
    at_clusters: Mutex<HashMap<ClusterName, usize>>,
}

/// The token buckets that rejected bearer tokens spend from: one for each client address, and one for all addresses.
#[derive(Default)]
struct UnknownTokens {
    total: SpentTokens,
    by_address: HashMap<Option<IpAddr>, SpentTokens>,
}

/// A token review that the token buckets and the limit of concurrent reviews admit.
pub(crate) struct AdmittedReview {
    bounds: Arc<ReviewBounds>,
    address: Option<IpAddr>,
    is_signed: bool,
    _permit: OwnedSemaphorePermit,
}

/// A token review that counts as in flight at one cluster.
pub(crate) struct SentReview<'a> {
    bounds: &'a ReviewBounds,
    cluster: &'a ClusterName,
}

impl ReviewBounds {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(REVIEWS_IN_FLIGHT_MAX)),
            per_address: TokenRate::with_interval(ADDRESS_INTERVAL, ADDRESS_BURST),
            total: TokenRate::with_interval(TOTAL_INTERVAL, TOTAL_BURST),
            unknown_tokens: Mutex::default(),
            at_clusters: Mutex::default(),
        })
    }

    /// Admits the review of a token from this address. `is_signed` is true if the token has the signature of a
    /// cluster's key.
    ///
    /// # Errors
    /// [`TooManyReviews`].
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, is_signed: bool) -> Result<AdmittedReview, TooManyReviews> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| TooManyReviews::InFlight)?;
        let (mut unknown_tokens, now) = (self.unknown_tokens.lock(), Instant::now());
        let address = unknown_tokens.bucket_address(address, now);
        let UnknownTokens { total, by_address } = &mut *unknown_tokens;
        let per_address = by_address.entry(address).or_default();
        per_address.try_spend(self.per_address, ONE, now).map_err(|_| TooManyReviews::PerAddress)?;
        if !is_signed && total.try_spend(self.total, ONE, now).is_err() {
            per_address.give_back(self.per_address, ONE, Duration::ZERO);
            return Err(TooManyReviews::Total);
        }
        drop(unknown_tokens);
        Ok(AdmittedReview { bounds: Arc::clone(self), address, is_signed, _permit: permit })
    }
}

impl AdmittedReview {
    /// Counts a review as in flight at a cluster, until the returned value is dropped.
    ///
    /// # Errors
    /// [`TooManyReviews::PerCluster`].
    pub(crate) fn begin_review<'a>(&'a self, cluster: &'a ClusterName) -> Result<SentReview<'a>, TooManyReviews> {
        let mut at_clusters = self.bounds.at_clusters.lock();
        let in_flight = at_clusters.entry(cluster.clone()).or_default();
        if *in_flight >= REVIEWS_PER_CLUSTER_MAX {
            return Err(TooManyReviews::PerCluster);
        }
        *in_flight += 1;
        Ok(SentReview { bounds: &self.bounds, cluster })
    }

    /// Refunds the token buckets, because a cluster accepted the bearer token.
    pub(crate) fn give_back(self) {
        let ReviewBounds { per_address, total, unknown_tokens, .. } = &*self.bounds;
        let mut unknown_tokens = unknown_tokens.lock();
        if !self.is_signed {
            unknown_tokens.total.give_back(*total, ONE, Duration::ZERO);
        }
        if let Some(bucket) = unknown_tokens.by_address.get_mut(&self.address) {
            bucket.give_back(*per_address, ONE, Duration::ZERO);
        }
    }
}

impl Drop for SentReview<'_> {
    fn drop(&mut self) {
        let mut at_clusters = self.bounds.at_clusters.lock();
        if let Some(in_flight) = at_clusters.get_mut(self.cluster) {
            *in_flight -= 1;
            if *in_flight == 0 {
                at_clusters.remove(self.cluster);
            }
        }
    }
}

impl UnknownTokens {
    /// Returns the address whose bucket the request spends from. IPv6 addresses are cut to the first 64 bits, which are
    /// one client's network. `None` selects the common bucket of the addresses above [`MAX_ADDRESSES`].
    fn bucket_address(&mut self, address: IpAddr, now: Instant) -> Option<IpAddr> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            address => address,
        };
        if self.by_address.len() >= MAX_ADDRESSES && !self.by_address.contains_key(&Some(address)) {
            self.by_address.retain(|_, bucket| !bucket.is_full(now));
            if self.by_address.len() >= MAX_ADDRESSES {
                return None;
            }
        }
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// The time after which all token buckets are full.
    const RECOVERY: Duration = Duration::from_secs(10);

    fn address(last: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + last).into())
    }

    #[tokio::test(start_paused = true)]
    async fn token_reviews_of_rejected_tokens_are_limited_per_address_and_in_total() {
        let bounds = ReviewBounds::new();
        let admit = |last| bounds.admit(address(last), false).map(drop);
        for _ in 0..50 {
            assert_eq!(admit(1), Ok(()));
        }
        assert_eq!(admit(1), Err(TooManyReviews::PerAddress));
        assert_eq!(admit(2), Ok(()), "another address");
        advance(Duration::from_millis(200)).await;
        assert_eq!((admit(1), admit(1)), (Ok(()), Err(TooManyReviews::PerAddress)));
        advance(RECOVERY).await;
        let admitted = (0..600).filter(|last| admit(last / 10 + 100).is_ok()).count();
        assert_eq!(admitted, 500);
        assert_eq!(admit(3), Err(TooManyReviews::Total));
        let signed = || bounds.admit(address(4), true).map(drop);
        let admitted = (0..100).filter(|_| signed().is_ok()).count();
        assert_eq!((admitted, signed()), (50, Err(TooManyReviews::PerAddress)), "of an address, not with everybody's");
    }

    #[tokio::test(start_paused = true)]
    async fn accepted_tokens_are_limited_only_by_reviews_in_flight() {
        let bounds = ReviewBounds::new();
        for _ in 0..10_000 {
            bounds.admit(address(1), false).unwrap().give_back();
            bounds.admit(address(1), true).unwrap().give_back();
        }
        let permits: Vec<_> = (0..1024).map(|last| bounds.admit(address(last), true).unwrap()).collect();
        assert_eq!(bounds.admit(address(1), true).map(drop), Err(TooManyReviews::InFlight));
        drop(permits);
        bounds.admit(address(1), true).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn token_reviews_in_flight_are_limited_per_cluster() {
        let bounds = ReviewBounds::new();
        let [hung, other] = ["hung", "other"].map(|name| ClusterName::new(name).unwrap());
        let admitted = bounds.admit(address(1), true).unwrap();
        let sent: Vec<_> = (0..32).map(|_| admitted.begin_review(&hung).unwrap()).collect();
        assert_eq!(admitted.begin_review(&hung).map(drop), Err(TooManyReviews::PerCluster));
        assert_eq!(admitted.begin_review(&other).map(drop), Ok(()));
        drop(sent);
        assert_eq!(admitted.begin_review(&hung).map(drop), Ok(()));
        assert!(bounds.at_clusters.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_one_network_share_a_token_bucket() {
        let bounds = ReviewBounds::new();
        let bucket_address = |address| bounds.unknown_tokens.lock().bucket_address(address, Instant::now());
        let address_text = |text: &str| bucket_address(text.parse().unwrap()).map(|address| address.to_string());
        assert_eq!(address_text("2001:db8::1:2:3:4"), Some("2001:db8::".to_owned()));
        assert_eq!(address_text("::ffff:10.0.0.1"), Some("10.0.0.1".to_owned()));
        for last in 0..u32::try_from(MAX_ADDRESSES).unwrap() {
            bounds.admit(address(last), true).unwrap();
        }
        assert_eq!(bucket_address(address(99_999)), None);
        assert_eq!(bucket_address(address(1)), Some(address(1)));
        advance(RECOVERY).await;
        assert_eq!(bucket_address(address(99_999)), Some(address(99_999)));
    }
}
