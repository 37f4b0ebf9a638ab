//! YAML bodies, read as kube-apiserver reads them (YAML 1.1 by sigs.k8s.io/yaml) and passed on as JSON where they change.

use std::borrow::Cow;

use crate::{Status, json};

/// The body as JSON; the same bytes where it is JSON already.
pub(super) fn to_json(body: &[u8]) -> Result<Cow<'_, [u8]>, Status> {
    if body.trim_ascii_start().starts_with(b"{") && json::validate(body).is_ok() {
        return Ok(Cow::Borrowed(body));
    }
    let text = std::str::from_utf8(body).map_err(|_| Status::bad_request("the body is not UTF-8"))?;
    // YAML 1.1: `defaultMode: 0644` is 420.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let value: serde_json::Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error.location().map(|place| format!(" at line {} column {}", place.line(), place.column()));
        Status::bad_request(format!("the body is not valid YAML{}", place.unwrap_or_default()))
    })?;
    serde_json::to_vec(&value).map(Cow::Owned).map_err(Status::internal_error)
}
