//! The fuzzed properties of watch and list responses from members, split into chunks at any position.

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use tributary_cacher::wire::{FrameSplitter, ListMeta, ListParser, MemberEvent};

use crate::choice;

/// The maximum size of a frame in these targets. The value is small, so that a fuzzer's inputs reach it.
const LIMIT: usize = 200;

/// Splits a text at positions that the bits of a byte choose.
fn chunks(cuts: u8, text: &[u8]) -> Vec<&[u8]> {
    let size = usize::from(cuts % 16) + 1;
    let (head, tail) = text.split_at(text.len().min(usize::from(cuts / 16)));
    std::iter::once(head).chain(tail.chunks(size)).collect()
}

/// The input contains the bytes of a watch response. The parsed frames do not depend on the splits, and equal the lines
/// of the text. Each parsed frame agrees with a JSON parser.
pub fn frames(data: &[u8]) {
    let (cuts, text) = choice(data);
    let whole = split(&[text]);
    assert_eq!(split(&chunks(cuts, text)), whole);
    let mut expected = (Vec::new(), true);
    let mut lines = text.split(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        if line.len() > LIMIT {
            expected.1 = false;
            break;
        }
        // The parser returns no frame for a last line without a newline.
        if lines.peek().is_some() && !line.trim_ascii().is_empty() {
            expected.0.push(line.to_vec());
        }
    }
    assert_eq!(whole, expected);
    whole.0.iter().for_each(|frame| event(frame));
}

fn split(chunks: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let mut splitter = FrameSplitter::new(LIMIT);
    let mut frames = Vec::new();
    for chunk in chunks {
        splitter.push(Bytes::copy_from_slice(chunk));
        loop {
            match splitter.next_frame() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(_) => return (frames, false),
            }
        }
    }
    (frames, true)
}

/// Compares a frame with serde_json. If a name occurs twice, both parsers use the last value.
fn event(frame: &[u8]) {
    let read = MemberEvent::parse(frame);
    let Ok(value) = serde_json::from_slice::<Value>(frame) else { return };
    let Some(object) = value.get("object") else {
        assert!(read.is_err() || has_escapes(frame), "{read:?}");
        return;
    };
    let same = |text: &[u8]| serde_json::from_slice::<Value>(text).is_ok_and(|own| own == *object);
    match read {
        Ok(MemberEvent::Object { change_type, object: text }) => {
            assert!(has_escapes(frame) || value["type"] == change_type.as_str(), "{value}");
            assert!(has_escapes(frame) || same(text), "{value}");
        }
        Ok(MemberEvent::Error { status }) => assert!(has_escapes(frame) || same(status), "{value}"),
        Ok(MemberEvent::Bookmark { version, .. }) => {
            let own = &object["metadata"]["resourceVersion"];
            assert!(has_escapes(frame) || *own == version.to_string(), "{value}");
        }
        Err(error) => {
            let known = ["ADDED", "MODIFIED", "DELETED", "ERROR"].iter().any(|name| value["type"] == *name);
            assert!(!known || has_escapes(frame), "{error}: {value}");
        }
    }
}

/// Returns whether a frame has escapes. kube-apiserver never escapes a letter of a name or a type, so the parser need
/// not agree with serde_json about frames with escapes.
fn has_escapes(frame: &[u8]) -> bool {
    frame.contains(&b'\\')
}

/// The input contains the bytes of a list response. The parsed items do not depend on the splits, and agree with a JSON
/// parser.
pub fn list(data: &[u8]) {
    let (cuts, text) = choice(data);
    let (items, meta) = parse(&[text]);
    let (cut_items, cut_meta) = parse(&chunks(cuts, text));
    assert_eq!(meta, cut_meta);
    if meta.is_some() {
        assert_eq!(items, cut_items);
    }
    let Ok(value) = serde_json::from_slice::<Value>(text) else { return };
    if has_escapes(text) || keys_repeat(text) {
        return;
    }
    let Some(meta) = meta else {
        let is_list = value.is_object()
            && value["metadata"]["resourceVersion"]
                .as_str()
                .is_some_and(|text| tributary_apimachinery::ResourceVersion::parse(text).is_ok())
            && matches!(value["metadata"].get("continue"), None | Some(Value::String(_) | Value::Null));
        assert!(!is_list || text.len() > LIMIT, "{value} is a list");
        return;
    };
    assert_eq!(value["metadata"]["resourceVersion"], meta.resource_version.to_string(), "{value}");
    let own: Vec<Value> = items.iter().filter_map(|item| serde_json::from_slice(item).ok()).collect();
    assert_eq!(own, value["items"].as_array().cloned().unwrap_or_default(), "{value}");
}

fn parse(chunks: &[&[u8]]) -> (Vec<Vec<u8>>, Option<ListMeta>) {
    let mut parser = ListParser::new(LIMIT);
    let mut items = Vec::new();
    for chunk in chunks {
        if parser.push(chunk, |item| items.push(item.to_vec())).is_err() {
            return (items, None);
        }
    }
    (items, parser.finish().ok())
}

/// Returns whether the list or its metadata contains two fields with the same name.
fn keys_repeat(text: &[u8]) -> bool {
    let repeats = |text: &[u8]| {
        let keys: Vec<_> = tributary_apimachinery::json::members(text, 0).map(|member| member.key.to_vec()).collect();
        (1..keys.len()).any(|at| keys[..at].contains(&keys[at]))
    };
    let metadata: Option<std::collections::BTreeMap<String, &RawValue>> = serde_json::from_slice(text).ok();
    let metadata = metadata.and_then(|mut members| members.remove("metadata"));
    repeats(text) || metadata.is_some_and(|metadata| repeats(metadata.get().as_bytes()))
}
