//! Writes objects in the form that a client requests: complete, only metadata, or rows of a Table.

use std::sync::LazyLock;

use bytes::BufMut;
use http::HeaderMap;
use jiff::Timestamp;
use tributary_apimachinery::{GroupVersionResource, Object, Query, Rendering, Status};
use tributary_printers::{Printer, Row, column};

use crate::catalog::{CATALOG, ResourceIndex};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Objects with all fields.
    Whole,
    /// `as=PartialObjectMetadata`, or `as=PartialObjectMetadataList` for a list.
    Metadata,
    /// `as=Table`, with the columns of this resource.
    Table(ResourceIndex, RowObject),
}

/// The object in each row of a Table (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowObject {
    None,
    Metadata,
    Object,
}

/// Writes the complete object, unchanged.
pub(crate) const AS_IS: Rendering<'static> = Rendering { resource_version: None, annotation: None, list_item: false };
/// Writes the object as an item of a list, without `kind` and `apiVersion` if a kube-apiserver omits them.
const ITEM: Rendering<'static> = Rendering { resource_version: None, annotation: None, list_item: true };

static PRINTERS: LazyLock<Vec<Printer>> = LazyLock::new(|| {
    CATALOG
        .iter()
        .map(|r| GroupVersionResource::new(r.group, r.version, r.name))
        .map(|resource| Printer::for_resource(&resource).unwrap_or_else(Printer::default_columns))
        .collect()
});

impl Form {
    /// Returns the client's first accepted form that this resource supports.
    pub(crate) fn negotiate(resource: ResourceIndex, headers: &HeaderMap, query: &Query<'_>) -> Result<Self, Status> {
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
                Some("Table") => return Ok(Self::Table(resource, row_object)),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Ok(Self::Metadata),
                Some(_) => {}
            }
        }
        Err(Status::not_acceptable(&["application/json"]))
    }

    /// Appends an object as the response to a get or as a part of a watch event. `columns` adds the columns of a Table.
    pub(crate) fn object(self, object: &Object, columns: bool, out: &mut Vec<u8>) {
        match self {
            Self::Whole => object.render(&AS_IS, out),
            Self::Metadata => metadata(object, out),
            Self::Table(resource, row_object) => {
                let version = object.resource_version().0.to_string();
                table_head(resource, &format!("\"resourceVersion\":\"{version}\""), columns, out);
                row(resource, object, row_object, out);
                out.put_slice(b"]}");
            }
        }
    }

    /// Appends the beginning of a list, before its items. `metadata` contains the fields of the list's metadata.
    pub(crate) fn list_head(self, kind: &str, api_version: &str, metadata: &str, out: &mut Vec<u8>) {
        match self {
            Self::Whole => out.put_slice(
                format!(r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{{{metadata}}},"items":["#).as_bytes(),
            ),
            Self::Metadata => out.put_slice(
                format!(r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{{metadata}}},"items":["#)
                    .as_bytes(),
            ),
            Self::Table(resource, _) => table_head(resource, metadata, true, out),
        }
    }

    /// Appends an item of a list, with a comma before each item except the first.
    pub(crate) fn list_item(self, object: &Object, first: bool, out: &mut Vec<u8>) {
        if !first {
            out.put_u8(b',');
        }
        match self {
            Self::Whole => object.render(&ITEM, out),
            Self::Metadata => metadata(object, out),
            Self::Table(resource, row_object) => row(resource, object, row_object, out),
        }
    }

    /// Appends the object of a bookmark.
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
            Self::Table(resource, _) => {
                table_head(resource, &format!(r#""resourceVersion":"{revision}""#), false, out);
                let cells = vec![r#""""#; PRINTERS[resource].columns().len()].join(",");
                format!(
                    r#"{{"cells":[{cells}],"object":{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",{metadata}}}}}]}}"#
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

fn table_head(resource: ResourceIndex, metadata: &str, columns: bool, out: &mut Vec<u8>) {
    out.put_slice(
        format!(r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{{metadata}}},"columnDefinitions":"#)
            .as_bytes(),
    );
    if columns {
        column::write_columns(PRINTERS[resource].columns(), false, out);
    } else {
        out.put_slice(b"null");
    }
    out.put_slice(br#","rows":["#);
}

fn row(resource: ResourceIndex, object: &Object, row_object: RowObject, out: &mut Vec<u8>) {
    let (mut cells, now) = (Row::new(), Timestamp::now());
    if PRINTERS[resource].print(object.json(), now, &mut cells).is_err() {
        // The simulator does not validate writes, so an object may be malformed. If the kind's printer fails, the row
        // still shows the object's name.
        let _ = Printer::default_columns().print(object.json(), now, &mut cells);
    }
    out.put_slice(br#"{"cells":"#);
    cells.write_cells(None, out);
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
