//! Cache of readable objects. The computation for a thousand clusters takes milliseconds, and its result stays valid
//! until one of its few inputs changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::ClusterName;
use tributary_fleet::discovery::MergedDiscovery;
use tributary_fleet::policy::Policies;
use tributary_fleet::topology::Cluster;

use super::actor::Actor;
use super::caller_rights::CallerRights;
use super::mirror::RightsStamp;
use super::read_target::ReadTarget;
use super::readable::Readable;

/// Maximum number of results in one of the two generations of the cache, which has at most twice as many. 2,048: 500
/// users with four resources each. A result takes some 200 bytes, or 100 KB for a thousand clusters with different
/// rights.
const CACHED_MAX: usize = 2_048;

/// Maximum size of the callers' strings in one generation of the cache, in bytes. 16 MiB: a usual user has some hundred
/// bytes. If a client impersonates users with many groups, the cache has fewer results.
const CACHED_CALLER_BYTES_MAX: usize = 16 << 20;

/// Maximum size of the results in one generation of the cache, in bytes. 256 MiB are [`CACHED_MAX`] results of a
/// thousand clusters each. The limit is necessary because users choose the number of namespaces and names in a result.
const CACHED_READABLE_BYTES_MAX: usize = 256 << 20;

/// Key of the cache: the caller, the verb, and the resource, namespace and name of the read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReadableKey {
    actor: Arc<Actor>,
    verb: &'static str,
    target: ReadTarget,
}

impl ReadableKey {
    fn bytes(&self) -> usize {
        let Self { actor, target, .. } = self;
        actor.bytes() + target.namespace.len() + target.name.len()
    }
}

/// Configuration on which a result depends.
#[derive(Clone, Default)]
pub struct ReadableConfiguration {
    /// Policies of resources.
    pub policies: Arc<Policies>,
    /// Discovery of the merged view.
    pub merged_discovery: Arc<MergedDiscovery>,
    /// Clusters by name.
    pub clusters: Arc<BTreeMap<ClusterName, Arc<Cluster>>>,
}

impl ReadableConfiguration {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policies, &other.policies)
            && Arc::ptr_eq(&self.merged_discovery, &other.merged_discovery)
            && Arc::ptr_eq(&self.clusters, &other.clusters)
    }
}

/// Inputs of a result. The result is valid while all inputs are unchanged.
struct ReadableInputs {
    rights: RightsStamp,
    configuration: ReadableConfiguration,
    until: Option<Instant>,
}

impl ReadableInputs {
    fn is(&self, now: &Self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
            && self.rights.is(&now.rights)
            && self.configuration.is(&now.configuration)
    }
}

type CachedReadable = (ReadableInputs, Result<Readable, Refusal>);

/// Cache of readable objects with two generations. When the young generation is full, it becomes the old generation,
/// and the previous old generation is dropped.
#[derive(Default)]
pub struct ReadableCache {
    cached: Mutex<CacheGenerations>,
}

#[derive(Default)]
struct CacheGenerations {
    young: HashMap<ReadableKey, CachedReadable>,
    /// Size of the callers' strings in the young generation, in bytes.
    young_bytes: usize,
    /// Size of the results in the young generation, in bytes.
    young_readable_bytes: usize,
    old: HashMap<ReadableKey, CachedReadable>,
}

impl ReadableCache {
    /// Returns the cached result if all inputs are unchanged, else the result of `find`. A result with missing reviews
    /// is not cached.
    ///
    /// # Errors
    /// The error of `find`, which may come from the cache.
    pub fn get(
        &self,
        rights: &CallerRights,
        configuration: ReadableConfiguration,
        (verb, target): (&'static str, ReadTarget),
        find: impl FnOnce(&ReadTarget) -> Result<Readable, Refusal>,
    ) -> Result<Readable, Refusal> {
        // The inputs are read before `find`, so that a concurrent change makes the result outdated.
        let mut by = ReadableInputs { rights: rights.stamp(), configuration, until: None };
        let key = ReadableKey { actor: Arc::clone(rights.actor()), verb, target };
        if let Some(found) = self.cached.lock().find(&key, &by) {
            return found;
        }
        // `find` runs without the lock. Two requests may thus compute the same result, which is rare.
        let found = find(&key.target);
        let (has_open_reviews, until) = rights.needs();
        if has_open_reviews {
            return found;
        }
        by.until = until;
        self.cached.lock().insert(key, (by, found.clone()));
        found
    }
}

impl CacheGenerations {
    fn find(&mut self, key: &ReadableKey, by: &ReadableInputs) -> Option<Result<Readable, Refusal>> {
        if let Some((_, found)) = self.young.get(key).filter(|(own, _)| own.is(by)) {
            return Some(found.clone());
        }
        let (own, cached) = self.old.remove(key)?;
        let found = own.is(by).then(|| cached.clone())?;
        self.insert(key.clone(), (own, cached));
        Some(found)
    }

    fn insert(&mut self, key: ReadableKey, found: CachedReadable) {
        let are_full =
            self.young_bytes >= CACHED_CALLER_BYTES_MAX || self.young_readable_bytes >= CACHED_READABLE_BYTES_MAX;
        // Also checked if the result replaces another one, because the new result may be larger.
        if are_full || (self.young.len() >= CACHED_MAX && !self.young.contains_key(&key)) {
            (self.young_bytes, self.young_readable_bytes) = (0, 0);
            self.old = std::mem::take(&mut self.young);
        }
        let is_new = !self.young.contains_key(&key);
        self.young_bytes += if is_new { key.bytes() } else { 0 };
        self.young_readable_bytes += bytes(&found);
        let before = self.young.insert(key, found);
        self.young_readable_bytes -= before.as_ref().map_or(0, bytes);
    }
}

fn bytes((_, found): &CachedReadable) -> usize {
    found.as_ref().map_or(0, Readable::bytes)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::{BTreeMap, BTreeSet};

    use tributary_apimachinery::{ClusterName, GroupVersionResource};
    use tributary_authentication::UserInfo;
    use tributary_authorization::{Part, Visible};

    use super::super::audience::Audience;
    use super::super::mirror::RightsMirror;
    use super::super::namespaces::NamespaceRights;
    use super::*;
    use tributary_answers::refusal::RequestRefusal;
    use tributary_authentication::User;

    fn actor(name: &str) -> Actor {
        let User { info, authority } = User::named("test", name);
        Actor::new(info, authority, None)
    }

    fn target(name: &str) -> ReadTarget {
        let resource = GroupVersionResource::new("", "v1", "pods");
        ReadTarget { resource, namespaced: true, namespace: String::new(), name: name.to_owned() }
    }

    #[tokio::test]
    async fn readable_objects_are_cached_per_user_until_the_configuration_changes() {
        let mirror = RightsMirror::without_clusters();
        let rights = |user: &str| CallerRights::new(&mirror, actor(user));
        let (found, cache) = (Cell::new(0), ReadableCache::default());
        let configuration = RefCell::<ReadableConfiguration>::default();
        let ask = |user: &str, verb, name: &str| {
            let answer = cache.get(&rights(user), configuration.borrow().clone(), (verb, target(name)), |_| {
                found.set(found.get() + 1);
                Err(RequestRefusal::Path.into())
            });
            assert!(answer.is_err());
            found.get()
        };
        assert_eq!([ask("ann", "list", ""), ask("ann", "list", "")], [1, 1]);
        assert_eq!([ask("bob", "list", ""), ask("ann", "watch", ""), ask("ann", "list", "x")], [2, 3, 4]);
        assert_eq!(ask("ann", "list", ""), 4);
        configuration.borrow_mut().policies = Arc::default();
        assert_eq!([ask("ann", "list", ""), ask("ann", "list", "")], [5, 5], "the configuration is another");
    }

    /// A user without impersonation rights may send any user name and many groups to impersonate, and the 403 is
    /// cached.
    #[tokio::test]
    async fn cache_of_readable_objects_keeps_fewer_users_with_many_groups() {
        let mirror = RightsMirror::without_clusters();
        let (cache, configuration) = (ReadableCache::default(), ReadableConfiguration::default());
        let long = vec!["x".repeat(60 << 10)];
        for number in 0..2 * CACHED_MAX {
            let (name, User { info, authority }) = (format!("user-{number}"), User::named("test", "ann"));
            let impersonated = UserInfo { username: name, groups: long.clone(), ..UserInfo::default() };
            let rights = CallerRights::new(&mirror, Actor::new(info, authority, Some(impersonated)));
            let _refused =
                cache.get(&rights, configuration.clone(), ("list", target("")), |_| Err(RequestRefusal::Path.into()));
        }
        let cached = cache.cached.lock();
        let bytes: usize = cached.young.keys().chain(cached.old.keys()).map(ReadableKey::bytes).sum();
        assert!((CACHED_CALLER_BYTES_MAX..3 * CACHED_CALLER_BYTES_MAX).contains(&bytes), "{bytes}");
    }

    /// A user may have rights in tens of thousands of namespaces, and read many different names.
    #[tokio::test]
    async fn cache_of_readable_objects_keeps_fewer_results_with_many_namespaces() {
        const NAMESPACES: usize = 40_000;
        let mirror = RightsMirror::without_clusters();
        let (cache, configuration) = (ReadableCache::default(), ReadableConfiguration::default());
        let rights = CallerRights::new(&mirror, actor("ann"));
        let (eu, namespaces) = (ClusterName::new("eu").unwrap(), (0..NAMESPACES).map(|it| it.to_string().into()));
        let part = Visible::Part(Arc::new(Part { namespaces: namespaces.collect(), ..Part::default() }));
        let (only, visible) = (Arc::new(BTreeSet::from([eu.clone()])), BTreeMap::from([(eu, part)]));
        let readable = Readable {
            audience: Arc::new(Audience::new(Arc::clone(&only), visible.clone())),
            only,
            by_namespace: Some(Arc::new(NamespaceRights::new(visible, ""))),
            only_watched: Arc::default(),
            has_unknown: false,
        };
        // Each cache entry is small at first, and a large entry then replaces it.
        let little = Readable { by_namespace: None, ..readable.clone() };
        let numbers = 0..3 * CACHED_READABLE_BYTES_MAX / readable.bytes();
        let stamp = rights.stamp();
        for found in [little, readable.clone()] {
            for number in numbers.clone() {
                let target = target(&number.to_string());
                let key = ReadableKey { actor: Arc::clone(rights.actor()), verb: "get", target };
                let by = ReadableInputs { rights: stamp.clone(), configuration: configuration.clone(), until: None };
                cache.cached.lock().insert(key, (by, Ok(found.clone())));
            }
        }
        let bytes = cache.cached.lock().young_readable_bytes;
        assert!(bytes <= CACHED_READABLE_BYTES_MAX + readable.bytes(), "{bytes}");
        for number in 0..3 * CACHED_READABLE_BYTES_MAX / readable.bytes() {
            // The second list replaces the cached result of the first list.
            for verb in ["list", "list", "watch"] {
                let cached = cache
                    .get(&rights, configuration.clone(), (verb, target(&number.to_string())), |_| Ok(readable.clone()));
                assert!(cached.is_ok());
            }
        }
        let cached = cache.cached.lock();
        let bytes = (cached.young.len() + cached.old.len()) * readable.bytes();
        let most = 2 * (CACHED_READABLE_BYTES_MAX + readable.bytes());
        assert!(
            (CACHED_READABLE_BYTES_MAX..=most).contains(&bytes) && cached.young.len() + cached.old.len() < CACHED_MAX,
            "{bytes}"
        );
    }

    #[tokio::test]
    async fn cache_of_readable_objects_drops_only_unused_results() {
        let mirror = RightsMirror::without_clusters();
        let rights = CallerRights::new(&mirror, actor("ann"));
        let (found, cache, configuration) = (Cell::new(0), ReadableCache::default(), ReadableConfiguration::default());
        let ask = |name: &str| {
            let _refused = cache.get(&rights, configuration.clone(), ("list", target(name)), |_| {
                found.set(found.get() + 1);
                Err(RequestRefusal::Path.into())
            });
        };
        ask("used");
        for number in 0..10 * CACHED_MAX {
            ask(&number.to_string());
            ask("used");
        }
        assert_eq!(found.get(), 10 * CACHED_MAX + 1);
        let cached = cache.cached.lock();
        assert!(cached.young.len() + cached.old.len() <= 2 * CACHED_MAX, "{} {}", cached.young.len(), cached.old.len());
    }
}
