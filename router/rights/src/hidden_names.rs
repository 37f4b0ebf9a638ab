//! Check of label selectors for names of hidden clusters.

use tributary_apimachinery::{ClusterName, ClusterSelector};

/// Returns whether the selector names a cluster for which `is_shown` is false. An exclusion (`!=`) also names a
/// cluster.
pub(crate) fn names_hidden(selector: &ClusterSelector, is_shown: impl Fn(&ClusterName) -> bool) -> bool {
    selector.names().any(|name| !ClusterName::new(name).is_ok_and(|cluster| is_shown(&cluster)))
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::LabelSelector;

    use super::*;

    fn selector(text: &str) -> ClusterSelector {
        ClusterSelector::split(&LabelSelector::parse(text).unwrap()).unwrap().1
    }

    #[test]
    fn selector_with_a_hidden_cluster_name_is_detected() {
        let shown = |cluster: &ClusterName| cluster.as_str() == "eu";
        for (text, expected) in [
            ("app=web", false),
            ("tributary.dev/cluster", false),
            ("tributary.dev/cluster=eu", false),
            ("tributary.dev/cluster!=eu", false),
            ("tributary.dev/cluster=us", true),
            ("tributary.dev/cluster!=us", true),
            ("tributary.dev/cluster=EU", true),
            ("tributary.dev/cluster in (eu,us)", true),
            ("tributary.dev/cluster notin (eu,us)", true),
        ] {
            assert_eq!(names_hidden(&selector(text), shown), expected, "{text}");
        }
    }
}
