//! Printers of the group admissionregistration.k8s.io.

use std::fmt::Write;

use jiff::Timestamp;
use serde::de::IgnoredAny;

use super::decode;
use super::metadata::Metadata;
use crate::Row;
use crate::selector::StructuredLabelSelector;
use crate::value::{JoinedTexts, ListValue, TextValue, parts};

parts! {
    struct WebhookConfiguration<'a> {
        metadata: Metadata<'a>,
        webhooks: ListValue<IgnoredAny>,
    }

    struct AdmissionPolicy<'a> {
        metadata: Metadata<'a>,
        spec: PolicySpec<'a>,
    }

    struct PolicySpec<'a> {
        param_kind: Option<ParamKind<'a>>,
        validations: ListValue<IgnoredAny>,
        mutations: ListValue<IgnoredAny>,
    }

    struct ParamKind<'a> {
        api_version: TextValue<'a>,
        kind: TextValue<'a>,
    }

    struct PolicyBinding<'a> {
        metadata: Metadata<'a>,
        spec: PolicyBindingSpec<'a>,
    }

    struct PolicyBindingSpec<'a> {
        policy_name: TextValue<'a>,
        param_ref: Option<ParamReference<'a>>,
    }

    struct ParamReference<'a> {
        name: TextValue<'a>,
        namespace: TextValue<'a>,
        selector: Option<StructuredLabelSelector<'a>>,
    }
}

pub(super) fn webhook_configuration(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let configuration: WebhookConfiguration<'_> = decode(object)?;
    row.text(&configuration.metadata.name);
    row.number(i64::try_from(configuration.webhooks.len()).unwrap_or(i64::MAX));
    row.format(format_args!("{}", configuration.metadata.creation_timestamp.since(now)));
    Ok(())
}

/// Prints a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy, which has either `validations` or `mutations`.
pub(super) fn policy(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let policy: AdmissionPolicy<'_> = decode(object)?;
    let rules = policy.spec.validations.len() + policy.spec.mutations.len();
    row.text(&policy.metadata.name);
    row.number(i64::try_from(rules).unwrap_or(i64::MAX));
    match &policy.spec.param_kind {
        Some(kind) => row.format(format_args!("{}/{}", kind.api_version, kind.kind)),
        None => row.text("<unset>"),
    }
    row.format(format_args!("{}", policy.metadata.creation_timestamp.since(now)));
    Ok(())
}

/// Prints a ValidatingAdmissionPolicyBinding or a MutatingAdmissionPolicyBinding.
pub(super) fn policy_binding(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let binding: PolicyBinding<'_> = decode(object)?;
    row.text(&binding.metadata.name);
    row.text(&binding.spec.policy_name);
    match &binding.spec.param_ref {
        Some(param) if !param.name.is_empty() => {
            let namespace = if param.namespace.is_empty() { "*" } else { &param.namespace };
            row.format(format_args!("{namespace}/{}", param.name));
        }
        Some(ParamReference { selector: Some(selector), .. }) => row.text(&go_text(selector)),
        _ => row.text("<unset>"),
    }
    row.format(format_args!("{}", binding.metadata.creation_timestamp.since(now)));
    Ok(())
}

/// Formats the selector like the `String` method that Go generates, which kube-apiserver uses for this cell.
fn go_text(selector: &StructuredLabelSelector<'_>) -> String {
    let mut text = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    for (key, value) in selector.match_labels.iter() {
        // Writing to memory cannot fail.
        let _ = write!(text, "{key}: {value},");
    }
    text.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for requirement in &*selector.match_expressions {
        let values = JoinedTexts(" ", requirement.values.iter());
        let (key, operator) = (&requirement.key, &requirement.operator);
        let _ = write!(text, "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},");
    }
    text.push_str("},}");
    text
}
