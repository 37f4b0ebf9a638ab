//! The columns of a Table (`meta.k8s.io/v1`).

use std::borrow::Cow;

use crate::row::write_json_string;

/// The description of `metadata.name` in the Kubernetes API.
pub(crate) const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// The description of `metadata.creationTimestamp` in the Kubernetes API.
pub(crate) const CREATION_TIMESTAMP_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// A column of a Table: a `metav1.TableColumnDefinition`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The heading in kube-apiserver's spelling; kubectl shows it in upper case.
    pub name: Cow<'static, str>,
    /// The type of the cells: `string`, `integer`, `number`, `boolean` or `date`.
    pub r#type: Cow<'static, str>,
    /// A refinement of the type; empty for most columns. `name` marks the column with the object's name.
    pub format: Cow<'static, str>,
    /// A description of the column's content.
    pub description: Cow<'static, str>,
    /// The priority for kubectl: 0 for columns that are always shown, greater for columns of `-o wide`.
    pub priority: i32,
}

/// The possible headings of the column that the merged view adds, in order of preference. A custom resource may have a
/// column with any of these headings: kinds of Cluster API have a column `Cluster`.
const CLUSTER_HEADINGS: [&str; 3] = ["Cluster", "Member", "Member-Cluster"];

impl Column {
    /// Returns the column that shows the cluster of each row's object. This column is the second in the merged view.
    /// Its heading differs from the headings in `others`, compared in upper case as kubectl shows them.
    pub fn cluster<'a>(others: impl Iterator<Item = &'a str> + Clone) -> Self {
        let is_taken = |heading: &str| others.clone().any(|other| other.eq_ignore_ascii_case(heading));
        let [.., last] = CLUSTER_HEADINGS;
        let heading = CLUSTER_HEADINGS.into_iter().find(|heading| !is_taken(heading)).unwrap_or(last);
        Self::new(heading, "string", 0, "The cluster that the object lives in.")
    }

    /// Creates a column without a format.
    pub(crate) const fn new(
        name: &'static str,
        r#type: &'static str,
        priority: i32,
        description: &'static str,
    ) -> Self {
        Self {
            name: Cow::Borrowed(name),
            r#type: Cow::Borrowed(r#type),
            format: Cow::Borrowed(""),
            description: Cow::Borrowed(description),
            priority,
        }
    }

    /// Creates the column `Name`, the first of most Tables.
    pub(crate) const fn name() -> Self {
        Self::named("Name", 0, NAME_DESCRIPTION)
    }

    /// Creates a string column whose format is `name`.
    pub(crate) const fn named(name: &'static str, priority: i32, description: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            r#type: Cow::Borrowed("string"),
            format: Cow::Borrowed("name"),
            description: Cow::Borrowed(description),
            priority,
        }
    }

    /// Creates the column `Age` of most Tables.
    pub(crate) const fn age() -> Self {
        Self::new("Age", "string", 0, CREATION_TIMESTAMP_DESCRIPTION)
    }

    /// Appends the column as a JSON object, with the fields in kube-apiserver's order.
    pub fn write(&self, out: &mut Vec<u8>) {
        for (key, value) in [
            (&b"{\"name\":"[..], &self.name),
            (b",\"type\":", &self.r#type),
            (b",\"format\":", &self.format),
            (b",\"description\":", &self.description),
        ] {
            out.extend_from_slice(key);
            write_json_string(value, out);
        }
        out.extend_from_slice(format!(",\"priority\":{}}}", self.priority).as_bytes());
    }
}

/// Appends a Table's `columnDefinitions` as a JSON array. With `cluster`, [`Column::cluster`] is the second column.
pub fn write_columns(columns: &[Column], cluster: bool, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        column.write(out);
        if index == 0 && cluster {
            out.push(b',');
            Column::cluster(columns.iter().map(|column| &*column.name)).write(out);
        }
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_column_is_the_second_column_of_a_table() {
        let mut out = Vec::new();
        write_columns(&[Column::name(), Column::age()], true, &mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let names: Vec<_> = value.as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["Name", "Cluster", "Age"]);
        assert_eq!(value[0]["format"], "name");
        assert_eq!(value[2]["priority"], 0);
        assert!(value[2]["description"].as_str().unwrap().contains("\n\n"));
    }

    #[test]
    fn cluster_heading_differs_from_other_headings() {
        for (others, expected) in [
            (&["Name", "Age"][..], "Cluster"),
            (&["Name", "Cluster", "Age"], "Member"),
            (&["Name", "CLUSTER"], "Member"),
            (&["Name", "ClusterName"], "Cluster"),
            (&["Name", "member"], "Cluster"),
            (&["Name", "cluster", "Member"], "Member-Cluster"),
        ] {
            assert_eq!(Column::cluster(others.iter().copied()).name, expected, "{others:?}");
        }
    }
}
