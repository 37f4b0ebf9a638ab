//! Flags whose values are words of the configuration. Their meaning is the type's;
//! what the help says of them stands here.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tributary_apimachinery::{ItemResourceVersions, Partial};

/// A value of a flag: how it is written, what the help says of it, and what it means.
type Word<T> = (&'static str, &'static str, T);

const ITEM_RESOURCE_VERSIONS: &[Word<ItemResourceVersions>] = &[
    (
        "Composite",
        "The version of the object's own cluster, in the form that lists and bookmarks have",
        ItemResourceVersions::Composite,
    ),
    ("Integer", "A number that names the cluster, too", ItemResourceVersions::Integer),
];

const PARTIAL: &[Word<Partial>] = &[
    ("Deny", "Wait for it up to 30 s, then answer 429", Partial::Deny),
    ("Allow", "Answer without it; a Warning names each missing cluster", Partial::Allow),
];

/// Reads the form of the versions that single objects carry.
pub(super) fn item_resource_versions() -> impl TypedValueParser<Value = ItemResourceVersions> {
    one_of(ITEM_RESOURCE_VERSIONS)
}

/// Reads what lists and watches do about clusters that are unknown.
pub(super) fn partial() -> impl TypedValueParser<Value = Partial> {
    one_of(PARTIAL)
}

/// Reads one of these words. A flag with `ignore_case` accepts any case. A field of a file has one spelling, because
/// the API server validates the CustomResourceDefinition that way.
fn one_of<T: Copy + Send + Sync + 'static>(words: &'static [Word<T>]) -> impl TypedValueParser<Value = T> {
    let allowed = words.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(allowed).try_map(|text| {
        let meant = words.iter().find(|(word, ..)| word.eq_ignore_ascii_case(&text));
        meant.map(|(.., value)| *value).ok_or("is none of the words that are allowed")
    })
}
