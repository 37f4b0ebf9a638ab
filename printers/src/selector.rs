//! Formats label selectors for Tables, like `k8s.io/apimachinery`'s labels and metav1 helpers.

use std::fmt::Write;

use serde::Deserialize;

use crate::value::{JoinedTexts, Labels, ListValue, TextValue};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StructuredLabelSelector<'a> {
    #[serde(borrow)]
    pub(crate) match_labels: Labels<'a>,
    pub(crate) match_expressions: ListValue<Requirement<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Requirement<'a> {
    #[serde(borrow)]
    pub(crate) key: TextValue<'a>,
    pub(crate) operator: TextValue<'a>,
    pub(crate) values: ListValue<TextValue<'a>>,
}

/// Formats labels as `a=b,c=d`, or `<none>`.
pub(crate) fn format_labels(labels: &Labels<'_>) -> String {
    if labels.len() == 0 {
        return "<none>".to_owned();
    }
    let mut text = String::new();
    for (index, (key, value)) in labels.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        // Writing to memory cannot fail.
        let _ = write!(text, "{comma}{key}={value}");
    }
    text
}

/// Formats a selector as `a=b,c in (d,e),!f`, sorted by key. Returns `None` for an operator that does not exist, or a
/// wrong number of values.
///
/// A missing selector selects nothing, and an empty selector selects everything. In both cases, the text is empty.
pub(crate) fn selector_text(selector: Option<&StructuredLabelSelector<'_>>) -> Option<String> {
    let Some(selector) = selector else {
        return Some(String::new());
    };
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector.match_labels.iter() {
        parts.push((key, format!("{key}={value}")));
    }
    for requirement in &*selector.match_expressions {
        let key = &*requirement.key;
        let mut values: Vec<&str> = requirement.values.iter().map(|value| &**value).collect();
        values.sort_unstable();
        values.dedup();
        let text = match (&*requirement.operator, values.is_empty()) {
            ("In", false) => format!("{key} in ({})", JoinedTexts(",", values)),
            ("NotIn", false) => format!("{key} notin ({})", JoinedTexts(",", values)),
            ("Exists", true) => key.to_owned(),
            ("DoesNotExist", true) => format!("!{key}"),
            _ => return None,
        };
        parts.push((key, text));
    }
    parts.sort_by_key(|(key, _)| *key);
    Some(JoinedTexts(",", parts.iter().map(|(_, text)| text)).to_string())
}

/// Formats a selector like `metav1.FormatLabelSelector`: `<none>` for an empty selector, `<error>` for an invalid one.
pub(crate) fn format_label_selector(selector: Option<&StructuredLabelSelector<'_>>) -> String {
    match selector_text(selector) {
        None => "<error>".to_owned(),
        Some(text) if text.is_empty() => "<none>".to_owned(),
        Some(text) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_are_printed_as_by_kubectl() {
        for (json, expected) in [
            (r"{}", "<none>"),
            (r#"{"matchLabels":{"b":"2","a":"1"}}"#, "a=1,b=2"),
            (
                r#"{"matchLabels":{"m":"1"},"matchExpressions":[{"key":"z","operator":"In","values":["y","x","y"]},{"key":"a","operator":"NotIn","values":["q"]},{"key":"e","operator":"Exists"},{"key":"d","operator":"DoesNotExist","values":null}]}"#,
                "a notin (q),!d,e,m=1,z in (x,y)",
            ),
            (r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#, "<error>"),
            (r#"{"matchExpressions":[{"key":"a","operator":"Like"}]}"#, "<error>"),
        ] {
            let selector: StructuredLabelSelector<'_> = serde_json::from_str(json).unwrap();
            assert_eq!(format_label_selector(Some(&selector)), expected);
        }
        assert_eq!(format_label_selector(None), "<none>");
    }
}
