//! `metav1.Status`: the form in which every error (and some successes) goes over the wire.
//!
//! The type and its JSON are here; [`StatusReason`] is in `reason`, one constructor per case in `cases`: Kubernetes'
//! own, with its messages. Those that only a view of many clusters has are made where such a view is.

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

/// `metav1.Status`. As an error it displays its message. At most 80 bytes, so that `Result`s stay small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether this is a `Success` (a DELETE answered so) rather than a `Failure`.
    pub success: bool,
    /// The HTTP status code; 0 where a member left it out.
    pub code: u16,
    /// What clients decide by.
    pub reason: StatusReason,
    /// What people read.
    pub message: String,
    /// What it is about.
    pub details: Option<Box<StatusDetails>>,
    /// A list's metadata, for the continue token of an expired list.
    pub metadata: Option<Box<StatusMetadata>>,
}

/// What a [`Status`] is about (`metav1.StatusDetails`). Empty texts and zero are left out on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub name: String,
    /// The API group of the resource or kind.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub group: String,
    /// The resource (or the kind, for `Invalid`).
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub kind: String,
    /// The uid of the object.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub uid: String,
    /// Single causes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub causes: Vec<StatusCause>,
    /// Seconds after which the client may come again; the Retry-After header says the same.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "null_is_default")]
    pub retry_after_seconds: u32,
}

impl StatusDetails {
    /// Of an error about a resource, or an object of it.
    pub fn for_object(resource: &GroupVersionResource, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Self::default()
        }
    }
}

/// One cause of a failure (`metav1.StatusCause`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// A word for machines: `FieldValueInvalid`, `ResourceVersionTooLarge`, …
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub reason: String,
    /// A text for people.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub message: String,
    /// The field that is at fault, as a path.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub field: String,
}

/// The part of `metav1.ListMeta` that a [`Status`] can carry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusMetadata {
    /// The version that the answer speaks of.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub resource_version: String,
    /// The token with which an expired list can go on, inconsistently.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub continue_token: String,
    /// How many items follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Status {
    /// A failure without details.
    pub fn new(code: u16, reason: StatusReason, message: impl Into<String>) -> Self {
        Self { success: false, code, reason, message: message.into(), details: None, metadata: None }
    }

    /// The same with details.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// The same with seconds after which the client may come again, in the details and so in the Retry-After header.
    ///
    /// Only for what was certainly not carried out.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// The same without the advice to come again.
    #[must_use]
    pub fn without_retry_after(mut self) -> Self {
        if let Some(details) = &mut self.details {
            details.retry_after_seconds = 0;
        }
        self
    }

    /// The value of the Retry-After header, in seconds, where there is to be one. client-go comes again by itself, up
    /// to ten times, for every 429 and 5xx that has it.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// The status as one line of JSON, members in kube-apiserver's order.
    pub fn to_json(&self) -> Vec<u8> {
        // Strings and numbers alone: there is nothing that could fail to serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads what a member answered with `code`: its Status if the body is one, else a Status of the code that tells
    /// what a client without a Status would say (`NewGenericServerResponse` in apimachinery's errors.go). Texts are
    /// kept to their first 2 KiB, as a client does.
    pub fn from_response(code: u16, body: &[u8]) -> Self {
        let Some(mut status) = Self::from_json(body) else { return Self::generic(code, body) };
        if status.code == 0 {
            status.code = code;
        }
        status
    }

    /// The Status that a body in JSON is; `None` where it is none.
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

/// What is read: every member may be missing or null.
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
