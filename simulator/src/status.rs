//! Statuses that are no failures, and those that faults ask for.

use serde_json::{Value, json};
use tributary_apimachinery::{Reason, Status};

use crate::catalog::Resource;
use crate::control::Rejection;

/// What a DELETE answers where the object itself is not given back.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource.name, "uid": uid});
    if !resource.group.is_empty() {
        details["group"] = resource.group.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// The Status of a refusal on command.
pub(crate) fn rejected(rejection: &Rejection) -> Status {
    let seconds = rejection.retry_after.map_or(0, |after| u32::try_from(after.as_secs()).unwrap_or(u32::MAX));
    let status = match rejection.code {
        401 => Status::unauthorized(),
        403 => Status::forbidden(None, "", "refused on command"),
        429 => Status::new(429, Reason::TooManyRequests, "too many requests, refused on command"),
        500 => Status::internal_error("refused on command"),
        503 => Status::service_unavailable("refused on command"),
        code => Status::new(code, Reason::Unknown, "refused on command"),
    };
    if seconds > 0 { status.with_retry_after(seconds) } else { status }
}
