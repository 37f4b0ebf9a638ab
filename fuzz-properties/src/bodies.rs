//! The fuzzed properties of request bodies in JSON, YAML and patches: rewriting a body's text has the same result as
//! rewriting its parsed tree.

use bytes::Bytes;
use serde_json::Value;
use tributary_apimachinery::object::{CLUSTER_ANNOTATION, KARMADA_ANNOTATION};
use tributary_apimachinery::rewrite::{BodyKind, Format, VersionOf, read, rewrite};
use tributary_apimachinery::{Status, json};

use crate::choice;

pub(crate) const SHAPES: [BodyKind; 7] = [
    BodyKind::Object,
    BodyKind::Pod,
    BodyKind::Binding,
    BodyKind::CoreEvent,
    BodyKind::Event,
    BodyKind::Eviction,
    BodyKind::DeleteOptions,
];

/// Translates a resourceVersion for the fuzz targets: into a different text, into an equal text, into an empty text, or
/// into an error.
pub(crate) fn translated(of: VersionOf, version: &str) -> Result<String, Status> {
    match version {
        "refused" => Err(Status::gone(version)),
        "gone" => Ok(String::new()),
        "same" => Ok(version.to_owned()),
        _ if version.starts_with("native") => Ok(version.to_owned()),
        _ if of == VersionOf::Reference => Ok(format!("native-reference-{version}")),
        _ => Ok(format!("native-{version}")),
    }
}

/// Returns the paths of resourceVersions in a body of a kind.
fn places(shape: BodyKind) -> &'static [(VersionOf, &'static [&'static str])] {
    use VersionOf::{Object, Reference};
    match shape {
        BodyKind::Object | BodyKind::Pod | BodyKind::Binding => &[(Object, &["metadata", "resourceVersion"])],
        BodyKind::CoreEvent => &[
            (Object, &["metadata", "resourceVersion"]),
            (Reference, &["involvedObject", "resourceVersion"]),
            (Reference, &["related", "resourceVersion"]),
        ],
        BodyKind::Event => &[
            (Object, &["metadata", "resourceVersion"]),
            (Reference, &["regarding", "resourceVersion"]),
            (Reference, &["related", "resourceVersion"]),
        ],
        BodyKind::Eviction => &[
            (Object, &["metadata", "resourceVersion"]),
            (Object, &["deleteOptions", "preconditions", "resourceVersion"]),
        ],
        BodyKind::DeleteOptions => &[(Object, &["preconditions", "resourceVersion"])],
    }
}

/// Rewrites a parsed tree, as the expected result of rewriting the text. Returns an error if a resourceVersion has no
/// translation.
fn expected(shape: BodyKind, mut value: Value) -> Result<Value, Status> {
    for (of, place) in places(shape) {
        let found = place.iter().try_fold(&mut value, |value, key| value.as_object_mut()?.get_mut(*key));
        if let Some(Value::String(version)) = found
            && !version.is_empty()
        {
            *version = translated(*of, version)?;
        }
    }
    if shape != BodyKind::DeleteOptions
        && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        && [CLUSTER_ANNOTATION, KARMADA_ANNOTATION].map(|key| annotations.remove(key)).iter().any(Option::is_some)
        && annotations.is_empty()
    {
        metadata.remove("annotations");
    }
    Ok(value)
}

/// Returns whether an object in a JSON text contains two fields with the same name.
fn names_repeat(text: &[u8], start: usize) -> bool {
    let members: Vec<_> = json::members(text, start).collect();
    let keys: Vec<String> = members
        .iter()
        .map(|member| serde_json::from_slice(&[b"\"", member.key, b"\""].concat()).unwrap_or_default())
        .collect();
    (1..keys.len()).any(|at| keys[..at].contains(&keys[at]))
        || members.iter().any(|member| names_repeat(text, member.value.start))
}

/// Checks the rewriting and the reading of a JSON body, or of a patch with the structure of the object.
pub fn json_body(data: &[u8]) {
    let (kind, text) = choice(data);
    let formats = [Format::Json, Format::MergePatch, Format::StrategicMergePatch];
    let (format, shape) = (formats[usize::from(kind) % 3], SHAPES[usize::from(kind / 3) % 5]);
    let body = Bytes::copy_from_slice(text);
    let rewritten = rewrite(format, shape, &body, false, &mut translated);
    let facts = read(format, shape, text);
    if text.is_empty() {
        return;
    }
    let Ok(value) = serde_json::from_slice::<Value>(text) else {
        // serde_json cannot parse a text that is nested too deeply, but a member can. Without a parsed tree, there is
        // no expected result.
        let is_json = json::validate(text).is_ok();
        assert!(is_json || (rewritten.is_err() && facts.is_err()), "invalid JSON was rewritten to {rewritten:?}");
        return;
    };
    let facts = facts.expect("valid JSON has facts");
    if names_repeat(text, 0) {
        assert!(rewritten.is_err() || serde_json::from_slice::<Value>(&rewritten.unwrap().body).is_ok());
        return;
    }
    let name = value["metadata"]["name"].as_str().filter(|name| !name.is_empty());
    assert_eq!(facts.name.as_deref(), name.filter(|_| value["metadata"].is_object()), "{value}");
    match (rewritten, expected(shape, value.clone())) {
        (Ok(rewritten), Ok(expected)) => {
            let sent: Value = serde_json::from_slice(&rewritten.body).expect("the result is JSON");
            assert_eq!(sent, expected, "from {value}");
            let again = rewrite(format, shape, &rewritten.body, false, &mut translated)
                .expect("a rewritten body can be rewritten");
            assert_eq!(again.body, rewritten.body, "rewriting is idempotent");
        }
        (Err(_), Err(_)) => {}
        (rewritten, expected) => panic!("{value}: {rewritten:?} instead of {expected:?}"),
    }
}

/// The input is a YAML body. Rewriting converts the body to JSON, and a JSON body is also accepted as YAML.
pub fn yaml_body(data: &[u8]) {
    let (kind, text) = choice(data);
    let shape = SHAPES[usize::from(kind / 2) % 5];
    let format = [Format::Yaml, Format::ApplyYaml][usize::from(kind) % 2];
    let body = Bytes::copy_from_slice(text);
    let Ok(rewritten) = rewrite(format, shape, &body, false, &mut translated) else { return };
    if rewritten.body == body {
        return;
    }
    let value: Value = serde_json::from_slice(&rewritten.body).expect("a changed body becomes JSON");
    assert!(rewritten.content_type.is_none_or(|given| given == "application/json"));
    let again =
        rewrite(Format::Json, shape, &rewritten.body, false, &mut translated).expect("a rewritten body is JSON");
    assert_eq!(again.body, rewritten.body, "{value}");
    if let Ok(own) = rewrite(Format::Json, shape, &body, false, &mut translated)
        && !names_repeat(text, 0)
    {
        assert_eq!(serde_json::from_slice::<Value>(&own.body).ok(), Some(value), "JSON is YAML");
    }
}

/// The input is a JSON patch. The rewritten body is a JSON patch, and rewriting it once more changes nothing.
pub fn json_patch(data: &[u8]) {
    let (kind, text) = choice(data);
    let shape = SHAPES[usize::from(kind / 2) % 5];
    let body = Bytes::copy_from_slice(text);
    let has_annotations = kind % 2 == 0;
    let facts = read(Format::JsonPatch, shape, text);
    let Ok(rewritten) = rewrite(Format::JsonPatch, shape, &body, has_annotations, &mut translated) else { return };
    if text.is_empty() {
        return;
    }
    assert!(facts.is_ok(), "{facts:?}");
    let before: Value = match serde_json::from_slice(text) {
        Ok(before) => before,
        Err(_) => return,
    };
    let after: Value = serde_json::from_slice(&rewritten.body).expect("the result is JSON");
    assert_eq!(before.is_array(), after.is_array(), "{before} became {after}");
    let again = rewrite(Format::JsonPatch, shape, &rewritten.body, true, &mut translated)
        .expect("a rewritten patch can be rewritten");
    let again: Value = serde_json::from_slice(&again.body).expect("the result is JSON");
    assert_eq!(again, after, "from {before}");
}
