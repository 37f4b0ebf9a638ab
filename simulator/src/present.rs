//! The form in which objects are shown: whole, metadata alone, or rows of a table.

use bytes::BufMut;
use http::HeaderMap;
use jiff::Timestamp;
use tributary_apimachinery::{Object, Query, Rendering, Status};

/// The form that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Whole objects.
    Whole,
    /// `as=PartialObjectMetadata` or its list.
    Metadata,
    /// `as=Table`.
    Table(RowObject),
}

/// What a row of a table carries beside its cells (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowObject {
    None,
    Metadata,
    Object,
}

/// The object as it is stored.
pub(crate) const AS_IS: Rendering<'static> = Rendering { resource_version: None, annotation: None, list_item: false };
/// The object without what a list says once.
const ITEM: Rendering<'static> = Rendering { resource_version: None, annotation: None, list_item: true };

/// The columns of every table here.
const COLUMNS: &str = r#"[{"name":"Name","type":"string","format":"name","description":"Name must be unique within a namespace.","priority":0},{"name":"Age","type":"string","format":"","description":"How long ago the object was created.","priority":0}]"#;

impl Form {
    /// The first form among the client's that can be given.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query<'_>) -> Result<Self, Status> {
        let accept = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if accept.trim().is_empty() {
            return Ok(Self::Whole);
        }
        let row_object = match query.get("includeObject") {
            Some("None") => RowObject::None,
            Some("Object") => RowObject::Object,
            _ => RowObject::Metadata,
        };
        for clause in accept.split(',') {
            let mut parts = clause.split(';').map(str::trim);
            if !matches!(parts.next(), Some("application/json" | "*/*" | "application/*")) {
                continue;
            }
            match parts.find_map(|part| part.strip_prefix("as=")) {
                None => return Ok(Self::Whole),
                Some("Table") => return Ok(Self::Table(row_object)),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Ok(Self::Metadata),
                Some(_) => {}
            }
        }
        Err(Status::not_acceptable(&["application/json"]))
    }

    /// Appends one object as the answer to a get or within a watch event. `columns` asks a table for its columns.
    pub(crate) fn object(self, object: &Object, columns: bool, out: &mut Vec<u8>) {
        match self {
            Self::Whole => object.render(&AS_IS, out),
            Self::Metadata => metadata(object, out),
            Self::Table(row_object) => {
                let version = object.resource_version().0.to_string();
                table_head(&format!("\"resourceVersion\":\"{version}\""), columns, out);
                row(object, row_object, out);
                out.put_slice(b"]}");
            }
        }
    }

    /// Appends a list up to its items. `metadata` are the members of the list's metadata.
    pub(crate) fn list_head(self, kind: &str, api_version: &str, metadata: &str, out: &mut Vec<u8>) {
        match self {
            Self::Whole => out.put_slice(
                format!(r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{{{metadata}}},"items":["#).as_bytes(),
            ),
            Self::Metadata => out.put_slice(
                format!(r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{{metadata}}},"items":["#)
                    .as_bytes(),
            ),
            Self::Table(_) => table_head(metadata, true, out),
        }
    }

    /// Appends one item of a list, with the comma before all but the first.
    pub(crate) fn list_item(self, object: &Object, first: bool, out: &mut Vec<u8>) {
        if !first {
            out.put_u8(b',');
        }
        match self {
            Self::Whole => object.render(&ITEM, out),
            Self::Metadata => metadata(object, out),
            Self::Table(row_object) => row(object, row_object, out),
        }
    }

    /// Appends a bookmark's object.
    pub(crate) fn bookmark(
        self,
        kind: &str,
        api_version: &str,
        revision: u64,
        initial_events_end: bool,
        out: &mut Vec<u8>,
    ) {
        let annotations =
            if initial_events_end { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
        let metadata = format!(r#""metadata":{{"resourceVersion":"{revision}"{annotations}}}"#);
        let text = match self {
            Self::Whole => format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}",{metadata}}}"#),
            Self::Metadata => format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",{metadata}}}"#),
            Self::Table(_) => {
                table_head(&format!(r#""resourceVersion":"{revision}""#), false, out);
                format!(
                    r#"{{"cells":["",""],"object":{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",{metadata}}}}}]}}"#
                )
            }
        };
        out.put_slice(text.as_bytes());
    }
}

fn metadata(object: &Object, out: &mut Vec<u8>) {
    out.put_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
    out.put_slice(object.metadata());
    out.put_u8(b'}');
}

fn table_head(metadata: &str, columns: bool, out: &mut Vec<u8>) {
    let columns = if columns { COLUMNS } else { "null" };
    out.put_slice(
        format!(r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{{metadata}}},"columnDefinitions":{columns},"rows":["#)
            .as_bytes(),
    );
}

fn row(object: &Object, row_object: RowObject, out: &mut Vec<u8>) {
    let age = age(object.creation_timestamp());
    out.put_slice(format!(r#"{{"cells":["{}","{age}"]"#, object.name()).as_bytes());
    match row_object {
        RowObject::None => {}
        RowObject::Metadata => {
            out.put_slice(br#","object":"#);
            metadata(object, out);
        }
        RowObject::Object => {
            out.put_slice(br#","object":"#);
            object.render(&AS_IS, out);
        }
    }
    out.put_u8(b'}');
}

/// A duration as kubectl shows it, in its simplest form: one unit.
fn age(created: &str) -> String {
    let Ok(created) = created.parse::<Timestamp>() else { return "<unknown>".to_owned() };
    let seconds = (Timestamp::now().as_second() - created.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
