//! The item form of a version that is not a number: its cluster, and its text as the cluster gave it.
//!
//! It is base64url of `{"cluster1":["1234/5678"]}`. The list tells it from a composite resourceVersion, whose
//! components are strings. It can be sent back as a precondition, and a list or watch can do nothing with it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use tributary_apimachinery::{ClusterName, ResourceVersion};

/// A version of one cluster's object that is not a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpaqueVersion {
    /// The cluster of the object.
    pub cluster: ClusterName,
    /// The version's text as the cluster sent it.
    pub version: String,
}

impl OpaqueVersion {
    /// The item form of a cluster's version.
    pub fn encode(cluster: &ClusterName, version: &str) -> String {
        URL_SAFE_NO_PAD.encode(format!("{{\"{cluster}\":[{}]}}", Value::from(version)))
    }

    /// Reads an item form in its one canonical spelling; `None` for any other text.
    pub fn decode(text: &str) -> Option<Self> {
        let json: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let (cluster, versions) = json.as_object().filter(|object| object.len() == 1)?.iter().next()?;
        let [version] = versions.as_array()?.as_slice() else { return None };
        let (cluster, version) = (ClusterName::new(cluster).ok()?, version.as_str()?.to_owned());
        let is_canonical = ResourceVersion::parse(&version).is_err() && Self::encode(&cluster, &version) == text;
        is_canonical.then_some(Self { cluster, version })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{CompositeResourceVersion, Epochs};

    fn cluster() -> ClusterName {
        ClusterName::new("cluster1").unwrap()
    }

    #[test]
    fn other_texts_are_no_opaque_versions() {
        let encode = |json: &str| URL_SAFE_NO_PAD.encode(json);
        assert!(OpaqueVersion::decode(&encode(r#"{"a":["1/2"]}"#)).is_some());
        for text in [
            "1/2".to_owned(),
            encode(r#"{"a":"1/2"}"#),
            encode(r#"{"a":["12"]}"#),
            encode(r#"{"a":["1/2","x"]}"#),
            encode(r#"{"a":["1/2"],"b":["x"]}"#),
            encode(r#"{"a": ["1/2"]}"#),
            encode(r#"{"a":["1\/2"]}"#),
            encode(r#"{"A":["1/2"]}"#),
            encode(r#"{"a":[1]}"#),
            encode(r#"{"a":["1/2"]}"#) + "=",
        ] {
            assert_eq!(OpaqueVersion::decode(&text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_given_is_read_again(version in "\\PC{0,40}|[0-9]{1,5}[/-][0-9]{0,5}|\"\\\\PC*") {
            prop_assume!(ResourceVersion::parse(&version).is_err());
            let text = OpaqueVersion::encode(&cluster(), &version);
            prop_assert!(CompositeResourceVersion::decode(&text, &Epochs::default()).is_err());
            prop_assert_eq!(OpaqueVersion::decode(&text), Some(OpaqueVersion { cluster: cluster(), version }));
        }
    }
}
