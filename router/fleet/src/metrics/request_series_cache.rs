//! Cache of metric series by request labels: a single lookup finds all series in which a request is counted.
//!
//! Without the cache, each request would cost half a dozen allocations for its labels, and a hash of all label texts
//! for each of up to four series. With the cache, a request whose labels equal those of an earlier request costs one
//! hash and no allocation.

use std::hash::BuildHasher as _;
use std::mem;
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashTable};
use http::StatusCode;
use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use super::counted_request::CountedRequest;

pub(super) struct RequestSeries {
    /// Counter of requests by resource and response code.
    pub(super) requests: Counter,
    /// Counter of requests by cluster and outcome.
    pub(super) cluster_requests: Counter,
    /// Histogram of request durations; `None` for watches.
    pub(super) durations: Option<Histogram>,
    /// Counter of 410 responses because of an old resourceVersion. `None` for other response codes.
    pub(super) expired: Option<Counter>,
}

/// Cache of the series of recent kinds of requests. A kind is a set of labels with a response code.
///
/// The cache has a limit, because clients choose the requests and clusters define the resources. A full cache is
/// emptied, [at most once a minute](EMPTIED_EVERY). After that, each kind in use is looked up once more, and names of
/// vanished resources and clusters disappear. Until the cache is emptied, each request of a new kind costs a lookup in
/// the metric family.
pub(super) struct RequestSeriesCache {
    known: RwLock<CachedSeries>,
    /// Fast hash function without protection against chosen keys. No protection is needed: clients choose no part of
    /// the key, clusters do not know the seed, and the number of comparisons is limited.
    hasher: DefaultHashBuilder,
    max: usize,
}

#[derive(Default)]
struct CachedSeries {
    kinds: HashTable<KnownRequests>,
    /// Number of times that the cache was cleared because series were removed. If the number has changed since a series
    /// was looked up, the series may have been removed, so it is not cached.
    cleared: u64,
    emptied_at: Option<Instant>,
}

/// Minimum interval between two times that the full cache is emptied. Without the interval, clients that constantly
/// send new kinds of requests could empty the cache at any time. While the cache is filled again, other requests wait:
/// 10,000 kinds take some 20 ms.
const EMPTIED_EVERY: Duration = Duration::from_secs(60);

struct KnownRequests {
    hash: u64,
    request: CountedRequest<'static>,
    code: StatusCode,
    series: RequestSeries,
}

impl RequestSeries {
    fn count(&self, took: Duration) {
        self.requests.inc();
        self.cluster_requests.inc();
        if let Some(durations) = &self.durations {
            durations.observe(took.as_secs_f64());
        }
        if let Some(expired) = &self.expired {
            expired.inc();
        }
    }
}

impl RequestSeriesCache {
    /// Creates a cache with a maximum number of kinds. Each kind takes some 200 bytes in addition to its names.
    pub(super) fn new(max: usize) -> Self {
        Self { known: RwLock::default(), hasher: DefaultHashBuilder::default(), max }
    }

    /// Counts a request with this code and duration. `begin` looks up the series if the kind is not cached. Two
    /// concurrent calls may both call `begin`, which returns the same series to both.
    pub(super) fn count(
        &self,
        request: &CountedRequest<'_>,
        code: StatusCode,
        took: Duration,
        begin: impl FnOnce() -> RequestSeries,
    ) {
        let hash = self.hasher.hash_one((request, code));
        let is_alike = |known: &KnownRequests| known.code == code && *request == known.request;
        let (cleared, now, has_room) = {
            let known = self.known.read();
            if let Some(known) = known.kinds.find(hash, is_alike) {
                return known.series.count(took);
            }
            let now = Instant::now();
            (known.cleared, now, self.has_room(&known, now))
        };
        // The series are looked up without the lock.
        let series = begin();
        series.count(took);
        if !has_room {
            return;
        }
        let mut known = self.known.write();
        // Meanwhile, another thread may have added the kind, or may have removed its series.
        if known.cleared != cleared || !self.has_room(&known, now) || known.kinds.find(hash, is_alike).is_some() {
            return;
        }
        let is_full = known.kinds.len() >= self.max;
        let let_go = is_full.then(|| mem::take(&mut known.kinds));
        if is_full {
            known.emptied_at = Some(now);
        }
        let request = request.to_static();
        known.kinds.insert_unique(hash, KnownRequests { hash, request, code, series }, |known| known.hash);
        // A full cache has ten thousand kinds. Freeing these kinds takes time, so it happens after the release of the
        // lock.
        drop(known);
        drop(let_go);
    }

    /// Returns whether the cache has capacity for one more kind. A full cache has capacity if it may be emptied now.
    fn has_room(&self, known: &CachedSeries, now: Instant) -> bool {
        let lately = |begun| now.saturating_duration_since(begun) < EMPTIED_EVERY;
        known.kinds.len() < self.max || !known.emptied_at.is_some_and(lately)
    }

    /// Drops all cached kinds. Call this function after series were removed: a cached counter of a removed series would
    /// lose its counts.
    pub(super) fn clear(&self) {
        let mut known = self.known.write();
        known.cleared += 1;
        let let_go = mem::take(&mut known.kinds);
        drop(known);
        drop(let_go);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.read().kinds.len()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tributary_apimachinery::{ClusterName, Verb};

    use super::super::counted_request::CountedCluster;
    use super::super::{ClientClass, Decision, RequestSource};
    use super::*;

    fn request() -> CountedRequest<'static> {
        let (verb, source, cluster) = (Verb::List, RequestSource::Memory, CountedCluster::None);
        CountedRequest { verb, resource: None, source, cluster, decision: Decision::Memory, client: ClientClass::Helm }
    }

    struct Counting {
        cache: RequestSeriesCache,
        begun: Cell<usize>,
    }

    impl Counting {
        fn new(max: usize) -> Self {
            Self { cache: RequestSeriesCache::new(max), begun: Cell::new(0) }
        }

        /// Counts a request. Returns whether the request's series were not cached.
        fn begins(&self, request: &CountedRequest<'_>, code: StatusCode) -> bool {
            let before = self.begun.get();
            self.cache.count(request, code, Duration::ZERO, || {
                self.begun.set(before + 1);
                let (requests, cluster_requests) = (Counter::default(), Counter::default());
                RequestSeries { requests, cluster_requests, durations: None, expired: None }
            });
            self.begun.get() > before
        }
    }

    #[test]
    fn requests_with_any_different_label_have_different_series() {
        let counting = Counting::new(100);
        let eu = || CountedCluster::One(ClusterName::new("eu").unwrap());
        let us = CountedCluster::One(ClusterName::new("us").unwrap());
        let kinds = [
            (request(), StatusCode::OK),
            (request(), StatusCode::GONE),
            (CountedRequest { verb: Verb::Watch, ..request() }, StatusCode::OK),
            (CountedRequest { verb: Verb::NonResource("list"), ..request() }, StatusCode::OK),
            (CountedRequest { source: RequestSource::Own, ..request() }, StatusCode::OK),
            (CountedRequest { decision: Decision::Own, ..request() }, StatusCode::OK),
            (CountedRequest { client: ClientClass::Kubectl, ..request() }, StatusCode::OK),
            (CountedRequest { cluster: CountedCluster::Several, ..request() }, StatusCode::OK),
            (CountedRequest { cluster: eu(), ..request() }, StatusCode::OK),
            (CountedRequest { cluster: us, ..request() }, StatusCode::OK),
        ];
        for (request, code) in &kinds {
            assert!(counting.begins(request, *code), "{request:?} {code}");
        }
        for (request, code) in &kinds {
            assert!(!counting.begins(request, *code), "{request:?} {code}");
        }
        assert_eq!(counting.cache.len(), kinds.len());
        let alike = CountedRequest { cluster: eu(), ..request() };
        assert!(!counting.begins(&alike, StatusCode::OK), "a name that is another text");
    }

    #[tokio::test(start_paused = true)]
    async fn full_metric_series_cache_is_emptied_once_a_minute() {
        const MAX: usize = 3;
        let counting = Counting::new(MAX);
        let named = |number: usize| {
            let cluster = CountedCluster::One(ClusterName::new(&format!("c{number}")).unwrap());
            CountedRequest { cluster, ..request() }
        };
        for round in 0..10 {
            // The first kind above the limit empties the cache, and the following kinds fill the cache again.
            for number in 0..100 {
                let number = round * 100 + number;
                assert!(counting.begins(&named(number), StatusCode::OK), "{number}");
                assert!(counting.cache.len() <= MAX, "{number}");
            }
            let is_cached = |number: &usize| !counting.begins(&named(*number), StatusCode::OK);
            let of_this_round = (round * 100..(round + 1) * 100).filter(is_cached).count();
            assert_eq!(of_this_round, MAX, "{round}: what came last is found, and asked for everything it keeps that");
            tokio::time::advance(EMPTIED_EVERY).await;
        }
    }

    #[test]
    fn metric_series_found_before_a_cache_clear_are_not_cached_later() {
        let counting = Counting::new(3);
        counting.cache.count(&request(), StatusCode::OK, Duration::ZERO, || {
            counting.cache.clear();
            let (requests, cluster_requests) = (Counter::default(), Counter::default());
            RequestSeries { requests, cluster_requests, durations: None, expired: None }
        });
        assert_eq!(counting.cache.len(), 0);
        assert!(counting.begins(&request(), StatusCode::OK));
        assert!(!counting.begins(&request(), StatusCode::OK));
    }
}
