//! `metav1.Status`: the wire format of each error (and of some successes).
//!
//! This file has the type and its JSON, `reason` has [`StatusReason`], and `cases` has a constructor for each error of
//! Kubernetes, with kube-apiserver's message. Errors that concern several clusters are in other crates.

mod cases;
mod field_error;
mod reason;

use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

pub(crate) use cases::aggregate;
pub use field_error::{FieldError, FieldErrorType, go_quote};
pub use reason::StatusReason;

use crate::GroupVersionResource;
use crate::json::null_is_default;

/// The Kubernetes type `metav1.Status`. As an error, it displays its message. The type has at most 80 bytes, so that
/// `Result`s stay small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether the Status is a `Success` (a possible response to a DELETE) instead of a `Failure`.
    pub success: bool,
    /// The HTTP status code; 0 if a member omitted it.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: StatusReason,
    /// The human-readable message.
    pub message: String,
    /// The object or resource of the error, and its causes.
    pub details: Option<Box<StatusDetails>>,
    /// The metadata of a list, for the continue token of an expired list.
    pub metadata: Option<Box<StatusMetadata>>,
}

/// The details of a [`Status`] (`metav1.StatusDetails`). Empty texts and zero are omitted on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    /// The name of the object that the Status concerns.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub name: String,
    /// The API group of the resource or kind.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub group: String,
    /// The resource (or the kind, for `Invalid`).
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub kind: String,
    /// The uid of the object that the Status concerns.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub uid: String,
    /// The individual causes of the failure.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub causes: Vec<StatusCause>,
    /// Seconds after which the client may retry, equal to the Retry-After header.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "null_is_default")]
    pub retry_after_seconds: u32,
}

impl StatusDetails {
    /// Creates the details of an error about a resource, or about an object of the resource.
    pub fn for_object(resource: &GroupVersionResource, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Self::default()
        }
    }
}

/// A cause of a failure (`metav1.StatusCause`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// The machine-readable reason: `FieldValueInvalid`, `ResourceVersionTooLarge`, …
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub reason: String,
    /// The human-readable message.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub message: String,
    /// The path of the invalid field.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub field: String,
}

/// The fields of `metav1.ListMeta` that a [`Status`] can have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusMetadata {
    /// The resourceVersion of the response.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub resource_version: String,
    /// The continue token with which an expired list can continue at a newer version.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub continue_token: String,
    /// The number of remaining items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Status {
    /// Creates a failure without details.
    pub fn new(code: u16, reason: StatusReason, message: impl Into<String>) -> Self {
        Self { success: false, code, reason, message: message.into(), details: None, metadata: None }
    }

    /// Adds details.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Sets the seconds after which the client may retry, in the details and therefore in the Retry-After header.
    ///
    /// Only for requests that were certainly not processed.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// Removes the Retry-After advice.
    #[must_use]
    pub fn without_retry_after(mut self) -> Self {
        if let Some(details) = &mut self.details {
            details.retry_after_seconds = 0;
        }
        self
    }

    /// Returns the value of the Retry-After header in seconds, if there is one. client-go retries each 429 and 5xx
    /// response with this header, up to ten times.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// Encodes the status as one line of JSON, with the fields in kube-apiserver's order.
    pub fn to_json(&self) -> Vec<u8> {
        // The conversion cannot fail, because strings and numbers always serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Parses a member's response with the HTTP status `code`. If the body is not a Status, the result has the code and
    /// the message that a client would show (`NewGenericServerResponse` in apimachinery's errors.go). The body's text
    /// is cut to its first 2 KiB, as clients do.
    pub fn from_response(code: u16, body: &[u8]) -> Self {
        let Some(mut status) = Self::from_json(body) else { return Self::generic(code, body) };
        if status.code == 0 {
            status.code = code;
        }
        status
    }

    /// Parses a JSON body that is a Status; `None` for any other body.
    pub(crate) fn from_json(body: &[u8]) -> Option<Self> {
        let wire: StatusFields = serde_json::from_slice(body).ok()?;
        (wire.kind == "Status").then(|| Self::from(wire))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Status", 8)?;
        out.serialize_field("kind", "Status")?;
        out.serialize_field("apiVersion", "v1")?;
        out.serialize_field("metadata", self.metadata.as_deref().unwrap_or(&StatusMetadata::default()))?;
        out.serialize_field("status", if self.success { "Success" } else { "Failure" })?;
        if !self.message.is_empty() {
            out.serialize_field("message", &self.message)?;
        }
        if self.reason != StatusReason::Unknown {
            out.serialize_field("reason", &self.reason)?;
        }
        if let Some(details) = &self.details {
            out.serialize_field("details", details)?;
        }
        if self.code != 0 {
            out.serialize_field("code", &self.code)?;
        }
        out.end()
    }
}

/// The fields of a parsed Status, each of which may be absent or null.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusFields {
    #[serde(deserialize_with = "null_is_default")]
    kind: String,
    #[serde(deserialize_with = "null_is_default")]
    status: String,
    #[serde(deserialize_with = "null_is_default")]
    message: String,
    #[serde(deserialize_with = "null_is_default")]
    reason: String,
    details: Option<Box<StatusDetails>>,
    metadata: Option<Box<StatusMetadata>>,
    #[serde(deserialize_with = "null_is_default")]
    code: u16,
}

impl From<StatusFields> for Status {
    fn from(wire: StatusFields) -> Self {
        Self {
            success: wire.status == "Success",
            code: wire.code,
            reason: StatusReason::from(wire.reason.as_str()),
            message: wire.message,
            details: wire.details,
            metadata: wire.metadata.filter(|metadata| **metadata != StatusMetadata::default()),
        }
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        StatusFields::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests;
