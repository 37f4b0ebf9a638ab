//! The fields of an audit policy file before validation.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{AuditPolicy, GroupResources, InvalidPolicy, PolicyRule};
use crate::{Level, Stage, Stages};

const API_VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct File {
    #[serde(deserialize_with = "or_null")]
    pub(super) rules: Vec<FileRule>,
    #[serde(deserialize_with = "or_null")]
    pub(super) omit_stages: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    omit_managed_fields: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct FileRule {
    #[serde(deserialize_with = "or_null")]
    pub(super) level: String,
    #[serde(deserialize_with = "or_null")]
    users: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    user_groups: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) resources: Vec<Resources>,
    #[serde(deserialize_with = "or_null")]
    pub(super) namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "or_null")]
    pub(super) non_resource_urls: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct Resources {
    #[serde(deserialize_with = "or_null")]
    pub(super) group: String,
    #[serde(deserialize_with = "or_null")]
    pub(super) resources: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(super) resource_names: Vec<String>,
}

/// As in Go, `null` means the default value.
fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Parses a policy file. Returns a warning for each unknown field.
///
/// # Errors
/// [`InvalidPolicy::Undecodable`].
pub(super) fn read(text: &str) -> Result<(File, Vec<String>), InvalidPolicy> {
    let options = serde_saphyr::options! { with_snippet: false };
    let document: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| InvalidPolicy::Undecodable(error.to_string()))?;
    let says = |key| document.get(key).and_then(Value::as_str).filter(|value| !value.is_empty());
    let kind = says("kind").ok_or_else(|| missing("Kind"))?;
    let version = says("apiVersion").ok_or_else(|| missing("apiVersion"))?;
    if (version, kind) != (API_VERSION, KIND) {
        let problem = format!("no kind {kind:?} is registered for version {version:?}; expected {API_VERSION}, {KIND}");
        return Err(InvalidPolicy::Undecodable(problem));
    }
    let warnings = unknown_fields(&document);
    let file = serde_json::from_value(document).map_err(|error| InvalidPolicy::Undecodable(error.to_string()))?;
    Ok((file, warnings))
}

fn missing(field: &str) -> InvalidPolicy {
    InvalidPolicy::Undecodable(format!("Object '{field}' is missing"))
}

/// Returns a warning for each unknown field, in the wording of apimachinery's strict decoder.
fn unknown_fields(document: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let top = ["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"];
    collect_unknown_fields(document, &top, "", &mut unknown);
    for (at, rule) in items(document.get("rules")).enumerate() {
        let known = [
            "level",
            "users",
            "userGroups",
            "verbs",
            "resources",
            "namespaces",
            "nonResourceURLs",
            "omitStages",
            "omitManagedFields",
        ];
        collect_unknown_fields(rule, &known, &format!("rules[{at}]."), &mut unknown);
        for (inner, resources) in items(rule.get("resources")).enumerate() {
            let place = format!("rules[{at}].resources[{inner}].");
            collect_unknown_fields(resources, &["group", "resources", "resourceNames"], &place, &mut unknown);
        }
    }
    unknown
}

fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

fn collect_unknown_fields(value: &Value, known: &[&str], place: &str, unknown: &mut Vec<String>) {
    let keys = value.as_object().into_iter().flat_map(Map::keys);
    let own = keys.filter(|key| !known.contains(&key.as_str()));
    unknown.extend(own.map(|key| format!("unknown field \"{place}{key}\"")));
}

/// Returns the stages with these names. Each name is the name of a stage, because the validation has rejected all other
/// names.
fn stages(names: &[String]) -> Stages {
    names.iter().filter_map(|name| Stage::parse(name)).collect()
}

impl From<File> for AuditPolicy {
    fn from(file: File) -> Self {
        let (omit_stages, omit_managed_fields) = (stages(&file.omit_stages), file.omit_managed_fields);
        let rule = |rule: FileRule| PolicyRule {
            level: Level::parse(&rule.level).unwrap_or_default(),
            omit_stages: stages(&rule.omit_stages).union(omit_stages),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(omit_managed_fields),
            users: rule.users,
            user_groups: rule.user_groups,
            verbs: rule.verbs,
            resources: rule.resources.into_iter().map(GroupResources::from).collect(),
            namespaces: rule.namespaces,
            non_resource_urls: rule.non_resource_urls,
        };
        Self { rules: file.rules.into_iter().map(rule).collect(), omit_stages, omit_managed_fields }
    }
}

impl From<Resources> for GroupResources {
    fn from(Resources { group, resources, resource_names }: Resources) -> Self {
        Self { group, resources, resource_names }
    }
}
