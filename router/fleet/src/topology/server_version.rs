//! Version of a cluster's server.

use bytes::Bytes;
use serde::Deserialize;
use tributary_apimachinery::json::null_is_default;

/// Maximum length of a server version's name, in characters. 64: twice the length of vendors' names.
const NAME_LENGTH_MAX: usize = 64;

/// A member's `/version` document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    order: (u64, u64, u64),
    name: String,
    /// Unchanged text of the `/version` document.
    pub text: Bytes,
}

impl ServerVersion {
    /// Parses a `/version` document. `None` if the document contains no version.
    pub fn parse(text: Bytes) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Info {
            #[serde(default, deserialize_with = "null_is_default")]
            major: String,
            #[serde(default, deserialize_with = "null_is_default")]
            minor: String,
            #[serde(default, deserialize_with = "null_is_default")]
            git_version: String,
        }
        let info: Info = serde_json::from_slice(&text).ok()?;
        // Parses `v1.36.3-gke.1100+abc`. Forks may have a different form; then the fields `major` and `minor` are
        // parsed, such as `1` and `36+`.
        let order = numbers(info.git_version.trim_start_matches('v'))
            .or_else(|| numbers(&format!("{}.{}", info.major, info.minor)))?;
        let name = match info.git_version.is_empty() {
            true => format!("v{}.{}", info.major, info.minor),
            false => info.git_version,
        };
        Some(Self { order, name: name.chars().take(NAME_LENGTH_MAX).collect(), text })
    }

    /// Returns the version of the server in the member's own form: `v1.36.3`, `v1.30.2-gke.1100+abc`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns major, minor and patch for comparisons. A newer version is greater.
    pub fn order(&self) -> (u64, u64, u64) {
        self.order
    }
}

fn numbers(text: &str) -> Option<(u64, u64, u64)> {
    let mut parts = text.splitn(3, '.');
    let mut number = || {
        let part = parts.next()?;
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse().ok()
    };
    Some((number()?, number()?, number().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_versions_are_parsed_and_ordered() {
        let order = |text: &'static str| ServerVersion::parse(text.into()).map(|version| version.order());
        assert_eq!(order(r#"{"major":"1","minor":"36","gitVersion":"v1.36.3"}"#), Some((1, 36, 3)));
        assert_eq!(order(r#"{"major":"1","minor":"30+","gitVersion":"v1.30.2-gke.1100+abc"}"#), Some((1, 30, 2)));
        assert_eq!(order(r#"{"major":"1","minor":"29+","gitVersion":"unknown"}"#), Some((1, 29, 0)));
        let name = |text: &'static str| ServerVersion::parse(text.into()).unwrap().name().to_owned();
        assert_eq!(name(r#"{"major":"1","minor":"30+","gitVersion":"v1.30.2-gke.1100+abc"}"#), "v1.30.2-gke.1100+abc");
        assert_eq!(name(r#"{"major":"1","minor":"29+"}"#), "v1.29+");
        assert_eq!((order("{}"), order("nothing")), (None, None));
        assert!(order(r#"{"gitVersion":"v1.9.0"}"#) < order(r#"{"gitVersion":"v1.10.0"}"#));
    }
}
