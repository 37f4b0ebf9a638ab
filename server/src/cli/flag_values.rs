//! Parsers and help texts of flags whose values also occur in configuration files.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tributary_apimachinery::{ItemResourceVersions, Partial};
use tributary_records::audit::AuditMode;

/// A value of a flag: its text, its help text, and the parsed value.
type FlagValue<T> = (&'static str, &'static str, T);

const ITEM_RESOURCE_VERSIONS: &[FlagValue<ItemResourceVersions>] = &[
    ("Composite", "The composite form, with the component of the object's cluster", ItemResourceVersions::Composite),
    ("Integer", "A number, for clients that compare versions as numbers", ItemResourceVersions::Integer),
];

const PARTIAL: &[FlagValue<Partial>] = &[
    ("Deny", "Wait up to 30 s, then answer 429", Partial::Deny),
    ("Allow", "Answer without the cluster; a Warning names it", Partial::Allow),
];

const AUDIT_MODE: &[FlagValue<AuditMode>] = &[
    ("batch", "After the answer, from a buffer; events that do not fit in the buffer are dropped", AuditMode::Batch),
    ("blocking", "Before the answer continues", AuditMode::Blocking),
    (
        "blocking-strict",
        "As blocking; a request is refused if its first event cannot be written",
        AuditMode::BlockingStrict,
    ),
];

/// Parses the mode of an audit backend.
pub(super) fn audit_mode() -> impl TypedValueParser<Value = AuditMode> {
    one_of(AUDIT_MODE)
}

/// Parses the form of item resourceVersions.
pub(super) fn item_resource_versions() -> impl TypedValueParser<Value = ItemResourceVersions> {
    one_of(ITEM_RESOURCE_VERSIONS)
}

/// Parses `Deny` or `Allow`.
pub(super) fn partial() -> impl TypedValueParser<Value = Partial> {
    one_of(PARTIAL)
}

/// Parses one of `words`. A flag with `ignore_case` accepts upper and lower case. A field of a configuration file
/// accepts only one spelling, because the API server validates CustomResourceDefinitions in this way.
fn one_of<T: Copy + Send + Sync + 'static>(words: &'static [FlagValue<T>]) -> impl TypedValueParser<Value = T> {
    let allowed = words.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(allowed).try_map(|text| {
        let meant = words.iter().find(|(word, ..)| word.eq_ignore_ascii_case(&text));
        meant.map(|(.., value)| *value).ok_or("is not an allowed value")
    })
}
