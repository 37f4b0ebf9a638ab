//! Warning for a list that contains Helm's records of one release name from several clusters. Helm identifies a release
//! by namespace and name: `helm history` would show the revisions of two clusters as revisions of one release.

use std::collections::BTreeMap;

use tributary_answers::helm_record::{KEY_BEGIN, are_records, release_of};
use tributary_answers::refusal::listed;
use tributary_apimachinery::{ClusterName, GroupVersionResource, LabelSelector};
use tributary_merge::{ClusterSnapshots, ObjectFilter};

use crate::selection::Selection;

/// Number of objects processed between two yields to other tasks.
const LOOKED_AT: usize = 1_000;

/// Maximum of commands in the Warning for one release, so that the Warning fits on a terminal's line.
const COMMANDS_MAX: usize = 3;

/// Clusters that have records of each release (namespace and name), in the order of the list.
#[derive(Default)]
pub(crate) struct ReleaseClusters(BTreeMap<(Box<str>, Box<str>), Vec<ClusterName>>);

/// Returns whether Helm makes this list: a list of records by their common label.
///
/// Source: `pkg/storage/driver` (`secrets.go`, `cfgmaps.go`) of Helm 3 and 4, `List` and `Query`.
pub(crate) fn is_list_of_records(resource: &GroupVersionResource, labels: &LabelSelector) -> bool {
    let of_helm = labels.requirements().iter().any(|requirement| {
        let values = requirement.values();
        let names_helm = !values.is_empty() && values.iter().all(|value| value == "helm");
        requirement.key() == "owner" && names_helm && requirement.matches(Some("helm"))
    });
    of_helm && are_records(resource)
}

pub(crate) async fn find_in_list(snapshots: &ClusterSnapshots, selection: &Selection) -> ReleaseClusters {
    let mut found = ReleaseClusters::default();
    let scope = selection.scope();
    for (cluster, snapshot) in snapshots.iter().filter(|(cluster, _)| selection.wants_cluster(cluster)) {
        let mut after: Option<String> = None;
        loop {
            let (mut looked_at, mut last) = (0, None);
            for object in snapshot.range(&scope, after.as_deref()).take(LOOKED_AT) {
                (looked_at, last) = (looked_at + 1, Some(object));
                if object.name().starts_with(KEY_BEGIN) && selection.matches(cluster, object) {
                    found.add_record(cluster, object.namespace(), object.name());
                }
            }
            match last {
                Some(last) if looked_at == LOOKED_AT => after = Some(last.key().as_str().to_owned()),
                _ => break,
            }
            tokio::task::yield_now().await;
        }
    }
    found
}

impl ReleaseClusters {
    /// Adds a cluster's object, if the object is a record. The objects of one cluster must be added consecutively.
    pub(crate) fn add_record(&mut self, cluster: &ClusterName, namespace: &str, name: &str) {
        let Some(release) = release_of(name) else { return };
        let clusters = self.0.entry((namespace.into(), release.into())).or_default();
        if clusters.last() != Some(cluster) {
            clusters.push(cluster.clone());
        }
    }

    /// Returns the text of the Warning, if a release has records in more than one cluster.
    pub(crate) fn warning(&self) -> Option<String> {
        let mixed: Vec<_> = self.0.iter().filter(|(_, clusters)| clusters.len() > 1).collect();
        match mixed.as_slice() {
            [] => None,
            [((namespace, name), clusters)] => {
                let commands = clusters.iter().take(COMMANDS_MAX).map(|name| format!("helm --kube-context {name} …"));
                Some(format!(
                    "{}: the release {name:?} of namespace {namespace:?} is in more than one cluster, and this list has \
                     the records of all: {}",
                    commands.collect::<Vec<_>>().join(" or "),
                    listed(clusters)
                ))
            }
            several => {
                let shown =
                    several.iter().map(|((namespace, name), of)| format!("{namespace}/{name} ({})", listed(of)));
                Some(format!(
                    "helm --kube-context CLUSTER …: releases of one name are in more than one cluster, and this list has \
                     the records of all: {}",
                    listed(&shown.collect::<Vec<_>>())
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(records: &[(&str, &str, &str)]) -> Option<String> {
        let mut found = ReleaseClusters::default();
        for (cluster, namespace, name) in records {
            found.add_record(&ClusterName::new(cluster).unwrap(), namespace, name);
        }
        found.warning()
    }

    #[test]
    fn warning_about_a_release_in_several_clusters_names_the_commands() {
        let [web, web2, db] = ["sh.helm.release.v1.web.v1", "sh.helm.release.v1.web.v2", "sh.helm.release.v1.db.v1"];
        assert_eq!(seen(&[("eu", "shop", web), ("eu", "shop", web2), ("us", "other", web), ("us", "shop", db)]), None);
        assert_eq!(seen(&[("eu", "shop", "mine"), ("us", "shop", "mine")]), None);
        assert_eq!(
            seen(&[("eu", "shop", web), ("eu", "shop", web2), ("us", "shop", web)]).as_deref(),
            Some(
                "helm --kube-context eu … or helm --kube-context us …: the release \"web\" of namespace \"shop\" is in \
                 more than one cluster, and this list has the records of all: eu, us"
            )
        );
        assert_eq!(
            seen(&[("eu", "shop", db), ("eu", "shop", web), ("us", "shop", web), ("us", "shop", db)]).as_deref(),
            Some(
                "helm --kube-context CLUSTER …: releases of one name are in more than one cluster, and this list has the \
                 records of all: shop/db (eu, us), shop/web (eu, us)"
            )
        );
    }

    #[test]
    fn list_of_helm_records_is_recognized_by_its_owner_label() {
        for (resource, labels, expected) in [
            ("secrets", "owner=helm", true),
            ("secrets", "name=web,owner=helm", true),
            ("configmaps", "owner in (helm),status=deployed", true),
            ("secrets", "owner!=helm", false),
            ("secrets", "owner in (helm,me)", false),
            ("secrets", "owner", false),
            ("secrets", "app=web", false),
            ("pods", "owner=helm", false),
        ] {
            let resource = GroupVersionResource::new("", "v1", resource);
            let labels = LabelSelector::parse(labels).unwrap();
            assert_eq!(is_list_of_records(&resource, &labels), expected, "{resource} {labels}");
        }
    }
}
