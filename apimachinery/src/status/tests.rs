//! Tests of Status: the wire format, the messages, and the parsing of members' responses.

use super::*;
use crate::GroupVersionResource;

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn deployments() -> GroupVersionResource {
    GroupVersionResource::new("apps", "v1", "deployments")
}

fn json(status: &Status) -> String {
    String::from_utf8(status.to_json()).unwrap()
}

#[test]
fn status_json_equals_that_of_a_kube_apiserver() {
    assert_eq!(
        json(&Status::not_found(&pods(), "x")),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404}"#
    );
    assert_eq!(
        json(&Status::watch_expired(5, 100)),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 5 (100)","reason":"Expired","code":410}"#
    );
    assert_eq!(
        json(&Status::too_large_resource_version(9, 7)),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 9, current: 7","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#
    );
    let expired = json(&Status::continue_expired(Some("token".into())));
    assert!(expired.contains(r#""metadata":{"continue":"token"}"#), "{expired}");
    assert!(expired.contains(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list"
    ));
    assert!(json(&Status::continue_expired(None)).contains("You must start a new list"));
}

#[test]
fn status_messages_equal_those_of_kubernetes() {
    for (status, code, reason, message) in [
        (Status::not_found(&deployments(), "d"), 404, "NotFound", r#"deployments.apps "d" not found"#),
        (Status::already_exists(&pods(), "p"), 409, "AlreadyExists", r#"pods "p" already exists"#),
        (
            Status::stale(&deployments(), "d"),
            409,
            "Conflict",
            r#"Operation cannot be fulfilled on deployments.apps "d": the object has been modified; please apply your changes to the latest version and try again"#,
        ),
        (Status::forbidden(Some(&pods()), "", "no"), 403, "Forbidden", "pods is forbidden: no"),
        (Status::forbidden(Some(&pods()), "p", "no"), 403, "Forbidden", r#"pods "p" is forbidden: no"#),
        (Status::forbidden(None, "", "no"), 403, "Forbidden", "forbidden: no"),
        (
            Status::method_not_supported(&deployments(), "watch"),
            405,
            "MethodNotAllowed",
            r#"watch is not supported on resources of kind "deployments.apps""#,
        ),
        (Status::list_expired(), 410, "Expired", "The resourceVersion for the provided list is too old."),
        (Status::unauthorized(), 401, "Unauthorized", "Unauthorized"),
        (
            Status::invalid_resource_version("abc", "what is expected"),
            400,
            "BadRequest",
            r#"invalid resource version: resourceVersion: Invalid value: "abc": what is expected"#,
        ),
        (Status::invalid_continue_token("x"), 400, "BadRequest", "invalid continue token: x"),
        (
            Status::not_acceptable(&["application/json", "application/yaml"]),
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml",
        ),
        (
            Status::no_acceptable_representation(&["application/json", "application/yaml"]),
            406,
            "NotAcceptable",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml",
        ),
        (
            Status::unsupported_media_type(&["application/json"]),
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json",
        ),
        (Status::request_entity_too_large(10), 413, "RequestEntityTooLarge", "Request entity too large: limit is 10"),
        (Status::internal_error("x"), 500, "InternalError", "Internal error occurred: x"),
    ] {
        assert_eq!((status.code, status.reason.as_str(), status.to_string().as_str()), (code, reason, message));
        assert_eq!(serde_json::from_slice::<Status>(&status.to_json()).unwrap(), status, "{message}");
    }
}

#[test]
fn invalid_fields_become_causes_of_a_status() {
    let one = Status::invalid_list_options(&[FieldError::forbidden("sendInitialEvents", "no")]);
    assert_eq!(one.message, r#"ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: no"#);
    assert_eq!(one.reason, StatusReason::Invalid);
    let two = Status::invalid(
        "",
        "Pod",
        "p",
        &[
            FieldError::invalid("a", "v", "bad"),
            FieldError::not_supported("b", "w", &["x", ""]),
            FieldError::invalid("a", "v", "bad"),
        ],
    );
    assert_eq!(
        two.message,
        r#"Pod "p" is invalid: [a: Invalid value: "v": bad, b: Unsupported value: "w": supported values: "x", ""]"#
    );
    let causes = &two.details.unwrap().causes;
    assert_eq!((causes[1].reason.as_str(), causes[1].field.as_str()), ("FieldValueNotSupported", "b"));
}

#[test]
fn retry_after_can_be_removed_from_a_status() {
    let status = Status::service_unavailable("x").with_retry_after(3);
    assert_eq!(status.retry_after_seconds(), Some(3));
    assert_eq!(status.without_retry_after().retry_after_seconds(), None);
}

#[test]
fn status_is_parsed_from_a_members_response() {
    let deleted = Status::from_response(
        200,
        br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"x","kind":"pods","uid":"u-1"}}"#,
    );
    assert!(deleted.success);
    assert_eq!((deleted.code, deleted.details.as_ref().unwrap().uid.as_str()), (200, "u-1"));
    let odd = Status::from_response(
        418,
        br#"{"kind":"Status","status":"Failure","reason":"Teapot","message":null,"code":418}"#,
    );
    assert_eq!((odd.reason.as_str(), odd.message.as_str()), ("Teapot", ""));
    assert!(json(&odd).contains(r#""reason":"Teapot""#));
    for (code, body, reason) in [
        (404, &b"404 page not found\n"[..], "NotFound"),
        (502, b"<html>", "InternalError"),
        (503, b"", "ServiceUnavailable"),
        (403, b"{\"kind\":\"Pod\"}", "Forbidden"),
        (302, b"\xff\xfe", ""),
    ] {
        let status = Status::from_response(code, body);
        assert_eq!((status.code, status.reason.as_str(), status.success), (code, reason, false));
        assert!(!json(&status).is_empty());
    }
    let long = Status::from_response(500, &vec![b'x'; 10_000]);
    assert!(long.message.len() < 2200, "the member's text is cut");
}

#[test]
fn status_type_takes_at_most_80_bytes_of_memory() {
    assert!(size_of::<Status>() <= 80, "{}", size_of::<Status>());
}
