//! Checks of the CustomResourceDefinitions in `deploy/crds`.

use std::path::Path;

use serde_json::{Value, json};

#[test]
fn committed_custom_resource_definitions_are_up_to_date() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    let manifests = tributary_crds::render::manifests().unwrap();
    assert_eq!(manifests.len(), 5);
    for manifest in manifests {
        let path = directory.join(&manifest.file_name);
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == manifest.yaml,
            "deploy/crds/{} is out of date; run `cargo run -p tributary-crds --example generate` and commit the result",
            manifest.file_name
        );
    }
}

/// Adds the paths of schema fields without a description to `found`.
fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if field["description"].as_str().is_none_or(|words| words.trim().is_empty()) {
            found.push(path.clone());
        }
        undescribed(field, &path, found);
    }
    for inner in
        ["items", "additionalProperties"].map(|inner| &schema[inner]).into_iter().filter(|inner| inner.is_object())
    {
        undescribed(inner, &format!("{path}[]"), found);
    }
}

/// `kubectl explain` shows the descriptions.
#[test]
fn each_crd_has_field_descriptions_and_a_status() {
    for manifest in tributary_crds::render::manifests().unwrap() {
        let definition: Value = serde_saphyr::from_str(&manifest.yaml).unwrap();
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let schema = &version["schema"]["openAPIV3Schema"];
            let mut found = Vec::new();
            undescribed(schema, "", &mut found);
            assert_eq!(found, Vec::<String>::new(), "{}: fields without a description", manifest.file_name);
            assert!(version["subresources"]["status"].is_object(), "{}: no status", manifest.file_name);
            let status = &schema["properties"]["status"]["properties"];
            assert_eq!(status["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]), "{}", manifest.file_name);
            assert!(status["observedGeneration"].is_object(), "{}", manifest.file_name);
        }
    }
}
