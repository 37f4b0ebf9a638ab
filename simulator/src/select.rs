//! Selects the objects of a list or watch.

use std::sync::Arc;

use tributary_apimachinery::{FieldSelector, LabelSelector, Object, Query, SelectableField, Status};

use crate::path::ResourcePath;

pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    /// The only name that can match; `None` for any name.
    pub(crate) name: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
    selectable_fields: Arc<[SelectableField]>,
}

impl Selection {
    pub(crate) fn parse(
        target: &ResourcePath,
        query: &Query<'_>,
        selectable_fields: &Arc<[SelectableField]>,
    ) -> Result<Self, Status> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())
            .map_err(|error| Status::bad_request(format!("unable to parse requirement: {error}")))?;
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())
            .map_err(|error| Status::bad_request(error.to_string()))?;
        for requirement in fields.requirements() {
            let field = requirement.field.as_str();
            if !matches!(field, "metadata.name" | "metadata.namespace")
                && !selectable_fields.iter().any(|k| &*k.name == field)
            {
                return Err(Status::bad_request(format!(
                    "Unable to find {field:?} that matches the field selector: field label not supported: {field}"
                )));
            }
        }
        let name = target.name.clone().or_else(|| fields.requires_exact_match("metadata.name").map(str::to_owned));
        let namespace =
            target.namespace.clone().or_else(|| fields.requires_exact_match("metadata.namespace").map(str::to_owned));
        Ok(Self { namespace, name, labels, fields, selectable_fields: selectable_fields.clone() })
    }

    /// Returns whether a label or field selector restricts the response. A list with a selector has no
    /// remainingItemCount.
    pub(crate) fn has_selectors(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == object.namespace())
            && self.name.as_deref().is_none_or(|name| name == object.name())
            && self.labels.matches(object)
            && self.fields.matches(|field| match field {
                "metadata.name" => object.name(),
                "metadata.namespace" => object.namespace(),
                _ => match self.selectable_fields.iter().position(|selectable| &*selectable.name == field) {
                    Some(index) => object.field(index).unwrap_or(&self.selectable_fields[index].default),
                    None => "",
                },
            })
    }
}
