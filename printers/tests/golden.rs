//! Compares printed rows with the rows of a real kube-apiserver 1.36, for the same objects.
//!
//! `testdata/samples` contains the objects as they were created. `testdata/golden` contains the objects in the server's
//! responses, with the time of the response, the columns and the cells.

// The helpers of this test may panic, like tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tributary_apimachinery::GroupVersionResource;
use tributary_printers::column::write_columns;
use tributary_printers::{ColumnDefinition, Printer, Row};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Golden {
    /// The column definitions of resources, by group, version and resource.
    column_definitions: BTreeMap<String, Value>,
    rows: Vec<GoldenRow>,
}

#[derive(Deserialize)]
struct GoldenRow {
    group: String,
    version: String,
    resource: String,
    now: String,
    object: Box<RawValue>,
    cells: Value,
    conditions: Value,
}

impl GoldenRow {
    fn now(&self) -> Timestamp {
        self.now.parse().unwrap()
    }
}

fn goldens() -> Vec<(String, Golden)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden");
    let mut goldens: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let golden = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            (path.file_name().unwrap().to_string_lossy().into_owned(), golden)
        })
        .collect();
    goldens.sort_by(|(left, _), (right, _)| left.cmp(right));
    goldens
}

/// Returns the printers of the custom resources in the samples, from their CustomResourceDefinitions.
fn custom_printers(goldens: &[(String, Golden)]) -> BTreeMap<String, Printer> {
    let definitions = goldens.iter().flat_map(|(_, golden)| &golden.rows);
    definitions
        .filter(|row| row.resource == "customresourcedefinitions")
        .map(|row| {
            let definition: Value = serde_json::from_str(row.object.get()).unwrap();
            let plural = definition["spec"]["names"]["plural"].as_str().unwrap().to_owned();
            let columns = definition["spec"]["versions"][0].get("additionalPrinterColumns").cloned();
            let columns: Vec<ColumnDefinition> =
                columns.map_or(Vec::new(), |list| serde_json::from_value(list).unwrap());
            (plural, Printer::custom(&columns).0)
        })
        .collect()
}

fn printer(row: &GoldenRow, custom: &BTreeMap<String, Printer>) -> Printer {
    if let Some(printer) = custom.get(&row.resource) {
        return printer.clone();
    }
    if row.resource == "scale" {
        return Printer::scale();
    }
    let resource = GroupVersionResource::new(&row.group, &row.version, &row.resource);
    Printer::for_resource(&resource).unwrap_or_else(|| panic!("no printer for {resource}"))
}

fn print(printer: &Printer, row: &GoldenRow) -> (Value, Value) {
    let mut cells = Row::new();
    printer.print(row.object.get().as_bytes(), row.now(), &mut cells).unwrap();
    let mut out = Vec::new();
    cells.write_cells(None, &mut out);
    let conditions = cells.conditions().map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
    (serde_json::from_slice(&out).unwrap(), conditions)
}

#[test]
fn printed_cells_equal_those_of_kube_apiserver() {
    let goldens = goldens();
    let custom = custom_printers(&goldens);
    let (mut rows, mut wrong) = (0, Vec::new());
    for (file, golden) in &goldens {
        for row in &golden.rows {
            rows += 1;
            let (cells, conditions) = print(&printer(row, &custom), row);
            if (&cells, &conditions) != (&row.cells, &row.conditions) {
                wrong.push(format!(
                    "{file}\n  expected {} {}\n  printed  {cells} {conditions}",
                    row.cells, row.conditions
                ));
            }
        }
    }
    assert!(rows > 200, "only {rows} rows");
    assert!(wrong.is_empty(), "{} of {rows} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn table_columns_equal_those_of_kube_apiserver() {
    let goldens = goldens();
    let custom = custom_printers(&goldens);
    let mut kinds = 0;
    for (file, golden) in &goldens {
        for row in &golden.rows {
            let key = [&*row.group, &*row.version, &*row.resource].into_iter().filter(|part| !part.is_empty());
            let expected = &golden.column_definitions[&key.collect::<Vec<_>>().join("/")];
            let mut out = Vec::new();
            write_columns(printer(row, &custom).columns(), false, &mut out);
            assert_eq!(&serde_json::from_slice::<Value>(&out).unwrap(), expected, "{file}");
        }
        kinds += golden.column_definitions.len();
    }
    assert!(kinds > 60, "only {kinds} kinds");
}

#[test]
fn objects_without_a_status_print_a_cell_for_each_column() {
    let goldens = goldens();
    let custom = custom_printers(&goldens);
    for (file, golden) in &goldens {
        for row in &golden.rows {
            let mut object: Value = serde_json::from_str(row.object.get()).unwrap();
            object.as_object_mut().unwrap().remove("status");
            let printer = printer(row, &custom);
            let mut cells = Row::new();
            printer
                .print(object.to_string().as_bytes(), row.now(), &mut cells)
                .unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(cells.len() >= printer.columns().len(), "{file}: {} cells", cells.len());
        }
    }
}

#[test]
fn object_that_cannot_be_decoded_prints_no_cells() {
    /// The test cuts objects at positions with this distance, in bytes. The distance is large enough for a fast test.
    const STEP: usize = 211;
    let goldens = goldens();
    let custom = custom_printers(&goldens);
    for (file, golden) in &goldens {
        for row in &golden.rows {
            let (printer, text) = (printer(row, &custom), row.object.get().as_bytes());
            let mut cells = Row::new();
            for end in (0..text.len()).step_by(STEP) {
                assert!(printer.print(&text[..end], row.now(), &mut cells).is_err(), "{file}: cut at {end}");
                assert!(cells.is_empty() && cells.conditions().is_none(), "{file}: cut at {end}");
            }
            assert!(printer.print(b"\xff", row.now(), &mut cells).is_err());
        }
    }
}
