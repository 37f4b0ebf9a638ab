//! Union of the OpenAPI documents of several clusters, by name. If two documents describe a path or schema differently,
//! the union contains the description of the first document.
//!
//! JSON and protobuf are joined separately, by the same rules. A cluster's protobuf has the same content as its JSON,
//! so no conversion is needed.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tributary_apimachinery::wire::{self, Malformed};

/// OpenAPI version of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaVersion {
    /// Swagger 2.0, with one document for the whole server.
    V2,
    /// OpenAPI 3.0, with one document for each group version.
    V3,
}

/// Encoding of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Spelling {
    /// JSON text, the default.
    Json,
    /// gnostic's protobuf messages (`openapiv2/OpenAPIv2.proto`, `openapiv3/OpenAPIv3.proto`).
    Protobuf,
}

/// Reason for which documents cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A document is not valid JSON.
    #[error("an OpenAPI document is not valid JSON")]
    Json(#[from] serde_json::Error),
    /// A document is not valid protobuf.
    #[error("an OpenAPI document is not valid protobuf")]
    Protobuf(#[from] Malformed),
}

/// Returns the indexes of the documents that cannot be parsed, with the errors. Costs as much as [`join`].
pub fn unreadable(schema: SchemaVersion, spelling: Spelling, documents: &[&[u8]]) -> Vec<(usize, JoinError)> {
    let alone = documents.iter().map(|document| join(schema, spelling, std::slice::from_ref(document)));
    alone.enumerate().filter_map(|(at, joined)| Some((at, joined.err()?))).collect()
}

/// Joins documents. The preferred document comes first. Costs one pass over the text of all documents, a few
/// milliseconds for each megabyte.
///
/// # Errors
/// [`JoinError`] if a document cannot be parsed.
pub fn join(schema: SchemaVersion, spelling: Spelling, documents: &[&[u8]]) -> Result<Vec<u8>, JoinError> {
    match spelling {
        Spelling::Json => {
            let texts: Vec<&RawValue> =
                documents.iter().map(|text| serde_json::from_slice(text)).collect::<Result<_, _>>()?;
            let mut out = Vec::new();
            join_json(&texts, &mut out, &|key| levels(schema, key))?;
            Ok(out)
        }
        Spelling::Protobuf => Ok(join_messages(documents, rules(schema))?),
    }
}

/// Returns the number of levels of names at which the values of this key are joined. With 0, the union contains the
/// value of the first document.
fn levels(schema: SchemaVersion, key: &str) -> u8 {
    match (schema, key) {
        (_, "paths") => 1,
        (SchemaVersion::V2, "definitions" | "parameters" | "responses" | "securityDefinitions") => 1,
        (SchemaVersion::V3, "components") => 2,
        _ => 0,
    }
}

/// Writes the union of JSON objects to `out`. `levels` returns, for a key, the number of levels of names at which its
/// values are joined.
fn join_json(texts: &[&RawValue], out: &mut Vec<u8>, levels: &dyn Fn(&str) -> u8) -> Result<(), serde_json::Error> {
    let objects: Vec<RawObject<'_>> =
        texts.iter().map(|text| serde_json::from_str(text.get())).collect::<Result<_, _>>()?;
    let mut seen = HashSet::new();
    out.push(b'{');
    for (at, object) in objects.iter().enumerate() {
        for (key, value) in &object.0 {
            if !seen.insert(key.as_str()) {
                continue;
            }
            if out.last() != Some(&b'{') {
                out.push(b',');
            }
            out.extend(serde_json::to_vec(key)?);
            out.push(b':');
            match levels(key) {
                0 => out.extend_from_slice(value.get().as_bytes()),
                depth => {
                    let others = objects[at + 1..].iter().filter_map(|object| object.get(key));
                    let same: Vec<&RawValue> = std::iter::once(*value).chain(others).collect();
                    join_json(&same, out, &|_| depth - 1)?;
                }
            }
        }
    }
    out.push(b'}');
    Ok(())
}

/// JSON object as a list of keys with unparsed values, in the order of the text.
struct RawObject<'a>(Vec<(String, &'a RawValue)>);

impl<'a> RawObject<'a> {
    fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(own, _)| own == key).map(|(_, value)| *value)
    }
}

impl<'de> Deserialize<'de> for RawObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = RawObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            /// Treats `null` as an empty object, because Go's decoder reads `null` as an empty map.
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(RawObject(Vec::new()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(RawObject(members))
            }
        }
        deserializer.deserialize_any(Collect)
    }
}

/// Rule by which a protobuf field of several documents is joined. A field without a rule has the value of the first
/// document.
enum JoinRule {
    /// The field contains a message, whose fields are joined one by one.
    Message(&'static [(u64, JoinRule)]),
    /// The field contains the entries of a gnostic map: messages with a name in field 1. Entries are joined by name.
    Named,
}

/// Field number of the name in an entry of gnostic's maps.
const NAME: u64 = 1;

/// Rule for a message with a map in gnostic's usual form: field 1 contains the named entries.
const MAP: JoinRule = JoinRule::Message(&[(1, JoinRule::Named)]);

fn rules(schema: SchemaVersion) -> &'static [(u64, JoinRule)] {
    match schema {
        // Field 8 is paths (its field 1 has extensions); fields 9, 10, 11 and 13 are definitions, parameters, responses
        // and security_definitions.
        SchemaVersion::V2 => {
            const { &[(8, JoinRule::Message(&[(2, JoinRule::Named)])), (9, MAP), (10, MAP), (11, MAP), (13, MAP)] }
        }
        // Field 4 is paths. Field 5 is components: schemas, responses, parameters, examples, request_bodies, headers,
        // security_schemes, links, callbacks.
        SchemaVersion::V3 => {
            const {
                &[
                    (4, MAP),
                    (
                        5,
                        JoinRule::Message(&[
                            (1, MAP),
                            (2, MAP),
                            (3, MAP),
                            (4, MAP),
                            (5, MAP),
                            (6, MAP),
                            (7, MAP),
                            (8, MAP),
                            (9, MAP),
                        ]),
                    ),
                ]
            }
        }
    }
}

fn join_messages(messages: &[&[u8]], rules: &[(u64, JoinRule)]) -> Result<Vec<u8>, Malformed> {
    let messages: Vec<_> = messages
        .iter()
        .map(|message| wire::fields(message).collect::<Result<Vec<_>, _>>())
        .collect::<Result<_, _>>()?;
    let mut numbers: Vec<u64> = messages.iter().flatten().map(|field| field.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut out = Vec::new();
    for number in numbers {
        let of_number = |message: &Vec<wire::Field<'_>>| message.iter().any(|field| field.number == number);
        let fields = messages.iter().flatten().filter(|field| field.number == number);
        match rules.iter().find(|(own, _)| *own == number) {
            Some((_, JoinRule::Message(rules))) => {
                let contents: Vec<&[u8]> = fields.filter_map(|field| field.contents).collect();
                wire::put_field(&mut out, number, &join_messages(&contents, rules)?);
            }
            Some((_, JoinRule::Named)) => {
                let mut seen = HashSet::new();
                for field in fields {
                    if seen.insert(name(field.contents.unwrap_or_default())?) {
                        out.extend_from_slice(field.whole);
                    }
                }
            }
            None => {
                let first = messages.iter().find(|message| of_number(message)).into_iter().flatten();
                for field in first.filter(|field| field.number == number) {
                    out.extend_from_slice(field.whole);
                }
            }
        }
    }
    Ok(out)
}

fn name(entry: &[u8]) -> Result<&[u8], Malformed> {
    let mut found = None;
    for field in wire::fields(entry) {
        found = Some(field?).filter(|field| field.number == NAME).or(found);
    }
    Ok(found.and_then(|field| field.contents).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn joined(schema: SchemaVersion, documents: &[Value]) -> Value {
        let texts: Vec<_> = documents.iter().map(Value::to_string).collect();
        let texts: Vec<_> = texts.iter().map(String::as_bytes).collect();
        serde_json::from_slice(&join(schema, Spelling::Json, &texts).unwrap()).unwrap()
    }

    #[test]
    fn openapi_json_documents_are_joined_by_name_and_the_first_wins() {
        let newer = json!({"openapi": "3.0.0", "info": {"version": "2"}, "paths": {"/a": {"get": 2}, "/b\n": {}},
            "components": {"schemas": {"S": {"new": true}}, "securitySchemes": {"T": 1}}});
        let older = json!({"openapi": "3.0.0", "info": {"version": "1", "x": 1}, "paths": {"/a": {"get": 1}, "/c": {}},
            "components": {"schemas": {"S": {"old": true}, "R": {}}, "headers": {"H": {}}}, "extra": [1]});
        let both = joined(SchemaVersion::V3, &[newer.clone(), older]);
        assert_eq!(
            both,
            json!({"openapi": "3.0.0", "info": {"version": "2"}, "paths": {"/a": {"get": 2}, "/b\n": {}, "/c": {}},
                "components": {"schemas": {"S": {"new": true}, "R": {}}, "securitySchemes": {"T": 1}, "headers": {"H": {}}},
                "extra": [1]})
        );
        assert_eq!(joined(SchemaVersion::V3, std::slice::from_ref(&newer)), newer);
        let swagger =
            joined(SchemaVersion::V2, &[json!({"definitions": {"A": 1}}), json!({"definitions": {"A": 2, "B": 2}})]);
        assert_eq!(swagger, json!({"definitions": {"A": 1, "B": 2}}));
    }

    #[test]
    fn malformed_openapi_json_document_is_an_error() {
        for text in [&b"[]"[..], b"{", b"{\"paths\":[]}"] {
            assert!(join(SchemaVersion::V3, Spelling::Json, &[text, b"{\"paths\":{}}"]).is_err());
        }
    }

    fn message(fields: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, contents) in fields {
            wire::put_field(&mut out, *number, contents);
        }
        out
    }

    fn entry(name: &str, value: &str) -> Vec<u8> {
        message(&[(1, name.into()), (2, value.into())])
    }

    #[test]
    fn openapi_protobuf_documents_are_joined_by_name_and_the_first_wins() {
        let document = |version: &str, paths: &[(&str, &str)], schemas: &[(&str, &str)]| {
            let map = |entries: &[(&str, &str)]| {
                message(&entries.iter().map(|(name, value)| (1, entry(name, value))).collect::<Vec<_>>())
            };
            message(&[(1, version.into()), (4, map(paths)), (5, message(&[(1, map(schemas))]))])
        };
        let newer = document("3", &[("/a", "new")], &[("S", "new"), ("T", "new")]);
        let older = document("2", &[("/a", "old"), ("/b", "old")], &[("S", "old"), ("R", "old")]);
        let both = join(SchemaVersion::V3, Spelling::Protobuf, &[&newer, &older]).unwrap();
        let expected = document("3", &[("/a", "new"), ("/b", "old")], &[("S", "new"), ("T", "new"), ("R", "old")]);
        assert_eq!(both, expected);
        assert_eq!(join(SchemaVersion::V3, Spelling::Protobuf, &[&newer]).unwrap(), newer);
        assert!(join(SchemaVersion::V3, Spelling::Protobuf, &[&newer, b"\x22\x05"]).is_err());
    }
}
