//! What a request came to.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tributary_apimachinery::StatusDetails;

use crate::json;

/// What a request came to: a `metav1.Status`, of which a success has the code alone.
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
    /// As Kubernetes' own type has them. They are a member's words, and nothing else that it says there is written.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_details")]
    pub(crate) details: Option<Box<StatusDetails>>,
    /// The HTTP status.
    pub(crate) code: u16,
}

impl ResponseStatus {
    /// That of an answer's body; `None` where that is another kind.
    pub(crate) fn read(json: &[u8]) -> Option<Self> {
        let Kind { kind } = serde_json::from_slice(json).ok()?;
        (kind == "Status").then(|| serde_json::from_slice(json).ok()).flatten()
    }

    /// Adds it as JSON.
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

/// What Kubernetes' own type has of an answer's details. Those of another form are none, and spoil nothing beside them.
fn known_details<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<StatusDetails>>, D::Error> {
    let said = Option::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(said.and_then(|said| serde_json::from_str(said.get()).ok()))
}

/// A Status's metadata, which is always there and says nothing.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct StatusMetadata {}

/// The kind of a body that may be a Status.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}
