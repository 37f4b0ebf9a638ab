//! The text of a label selector, as in the parameter `labelSelector`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Joins a requirement of the list itself with the selector of the source. The result is not percent-encoded.
pub(crate) fn format_label_selector(own: &str, selector: Option<&LabelSelector>) -> String {
    let labels = selector.and_then(|selector| selector.match_labels.as_ref()).into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.and_then(|selector| selector.match_expressions.as_ref()).into_iter().flatten();
    let expressions = expressions.map(|requirement| {
        let (key, values) = (&requirement.key, requirement.values.as_deref().unwrap_or_default().join(","));
        match &*requirement.operator {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            // The only other operator that the schema allows is Exists.
            _ => key.clone(),
        }
    });
    let own = Some(own.to_owned()).filter(|own| !own.is_empty());
    own.into_iter().chain(labels).chain(expressions).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selector_has_the_form_of_the_query_parameter() {
        let selector = serde_json::from_value(json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["1", "2"]}, {"key": "d", "operator": "NotIn", "values": ["3"]},
            {"key": "e", "operator": "Exists"}, {"key": "f", "operator": "DoesNotExist"},
        ]}));
        let selector: LabelSelector = selector.unwrap();
        assert_eq!(format_label_selector("own", Some(&selector)), "own,a=b,c in (1,2),d notin (3),e,!f");
        assert_eq!(format_label_selector("", None), "");
    }
}
