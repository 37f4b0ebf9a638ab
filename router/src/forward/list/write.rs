//! Writing of members' items in the form that the client requests, by splicing their texts.

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;
use tributary_answers::negotiate::IncludeObject;
use tributary_answers::negotiate::{AnswerForm, Encoding, MetaVersion, Representation};
use tributary_answers::protobuf;
use tributary_apimachinery::{ItemResourceVersions, NativeVersion, json, mark_object};
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::topology::ClusterMark;
use tributary_printers::{Column, Printer, Row, column};

use super::member_list::Item;
use crate::response::yaml;

#[derive(Clone, Copy)]
pub(super) struct ListForm {
    pub(super) form: AnswerForm,
    /// Value of `includeObject` for the rows of a Table.
    pub(super) include: IncludeObject,
    /// Form of the objects' versions.
    pub(super) items: ItemResourceVersions,
}

#[derive(Default)]
pub(super) struct LiveListMetadata {
    /// Encoded composite version; empty if no member has a version.
    pub(super) version: String,
    pub(super) continue_token: Option<String>,
}

impl LiveListMetadata {
    fn json(&self) -> String {
        let mut text = format!("{{\"resourceVersion\":\"{}\"", self.version);
        if let Some(token) = &self.continue_token {
            text.push_str(&format!(",\"continue\":\"{token}\""));
        }
        text.push('}');
        text
    }
}

/// Maximum of columns shown of one member's Table. 64 is the limit for a custom resource's definition
/// (`tributary_printers`). kube-apiserver's own Tables have up to 13.
const COLUMNS_OF_MEMBER_MAX: usize = 64;

/// Maximum of columns in the Tables of all members together. Twice the limit of one member, for two versions of a
/// resource.
const COLUMNS_MAX: usize = 2 * COLUMNS_OF_MEMBER_MAX;

/// Maximal length of a member's column definitions, in bytes. 64 KiB are 1 KiB for each column; usual are some 200
/// bytes.
const COLUMN_BYTES_MAX: usize = 64 << 10;

/// Columns of the merged Table: the columns of all members, without duplicate names. New columns are appended.
#[derive(Clone, Default)]
pub(super) struct UnitedColumns(Vec<Value>);

impl UnitedColumns {
    /// Adds the columns of a member, or the columns of Tributary's printer if the member returns no Table.
    pub(super) fn add(&mut self, own: Option<&[u8]>, printer: &Printer) {
        for column in of_member(own, printer) {
            if self.0.len() < COLUMNS_MAX && !self.0.iter().any(|known| known["name"] == column["name"]) {
                self.0.push(column);
            }
        }
    }

    /// Returns the index in the merged Table for each column of a member; `None` for a column that is not shown.
    pub(super) fn places(&self, own: Option<&[u8]>, printer: &Printer) -> Vec<Option<usize>> {
        let own = of_member(own, printer);
        own.iter().map(|column| self.0.iter().position(|known| known["name"] == column["name"])).collect()
    }
}

fn of_member(own: Option<&[u8]>, printer: &Printer) -> Vec<Value> {
    let Some(own) = own else { return definitions(printer) };
    if own.len() > COLUMN_BYTES_MAX {
        return Vec::new();
    }
    let mut columns: Vec<Value> = serde_json::from_slice(own).unwrap_or_default();
    columns.truncate(COLUMNS_OF_MEMBER_MAX);
    columns
}

fn definitions(printer: &Printer) -> Vec<Value> {
    let mut text = Vec::new();
    column::write_columns(printer.columns(), false, &mut text);
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Returns the printer for objects of members that return no Table.
pub(super) fn printer(served: &ServedResource) -> Printer {
    Printer::for_resource(&served.resource).unwrap_or_else(Printer::default_columns)
}

/// Writes the merged answer of a list that is forwarded to the clusters, in the form that the client requests.
pub(super) struct LiveListWriter {
    wish: ListForm,
    kind: String,
    api_version: String,
    printer: Printer,
    columns: UnitedColumns,
    now: Timestamp,
    any: bool,
    /// Buffer for the row of each item.
    row: Row,
    cells: Vec<u8>,
    marked: Vec<u8>,
    item: Vec<u8>,
    version: String,
}

impl LiveListWriter {
    /// Creates a writer for a list. `columns` are only for a Table.
    pub(super) fn new(wish: ListForm, served: &ServedResource, mut columns: UnitedColumns) -> Self {
        let (kind, api_version) = match wish.form.shape {
            Representation::Object => {
                (format!("{}List", served.description.kind()), served.resource.group_version().to_string())
            }
            Representation::PartialMetadata(version) => {
                ("PartialObjectMetadataList".to_owned(), version.api_version().to_owned())
            }
            Representation::Table(version) => ("Table".to_owned(), version.api_version().to_owned()),
        };
        let printer = printer(served);
        if columns.0.is_empty() {
            columns.add(None, &printer);
        }
        Self {
            wish,
            kind,
            api_version,
            printer,
            columns,
            now: Timestamp::now(),
            any: false,
            row: Row::new(),
            cells: Vec::new(),
            marked: Vec::new(),
            item: Vec::new(),
            version: String::new(),
        }
    }

    pub(super) fn printer(&self) -> &Printer {
        &self.printer
    }

    pub(super) fn columns(&self) -> &UnitedColumns {
        &self.columns
    }

    /// Begins the list. In protobuf, the length of the items precedes them, so nothing is written yet.
    pub(super) fn begin(&self, out: &mut Vec<u8>) {
        let Self { kind, api_version, .. } = self;
        let is_table = matches!(self.wish.form.shape, Representation::Table(_));
        let (array, columns) = match is_table {
            true => ("rows", serde_json::to_string(&self.shown_columns()).unwrap_or_default()),
            false => ("items", String::new()),
        };
        match self.wish.form.encoding {
            Encoding::Json => {
                out.extend_from_slice(format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","#).as_bytes());
                if is_table {
                    out.extend_from_slice(format!(r#""columnDefinitions":{columns},"#).as_bytes());
                }
                out.extend_from_slice(format!("\"{array}\":[").as_bytes());
            }
            Encoding::Yaml => {
                out.extend_from_slice(format!("apiVersion: {api_version}\n").as_bytes());
                if is_table {
                    member_in_yaml("columnDefinitions", &columns, out);
                }
                out.extend_from_slice(format!("kind: {kind}\n{array}:").as_bytes());
            }
            Encoding::Protobuf => {}
        }
    }

    /// Writes one item of a cluster. `places` has the column index of each cell. An invalid item of a member is
    /// skipped, because it must not hide the other items.
    pub(super) fn item(&mut self, mark: &ClusterMark, item: Item<'_>, places: &[Option<usize>], out: &mut Vec<u8>) {
        let mut text = std::mem::take(&mut self.item);
        text.clear();
        let written = match (self.wish.form.shape, item) {
            (Representation::Table(_), Item::Row(row)) => self.member_row(mark, row, places, &mut text),
            (Representation::Table(version), Item::Object(object)) => {
                self.printed_row(mark, object, version, places, &mut text)
            }
            (shape, Item::Object(object)) => self.object(mark, object, shape, &mut text),
            // A row is skipped if the client requests no Table.
            (_, Item::Row(_)) => None,
        };
        if written.is_some() {
            self.place(&text, out);
        }
        self.item = text;
    }

    fn place(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let is_first = !std::mem::replace(&mut self.any, true);
        match self.wish.form.encoding {
            Encoding::Json => {
                if !is_first {
                    out.push(b',');
                }
                out.extend_from_slice(text);
            }
            Encoding::Yaml => {
                for (at, line) in yaml::of_json(text).unwrap_or_default().lines().enumerate() {
                    out.extend_from_slice(if at == 0 { b"\n- " } else { b"\n  " });
                    out.extend_from_slice(line.as_bytes());
                }
            }
            Encoding::Protobuf => {
                if let Some(metadata) = json::find(text, 0, &["metadata"]) {
                    protobuf::item(&text[metadata], out);
                }
            }
        }
    }

    /// Ends the list with its metadata, which is complete only now.
    pub(super) fn end(&self, metadata: &LiveListMetadata, out: &mut Vec<u8>) {
        let text = metadata.json();
        match self.wish.form.encoding {
            Encoding::Json => out.extend_from_slice(format!("],\"metadata\":{text}}}\n").as_bytes()),
            Encoding::Yaml => {
                if !self.any {
                    out.extend_from_slice(b" []");
                }
                out.push(b'\n');
                member_in_yaml("metadata", &text, out);
            }
            Encoding::Protobuf => {
                let token = metadata.continue_token.as_deref().unwrap_or_default();
                let mut list = protobuf::list_metadata(&metadata.version, token, None);
                list.append(out);
                protobuf::list_begin(list.len(), out);
                out.append(&mut list);
                protobuf::list_end(out);
            }
        }
    }

    /// Writes an object with its cluster's annotation and version.
    fn object(&mut self, mark: &ClusterMark, object: &[u8], shape: Representation, out: &mut Vec<u8>) -> Option<()> {
        let (items, version) = (self.wish.items, &mut self.version);
        self.marked.clear();
        mark_object(
            object,
            mark.annotation(self.wish.form.annotations),
            |own| {
                match own {
                    NativeVersion::Number(own) => mark.item_version(items, own, version),
                    NativeVersion::Opaque(own) => *version = mark.opaque_version(&own),
                }
                &*version
            },
            &mut self.marked,
        )
        .ok()?;
        match shape {
            Representation::PartialMetadata(version) => partial(&self.marked, version, out),
            Representation::Object | Representation::Table(_) => out.extend_from_slice(&self.marked),
        }
        Some(())
    }

    /// Writes a row that the member printed: its cells in the merged columns, the cluster's cell after the first, and
    /// the annotated object.
    fn member_row(
        &mut self,
        mark: &ClusterMark,
        row: &[u8],
        places: &[Option<usize>],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        json::validate(row).ok()?;
        let cells: Vec<&RawValue> = serde_json::from_slice(&row[json::find(row, 0, &["cells"])?]).ok()?;
        out.extend_from_slice(b"{\"cells\":");
        self.cells(mark, &cells, places, out);
        // Only these fields of a row are copied. A key with escapes could be a second `object` for the client, without
        // the cluster's annotation.
        for member in json::members(row, 0) {
            let value = &row[member.value.clone()];
            match member.key {
                b"object" if value.starts_with(b"{") => {
                    out.extend_from_slice(b",\"object\":");
                    self.object(mark, value, Representation::Object, out)?;
                }
                b"conditions" => {
                    out.extend_from_slice(b",\"conditions\":");
                    out.extend_from_slice(value);
                }
                b"object" => out.extend_from_slice(b",\"object\":null"),
                _ => {}
            }
        }
        out.push(b'}');
        Some(())
    }

    /// Writes the row of an object whose member returns no Table.
    fn printed_row(
        &mut self,
        mark: &ClusterMark,
        object: &[u8],
        version: MetaVersion,
        places: &[Option<usize>],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        json::validate(object).ok()?;
        let mut printed = std::mem::take(&mut self.cells);
        printed.clear();
        if self.printer.print(object, self.now, &mut self.row).is_ok() {
            self.row.write_cells(None, &mut printed);
        }
        let name = json::find(object, 0, &["metadata", "name"]).map_or(&b"null"[..], |name| &object[name]);
        let cells = serde_json::from_slice::<Vec<&RawValue>>(&printed);
        let cells = cells.or_else(|_| serde_json::from_slice(name).map(|name| vec![name]));
        out.extend_from_slice(b"{\"cells\":");
        self.cells(mark, &cells.unwrap_or_default(), places, out);
        out.extend_from_slice(b",\"object\":");
        let written = match self.wish.include {
            IncludeObject::None => {
                out.extend_from_slice(b"null");
                Some(())
            }
            IncludeObject::Metadata => self.object(mark, object, Representation::PartialMetadata(version), out),
            IncludeObject::Object => self.object(mark, object, Representation::Object, out),
        };
        out.push(b'}');
        self.cells = printed;
        written
    }

    fn cells(&self, mark: &ClusterMark, cells: &[&RawValue], places: &[Option<usize>], out: &mut Vec<u8>) {
        let mut placed = vec!["null"; self.columns.0.len()];
        for (place, cell) in places.iter().zip(cells) {
            if let Some(place) = place {
                placed[*place] = cell.get();
            }
        }
        let cluster = format!("\"{}\"", mark.name);
        placed.insert(1.min(placed.len()), &cluster);
        out.push(b'[');
        out.extend_from_slice(placed.join(",").as_bytes());
        out.push(b']');
    }

    fn shown_columns(&self) -> Vec<Value> {
        let mut columns = self.columns.0.clone();
        let mut text = Vec::new();
        Column::cluster(columns.iter().filter_map(|column| column["name"].as_str())).write(&mut text);
        columns.insert(1.min(columns.len()), serde_json::from_slice(&text).unwrap_or_default());
        columns
    }
}

/// Converts a field of the list from JSON to YAML, and appends the lines.
fn member_in_yaml(name: &str, value: &str, out: &mut Vec<u8>) {
    for line in yaml::of_json(format!("{{\"{name}\":{value}}}").as_bytes()).unwrap_or_default().lines() {
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
}

fn partial(object: &[u8], version: MetaVersion, out: &mut Vec<u8>) {
    let head = format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"{}","metadata":"#, version.api_version());
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(json::find(object, 0, &["metadata"]).map_or(&b"{}"[..], |metadata| &object[metadata]));
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{ClusterName, GroupVersionResource};

    use super::*;

    #[test]
    fn table_row_contains_no_forged_cluster_annotation() {
        let name = ClusterName::new("own").unwrap();
        let served = ServedResource {
            resource: GroupVersionResource::new("", "v1", "configmaps"),
            description: serde_json::from_str(r#"{"resource": "configmaps", "scope": "Namespaced"}"#).unwrap(),
            clusters: [name.clone()].into(),
            cacheable: [name.clone()].into(),
            not_merged: Vec::new(),
        };
        let table = AnswerForm { shape: Representation::Table(MetaVersion::V1), ..AnswerForm::JSON };
        let wish = ListForm { form: table, include: IncludeObject::default(), items: ItemResourceVersions::default() };
        let mut writer = LiveListWriter::new(wish, &served, UnitedColumns::default());
        let mark = ClusterMark::new(&name, None);
        let victim = r#"{"metadata":{"name":"p","annotations":{"tributary.dev/cluster":"victim"}}}"#;
        let mut row = |members: &str| {
            let mut out = Vec::new();
            let text = format!(r#"{{"cells":["p"],{members}}}"#);
            writer.item(&mark, Item::Row(text.as_bytes()), &[Some(0)], &mut out);
            String::from_utf8(out).unwrap()
        };
        for members in [
            format!(r#""object":{victim}"#),
            format!(r#""obj\u0065ct":{victim},"Object":{victim}"#),
            format!(r#""object":[{victim}],"other":{victim}"#),
            format!(r#""object":{victim},"object":{victim}"#),
        ] {
            let written = row(&members);
            assert!(written.contains("\"p\"") && !written.contains("victim"), "{members}: {written}");
        }
        assert!(row(r#""conditions":[{"type":"Completed"}]"#).contains("Completed"));
    }

    fn columns(count: usize) -> Vec<u8> {
        let columns: Vec<_> = (0..count).map(|number| serde_json::json!({ "name": number.to_string() })).collect();
        serde_json::to_vec(&columns).unwrap()
    }

    #[test]
    fn columns_of_members_are_limited() {
        let printer = Printer::default_columns();
        let mut all = UnitedColumns::default();
        all.add(Some(&columns(1_000)), &printer);
        assert_eq!(all.0.len(), COLUMNS_OF_MEMBER_MAX);
        assert_eq!(all.places(Some(&columns(1_000)), &printer).len(), COLUMNS_OF_MEMBER_MAX);
        all.add(Some(&columns(100_000)), &printer);
        assert_eq!(all.0.len(), COLUMNS_OF_MEMBER_MAX, "columns that are too long are not read");
        for member in 0..4 {
            let others: Vec<_> =
                (0..50).map(|number| serde_json::json!({ "name": format!("{member}-{number}") })).collect();
            all.add(Some(&serde_json::to_vec(&others).unwrap()), &printer);
        }
        assert_eq!(all.0.len(), COLUMNS_MAX);
    }
}
