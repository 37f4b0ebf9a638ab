//! `kubectl tributary which`: formats the clusters that have an object. Without I/O.

use serde_json::{Value, json};

use super::found::ClusterObject;
use crate::cli::WhichOutput;

/// Formats the found objects as a table, names or JSON.
pub(super) fn render(found: &[ClusterObject], output: WhichOutput) -> String {
    match output {
        WhichOutput::Name => found.iter().map(|found| format!("{}\n", found.cluster)).collect(),
        WhichOutput::Json => format!("{:#}\n", Value::from_iter(found.iter().map(entry))),
        WhichOutput::Table => table(found),
    }
}

fn entry(found: &ClusterObject) -> Value {
    let metadata = &found.object["metadata"];
    let field = |name: &str| metadata.get(name).cloned().unwrap_or_default();
    json!({ "cluster": found.cluster, "namespace": field("namespace"), "name": field("name"), "uid": field("uid") })
}

fn table(found: &[ClusterObject]) -> String {
    let mut rows = vec![["CLUSTER", "NAMESPACE", "NAME", "CREATED"].map(str::to_owned)];
    rows.extend(found.iter().map(|found| {
        let field = |name: &str| found.object["metadata"][name].as_str().unwrap_or("-").to_owned();
        [found.cluster.clone(), field("namespace"), field("name"), field("creationTimestamp")]
    }));
    let has_namespace = found.iter().any(|found| found.object["metadata"]["namespace"].is_string());
    let columns: Vec<usize> = (0..4).filter(|column| has_namespace || *column != 1).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = columns.iter().map(|column| width(*column)).collect();
    let line = |row: &[String; 4]| {
        let cells = columns.iter().zip(&widths).map(|(column, width)| format!("{:width$}", row[*column]));
        format!("{}\n", cells.collect::<Vec<_>>().join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_output_is_a_table_names_or_json() {
        let object = |namespace: Option<&str>| json!({ "metadata": { "name": "web", "namespace": namespace, "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" } });
        let found = |namespace| {
            ["eu", "america"].map(|cluster| ClusterObject { cluster: cluster.to_owned(), object: object(namespace) })
        };
        assert_eq!(
            render(&found(Some("shop")), WhichOutput::Table),
            "CLUSTER   NAMESPACE   NAME   CREATED\n\
             eu        shop        web    2026-01-01T00:00:00Z\n\
             america   shop        web    2026-01-01T00:00:00Z\n"
        );
        assert!(render(&found(None), WhichOutput::Table).starts_with("CLUSTER   NAME   CREATED\neu        web"));
        assert_eq!(render(&found(None), WhichOutput::Name), "eu\namerica\n");
        let json: Value = serde_json::from_str(&render(&found(Some("shop")), WhichOutput::Json)).unwrap();
        assert_eq!(json[1], json!({ "cluster": "america", "namespace": "shop", "name": "web", "uid": "u" }));
    }
}
