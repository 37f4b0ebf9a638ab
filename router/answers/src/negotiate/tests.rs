use tributary_apimachinery::StatusReason;

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
    Preferences::from_headers(&headers, query)
}

fn form_of(
    accept: Option<&str>,
    answer: ResponseKind,
    resource: &GroupVersionResource,
) -> Result<AnswerForm, NotAcceptable> {
    let preferences = preferences(accept, None, "test");
    preferences.fits_route(answer, resource)?;
    let form = preferences.form(answer)?;
    preferences.fits(form, answer, resource, "Pod").map(|()| form)
}

#[test]
fn first_available_clause_of_accept_wins() {
    use MetaVersion::{V1, V1Beta1};
    let json = |shape| Some((Encoding::Json, shape));
    let yaml = Some((Encoding::Yaml, Representation::Object));
    let object = json(Representation::Object);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    let partial_list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let cases = [
        (None, ResponseKind::List, object),
        (Some(""), ResponseKind::List, object),
        (Some("*/*"), ResponseKind::Watch, object),
        (Some(table), ResponseKind::List, json(Representation::Table(V1))),
        (
            Some("application/json;as=Table;v=v1beta1;g=meta.k8s.io"),
            ResponseKind::Watch,
            json(Representation::Table(V1Beta1)),
        ),
        (Some("application/json;as=Table;v=v1alpha1;g=meta.k8s.io,application/json"), ResponseKind::List, object),
        (Some(table), ResponseKind::Review, object),
        (Some("application/json;as=Table;v=v1;g=meta.k8s.io"), ResponseKind::Review, None),
        (Some("application/vnd.kubernetes.protobuf,application/json"), ResponseKind::List, object),
        (Some("application/vnd.kubernetes.protobuf, */*"), ResponseKind::Watch, object),
        (Some("application/vnd.kubernetes.protobuf"), ResponseKind::List, None),
        (
            Some("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"),
            ResponseKind::Watch,
            Some((Encoding::Protobuf, Representation::PartialMetadata(V1))),
        ),
        (
            Some("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json"),
            ResponseKind::List,
            object,
        ),
        (Some("application/yaml"), ResponseKind::List, yaml),
        (Some("application/yaml"), ResponseKind::Watch, None),
        (Some("application/json;q=0.9,application/yaml;q=1"), ResponseKind::Object, yaml),
        (Some("*/*,application/yaml;q=0.1"), ResponseKind::Object, yaml),
        (Some(partial_list), ResponseKind::List, json(Representation::PartialMetadata(V1))),
        (Some(partial_list), ResponseKind::Object, None),
        (
            Some("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"),
            ResponseKind::List,
            None,
        ),
        (Some("application/json;as=Table"), ResponseKind::List, None),
        (Some("application/json;as=Table;g=nope;v=v1"), ResponseKind::List, None),
        (Some("application/json;as=\"Table\";g=meta.k8s.io;v=v1"), ResponseKind::List, None),
        (Some("application/json;g=meta.k8s.io;v=v1"), ResponseKind::List, None),
        (Some("application/json;as=;g=;v="), ResponseKind::List, object),
        (Some("application/json;drop=metadata.managedFields;profile=nopeer;charset=utf-8"), ResponseKind::List, object),
        (Some("application/json;stream=watch"), ResponseKind::Watch, object),
        (Some("application/json;stream=other"), ResponseKind::Watch, None),
        (Some("application/json;sv=v1"), ResponseKind::List, object),
        (Some("application/json;sv=v2"), ResponseKind::List, None),
        (Some("text/html"), ResponseKind::List, None),
        (Some("APPLICATION/JSON"), ResponseKind::List, None),
        (Some("application/*"), ResponseKind::List, None),
        (Some(",,application/json"), ResponseKind::List, object),
        // kube-apiserver treats `q=0` as the last choice, and not as a refusal.
        (Some("application/json;q=0"), ResponseKind::List, object),
    ];
    for (accept, answer, expected) in cases {
        let got = form_of(accept, answer, &pods()).ok().map(|form| (form.encoding, form.shape));
        assert_eq!(got, expected, "{accept:?} {answer:?}");
    }
}

#[test]
fn custom_resources_accept_a_wildcard_subtype() {
    let gadgets = GroupVersionResource::new("example.test", "v1", "gadgets");
    assert_eq!(form_of(Some("application/*"), ResponseKind::List, &gadgets), Ok(AnswerForm::JSON));
}

#[test]
fn refusal_406_lists_the_available_media_types() {
    let cases = [
        (
            "text/html",
            ResponseKind::Object,
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml",
        ),
        (
            "text/html",
            ResponseKind::List,
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/json;stream=watch",
        ),
        (
            "application/json;as=Chart;g=meta.k8s.io;v=v1",
            ResponseKind::List,
            "only the following media types are accepted: application/json, application/yaml",
        ),
        (
            "application/yaml",
            ResponseKind::Watch,
            "only the following media types are accepted: application/json;stream=watch",
        ),
        (
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            ResponseKind::List,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.PodList)",
        ),
        (
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            ResponseKind::Object,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.Pod)",
        ),
    ];
    for (accept, answer, message) in cases {
        let status = Refusal::from(form_of(Some(accept), answer, &pods()).unwrap_err()).status();
        assert_eq!(
            (status.code, status.reason, &*status.message),
            (406, StatusReason::NotAcceptable, message),
            "{accept}"
        );
    }
}

#[test]
fn curl_and_browsers_get_indented_json() {
    let pretty = |accept, query, agent, answer| preferences(accept, query, agent).form(answer).unwrap().pretty;
    assert!(pretty(None, None, "curl/8", ResponseKind::List));
    assert!(pretty(None, Some("pretty=true"), "client-go", ResponseKind::Object));
    assert!(pretty(Some("application/json;pretty=1"), Some("pretty=0"), "client-go", ResponseKind::Object));
    assert!(!pretty(None, Some("pretty=0"), "Mozilla/5.0 x", ResponseKind::Object));
    assert!(!pretty(None, Some("pretty=yes"), "curl/8", ResponseKind::Object));
    assert!(!pretty(None, Some("x=pretty"), "client-go", ResponseKind::List));
    assert!(!pretty(None, Some("pretty=1"), "curl/8", ResponseKind::Watch));
}

#[test]
fn errors_are_never_returned_as_tables() {
    let error = |accept: Option<&str>| preferences(accept, None, "client-go").error_form();
    let indented = AnswerForm { pretty: true, ..AnswerForm::JSON };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(error(None), AnswerForm::JSON);
    assert_eq!(error(Some("application/yaml")), AnswerForm { encoding: Encoding::Yaml, ..AnswerForm::JSON });
    assert_eq!(error(Some(&format!("{table},application/json"))), AnswerForm::JSON);
    assert_eq!(error(Some(table)), indented);
    assert_eq!(error(Some("text/html")), indented);
}
