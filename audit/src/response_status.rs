//! The result of a request.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tributary_apimachinery::StatusDetails;

use crate::json;

/// The result of a request: a `metav1.Status`. A success has only the code.
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
    /// The details with the fields of Kubernetes' own type. Further fields in a member's Status are dropped.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_details")]
    pub(crate) details: Option<Box<StatusDetails>>,
    /// The HTTP status code.
    pub(crate) code: u16,
}

impl ResponseStatus {
    /// Parses the body of a response; `None` if it is not a Status.
    pub(crate) fn read(json: &[u8]) -> Option<Self> {
        let Kind { kind } = serde_json::from_slice(json).ok()?;
        (kind == "Status").then(|| serde_json::from_slice(json).ok()).flatten()
    }

    /// Appends the status as JSON.
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

/// Deserializes the details of a Status. Details of an unexpected form are dropped, and the other fields stay.
fn known_details<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<StatusDetails>>, D::Error> {
    let said = Option::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(said.and_then(|said| serde_json::from_str(said.get()).ok()))
}

/// The metadata of a Status, which is always present and empty.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct StatusMetadata {}

/// The kind of a body, to detect a Status.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}
