//! The fields that field selectors may select, and their positions in an object.

use std::ops::Range;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::span::Span;
use crate::json;

/// A field that a field selector may select, and its path in the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The field's name in a field selector, for example `spec.nodeName`.
    pub name: Arc<str>,
    /// The paths to try in order. Each path is a list of keys from the object's root.
    pub paths: Vec<Vec<Arc<str>>>,
    /// The value of an object that has none of the paths.
    pub default: Arc<str>,
    /// Whether a [`Snapshot`](crate::Snapshot) has an index of the field. At most one field of a kind is indexed.
    pub indexed: bool,
}

impl SelectableField {
    /// Creates a field whose name is its dotted path, and whose default is the empty text.
    pub fn dotted(name: &str) -> Self {
        Self {
            name: name.into(),
            paths: vec![name.split('.').map(Into::into).collect()],
            default: "".into(),
            indexed: false,
        }
    }
}

/// A field to find below an object: the field's index, the rank of the path among the field's paths, and the path's
/// remaining keys.
type FieldPath<'a> = (usize, usize, &'a [Arc<str>]);

/// Finds the positions of the selectable fields. Each nested object is walked once for all its fields.
pub(super) fn field_values(
    json: &[u8],
    top: &[(&[u8], Range<usize>)],
    fields: &[SelectableField],
) -> Box<[Option<Span>]> {
    // A field may have several paths, and the first path that exists in the object takes precedence. Each position
    // therefore has the rank of its path.
    let mut found: SmallVec<[Option<(usize, Span)>; 12]> = smallvec![None; fields.len()];
    for (key, value) in top {
        let below: SmallVec<[FieldPath<'_>; 12]> = fields
            .iter()
            .enumerate()
            .flat_map(|(index, field)| field.paths.iter().enumerate().map(move |(rank, path)| (index, rank, &path[..])))
            .filter(|(_, _, path)| path.first().is_some_and(|first| first.as_bytes() == *key))
            .map(|(index, rank, path)| (index, rank, &path[1..]))
            .collect();
        let mut keep = |index: usize, rank: usize, place: &Range<usize>| {
            if let Some(span) = scalar(json, place)
                && found[index].is_none_or(|(before, _)| rank < before)
            {
                found[index] = Some((rank, span));
            }
        };
        for (index, rank, _) in below.iter().filter(|(_, _, rest)| rest.is_empty()) {
            keep(*index, *rank, value);
        }
        if below.iter().all(|(_, _, rest)| rest.is_empty()) {
            continue;
        }
        for member in json::members(json, value.start) {
            let named =
                below.iter().filter(|(_, _, rest)| rest.first().is_some_and(|first| first.as_bytes() == member.key));
            for (index, rank, rest) in named {
                let mut place = Some(member.value.clone());
                for key in &rest[1..] {
                    place = place.and_then(|place| json::find(json, place.start, &[key]));
                }
                place.inspect(|place| keep(*index, *rank, place));
            }
        }
    }
    found.into_iter().map(|found| found.map(|(_, span)| span)).collect()
}

/// Returns the range of a non-empty string (without its quotes), of a number, or of a boolean. Returns `None` for any
/// other value.
fn scalar(text: &[u8], value: &Range<usize>) -> Option<Span> {
    match text.get(value.start)? {
        b'"' => json::string_contents(text, value).filter(|contents| !contents.is_empty()).map(Span::from),
        b'{' | b'[' | b'n' => None,
        _ => Some(value.clone().into()),
    }
}
