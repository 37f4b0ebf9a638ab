//! Converts protobuf bodies of generated clients (kubectl create, client-go, controller-runtime) to JSON.
//!
//! A body is `k8s\0` and a `runtime.Unknown` (apimachinery/pkg/runtime/generated.proto), whose `raw` is the message of
//! the object. `protobuf/schema.txt` contains the messages of the served kinds. `protobuf/schema.awk` generates this
//! file from Kubernetes' definitions. Responses are always JSON.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tributary_apimachinery::Status;

pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The prefix of each protobuf body.
const MAGIC: &[u8] = b"k8s\0";
/// The maximum nesting of messages. Kubernetes' own types have about fifteen levels.
const DEPTH_MAX: usize = 32;
/// Fields with a separate message in protobuf whose JSON fields belong to the surrounding object (`json:",inline"` in
/// core/v1/types.go).
const INLINE: [&str; 4] = ["ephemeralContainerCommon", "handler", "localObjectReference", "volumeSource"];

static SCHEMA: LazyLock<HashMap<&'static str, Vec<FieldDescriptor>>> = LazyLock::new(|| {
    include_str!("protobuf/schema.txt")
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.filter_map(FieldDescriptor::parse).collect()))
        })
        .collect()
});

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    #[error("the body lacks the prefix of Kubernetes' protobuf")]
    Magic,
    #[error("the message ends within a field")]
    Truncated,
    #[error("field {0} has a different wire type than its definition")]
    WireType(u64),
    #[error("a string is not UTF-8")]
    Text,
    #[error("messages are nested too deeply")]
    Depth,
    #[error("the kind {0:?} is not served")]
    Kind(String),
}

struct FieldDescriptor {
    number: u64,
    name: &'static str,
    shape: Cardinality,
    of: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cardinality {
    One,
    Many,
    Map,
}

impl FieldDescriptor {
    /// Parses a field of the schema: `name=number:type`.
    fn parse(word: &'static str) -> Option<Self> {
        let (name, rest) = word.split_once('=')?;
        let (number, of) = rest.split_once(':')?;
        let (shape, of) = match (of.strip_prefix('*'), of.strip_prefix('%')) {
            (Some(of), _) => (Cardinality::Many, of),
            (_, Some(of)) => (Cardinality::Map, of),
            _ => (Cardinality::One, of),
        };
        Some(Self { number: number.parse().ok()?, name, shape, of })
    }
}

/// Converts a protobuf body to JSON.
///
/// # Errors
/// 400 for a body that is not an object of a served kind.
pub(crate) fn to_json(body: &[u8]) -> Result<Vec<u8>, Status> {
    let object =
        decode(body).map_err(|error| Status::bad_request(format!("error decoding the body as protobuf: {error}")))?;
    Ok(object.to_string().into_bytes())
}

fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let mut rest = body.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
    let (mut kind, mut api_version, mut raw) = (String::new(), String::new(), &[][..]);
    while let Some((number, wire)) = next(&mut rest)? {
        match (number, wire) {
            (1, WireValue::Bytes(mut meta)) => {
                while let Some((number, wire)) = next(&mut meta)? {
                    match number {
                        1 => api_version = wire.text(number)?,
                        2 => kind = wire.text(number)?,
                        _ => {}
                    }
                }
            }
            (2, WireValue::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let Some((name, _)) = SCHEMA.get_key_value(kind.as_str()) else { return Err(ProtobufError::Kind(kind)) };
    let mut object = message(name, raw, 0)?;
    object["kind"] = kind.into();
    object["apiVersion"] = api_version.into();
    Ok(object)
}

/// The encoded value of a field.
#[derive(Clone, Copy)]
enum WireValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A fixed-width number. Kubernetes' definitions have no such fields.
    Fixed,
}

impl<'a> WireValue<'a> {
    fn number(self, field: u64) -> Result<u64, ProtobufError> {
        if let Self::Number(number) = self { Ok(number) } else { Err(ProtobufError::WireType(field)) }
    }

    fn bytes(self, field: u64) -> Result<&'a [u8], ProtobufError> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(ProtobufError::WireType(field)) }
    }

    fn text(self, field: u64) -> Result<String, ProtobufError> {
        std::str::from_utf8(self.bytes(field)?).map(str::to_owned).map_err(|_| ProtobufError::Text)
    }
}

/// Removes the next field from a message and returns its number and value.
fn next<'a>(rest: &mut &'a [u8]) -> Result<Option<(u64, WireValue<'a>)>, ProtobufError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let key = varint(rest)?;
    let wire = match key & 7 {
        0 => WireValue::Number(varint(rest)?),
        1 => take_bytes(rest, 8).map(|_| WireValue::Fixed)?,
        2 => {
            let length = varint(rest)?;
            WireValue::Bytes(take_bytes(rest, length)?)
        }
        5 => take_bytes(rest, 4).map(|_| WireValue::Fixed)?,
        _ => return Err(ProtobufError::WireType(key >> 3)),
    };
    Ok(Some((key >> 3, wire)))
}

fn take_bytes<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], ProtobufError> {
    let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
    let (bytes, after) = split.ok_or(ProtobufError::Truncated)?;
    *rest = after;
    Ok(bytes)
}

fn varint(rest: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut value = 0_u64;
    // A varint of 64 bits has at most ten bytes.
    for (index, byte) in rest.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *rest = &rest[index + 1..];
            return Ok(value);
        }
    }
    Err(ProtobufError::Truncated)
}

/// Converts a message to JSON. Empty strings are omitted, like with Go's `omitempty`. Numbers and booleans are always
/// written: the schema does not mark pointers, and Go omits pointers only if they are nil.
fn message(name: &'static str, mut bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    if depth > DEPTH_MAX {
        return Err(ProtobufError::Depth);
    }
    if matches!(name, "Time" | "MicroTime" | "FieldsV1" | "Quantity" | "IntOrString") {
        return with_own_json(name, bytes);
    }
    let fields = SCHEMA.get(name).map(Vec::as_slice).unwrap_or_default();
    let mut object = Map::new();
    while let Some((number, wire)) = next(&mut bytes)? {
        let Some(field) = fields.iter().find(|field| field.number == number) else { continue };
        match field.shape {
            Cardinality::One => match value(field.of, number, wire, depth)? {
                Value::String(text) if text.is_empty() => {}
                Value::Object(members) if INLINE.contains(&field.name) => object.extend(members),
                value => drop(object.insert(field.name.to_owned(), value)),
            },
            Cardinality::Many => {
                let item = value(field.of, number, wire, depth)?;
                if let Value::Array(items) = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new())) {
                    items.push(item);
                }
            }
            Cardinality::Map => {
                let (key, value) = entry(field.of, wire.bytes(number)?, depth)?;
                if let Value::Object(entries) = object.entry(field.name).or_insert_with(|| Value::Object(Map::new())) {
                    entries.insert(key, value);
                }
            }
        }
    }
    Ok(Value::Object(object))
}

fn value(of: &'static str, number: u64, wire: WireValue<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match of {
        "string" => wire.text(number)?.into(),
        "bytes" => BASE64_STANDARD.encode(wire.bytes(number)?).into(),
        "bool" => (wire.number(number)? != 0).into(),
        // A negative number is encoded as its two's complement in 64 bits.
        "int32" | "int64" => wire.number(number)?.cast_signed().into(),
        _ => message(of, wire.bytes(number)?, depth + 1)?,
    })
}

/// Converts an entry of a map. The key is field 1, and the value is field 2.
fn entry(of: &'static str, mut bytes: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
    let (mut key, mut entry_value) = (String::new(), Value::String(String::new()));
    while let Some((number, wire)) = next(&mut bytes)? {
        match number {
            1 => key = wire.text(number)?,
            2 => entry_value = value(of, number, wire, depth)?,
            _ => {}
        }
    }
    Ok((key, entry_value))
}

/// Converts the types with a custom JSON encoding (apimachinery: meta/v1 `Time`, `MicroTime` and `FieldsV1`,
/// api/resource `Quantity`, util/intstr `IntOrString`).
fn with_own_json(name: &str, mut bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut numbers, mut contents) = ([0_i64; 2], &[][..]);
    let empty = bytes.is_empty();
    while let Some((number, wire)) = next(&mut bytes)? {
        match (number, wire) {
            (1, WireValue::Number(value)) => numbers[0] = value.cast_signed(),
            (2, WireValue::Number(value)) => numbers[1] = value.cast_signed(),
            (_, WireValue::Bytes(value)) => contents = value,
            _ => {}
        }
    }
    let text = || std::str::from_utf8(contents).map(Value::from).map_err(|_| ProtobufError::Text);
    match name {
        "Time" | "MicroTime" if empty => Ok(Value::Null),
        "Time" | "MicroTime" => {
            let format = if name == "Time" { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
            let time = Timestamp::new(numbers[0], i32::try_from(numbers[1]).unwrap_or(0));
            Ok(time.map_or(Value::Null, |time| time.strftime(format).to_string().into()))
        }
        "FieldsV1" => Ok(serde_json::from_slice(contents).unwrap_or_default()),
        "IntOrString" if numbers[0] == 0 => Ok(numbers[1].into()),
        _ => text(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(number: u8, contents: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut length = contents.len();
        while length >= 0x80 {
            out.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(contents);
        out
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn protobuf_deployment_decodes_with_maps_and_inline_fields() {
        let metadata =
            [field(1, b"web"), field(3, b""), field(8, &[]), field(11, &[field(1, b"app"), field(2, b"web")].concat())]
                .concat();
        let volume = [field(1, b"data"), field(2, &field(2, &field(1, b"Memory")))].concat();
        let container =
            [field(1, b"nginx"), field(8, &field(2, &[field(1, b"cpu"), field(2, &field(1, b"2"))].concat()))];
        let template = field(2, &[field(1, &volume), field(2, &container.concat())].concat());
        let rolling = field(2, &field(1, &[vec![1 << 3, 1], field(3, b"25%")].concat()));
        let spec = [vec![1 << 3, 3], field(3, &template), field(4, &rolling)].concat();
        let raw = [field(1, &metadata), field(2, &spec)].concat();
        assert_eq!(
            decode(&body("apps/v1", "Deployment", &raw)),
            Ok(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "creationTimestamp": null, "labels": {"app": "web"}},
                "spec": {
                    "replicas": 3,
                    "strategy": {"rollingUpdate": {"maxUnavailable": "25%"}},
                    "template": {"spec": {
                        "volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}],
                        "containers": [{"name": "nginx", "resources": {"requests": {"cpu": "2"}}}],
                    }},
                },
            }))
        );
    }

    #[test]
    fn bytes_times_and_negative_numbers_convert_to_json() {
        let time = [vec![1 << 3], vec![0x80, 0xa3, 0x05]].concat();
        let minus_one = [vec![4 << 3], vec![0xff; 9], vec![1]].concat();
        let raw = [field(1, &field(8, &time)), field(3, &[field(1, b"k"), field(2, b"\x00\xff")].concat()), minus_one]
            .concat();
        assert_eq!(
            decode(&body("v1", "ConfigMap", &raw)),
            Ok(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"creationTimestamp": "1970-01-02T00:00:00Z"},
                "binaryData": {"k": "AP8="}, "immutable": true,
            }))
        );
        assert_eq!(value("int32", 1, WireValue::Number(u64::MAX), 0), Ok(json!(-1)));
    }

    #[test]
    fn malformed_protobuf_bodies_are_rejected() {
        assert_eq!(decode(b"{}"), Err(ProtobufError::Magic));
        assert_eq!(decode(&body("v1", "Endpoints", &[])), Err(ProtobufError::Kind("Endpoints".to_owned())));
        assert_eq!(decode(&body("v1", "ConfigMap", &[0x0a, 0x05, 0x00])), Err(ProtobufError::Truncated));
        assert_eq!(decode(&body("v1", "ConfigMap", &[1 << 3, 0])), Err(ProtobufError::WireType(1)));
        assert_eq!(decode(&body("v1", "ConfigMap", &field(1, &field(1, b"\xff")))), Err(ProtobufError::Text));
        let whole = body("v1", "ConfigMap", &field(1, &field(1, b"name")));
        // A body that ends before the field `raw` is still valid, and stands for an empty object.
        let before_raw = body("v1", "ConfigMap", &[]).len() - 2;
        for end in (MAGIC.len() + 1..whole.len()).filter(|end| *end != before_raw) {
            assert!(decode(&whole[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn schema_defines_each_served_kind_and_referenced_type() {
        const SCALARS: [&str; 8] = ["string", "bytes", "bool", "int32", "int64", "FieldsV1", "Quantity", "IntOrString"];
        let is_custom = |group| group == crate::catalog::CUSTOM_GROUP_VERSION.0;
        for resource in crate::catalog::CATALOG.iter().filter(|resource| !is_custom(resource.group)) {
            assert!(SCHEMA.contains_key(resource.kind), "{}", resource.kind);
        }
        for field in SCHEMA.values().flatten() {
            assert!(SCALARS.contains(&field.of) || SCHEMA.contains_key(field.of), "{}: {}", field.name, field.of);
        }
    }
}
