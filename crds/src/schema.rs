//! Checks a document against the schema of a CustomResourceDefinition.
//!
//! In a hub cluster, kube-apiserver makes this check. For files, this module reports all unknown fields and all values
//! of a wrong type at once, with their paths. The validation checks patterns, minimum lengths and rules, because its
//! messages describe the allowed values.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The path of the field: `spec.endpoints[1]`.
    pub(crate) field: String,
    /// The problem, and the allowed values.
    pub(crate) message: String,
}

/// Checks `value`, which is at the path `field`, and adds its violations to `violations`.
pub(crate) fn check(value: &Value, schema: &JSONSchemaProps, field: &str, violations: &mut Vec<Violation>) {
    if value.is_null() && schema.nullable == Some(true) {
        return;
    }
    let mut wrong = |message: String| violations.push(Violation { field: field.to_owned(), message });
    if let Some(r#type) = schema.type_.as_deref()
        && !has_type(value, r#type)
    {
        // The message omits the value, because a user may have put a token into the wrong field.
        return wrong(format!("{} is not allowed here; give {} {type}", describe(value), article(r#type)));
    }
    if let Some(allowed) = &schema.enum_
        && !allowed.iter().any(|allowed| allowed.0 == *value)
    {
        wrong(not_allowed_message(value, allowed));
    }
    if let Some(number) = value.as_f64() {
        let (least, most) = (schema.minimum.unwrap_or(f64::MIN), schema.maximum.unwrap_or(f64::MAX));
        if number < least || number > most {
            wrong(format!("{value} is out of range; allowed are {least} to {most}"));
        }
    }
    match value {
        Value::Object(map) => check_object(map, schema, field, violations),
        Value::Array(items) => {
            let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
            if count < schema.min_items.unwrap_or(0) {
                wrong("is empty; give at least one entry".to_owned());
            }
            if let Some(most) = schema.max_items.filter(|most| count > *most) {
                wrong(format!("has {count} entries; at most {most} are allowed"));
            }
            if let Some(JSONSchemaPropsOrArray::Schema(item_schema)) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    check(item, item_schema, &format!("{field}[{index}]"), violations);
                }
            }
        }
        Value::String(text) => {
            let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            if let Some(most) = schema.max_length.filter(|most| count > *most) {
                wrong(format!("has {count} characters; at most {most} are allowed"));
            }
        }
        _ => {}
    }
}

fn not_allowed_message(value: &Value, allowed: &[JSON]) -> String {
    let allowed: Vec<_> = allowed.iter().map(|one| &one.0).filter(|one| !one.is_null()).collect();
    let is_meant =
        |one: &&&Value| value.as_str().zip(one.as_str()).is_some_and(|(given, one)| given.eq_ignore_ascii_case(one));
    let meant = allowed.iter().find(is_meant).map(|one| format!("write {one}; ")).unwrap_or_default();
    let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
    format!("{value} is not allowed; {meant}allowed are {}", allowed.join(", "))
}

fn check_object(
    map: &serde_json::Map<String, Value>,
    schema: &JSONSchemaProps,
    field: &str,
    violations: &mut Vec<Violation>,
) {
    for (key, value) in map {
        let path = join(field, key);
        if let Some(known) = schema.properties.as_ref().and_then(|properties| properties.get(key)) {
            check(value, known, &path, violations);
        } else if let Some(JSONSchemaPropsOrBool::Schema(any)) = &schema.additional_properties {
            check(value, any, &path, violations);
        } else if let Some(properties) = &schema.properties {
            let allowed = properties.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            violations.push(Violation { field: path, message: format!("unknown field; allowed are {allowed}") });
        }
    }
    for required in schema.required.iter().flatten().filter(|required| !map.contains_key(*required)) {
        violations.push(Violation { field: join(field, required), message: "is required".to_owned() });
    }
}

fn join(field: &str, key: &str) -> String {
    if field.is_empty() { key.to_owned() } else { format!("{field}.{key}") }
}

fn has_type(value: &Value, r#type: &str) -> bool {
    match r#type {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn article(r#type: &str) -> &'static str {
    if r#type.starts_with(['a', 'i', 'o']) { "an" } else { "a" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(kind: usize, document: &Value) -> Vec<String> {
        let definition = &crate::render::definitions()[kind];
        let schema = definition.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        let spec = &schema.properties.as_ref().unwrap()["spec"];
        let mut violations = Vec::new();
        check(document, spec, "spec", &mut violations);
        violations.iter().map(|one| format!("{}: {}", one.field, one.message)).collect()
    }

    #[test]
    fn schema_check_reports_all_violations_with_their_paths() {
        let found = violations(
            0,
            &serde_json::json!({"endpoint": "x", "endpoints": ["https://a", 1], "index": 10_000, "credentials": {"tokn": "s"},
                "kubeconfig": {"context": "a"}, "insecureSkipVerify": "yes"}),
        );
        let expected = [
            "spec.credentials.tokn: unknown field; allowed are clientCertificateData, clientCertificateFile, clientKeyData, \
             clientKeyFile, token, tokenFile",
            "spec.endpoint: unknown field; allowed are authorization, caData, caFile, circuitBreaker, credentials, dispatch, dispatchPolicies, \
             drainedEndpoints, endpointProbe, endpoints, flowControl, impersonation, index, insecureSkipVerify, kubeconfig, logging, proxyURL, \
             secretRef, secureServing, serverNames, tlsServerName, tokenPassThrough, tokenReview",
            "spec.endpoints[1]: a number is not allowed here; give a string",
            "spec.index: 10000 is out of range; allowed are 0 to 9999",
            "spec.insecureSkipVerify: a string is not allowed here; give a boolean",
            "spec.kubeconfig.path: is required",
        ];
        assert_eq!(found, expected);
        assert_eq!(
            violations(0, &serde_json::json!({"circuitBreaker": {"consecutiveFailures": 0, "openSeconds": 301}})),
            [
                "spec.circuitBreaker.consecutiveFailures: 0 is out of range; allowed are 1 to 1000",
                "spec.circuitBreaker.openSeconds: 301 is out of range; allowed are 1 to 300",
            ]
        );
        let many: Vec<_> = (0..257).map(|number| serde_json::json!({"name": number.to_string()})).collect();
        assert_eq!(
            violations(0, &serde_json::json!({"flowControl": {"flowControlSchemas": many}})),
            ["spec.flowControl.flowControlSchemas: has 257 entries; at most 256 are allowed"]
        );
        let name = "a".repeat(254);
        assert_eq!(
            violations(0, &serde_json::json!({"flowControl": {"flowControlSchemas": [{"name": name, "exempt": {}}]}})),
            ["spec.flowControl.flowControlSchemas[0].name: has 254 characters; at most 253 are allowed"]
        );
        let policy = |length| {
            let rule = serde_json::json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
            serde_json::json!({"rules": [rule], "deny": {"message": "\u{e9}".repeat(length)}})
        };
        assert_eq!(
            violations(0, &serde_json::json!({"dispatchPolicies": [policy(1024), policy(1025)]})),
            ["spec.dispatchPolicies[1].deny.message: has 1025 characters; at most 1024 are allowed"]
        );
        assert_eq!(
            violations(0, &serde_json::json!({"authorization": "Rbac"})),
            [
                "spec.authorization: \"Rbac\" is not allowed; write \"RBAC\"; allowed are \"Auto\", \"RBAC\", \"Review\", \"Live\""
            ]
        );
        let found = violations(1, &serde_json::json!({"resources": [], "partial": "Maybe"}));
        let like = serde_json::json!({"matchExpressions": [{"key": "k", "operator": "Like"}]});
        assert_eq!(
            violations(1, &serde_json::json!({"resources": ["*"], "clusters": {"selector": like}})),
            [
                "spec.clusters.selector.matchExpressions[0].operator: \"Like\" is not allowed; allowed are \"In\", \"NotIn\", \
                 \"Exists\", \"DoesNotExist\""
            ]
        );
        assert_eq!(
            found,
            [
                "spec.partial: \"Maybe\" is not allowed; allowed are \"Deny\", \"Allow\"",
                "spec.resources: is empty; give at least one entry"
            ]
        );
    }

    #[test]
    fn schema_check_accepts_a_valid_document() {
        let selector =
            serde_json::json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "Exists"}]});
        let registry = serde_json::json!({"resources": ["*"], "clusters": {"names": ["a"], "selector": selector},
            "itemResourceVersions": "Integer", "placement": "a"});
        assert_eq!(violations(1, &registry), Vec::<String>::new());
    }
}
