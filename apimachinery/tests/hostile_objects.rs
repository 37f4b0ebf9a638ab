//! What a hostile member's objects may do to this process, and to what clients see of it.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::Value;
use tributary_apimachinery::object::ClusterAnnotation;
use tributary_apimachinery::{ClusterName, ObjectDecodeError, ObjectDecoder, mark_object};

fn annotation() -> ClusterAnnotation {
    ClusterAnnotation::new(&ClusterName::new("hostile").unwrap())
}

fn decoder() -> ObjectDecoder {
    ObjectDecoder::new("v1", "K", [].into())
}

fn marked(text: &str) -> Result<String, ObjectDecodeError> {
    let mut out = Vec::new();
    mark_object(text.as_bytes(), &annotation(), |_| "RV", &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// An object with these members of metadata besides its name and version.
fn object(metadata: &str) -> String {
    format!(r#"{{"kind":"K","apiVersion":"v1","metadata":{{"name":"p","resourceVersion":"1"{metadata}}}}}"#)
}

/// As many as would take minutes and overflow the stack of a thread of tokio's, if each cost a copy or a call.
#[test]
fn an_annotation_is_cut_as_often_as_it_is_repeated() {
    let ours = vec![r#""tributary.dev/cluster":"x""#; 200_000].join(",");
    let text = object(&format!(r#","annotations":{{"a":"b",{ours},"c":"d"}}"#));
    let held = decoder().decode(text.as_bytes()).unwrap();
    let kept = object(r#","annotations":{"a":"b","c":"d"}"#);
    assert_eq!(std::str::from_utf8(held.json()).unwrap(), kept);
    let expected = r#"{"kind":"K","apiVersion":"v1","metadata":{"name":"p","resourceVersion":"RV","annotations":{"tributary.dev/cluster":"hostile","a":"b","c":"d"}}}"#;
    assert_eq!(marked(&text).unwrap(), expected);
}

#[test]
fn an_object_is_its_members_however_the_annotation_is_written() {
    for annotations in [
        r#"{"tributary.dev\/cluster":"victim"}"#,
        r#"{"tributary\u002edev/cluster":"victim","a":"b"}"#,
        r#"{"a":"b","tributary.dev/cluster":"victim","\u0074ributary.dev/cluster":"victim"}"#,
        "\"victim\"",
        "null",
        "[1]",
    ] {
        let text = object(&format!(r#","annotations":{annotations}"#));
        let seen: Value = serde_json::from_str(&marked(&text).unwrap()).unwrap();
        assert_eq!(seen["metadata"]["annotations"]["tributary.dev/cluster"], "hostile", "{annotations}");
        let held = decoder().decode(text.as_bytes()).unwrap();
        let held = std::str::from_utf8(held.json()).unwrap();
        assert!(!held.contains("victim"), "{annotations}: {held}");
        assert_eq!(marked(held).unwrap().matches("cluster\":").count(), 1, "{annotations}");
    }
    let escaped = r#"{"kind":"K","met\u0061data":{"name":"p","resourceVersion":"7","annot\u0061tions":{"tributary.dev/cluster":"victim"}}}"#;
    let seen: Value = serde_json::from_str(&marked(escaped).unwrap()).unwrap();
    assert_eq!(seen["metadata"]["annotations"]["tributary.dev/cluster"], "hostile");
    assert!(decoder().decode(escaped.as_bytes()).unwrap().json().len() < escaped.len());
}

/// Of two members with one key some clients take the first and others the last.
#[test]
fn what_clients_would_not_read_alike_is_refused() {
    let twice = |metadata: &str| (object(metadata), metadata.to_owned());
    let mut cases: Vec<_> = [
        r#","name":"q""#,
        r#","resourceVersion":"2""#,
        r#","annotations":{},"annotations":{"tributary.dev/cluster":"victim"}"#,
        r#","annotations":{},"annot\u0061tions":{"tributary.dev/cluster":"victim"}"#,
        r#","namespace":"a","namespace":"b""#,
        r#","uid":"a","uid":"b""#,
        r#","labels":{},"labels":{}"#,
        r#","creationTimestamp":null,"creationTimestamp":null"#,
    ]
    .map(twice)
    .into();
    for other in ["metadata", r"met\u0061data"] {
        let second = format!(r#","{other}":{{"annotations":{{"tributary.dev/cluster":"victim"}}}}}}"#);
        cases.push((object("").strip_suffix('}').unwrap().to_owned() + &second, second));
    }
    for (text, case) in cases {
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(matches!(decoder().decode(text.as_bytes()), Err(ObjectDecodeError::Repeated(_))), "{case}");
        assert!(matches!(marked(&text), Err(ObjectDecodeError::Repeated(_))), "{case}");
    }
}
