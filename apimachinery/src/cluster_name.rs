//! The name of a member cluster.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a member cluster: a DNS-1123 label of at most 63 bytes. Cheap to clone.
///
/// `all` is reserved for the merged view and never names a cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(Arc<str>);

/// The reason why a text is not a cluster name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidClusterName {
    /// The text is empty or longer than 63 bytes.
    #[error("cluster name {0:?} must have 1 to 63 characters")]
    Length(String),
    /// The text has a character that a DNS-1123 label forbids, or begins or ends with a dash.
    #[error(
        "cluster name {0:?} must be a DNS-1123 label: lower-case letters, digits and '-', starting and ending with a letter or digit"
    )]
    Characters(String),
    /// The text is `all`, which names the merged view.
    #[error("cluster name \"all\" is reserved for the merged view; choose another one")]
    Reserved,
}

impl ClusterName {
    /// The longest name, in bytes (RFC 1123 §2.1).
    pub const LENGTH_MAX: usize = 63;

    /// Validates a cluster name.
    ///
    /// # Errors
    /// [`InvalidClusterName`] with the broken rule.
    pub fn new(name: &str) -> Result<Self, InvalidClusterName> {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > Self::LENGTH_MAX {
            return Err(InvalidClusterName::Length(name.to_owned()));
        }
        let inner = bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if !inner || bytes[0] == b'-' || bytes[bytes.len() - 1] == b'-' {
            return Err(InvalidClusterName::Characters(name.to_owned()));
        }
        if name == "all" {
            return Err(InvalidClusterName::Reserved);
        }
        Ok(Self(name.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::borrow::Borrow<str> for ClusterName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for ClusterName {
    type Err = InvalidClusterName;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::new(s)
    }
}

impl Serialize for ClusterName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ClusterName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(&name).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_name_accepts_only_dns_labels() {
        for good in ["a", "member1", "kubernetes-admin-eu", &"x".repeat(63)] {
            assert!(ClusterName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "a/b", "all", &"x".repeat(64)] {
            assert!(ClusterName::new(bad).is_err(), "{bad}");
        }
    }
}
