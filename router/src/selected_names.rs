//! Warning for a label selector with names of clusters that do not exist. Without the Warning, a list by
//! `tributary.dev/cluster=euu` is empty and looks complete.

use http::{HeaderMap, header};
use tributary_answers::refusal::listed;
use tributary_answers::warnings::warning_header;
use tributary_apimachinery::{ClusterName, ClusterSelector};

use crate::request::ClientRequest;

/// Adds a Warning for selected clusters that do not exist for the caller. In personal mode the Warning lists the
/// existing clusters. In shared mode, a cluster that does not exist and a cluster for which `is_shown` is false get an
/// equal Warning.
pub(crate) fn warn(
    headers: &mut HeaderMap,
    request: &ClientRequest<'_>,
    selector: &ClusterSelector,
    is_shown: impl Fn(&ClusterName) -> bool,
) {
    if !selector.has_requirements() {
        return;
    }
    let text = match request.caller.rights() {
        Some(_) => warning_for_user(selector, is_shown),
        None => warning_for_owner(selector, request.configuration.clusters.keys()),
    };
    headers.extend(text.and_then(|text| warning_header(&text)).map(|warning| (header::WARNING, warning)));
}

fn warning_for_owner<'a>(
    selector: &ClusterSelector,
    configured: impl Iterator<Item = &'a ClusterName> + Clone,
) -> Option<String> {
    let is_configured = |name: &str| configured.clone().any(|cluster| cluster.as_str() == name);
    let unknown = deduplicate(selector.names().filter(|name| !is_configured(name)));
    let configured: Vec<_> = configured.clone().collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "the label selector names clusters that do not exist: {}; the clusters are: {}",
            listed(&unknown),
            listed(&configured)
        )
    })
}

/// Returns the text of the Warning. Ignores excluded names (`!=`), because `is_shown` is defined only for selected
/// clusters.
fn warning_for_user(selector: &ClusterSelector, is_shown: impl Fn(&ClusterName) -> bool) -> Option<String> {
    let is_hidden = |name: &&str| !ClusterName::new(name).is_ok_and(|cluster| is_shown(&cluster));
    let hidden = deduplicate(selector.wanted_names().filter(is_hidden));
    (!hidden.is_empty()).then(|| {
        let hidden = listed(&hidden);
        format!("the label selector names clusters that do not exist, or where you may not read this: {hidden}")
    })
}

fn deduplicate<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::LabelSelector;

    use super::*;

    fn selector(text: &str) -> ClusterSelector {
        ClusterSelector::split(&LabelSelector::parse(text).unwrap()).unwrap().1
    }

    #[test]
    fn warning_names_selected_clusters_that_do_not_exist() {
        let configured = ["eu", "us"].map(|name| ClusterName::new(name).unwrap());
        let shown = |cluster: &ClusterName| cluster.as_str() == "eu";
        for (text, for_owner, for_user) in [
            ("tributary.dev/cluster=eu", "", ""),
            ("tributary.dev/cluster=euu", "euu", "euu"),
            ("tributary.dev/cluster=EU", "EU", "EU"),
            ("tributary.dev/cluster in (eu,us,euu)", "euu", "euu, us"),
            ("tributary.dev/cluster=us", "", "us"),
            ("tributary.dev/cluster in (a,b,a)", "a, b", "a, b"),
            ("tributary.dev/cluster!=euu", "euu", ""),
            ("tributary.dev/cluster notin (us,x)", "x", ""),
            ("tributary.dev/cluster in (eu,x),tributary.dev/cluster!=x", "x", ""),
            ("tributary.dev/cluster", "", ""),
            ("app=web", "", ""),
        ] {
            let selector = selector(text);
            let names = |text: Option<String>| {
                let text = text.unwrap_or_default();
                let names = text.split_once(": ").map(|(_, names)| names.split(';').next().unwrap_or_default());
                names.unwrap_or_default().to_owned()
            };
            assert_eq!(names(warning_for_owner(&selector, configured.iter())), for_owner, "{text}");
            assert_eq!(names(warning_for_user(&selector, shown)), for_user, "{text}");
        }
        let text = warning_for_owner(&selector("tributary.dev/cluster=euu"), configured.iter());
        assert!(text.unwrap().ends_with("; the clusters are: eu, us"));
    }
}
