//! Encoding of PartialObjectMetadata in protobuf, the first choice of client-go's metadata clients and informers.
//!
//! The bytes equal kube-apiserver's bytes. Sources: kubernetes/apimachinery `pkg/apis/meta/v1/generated.proto` and
//! `pkg/runtime/generated.proto`; `pkg/runtime/serializer/protobuf` for the envelope; `pkg/util/framer` for the frames.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tributary_apimachinery::Status;
use tributary_apimachinery::wire::{put_field, put_varint};

/// The first bytes of every protobuf body.
const MAGIC: &[u8] = b"k8s\0";

/// The last fields of an envelope (`runtime.Unknown`): contentEncoding and contentType, which are always empty.
const ENVELOPE_END: &[u8] = &[3 << 3 | 2, 0, 4 << 3 | 2, 0];

/// Field numbers of `PartialObjectMetadataList`.
mod list {
    pub(super) const METADATA: u64 = 1;
    pub(super) const ITEMS: u64 = 2;
}

/// Appends a PartialObjectMetadata with the JSON text `metadata`, wrapped in the envelope `runtime.Unknown`. The result
/// is the body of a get, or the object in a watch event.
pub fn partial_object(metadata: &[u8], out: &mut Vec<u8>) {
    let message = partial(metadata);
    envelope_begin("meta.k8s.io/v1", "PartialObjectMetadata", message.len(), out);
    out.extend_from_slice(&message);
    out.extend_from_slice(ENVELOPE_END);
}

/// Appends a PartialObjectMetadata as an item of a list.
pub fn item(metadata: &[u8], out: &mut Vec<u8>) {
    put_field(out, list::ITEMS, &partial(metadata));
}

/// Returns the encoded metadata of a list, which precedes the items.
pub fn list_metadata(resource_version: &str, continue_token: &str, remaining: Option<u64>) -> Vec<u8> {
    let mut message = Vec::new();
    put_field(&mut message, 1, b"");
    put_field(&mut message, 2, resource_version.as_bytes());
    put_field(&mut message, 3, continue_token.as_bytes());
    if let Some(remaining) = remaining {
        put_number(&mut message, 4, remaining as i64);
    }
    let mut field = Vec::new();
    put_field(&mut field, list::METADATA, &message);
    field
}

/// Appends the beginning of a list whose metadata and items take `length` bytes.
pub fn list_begin(length: usize, out: &mut Vec<u8>) {
    envelope_begin("meta.k8s.io/v1", "PartialObjectMetadataList", length, out);
}

/// Appends the end of a list's envelope.
pub fn list_end(out: &mut Vec<u8>) {
    out.extend_from_slice(ENVELOPE_END);
}

/// Appends the frame of a watch event: the length of the event in four big-endian bytes, and then the event.
pub fn event_frame(change_type: &str, object: &[u8], out: &mut Vec<u8>) {
    let mut raw = Vec::with_capacity(object.len() + 8);
    put_field(&mut raw, 1, object);
    let mut event = Vec::with_capacity(raw.len() + 24);
    put_field(&mut event, 1, change_type.as_bytes());
    put_field(&mut event, 2, &raw);
    out.extend_from_slice(&u32::try_from(event.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&event);
}

/// Encodes a Status as the object of a watch event.
///
/// Source: `generated.proto` of kubernetes/apimachinery.
pub fn status(status: &Status) -> Vec<u8> {
    let value: StatusText = serde_json::from_slice(&status.to_json()).unwrap_or_default();
    let mut message = Vec::new();
    put_field(&mut message, 1, &[1 << 3 | 2, 0, 2 << 3 | 2, 0, 3 << 3 | 2, 0]);
    put_field(&mut message, 2, value.status.as_bytes());
    put_field(&mut message, 3, value.message.as_bytes());
    put_field(&mut message, 4, value.reason.as_bytes());
    if let Some(details) = &value.details {
        put_field(&mut message, 5, &details.message());
    }
    put_number(&mut message, 6, value.code);
    let mut out = Vec::new();
    envelope_begin("v1", "Status", message.len(), &mut out);
    out.extend_from_slice(&message);
    out.extend_from_slice(ENVELOPE_END);
    out
}

fn envelope_begin(api_version: &str, kind: &str, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    let mut type_meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    put_field(&mut type_meta, 1, api_version.as_bytes());
    put_field(&mut type_meta, 2, kind.as_bytes());
    put_field(out, 1, &type_meta);
    put_varint(out, 2 << 3 | 2);
    put_varint(out, length);
}

/// Encodes a `PartialObjectMetadata` without its envelope. Invalid metadata from a member becomes empty, so that the
/// client still gets the other objects.
fn partial(metadata: &[u8]) -> Vec<u8> {
    let metadata: ObjectMeta<'_> = serde_json::from_slice(metadata).unwrap_or_default();
    let mut message = Vec::with_capacity(512);
    metadata.write(&mut message);
    let mut out = Vec::with_capacity(message.len() + 4);
    put_field(&mut out, 1, &message);
    out
}

/// Text of a JSON string. Borrows from the JSON if the string has no escapes. `null` becomes the empty text, as in Go.
#[derive(Default, PartialEq, Eq, PartialOrd, Ord)]
struct JsonText<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
        Ok(Self(Option::<Borrowed<'a>>::deserialize(deserializer)?.map(|text| text.0).unwrap_or_default()))
    }
}

impl JsonText<'_> {
    fn write(&self, number: u64, out: &mut Vec<u8>) {
        put_field(out, number, self.0.as_bytes());
    }

    /// Encodes the text as a `metav1.Time` in whole seconds, as in JSON. An empty text becomes the zero time.
    fn time(&self) -> Vec<u8> {
        let mut message = Vec::new();
        if let Ok(time) = self.0.parse::<Timestamp>() {
            put_number(&mut message, 1, time.as_second());
            put_number(&mut message, 2, 0);
        }
        message
    }
}

/// `metav1.ObjectMeta`. As in kube-apiserver, empty fields are encoded too, except fields that are pointers in Go.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectMeta<'a> {
    #[serde(borrow)]
    name: JsonText<'a>,
    generate_name: JsonText<'a>,
    namespace: JsonText<'a>,
    self_link: JsonText<'a>,
    uid: JsonText<'a>,
    resource_version: JsonText<'a>,
    generation: Option<i64>,
    creation_timestamp: JsonText<'a>,
    deletion_timestamp: Option<JsonText<'a>>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<JsonText<'a>, JsonText<'a>>>,
    annotations: Option<BTreeMap<JsonText<'a>, JsonText<'a>>>,
    owner_references: Option<Vec<OwnerReference<'a>>>,
    finalizers: Option<Vec<JsonText<'a>>>,
    managed_fields: Option<Vec<ManagedFieldsEntry<'a>>>,
}

impl ObjectMeta<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        self.name.write(1, out);
        self.generate_name.write(2, out);
        self.namespace.write(3, out);
        self.self_link.write(4, out);
        self.uid.write(5, out);
        self.resource_version.write(6, out);
        put_number(out, 7, self.generation.unwrap_or_default());
        put_field(out, 8, &self.creation_timestamp.time());
        if let Some(time) = &self.deletion_timestamp {
            put_field(out, 9, &time.time());
        }
        if let Some(seconds) = self.deletion_grace_period_seconds {
            put_number(out, 10, seconds);
        }
        for (number, map) in [(11, &self.labels), (12, &self.annotations)] {
            for (key, value) in map.iter().flatten() {
                let mut entry = Vec::with_capacity(key.0.len() + value.0.len() + 8);
                key.write(1, &mut entry);
                value.write(2, &mut entry);
                put_field(out, number, &entry);
            }
        }
        for owner in self.owner_references.iter().flatten() {
            put_field(out, 13, &owner.message());
        }
        for finalizer in self.finalizers.iter().flatten() {
            finalizer.write(14, out);
        }
        for entry in self.managed_fields.iter().flatten() {
            put_field(out, 17, &entry.message());
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnerReference<'a> {
    #[serde(borrow)]
    kind: JsonText<'a>,
    name: JsonText<'a>,
    uid: JsonText<'a>,
    api_version: JsonText<'a>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

impl OwnerReference<'_> {
    fn message(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        self.kind.write(1, &mut out);
        self.name.write(3, &mut out);
        self.uid.write(4, &mut out);
        self.api_version.write(5, &mut out);
        for (number, flag) in [(6, self.controller), (7, self.block_owner_deletion)] {
            if let Some(flag) = flag {
                put_number(&mut out, number, flag.into());
            }
        }
        out
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManagedFieldsEntry<'a> {
    #[serde(borrow)]
    manager: JsonText<'a>,
    operation: JsonText<'a>,
    api_version: JsonText<'a>,
    time: Option<JsonText<'a>>,
    fields_type: JsonText<'a>,
    #[serde(borrow)]
    fields_v1: Option<&'a RawValue>,
    subresource: JsonText<'a>,
}

impl ManagedFieldsEntry<'_> {
    fn message(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.manager.write(1, &mut out);
        self.operation.write(2, &mut out);
        self.api_version.write(3, &mut out);
        if let Some(time) = &self.time {
            put_field(&mut out, 4, &time.time());
        }
        self.fields_type.write(6, &mut out);
        if let Some(fields) = self.fields_v1 {
            let mut raw = Vec::with_capacity(fields.get().len() + 4);
            put_field(&mut raw, 1, fields.get().as_bytes());
            put_field(&mut out, 7, &raw);
        }
        self.subresource.write(8, &mut out);
        out
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusText {
    status: String,
    message: String,
    reason: String,
    details: Option<StatusDetailsText>,
    code: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusDetailsText {
    name: String,
    group: String,
    kind: String,
    causes: Vec<StatusCauseText>,
    retry_after_seconds: i64,
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusCauseText {
    reason: String,
    message: String,
    field: String,
}

impl StatusDetailsText {
    fn message(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_field(&mut out, 1, self.name.as_bytes());
        put_field(&mut out, 2, self.group.as_bytes());
        put_field(&mut out, 3, self.kind.as_bytes());
        for cause in &self.causes {
            let mut message = Vec::new();
            put_field(&mut message, 1, cause.reason.as_bytes());
            put_field(&mut message, 2, cause.message.as_bytes());
            put_field(&mut message, 3, cause.field.as_bytes());
            put_field(&mut out, 4, &message);
        }
        put_number(&mut out, 5, self.retry_after_seconds);
        put_field(&mut out, 6, self.uid.as_bytes());
        out
    }
}

/// Appends an integer field. A negative integer takes ten bytes, as two's complement.
fn put_number(out: &mut Vec<u8>, number: usize, value: i64) {
    put_varint(out, number << 3);
    let mut rest = value as u64;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::StatusReason;

    use super::*;

    /// Metadata with every field set. Kubernetes' `ObjectMeta.Marshal` encodes it as `FULL_BYTES`.
    const FULL: &str = r#"{"name":"n","generateName":"g-","namespace":"ns","uid":"u","resourceVersion":"7","generation":300,"creationTimestamp":"2026-11-21T15:52:08Z","deletionTimestamp":"2026-11-21T15:52:09Z","deletionGracePeriodSeconds":0,"labels":{"b":"2","a":"1"},"annotations":{"quoted":"\"x\"\n"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"o","controller":true,"blockOwnerDeletion":false}],"finalizers":["f/one"],"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","time":"2026-11-21T15:52:08Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{}}},"subresource":"status"}]}"#;
    const FULL_BYTES: &str = "0a016e1202672d1a026e7322002a017532013738ac02420808a8fc86d80610004a0808a9fc86d806100050005a060a01611201315a060a0162120132620e0a0671756f74656412042278220a6a1f0a0a5265706c6963615365741a017222016f2a07617070732f7631300138007205662f6f6e658a01420a016d12065570646174651a027631220808a8fc86d806100032084669656c647356313a150a137b22663a64617461223a7b222e223a7b7d7d7d4206737461747573";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn protobuf_metadata_equals_the_bytes_of_kubernetes() {
        let cases = [
            (FULL, FULL_BYTES),
            ("{}", "0a0012001a0022002a00320038004200"),
            (r#"{"creationTimestamp":null,"labels":null,"uid":null}"#, "0a0012001a0022002a00320038004200"),
        ];
        for (text, expected) in cases {
            let mut out = Vec::new();
            serde_json::from_str::<ObjectMeta<'_>>(text).unwrap().write(&mut out);
            assert_eq!(hex(&out), expected, "{text}");
        }
    }

    #[test]
    fn protobuf_objects_and_events_have_envelopes() {
        let object = "6b3873000a270a0e6d6574612e6b38732e696f2f763112155061727469616c4f626a6563744d6574616461746112130a110a016e12001a0022002a003200380042001a002200";
        let mut out = Vec::new();
        partial_object(br#"{"name":"n"}"#, &mut out);
        assert_eq!(hex(&out), object);
        let mut frame = Vec::new();
        event_frame("ADDED", &out, &mut frame);
        assert_eq!(hex(&frame), format!("000000510a05414444454412480a46{object}"));
    }

    #[test]
    fn protobuf_list_has_one_envelope() {
        let metadata = list_metadata("7", "c", Some(5));
        let mut items = Vec::new();
        item(br#"{"name":"n"}"#, &mut items);
        item(br#"{"name":"n"}"#, &mut items);
        let mut out = Vec::new();
        list_begin(metadata.len() + items.len(), &mut out);
        out.extend([metadata, items].concat());
        list_end(&mut out);
        let expected = "6b3873000a2b0a0e6d6574612e6b38732e696f2f763112195061727469616c4f626a6563744d657461646174614c69737412360a0a0a001201371a0163200512130a110a016e12001a0022002a0032003800420012130a110a016e12001a0022002a003200380042001a002200";
        assert_eq!(hex(&out), expected);
    }

    #[test]
    fn protobuf_status_equals_the_bytes_of_kubernetes() {
        let bytes = status(&Status::new(410, StatusReason::Expired, "m"));
        assert!(hex(&bytes).starts_with("6b3873000a0c0a027631120653746174757312"));
        assert!(hex(&bytes).contains("12074661696c7572651a016d220745787069726564"), "{}", hex(&bytes));
        let details = StatusDetailsText {
            name: "n".into(),
            group: "g".into(),
            kind: "k".into(),
            causes: vec![StatusCauseText { reason: "t".into(), message: "c".into(), field: "f".into() }],
            retry_after_seconds: 1,
            uid: String::new(),
        };
        assert_eq!(hex(&details.message()), "0a016e1201671a016b22090a01741201631a016628013200");
    }

    #[test]
    fn negative_protobuf_integers_take_ten_bytes() {
        let mut out = Vec::new();
        put_number(&mut out, 1, -1);
        assert_eq!(hex(&out), "08ffffffffffffffffff01");
    }
}
