//! The integer form of an object's resourceVersion: `native × 10⁴ + index`, for clients that parse versions as numbers.
//! `native` is the resourceVersion in the object's cluster, and `index` identifies the cluster.
//!
//! Integers are comparable within a cluster. A merged watch cannot resume from an integer alone, so lists, bookmarks
//! and continue tokens stay composite.

use std::fmt;

use tributary_apimachinery::ResourceVersion;

/// The number of clusters that the integer form can distinguish. It is also the factor of the native version.
pub const CLUSTERS_MAX: u16 = 10_000;

/// A cluster's number in the integer form, 0 to 9999: `UpstreamCluster.spec.index`, unique and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterIndex(u16);

/// The integer form of an object's resourceVersion. The value is an `int64`, because clients parse it as one
/// (`strconv.ParseInt(…, 10, 64)` in controller-runtime); larger values have no integer form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntegerResourceVersion(i64);

/// The reason why a version or index has no integer form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntegerError {
    /// The index is above 9999.
    #[error("a cluster's index must be between 0 and 9999, not {0}")]
    Index(u16),
    /// The cluster's version is too large for a signed integer of 64 bits.
    #[error("resourceVersion {0} has no integer form: it would be above 2⁶³−1")]
    Overflow(ResourceVersion),
    /// The text is not an integer version.
    #[error("not an integer resourceVersion: digits without a leading zero, below 2⁶³, are expected")]
    Malformed,
}

impl ClusterIndex {
    /// Creates a cluster index from a number.
    ///
    /// # Errors
    /// [`IntegerError::Index`] above 9999.
    pub fn new(index: u16) -> Result<Self, IntegerError> {
        if index < CLUSTERS_MAX { Ok(Self(index)) } else { Err(IntegerError::Index(index)) }
    }

    /// Returns the cluster's index as a number.
    pub fn get(self) -> u16 {
        self.0
    }
}

impl IntegerResourceVersion {
    /// The highest native version with an integer form, for every index: 9.2 × 10¹⁴. An etcd with 10,000 changes a
    /// second reaches this version after 2,900 years. A store that derives versions from the time may already exceed
    /// this version.
    pub const VERSION_MAX: ResourceVersion =
        ResourceVersion((i64::MAX as u64 - (CLUSTERS_MAX as u64 - 1)) / CLUSTERS_MAX as u64);

    /// Creates the integer form of a cluster's version.
    ///
    /// # Errors
    /// [`IntegerError::Overflow`] for versions above [`VERSION_MAX`](Self::VERSION_MAX).
    pub fn new(version: ResourceVersion, index: ClusterIndex) -> Result<Self, IntegerError> {
        let native = i64::try_from(version.0).ok().filter(|_| version <= Self::VERSION_MAX);
        let native = native.ok_or(IntegerError::Overflow(version))?;
        Ok(Self(native * i64::from(CLUSTERS_MAX) + i64::from(index.0)))
    }

    /// Returns the integer resourceVersion for clients. It is never negative.
    pub fn encode(self) -> i64 {
        self.0
    }

    /// Returns the cluster's native version.
    pub fn version(self) -> ResourceVersion {
        ResourceVersion(self.0.unsigned_abs() / u64::from(CLUSTERS_MAX))
    }

    /// Returns the index of the cluster.
    pub fn index(self) -> ClusterIndex {
        ClusterIndex((self.0.unsigned_abs() % u64::from(CLUSTERS_MAX)) as u16)
    }

    /// Decodes an integer version that a client sent back.
    ///
    /// # Errors
    /// [`IntegerError::Malformed`].
    pub fn decode(text: &str) -> Result<Self, IntegerError> {
        let number = ResourceVersion::parse(text).map_err(|_| IntegerError::Malformed)?.0;
        let number = i64::try_from(number).map_err(|_| IntegerError::Malformed)?;
        let integer = Self(number);
        if integer.version() <= Self::VERSION_MAX { Ok(integer) } else { Err(IntegerError::Malformed) }
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
    fn integer_version_decodes_to_an_equal_version_and_malformed_text_is_refused() {
        for (version, index, number) in [(1234, 7, 12_340_007), (1, 0, 10_000), (0, 9999, 9999)] {
            let (version, index) = (ResourceVersion(version), ClusterIndex::new(index).unwrap());
            let value = IntegerResourceVersion::new(version, index).unwrap();
            assert_eq!((value.encode(), value.version(), value.index()), (number, version, index));
            assert_eq!(IntegerResourceVersion::decode(&number.to_string()), Ok(value));
        }
        assert!(ClusterIndex::new(10_000).is_err());
        for bad in ["", "01", "-1", "x", "9223372036854775808", "18446744073709551616", "eyJ"] {
            assert_eq!(IntegerResourceVersion::decode(bad), Err(IntegerError::Malformed), "{bad}");
        }
    }

    #[test]
    fn integer_version_fits_an_int64() {
        let max = IntegerResourceVersion::VERSION_MAX;
        for index in [0, 7, 9999] {
            let of = |version| IntegerResourceVersion::new(version, ClusterIndex(index));
            let largest = of(max).unwrap();
            assert_eq!(largest.encode().to_string().parse::<i64>(), Ok(largest.encode()), "as its readers parse it");
            assert_eq!((largest.version(), largest.index()), (max, ClusterIndex(index)));
            for above in [max.0 + 1, 1_000_000_000_000_000, u64::MAX / 10_000, u64::MAX] {
                let above = ResourceVersion(above);
                assert_eq!(of(above), Err(IntegerError::Overflow(above)), "index {index}");
            }
        }
    }
}
