//! A cache that keeps the results of token checks (apiserver `pkg/authentication/token/cache`) and of access reviews
//! for some seconds.
//!
//! The cache stores only keyed hashes of tokens, with a new key for each process. A memory dump or the duration of a
//! lookup therefore discloses no tokens. Concurrent requests with the same key share one check. The check continues if
//! all of these requests are cancelled, and its result is cached.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of cached results, of about 300 bytes each. kube-apiserver caches 131,072 results (32 stripes of
/// 4,096). Tributary needs fewer: the limits for reviews allow fewer than 16,384 reviews within the lifetime of a
/// cached result.
const RESULTS_MAX: usize = 16 * 1024;

/// Maximum size of all cached results, in bytes. A limit for the number of results is not enough, because a cluster
/// decides how much data a user has. 64 MiB hold [`RESULTS_MAX`] users with some hundred groups each (4 KB).
const MAX_BYTES: usize = 64 << 20;

/// The keyed hash of a checked value (a token or an access review) and its context, such as the cluster in the
/// request's path.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CheckKey([u8; 32]);

/// The result of a check, and the time for which the result is cached. `None` means that the result is not cached.
pub type CachedCheck<T> = (T, Option<Duration>);

type RunningCheck<T> = Shared<BoxFuture<'static, Option<T>>>;

/// A cache for at most 16,384 results of checks, of at most 64 MiB together.
pub struct CheckCache<T> {
    key: hmac::Key,
    bytes_of: fn(&T) -> usize,
    entries: Mutex<CheckEntries<T>>,
}

struct CheckEntries<T> {
    results: HashMap<CheckKey, (T, Instant)>,
    /// The keys of `results` in the order of insertion. Each key has the expiry that its result had at the insertion.
    order: VecDeque<(CheckKey, Instant)>,
    /// The total size of the results in `results`, in bytes.
    bytes: usize,
    running_checks: HashMap<CheckKey, RunningCheck<T>>,
}

impl<T: Clone + Send + Sync + 'static> CheckCache<T> {
    /// Creates an empty cache. `bytes_of` returns the size of a result in bytes.
    pub fn new(bytes_of: fn(&T) -> usize) -> Arc<Self> {
        // `generate` fails only if the operating system provides no random numbers. Such a process could not use TLS
        // either.
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.unwrap_or_else(|_| unreachable!("the system has random numbers"));
        let entries =
            CheckEntries { results: HashMap::new(), order: VecDeque::new(), bytes: 0, running_checks: HashMap::new() };
        Arc::new(Self { key, bytes_of, entries: Mutex::new(entries) })
    }

    /// Returns the cache key of a token. `context` contains all other values that the result depends on. Costs about 1
    /// µs for a token of 1 KB.
    pub fn key(&self, context: &[&[u8]], token: &[u8]) -> CheckKey {
        let mut hash = hmac::Context::with_key(&self.key);
        for part in context {
            // The length of each part precedes the part, so that different contexts have different hashes.
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(token);
        let mut key = [0; 32];
        key.copy_from_slice(hash.sign().as_ref());
        CheckKey(key)
    }

    /// Returns the cached result of a check, if it has not expired.
    pub fn get(&self, key: &CheckKey) -> Option<T> {
        let entries = self.entries.lock();
        let (found, until) = entries.results.get(key)?;
        (Instant::now() < *until).then(|| found.clone())
    }

    pub(crate) fn put(&self, key: CheckKey, (found, ttl): CachedCheck<T>) {
        if let Some(ttl) = ttl.filter(|ttl| !ttl.is_zero()) {
            self.entries.lock().put(key, found, Instant::now() + ttl, self.bytes_of);
        }
    }

    /// Returns the result of a check that all concurrent callers share. The first caller starts the check with `begin`,
    /// which may fail. Returns `None` if the check panicked. Must be called within a tokio runtime. Cancel: a started
    /// check continues.
    ///
    /// # Errors
    /// The error of `begin`.
    pub async fn find<E>(
        self: &Arc<Self>,
        key: CheckKey,
        begin: impl FnOnce() -> Result<BoxFuture<'static, CachedCheck<T>>, E>,
    ) -> Result<Option<T>, E> {
        let running_check = {
            let mut entries = self.entries.lock();
            match entries.running_checks.get(&key) {
                Some(running_check) => running_check.clone(),
                None => {
                    let running_check = self.start(key, begin()?);
                    entries.running_checks.insert(key, running_check.clone());
                    running_check
                }
            }
        };
        Ok(running_check.await)
    }

    fn start(self: &Arc<Self>, key: CheckKey, find: BoxFuture<'static, CachedCheck<T>>) -> RunningCheck<T> {
        let check_guard = CheckGuard { cache: Arc::clone(self), key };
        let task = tokio::spawn(async move {
            let (found, ttl) = find.await;
            check_guard.cache.put(key, (found.clone(), ttl));
            drop(check_guard);
            found
        });
        task.map(Result::ok).boxed().shared()
    }
}

/// Removes a running check from the cache when the check has finished or panicked.
struct CheckGuard<T> {
    cache: Arc<CheckCache<T>>,
    key: CheckKey,
}

impl<T> Drop for CheckGuard<T> {
    fn drop(&mut self) {
        self.cache.entries.lock().running_checks.remove(&self.key);
    }
}

impl<T> CheckEntries<T> {
    fn put(&mut self, key: CheckKey, result: T, until: Instant, bytes_of: fn(&T) -> usize) {
        self.bytes += bytes_of(&result);
        if let Some((before, _)) = self.results.insert(key, (result, until)) {
            self.bytes -= bytes_of(&before);
        }
        self.order.push_back((key, until));
        let now = Instant::now();
        while self.order.len() > RESULTS_MAX
            || self.bytes > MAX_BYTES
            || self.order.front().is_some_and(|(_, until)| *until <= now)
        {
            let Some((first, until)) = self.order.pop_front() else { break };
            // If the expiry differs, the result was cached again after this insertion. The newer result stays.
            if self.results.get(&first).is_some_and(|(_, current)| *current == until)
                && let Some((removed, _)) = self.results.remove(&first)
            {
                self.bytes -= bytes_of(&removed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{advance, sleep, timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn token_check_result_is_cached_for_its_lifetime() {
        let cache = CheckCache::new(|_| 0);
        let [a, b, c] = ["a", "b", "c"].map(|token| cache.key(&[], token.as_bytes()));
        cache.put(a, (1, Some(SECOND * 10)));
        cache.put(b, (2, None));
        cache.put(c, (3, Some(Duration::ZERO)));
        assert_eq!([cache.get(&a), cache.get(&b), cache.get(&c)], [Some(1), None, None]);
        advance(SECOND * 9).await;
        assert_eq!(cache.get(&a), Some(1));
        advance(SECOND).await;
        assert_eq!(cache.get(&a), None);
    }

    #[tokio::test(start_paused = true)]
    async fn token_cache_limits_the_number_of_entries() {
        let cache = CheckCache::new(|_| 0);
        let key = |number: usize| cache.key(&[], &number.to_le_bytes());
        for number in 0..RESULTS_MAX {
            cache.put(key(number), (number, Some(SECOND)));
        }
        // A token that is cached again moves to the end of the order of insertion.
        cache.put(key(1), (1, Some(SECOND * 5)));
        assert_eq!((cache.get(&key(0)), cache.get(&key(1))), (None, Some(1)));
        cache.put(key(RESULTS_MAX), (0, Some(SECOND)));
        assert_eq!((cache.get(&key(1)), cache.get(&key(2))), (Some(1), Some(2)));
        let lengths = |cache: &CheckCache<usize>| {
            let entries = cache.entries.lock();
            [entries.results.len(), entries.order.len()]
        };
        assert!(lengths(&cache).iter().all(|length| *length <= RESULTS_MAX));
        advance(SECOND).await;
        cache.put(key(0), (0, Some(SECOND)));
        assert_eq!(cache.get(&key(1)), Some(1));
        assert_eq!(lengths(&cache), [3, 3], "expired entries are removed, unless an entry before them lasts longer");
    }

    #[tokio::test(start_paused = true)]
    async fn token_cache_limits_the_bytes_of_its_results() {
        let cache = CheckCache::new(|bytes| *bytes);
        let key = |number: usize| cache.key(&[], &number.to_le_bytes());
        for number in 0..100 {
            cache.put(key(number), (MAX_BYTES / 10, Some(SECOND)));
        }
        assert_eq!((cache.get(&key(89)), cache.get(&key(90))), (None, Some(MAX_BYTES / 10)));
        cache.put(key(99), (0, Some(SECOND)));
        cache.put(key(100), (MAX_BYTES / 10, Some(SECOND)));
        assert_eq!((cache.get(&key(90)), cache.get(&key(99))), (Some(MAX_BYTES / 10), Some(0)));
        cache.put(key(101), (MAX_BYTES + 1, Some(SECOND)));
        assert_eq!(cache.get(&key(101)), None);
        advance(SECOND).await;
        cache.put(key(0), (1, Some(SECOND)));
        assert_eq!(cache.entries.lock().bytes, 1);
    }

    #[tokio::test]
    async fn token_cache_key_depends_on_token_and_context() {
        let cache = CheckCache::<()>::new(|()| 0);
        let key = |context: &[&[u8]], token: &str| cache.key(context, token.as_bytes()).0;
        let keys = [
            key(&[], "ab"),
            key(&[b""], "ab"),
            key(&[b"a"], "b"),
            key(&[b"ab"], ""),
            key(&[b"a", b"b"], ""),
            CheckCache::<()>::new(|()| 0).key(&[], b"ab").0,
        ];
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(key(&[b"a"], "b"), key(&[b"a"], "b"));
    }

    #[tokio::test(start_paused = true)]
    async fn token_check_is_shared_by_callers_and_survives_cancellation() {
        let (cache, checks) = (CheckCache::new(|_| 0), Arc::new(AtomicUsize::new(0)));
        let key = cache.key(&[], b"a");
        let find = || {
            cache.find(key, || {
                checks.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(
                    async {
                        sleep(SECOND).await;
                        (7, Some(SECOND))
                    }
                    .boxed(),
                )
            })
        };
        assert!(timeout(SECOND / 2, find()).await.is_err(), "a caller that is cancelled");
        assert_eq!(tokio::join!(find(), find()), (Ok(Some(7)), Ok(Some(7))));
        assert_eq!((checks.load(Ordering::Relaxed), cache.get(&key)), (1, Some(7)));
        assert!(
            timeout(
                SECOND / 2,
                cache.find(cache.key(&[], b"b"), || {
                    Ok::<_, Infallible>(
                        async {
                            sleep(SECOND).await;
                            (8, Some(SECOND))
                        }
                        .boxed(),
                    )
                })
            )
            .await
            .is_err()
        );
        sleep(SECOND).await;
        assert_eq!(cache.get(&cache.key(&[], b"b")), Some(8), "cached although no caller waited");
    }

    #[tokio::test(start_paused = true)]
    async fn failed_token_check_is_repeated_for_the_next_caller() {
        let cache = CheckCache::<u8>::new(|_| 0);
        let key = cache.key(&[], b"a");
        assert_eq!(cache.find(key, || Err("busy")).await, Err("busy"));
        let panics = cache.find(key, || Ok::<_, Infallible>(async { panic!("on purpose") }.boxed()));
        assert_eq!(panics.await, Ok(None));
        let finds = cache.find(key, || Ok::<_, Infallible>(async { (1, None) }.boxed()));
        assert_eq!(finds.await, Ok(Some(1)));
        assert!(cache.entries.lock().running_checks.is_empty());
    }
}
