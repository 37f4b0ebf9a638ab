//! Writing of an object in the form that a client requests, by splicing its JSON text.

use jiff::Timestamp;
use tributary_answers::negotiate::{AnswerForm, Encoding, IncludeObject, MetaVersion, Representation};
use tributary_answers::protobuf;
use tributary_apimachinery::{Object, Rendering};
use tributary_fleet::discovery::ResourceKind;
use tributary_fleet::topology::ClusterMark;
use tributary_printers::{Printer, Row, column};

/// Position of an object: alone, or among the items of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectContext {
    /// The answer to a get or a write, or the object of a watch event. In Table form it is a Table with one row.
    Alone(Columns),
    Item,
}

/// Whether a Table defines its columns. A watch defines columns only in its first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    Defined,
    Omitted,
}

/// Writes objects of one resource in one form. Created for each request. Owns buffers that are reused for each object.
pub(crate) struct ObjectWriter {
    form: AnswerForm,
    include: IncludeObject,
    printer: Printer,
    row: Row,
    /// Whether a Table has a column for the cluster of each object.
    has_cluster_column: bool,
    /// Buffer for the JSON of metadata that is encoded in protobuf.
    metadata: Vec<u8>,
    /// Time for which time-dependent cells, such as ages, are computed.
    pub now: Timestamp,
}

impl ObjectWriter {
    pub(crate) fn new(kind: &ResourceKind, form: AnswerForm, include: IncludeObject) -> Self {
        Self {
            form,
            include,
            printer: kind.printer.clone(),
            row: Row::new(),
            has_cluster_column: true,
            metadata: Vec::new(),
            now: Timestamp::now(),
        }
    }

    /// Makes a writer for objects of Tributary itself, which belong to no cluster.
    pub(crate) fn without_clusters(kind: &ResourceKind, form: AnswerForm, include: IncludeObject) -> Self {
        Self { has_cluster_column: false, ..Self::new(kind, form, include) }
    }

    pub(crate) fn form(&self) -> AnswerForm {
        self.form
    }

    pub(crate) fn include(&self) -> IncludeObject {
        self.include
    }

    /// Returns the version of `meta.k8s.io` of a Table or PartialObjectMetadata.
    pub(crate) fn meta_version(&self) -> MetaVersion {
        match self.form.shape {
            Representation::Table(version) | Representation::PartialMetadata(version) => version,
            Representation::Object => MetaVersion::V1,
        }
    }

    /// Appends one object of a cluster. In Table form the object is a row of a list, or a Table of one row.
    pub(crate) fn write(
        &mut self,
        object: &Object,
        version: &str,
        mark: &ClusterMark,
        place: ObjectContext,
        out: &mut Vec<u8>,
    ) {
        self.write_of(Some(mark), object, version, place, out);
    }

    /// Appends one object, as [`write`](Self::write). An object without `mark` belongs to Tributary itself.
    pub(crate) fn write_of(
        &mut self,
        mark: Option<&ClusterMark>,
        object: &Object,
        version: &str,
        place: ObjectContext,
        out: &mut Vec<u8>,
    ) {
        let list_item = place == ObjectContext::Item;
        let annotation = mark.map(|mark| mark.annotation(self.form.annotations));
        let rendering = Rendering { resource_version: Some(version), annotation, list_item };
        let cluster = mark.map(|mark| mark.name.as_str());
        match self.form.shape {
            Representation::Object => gather(&object.pieces(&rendering), out),
            Representation::PartialMetadata(_) if self.form.encoding == Encoding::Protobuf => {
                self.metadata.clear();
                gather(&object.metadata_pieces(&rendering), &mut self.metadata);
                match place {
                    ObjectContext::Alone(_) => protobuf::partial_object(&self.metadata, out),
                    ObjectContext::Item => protobuf::item(&self.metadata, out),
                }
            }
            Representation::PartialMetadata(version) => partial(object, version, &rendering, out),
            Representation::Table(_) => match place {
                ObjectContext::Item => self.row(object, &rendering, cluster, out),
                ObjectContext::Alone(columns) => {
                    self.table_head(columns, &format!("\"resourceVersion\":\"{version}\""), out);
                    self.row(object, &rendering, cluster, out);
                    out.extend_from_slice(b"]}");
                }
            },
        }
    }

    /// Appends the object of a bookmark: kind, version, and the annotation that ends the initial events. In Table form
    /// the bookmark is a row with empty cells.
    pub(crate) fn write_bookmark(
        &mut self,
        kind: &ResourceKind,
        version: &str,
        end: bool,
        columns: Columns,
        out: &mut Vec<u8>,
    ) {
        let annotations = if end { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
        let inner = format!(r#""resourceVersion":"{version}"{annotations}"#);
        let metadata = format!(r#""metadata":{{{inner}}}"#);
        let meta_version = self.meta_version().api_version();
        let partial = format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"{meta_version}",{metadata}}}"#);
        let api_version = kind.resource.group_version();
        let object = format!(r#"{{"kind":"{}","apiVersion":"{api_version}",{metadata}}}"#, kind.kind);
        match self.form.shape {
            Representation::Object => out.extend_from_slice(object.as_bytes()),
            Representation::PartialMetadata(_) if self.form.encoding == Encoding::Protobuf => {
                protobuf::partial_object(format!("{{{inner}}}").as_bytes(), out);
            }
            Representation::PartialMetadata(_) => out.extend_from_slice(partial.as_bytes()),
            Representation::Table(_) => {
                self.table_head(columns, &format!(r#""resourceVersion":"{version}""#), out);
                out.extend_from_slice(br#"{"cells":"#);
                self.print(object.as_bytes());
                self.row.write_cells(self.has_cluster_column.then_some(""), out);
                let shown = match self.include {
                    IncludeObject::Object => object,
                    // Without the annotation the client could not see the end of the initial events.
                    IncludeObject::None if !end => "null".to_owned(),
                    IncludeObject::None | IncludeObject::Metadata => partial,
                };
                out.extend_from_slice(format!(r#","object":{shown}}}]}}"#).as_bytes());
            }
        }
    }

    /// Appends the beginning of a Table up to its first row. `metadata` is the text between the metadata's braces.
    pub(crate) fn table_head(&self, columns: Columns, metadata: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"kind":"Table","apiVersion":""#);
        out.extend_from_slice(self.meta_version().api_version().as_bytes());
        out.extend_from_slice(br#"","metadata":{"#);
        out.extend_from_slice(metadata.as_bytes());
        out.extend_from_slice(br#"},"columnDefinitions":"#);
        if columns == Columns::Defined {
            column::write_columns(self.printer.columns(), self.has_cluster_column, out);
        } else {
            out.extend_from_slice(b"null");
        }
        out.extend_from_slice(br#","rows":["#);
    }

    /// Prints an object's cells. An object of an unexpected form still shows its name.
    fn print(&mut self, json: &[u8]) {
        if self.printer.print(json, self.now, &mut self.row).is_err() {
            let _ = Printer::default_columns().print(json, self.now, &mut self.row);
        }
    }

    fn row(&mut self, object: &Object, rendering: &Rendering<'_>, cluster: Option<&str>, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"cells":"#);
        self.print(object.json());
        self.row.write_cells(cluster, out);
        if let Some(conditions) = self.row.conditions() {
            out.extend_from_slice(br#","conditions":"#);
            out.extend_from_slice(conditions.as_bytes());
        }
        out.extend_from_slice(br#","object":"#);
        match self.include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => partial(object, self.meta_version(), rendering, out),
            IncludeObject::Object => gather(&object.pieces(&Rendering { list_item: false, ..*rendering }), out),
        }
        out.push(b'}');
    }
}

fn partial(object: &Object, version: MetaVersion, rendering: &Rendering<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":""#);
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(br#"","metadata":"#);
    gather(&object.metadata_pieces(rendering), out);
    out.push(b'}');
}

fn gather(pieces: &[&[u8]], out: &mut Vec<u8>) {
    for piece in pieces {
        out.extend_from_slice(piece);
    }
}
