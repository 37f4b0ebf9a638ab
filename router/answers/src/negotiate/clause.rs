//! Parsing and sorting of the clauses of an `Accept` header, as in goautoneg.

use smallvec::SmallVec;

/// Maximum number of clauses that Tributary parses in a header. Clients send up to three. Sorting the half a million
/// clauses of a 1 MiB header would take hours.
const CLAUSES_MAX: usize = 64;

/// One clause of an `Accept` header, for example `application/json;as=Table;v=v1;q=0.5`.
#[derive(Debug)]
pub struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: &'a str,
}

impl<'a> Clause<'a> {
    /// Returns the valid clauses of an `Accept` header in order of preference.
    pub fn parse_all(accept: &'a str) -> SmallVec<[Self; 4]> {
        let mut clauses: SmallVec<[Self; 4]> = accept.split(',').filter_map(Self::parse).take(CLAUSES_MAX).collect();
        // This insertion sort gives the same order as Go's sort, which uses insertion sort for up to twelve items. A
        // different algorithm could give a different order, because goautoneg's comparison is not a total order.
        for end in 1..clauses.len() {
            let mut at = end;
            while at > 0 && clauses[at].comes_before(&clauses[at - 1]) {
                clauses.swap(at, at - 1);
                at -= 1;
            }
        }
        clauses
    }

    fn parse(text: &'a str) -> Option<Self> {
        let (media_type, parameters) = split(text, ';');
        let (kind, subtype) = split(media_type.trim_matches(' '), '/');
        let (subtype, rest) = split(subtype, '/');
        let (kind, subtype) = match (kind, subtype) {
            ("*", "") => ("*", "*"),
            (_, "") => return None,
            named if rest.is_empty() => named,
            _ => return None,
        };
        let mut clause =
            Self { kind: kind.trim_matches(' '), subtype: subtype.trim_matches(' '), quality: 1.0, parameters };
        if let Some((_, quality)) = clause.pairs().filter(|(name, _)| *name == "q").last() {
            clause.quality = quality.parse().unwrap_or(0.0);
        }
        Some(clause)
    }

    /// Returns whether the clause matches this media type.
    pub fn names(&self, media_type: &str) -> bool {
        let (kind, subtype) = media_type.split_once('/').unwrap_or((media_type, ""));
        match (self.kind, self.subtype) {
            ("*", "*") => true,
            (own, "*") => own == kind,
            (own_kind, own_subtype) => own_kind == kind && own_subtype == subtype,
        }
    }

    /// Returns the parameters without `q`, with names and values trimmed of spaces. If several parameters have the same
    /// name, the last one is valid.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.pairs().filter(|(name, _)| *name != "q").map(|(name, value)| (name, value.trim_matches(' ')))
    }

    fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.parameters.split(';').filter_map(|part| {
            let (name, value) = split(part, '=');
            let (first, rest) = split(value, '=');
            (!value.is_empty() && rest.is_empty()).then(|| (name.trim_matches(' '), first))
        })
    }

    fn comes_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }
}

/// Splits the text at the first separator. The second part is empty if the text has no separator.
fn split(text: &str, separator: char) -> (&str, &str) {
    text.split_once(separator).unwrap_or((text, ""))
}
