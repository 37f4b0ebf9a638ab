//! The result of a request in its audit event.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tributary_apimachinery::StatusDetails;

use crate::json;

/// The result of a request: a `metav1.Status`. The status of a successful request only has the code.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ResponseStatus {
    pub(crate) metadata: StatusMetadata,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    /// The details of a Status. Fields of a member's Status that Kubernetes does not define are dropped.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_details")]
    pub(crate) details: Option<Box<StatusDetails>>,
    /// The HTTP status code.
    pub(crate) code: u16,
}

impl ResponseStatus {
    /// Parses the body of a response; `None` if the body is not a Status.
    pub(crate) fn read(json: &[u8]) -> Option<Self> {
        let Kind { kind } = serde_json::from_slice(json).ok()?;
        (kind == "Status").then(|| serde_json::from_slice(json).ok()).flatten()
    }

    pub(crate) fn write_to(&self, line: &mut Vec<u8>) {
        let says_more = !self.status.is_empty() || !self.message.is_empty() || !self.reason.is_empty();
        if says_more || self.details.is_some() || self.code >= 1000 {
            return json::any(line, self);
        }
        line.extend_from_slice(br#"{"metadata":{},"code":"#);
        json::number(line, self.code);
        line.push(b'}');
    }
}

/// Deserializes the details of a Status. Invalid details are dropped, so that the other fields of the Status are
/// recorded.
fn known_details<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<StatusDetails>>, D::Error> {
    let details = Option::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(details.and_then(|details| serde_json::from_str(details.get()).ok()))
}

#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct StatusMetadata {}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}
