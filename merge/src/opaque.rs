//! The item form of a resourceVersion that is not a number. It contains the cluster, and the text of the version.
//!
//! The item form is base64url of `{"cluster1":["1234/5678"]}`. The array distinguishes the form from a composite
//! resourceVersion, whose components are strings. Clients can send the item form as a precondition; a list or watch
//! cannot use it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use tributary_apimachinery::{ClusterName, ResourceVersion};

/// The resourceVersion of an object whose cluster uses versions that are not numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpaqueVersion {
    /// The cluster of the object.
    pub cluster: ClusterName,
    /// The text of the version, as the cluster returned it.
    pub version: String,
}

impl OpaqueVersion {
    /// Encodes the item form of a version that is not a number.
    pub fn encode(cluster: &ClusterName, version: &str) -> String {
        URL_SAFE_NO_PAD.encode(format!("{{\"{cluster}\":[{}]}}", Value::from(version)))
    }

    /// Decodes an item form of a version that is not a number. Accepts only the canonical spelling; `None` for any
    /// other text.
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
    fn text_in_another_form_is_not_decoded_as_an_opaque_version() {
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
        fn opaque_version_encodes_and_decodes_to_an_equal_version(version in "\\PC{0,40}|[0-9]{1,5}[/-][0-9]{0,5}|\"\\\\PC*") {
            prop_assume!(ResourceVersion::parse(&version).is_err());
            let text = OpaqueVersion::encode(&cluster(), &version);
            prop_assert!(CompositeResourceVersion::decode(&text, &Epochs::default()).is_err());
            prop_assert_eq!(OpaqueVersion::decode(&text), Some(OpaqueVersion { cluster: cluster(), version }));
        }
    }
}
