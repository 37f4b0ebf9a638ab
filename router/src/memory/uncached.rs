//! Decision on a list or watch of a collection that memory lacks in part. A pure function, for a table of tests.

use tributary_apimachinery::{ClusterName, GroupVersionResource};

use tributary_views::view::{CacheState, CacheStates, UncachedReason};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectionRead {
    /// A list of the newest state: no resourceVersion, no continue token.
    NewestList,
    /// A list at a resourceVersion, or a later page of a list from memory.
    List,
    /// A later page of a list that is forwarded to the clusters.
    LivePage,
    /// A watch, with or without initial events.
    Watch,
}

/// Source of an answer to a list or watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CollectionSource {
    /// Memory. The answer omits clusters whose objects memory lacks.
    Memory,
    /// Live lists in each cluster. Contains the clusters whose objects memory lacks: a watch from memory cannot
    /// continue from their versions.
    Clusters(Vec<ClusterName>),
    /// No source: memory cannot watch the objects of this cluster.
    Nobody(ClusterName),
}

/// Chooses the source for a read, by the cache states of the wanted clusters, and by which clusters are reachable.
///
/// - Memory cannot cache a collection with versions that are not numbers. Some servers of custom resources write such
///   versions. If a cluster writes them for a built-in resource, the cluster is faulty: the answer omits the cluster,
///   and the other clusters stay cached.
/// - A collection that is too large for memory, or whose first list takes long, is listed live if the client wants the
///   newest state. But if a different cluster is stale, memory answers, because a live list would omit the objects of
///   the stale cluster.
/// - The answer omits a cluster that forbids Tributary to list the collection, because the cluster would also refuse a
///   live list.
pub(super) fn choose_source(
    resource: &GroupVersionResource,
    read: CollectionRead,
    cache_states: &CacheStates,
    can_be_asked: impl Fn(&ClusterName) -> bool,
) -> CollectionSource {
    let uncached = || cache_states.unknown().cloned().collect();
    let opaque = |(_, cache_state): &(&ClusterName, &CacheState)| {
        !resource.is_built_in() && cache_state.uncached_reason() == Some(UncachedReason::OpaqueVersions)
    };
    match (read, cache_states.iter().find(opaque)) {
        (CollectionRead::LivePage, _) => return CollectionSource::Clusters(uncached()),
        (CollectionRead::Watch, Some((cluster, _))) => return CollectionSource::Nobody(cluster.clone()),
        (_, Some(_)) => return CollectionSource::Clusters(uncached()),
        (CollectionRead::NewestList, None) => {}
        (_, None) => return CollectionSource::Memory,
    }
    let is_listed = |(cluster, cache_state): (&ClusterName, &CacheState)| {
        let may_list = cache_state.uncached_reason() == Some(UncachedReason::TooLarge) || cache_state.is_under_way();
        may_list && can_be_asked(cluster)
    };
    let is_stale = |(_, cache_state): (&ClusterName, &CacheState)| matches!(cache_state, CacheState::Stale { .. });
    match cache_states.iter().any(is_listed) && !cache_states.iter().any(is_stale) {
        true => CollectionSource::Clusters(uncached()),
        false => CollectionSource::Memory,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn names(text: &str) -> Vec<ClusterName> {
        text.split_whitespace().map(|name| ClusterName::new(name).unwrap()).collect()
    }

    fn cache_state(word: &str) -> CacheState {
        let since = Instant::now();
        let unknown = |reason: Option<&str>, uncached_reason| CacheState::Unknown {
            since,
            reason: reason.map(Into::into),
            uncached_reason,
        };
        match word {
            "fresh" => CacheState::Fresh,
            "stale" => CacheState::Stale { since, reason: "unreachable".into(), forbidden: false },
            "syncing" => unknown(None, UncachedReason::Transient),
            "failed" => unknown(Some("500"), UncachedReason::Transient),
            "forbidden" => unknown(Some("forbidden"), UncachedReason::Forbidden),
            "large" => unknown(Some("too large"), UncachedReason::TooLarge),
            "opaque" => unknown(Some("opaque"), UncachedReason::OpaqueVersions),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn states_of_clusters_decide_whether_memory_or_clusters_answer_a_list() {
        use CollectionRead::{List, LivePage, NewestList, Watch};
        let memory = CollectionSource::Memory;
        let clusters = |text| CollectionSource::Clusters(names(text));
        let missing = |text| CollectionSource::Nobody(names(text).remove(0));
        let custom = GroupVersionResource::new("projectcalico.org", "v3", "networksets");
        // The clusters are a, b and c. The boolean is true if c is reachable.
        for (cache_states, can_ask_c, expected) in [
            ("fresh fresh fresh", true, [memory.clone(), memory.clone(), memory.clone(), clusters("")]),
            ("fresh stale fresh", true, [memory.clone(), memory.clone(), memory.clone(), clusters("")]),
            ("fresh fresh failed", true, [memory.clone(), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh fresh forbidden", true, [memory.clone(), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh fresh opaque", true, [clusters("c"), clusters("c"), missing("c"), clusters("c")]),
            ("opaque stale opaque", true, [clusters("a c"), clusters("a c"), missing("a"), clusters("a c")]),
            ("fresh fresh large", true, [clusters("c"), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh fresh syncing", true, [clusters("c"), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh fresh large", false, [memory.clone(), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh stale large", true, [memory.clone(), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh forbidden large", true, [clusters("b c"), memory.clone(), memory, clusters("b c")]),
        ] {
            let all = names("a b c").into_iter().zip(cache_states.split(' ').map(cache_state));
            let all: CacheStates = all.collect();
            for (read, expected) in [NewestList, List, Watch, LivePage].into_iter().zip(expected) {
                let can_be_asked = |name: &ClusterName| name.as_str() != "c" || can_ask_c;
                assert_eq!(choose_source(&custom, read, &all, can_be_asked), expected, "{cache_states}, {read:?}");
            }
        }
    }

    #[test]
    fn non_numeric_versions_of_one_member_leave_built_in_resources_cached() {
        use CollectionRead::{List, LivePage, NewestList, Watch};
        for (group, version, resource) in
            [("", "v1", "pods"), ("apps", "v1", "deployments"), ("storage.k8s.io", "v1", "storageclasses")]
        {
            let resource = GroupVersionResource::new(group, version, resource);
            for cache_states in ["fresh opaque", "stale opaque", "opaque opaque"] {
                let all: CacheStates = names("a b").into_iter().zip(cache_states.split(' ').map(cache_state)).collect();
                for read in [NewestList, List, Watch] {
                    assert_eq!(
                        choose_source(&resource, read, &all, |_| true),
                        CollectionSource::Memory,
                        "{cache_states}, {read:?}"
                    );
                }
                let page = choose_source(&resource, LivePage, &all, |_| true);
                assert!(matches!(page, CollectionSource::Clusters(_)), "{cache_states}");
            }
        }
    }
}
