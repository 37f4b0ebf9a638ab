//! How much of a client's selector is looked at.

/// The most that a selector may have. The numbers are the caller's: a kube-apiserver has none but the
/// length of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectorBounds {
    /// Requirements.
    pub requirements: usize,
    /// Values, those of all requirements together.
    pub values: usize,
}

impl SelectorBounds {
    /// For selectors that are no client's.
    pub const NONE: Self = Self { requirements: usize::MAX, values: usize::MAX };

    /// Whether a selector may have so many.
    pub(super) fn admit(self, requirements: usize, values: usize) -> Result<(), TooMany> {
        if requirements > self.requirements {
            return Err(TooMany { what: "requirements", most: self.requirements });
        }
        if values > self.values {
            return Err(TooMany { what: "values", most: self.values });
        }
        Ok(())
    }
}

/// A selector has more than is looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many {what}: a selector may have {most} at most")]
pub struct TooMany {
    what: &'static str,
    most: usize,
}
