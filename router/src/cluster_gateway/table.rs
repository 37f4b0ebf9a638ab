//! Tables with the columns of cluster-gateway.

use serde_json::{Value, json};
use tributary_answers::negotiate::IncludeObject;

use super::gateway_kind::GatewayKind;

pub(super) struct Table {
    columns: &'static [Column],
    rows: Vec<Value>,
}

/// A column of a Table: name, type, format, priority, and the value of a cell.
struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    /// Columns above 0 are shown only with `-o wide`.
    priority: u8,
    cell: fn(&Value) -> Value,
}

const NAME: Column = text_column("Name", "name", |object| object["metadata"]["name"].clone());

const GATEWAY_COLUMNS: [Column; 5] = [
    NAME,
    text_column("Provider", "", |object| text(&object["spec"]["provider"])),
    text_column("Credential-Type", "", |object| text(&object["spec"]["access"]["credential"]["type"])),
    text_column("Endpoint-Type", "", |object| text(&object["spec"]["access"]["endpoint"]["type"])),
    Column {
        kind: "boolean",
        ..text_column("Healthy", "", |object| json!(object["status"]["healthy"].as_bool().unwrap_or_default()))
    },
];

const VIRTUAL_CLUSTER_COLUMNS: [Column; 7] = [
    NAME,
    text_column("Alias", "", |object| text(&object["spec"]["alias"])),
    text_column("Credential_Type", "", |object| text(&object["spec"]["credential-type"])),
    text_column("Endpoint", "", |object| text(&object["spec"]["endpoint"])),
    Column {
        kind: "boolean",
        ..text_column("Accepted", "", |object| json!(object["spec"]["accepted"].as_bool().unwrap_or_default()))
    },
    text_column("Labels", "", joined_labels),
    Column {
        kind: "dateTime",
        priority: 10,
        ..text_column("Creation_Timestamp", "", |object| object["metadata"]["creationTimestamp"].clone())
    },
];

const fn text_column(name: &'static str, format: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column { name, kind: "string", format, priority: 0, cell }
}

fn text(value: &Value) -> Value {
    json!(value.as_str().unwrap_or_default())
}

fn joined_labels(object: &Value) -> Value {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let labels: Vec<_> = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    json!(labels.join(","))
}

impl Table {
    pub(super) fn new(kind: GatewayKind, objects: impl IntoIterator<Item = Value>, include: IncludeObject) -> Self {
        let columns: &'static [Column] = match kind {
            GatewayKind::ClusterGateway => &GATEWAY_COLUMNS,
            GatewayKind::VirtualCluster => &VIRTUAL_CLUSTER_COLUMNS,
        };
        let row = |object: Value| {
            let cells: Vec<_> = columns.iter().map(|column| (column.cell)(&object)).collect();
            let object = match include {
                IncludeObject::None => Value::Null,
                IncludeObject::Metadata => json!({
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": object["metadata"],
                }),
                IncludeObject::Object => object,
            };
            json!({"cells": cells, "object": object})
        };
        Self { columns, rows: objects.into_iter().map(row).collect() }
    }

    pub(super) fn into_json(self) -> Value {
        let define = |column: &Column| {
            json!({"name": column.name, "type": column.kind, "format": column.format, "description": "",
                "priority": column.priority})
        };
        let columns: Vec<_> = self.columns.iter().map(define).collect();
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": columns,
            "rows": self.rows})
    }
}

#[cfg(test)]
mod tests {
    use super::super::gateway::tests::member;
    use super::super::gateway::{Health, gateway_object};
    use super::super::virtual_cluster::virtual_clusters;
    use super::*;

    fn names_and_cells(table: &Value) -> (Vec<&str>, Vec<&Value>) {
        let columns = table["columnDefinitions"].as_array().unwrap();
        let names = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
        (names, table["rows"].as_array().unwrap().iter().map(|row| &row["cells"]).collect())
    }

    #[test]
    fn tables_have_the_columns_of_cluster_gateway() {
        let member = member("eu", "2026-01-01T00:00:00Z", &[("team", "a")]);
        let gateway = gateway_object(&member, &Health::Healthy);
        let table = Table::new(GatewayKind::ClusterGateway, [gateway], IncludeObject::Metadata).into_json();
        let (names, cells) = names_and_cells(&table);
        assert_eq!(names, ["Name", "Provider", "Credential-Type", "Endpoint-Type", "Healthy"]);
        assert_eq!(cells, [&json!(["eu", "", "X509Certificate", "Const", true])]);
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");

        let objects = virtual_clusters([&member]);
        let table = Table::new(GatewayKind::VirtualCluster, objects, IncludeObject::None).into_json();
        let (names, cells) = names_and_cells(&table);
        let expected = ["Name", "Alias", "Credential_Type", "Endpoint", "Accepted", "Labels", "Creation_Timestamp"];
        assert_eq!(names, expected);
        let of_local = json!(["local", "", "Internal", "-", true, "cluster.core.oam.dev/control-plane=true", null]);
        let of_eu = json!([
            "eu",
            "Europe",
            "X509Certificate",
            "https://192.0.2.1:6443",
            true,
            "cluster.core.oam.dev/control-plane=false,team=a",
            "2026-01-01T00:00:00Z"
        ]);
        assert_eq!(cells, [&of_local, &of_eu]);
        assert_eq!(table["rows"][0]["object"], Value::Null);
    }
}
