//! Encodes the bodies of requests and responses for audit events: as JSON, and without secrets.

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tributary_apimachinery::rewrite::{BodyKind, Facts, Format, parse_protobuf_status, read, yaml_to_json};

use crate::response_status::ResponseStatus;
use crate::secrets;

/// The maximum length of a body in an event, in bytes. The value is kube-apiserver's maximum for a request.
pub const BODY_BYTES_MAX: usize = 3 << 20;

/// The body of a request or of its response.
#[derive(Clone, Copy, Debug)]
pub enum AuditBody<'a> {
    /// The complete body.
    Whole {
        /// The header `Content-Type`; empty if the header is missing.
        content_type: &'a str,
        /// The body's bytes without compression.
        bytes: &'a [u8],
    },
    /// A body longer than [`BODY_BYTES_MAX`].
    TooLong,
}

/// The reason why an event omits a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Omitted {
    Empty,
    TooLong,
    Form,
    Malformed,
    /// The body contains the data of a Secret, or a token.
    Secret,
}

impl Omitted {
    /// Returns the text of the annotation about the omission; `None` for an empty body.
    pub(crate) fn as_annotation(self) -> Option<&'static str> {
        match self {
            Self::Empty => None,
            Self::TooLong => Some("omitted: the body is longer than 3 MiB"),
            Self::Form => Some("omitted: the body is neither JSON nor YAML"),
            Self::Malformed => Some("omitted: the body cannot be read"),
            Self::Secret => Some("omitted: the body has a Secret or a token"),
        }
    }
}

impl AuditBody<'_> {
    fn tree(&self) -> Result<Value, Omitted> {
        let Self::Whole { content_type, bytes } = self else { return Err(Omitted::TooLong) };
        if bytes.is_empty() {
            return Err(Omitted::Empty);
        }
        match Format::from_content_type(content_type) {
            Some(Format::Json | Format::JsonPatch | Format::MergePatch | Format::StrategicMergePatch) => {
                serde_json::from_slice(bytes).map_err(|_| Omitted::Malformed)
            }
            Some(Format::Yaml | Format::ApplyYaml) => {
                let json = yaml_to_json(bytes).map_err(|_| Omitted::Malformed)?;
                serde_json::from_slice(&json).map_err(|_| Omitted::Malformed)
            }
            // Only a Status can be decoded from protobuf, because this crate has no schemas of other kinds.
            Some(Format::Protobuf) => {
                let status = parse_protobuf_status(bytes).ok_or(Omitted::Form)?;
                serde_json::to_value(status).map_err(|_| Omitted::Malformed)
            }
            None => Err(Omitted::Form),
        }
    }

    /// Encodes the body as JSON for an event, without `managedFields` if the policy omits them.
    ///
    /// # Errors
    /// [`Omitted`], if the event must not contain the body.
    pub(crate) fn written(&self, omit_managed_fields: bool) -> Result<Box<RawValue>, Omitted> {
        let mut tree = self.tree()?;
        if secrets::is_in(&tree) {
            return Err(Omitted::Secret);
        }
        if omit_managed_fields {
            without_managed_fields(&mut tree);
        }
        to_raw_value(&tree).map_err(|_| Omitted::Malformed)
    }

    /// Returns the name, namespace, uid and resourceVersion of the object in the body. All four are empty if the body
    /// is not a valid object.
    pub(crate) fn facts(&self) -> Facts {
        let Self::Whole { content_type, bytes } = self else { return Facts::default() };
        let format = Format::from_content_type(content_type);
        format.and_then(|format| read(format, BodyKind::Object, bytes).ok()).unwrap_or_default()
    }

    /// Returns the Status in the body, in any supported format; `None` if the body is not a Status.
    pub(crate) fn status(&self) -> Option<ResponseStatus> {
        let Self::Whole { content_type, bytes } = self else { return None };
        match Format::from_content_type(content_type)? {
            Format::Json => ResponseStatus::read(bytes),
            Format::Protobuf => ResponseStatus::read(&parse_protobuf_status(bytes)?.to_json()),
            Format::Yaml => ResponseStatus::read(self.tree().ok()?.to_string().as_bytes()),
            _ => None,
        }
    }
}

/// Removes `metadata.managedFields` from an object, the items of a list, and the objects in the rows of a Table.
fn without_managed_fields(tree: &mut Value) {
    let take_out = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    take_out(tree);
    for item in tree.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        take_out(item);
    }
    for row in tree.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(object) = row.get_mut("object") {
            take_out(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole<'a>(content_type: &'a str, text: &'a str) -> AuditBody<'a> {
        AuditBody::Whole { content_type, bytes: text.as_bytes() }
    }

    #[test]
    fn audited_body_is_written_as_json_or_omitted() {
        let secret = "apiVersion: v1\nkind: Secret\ndata: {a: Yg==}";
        // This YAML body of 60 KB expands to 6 MB.
        let aliases: Vec<_> = (0..99).map(|at| format!("k{at}: *d")).collect();
        let repeated = format!("d: &d {}\ndata: {{{}}}\n", "x".repeat(60_000), aliases.join(","));
        for (content_type, text, expected) in [
            ("application/json", r#"{"a": 1}"#, Ok(r#"{"a":1}"#)),
            ("", r#"{"a":1}"#, Ok(r#"{"a":1}"#)),
            ("application/apply-patch+yaml; charset=utf-8", "a: 1", Ok(r#"{"a":1}"#)),
            ("application/JSON-patch+JSON", r#"[{"op":"remove"}]"#, Ok(r#"[{"op":"remove"}]"#)),
            ("application/json", r#"{"a":"#, Err(Omitted::Malformed)),
            ("application/yaml", secret, Err(Omitted::Secret)),
            ("application/yaml", &repeated, Err(Omitted::Malformed)),
            ("application/vnd.kubernetes.protobuf", "k8s\0", Err(Omitted::Form)),
            ("text/plain", "hello", Err(Omitted::Form)),
            ("application/json", "", Err(Omitted::Empty)),
        ] {
            let written = whole(content_type, text).written(false);
            assert_eq!(written.as_ref().map(|raw| raw.get()), expected.as_ref().copied(), "{content_type} {text}");
        }
        assert_eq!(AuditBody::TooLong.written(false).unwrap_err(), Omitted::TooLong);
    }

    #[test]
    fn managed_fields_are_removed_from_objects_lists_and_tables() {
        let object = r#"{"metadata":{"managedFields":[{}],"name":"x"}}"#;
        let left = r#"{"metadata":{"name":"x"}}"#;
        for (text, expected) in [
            (object.to_owned(), left.to_owned()),
            (format!(r#"{{"items":[{object}],"metadata":{{}}}}"#), format!(r#"{{"items":[{left}],"metadata":{{}}}}"#)),
            (format!(r#"{{"rows":[{{"object":{object}}}]}}"#), format!(r#"{{"rows":[{{"object":{left}}}]}}"#)),
        ] {
            let body = whole("application/json", &text);
            assert_eq!(body.written(true).unwrap().get(), expected);
            let same: Value = serde_json::from_str(body.written(false).unwrap().get()).unwrap();
            assert_eq!(same, serde_json::from_str::<Value>(&text).unwrap());
        }
    }

    #[test]
    fn object_name_and_uid_are_read_from_each_body_format() {
        let protobuf = b"k8s\0\x12\x05\x0a\x03\x0a\x01x";
        for (content_type, bytes) in [
            ("application/json", &br#"{"metadata":{"name":"x"},"data":{}}"#[..]),
            ("application/yaml", b"metadata: {name: x}"),
            ("application/vnd.kubernetes.protobuf", protobuf),
        ] {
            let facts = AuditBody::Whole { content_type, bytes }.facts();
            assert_eq!(facts.name.as_deref(), Some("x"), "{content_type}");
        }
        for text in ["", "[]", "{", r#"{"metadata":1}"#] {
            assert_eq!(whole("application/json", text).facts(), Facts::default(), "{text}");
        }
        assert_eq!(whole("text/plain", "x").facts(), Facts::default());
    }
}
