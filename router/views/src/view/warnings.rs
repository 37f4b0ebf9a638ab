//! Warnings that members add to every response about a resource, for example about a deprecated API version. Tributary
//! adds them to responses from the cache as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, header};
use tributary_apimachinery::{ClusterName, ClusterSelector};

use tributary_answers::warnings;

/// Warnings of all clusters of a view. Readers take no lock.
#[derive(Default)]
pub struct Warnings {
    current: ArcSwap<WarningSet>,
}

#[derive(Clone, Default)]
struct WarningSet {
    by_cluster: BTreeMap<ClusterName, Vec<HeaderValue>>,
    /// Merged warnings of all clusters, as clients get them.
    together: Vec<HeaderValue>,
}

impl Warnings {
    /// Replaces the warnings of a cluster. An empty list removes them.
    pub fn set(&self, cluster: &ClusterName, warnings: &[HeaderValue]) {
        self.current.rcu(|current| {
            let mut by_cluster = current.by_cluster.clone();
            by_cluster.remove(cluster);
            if !warnings.is_empty() {
                by_cluster.insert(cluster.clone(), warnings.to_vec());
            }
            let texts = by_cluster.iter().flat_map(|(cluster, texts)| texts.iter().map(move |text| (cluster, text)));
            let together = warnings::together(texts);
            Arc::new(WarningSet { by_cluster, together })
        });
    }

    /// Returns the current warnings of a cluster.
    pub fn warnings_of(&self, cluster: &ClusterName) -> Vec<HeaderValue> {
        self.current.load().by_cluster.get(cluster).cloned().unwrap_or_default()
    }

    /// Adds the warnings of the clusters that a reader may see, even if the reader did not select these clusters.
    pub(crate) fn add_of(&self, readers: &ClusterSelector, headers: &mut HeaderMap) {
        let current = self.current.load();
        if current.by_cluster.keys().all(|cluster| readers.admits(cluster)) {
            return self.add_to(headers);
        }
        let admitted = current.by_cluster.iter().filter(|(cluster, _)| readers.admits(cluster));
        let texts = admitted.flat_map(|(cluster, texts)| texts.iter().map(move |text| (cluster, text)));
        for warning in warnings::together(texts) {
            headers.append(header::WARNING, warning);
        }
    }

    /// Adds the warnings of all clusters to the headers of a response.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        for warning in &self.current.load().together {
            headers.append(header::WARNING, warning.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_warnings_of_several_clusters_are_merged() {
        let warnings = Warnings::default();
        let [one, two] = ["one", "two"].map(|name| ClusterName::new(name).unwrap());
        let texts = || {
            let mut headers = HeaderMap::new();
            warnings.add_to(&mut headers);
            headers.get_all(header::WARNING).iter().map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let [a, b] = ["299 - \"a\"", "299 - \"b\""].map(HeaderValue::from_static);
        assert!(texts().is_empty());
        warnings.set(&two, &[b.clone(), a.clone()]);
        warnings.set(&one, std::slice::from_ref(&a));
        assert_eq!(texts(), ["299 - \"clusters one, two: a\"", "299 - \"cluster two: b\""]);
        warnings.set(&two, &[]);
        assert_eq!(texts(), ["299 - \"cluster one: a\""]);
        warnings.set(&one, &[]);
        assert!(texts().is_empty());
    }
}
