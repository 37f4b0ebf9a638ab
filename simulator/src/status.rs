//! Builds the Statuses of successful deletions, and of simulated faults.

use serde_json::{Value, json};
use tributary_apimachinery::{Status, StatusDetails, StatusReason};

use crate::catalog::CatalogResource;
use crate::control::Rejection;

/// Returns the Status of a DELETE that does not return the object.
pub(crate) fn deleted(resource: &CatalogResource, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource.name, "uid": uid});
    if !resource.group.is_empty() {
        details["group"] = resource.group.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Returns the 401 of a kubelet with kube-apiserver's message (`GenericHttpResponseChecker` in apiserver's
/// `registry/generic/rest`).
pub(crate) fn unauthorized_kubelet(key: &str) -> Status {
    let name = key.rsplit('/').next().unwrap_or_default();
    let message = format!("the server has asked for the client to provide credentials ( pods/log {name})");
    let details = StatusDetails { name: name.to_owned(), kind: "pods/log".to_owned(), ..StatusDetails::default() };
    Status::new(401, StatusReason::Unauthorized, message).with_details(details)
}

pub(crate) fn rejected(rejection: &Rejection) -> Status {
    let seconds = rejection.retry_after.map_or(0, |after| u32::try_from(after.as_secs()).unwrap_or(u32::MAX));
    let status = match rejection.code {
        401 => Status::unauthorized(),
        403 => Status::forbidden(None, "", "refused on command"),
        429 => Status::new(429, StatusReason::TooManyRequests, "too many requests, refused on command"),
        500 => Status::internal_error("refused on command"),
        503 => Status::service_unavailable("refused on command"),
        code => Status::new(code, StatusReason::Unknown, "refused on command"),
    };
    if seconds == 0 {
        return status;
    }
    let details = status.details.clone().map(|details| *details).unwrap_or_default();
    status.with_details(StatusDetails { retry_after_seconds: seconds, ..details })
}
