//! The printer of RoleBindings and ClusterRoleBindings.

use jiff::Timestamp;

use super::decode;
use super::metadata::{KindAndName, Metadata};
use crate::Row;
use crate::value::{JoinedTexts, ListValue, TextValue, parts};

parts! {
    struct Binding<'a> {
        metadata: Metadata<'a>,
        role_ref: KindAndName<'a>,
        subjects: ListValue<Subject<'a>>,
    }

    struct Subject<'a> {
        kind: TextValue<'a>,
        namespace: TextValue<'a>,
        name: TextValue<'a>,
    }
}

pub(super) fn binding(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let binding: Binding<'_> = decode(object)?;
    row.text(&binding.metadata.name);
    row.format(format_args!("{}/{}", binding.role_ref.kind, binding.role_ref.name));
    row.format(format_args!("{}", binding.metadata.creation_timestamp.since(now)));
    for kind in ["User", "Group"] {
        let names = binding.subjects.iter().filter(|subject| &*subject.kind == kind).map(|subject| &subject.name);
        row.format(format_args!("{}", JoinedTexts(", ", names)));
    }
    let accounts: Vec<String> = binding
        .subjects
        .iter()
        .filter(|subject| &*subject.kind == "ServiceAccount")
        .map(|subject| format!("{}/{}", subject.namespace, subject.name))
        .collect();
    row.format(format_args!("{}", JoinedTexts(", ", &accounts)));
    Ok(())
}
