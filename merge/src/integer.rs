//! The integer form of an item's resourceVersion: `native × 10⁴ + index`, for clients that parse versions as numbers.
//!
//! It can be compared within a cluster and names its owner, but it is no point that a merged stream can be resumed from
//! alone: lists, bookmarks and continue tokens stay composite.

use std::fmt;

use tributary_apimachinery::ResourceVersion;

/// How many clusters the form can tell apart, and the factor of the native version.
pub const CLUSTERS_MAX: u16 = 10_000;

/// A cluster's number in the integer form, 0 to 9999: `UpstreamCluster.spec.index`, unique and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterIndex(u16);

/// An item's version in the integer form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntegerResourceVersion {
    /// The member's own version.
    pub version: ResourceVersion,
    /// The member.
    pub index: ClusterIndex,
}

/// Why there is no integer form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntegerError {
    /// The index is above 9999.
    #[error("a cluster's index must be between 0 and 9999, not {0}")]
    Index(u16),
    /// The member's version is too large for an integer of 64 bits.
    #[error("resourceVersion {0} has no integer form of 64 bits")]
    Overflow(ResourceVersion),
    /// The text is not an integer version.
    #[error("not an integer resourceVersion: digits without a leading zero, below 2⁶⁴, are expected")]
    Malformed,
}

impl ClusterIndex {
    /// Checks and wraps an index.
    ///
    /// # Errors
    /// [`IntegerError::Index`] above 9999.
    pub fn new(index: u16) -> Result<Self, IntegerError> {
        if index < CLUSTERS_MAX { Ok(Self(index)) } else { Err(IntegerError::Index(index)) }
    }

    /// The index as a number.
    pub fn get(self) -> u16 {
        self.0
    }
}

impl IntegerResourceVersion {
    /// The number that clients are given.
    ///
    /// # Errors
    /// [`IntegerError::Overflow`] for versions above 1.8 × 10¹⁵, which no etcd reaches.
    pub fn encode(self) -> Result<u64, IntegerError> {
        let scaled = self.version.0.checked_mul(u64::from(CLUSTERS_MAX));
        scaled.and_then(|scaled| scaled.checked_add(self.index.0.into())).ok_or(IntegerError::Overflow(self.version))
    }

    /// Reads a number that a client sent back.
    ///
    /// # Errors
    /// [`IntegerError::Malformed`].
    pub fn decode(text: &str) -> Result<Self, IntegerError> {
        let number = ResourceVersion::parse(text).map_err(|_| IntegerError::Malformed)?.0;
        let factor = u64::from(CLUSTERS_MAX);
        let index = u16::try_from(number % factor).map_err(|_| IntegerError::Malformed)?;
        Ok(Self { version: ResourceVersion(number / factor), index: ClusterIndex(index) })
    }
}

impl fmt::Display for ClusterIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses() {
        for (version, index, number) in [(1234, 7, 12_340_007), (1, 0, 10_000), (0, 9999, 9999)] {
            let value =
                IntegerResourceVersion { version: ResourceVersion(version), index: ClusterIndex::new(index).unwrap() };
            assert_eq!(value.encode(), Ok(number));
            assert_eq!(IntegerResourceVersion::decode(&number.to_string()), Ok(value));
        }
        let large = |version| IntegerResourceVersion { version: ResourceVersion(version), index: ClusterIndex(1616) };
        assert!(large(u64::MAX / 10_000 - 1).encode().is_ok());
        assert_eq!(large(u64::MAX / 10_000).encode(), Err(IntegerError::Overflow(ResourceVersion(u64::MAX / 10_000))));
        assert!(ClusterIndex::new(10_000).is_err());
        for bad in ["", "01", "-1", "x", "18446744073709551616", "eyJ"] {
            assert_eq!(IntegerResourceVersion::decode(bad), Err(IntegerError::Malformed), "{bad}");
        }
    }
}
