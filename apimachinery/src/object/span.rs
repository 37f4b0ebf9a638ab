//! A range in an object's text.

use std::ops::Range;

/// A range in an object's text. 32-bit positions suffice, because an object is far smaller than 4 GiB (etcd's limit is
/// 1.5 MiB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl From<Range<usize>> for Span {
    /// Converts a range. Callers have checked that the text is shorter than 4 GiB.
    fn from(range: Range<usize>) -> Self {
        Self {
            start: u32::try_from(range.start).unwrap_or(u32::MAX),
            end: u32::try_from(range.end).unwrap_or(u32::MAX),
        }
    }
}
