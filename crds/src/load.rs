//! Configuration objects from YAML files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::configuration::object_text;
use crate::render::definitions;
use crate::schema::{self, Violation};
use crate::{API_VERSION, ConfigurationObjects, Origin, UpstreamCluster};

/// An error of a file or a document. Values of fields that can be secrets are omitted.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The path, or a file in the directory, cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A document is not valid YAML.
    #[error("{origin}: the document is not valid YAML")]
    Yaml {
        /// The position of the document.
        origin: Origin,
        /// The parser's error, with line and column in the file.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// The `apiVersion` and `kind` of a document are not the names of a configuration object.
    #[error(
        "{origin}: apiVersion {api_version:?} with kind {kind:?} is not supported; allowed are UpstreamCluster, ResourceRegistry, MergedEndpoint and ClusterSource of {API_VERSION}{}",
        if kind == "DeniedUsers" { "; give DeniedUsers by --denied-users-file" } else { "" }
    )]
    Kind {
        /// The position of the document.
        origin: Origin,
        /// The `apiVersion`; empty if it is missing.
        api_version: String,
        /// The `kind`; empty if it is missing.
        kind: String,
    },
    /// A field is unknown, is missing or has the wrong type.
    #[error("{origin}: {object}: {field}: {message}")]
    Field {
        /// The position of the document.
        origin: Origin,
        /// The kind and name of the object.
        object: String,
        /// The path of the field: `spec.endpoints[1]`.
        field: String,
        /// The problem, and the allowed values.
        message: String,
    },
    /// A document fits the schema but cannot be decoded.
    #[error("{origin}: {object} cannot be decoded")]
    Decode {
        /// The position of the document.
        origin: Origin,
        /// The kind and name of the object.
        object: String,
        /// The error of the JSON decoder.
        #[source]
        source: serde_json::Error,
    },
}

/// All errors of a load, in the order of files and documents.
#[derive(Debug)]
pub struct LoadErrors(pub Vec<LoadError>);

impl std::error::Error for LoadErrors {}

impl fmt::Display for LoadErrors {
    /// Writes a line for each error, with its causes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
        }
        Ok(())
    }
}

/// Reads configuration objects from a file, or from all `.yaml`, `.yml` and `.json` files of a directory in the order
/// of their names. Hidden files and subdirectories are ignored.
///
/// Blocks on the file system. [`ConfigurationObjects::validate`] checks the loaded objects further.
///
/// # Errors
/// All errors, not only the first.
pub fn load(path: &Path) -> Result<ConfigurationObjects, LoadErrors> {
    let mut errors = Vec::new();
    let mut configuration = ConfigurationObjects::default();
    for file in files(path, &mut errors) {
        match std::fs::read_to_string(&file) {
            Ok(text) => read_documents(&text, &file, &mut configuration, &mut errors),
            Err(source) => errors.push(LoadError::Read { path: file, source }),
        }
    }
    if errors.is_empty() { Ok(configuration) } else { Err(LoadErrors(errors)) }
}

/// Reads configuration objects from a text. Errors contain the path `file`.
///
/// # Errors
/// All errors, not only the first.
pub fn parse(text: &str, file: &Path) -> Result<ConfigurationObjects, LoadErrors> {
    let mut errors = Vec::new();
    let mut configuration = ConfigurationObjects::default();
    read_documents(text, file, &mut configuration, &mut errors);
    if errors.is_empty() { Ok(configuration) } else { Err(LoadErrors(errors)) }
}

/// Reads all documents of a file or directory, of any kind, in the order of [`load`]. Unreadable files and documents
/// are skipped.
pub fn read_all_documents(path: &Path) -> Vec<(Origin, Value)> {
    let mut found = Vec::new();
    for file in files(path, &mut Vec::new()) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        found.extend(documents(&text, &file).filter_map(|(origin, document)| Some((origin, document.ok()?))));
    }
    found
}

fn files(path: &Path, errors: &mut Vec<LoadError>) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let mut files = Vec::new();
    match std::fs::read_dir(path) {
        Err(source) => errors.push(LoadError::Read { path: path.to_owned(), source }),
        Ok(entries) => {
            for entry in entries {
                match entry {
                    Ok(entry) => files.extend(Some(entry.path()).filter(|path| is_configuration(path))),
                    Err(source) => errors.push(LoadError::Read { path: path.to_owned(), source }),
                }
            }
        }
    }
    files.sort();
    files
}

fn is_configuration(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json")) && path.is_file()
}

fn read_documents(text: &str, file: &Path, configuration: &mut ConfigurationObjects, errors: &mut Vec<LoadError>) {
    for (origin, document) in documents(text, file) {
        let read =
            document.map_err(|error| vec![error]).and_then(|document| add_document(document, &origin, configuration));
        if let Err(mut found) = read {
            errors.append(&mut found);
        }
    }
}

/// Splits a YAML text into documents of any kind, each with its position. Errors contain the path `file`.
pub fn documents(text: &str, file: &Path) -> impl Iterator<Item = (Origin, Result<Value, LoadError>)> {
    let documents = split(text).into_iter().filter(|(_, document)| !is_blank(document));
    documents.enumerate().map(|(number, (line, document))| {
        let origin = Origin { file: file.to_owned(), document: number + 1, line };
        let value = value(document, &origin);
        (origin, value)
    })
}

/// Splits a text into documents, each with its first line number. A line that begins with `---` begins a document, as
/// in kubectl.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut start_line, mut at) = (0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let marker = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.trim_start_matches([' ', '\t']) != rest || rest.trim().is_empty());
        if marker {
            documents.push((start_line, &text[start..at]));
            // The text on the same line after the marker `---` belongs to the new document.
            (start, start_line) = (at + 3, index + 1);
        }
        at += line.len();
    }
    documents.push((start_line, &text[start..]));
    documents
}

fn is_blank(document: &str) -> bool {
    document.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

fn value(text: &str, origin: &Origin) -> Result<Value, LoadError> {
    // The parser gets the document with empty lines before it, so that its line numbers are those of the file.
    let padded = format!("{}{text}", "\n".repeat(origin.line - 1));
    // Errors have no snippet of the document, because the snippet could contain a token.
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(&padded, options)
        .map_err(|source| LoadError::Yaml { origin: origin.clone(), source: Box::new(source) })
}

fn add_document(
    document: Value,
    origin: &Origin,
    configuration: &mut ConfigurationObjects,
) -> Result<(), Vec<LoadError>> {
    let text_of = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text_of("apiVersion"), text_of("kind"));
    let object = object_of(&document, &kind);
    match (&*api_version, &*kind) {
        (API_VERSION, "UpstreamCluster") => {
            let cluster: UpstreamCluster = decode(document, &kind, origin)?;
            if cluster.spec.secret_ref.is_some() {
                let (field, message) = (
                    "spec.secretRef".to_owned(),
                    "names a Secret, which only objects in a hub can do; use spec.credentials in files".to_owned(),
                );
                return Err(vec![LoadError::Field { origin: origin.clone(), object, field, message }]);
            }
            configuration.clusters.push(cluster);
        }
        (API_VERSION, "ResourceRegistry") => configuration.registries.push(decode(document, &kind, origin)?),
        (API_VERSION, "MergedEndpoint") => configuration.merged_endpoints.push(decode(document, &kind, origin)?),
        (API_VERSION, "ClusterSource") => configuration.sources.push(decode(document, &kind, origin)?),
        _ => return Err(vec![LoadError::Kind { origin: origin.clone(), api_version, kind }]),
    }
    configuration.origins.entry(object).or_default().push(origin.clone());
    Ok(())
}

fn object_of(document: &Value, kind: &str) -> String {
    object_text(kind, document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default())
}

/// Checks a document against the schema of its kind, and decodes the document.
fn decode<T: DeserializeOwned>(mut document: Value, kind: &str, origin: &Origin) -> Result<T, Vec<LoadError>> {
    let object = object_of(&document, kind);
    // The `status` is removed. It describes an object in a hub cluster and has no meaning in a file.
    if let Some(document) = document.as_object_mut() {
        document.remove("status");
    }
    let violations = violations(&document, kind);
    if !violations.is_empty() {
        return Err(violations
            .into_iter()
            .map(|Violation { field, message }| LoadError::Field {
                origin: origin.clone(),
                object: object.clone(),
                field,
                message,
            })
            .collect());
    }
    serde_json::from_value(document)
        .map_err(|source| vec![LoadError::Decode { origin: origin.clone(), object, source }])
}

/// Returns the violations of a document against the schema of its kind.
pub(crate) fn violations(document: &Value, kind: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let nothing = Map::new();
    let root = document.as_object().unwrap_or(&nothing);
    // A file that was copied from a hub cluster may have a `status`.
    only(root, "", &["apiVersion", "kind", "metadata", "spec", "status"], &mut violations);
    match root.get("metadata").and_then(Value::as_object) {
        None => violations.push(Violation { field: "metadata.name".to_owned(), message: "is required".to_owned() }),
        Some(metadata) => check_metadata(metadata, &mut violations),
    }
    match (root.get("spec"), spec_schema(kind)) {
        (Some(spec), Some(schema)) => schema::check(spec, schema, "spec", &mut violations),
        _ => violations.push(Violation { field: "spec".to_owned(), message: "is required".to_owned() }),
    }
    violations
}

/// Returns the schema of `spec` of a kind. The schemas are made once, because a hub has thousands of objects.
fn spec_schema(kind: &str) -> Option<&'static JSONSchemaProps> {
    static SCHEMAS: LazyLock<BTreeMap<String, JSONSchemaProps>> = LazyLock::new(|| {
        let schema = |definition: CustomResourceDefinition| {
            let version = definition.spec.versions.into_iter().next()?;
            let schema = version.schema?.open_api_v3_schema?.properties?.remove("spec")?;
            Some((definition.spec.names.kind, schema))
        };
        definitions().into_iter().filter_map(schema).collect()
    });
    SCHEMAS.get(kind)
}

/// Checks name, labels and annotations. Other metadata of a hub cluster is allowed and ignored.
fn check_metadata(metadata: &Map<String, Value>, violations: &mut Vec<Violation>) {
    const ALLOWED: [&str; 11] = [
        "annotations",
        "creationTimestamp",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "labels",
        "managedFields",
        "name",
        "ownerReferences",
        "resourceVersion",
        "uid",
    ];
    only(metadata, "metadata", &ALLOWED, violations);
    if !metadata.get("name").is_some_and(Value::is_string) {
        violations.push(Violation { field: "metadata.name".to_owned(), message: "give a string".to_owned() });
    }
    for map in ["labels", "annotations"] {
        let values = metadata.get(map).filter(|map| !map.is_null());
        let strings = |map: &Map<String, Value>| map.values().all(Value::is_string);
        if values.is_some_and(|values| !values.as_object().is_some_and(strings)) {
            violations.push(Violation {
                field: format!("metadata.{map}"),
                message: "give a map of strings; quote numbers and booleans".to_owned(),
            });
        }
    }
}

fn only(map: &Map<String, Value>, field: &str, allowed: &[&str], violations: &mut Vec<Violation>) {
    for key in map.keys().filter(|key| !allowed.contains(&key.as_str())) {
        let dot = if field.is_empty() { "" } else { "." };
        violations.push(Violation {
            field: format!("{field}{dot}{key}"),
            message: format!("unknown field; allowed are {}", allowed.join(", ")),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# two clusters\n---\napiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata:\n  name: eu\n  labels: {region: europe}\nspec:\n  endpoints: [https://127.0.0.1:6443]\n  caFile: ca.pem\n  index: 1\n  credentials: {tokenFile: token}\n--- # another\n\n---\napiVersion: tributary.dev/v1alpha1\nkind: ResourceRegistry\nmetadata: {name: all}\nspec:\n  resources: ['*']\n  itemResourceVersions: Integer\n";

    fn errors(text: &str) -> String {
        parse(text, Path::new("a.yaml")).unwrap_err().to_string()
    }

    #[test]
    fn configuration_file_may_have_several_documents() {
        let configuration = parse(GOOD, Path::new("a.yaml")).unwrap();
        assert_eq!(configuration.clusters.len(), 1);
        let spec = &configuration.cluster("eu").unwrap().spec;
        assert_eq!(spec.index, Some(1));
        assert_eq!(spec.credentials.as_ref().unwrap().token_file.as_deref(), Some("token"));
        assert_eq!(
            configuration.registries[0].spec.item_resource_versions,
            tributary_apimachinery::ItemResourceVersions::Integer
        );
        assert_eq!(parse("", Path::new("a.yaml")).unwrap(), ConfigurationObjects::default());
    }

    #[test]
    fn configuration_errors_contain_file_document_line_object_and_field() {
        let text = format!(
            "{GOOD}---\napiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {{name: us, label: {{}}}}\nspec: {{endpoint: x}}\nstatu: 1\n"
        );
        let found = errors(&text);
        let lines: Vec<_> = found.lines().collect();
        assert_eq!(lines.len(), 3, "{found}");
        let prefix = "a.yaml: document 3 (line 22): UpstreamCluster \"us\": ";
        assert!(lines.iter().all(|line| line.starts_with(prefix)), "{found}");
        assert!(lines[0].contains("statu: unknown field; allowed are apiVersion"), "{found}");
        assert!(lines[1].contains("metadata.label: unknown field"), "{found}");
        assert!(lines[2].contains("spec.endpoint: unknown field"), "{found}");
    }

    #[test]
    fn configuration_document_of_unknown_kind_or_invalid_yaml_is_refused() {
        assert_eq!(
            errors("apiVersion: v1\nkind: Pod\n"),
            "a.yaml: document 1 (line 1): apiVersion \"v1\" with kind \"Pod\" is not supported; allowed are UpstreamCluster, ResourceRegistry, MergedEndpoint and ClusterSource of tributary.dev/v1alpha1"
        );
        let found = errors(&format!("{GOOD}---\nspec: [secret-token\n"));
        assert!(found.starts_with("a.yaml: document 3 (line 22): the document is not valid YAML: "), "{found}");
        assert!(!found.contains("secret-token"), "{found}");
    }

    #[test]
    fn configuration_files_are_read_in_the_order_of_names() {
        let directory = std::env::temp_dir().join(format!("tributary-crds-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("nested.yaml")).unwrap();
        std::fs::write(directory.join("b.yaml"), GOOD.replace("eu", "us")).unwrap();
        std::fs::write(directory.join("a.yml"), GOOD).unwrap();
        std::fs::write(directory.join(".hidden.yaml"), "kind: [").unwrap();
        std::fs::write(directory.join("notes.txt"), "kind: [").unwrap();
        let configuration = load(&directory);
        std::fs::remove_dir_all(&directory).unwrap();
        let names: Vec<_> =
            configuration.unwrap().clusters.iter().map(|cluster| cluster.metadata.name.clone().unwrap()).collect();
        assert_eq!(names, ["eu", "us"]);
        let missing = load(Path::new("/nonexistent/tributary.yaml")).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/tributary.yaml cannot be read: "), "{missing}");
    }
}
