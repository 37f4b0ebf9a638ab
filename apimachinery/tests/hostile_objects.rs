//! Tests that malformed or malicious objects of a member neither harm this process nor mislead clients.

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

/// Creates an object with these metadata fields besides its name and version.
fn object(metadata: &str) -> String {
    format!(r#"{{"kind":"K","apiVersion":"v1","metadata":{{"name":"p","resourceVersion":"1"{metadata}}}}}"#)
}

/// With 200,000 annotations, a copy of the text for each annotation would take minutes, and a recursive call for each
/// would overflow a tokio thread's stack.
#[test]
fn repeated_cluster_annotations_are_all_removed() {
    let ours = vec![r#""tributary.dev/cluster":"x""#; 200_000].join(",");
    let text = object(&format!(r#","annotations":{{"a":"b",{ours},"c":"d"}}"#));
    let decoded = decoder().decode(text.as_bytes()).unwrap();
    let expected_object = object(r#","annotations":{"a":"b","c":"d"}"#);
    assert_eq!(std::str::from_utf8(decoded.json()).unwrap(), expected_object);
    let expected = r#"{"kind":"K","apiVersion":"v1","metadata":{"name":"p","resourceVersion":"RV","annotations":{"tributary.dev/cluster":"hostile","a":"b","c":"d"}}}"#;
    assert_eq!(marked(&text).unwrap(), expected);
}

#[test]
fn cluster_annotation_of_a_member_is_replaced_in_each_spelling() {
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
        let decoded = decoder().decode(text.as_bytes()).unwrap();
        let decoded = std::str::from_utf8(decoded.json()).unwrap();
        assert!(!decoded.contains("victim"), "{annotations}: {decoded}");
        assert_eq!(marked(decoded).unwrap().matches("cluster\":").count(), 1, "{annotations}");
    }
    let escaped = r#"{"kind":"K","met\u0061data":{"name":"p","resourceVersion":"7","annot\u0061tions":{"tributary.dev/cluster":"victim"}}}"#;
    let seen: Value = serde_json::from_str(&marked(escaped).unwrap()).unwrap();
    assert_eq!(seen["metadata"]["annotations"]["tributary.dev/cluster"], "hostile");
    assert!(decoder().decode(escaped.as_bytes()).unwrap().json().len() < escaped.len());
}

/// A client may use the first or the last of two fields with the same key, so two clients could disagree about the
/// object.
#[test]
fn object_with_repeated_fields_is_refused() {
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
