//! Decision on a list or watch of a collection that memory lacks in part. A pure function, for a table of tests.

use tributary_apimachinery::{ClusterName, GroupVersionResource};

use tributary_views::view::{CollectionObstacle, Standing, Standings};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectionRead {
    /// A list of the newest state: no resourceVersion, no continue token.
    NewestList,
    /// A list at a resourceVersion, or a further page from memory.
    List,
    /// A further page of a list that is forwarded to the clusters.
    LivePage,
    /// A watch, with or without initial events.
    Watch,
}

/// Source of an answer to a list or watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CollectionSource {
    /// Memory. The answer lacks the clusters that memory lacks.
    Memory,
    /// Lists that Tributary forwards to each cluster. Memory has no version of these clusters to continue from.
    Clusters(Vec<ClusterName>),
    /// No source: memory cannot watch the objects of this cluster.
    Nobody(ClusterName),
}

/// Chooses the source for a read, by the states of the wanted clusters and by the reachable clusters.
///
/// - Memory cannot cache a collection with versions that are not numbers. A server of custom resources may write such
///   versions. A cluster that writes such versions for a built-in resource is faulty: the cluster is missing, and the
///   other clusters keep cache and watch.
/// - A collection that is too large for memory, or whose first list takes long, is listed live if the client wants the
///   newest state. If another cluster is stale, a live list would lack that cluster's objects, so memory answers.
/// - A collection that Tributary may not list is missing, because the clusters would refuse a live list, too.
pub(super) fn choose_source(
    resource: &GroupVersionResource,
    read: CollectionRead,
    standings: &Standings,
    can_be_asked: impl Fn(&ClusterName) -> bool,
) -> CollectionSource {
    let unheld = || standings.unknown().cloned().collect();
    let opaque = |(_, standing): &(&ClusterName, &Standing)| {
        !resource.is_built_in() && standing.obstacle() == Some(CollectionObstacle::OpaqueVersions)
    };
    match (read, standings.iter().find(opaque)) {
        (CollectionRead::LivePage, _) => return CollectionSource::Clusters(unheld()),
        (CollectionRead::Watch, Some((cluster, _))) => return CollectionSource::Nobody(cluster.clone()),
        (_, Some(_)) => return CollectionSource::Clusters(unheld()),
        (CollectionRead::NewestList, None) => {}
        (_, None) => return CollectionSource::Memory,
    }
    let is_listed = |(cluster, standing): (&ClusterName, &Standing)| {
        let may_list = standing.obstacle() == Some(CollectionObstacle::TooLarge) || standing.is_under_way();
        may_list && can_be_asked(cluster)
    };
    let is_stale = |(_, standing): (&ClusterName, &Standing)| matches!(standing, Standing::Stale { .. });
    match standings.iter().any(is_listed) && !standings.iter().any(is_stale) {
        true => CollectionSource::Clusters(unheld()),
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

    fn standing(word: &str) -> Standing {
        let since = Instant::now();
        let unknown =
            |reason: Option<&str>, obstacle| Standing::Unknown { since, reason: reason.map(Into::into), obstacle };
        match word {
            "fresh" => Standing::Fresh,
            "stale" => Standing::Stale { since, reason: "unreachable".into(), forbidden: false },
            "syncing" => unknown(None, CollectionObstacle::Passing),
            "failed" => unknown(Some("500"), CollectionObstacle::Passing),
            "forbidden" => unknown(Some("forbidden"), CollectionObstacle::Forbidden),
            "large" => unknown(Some("too large"), CollectionObstacle::TooLarge),
            "opaque" => unknown(Some("opaque"), CollectionObstacle::OpaqueVersions),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn states_of_clusters_decide_whether_memory_or_clusters_answer_a_list() {
        use CollectionRead::{List, LivePage, NewestList, Watch};
        let memory = CollectionSource::Memory;
        let clusters = |text| CollectionSource::Clusters(names(text));
        let nobody = |text| CollectionSource::Nobody(names(text).remove(0));
        let custom = GroupVersionResource::new("projectcalico.org", "v3", "networksets");
        // The clusters are a, b and c. The boolean tells whether c is reachable.
        for (standings, can_ask_c, expected) in [
            ("fresh fresh fresh", true, [memory.clone(), memory.clone(), memory.clone(), clusters("")]),
            ("fresh stale fresh", true, [memory.clone(), memory.clone(), memory.clone(), clusters("")]),
            ("fresh fresh failed", true, [memory.clone(), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh fresh forbidden", true, [memory.clone(), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh fresh opaque", true, [clusters("c"), clusters("c"), nobody("c"), clusters("c")]),
            ("opaque stale opaque", true, [clusters("a c"), clusters("a c"), nobody("a"), clusters("a c")]),
            ("fresh fresh large", true, [clusters("c"), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh fresh syncing", true, [clusters("c"), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh fresh large", false, [memory.clone(), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh stale large", true, [memory.clone(), memory.clone(), memory.clone(), clusters("c")]),
            ("fresh forbidden large", true, [clusters("b c"), memory.clone(), memory, clusters("b c")]),
        ] {
            let all = names("a b c").into_iter().zip(standings.split(' ').map(standing));
            let all: Standings = all.collect();
            for (read, expected) in [NewestList, List, Watch, LivePage].into_iter().zip(expected) {
                let can_be_asked = |name: &ClusterName| name.as_str() != "c" || can_ask_c;
                assert_eq!(choose_source(&custom, read, &all, can_be_asked), expected, "{standings}, {read:?}");
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
            for standings in ["fresh opaque", "stale opaque", "opaque opaque"] {
                let all: Standings = names("a b").into_iter().zip(standings.split(' ').map(standing)).collect();
                for read in [NewestList, List, Watch] {
                    assert_eq!(
                        choose_source(&resource, read, &all, |_| true),
                        CollectionSource::Memory,
                        "{standings}, {read:?}"
                    );
                }
                let page = choose_source(&resource, LivePage, &all, |_| true);
                assert!(matches!(page, CollectionSource::Clusters(_)), "{standings}");
            }
        }
    }
}
