//! Tests of filters, on objects decoded with the built-in selectable fields.

use super::*;
use crate::{GroupVersionResource, ObjectDecoder, selectable_fields};

fn cluster(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap()
}

struct Fixture {
    resource: GroupVersionResource,
    fields: Arc<[SelectableField]>,
    object: Object,
    namespaced: bool,
}

fn fixture(group: &str, resource: &str, namespaced: bool, text: &str) -> Fixture {
    let resource = GroupVersionResource::new(group, "v1", resource);
    let fields = selectable_fields(&resource);
    let object = ObjectDecoder::new("v1", "X", fields.clone()).decode(text.as_bytes()).unwrap();
    Fixture { resource, fields, object, namespaced }
}

impl Fixture {
    fn compile(&self, labels: &str, fields: &str) -> Result<Filter, Status> {
        Filter::compile(
            None,
            None,
            &LabelSelector::parse(labels).unwrap(),
            &FieldSelector::parse(fields).unwrap(),
            SelectableResource { resource: &self.resource, fields: &self.fields, namespaced: self.namespaced },
        )
    }

    fn fields_match(&self, selector: &str) -> bool {
        self.compile("", selector).unwrap().matches(&cluster("c1"), &self.object)
    }
}

fn pod() -> Fixture {
    fixture(
        "",
        "pods",
        true,
        r#"{"metadata":{"name":"p","namespace":"n","resourceVersion":"1","labels":{"app":"web"}},"spec":{"nodeName":"n1","restartPolicy":"Always","schedulerName":"a\"b"},"status":{"phase":"Running","podIP":"10.0.0.1"}}"#,
    )
}

#[test]
fn field_selector_matches_the_selectable_fields_of_a_pod() {
    let pod = pod();
    for (selector, expected) in [
        ("", true),
        ("spec.nodeName=n1", true),
        ("spec.host=n1", true),
        ("spec.nodeName!=n1", false),
        ("spec.nodeName=", false),
        ("status.phase=Running,spec.restartPolicy=Always", true),
        ("status.phase!=Running", false),
        ("status.podIP=10.0.0.1", true),
        ("status.podIPs=10.0.0.1", false),
        ("status.podIPs=", true),
        ("spec.hostNetwork=false", true),
        ("spec.hostNetwork=true", false),
        ("status.nominatedNodeName=", true),
        ("spec.schedulerName=a\"b", true),
        ("spec.schedulerName=a\\\\\"b", false),
        ("metadata.name=p", true),
        ("metadata.name!=p", false),
        ("metadata.name=q", false),
        ("metadata.name=p,metadata.name=q", false),
        ("metadata.namespace=n", true),
        ("metadata.namespace!=n", false),
        ("metadata.namespace=other", false),
        ("=", true),
    ] {
        assert_eq!(pod.fields_match(selector), expected, "{selector}");
    }
}

#[test]
fn field_selector_matches_the_selectable_fields_of_kinds_besides_pod() {
    let event = fixture(
        "",
        "events",
        true,
        r#"{"metadata":{"name":"e","namespace":"n","resourceVersion":"1"},"involvedObject":{"kind":"Pod","name":"p","uid":"u"},"reason":"Started","source":{},"reportingComponent":"kubelet","type":"Normal"}"#,
    );
    for (selector, expected) in [
        ("involvedObject.uid=u,involvedObject.kind=Pod,type=Normal", true),
        ("source=kubelet", true),
        ("reportingComponent=kubelet", true),
        ("reason=Killed", false),
        ("involvedObject.fieldPath=", true),
    ] {
        assert_eq!(event.fields_match(selector), expected, "{selector}");
    }
    let node =
        fixture("", "nodes", false, r#"{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"unschedulable":true}}"#);
    assert!(node.fields_match("spec.unschedulable=true"));
    assert!(!node.fields_match("spec.unschedulable=false"));
    let job = fixture(
        "batch",
        "jobs",
        true,
        r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"1"},"status":{"succeeded":3}}"#,
    );
    assert!(job.fields_match("status.successful=3"));
    let idle = fixture("batch", "jobs", true, r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"1"}}"#);
    assert!(idle.fields_match("status.successful=0"));
    let role = fixture(
        "rbac.authorization.k8s.io",
        "clusterroles",
        false,
        r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#,
    );
    assert!(role.fields_match("metadata.namespace="));
}

#[test]
fn field_selector_with_unknown_field_is_refused_with_kubernetes_message() {
    let refused = |fixture: Fixture, selector: &str| {
        let status = fixture.compile("", selector).unwrap_err();
        assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"));
        status.message
    };
    assert_eq!(refused(pod(), "spec.x=1"), "field label not supported: spec.x");
    assert_eq!(refused(pod(), "=1"), "field label not supported: ");
    let map = || fixture("", "configmaps", true, r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"1"}}"#);
    assert_eq!(
        refused(map(), "data.x=1"),
        r#""data.x" is not a known field selector: only "metadata.name", "metadata.namespace""#
    );
    let custom = || fixture("example.test", "things", false, r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#);
    assert_eq!(refused(custom(), "spec.x=1"), "field label not supported: spec.x");
    assert_eq!(refused(custom(), "metadata.namespace="), "field label not supported: metadata.namespace");
    let job = fixture("batch", "jobs", true, r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"1"}}"#);
    assert_eq!(refused(job, "spec.x=1"), r#"field label "spec.x" not supported for Job"#);
    let slice =
        fixture("resource.k8s.io", "resourceslices", false, r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#);
    assert_eq!(
        refused(slice, "spec.x=1"),
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.x"
    );
    let node = fixture("", "nodes", false, r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#);
    assert_eq!(refused(node, "metadata.namespace=x"), "field label not supported: metadata.namespace");
}

#[test]
fn requirement_on_the_cluster_label_selects_clusters() {
    let pod = pod();
    for (selector, in_c1, in_c2) in [
        ("tributary.dev/cluster=c1", true, false),
        ("tributary.dev/cluster==c2", false, true),
        ("tributary.dev/cluster!=c1", false, true),
        ("tributary.dev/cluster in (c1,c3)", true, false),
        ("tributary.dev/cluster notin (c1,c3)", false, true),
        ("tributary.dev/cluster", true, true),
        ("!tributary.dev/cluster", false, false),
        ("app=web,tributary.dev/cluster=c1", true, false),
        ("app=api,tributary.dev/cluster=c1", false, false),
        ("tributary.dev/cluster in (c1,c2),tributary.dev/cluster!=c1", false, true),
    ] {
        let filter = pod.compile(selector, "").unwrap();
        assert!(filter.labels.requirements().iter().all(|it| it.key() != CLUSTER_LABEL));
        assert!(!filter.is_everything());
        assert_eq!(filter.matches(&cluster("c1"), &pod.object), in_c1, "{selector} in c1");
        assert_eq!(filter.matches(&cluster("c2"), &pod.object), in_c2, "{selector} in c2");
    }
    assert_eq!(pod.compile("tributary.dev/cluster>1", "").unwrap_err().code, 400);
}

#[test]
fn filter_matches_object_names_and_namespaces() {
    let pod = pod();
    let compile = |namespace, name, fields: &str| {
        let fields = FieldSelector::parse(fields).unwrap();
        Filter::compile(
            namespace,
            name,
            &LabelSelector::default(),
            &fields,
            SelectableResource { resource: &pod.resource, fields: &pod.fields, namespaced: true },
        )
    };
    let matches = |filter: Filter| filter.matches(&cluster("c1"), &pod.object);
    assert!(compile(None, None, "").unwrap().is_everything());
    assert!(compile(Some("n"), None, "").unwrap().is_whole_namespace());
    assert!(!compile(Some("n"), None, "").unwrap().is_everything());
    assert!(matches(compile(Some("n"), Some("p"), "").unwrap()));
    assert!(!matches(compile(Some("m"), None, "").unwrap()));
    assert!(!matches(compile(Some("n"), Some("q"), "").unwrap()));
    // A field selector on `metadata.name` becomes the filter's name. A lookup by name then replaces a walk over all
    // objects.
    let filter = compile(Some("n"), None, "metadata.name=p").unwrap();
    assert_eq!((filter.name.as_deref(), filter.fields.is_empty()), (Some("p"), true));
    assert!(compile(Some("n"), Some("p"), "metadata.name=p").is_ok());
    for contradiction in ["metadata.name=q", "spec.nodeName=n1"] {
        assert_eq!(
            compile(Some("n"), Some("p"), contradiction).unwrap_err().message,
            "fieldSelector metadata.name doesn't match requested name"
        );
    }
}
