//! Finds the objects of one name in all clusters, in a list of the merged view. Without I/O.

use std::fmt;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tributary_apimachinery::object::CLUSTER_ANNOTATION;

use super::resource_type::ResourceType;

/// The reason why the requested object cannot be determined, or why the endpoint's answer is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ObjectSelectionError {
    /// The command's arguments select no object.
    #[error("{0:?} names no object; write TYPE/NAME, for example deploy/web")]
    Arguments(String),
    /// The endpoint of the kubeconfig context is not a merged view.
    #[error(
        "context {0:?} does not lead to Tributary's merged view, but to one cluster; choose one that does by --context, for \
         example all or tributary-all"
    )]
    Endpoint(String),
}

/// The type, namespace and name of the requested object.
pub(super) struct NamedObject {
    resource: ResourceType,
    name: String,
    /// The object's namespace; `None` for a cluster-scoped resource.
    namespace: Option<String>,
}

impl NamedObject {
    /// Creates the request for an object. The namespace is ignored for a cluster-scoped type.
    pub(super) fn new(resource: ResourceType, name: &str, namespace: &str) -> Self {
        let namespace = resource.is_namespaced.then(|| namespace.to_owned());
        Self { resource, name: name.to_owned(), namespace }
    }

    /// Returns the path of a list that contains only the object.
    pub(super) fn path(&self) -> String {
        let ResourceType { group, version, resource, .. } = &self.resource;
        let escape = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        let namespace = self.namespace.as_ref().map(|name| format!("/namespaces/{}", escape(name))).unwrap_or_default();
        // The escaping follows apimachinery's `fields.EscapeValue`.
        let value = self.name.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let selector = escape(&format!("metadata.name={value}"));
        format!("{root}/{version}{namespace}/{resource}?fieldSelector={selector}")
    }

    pub(super) fn is_secret(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "secrets"
    }

    /// Formats the object's type, namespace and name as a path.
    pub(super) fn label(&self) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{}/{namespace}{}", self.resource, self.name)
    }
}

impl fmt::Display for NamedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.resource, self.name)?;
        self.namespace.as_ref().map_or(Ok(()), |namespace| write!(f, " in namespace {namespace:?}"))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClusterObject {
    pub(super) cluster: String,
    /// The complete object as JSON.
    pub(super) object: Value,
}

/// Splits the arguments into type and name: `TYPE/NAME`, or two arguments.
///
/// # Errors
/// [`ObjectSelectionError::Arguments`].
pub(super) fn type_and_name(arguments: &[String]) -> Result<(&str, &str), ObjectSelectionError> {
    let named = match arguments {
        [one] => one.split_once('/'),
        [kind, name] => Some((kind.as_str(), name.as_str())),
        _ => None,
    };
    named
        .filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/') && !kind.contains('/'))
        .ok_or_else(|| ObjectSelectionError::Arguments(arguments.join(" ")))
}

/// Returns the objects of a list with their clusters, in the list's order.
///
/// # Errors
/// [`ObjectSelectionError::Endpoint`] if an object has no cluster annotation, or if the list's resourceVersion belongs
/// to a single cluster.
pub(super) fn items(
    wanted: &NamedObject,
    mut list: Value,
    context: &str,
) -> Result<Vec<ClusterObject>, ObjectSelectionError> {
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    // In an empty list, only the resourceVersion shows whether the list comes from the merged view, whose versions are
    // composite.
    if version.parse::<u64>().is_ok() {
        return Err(ObjectSelectionError::Endpoint(context.to_owned()));
    }
    let items = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
    let found = |mut object: Value| {
        let annotations = object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()?;
        let cluster = annotations.remove(CLUSTER_ANNOTATION)?.as_str()?.to_owned();
        if annotations.is_empty() {
            object.get_mut("metadata")?.as_object_mut()?.remove("annotations");
        }
        Some(ClusterObject { cluster, object })
    };
    let is_meant = |object: &Value| object["metadata"]["name"].as_str() == Some(&wanted.name);
    let found = items.into_iter().filter(is_meant).map(found).collect::<Option<Vec<_>>>();
    found.ok_or_else(|| ObjectSelectionError::Endpoint(context.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(group: &str, resource: &str, is_namespaced: bool, name: &str) -> NamedObject {
        let resource = ResourceType {
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            is_namespaced,
        };
        NamedObject::new(resource, name, "shop")
    }

    #[test]
    fn object_type_and_name_are_parsed_from_arguments() {
        let read = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
            type_and_name(&arguments).map(|(kind, name)| format!("{kind} {name}")).ok()
        };
        for (arguments, expected) in [
            (&["deploy/web"][..], Some("deploy web")),
            (&["deploy", "web"], Some("deploy web")),
            (&["clusterrole/system:node"], Some("clusterrole system:node")),
            (&["deploy"], None),
            (&["deploy/"], None),
            (&["/web"], None),
            (&["a/b/c"], None),
            (&["a/b", "c"], None),
        ] {
            assert_eq!(read(arguments).as_deref(), expected, "{arguments:?}");
        }
    }

    #[test]
    fn object_is_requested_by_a_list_with_a_name_selector() {
        let path = wanted("apps", "deployments", true, "web").path();
        assert_eq!(path, "/apis/apps/v1/namespaces/shop/deployments?fieldSelector=metadata%2Ename%3Dweb");
        let path = wanted("", "nodes", false, "a,b").path();
        assert_eq!(path, "/api/v1/nodes?fieldSelector=metadata%2Ename%3Da%5C%2Cb");
        assert_eq!(
            wanted("apps", "deployments", true, "web").to_string(),
            "deployments.apps \"web\" in namespace \"shop\""
        );
        assert_eq!(wanted("", "nodes", false, "n").label(), "nodes/n");
    }

    #[test]
    fn objects_are_attributed_to_their_clusters() {
        let list = json!({ "items": [
            { "metadata": { "name": "web", "annotations": { "tributary.dev/cluster": "eu" } } },
            { "metadata": { "name": "other", "annotations": { "tributary.dev/cluster": "eu" } } },
            { "metadata": { "name": "web", "annotations": { "tributary.dev/cluster": "us", "a": "b" } } },
        ] });
        let deployment = wanted("apps", "deployments", true, "web");
        let found = items(&deployment, list, "all").unwrap();
        assert_eq!(
            found,
            [
                ClusterObject { cluster: "eu".to_owned(), object: json!({ "metadata": { "name": "web" } }) },
                ClusterObject {
                    cluster: "us".to_owned(),
                    object: json!({ "metadata": { "name": "web", "annotations": { "a": "b" } } })
                },
            ]
        );
        let bare = json!({ "items": [{ "metadata": { "name": "web" } }] });
        let of_one_cluster = json!({ "metadata": { "resourceVersion": "1234" }, "items": [] });
        for list in [bare, of_one_cluster] {
            let error = items(&deployment, list, "eu").unwrap_err().to_string();
            assert!(error.contains("context \"eu\"") && error.contains("--context"), "{error}");
        }
        let merged = json!({ "metadata": { "resourceVersion": "eyJldSI6IjEifQ" }, "items": [] });
        assert_eq!(items(&deployment, merged, "all").unwrap(), []);
    }
}
