//! The DeniedUsers file: users whose requests are refused, regardless of the authentication method.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames, JSONSchemaProps,
    JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt as _;
use serde::Deserialize;

use crate::{API_VERSION, GROUP, ResourceRegistry};

const KIND: &str = "DeniedUsers";

/// An error in a DeniedUsers file.
#[derive(Debug, thiserror::Error)]
pub enum DeniedUsersError {
    /// The text is not valid YAML, or its fields are wrong.
    #[error("the file is not a valid {KIND} object: {0}")]
    Fields(#[from] Box<serde_saphyr::Error>),
    /// The file has an object of a different kind.
    #[error(
        "apiVersion {api_version:?} with kind {kind:?} is not supported; the file must have kind {KIND} and apiVersion {API_VERSION}"
    )]
    Kind {
        /// The `apiVersion` of the file.
        api_version: String,
        /// The `kind` of the file.
        kind: String,
    },
    /// An object of the hub has no list of names.
    #[error("deniedUsers is not a list; give a list of names of users")]
    NoList,
    /// The entry of `deniedUsers` at this index is not a name.
    #[error("deniedUsers[{0}] is empty; give the name of a user")]
    Empty(usize),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    denied_users: Vec<String>,
}

/// Returns the names of denied users of an object in a hub.
///
/// # Errors
/// [`DeniedUsersError`]. An object with an error denies no user, so the caller must keep the previous names.
pub fn denied_users_of(document: &serde_json::Value) -> Result<BTreeSet<String>, DeniedUsersError> {
    let names = document.get("deniedUsers").and_then(serde_json::Value::as_array).ok_or(DeniedUsersError::NoList)?;
    let name = |(place, name): (usize, &serde_json::Value)| match name.as_str() {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(DeniedUsersError::Empty(place)),
    };
    names.iter().enumerate().map(name).collect()
}

/// Returns the CustomResourceDefinition of DeniedUsers. Like the file, an object has the top-level field `deniedUsers`
/// and no `spec`.
pub(crate) fn definition() -> CustomResourceDefinition {
    let columns = |name: &str, json_path: &str, kind: &str| CustomResourceColumnDefinition {
        name: name.to_owned(),
        json_path: json_path.to_owned(),
        type_: kind.to_owned(),
        ..CustomResourceColumnDefinition::default()
    };
    let mut definition = ResourceRegistry::crd();
    let spec = &mut definition.spec;
    spec.names = CustomResourceDefinitionNames {
        categories: Some(vec!["tributary".to_owned()]),
        kind: KIND.to_owned(),
        plural: "deniedusers".to_owned(),
        singular: Some("deniedusers".to_owned()),
        ..CustomResourceDefinitionNames::default()
    };
    definition.metadata.name = Some(format!("deniedusers.{GROUP}"));
    for version in &mut spec.versions {
        version.additional_printer_columns = Some(vec![
            columns("Accepted", ".status.conditions[?(@.type=='Accepted')].status", "string"),
            columns("Reason", ".status.conditions[?(@.type=='Accepted')].reason", "string"),
            columns("Age", ".metadata.creationTimestamp", "date"),
        ]);
        let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) else {
            continue;
        };
        schema.description = Some(
            "Users whose requests are refused, regardless of the authentication method. All objects count together."
                .to_owned(),
        );
        schema.required = Some(vec!["deniedUsers".to_owned()]);
        schema.x_kubernetes_validations = None;
        let Some(properties) = &mut schema.properties else { continue };
        properties.remove("spec");
        properties.insert("deniedUsers".to_owned(), names_schema());
    }
    definition
}

/// Returns the schema of `deniedUsers`.
fn names_schema() -> JSONSchemaProps {
    let name = JSONSchemaProps {
        description: Some("The name of a user.".to_owned()),
        type_: Some("string".to_owned()),
        min_length: Some(1),
        ..JSONSchemaProps::default()
    };
    JSONSchemaProps {
        description: Some("Names of users whose requests are refused.".to_owned()),
        type_: Some("array".to_owned()),
        items: Some(JSONSchemaPropsOrArray::Schema(Box::new(name))),
        ..JSONSchemaProps::default()
    }
}

/// Parses the names of denied users from YAML or JSON with `apiVersion`, `kind: DeniedUsers` and `deniedUsers`.
///
/// # Errors
/// [`DeniedUsersError`]. A file with an error denies no user, so the caller must keep the previous file.
pub fn parse(text: &str) -> Result<BTreeSet<String>, DeniedUsersError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let document: Document = serde_saphyr::from_str_with_options(text, options).map_err(Box::new)?;
    let Document { api_version, kind, denied_users } = document;
    if (api_version.as_str(), kind.as_str()) != (API_VERSION, KIND) {
        return Err(DeniedUsersError::Kind { api_version, kind });
    }
    match denied_users.iter().position(String::is_empty) {
        Some(place) => Err(DeniedUsersError::Empty(place)),
        None => Ok(denied_users.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_users_file_with_an_error_is_refused_completely() {
        let of = |rest: &str| parse(&format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\n{rest}"));
        let denied = of("deniedUsers:\n- ann\n- system:serviceaccount:shop:robot\n- ann\n").unwrap();
        assert_eq!(denied.into_iter().collect::<Vec<_>>(), ["ann", "system:serviceaccount:shop:robot"]);
        assert_eq!(of("deniedUsers: []\n").unwrap(), BTreeSet::new());
        for (text, problem) in [
            (String::new(), "is not a valid DeniedUsers object"),
            ("- ann\n".to_owned(), "is not a valid DeniedUsers object"),
            (format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\n"), "missing field"),
            (
                format!("apiVersion: {API_VERSION}\nkind: UpstreamCluster\ndeniedUsers: [a]\n"),
                "kind \"UpstreamCluster\"",
            ),
            ("apiVersion: v1\nkind: DeniedUsers\ndeniedUsers: [a]\n".to_owned(), "apiVersion \"v1\""),
            (
                format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\ndeniedUsers: ann\n"),
                "is not a valid DeniedUsers object",
            ),
            (format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\ndenied: [ann]\ndeniedUsers: []\n"), "denied"),
            (format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\ndeniedUsers: [ann, ''\n]\n"), "deniedUsers[1]"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
