//! Parser of a member's discovery document. Groups are parsed one by one, so a faulty group affects no other group.

use serde::Deserialize;
use serde::de::Error;
use serde_json::value::RawValue;
use tributary_apimachinery::json::null_is_default;
use tributary_apimachinery::text::printable;

use super::intake::GROUPS_MAX;
use super::model::{Group, GroupList, GroupMetadata, KIND, STALE, Version};

/// Maximum number of groups that are parsed in one document: twice the maximum number of groups of a member.
const ITEMS_MAX: usize = 2 * GROUPS_MAX;

/// Maximum length of a parser error in characters. serde_json quotes the member's text, which may have megabytes, and
/// each resource of the group keeps a copy of the error.
const ERROR_CHARACTERS_MAX: usize = 200;

#[derive(Debug)]
pub(super) struct NamelessGroups {
    pub(super) count: usize,
    pub(super) first_error: String,
}

fn excerpt(error: &serde_json::Error) -> String {
    let text: String = error.to_string().chars().take(ERROR_CHARACTERS_MAX).collect();
    printable(&text).into_owned()
}

/// Parses a document.
///
/// A version that cannot be parsed becomes [`STALE`], like a version whose API server does not answer. If only the name
/// of a group can be parsed, the group has no versions. A group without a readable name is omitted, and the second part
/// of the result counts such groups. The parser stops after [`ITEMS_MAX`] groups.
///
/// # Errors
/// For a text that is not an `APIGroupDiscoveryList`, such as the response of an old kube-apiserver without aggregated
/// discovery.
pub(super) fn read(text: &[u8]) -> Result<(GroupList, Option<NamelessGroups>), serde_json::Error> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(default, deserialize_with = "null_is_default")]
        kind: String,
        #[serde(borrow, default, deserialize_with = "null_is_default")]
        items: Vec<&'a RawValue>,
    }
    let bounded = |error| Error::custom(excerpt(&error));
    let List { kind, items } = serde_json::from_slice(text).map_err(bounded)?;
    if kind != KIND {
        return Err(bounded(Error::custom(format_args!("the kind is {kind:?}"))));
    }
    let (mut groups, mut nameless) = (Vec::new(), None::<NamelessGroups>);
    for item in items.into_iter().take(ITEMS_MAX) {
        match (read_group(item.get()), &mut nameless) {
            (Ok(group), _) => groups.push(group),
            (Err(_), Some(nameless)) => nameless.count += 1,
            (Err(error), None) => nameless = Some(NamelessGroups { count: 1, first_error: excerpt(&error) }),
        }
    }
    Ok((GroupList::new(groups), nameless))
}

/// Parses a group with each version that can be parsed, or only the name of the group.
///
/// # Errors
/// For a group whose name cannot be parsed.
fn read_group(text: &str) -> Result<Group, serde_json::Error> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default, deserialize_with = "null_is_default")]
        metadata: GroupMetadata,
    }
    #[derive(Deserialize)]
    struct Versions<'a> {
        #[serde(borrow, default, deserialize_with = "null_is_default")]
        versions: Vec<&'a RawValue>,
    }
    let error = match serde_json::from_str(text) {
        Ok(group) => return Ok(group),
        Err(error) => error,
    };
    let Named { metadata } = serde_json::from_str(text)?;
    let versions = serde_json::from_str(text).and_then(|Versions { versions }| {
        versions.into_iter().map(|version| read_version(version.get())).collect::<Result<Vec<_>, _>>()
    });
    Ok(match versions {
        Ok(versions) => Group { metadata, versions, unreadable: None },
        Err(_) => Group { metadata, versions: Vec::new(), unreadable: Some(excerpt(&error)) },
    })
}

/// Parses a version, or only the name of the version.
///
/// # Errors
/// For a version whose name cannot be parsed.
fn read_version(text: &str) -> Result<Version, serde_json::Error> {
    #[derive(Deserialize)]
    struct Named {
        version: String,
    }
    serde_json::from_str(text).or_else(|error| {
        let Named { version } = serde_json::from_str(text)?;
        let (resources, unreadable) = (Vec::new(), Some(excerpt(&error)));
        Ok(Version { version, resources, freshness: STALE.to_owned(), unreadable })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::not_merged::Undescribed;
    use super::*;

    fn list(items: &Value) -> String {
        json!({"kind": KIND, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}).to_string()
    }

    /// Lists each resource and subresource with its verbs, and each stale version.
    fn read_in_brief(text: &str) -> Vec<String> {
        let (document, nameless) = read(text.as_bytes()).unwrap();
        assert!(nameless.is_none(), "{nameless:?}");
        let mut brief = Vec::new();
        for group in &document.items {
            for version in &group.versions {
                let name = format!("{}/{}", group.metadata.name, version.version);
                if let Some(Undescribed::Stale) = group.undescribed(&version.version) {
                    brief.push(format!("{name} stale"));
                }
                for resource in &version.resources {
                    brief.push(format!("{name} {} {}", resource.resource, resource.verbs.join(",")));
                    let below = resource.subresources.iter();
                    brief.extend(below.map(|own| {
                        format!("{name} {}/{} {}", resource.resource, own.subresource, own.verbs.join(","))
                    }));
                }
            }
        }
        brief
    }

    fn version(name: &str, resources: Value) -> Value {
        json!({"version": name, "resources": resources, "freshness": "Current"})
    }

    fn defined(plural: &str, kind: &str, scope: &str) -> Value {
        json!({"resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
            "singularResource": kind.to_lowercase(), "verbs": ["get", "list", "watch"], "shortNames": ["x"],
            "categories": ["all"], "subresources": [{"subresource": "status", "verbs": ["get"],
                "responseKind": {"group": "", "version": "", "kind": kind}}]})
    }

    /// Describes only a subresource, in the form in which an aggregator lists a subresource whose resource is missing.
    fn below_alone(plural: &str, below: &str, kind: &str, verbs: &[&str]) -> Value {
        json!({"resource": plural, "responseKind": {"group": "", "version": "", "kind": ""}, "scope": "Namespaced",
            "singularResource": "", "verbs": null, "subresources": [{"subresource": below, "verbs": verbs,
                "responseKind": {"group": "", "version": "", "kind": kind}}]})
    }

    #[test]
    fn discovery_documents_of_widespread_api_servers_are_parsed() {
        let no_kind = json!({"group": "", "version": "", "kind": ""});
        type Row<'a> = (&'a str, &'a str, Vec<Value>, &'a [&'a str]);
        let rows: Vec<Row<'_>> = vec![
            (
                "prometheus-adapter, custom metrics",
                "custom.metrics.k8s.io",
                vec![version("v1beta1", json!([below_alone("pods", "http_requests", "MetricValueList", &["get"])]))],
                &["v1beta1 pods ", "v1beta1 pods/http_requests get"],
            ),
            ("KEDA, external metrics", "external.metrics.k8s.io", vec![version("v1beta1", json!([]))], &[]),
            ("KEDA, no resources at all", "external.metrics.k8s.io", vec![version("v1beta1", Value::Null)], &[]),
            (
                "metrics-server",
                "metrics.k8s.io",
                vec![version(
                    "v1beta1",
                    json!([{"resource": "nodes", "responseKind": {"group": "", "version": "", "kind": "NodeMetrics"},
                        "scope": "Cluster", "singularResource": "", "verbs": ["get", "list"], "shortNames": null}]),
                )],
                &["v1beta1 nodes get,list"],
            ),
            (
                "Calico",
                "projectcalico.org",
                vec![version(
                    "v3",
                    json!([{"resource": "networkpolicies", "scope": "Namespaced", "singularResource": "networkpolicy",
                        "responseKind": {"group": "", "version": "", "kind": "NetworkPolicy"},
                        "shortNames": ["cnp"], "categories": [], "verbs": ["get", "list", "watch"], "subresources": null}]),
                )],
                &["v3 networkpolicies get,list,watch"],
            ),
            (
                "OpenShift, routes beside a create-only resource",
                "route.openshift.io",
                vec![version(
                    "v1",
                    json!([defined("routes", "Route", "Namespaced"),
                        {"resource": "processedtemplates", "responseKind": {"group": "", "version": "", "kind": "Template"},
                            "scope": "Namespaced", "singularResource": "", "verbs": ["create"], "subresources": []}]),
                )],
                &["v1 routes get,list,watch", "v1 routes/status get", "v1 processedtemplates create"],
            ),
            (
                "Cozystack, with fields of a later version",
                "apps.cozystack.io",
                vec![json!({"version": "v1alpha1", "freshness": "Current", "peerServed": true, "resources": [
                    {"resource": "buckets", "responseKind": {"kind": "Bucket", "stable": 1}, "scope": "Namespaced",
                        "singularResource": "bucket", "verbs": ["get", "list"], "selectableFields": ["metadata.name"]}]})],
                &["v1alpha1 buckets get,list"],
            ),
            (
                "cert-manager, definitions in two versions",
                "cert-manager.io",
                vec![
                    version("v1", json!([defined("clusterissuers", "ClusterIssuer", "Cluster")])),
                    version("v1alpha2", json!([defined("clusterissuers", "ClusterIssuer", "Cluster")])),
                ],
                &[
                    "v1 clusterissuers get,list,watch",
                    "v1 clusterissuers/status get",
                    "v1alpha2 clusterissuers get,list,watch",
                    "v1alpha2 clusterissuers/status get",
                ],
            ),
            (
                "KubeVirt, subresources alone, with null verbs of their own",
                "subresources.kubevirt.io",
                vec![version(
                    "v1",
                    json!([below_alone("virtualmachines", "start", "VirtualMachine", &["put"]),
                        {"resource": "version", "responseKind": no_kind, "scope": "", "singularResource": null, "verbs": null,
                            "subresources": [{"subresource": "x", "responseKind": null, "acceptedTypes": null, "verbs": null}]}]),
                )],
                &["v1 virtualmachines ", "v1 virtualmachines/start put", "v1 version ", "v1 version/x "],
            ),
            (
                "sample-apiserver",
                "wardle.example.com",
                vec![
                    version("v1beta1", json!([{"resource": "flunders", "scope": "Namespaced", "verbs": ["get"]}])),
                    version("v1alpha1", json!([{"resource": "fischers", "scope": "Cluster", "verbs": ["get"]}])),
                ],
                &["v1beta1 flunders get", "v1alpha1 fischers get"],
            ),
            (
                "Karmada, a proxy below its clusters",
                "cluster.karmada.io",
                vec![version(
                    "v1alpha1",
                    json!([{"resource": "clusters", "responseKind": {"group": "", "version": "", "kind": "Cluster"},
                        "scope": "Cluster", "singularResource": "cluster", "verbs": ["get", "list", "watch"],
                        "subresources": [{"subresource": "proxy", "responseKind": no_kind, "verbs": ["get", "create"],
                            "acceptedTypes": [{"group": "", "version": "", "kind": "ClusterProxyOptions"}]}]}]),
                )],
                &["v1alpha1 clusters get,list,watch", "v1alpha1 clusters/proxy get,create"],
            ),
            (
                "a server that is down",
                "down.example",
                vec![
                    json!({"version": "v1", "freshness": "Stale"}),
                    json!({"version": "v2", "freshness": "Stale", "resources": null}),
                ],
                &["v1 stale", "v2 stale"],
            ),
            ("a server that is down, without versions", "down.example", Vec::new(), &[]),
        ];
        for (server, group, versions, expected) in rows {
            // kube-apiservers before 1.35 send `creationTimestamp: null`.
            let metadata = json!({"name": group, "creationTimestamp": null});
            let text = list(&json!([{"metadata": metadata, "versions": versions}]));
            let expected: Vec<_> = expected.iter().map(|own| format!("{group}/{own}")).collect();
            assert_eq!(read_in_brief(&text), expected, "{server}");
        }
        for text in [list(&Value::Null), list(&json!([{"metadata": {"name": "x"}, "versions": null}]))] {
            assert_eq!(read_in_brief(&text), [""; 0]);
        }
    }

    #[test]
    fn unreadable_api_group_affects_no_other_group() {
        let good = |name: &str| json!({"metadata": {"name": name}, "versions": [version("v1", json!([]))]});
        let bad = json!([{"resource": "things", "verbs": "get"}]);
        let items = json!([
            good("first.example"),
            {"metadata": {"name": "part.example"}, "versions": [version("v2", bad), version("v1", json!([]))]},
            {"metadata": {"name": "whole.example"}, "versions": "v1"},
            {"metadata": {"name": 7}, "versions": []},
            good("last.example"),
        ]);
        let (document, nameless) = read(list(&items).as_bytes()).unwrap();
        let names: Vec<_> = document.items.iter().map(|group| &*group.metadata.name).collect();
        assert_eq!(names, ["first.example", "part.example", "whole.example", "last.example"]);
        assert_eq!(nameless.map(|nameless| nameless.count), Some(1));
        let undescribed: Vec<_> = document.undescribed().map(|(version, _)| version.to_string()).collect();
        assert_eq!(undescribed, ["part.example/v2", "whole.example/"]);
        let [_, part, whole, _] = &document.items[..] else { panic!("{document:?}") };
        let unreadable = |group: &Group, version: &str| matches!(group.undescribed(version), Some(Undescribed::Unreadable(error)) if error.contains("expected a sequence"));
        assert!(unreadable(part, "v2") && !unreadable(part, "v1") && unreadable(whole, "v1"), "{document:?}");
    }

    #[test]
    fn parser_errors_of_a_hostile_discovery_document_are_short() {
        let long = "x".repeat(100_000);
        let items = json!([
            {"metadata": {"name": "whole.example"}, "versions": long},
            {"metadata": {"name": "part.example"}, "versions": [{"version": "v1", "resources": long}]},
            {"metadata": {"name": []}},
            7,
        ]);
        let (document, nameless) = read(list(&items).as_bytes()).unwrap();
        let errors: Vec<_> = document.undescribed().map(|(_, why)| format!("{why:?}").len()).collect();
        assert!(errors.len() == 2 && errors.iter().all(|length| *length < 300), "{errors:?}");
        let nameless = nameless.unwrap();
        assert!(nameless.count == 2 && nameless.first_error.len() < 300, "{nameless:?}");
        for text in [json!({ "kind": long }).to_string(), json!({"kind": KIND, "items": long}).to_string()] {
            assert!(read(text.as_bytes()).unwrap_err().to_string().len() < 300);
        }
        let many = list(&Value::Array(vec![json!(0); 3 * ITEMS_MAX]));
        assert_eq!(read(many.as_bytes()).unwrap().1.unwrap().count, ITEMS_MAX);
    }

    #[test]
    fn discovery_document_of_a_different_kind_is_an_error() {
        for text in ["{", "[]", "null", r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#, r#"{"items":[]}"#] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
