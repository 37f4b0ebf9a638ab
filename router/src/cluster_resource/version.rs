//! resourceVersions of `clusters`. The revisions count in one process, so a version names its process.
//!
//! ```text
//! 9f3c21d0a4b87e65-42                    the 42nd change in the process 9f3c…, for a reader of all clusters
//! 9f3c21d0a4b87e65-42-00d1ce5a9e4b7c31   the same, for a reader of some clusters: a hash of their names
//! ```
//!
//! A client that changes to another replica, or that lost or gained clusters, lists again.

use std::fmt;

/// Decoded resourceVersion of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClustersVersion {
    pub(super) revision: u64,
    /// Hash of the clusters that the reader was allowed to know; `None` for a reader of all clusters.
    pub(super) scope: Option<u64>,
}

/// Reason why a resourceVersion cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnusableVersion {
    /// The text is not a resourceVersion of `clusters`.
    #[error("the resourceVersion is not one of the resource clusters; omit it, or use that of a list")]
    Malformed,
    /// A different process made the resourceVersion, or this process has forgotten it.
    #[error("the resourceVersion comes from another replica, or from before a restart; list again")]
    OfAnotherProcess,
}

/// Random number of a process, which is a part of its resourceVersions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessInstance(pub(super) u64);

impl fmt::Display for ProcessInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl ClustersVersion {
    pub(super) fn encode(self, instance: ProcessInstance) -> String {
        match self.scope {
            Some(scope) => format!("{instance}-{}-{scope:016x}", self.revision),
            None => format!("{instance}-{}", self.revision),
        }
    }

    /// Parses a resourceVersion that this process has made.
    ///
    /// # Errors
    /// [`UnusableVersion`].
    pub(super) fn parse(text: &str, own: ProcessInstance) -> Result<Self, UnusableVersion> {
        let mut parts = text.split('-');
        let (instance, revision, scope, rest) = (parts.next(), parts.next(), parts.next(), parts.next());
        let (Some(instance), Some(revision), None) = (instance.and_then(hexadecimal), revision, rest) else {
            return Err(UnusableVersion::Malformed);
        };
        let is_number = revision.bytes().all(|digit| digit.is_ascii_digit());
        let revision = revision.parse().ok().filter(|_| is_number).ok_or(UnusableVersion::Malformed)?;
        let scope = scope.map(|scope| hexadecimal(scope).ok_or(UnusableVersion::Malformed)).transpose()?;
        match instance == own.0 {
            true => Ok(Self { revision, scope }),
            false => Err(UnusableVersion::OfAnotherProcess),
        }
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    let is_written_here = text.len() == 16 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_written_here.then(|| u64::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_version_is_parsed_as_written() {
        let own = ProcessInstance(0x9f3c);
        for version in [
            ClustersVersion { revision: 0, scope: None },
            ClustersVersion { revision: u64::MAX, scope: None },
            ClustersVersion { revision: 42, scope: Some(7) },
        ] {
            let text = version.encode(own);
            assert_eq!(ClustersVersion::parse(&text, own), Ok(version), "{text}");
            assert_eq!(ClustersVersion::parse(&text, ProcessInstance(1)), Err(UnusableVersion::OfAnotherProcess));
        }
    }

    #[test]
    fn malformed_version_of_the_resource_clusters_is_refused() {
        let own = ProcessInstance(0x9f3c);
        for text in [
            "",
            "5",
            "-",
            "9f3c-5",
            "0000000000009f3c",
            "0000000000009f3c-",
            "0000000000009f3c-+5",
            "0000000000009F3C-5",
            "0000000000009f3c-5-",
            "0000000000009f3c-5-7",
            "0000000000009f3c-5-0000000000000007-1",
            "eyJjbHVzdGVyMSI6IjEyMzQifQ",
        ] {
            assert_eq!(ClustersVersion::parse(text, own), Err(UnusableVersion::Malformed), "{text}");
        }
    }
}
