use tributary_apimachinery::Reason;

use super::*;
use crate::refusal::Refusal;

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn preferences(accept: Option<&str>, query: Option<&str>, agent: &str) -> Preferences {
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, agent.parse().unwrap());
    if let Some(accept) = accept {
        headers.insert(header::ACCEPT, accept.parse().unwrap());
    }
    Preferences::of(&headers, query)
}

fn form_of(accept: Option<&str>, answer: Answer, resource: &GroupVersionResource) -> Result<Form, NotAcceptable> {
    let preferences = preferences(accept, None, "test");
    preferences.admit(answer, resource)?;
    let form = preferences.form(answer)?;
    preferences.fits(form, answer, resource, "Pod").map(|()| form)
}

#[test]
fn first_clause_that_can_be_given_wins() {
    use MetaVersion::{V1, V1Beta1};
    let json = |shape| Some((Encoding::Json, shape));
    let yaml = Some((Encoding::Yaml, Shape::Object));
    let object = json(Shape::Object);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    let partial_list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let cases = [
        (None, Answer::List, object),
        (Some(""), Answer::List, object),
        (Some("*/*"), Answer::Watch, object),
        (Some(table), Answer::List, json(Shape::Table(V1))),
        (Some("application/json;as=Table;v=v1beta1;g=meta.k8s.io"), Answer::Watch, json(Shape::Table(V1Beta1))),
        (Some("application/json;as=Table;v=v1alpha1;g=meta.k8s.io,application/json"), Answer::List, object),
        (Some(table), Answer::Review, object),
        (Some("application/json;as=Table;v=v1;g=meta.k8s.io"), Answer::Review, None),
        (Some("application/vnd.kubernetes.protobuf,application/json"), Answer::List, object),
        (Some("application/vnd.kubernetes.protobuf, */*"), Answer::Watch, object),
        (Some("application/vnd.kubernetes.protobuf"), Answer::List, None),
        (
            Some("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"),
            Answer::Watch,
            Some((Encoding::Protobuf, Shape::PartialMetadata(V1))),
        ),
        (
            Some("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json"),
            Answer::List,
            object,
        ),
        (Some("application/yaml"), Answer::List, yaml),
        (Some("application/yaml"), Answer::Watch, None),
        (Some("application/json;q=0.9,application/yaml;q=1"), Answer::Object, yaml),
        (Some("*/*,application/yaml;q=0.1"), Answer::Object, yaml),
        (Some(partial_list), Answer::List, json(Shape::PartialMetadata(V1))),
        (Some(partial_list), Answer::Object, None),
        (Some("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"), Answer::List, None),
        (Some("application/json;as=Table"), Answer::List, None),
        (Some("application/json;as=Table;g=nope;v=v1"), Answer::List, None),
        (Some("application/json;as=\"Table\";g=meta.k8s.io;v=v1"), Answer::List, None),
        (Some("application/json;g=meta.k8s.io;v=v1"), Answer::List, None),
        (Some("application/json;as=;g=;v="), Answer::List, object),
        (Some("application/json;drop=metadata.managedFields;profile=nopeer;charset=utf-8"), Answer::List, object),
        (Some("application/json;stream=watch"), Answer::Watch, object),
        (Some("application/json;stream=other"), Answer::Watch, None),
        (Some("application/json;sv=v1"), Answer::List, object),
        (Some("application/json;sv=v2"), Answer::List, None),
        (Some("text/html"), Answer::List, None),
        (Some("APPLICATION/JSON"), Answer::List, None),
        (Some("application/*"), Answer::List, None),
        (Some(",,application/json"), Answer::List, object),
        // The last resort, in kube-apiserver's reading.
        (Some("application/json;q=0"), Answer::List, object),
    ];
    for (accept, answer, expected) in cases {
        let got = form_of(accept, answer, &pods()).ok().map(|form| (form.encoding, form.shape));
        assert_eq!(got, expected, "{accept:?} {answer:?}");
    }
}

#[test]
fn custom_resources_take_a_wildcard_for_the_subtype() {
    let gadgets = GroupVersionResource::new("example.test", "v1", "gadgets");
    assert_eq!(form_of(Some("application/*"), Answer::List, &gadgets), Ok(Form::JSON));
}

#[test]
fn a_refusal_tells_what_can_be_given() {
    let cases = [
        (
            "text/html",
            Answer::Object,
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml",
        ),
        (
            "text/html",
            Answer::List,
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/json;stream=watch",
        ),
        (
            "application/json;as=Chart;g=meta.k8s.io;v=v1",
            Answer::List,
            "only the following media types are accepted: application/json, application/yaml",
        ),
        (
            "application/yaml",
            Answer::Watch,
            "only the following media types are accepted: application/json;stream=watch",
        ),
        (
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Answer::List,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.PodList)",
        ),
        (
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Answer::Object,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.Pod)",
        ),
    ];
    for (accept, answer, message) in cases {
        let status = Refusal::from(form_of(Some(accept), answer, &pods()).unwrap_err()).status();
        assert_eq!((status.code, status.reason, &*status.message), (406, Reason::NotAcceptable, message), "{accept}");
    }
}

#[test]
fn people_get_it_indented() {
    let pretty = |accept, query, agent, answer| preferences(accept, query, agent).form(answer).unwrap().pretty;
    assert!(pretty(None, None, "curl/8", Answer::List));
    assert!(pretty(None, Some("pretty=true"), "client-go", Answer::Object));
    assert!(pretty(Some("application/json;pretty=1"), Some("pretty=0"), "client-go", Answer::Object));
    assert!(!pretty(None, Some("pretty=0"), "Mozilla/5.0 x", Answer::Object));
    assert!(!pretty(None, Some("pretty=yes"), "curl/8", Answer::Object));
    assert!(!pretty(None, Some("x=pretty"), "client-go", Answer::List));
    assert!(!pretty(None, Some("pretty=1"), "curl/8", Answer::Watch));
}

#[test]
fn errors_have_no_shape_of_their_own() {
    let error = |accept: Option<&str>| preferences(accept, None, "client-go").error_form();
    let indented = Form { pretty: true, ..Form::JSON };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(error(None), Form::JSON);
    assert_eq!(error(Some("application/yaml")), Form { encoding: Encoding::Yaml, ..Form::JSON });
    assert_eq!(error(Some(&format!("{table},application/json"))), Form::JSON);
    assert_eq!(error(Some(table)), indented);
    assert_eq!(error(Some("text/html")), indented);
}
