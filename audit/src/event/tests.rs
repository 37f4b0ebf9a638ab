use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::*;
use crate::{Stages, truncated_line};

fn time(seconds: u64) -> MicroTime {
    MicroTime::from_system_time(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn event(level: Level, method: &str, uri: &str) -> Option<Event> {
    let decision = AuditDecision { level, omit_stages: Stages::default(), omit_managed_fields: true };
    let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
    let info = RequestInfo::parse(method, path, query).ok();
    let groups = ["people".to_owned()];
    let user = Some(("ann", groups.as_slice()));
    let attributes = match &info {
        Some(info) => AuditAttributes::from_request(info, user),
        None => AuditAttributes { user, verb: "get", path: path.into(), resource: None },
    };
    let sender = UserInfo { username: "ann".to_owned(), groups: groups.to_vec(), ..UserInfo::default() };
    let facts = RequestFacts {
        audit_id: "one".into(),
        uri,
        info: info.as_ref(),
        user: Some(&sender),
        impersonated_user: None,
        source_ips: vec!["10.0.0.1".parse().unwrap()],
        user_agent: "kubectl",
        received: time(1),
    };
    Event::received(decision, &attributes, &facts)
}

fn written(event: &mut Event, stage: Stage) -> Value {
    let line = event.line(stage, time(2));
    assert_eq!(line.iter().position(|byte| *byte < b' '), Some(line.len() - 1), "one line");
    assert_eq!(line.last(), Some(&b'\n'));
    serde_json::from_slice(&line).unwrap()
}

fn json_body(text: &str) -> AuditBody<'_> {
    AuditBody::Whole { content_type: "application/json", bytes: text.as_bytes() }
}

#[test]
fn audit_event_has_the_fields_of_kube_apiserver() {
    let mut event =
        event(Level::RequestResponse, "PUT", "/apis/apps/v1/namespaces/n/deployments/d/status?token=x").unwrap();
    let received = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "one",
        "stage": "RequestReceived", "requestURI": "/apis/apps/v1/namespaces/n/deployments/d/status?token=REDACTED",
        "verb": "update", "user": {"username": "ann", "groups": ["people"]}, "sourceIPs": ["10.0.0.1"],
        "userAgent": "kubectl",
        "objectRef": {
            "resource": "deployments", "namespace": "n", "name": "d", "apiGroup": "apps", "apiVersion": "v1",
            "subresource": "status",
        },
        "requestReceivedTimestamp": "1970-01-01T00:00:01.000000Z", "stageTimestamp": "1970-01-01T00:00:01.000000Z",
    });
    assert_eq!(written(&mut event, Stage::RequestReceived), received);
    event.set_request_body(&json_body(
        r#"{"metadata":{"name":"other","uid":"u","resourceVersion":"7","managedFields":[{}]},"spec":{}}"#,
    ));
    event.set_response_code(200);
    event.set_response_body(&json_body(r#"{"kind":"Deployment","metadata":{"managedFields":[1]}}"#));
    event.annotate(Annotation::Decision, "allow");
    let mut complete = received;
    complete["stage"] = "ResponseComplete".into();
    complete["stageTimestamp"] = "1970-01-01T00:00:02.000000Z".into();
    complete["objectRef"]["uid"] = "u".into();
    complete["objectRef"]["resourceVersion"] = "7".into();
    complete["requestObject"] = json!({"metadata": {"name": "other", "uid": "u", "resourceVersion": "7"}, "spec": {}});
    complete["responseStatus"] = json!({"metadata": {}, "code": 200});
    complete["responseObject"] = json!({"kind": "Deployment", "metadata": {}});
    complete["annotations"] = json!({"tributary.dev/decision": "allow"});
    assert_eq!(written(&mut event, Stage::ResponseComplete), complete);
}

#[test]
fn audit_level_determines_whether_events_and_bodies_are_recorded() {
    assert!(event(Level::None, "GET", "/api/v1/pods").is_none());
    let body = r#"{"kind":"ConfigMap","metadata":{"name":"x"}}"#;
    for (level, has_request, has_response) in
        [(Level::Metadata, false, false), (Level::Request, true, false), (Level::RequestResponse, true, true)]
    {
        let mut event = event(level, "POST", "/api/v1/namespaces/n/configmaps").unwrap();
        assert!(event.wants_request_body());
        event.set_request_body(&json_body(body));
        event.set_response_code(201);
        event.set_response_body(&json_body(body));
        let line = written(&mut event, Stage::ResponseComplete);
        assert_eq!(line.get("requestObject").is_some(), has_request, "{level:?}");
        assert_eq!(line.get("responseObject").is_some(), has_response, "{level:?}");
        assert_eq!(line["objectRef"]["name"], "x", "the name of a new object is only in its body");
    }
}

#[test]
fn audit_event_requests_only_bodies_that_it_records() {
    for (level, method, uri, request, response) in [
        (Level::Metadata, "GET", "/api/v1/pods", false, false),
        (Level::RequestResponse, "GET", "/api/v1/pods", false, true),
        (Level::Metadata, "POST", "/api/v1/namespaces/n/pods", true, true),
        (Level::Metadata, "PATCH", "/api/v1/namespaces/n/pods/p", false, true),
        (Level::Request, "PATCH", "/api/v1/namespaces/n/pods/p", true, true),
        (Level::RequestResponse, "POST", "/api/v1/namespaces/n/pods/p/exec", false, true),
        (Level::RequestResponse, "GET", "/healthz", false, false),
        (Level::RequestResponse, "POST", "/nowhere", false, false),
    ] {
        let event = event(level, method, uri).unwrap();
        assert_eq!(event.wants_request_body(), request, "{level:?} {method} {uri}");
        assert_eq!(event.wants_response_body(200), response, "{level:?} {method} {uri}");
        assert!(event.wants_response_body(404), "errors are written");
    }
}

#[test]
fn rejected_impersonation_is_recorded_only_as_an_annotation() {
    check_annotation_replaces_impersonated_user("refused", Event::set_impersonation_refused);
    check_annotation_replaces_impersonated_user("asked", Event::set_impersonation_undecided);
}

fn check_annotation_replaces_impersonated_user(outcome: &str, set: fn(&mut Event)) {
    let info = RequestInfo::parse("GET", "/api/v1/pods", None).unwrap();
    let decision = AuditDecision { level: Level::Metadata, omit_stages: Stages::default(), omit_managed_fields: true };
    let facts = RequestFacts {
        audit_id: "one".into(),
        uri: "/api/v1/pods",
        info: Some(&info),
        user: None,
        impersonated_user: Some(RawValue::from_string(r#"{"username":"bob"}"#.to_owned()).unwrap()),
        source_ips: Vec::new(),
        user_agent: "kubectl",
        received: time(1),
    };
    let mut event = Event::received(decision, &AuditAttributes::from_request(&info, None), &facts).unwrap();
    let received = written(&mut event, Stage::RequestReceived);
    assert_eq!(received["impersonatedUser"], json!({"username": "bob"}));
    // The annotation occurs in the events of both stages.
    for stage in [Stage::ResponseStarted, Stage::ResponseComplete] {
        set(&mut event);
        let refused = written(&mut event, stage);
        let mut expected = received.clone();
        expected.as_object_mut().unwrap().remove("impersonatedUser");
        expected["stage"] = stage.as_str().into();
        expected["stageTimestamp"] = refused["stageTimestamp"].clone();
        expected["annotations"] = json!({"tributary.dev/impersonation": format!(r#"{outcome}: {{"username":"bob"}}"#)});
        assert_eq!(refused, expected);
    }
}

#[test]
fn workload_response_is_audited_with_only_its_code() {
    let status = r#"{"kind":"Status","status":"Failure","message":"a canary","reason":"Gone","code":410}"#;
    for (uri, is_written) in [
        ("/api/v1/namespaces/n/services/s/proxy/x", false),
        ("/api/v1/namespaces/n/pods/p/proxy", false),
        ("/api/v1/nodes/m/proxy/metrics", false),
        ("/api/v1/namespaces/n/pods/p/log", true),
    ] {
        for level in [Level::Metadata, Level::RequestResponse] {
            let mut event = event(level, "GET", uri).unwrap();
            event.set_response_code(410);
            assert_eq!(event.wants_response_body(410), is_written, "{level:?} {uri}");
            event.set_response_body(&json_body(status));
            let line = written(&mut event, Stage::ResponseComplete);
            assert_eq!(line["responseStatus"]["code"], 410, "{line}");
            assert_eq!(line.to_string().contains("a canary"), is_written, "{line}");
        }
    }
}

#[test]
fn error_response_is_audited_as_a_status() {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"NotFound","details":{"name":"x"},"code":404}"#;
    let mut event = event(Level::Metadata, "GET", "/api/v1/namespaces/n/pods/x").unwrap();
    event.set_response_code(404);
    event.set_response_body(&json_body(status));
    let expected = json!({
        "metadata": {}, "status": "Failure", "message": "no", "reason": "NotFound", "details": {"name": "x"}, "code": 404,
    });
    assert_eq!(written(&mut event, Stage::ResponseComplete)["responseStatus"], expected);
    event.set_panicked();
    assert_eq!(written(&mut event, Stage::Panic)["responseStatus"]["code"], 500);
}

/// A member's response may have several lines, and one line may look like an event of another user.
#[test]
fn audit_event_with_line_breaks_in_the_response_is_one_line() {
    let forged = r#"{"kind":"Event","auditID":"forged","user":{"username":"root"}}"#;
    let status = format!(
        "{{\n\"kind\": \"Status\", \"code\": 409,\r\n\"details\": {{\"name\": \"x\", \"forged\":\n{forged}\n}}\n}}\n"
    );
    for level in [Level::Metadata, Level::RequestResponse] {
        let mut event = event(level, "DELETE", "/api/v1/namespaces/n/pods/x").unwrap();
        event.set_response_code(409);
        event.set_response_body(&json_body(&status));
        let line = written(&mut event, Stage::ResponseComplete);
        assert_eq!(line["responseStatus"], json!({"metadata": {}, "details": {"name": "x"}, "code": 409}));
    }
}

/// The truncation of a long event parses its fields, including a deeply nested body.
#[test]
fn long_event_with_a_deeply_nested_response_is_truncated() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let uri = format!("/api/v1/namespaces/n/pods/x?a={}", "b".repeat(2000));
    for details in [deep.clone(), format!(r#"{{"name":"x","other":{deep}}}"#), format!(r#"{{"causes":{deep}}}"#)] {
        let status = format!(r#"{{"kind":"Status","reason":"Conflict","details":{details},"code":409}}"#);
        let mut event = event(Level::Metadata, "DELETE", &uri).unwrap();
        event.set_response_code(409);
        event.set_response_body(&json_body(&status));
        let cut = truncated_line(&event.line(Stage::ResponseComplete, time(2)), 1500);
        let cut: Value = serde_json::from_slice(&cut.unwrap()).unwrap();
        assert_eq!((&cut["verb"], &cut["user"]["username"]), (&json!("delete"), &json!("ann")), "{details}");
        let status = &cut["responseStatus"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(409), &json!("Conflict")), "{details}");
    }
}

#[test]
fn audit_event_with_line_breaks_in_json_is_one_line() {
    let raw = || RawValue::from_string("{\n\t\"a\": [1,\r\n2]}".to_owned()).ok();
    let mut event = event(Level::RequestResponse, "PUT", "/api/v1/namespaces/n/configmaps/x").unwrap();
    (event.request_object, event.response_object) = (raw(), raw());
    let line = written(&mut event, Stage::ResponseComplete);
    for key in ["requestObject", "responseObject"] {
        assert_eq!(line[key], json!({"a": [1, 2]}));
    }
}

/// Go clients prefer protobuf, and a client may request YAML.
#[test]
fn error_status_is_read_from_protobuf_and_yaml() {
    let yaml =
        "apiVersion: v1\nkind: Status\nmetadata: {}\nstatus: Failure\nmessage: gone\nreason: NotFound\ncode: 404\n";
    let status = b"\x0a\x00\x12\x07Failure\x1a\x04gone\x22\x08NotFound\x30\x94\x03";
    let meta = b"\x0a\x0c\x0a\x02v1\x12\x06Status";
    let mut protobuf = [b"k8s\0", &meta[..], b"\x12"].concat();
    protobuf.push(u8::try_from(status.len()).unwrap());
    protobuf.extend_from_slice(status);
    let expected = json!({"metadata": {}, "status": "Failure", "message": "gone", "reason": "NotFound", "code": 404});
    for (content_type, bytes) in
        [("application/yaml", yaml.as_bytes()), ("application/vnd.kubernetes.protobuf", &protobuf)]
    {
        let mut event = event(Level::RequestResponse, "GET", "/api/v1/namespaces/n/pods/x").unwrap();
        event.set_response_code(404);
        event.set_response_body(&AuditBody::Whole { content_type, bytes });
        let line = written(&mut event, Stage::ResponseComplete);
        assert_eq!(line["responseStatus"], expected, "{content_type}");
        assert_eq!(line["responseObject"]["message"], "gone", "{content_type}");
    }
}

#[test]
fn audit_events_never_contain_secrets_or_tokens() {
    let canary = "Q0FOQVJZ";
    let secret =
        format!(r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"s"}},"data":{{"a":"{canary}"}}}}"#);
    let list = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{secret}]}}"#);
    let review =
        format!(r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{{"token":"{canary}"}}}}"#);
    let refusal = format!(
        r#"{{"kind":"Status","status":"Failure","reason":"BadRequest","code":400,"message":"offending: {canary}"}}"#
    );
    for (method, uri) in [
        ("POST", "/api/v1/namespaces/n/secrets".to_owned()),
        ("GET", format!("/api/v1/secrets?access_token={canary}")),
        ("PATCH", "/clusters/eu/api/v1/namespaces/n/secrets/s".to_owned()),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews".to_owned()),
        ("POST", "/api/v1/namespaces/n/serviceaccounts/default/token".to_owned()),
        // A client sends a Secret in a request for ConfigMaps.
        ("POST", "/api/v1/namespaces/n/configmaps".to_owned()),
    ] {
        for body in [&secret, &list, &review] {
            let mut event = event(Level::RequestResponse, method, &uri).unwrap();
            event.set_request_body(&json_body(body));
            event.set_response_code(201);
            event.set_response_body(&json_body(body));
            if !uri.contains("configmaps") {
                event.set_response_body(&json_body(&refusal));
            }
            let line = written(&mut event, Stage::ResponseComplete);
            assert!(!line.to_string().contains(canary), "{method} {uri}: {line}");
            let level = if uri.contains("configmaps") { "RequestResponse" } else { "Metadata" };
            assert_eq!(line["level"], level, "{method} {uri}");
        }
    }
}

#[test]
fn omitted_bodies_have_an_annotation_with_the_reason() {
    let mut event = event(Level::RequestResponse, "POST", "/api/v1/namespaces/n/configmaps").unwrap();
    event.set_request_body(&AuditBody::Whole { content_type: "application/vnd.kubernetes.protobuf", bytes: b"k8s\0" });
    event.set_response_body(&AuditBody::TooLong);
    let annotations = written(&mut event, Stage::ResponseComplete)["annotations"].clone();
    let expected = json!({
        "audit.k8s.io/truncated": "true",
        "tributary.dev/request-object": "omitted: the body is neither JSON nor YAML",
        "tributary.dev/response-object": "omitted: the body is longer than 3 MiB",
    });
    assert_eq!(annotations, expected);
}

#[test]
fn request_with_a_malformed_path_is_audited() {
    let mut event = event(Level::Metadata, "GET", "/api/v1/namespaces/n/pods/%zz").unwrap();
    let line = written(&mut event, Stage::RequestReceived);
    assert_eq!((&line["verb"], &line["requestURI"]), (&json!("get"), &json!("/api/v1/namespaces/n/pods/%zz")));
}

#[test]
fn audit_event_list_contains_the_event_of_each_line() {
    let event = event(Level::Metadata, "GET", "/api/v1/pods").unwrap();
    let lines = [event.line(Stage::RequestReceived, time(2)), event.line(Stage::ResponseComplete, time(2))];
    let list: Value = serde_json::from_slice(&event_list(&lines)).unwrap();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
    assert_eq!(list["items"][1]["stage"], "ResponseComplete");
    let none: Value = serde_json::from_slice(&event_list::<Vec<u8>>(&[])).unwrap();
    assert_eq!(none["items"], json!([]));
}
