//! Limits for the discovery document of a cluster. Tributary joins the documents of all clusters, so a large document
//! costs time for all users.

use std::collections::HashSet;

use super::model::{Group, GroupList, Resource};

/// Maximum number of API groups of a cluster. 4,096: a kube-apiserver has 20, and the largest sets of
/// CustomResourceDefinitions (a cloud provider's whole catalogue) add some hundreds.
pub(super) const GROUPS_MAX: usize = 4_096;

/// Maximum number of versions in an API group. 64: groups have up to a dozen. The limit is low because a lookup of a
/// resource searches all versions of its group.
const VERSIONS_MAX: usize = 64;

/// Maximum number of resources of a cluster, over all groups and versions. 32,768: ten times as many as in real
/// kube-apiservers. Each resource costs about 1 KB, and 1 µs whenever documents are joined.
const RESOURCES_MAX: usize = 32_768;

/// Maximum number of subresources of a resource. 4,096: a custom metrics server has one subresource for each metric.
const SUBRESOURCES_MAX: usize = 4_096;

/// Maximum number of entries in each list of strings of a resource: verbs, short names, categories and accepted types.
/// 64: Kubernetes' own resources have up to nine.
const LIST_ENTRIES_MAX: usize = 64;

/// Maximum length of the name of a group, version or resource, in bytes. 253, the maximum length of a DNS subdomain,
/// because group names are DNS subdomains.
const NAME_BYTES_MAX: usize = 253;

/// One of the two discovery documents of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Root {
    /// `/api`: the core group alone.
    Core,
    /// `/apis`: all named groups.
    Named,
}

impl Root {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Core => "/api",
            Self::Named => "/apis",
        }
    }
}

/// Returns the document without the parts that exceed a limit, and a text about the removed parts for the log.
pub(super) fn limit_document(mut document: GroupList, root: Root) -> (GroupList, Option<String>) {
    let mut left_out = LeftOutCounts::default();
    let mut names = HashSet::new();
    let mut resources = 0;
    document.items.retain_mut(|group| {
        let name = &group.metadata.name;
        let is_own = match root {
            Root::Core => name.is_empty(),
            Root::Named => is_name(name),
        };
        if !is_own {
            left_out.misnamed += 1;
            return false;
        }
        if names.len() == GROUPS_MAX {
            left_out.groups += 1;
            return false;
        }
        if !names.insert(name.clone()) {
            left_out.misnamed += 1;
            return false;
        }
        admit_versions(group, &mut resources, &mut left_out);
        true
    });
    (document, left_out.text())
}

fn admit_versions(group: &mut Group, resources: &mut usize, left_out: &mut LeftOutCounts) {
    let mut versions = HashSet::new();
    group.versions.retain_mut(|version| {
        if !is_name(&version.version) || !versions.insert(version.version.clone()) {
            left_out.misnamed += 1;
            return false;
        }
        if versions.len() > VERSIONS_MAX {
            left_out.versions += 1;
            return false;
        }
        let mut names = HashSet::new();
        version.resources.retain_mut(|resource| {
            if !is_name(&resource.resource) || !names.insert(resource.resource.clone()) {
                left_out.misnamed += 1;
                return false;
            }
            if *resources == RESOURCES_MAX {
                left_out.resources += 1;
                return false;
            }
            *resources += 1;
            admit_words(resource);
            true
        });
        true
    });
}

fn admit_words(resource: &mut Resource) {
    for words in [&mut resource.verbs, &mut resource.short_names, &mut resource.categories] {
        words.truncate(LIST_ENTRIES_MAX);
    }
    resource.subresources.truncate(SUBRESOURCES_MAX);
    for subresource in &mut resource.subresources {
        subresource.verbs.truncate(LIST_ENTRIES_MAX);
        subresource.accepted_types.truncate(LIST_ENTRIES_MAX);
    }
}

/// Returns whether the text can be a segment of a URL path.
fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(is_shown)
}

fn is_shown(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'?' | b'#' | b'"' | b'\\')
}

#[derive(Default)]
struct LeftOutCounts {
    groups: usize,
    versions: usize,
    resources: usize,
    /// Number of names that cannot be part of a URL path, that belong to the cluster's other discovery document, or
    /// that are repeated.
    misnamed: usize,
}

impl LeftOutCounts {
    fn text(&self) -> Option<String> {
        let counts = [
            (self.groups, format!("groups beyond {GROUPS_MAX}")),
            (self.versions, format!("versions of a group beyond {VERSIONS_MAX}")),
            (self.resources, format!("resources beyond {RESOURCES_MAX}")),
            (
                self.misnamed,
                "names that no path can have, that are in the wrong document, or are there twice".to_owned(),
            ),
        ];
        let parts: Vec<_> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn document(items: Value) -> GroupList {
        GroupList::new(serde_json::from_value(items).unwrap())
    }

    fn group(name: &str, resources: &[&str]) -> Value {
        let resources: Vec<_> = resources.iter().map(|name| json!({ "resource": name })).collect();
        json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]})
    }

    #[test]
    fn valid_discovery_document_stays_unchanged() {
        for (root, items) in [
            (Root::Core, json!([group("", &["pods", "bindings"])])),
            (Root::Named, json!([group("apps", &["deployments"]), group("custom.metrics.k8s.io", &["pods.http_ok"])])),
        ] {
            let document = document(items);
            assert_eq!(limit_document(document.clone(), root), (document, None));
        }
    }

    #[test]
    fn discovery_document_loses_entries_with_misplaced_or_invalid_names() {
        let (core, left_out) =
            limit_document(document(json!([group("", &["pods"]), group("apps", &["pods"])])), Root::Core);
        assert_eq!((core.items.len(), left_out.unwrap().split(' ').next()), (1, Some("1")));
        let twice = json!([
            group("apps", &["deployments", "deployments", "", "a/b", "..", "\u{202e}"]),
            group("apps", &[]),
            group("", &["pods"]),
            group("a\"b", &[]),
        ]);
        let (named, left_out) = limit_document(document(twice), Root::Named);
        assert_eq!((named.items.len(), named.items[0].versions[0].resources.len()), (1, 1));
        assert!(left_out.unwrap().starts_with("8 names"));
    }

    #[test]
    fn number_of_entries_in_a_members_discovery_document_is_limited() {
        let many = json!((0..GROUPS_MAX + 5).map(|at| group(&format!("g{at}.io"), &["x"])).collect::<Vec<_>>());
        let (limited, left_out) = limit_document(document(many), Root::Named);
        assert_eq!((limited.items.len(), &*left_out.unwrap()), (GROUPS_MAX, "5 groups beyond 4096"));
        let names: Vec<_> = (0..RESOURCES_MAX).map(|at| format!("r{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (limited, left_out) =
            limit_document(document(json!([group("a.io", &names), group("b.io", &["x", "y"])])), Root::Named);
        assert_eq!(
            (limited.items[1].versions[0].resources.len(), &*left_out.unwrap()),
            (0, "2 resources beyond 32768")
        );
        let versions: Vec<_> = (0..VERSIONS_MAX + 3).map(|at| json!({"version": format!("v{at}")})).collect();
        let (limited, left_out) =
            limit_document(document(json!([{"metadata": {"name": "a.io"}, "versions": versions}])), Root::Named);
        assert_eq!(
            (limited.items[0].versions.len(), &*left_out.unwrap()),
            (VERSIONS_MAX, "3 versions of a group beyond 64")
        );
        let mut wordy = group("a.io", &["x"]);
        wordy["versions"][0]["resources"][0]["verbs"] = json!(vec!["get"; 1_000]);
        wordy["versions"][0]["resources"][0]["subresources"] = json!(vec![json!({"subresource": "s"}); 5_000]);
        let (limited, _) = limit_document(document(json!([wordy])), Root::Named);
        let resource = &limited.items[0].versions[0].resources[0];
        assert_eq!((resource.verbs.len(), resource.subresources.len()), (LIST_ENTRIES_MAX, SUBRESOURCES_MAX));
    }
}
