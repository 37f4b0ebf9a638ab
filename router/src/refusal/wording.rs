//! How messages name what there are many of.

use std::fmt::Display;

/// How many a message names before it only counts them.
pub(super) const NAMED_MAX: usize = 10;

/// `a, b and 3 more`.
pub(super) fn listed(all: &[impl Display]) -> String {
    let mut text = first(all, ", ");
    if all.len() > NAMED_MAX {
        text.push_str(&format!(" and {} more", all.len() - NAMED_MAX));
    }
    text
}

/// The first ones.
pub(super) fn first(all: &[impl Display], between: &str) -> String {
    let named: Vec<_> = all.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    named.join(between)
}
