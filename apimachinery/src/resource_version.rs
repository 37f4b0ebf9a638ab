//! The resourceVersion of a single member.

use std::fmt;

/// The resourceVersion of a member: etcd's revision, an increasing number (KEP-5504).
///
/// Zero is not a version of any object, and means that no version has been received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(pub u64);

/// The error for a text that is not a member's resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a resourceVersion of a cluster: digits without a leading zero are expected")]
pub struct InvalidResourceVersion(pub String);

impl ResourceVersion {
    /// Parses digits without a sign or a leading zero; `"0"` is zero.
    ///
    /// # Errors
    /// [`InvalidResourceVersion`] for any other text, and for numbers above 2⁶⁴−1.
    pub fn parse(text: &str) -> Result<Self, InvalidResourceVersion> {
        let bytes = text.as_bytes();
        let well_formed =
            !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit) && (bytes.len() == 1 || bytes[0] != b'0');
        if !well_formed {
            return Err(InvalidResourceVersion(text.to_owned()));
        }
        text.parse().map(Self).map_err(|_| InvalidResourceVersion(text.to_owned()))
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_version_parses_only_canonical_numbers() {
        assert_eq!(ResourceVersion::parse("0"), Ok(ResourceVersion(0)));
        assert_eq!(ResourceVersion::parse("18446744073709551615"), Ok(ResourceVersion(u64::MAX)));
        for bad in ["", "00", "01", "-1", "+1", " 1", "1 ", "1.0", "abc", "18446744073709551616"] {
            assert!(ResourceVersion::parse(bad).is_err(), "{bad}");
        }
    }
}
