//! Constructors for Kubernetes' own errors, with kube-apiserver's messages (apimachinery's api/errors and apiserver's
//! storage).

use super::{FieldError, Status, StatusCause, StatusDetails, StatusMetadata, StatusReason, field_error::go_quote};
use crate::GroupVersionResource;

/// The maximum length of the text of a response that is not a Status, in bytes (client-go's limit).
const UNEXPECTED_TEXT_MAX: usize = 2048;

impl Status {
    /// 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, StatusReason::BadRequest, message)
    }

    /// 401: the user is not authenticated.
    pub fn unauthorized() -> Self {
        Self::new(401, StatusReason::Unauthorized, "Unauthorized")
    }

    /// 403 for a reason that kube-apiserver does not have: the Status has only the message.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(403, StatusReason::Forbidden, message)
    }

    /// 403 for a denied action. The action concerns a resource, a named object (`name` not empty) or, without a
    /// resource, a path. `cause` names the user and the action.
    pub fn forbidden(resource: Option<&GroupVersionResource>, name: &str, cause: &str) -> Self {
        match resource {
            None => Self::denied(format!("forbidden: {cause}"))
                .with_details(StatusDetails { name: name.to_owned(), ..StatusDetails::default() }),
            Some(resource) => {
                let of = resource.group_resource();
                let message = if name.is_empty() {
                    format!("{of} is forbidden: {cause}")
                } else {
                    format!("{of} {} is forbidden: {cause}", go_quote(name))
                };
                Self::denied(message).with_details(StatusDetails::for_object(resource, name))
            }
        }
    }

    /// 404: no object has this name.
    pub fn not_found(resource: &GroupVersionResource, name: &str) -> Self {
        Self::new(404, StatusReason::NotFound, format!("{} {} not found", resource.group_resource(), go_quote(name)))
            .with_details(StatusDetails::for_object(resource, name))
    }

    /// 404: the path or resource does not exist.
    pub fn path_not_found() -> Self {
        Self::new(404, StatusReason::NotFound, "the server could not find the requested resource")
            .with_details(StatusDetails::default())
    }

    /// 404: no cluster has this name.
    pub fn cluster_not_found(name: &str) -> Self {
        Self::new(404, StatusReason::NotFound, format!("clusters {} not found", go_quote(name))).with_details(
            StatusDetails { name: name.to_owned(), kind: "clusters".to_owned(), ..StatusDetails::default() },
        )
    }

    /// 405: the resource does not support the verb.
    pub fn method_not_supported(resource: &GroupVersionResource, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind {}", go_quote(&resource.group_resource()));
        Self::new(405, StatusReason::MethodNotAllowed, message).with_details(StatusDetails::for_object(resource, ""))
    }

    /// 405: the path does not support the method.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            StatusReason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
        .with_details(StatusDetails::default())
    }

    /// 406: the client accepts none of the `available` media types.
    pub fn no_acceptable_representation(available: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
        Self::new(406, StatusReason::NotAcceptable, message).with_details(StatusDetails::default())
    }

    /// 406: the media type is supported, but not its parameters, for example an `as=` that Tributary does not support.
    pub fn not_acceptable(available: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", available.join(", "));
        Self::new(406, StatusReason::NotAcceptable, message)
    }

    /// 406: the client requests list metadata for a single object of this kind, or object metadata for a list. `kind`
    /// is the object's kind in kube-apiserver's spelling: `*core.Pod`.
    pub fn not_acceptable_shape(is_list_shape: bool, kind: &str) -> Self {
        let message = if is_list_shape {
            format!("you requested PartialObjectMetadataList, but the requested object is not a list ({kind})")
        } else {
            format!("you requested PartialObjectMetadata, but the requested object is a list ({kind}List)")
        };
        Self::new(406, StatusReason::NotAcceptable, message)
    }

    /// 415: the body's media type is not among `accepted`.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, StatusReason::UnsupportedMediaType, message)
    }

    /// 415 for a route that does not accept the body's media type. The message does not list the accepted media types.
    pub fn unsupported_representation() -> Self {
        Self::new(415, StatusReason::UnsupportedMediaType, "415: Unsupported Media Type")
            .with_details(StatusDetails::default())
    }

    /// 409: an object with this name exists.
    pub fn already_exists(resource: &GroupVersionResource, name: &str) -> Self {
        Self::new(
            409,
            StatusReason::AlreadyExists,
            format!("{} {} already exists", resource.group_resource(), go_quote(name)),
        )
        .with_details(StatusDetails::for_object(resource, name))
    }

    /// 409: the state of the object does not allow the operation, for the reason `cause`.
    pub fn conflict(resource: &GroupVersionResource, name: &str, cause: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {}: {cause}", resource.group_resource(), go_quote(name));
        Self::new(409, StatusReason::Conflict, message).with_details(StatusDetails::for_object(resource, name))
    }

    /// 409: the object has changed since the client's version.
    pub fn stale(resource: &GroupVersionResource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409: the uid in a precondition belongs to a different object.
    pub fn precondition_uid(resource: &GroupVersionResource, name: &str, wanted: &str, found: &str) -> Self {
        let cause = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Self::conflict(resource, name, &cause)
    }

    /// 410 with reason Gone.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(410, StatusReason::Gone, message)
    }

    /// 410 with reason Expired: the client must list again.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, StatusReason::Expired, message)
    }

    /// 410: a watch starts at a version whose events have been evicted. `oldest` is the oldest usable version. Send the
    /// Status as an ERROR event with status 200. As the response's status, a 410 makes kube-rs and RetryWatcher loop.
    pub fn watch_expired(requested: impl std::fmt::Display, oldest: impl std::fmt::Display) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// 410: a list requests an exact version that has been evicted.
    pub fn list_expired() -> Self {
        Self::expired("The resourceVersion for the provided list is too old.")
    }

    /// 410: the snapshot of a continue token has been evicted. `fresh` is a token with which the client may continue at
    /// the same position in a newer version. Without `fresh`, the client must list from the start.
    pub fn continue_expired(fresh: Option<String>) -> Self {
        let Some(continue_token) = fresh else {
            return Self::expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.",
            );
        };
        let mut status = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
        status.metadata = Some(Box::new(StatusMetadata { continue_token, ..StatusMetadata::default() }));
        status
    }

    /// 413: the body is larger than `limit` bytes.
    pub fn request_entity_too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, StatusReason::RequestEntityTooLarge, message)
    }

    /// 422: fields of an object of `kind` in `group` are invalid.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut message = format!("{qualified} {} is invalid", go_quote(name));
        if let Some(aggregate) = aggregate(errors) {
            message.push_str(": ");
            message.push_str(&aggregate);
        }
        let causes = errors
            .iter()
            .map(|error| StatusCause {
                reason: error.error_type.cause().to_owned(),
                message: error.body(),
                field: error.field.clone(),
            })
            .collect();
        Self::new(422, StatusReason::Invalid, message).with_details(StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..StatusDetails::default()
        })
    }

    /// 422: parameters of a list or watch contradict each other.
    pub fn invalid_list_options(errors: &[FieldError]) -> Self {
        Self::invalid("meta.k8s.io", "ListOptions", "", errors)
    }

    /// 429: the client may retry after `retry_after` seconds.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        Self::new(429, StatusReason::TooManyRequests, message).with_retry_after(retry_after)
    }

    /// 500: an internal error of Tributary.
    pub fn internal_error(cause: impl std::fmt::Display) -> Self {
        let cause = cause.to_string();
        Self::new(500, StatusReason::InternalError, format!("Internal error occurred: {cause}")).with_details(
            StatusDetails {
                causes: vec![StatusCause { message: cause, ..StatusCause::default() }],
                ..StatusDetails::default()
            },
        )
    }

    /// 503: Tributary, or the cluster of the request, does not answer at present.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, StatusReason::ServiceUnavailable, message)
    }

    /// 504: the request took too long, and the operation may still complete.
    pub fn timeout(message: &str, retry_after: u32) -> Self {
        Self::new(504, StatusReason::Timeout, format!("Timeout: {message}")).with_retry_after(retry_after)
    }

    /// 504: the request exceeded its time limit. `limit` is a text with the time and its origin. The Status has no
    /// Retry-After, because the request may have been processed.
    pub fn request_timed_out(limit: impl std::fmt::Display) -> Self {
        Self::timeout(&format!("request did not complete within the allotted timeout ({limit})"), 0)
    }

    /// 504: a list or get requests a resourceVersion above the current version. The request waited, but the current
    /// version did not reach the requested version.
    pub fn too_large_resource_version(requested: impl std::fmt::Display, current: impl std::fmt::Display) -> Self {
        let mut status = Self::timeout(&format!("Too large resource version: {requested}, current: {current}"), 1);
        status.details.get_or_insert_default().causes = vec![StatusCause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }];
        status
    }

    /// 400: the text is not a resourceVersion. `detail` describes the expected form.
    pub fn invalid_resource_version(requested: &str, detail: &str) -> Self {
        Self::bad_request(format!(
            "invalid resource version: {}",
            FieldError::invalid("resourceVersion", requested, detail)
        ))
    }

    /// 400: the text is not a continue token.
    pub fn invalid_continue_token(cause: impl std::fmt::Display) -> Self {
        Self::bad_request(format!("invalid continue token: {cause}"))
    }

    /// Returns the Status that a client would create from a response without a Status.
    pub(super) fn generic(code: u16, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&body[..body.len().min(UNEXPECTED_TEXT_MAX)]);
        let message_text = text.trim();
        let (reason, message) = match code {
            400 => (StatusReason::BadRequest, "the server rejected our request for an unknown reason"),
            401 => (StatusReason::Unauthorized, "the server has asked for the client to provide credentials"),
            403 => (StatusReason::Forbidden, message_text),
            404 => (StatusReason::NotFound, "the server could not find the requested resource"),
            405 => (StatusReason::MethodNotAllowed, "the server does not allow this method on the requested resource"),
            406 => (StatusReason::NotAcceptable, message_text),
            409 => (StatusReason::Conflict, "the server reported a conflict"),
            413 => (StatusReason::RequestEntityTooLarge, message_text),
            415 => (StatusReason::UnsupportedMediaType, message_text),
            422 => (StatusReason::Invalid, "the server rejected our request due to an error in our request"),
            429 => (
                StatusReason::TooManyRequests,
                "the server has received too many requests and has asked us to try again later",
            ),
            503 => (StatusReason::ServiceUnavailable, "the server is currently unable to handle the request"),
            504 => (
                StatusReason::Timeout,
                "the server was unable to return a response in the time allotted, but may still be processing the request",
            ),
            500.. => (StatusReason::InternalError, ""),
            _ => (StatusReason::Unknown, ""),
        };
        let message = match message {
            "" if code >= 500 => {
                format!("an error on the server ({}) has prevented the request from succeeding", go_quote(message_text))
            }
            "" => format!("the server responded with the status code {code} but did not return more information"),
            known => known.to_owned(),
        };
        let causes = vec![StatusCause {
            reason: "UnexpectedServerResponse".to_owned(),
            message: message_text.to_owned(),
            field: String::new(),
        }];
        Self::new(code, reason, message).with_details(StatusDetails { causes, ..StatusDetails::default() })
    }
}

/// Joins the messages of several errors: one message alone, several in brackets without repetitions (`ToAggregate`).
pub(crate) fn aggregate(errors: &[FieldError]) -> Option<String> {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}
