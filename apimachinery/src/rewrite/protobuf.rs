//! Reads and rewrites protobuf bodies: the prefix `k8s\0` and a `runtime.Unknown` with the object.
//!
//! Field numbers come from `generated.proto` in apimachinery and api 0.36. Each occurrence of a repeated field is
//! edited, because decoders merge repeated messages, and use the last one of repeated strings. Unknown fields stay byte
//! for byte.

mod status;

use super::{
    BodyKind, Facts, HOOK_ANNOTATION, INSTANCE_LABEL, LISTED_MAX, RECORD_NAME_LABEL, RECORD_OWNER_LABEL,
    RELEASE_NAME_ANNOTATION, RELEASE_NAMESPACE_ANNOTATION, Reference, Translate, VersionOf, translate,
};
use crate::Status;
use crate::object::{CLUSTER_ANNOTATION, CLUSTER_ANNOTATIONS};
use crate::wire::{self, Field, put_varint};
#[cfg(test)]
pub(super) use status::encode_kind;
pub(super) use status::status;

const MAGIC: &[u8] = b"k8s\0";

mod number {
    //! The field numbers of the protobuf messages.

    /// `runtime.Unknown.typeMeta`, with its `apiVersion` and `kind`.
    pub(super) const TYPE_META: u64 = 1;
    pub(super) const API_VERSION: u64 = 1;
    pub(super) const KIND: u64 = 2;
    /// `runtime.Unknown.raw`: the object.
    pub(super) const RAW: u64 = 2;
    /// `runtime.Unknown.contentEncoding`.
    pub(super) const CONTENT_ENCODING: u64 = 3;
    /// `metadata` of each object.
    pub(super) const METADATA: u64 = 1;
    /// The fields of `ObjectMeta`.
    pub(super) const NAME: u64 = 1;
    pub(super) const GENERATE_NAME: u64 = 2;
    pub(super) const NAMESPACE: u64 = 3;
    pub(super) const UID: u64 = 5;
    pub(super) const RESOURCE_VERSION: u64 = 6;
    pub(super) const LABELS: u64 = 11;
    pub(super) const ANNOTATIONS: u64 = 12;
    pub(super) const OWNER_REFERENCES: u64 = 13;
    /// The fields of `OwnerReference` (which has no namespace) and `ObjectReference`.
    pub(super) const REFERENCE_KIND: u64 = 1;
    pub(super) const REFERENCE_NAMESPACE: u64 = 2;
    pub(super) const REFERENCE_NAME: u64 = 3;
    pub(super) const REFERENCE_UID: u64 = 4;
    pub(super) const REFERENCE_API_VERSION: u64 = 5;
    /// `ObjectReference.resourceVersion`.
    pub(super) const REFERENCE_RESOURCE_VERSION: u64 = 6;
    /// The fields of a map entry.
    pub(super) const MAP_KEY: u64 = 1;
    pub(super) const MAP_VALUE: u64 = 2;
    /// core `Event.involvedObject`.
    pub(super) const INVOLVED_OBJECT: u64 = 2;
    /// core `Event.related`.
    pub(super) const CORE_RELATED: u64 = 13;
    /// events.k8s.io `Event.regarding` and `Event.related`.
    pub(super) const REGARDING: u64 = 8;
    pub(super) const RELATED: u64 = 9;
    /// `Pod.spec`, which contains `nodeName`.
    pub(super) const POD_SPEC: u64 = 2;
    pub(super) const NODE_NAME: u64 = 10;
    /// `Binding.target`.
    pub(super) const TARGET: u64 = 2;
    /// `Eviction.deleteOptions`.
    pub(super) const DELETE_OPTIONS: u64 = 2;
    /// `Status.details`, with its `uid`.
    pub(super) const STATUS_DETAILS: u64 = 5;
    pub(super) const DETAILS_UID: u64 = 6;
    /// The fields of `DeleteOptions`.
    pub(super) const PRECONDITIONS: u64 = 2;
    pub(super) const DRY_RUN: u64 = 5;
    /// The fields of `Preconditions`.
    pub(super) const PRECONDITION_UID: u64 = 1;
    pub(super) const PRECONDITION_RESOURCE_VERSION: u64 = 2;
}

fn malformed() -> Status {
    Status::bad_request("the body is not a valid protobuf object")
}

fn fields(message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, Status>> {
    wire::fields(message).map(|field| field.map_err(|_| malformed()))
}

/// Iterates over the contents of each length-delimited field whose number is `number`.
fn all(message: &[u8], number: u64) -> impl Iterator<Item = Result<&[u8], Status>> {
    fields(message).filter_map(move |field| match field {
        Ok(field) if field.number == number => field.contents.map(Ok),
        Ok(_) => None,
        Err(status) => Some(Err(status)),
    })
}

/// Returns the contents of the last length-delimited field whose number is `number`.
fn last(message: &[u8], number: u64) -> Result<Option<&[u8]>, Status> {
    all(message, number).try_fold(None, |_, contents| contents.map(Some))
}

/// Returns the last string whose field number is `number`; `None` if the string is absent or empty.
fn last_string(message: &[u8], number: u64) -> Result<Option<String>, Status> {
    let Some(bytes) = last(message, number)?.filter(|bytes| !bytes.is_empty()) else {
        return Ok(None);
    };
    text(bytes).map(|text| Some(text.to_owned()))
}

fn text(bytes: &[u8]) -> Result<&str, Status> {
    std::str::from_utf8(bytes).map_err(|_| malformed())
}

/// Returns the `runtime.Unknown` message after the prefix.
fn unknown(body: &[u8]) -> Result<&[u8], Status> {
    let unknown = body.strip_prefix(MAGIC).ok_or_else(|| {
        Status::bad_request("the body does not begin with the prefix of Kubernetes' protobuf objects")
    })?;
    match last_string(unknown, number::CONTENT_ENCODING)? {
        None => Ok(unknown),
        Some(_) => Err(Status::bad_request("the encoding of the body's object is not supported")),
    }
}

pub(super) fn read(shape: BodyKind, body: &[u8]) -> Result<Facts, Status> {
    let unknown = unknown(body)?;
    let mut facts = Facts::default();
    for type_meta in all(unknown, number::TYPE_META) {
        let type_meta = type_meta?;
        facts.api_version = last_string(type_meta, number::API_VERSION)?.or(facts.api_version);
        facts.kind = last_string(type_meta, number::KIND)?.or(facts.kind);
    }
    // The field has the type `bytes`, whose occurrences are not merged: the last occurrence is the object.
    let Some(object) = last(unknown, number::RAW)? else {
        return Ok(facts);
    };
    match shape {
        BodyKind::DeleteOptions => read_delete_options(object, &mut facts)?,
        BodyKind::Eviction => {
            for options in all(object, number::DELETE_OPTIONS) {
                let options = options?;
                read_delete_options(options, &mut facts)?;
            }
        }
        BodyKind::CoreEvent | BodyKind::Event => {
            for reference in all(object, reference_number(shape)) {
                let reference = reference?;
                merge_reference(reference, facts.involved.get_or_insert_default())?;
            }
        }
        BodyKind::Pod => {
            for spec in all(object, number::POD_SPEC) {
                let spec = spec?;
                facts.node_name = last_string(spec, number::NODE_NAME)?.or(facts.node_name);
            }
        }
        BodyKind::Binding => {
            for target in all(object, number::TARGET) {
                let target = target?;
                merge_reference(target, facts.target.get_or_insert_default())?;
            }
        }
        BodyKind::Object => {}
    }
    if shape != BodyKind::DeleteOptions {
        for metadata in all(object, number::METADATA) {
            let metadata = metadata?;
            read_metadata(metadata, &mut facts)?;
        }
    }
    Ok(facts)
}

pub(super) fn is_protobuf(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// Returns `details.uid` of a body that is a Status.
pub(super) fn status_uid(body: &[u8]) -> Result<Option<String>, Status> {
    let Some(status) = last(unknown(body)?, number::RAW)? else { return Ok(None) };
    let mut uid = None;
    for details in all(status, number::STATUS_DETAILS) {
        let details = details?;
        uid = last_string(details, number::DETAILS_UID)?.or(uid);
    }
    Ok(uid)
}

fn reference_number(shape: BodyKind) -> u64 {
    if shape == BodyKind::Event { number::REGARDING } else { number::INVOLVED_OBJECT }
}

fn read_delete_options(options: &[u8], facts: &mut Facts) -> Result<(), Status> {
    for preconditions in all(options, number::PRECONDITIONS) {
        let preconditions = preconditions?;
        facts.precondition_uid =
            last_string(preconditions, number::PRECONDITION_UID)?.or(facts.precondition_uid.take());
        facts.precondition_resource_version = last_string(preconditions, number::PRECONDITION_RESOURCE_VERSION)?
            .or(facts.precondition_resource_version.take());
    }
    for dry_run in all(options, number::DRY_RUN).take(LISTED_MAX + 1) {
        let dry_run = dry_run?;
        facts.dry_run.push(text(dry_run)?.to_owned());
    }
    Ok(())
}

fn read_metadata(metadata: &[u8], facts: &mut Facts) -> Result<(), Status> {
    facts.name = last_string(metadata, number::NAME)?.or(facts.name.take());
    facts.generate_name = last_string(metadata, number::GENERATE_NAME)?.or(facts.generate_name.take());
    facts.namespace = last_string(metadata, number::NAMESPACE)?.or(facts.namespace.take());
    facts.uid = last_string(metadata, number::UID)?.or(facts.uid.take());
    facts.resource_version = last_string(metadata, number::RESOURCE_VERSION)?.or(facts.resource_version.take());
    for entry in all(metadata, number::ANNOTATIONS) {
        let entry = entry?;
        let place = match last_string(entry, number::MAP_KEY)?.as_deref() {
            Some(CLUSTER_ANNOTATION) => &mut facts.cluster,
            Some(RELEASE_NAME_ANNOTATION) => &mut facts.release.name,
            Some(RELEASE_NAMESPACE_ANNOTATION) => &mut facts.release.namespace,
            Some(HOOK_ANNOTATION) => &mut facts.release.hook,
            _ => continue,
        };
        *place = last_string(entry, number::MAP_VALUE)?;
    }
    for entry in all(metadata, number::LABELS) {
        let entry = entry?;
        let place = match last_string(entry, number::MAP_KEY)?.as_deref() {
            Some(RECORD_OWNER_LABEL) => &mut facts.release.record_owner,
            Some(RECORD_NAME_LABEL) => &mut facts.release.record_name,
            Some(INSTANCE_LABEL) => &mut facts.release.instance,
            _ => continue,
        };
        *place = last_string(entry, number::MAP_VALUE)?;
    }
    for owner in all(metadata, number::OWNER_REFERENCES).take(LISTED_MAX + 1) {
        let owner = owner?;
        let mut reference = Reference::default();
        merge_reference(owner, &mut reference)?;
        facts.owners.push(reference);
    }
    Ok(())
}

/// Merges a reference message into `reference`, because protobuf decoders merge repeated messages.
fn merge_reference(message: &[u8], reference: &mut Reference) -> Result<(), Status> {
    for (number, field) in [
        (number::REFERENCE_KIND, &mut reference.kind),
        (number::REFERENCE_NAMESPACE, &mut reference.namespace),
        (number::REFERENCE_NAME, &mut reference.name),
        (number::REFERENCE_UID, &mut reference.uid),
        (number::REFERENCE_API_VERSION, &mut reference.api_version),
    ] {
        if let Some(text) = last_string(message, number)? {
            *field = text;
        }
    }
    Ok(())
}

/// Returns whether an entry of the annotations is a cluster annotation. A member reads the key and the value as texts
/// and ignores the wire types of their fields (`ObjectMeta.Unmarshal` in apimachinery). So an entry with the wire type
/// of a number is refused.
fn is_cluster_annotation(entry: &[u8]) -> Result<bool, Status> {
    for field in fields(entry) {
        let field = field?;
        if matches!(field.number, number::MAP_KEY | number::MAP_VALUE) && field.contents.is_none() {
            return Err(malformed());
        }
    }
    Ok(last_string(entry, number::MAP_KEY)?.is_some_and(|key| CLUSTER_ANNOTATIONS.contains(&&*key)))
}

enum Edit {
    Keep,
    Remove,
    Replace(Vec<u8>),
}

/// Copies a message with its fields edited; `None` without a change.
fn edit(message: &[u8], mut decide: impl FnMut(u64, &[u8]) -> Result<Edit, Status>) -> Result<Option<Vec<u8>>, Status> {
    let mut out = Vec::with_capacity(message.len());
    let mut changed = false;
    for field in fields(message) {
        let field = field?;
        let decision = match field.contents {
            Some(contents) => decide(field.number, contents)?,
            None => Edit::Keep,
        };
        match decision {
            Edit::Keep => out.extend_from_slice(field.whole),
            Edit::Remove => changed = true,
            Edit::Replace(contents) => {
                changed = true;
                out.extend_from_slice(field.tag);
                put_varint(&mut out, contents.len());
                out.extend_from_slice(&contents);
            }
        }
    }
    Ok(changed.then_some(out))
}

fn replaced(contents: Option<Vec<u8>>) -> Edit {
    contents.map_or(Edit::Keep, Edit::Replace)
}

pub(super) fn rewrite(shape: BodyKind, body: &[u8], version: Translate<'_>) -> Result<Option<Vec<u8>>, Status> {
    let rewritten = edit(unknown(body)?, |number, contents| match number {
        number::RAW => Ok(replaced(rewrite_object(shape, contents, version)?)),
        _ => Ok(Edit::Keep),
    })?;
    Ok(rewritten.map(|message| [MAGIC, &message].concat()))
}

fn rewrite_object(shape: BodyKind, object: &[u8], version: Translate<'_>) -> Result<Option<Vec<u8>>, Status> {
    if shape == BodyKind::DeleteOptions {
        return rewrite_delete_options(object, version);
    }
    edit(object, |number, contents| {
        let rewritten = match (shape, number) {
            (_, number::METADATA) => rewrite_metadata(contents, version)?,
            (BodyKind::Eviction, number::DELETE_OPTIONS) => rewrite_delete_options(contents, version)?,
            (BodyKind::CoreEvent, number::INVOLVED_OBJECT | number::CORE_RELATED)
            | (BodyKind::Event, number::REGARDING | number::RELATED) => {
                rewrite_version(contents, number::REFERENCE_RESOURCE_VERSION, VersionOf::Reference, version)?
            }
            _ => None,
        };
        Ok(replaced(rewritten))
    })
}

fn rewrite_delete_options(options: &[u8], version: Translate<'_>) -> Result<Option<Vec<u8>>, Status> {
    edit(options, |number, contents| match number {
        number::PRECONDITIONS => {
            let of = VersionOf::Object;
            Ok(replaced(rewrite_version(contents, number::PRECONDITION_RESOURCE_VERSION, of, version)?))
        }
        _ => Ok(Edit::Keep),
    })
}

/// Translates the resourceVersion in the field with the number `at`.
fn rewrite_version(message: &[u8], at: u64, of: VersionOf, version: Translate<'_>) -> Result<Option<Vec<u8>>, Status> {
    edit(message, |number, contents| if number == at { translated(contents, of, version) } else { Ok(Edit::Keep) })
}

fn rewrite_metadata(metadata: &[u8], version: Translate<'_>) -> Result<Option<Vec<u8>>, Status> {
    edit(metadata, |number, contents| match number {
        number::RESOURCE_VERSION => translated(contents, VersionOf::Object, version),
        number::ANNOTATIONS if is_cluster_annotation(contents)? => Ok(Edit::Remove),
        _ => Ok(Edit::Keep),
    })
}

fn translated(contents: &[u8], of: VersionOf, version: Translate<'_>) -> Result<Edit, Status> {
    Ok(replaced(translate(of, version, text(contents)?)?.map(String::into_bytes)))
}
