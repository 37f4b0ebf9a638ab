//! Cases for metadata in protobuf, which client-go's metadata clients and informers request.

use super::{Conformance, conformance, target::Target};
use anyhow::{Context, ensure};
use serde_json::Value;
use tributary_apimachinery::wire::fields;

const ONE: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const LIST_IN_JSON: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

mod number {
    pub(super) const METADATA: u64 = 1;
    pub(super) const ITEMS: u64 = 2;
    pub(super) const OBJECT_NAME: u64 = 1;
    pub(super) const OBJECT_RESOURCE_VERSION: u64 = 6;
    pub(super) const OBJECT_ANNOTATIONS: u64 = 12;
    pub(super) const LIST_RESOURCE_VERSION: u64 = 2;
}

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["protobuf";
        get_of_partial_object_metadata_returns_protobuf, list_of_partial_object_metadata_returns_protobuf,
        empty_list_of_partial_object_metadata_returns_protobuf, patch_returns_partial_object_metadata_as_protobuf,
        watch_sends_partial_object_metadata_as_protobuf,
    ]
}

fn all(message: &[u8], number: u64) -> anyhow::Result<Vec<&[u8]>> {
    let found = fields(message).collect::<Result<Vec<_>, _>>().context("no message")?;
    Ok(found.into_iter().filter(|field| field.number == number).filter_map(|field| field.contents).collect())
}

fn one(message: &[u8], number: u64) -> anyhow::Result<&[u8]> {
    all(message, number)?.first().copied().with_context(|| format!("no field {number}"))
}

fn text(message: &[u8], number: u64) -> anyhow::Result<String> {
    Ok(String::from_utf8(one(message, number)?.to_vec())?)
}

/// Checks the kind of a Kubernetes protobuf message, and returns the message without its envelope.
fn opened<'a>(body: &'a [u8], kind: &str) -> anyhow::Result<&'a [u8]> {
    let envelope = body.strip_prefix(b"k8s\0").context("no protobuf")?;
    let type_meta = one(envelope, 1)?;
    ensure!((text(type_meta, 1)?, text(type_meta, 2)?) == ("meta.k8s.io/v1".into(), kind.into()), "{type_meta:?}");
    one(envelope, 2)
}

/// Checks that metadata in protobuf equals the metadata of the object in JSON.
fn check(message: &[u8], object: &Value) -> anyhow::Result<()> {
    let metadata = one(message, number::METADATA)?;
    let own = (text(metadata, number::OBJECT_NAME)?, text(metadata, number::OBJECT_RESOURCE_VERSION)?);
    ensure!(own.0 == object["metadata"]["name"] && own.1 == object["metadata"]["resourceVersion"], "{own:?}: {object}");
    let annotations = object["metadata"]["annotations"].as_object().map_or(0, |annotations| annotations.len());
    ensure!(all(metadata, number::OBJECT_ANNOTATIONS)?.len() == annotations, "{object}");
    Ok(())
}

async fn get_of_partial_object_metadata_returns_protobuf(target: Target) -> anyhow::Result<()> {
    let object = target.create_map("one", &[]).await?;
    let answer = target.http.get(&target.map("one")).accept(ONE).send().await?.expect(200)?;
    ensure!(answer.header("content-type") == "application/vnd.kubernetes.protobuf", "{:?}", answer.headers);
    check(opened(&answer.body, "PartialObjectMetadata")?, &object)
}

async fn list_of_partial_object_metadata_returns_protobuf(target: Target) -> anyhow::Result<()> {
    target.seed_maps(5).await?;
    let list = target.http.get(&target.maps("")).accept(LIST_IN_JSON).send().await?.expect(200)?.json()?;
    let answer = target.http.get(&target.maps("")).accept(LIST).send().await?.expect(200)?;
    let message = opened(&answer.body, "PartialObjectMetadataList")?;
    let metadata = one(message, number::METADATA)?;
    ensure!(!text(metadata, number::LIST_RESOURCE_VERSION)?.is_empty(), "{metadata:?}");
    let (items, expected) = (all(message, number::ITEMS)?, list["items"].as_array().context("no items")?);
    ensure!(items.len() == expected.len() && items.len() == 5, "{} items", items.len());
    items.iter().zip(expected).try_for_each(|(item, object)| check(item, object))
}

async fn empty_list_of_partial_object_metadata_returns_protobuf(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.maps("")).accept(LIST).send().await?.expect(200)?;
    let message = opened(&answer.body, "PartialObjectMetadataList")?;
    ensure!(all(message, number::ITEMS)?.is_empty(), "{message:?}");
    Ok(())
}

async fn patch_returns_partial_object_metadata_as_protobuf(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    let patch = serde_json::json!({"metadata": {"annotations": {"step": "two"}}});
    let request = target.http.patch(&target.map("one"), "merge-patch+json", &patch).accept(ONE);
    let answer = request.send().await?.expect(200)?;
    let object = target.read(&target.map("one")).await?;
    check(opened(&answer.body, "PartialObjectMetadata")?, &object)
}

async fn watch_sends_partial_object_metadata_as_protobuf(target: Target) -> anyhow::Result<()> {
    let object = target.create_map("one", &[]).await?;
    let path = target.maps("?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let answer = target.http.get(&path).accept(ONE).send().await?.expect(200)?;
    let media_type = answer.header("content-type").replace(' ', "");
    ensure!(media_type == "application/vnd.kubernetes.protobuf;stream=watch", "{media_type}");
    let mut events = Vec::new();
    let mut rest = &answer.body[..];
    while let Some((length, after)) = rest.split_first_chunk() {
        let (event, after) =
            after.split_at_checked(u32::from_be_bytes(*length) as usize).context("a frame is cut off")?;
        events.push((text(event, 1)?, one(one(event, 2)?, 1)?));
        rest = after;
    }
    ensure!(rest.is_empty(), "{} bytes are left", rest.len());
    let types: Vec<_> = events.iter().map(|(change_type, _)| &**change_type).collect();
    ensure!(types.starts_with(&["ADDED", "BOOKMARK"]), "{types:?}");
    check(opened(events[0].1, "PartialObjectMetadata")?, &object)?;
    let bookmark = one(opened(events[1].1, "PartialObjectMetadata")?, number::METADATA)?;
    ensure!(!text(bookmark, number::OBJECT_RESOURCE_VERSION)?.is_empty(), "{bookmark:?}");
    let mark = one(bookmark, number::OBJECT_ANNOTATIONS)?;
    ensure!((text(mark, 1)?, text(mark, 2)?) == ("k8s.io/initial-events-end".into(), "true".into()), "{mark:?}");
    Ok(())
}
