//! `kubectl tributary diff`: shows the differences between objects of the same name in several clusters. Without I/O.

use serde_json::{Map, Value};
use similar::TextDiff;
use tributary_apimachinery::ClusterName;

use super::found::{ClusterObject, NamedObject};

/// The number of lines around a difference, as in diff(1).
const CONTEXT_LINES: usize = 3;
/// The metadata fields that `diff` ignores: a cluster sets these fields itself, or their values follow from compared
/// fields.
const OWN_METADATA: [&str; 6] =
    ["managedFields", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"];
/// The annotation in which `kubectl apply` stores the applied object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The fields of a Secret with secret values.
const SECRET_FIELDS: [&str; 2] = ["data", "stringData"];

/// The reason why objects of several clusters cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotComparable {
    /// Only one cluster has the requested object, so there is nothing to compare.
    #[error("only {cluster} has {wanted}: there is nothing to compare it with")]
    Alone { cluster: String, wanted: String },
    /// A requested cluster does not have the object.
    #[error("--clusters: {cluster} does not have {wanted}; it is in {clusters}")]
    NotThere {
        cluster: ClusterName,
        wanted: String,
        /// The clusters that have the object, as a list for the message.
        clusters: String,
    },
}

/// Chooses the objects to compare, at least two. The first object is compared with all others.
///
/// # Errors
/// [`NotComparable`].
pub(super) fn compared_objects(
    wanted: &NamedObject,
    found: &[ClusterObject],
    clusters: &[ClusterName],
) -> Result<Vec<ClusterObject>, NotComparable> {
    let of = |cluster: &ClusterName| {
        let known = found.iter().find(|found| found.cluster == cluster.as_str());
        known.cloned().ok_or_else(|| NotComparable::NotThere {
            cluster: cluster.clone(),
            wanted: wanted.to_string(),
            clusters: found.iter().map(|found| found.cluster.as_str()).collect::<Vec<_>>().join(", "),
        })
    };
    let mut compared_objects =
        if clusters.is_empty() { found.to_vec() } else { clusters.iter().map(of).collect::<Result<Vec<_>, _>>()? };
    compared_objects.dedup_by(|second, first| second.cluster == first.cluster);
    match compared_objects.as_slice() {
        [one] => Err(NotComparable::Alone { cluster: one.cluster.clone(), wanted: wanted.to_string() }),
        _ => Ok(compared_objects),
    }
}

/// Returns unified diffs between the first object and each other object. Returns an empty text if all objects are
/// equal.
///
/// # Errors
/// An object cannot be serialized as YAML.
pub(super) fn render(
    wanted: &NamedObject,
    compared: &[ClusterObject],
    all_fields: bool,
) -> Result<String, serde_saphyr::ser::Error> {
    let Some((first, others)) = compared.split_first() else { return Ok(String::new()) };
    let label = |found: &ClusterObject| format!("{}/{}", found.cluster, wanted.label());
    let mut text = String::new();
    for other in others {
        let (mut one, mut two) = (first.object.clone(), other.object.clone());
        if wanted.is_secret() {
            mask(&first.cluster, &mut one, &other.cluster, &mut two);
        }
        if !all_fields {
            remove_cluster_fields(&mut one);
            remove_cluster_fields(&mut two);
        }
        let (one, two) = (yaml(&one)?, yaml(&two)?);
        let difference = TextDiff::from_lines(&one, &two);
        let mut unified = difference.unified_diff();
        text += &unified.context_radius(CONTEXT_LINES).header(&label(first), &label(other)).to_string();
    }
    Ok(text)
}

fn yaml(object: &Value) -> Result<String, serde_saphyr::ser::Error> {
    // A string of several lines is printed as a block of lines. A long line is not folded.
    serde_saphyr::to_string_with_options(object, serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX })
}

/// Removes fields whose values normally differ between clusters.
fn remove_cluster_fields(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.remove("status");
    let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.retain(|name, _| !OWN_METADATA.contains(&name.as_str()));
    remove_annotation(metadata, LAST_APPLIED);
    for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
        owner.as_object_mut().map(|owner| owner.remove("uid"));
    }
}

fn remove_annotation(metadata: &mut Map<String, Value>, name: &str) {
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove(name);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Replaces the values of two Secrets, so that the diff shows only whether the values are equal.
fn mask(one_cluster: &str, one: &mut Value, two_cluster: &str, two: &mut Value) {
    for field in SECRET_FIELDS {
        let known = one.get(field).cloned().unwrap_or_default();
        let other = two.get(field).cloned().unwrap_or_default();
        let hide = |object: &mut Value, cluster: &str, against: &Value| {
            for (key, value) in object.get_mut(field).and_then(Value::as_object_mut).into_iter().flatten() {
                let is_same = against.get(key) == Some(value);
                *value = if is_same { "***".into() } else { format!("*** (of {cluster})").into() };
            }
        };
        hide(one, one_cluster, &other);
        hide(two, two_cluster, &known);
    }
    for object in [one, two] {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            remove_annotation(metadata, LAST_APPLIED);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::resource_type::ResourceType;
    use super::*;

    fn wanted(resource: &str) -> NamedObject {
        let resource = ResourceType {
            group: String::new(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            is_namespaced: true,
        };
        NamedObject::new(resource, "web", "shop")
    }

    fn found(cluster: &str, object: Value) -> ClusterObject {
        ClusterObject { cluster: cluster.to_owned(), object }
    }

    fn object(uid: &str, text: &str) -> Value {
        json!({
            "metadata": {
                "name": "web", "uid": uid, "resourceVersion": uid, "creationTimestamp": uid, "generation": 1,
                "managedFields": [uid], "annotations": { LAST_APPLIED: uid },
                "ownerReferences": [{ "name": "owner", "uid": uid }],
            },
            "data": { "same": "1", "text": text },
            "status": { "uid": uid },
        })
    }

    #[test]
    fn diff_omits_fields_that_always_differ() {
        let alike = [found("eu", object("1", "a\nb\n")), found("us", object("2", "a\nb\n"))];
        assert_eq!(render(&wanted("configmaps"), &alike, false).unwrap(), "");
        let all = render(&wanted("configmaps"), &alike, true).unwrap();
        for part in ["managedFields", "resourceVersion", "generation", "status", "last-applied", "creationTimestamp"] {
            assert!(all.contains(part), "{part} in {all}");
        }
        let different =
            [found("eu", object("1", "a\nb\n")), found("us", object("2", "a\nc\n")), found("x", object("3", "a\nb\n"))];
        let text = render(&wanted("configmaps"), &different, false).unwrap();
        assert!(text.starts_with("--- eu/configmaps/shop/web\n+++ us/configmaps/shop/web\n@@ "), "{text}");
        assert!(text.contains("\n-    b\n+    c\n"), "{text}");
        assert!(!text.contains("+++ x/"), "{text}");
    }

    #[test]
    fn diff_hides_secret_values() {
        let secrets = [found("eu", object("1", "hunter2")), found("us", object("2", "hunter3"))];
        for all_fields in [false, true] {
            let text = render(&wanted("secrets"), &secrets, all_fields).unwrap();
            assert!(!text.contains("hunter") && !text.contains("last-applied"), "{text}");
            assert!(text.contains("*** (of eu)") && text.contains("*** (of us)"), "{text}");
        }
        let alike = [found("eu", object("1", "hunter2")), found("us", object("2", "hunter2"))];
        assert_eq!(render(&wanted("secrets"), &alike, false).unwrap(), "");
    }

    #[test]
    fn diff_compares_the_chosen_clusters() {
        let web = wanted("configmaps");
        let all = ["eu", "us", "x"].map(|cluster| found(cluster, object("1", "a")));
        let names = |clusters: &[&str]| {
            let clusters: Vec<ClusterName> = clusters.iter().map(|name| ClusterName::new(name).unwrap()).collect();
            let compared_objects = compared_objects(&web, &all, &clusters).map_err(|error| error.to_string())?;
            Ok::<_, String>(compared_objects.into_iter().map(|found| found.cluster).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names(&[]).unwrap(), "eu us x");
        assert_eq!(names(&["x", "eu"]).unwrap(), "x eu");
        assert!(names(&["x", "gone"]).unwrap_err().contains("gone does not have configmaps \"web\""));
        assert!(names(&["x", "x"]).unwrap_err().contains("only x has"));
        assert!(compared_objects(&web, &all[..1], &[]).unwrap_err().to_string().contains("only eu has"));
    }
}
