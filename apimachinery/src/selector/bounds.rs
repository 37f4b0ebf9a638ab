//! Limits on the size of a client's selector.

/// The maximum size of a client's selector. The caller chooses the limits; a kube-apiserver limits only the length of a
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectorBounds {
    /// The maximum number of requirements.
    pub requirements: usize,
    /// The maximum number of values of all requirements together.
    pub values: usize,
}

impl SelectorBounds {
    /// No limits, for selectors that do not come from clients.
    pub const NONE: Self = Self { requirements: usize::MAX, values: usize::MAX };

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

/// The error for a selector that exceeds a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many {what}: a selector may have {most} at most")]
pub struct TooMany {
    what: &'static str,
    most: usize,
}
