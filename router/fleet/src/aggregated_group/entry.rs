//! Documents of the aggregated entry. Each is serialized once.

use std::sync::LazyLock;

use serde_json::{Value, json};
use tributary_apimachinery::MERGED_VIEW;

use super::{GROUP, VERSION, api_group, group_discovery, resource_list};
use crate::discovery::DiscoveryPath;
use crate::discovery::document::Document;

static AGGREGATED: LazyLock<Document> = LazyLock::new(|| {
    Document::new(&json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [group_discovery()],
    }))
});
static GROUPS: LazyLock<Document> = LazyLock::new(|| {
    let mut group = api_group();
    if let Some(fields) = group.as_object_mut() {
        fields.retain(|name, _| !matches!(name.as_str(), "kind" | "apiVersion"));
    }
    Document::new(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}))
});
static OWN_GROUP: LazyLock<Document> = LazyLock::new(|| Document::new(&api_group()));
static OWN_VERSION: LazyLock<Document> = LazyLock::new(|| Document::new(&resource_list()));

/// Returns the aggregated discovery document (`apidiscovery.k8s.io/v2`) of the aggregated entry.
pub fn aggregated_discovery() -> &'static Document {
    &AGGREGATED
}

/// Returns the legacy discovery document of the aggregated entry at a path; `None` if the entry does not serve the
/// path.
pub fn legacy_discovery(path: &DiscoveryPath<'_>) -> Option<&'static Document> {
    match path {
        DiscoveryPath::Groups => Some(&GROUPS),
        DiscoveryPath::Group(GROUP) => Some(&OWN_GROUP),
        DiscoveryPath::Version(GROUP, VERSION) => Some(&OWN_VERSION),
        _ => None,
    }
}

/// Returns the object of a merged view; `None` for a view that does not exist.
pub fn view(name: &str) -> Option<Value> {
    (name == MERGED_VIEW).then(|| {
        let mut view = view_item();
        view["kind"] = "View".into();
        view["apiVersion"] = format!("{GROUP}/{VERSION}").into();
        view
    })
}

/// Returns the list of all merged views.
pub fn view_list() -> Value {
    let items: Vec<_> = view(MERGED_VIEW).into_iter().collect();
    json!({
        "kind": "ViewList",
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {"resourceVersion": "1"},
        "items": items,
    })
}

fn view_item() -> Value {
    json!({"metadata": {"name": MERGED_VIEW, "resourceVersion": "1"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(document: &Document) -> Value {
        serde_json::from_slice(&document.json).unwrap()
    }

    #[test]
    fn discovery_of_the_aggregated_entry_has_one_group() {
        let list = parsed(aggregated_discovery());
        assert_eq!(list["items"], json!([group_discovery()]));
        let groups = parsed(legacy_discovery(&DiscoveryPath::Groups).unwrap());
        assert_eq!(groups["groups"].as_array().unwrap().len(), 1);
        assert_eq!((&groups["groups"][0]["name"], &groups["groups"][0]["kind"]), (&json!(GROUP), &Value::Null));
        assert_eq!(parsed(legacy_discovery(&DiscoveryPath::Group(GROUP)).unwrap()), api_group());
        assert_eq!(parsed(legacy_discovery(&DiscoveryPath::Version(GROUP, VERSION)).unwrap()), resource_list());
        for path in
            [DiscoveryPath::Root, DiscoveryPath::Core, DiscoveryPath::Group("apps"), DiscoveryPath::Version("", "v1")]
        {
            assert!(legacy_discovery(&path).is_none(), "{path:?}");
        }
    }

    #[test]
    fn only_the_view_of_all_clusters_exists() {
        assert_eq!(view_list()["items"], json!([view("all").unwrap()]));
        assert_eq!(view("all").unwrap()["kind"], "View");
        assert!(view("eu").is_none() && view("").is_none());
    }
}
