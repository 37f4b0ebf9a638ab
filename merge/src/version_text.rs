//! The text of a composite resourceVersion, opaque to clients.
//!
//! Up to 4 KiB, the text is base64url of a JSON object with sorted keys, for example
//! `{"cluster1":"1234","cluster2":"5678-1"}`. The component `5678-1` includes only one of the deletions of revision
//! 5678 (a [part](CollectionVersion::part) of the revision). For a day after a different cluster has taken over a name,
//! the component of that name has a [mark](Epochs::mark_of) that identifies the cluster
//! (`{"cluster1":"1234@5f3a9c01"}`). Above 4 KiB, the text has the compact form of [`crate::epochs`], because clients
//! send versions in the query of a URL.
//!
//! Each decoder accepts both forms, but only in their canonical spelling. So each version has exactly one accepted text
//! per form.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tributary_apimachinery::{ClusterName, CollectionVersion};

use crate::composite::CompositeResourceVersion;
use crate::decode_error::{Foreign, VersionDecodeError};
use crate::epochs::Epochs;

/// The longest text of the JSON form, in bytes. A composite version with a longer JSON text has the compact form. 4
/// KiB: nginx limits a request line to 8 KiB, which must also contain the path and the selectors.
pub const JSON_TEXT_MAX: usize = 4 * 1024;

/// The longest text that is decoded, in bytes. 128 KiB: 1,000 clusters with names of 63 characters fit in the JSON
/// form, and hyper limits a URI to 64 KiB.
pub const TEXT_MAX: usize = 128 * 1024;

impl CompositeResourceVersion {
    /// Encodes the composite version as clients receive it. Equal composite versions have equal texts, if the lists of
    /// clusters (`epochs`) are equal.
    ///
    /// Cost: O(components).
    pub fn encode(&self, epochs: &Epochs) -> String {
        let marks = |cluster: &ClusterName| epochs.mark_of(cluster);
        if base64_len(self.json_len(marks)) > JSON_TEXT_MAX
            && let Some(compact) = epochs.encode(self)
        {
            return compact;
        }
        URL_SAFE_NO_PAD.encode(self.json(marks))
    }

    /// Decodes a text that a client sent back, in JSON form or compact form.
    ///
    /// # Errors
    /// [`VersionDecodeError`]; never an approximate version. The empty text and `0` have special meanings in Kubernetes
    /// and are errors: callers handle them first.
    pub fn decode(text: &str, epochs: &Epochs) -> Result<Self, VersionDecodeError> {
        Self::decode_for(text, epochs, |_| true)
    }

    /// Decodes a text like [`decode`](Self::decode), for a client that may see only some clusters. Marks of the other
    /// clusters are not checked, so that no error reveals the existence of a hidden cluster.
    ///
    /// # Errors
    /// The errors of [`decode`](Self::decode).
    pub fn decode_for(
        text: &str,
        epochs: &Epochs,
        may_know: impl Fn(&ClusterName) -> bool,
    ) -> Result<Self, VersionDecodeError> {
        if text.len() > TEXT_MAX {
            return Err(VersionDecodeError::Malformed("the text is too long"));
        }
        if is_number(text) {
            return Err(Foreign::Number.into());
        }
        if text.contains('.') {
            return epochs.decode(text);
        }
        let json = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| VersionDecodeError::Malformed("the text is not unpadded base64url"))?;
        parse_json(&json, |cluster, mark| if may_know(cluster) { epochs.check_mark(cluster, mark) } else { Ok(()) })
    }
}

fn base64_len(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}

/// Returns whether a text is a resourceVersion according to KEP-5504: digits without a leading zero, of any length.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && matches!(text.as_bytes(), [b'1'..=b'9', ..] | [b'0'])
}

/// Parses the canonical spelling: no space, no escape, strictly ascending keys (so that no key repeats), values as
/// strings. `check` verifies that the mark of a component identifies the expected cluster.
fn parse_json(
    json: &[u8],
    check: impl Fn(&ClusterName, Option<&str>) -> Result<(), Foreign>,
) -> Result<CompositeResourceVersion, VersionDecodeError> {
    const SHAPE: VersionDecodeError =
        VersionDecodeError::Malformed("the text is not an object of clusters and resourceVersions");
    let text = std::str::from_utf8(json).map_err(|_| SHAPE)?;
    let members = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or(SHAPE)?;
    let mut components: Vec<(ClusterName, CollectionVersion)> = Vec::new();
    let mut checked = Ok(());
    if members.is_empty() {
        return Ok(CompositeResourceVersion::new());
    }
    for member in members.split(',') {
        let (name, version) = member
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .and_then(|rest| rest.split_once("\":\""))
            .ok_or(SHAPE)?;
        let name =
            ClusterName::new(name).map_err(|_| VersionDecodeError::Malformed("the name of a cluster is invalid"))?;
        let (version, mark) = version.split_once('@').map_or((version, None), |(version, mark)| (version, Some(mark)));
        if mark.is_some_and(|mark| !is_mark(mark)) {
            return Err(VersionDecodeError::Malformed("a component's mark is not eight hexadecimal digits"));
        }
        let version = CollectionVersion::parse(version)
            .map_err(|_| VersionDecodeError::Malformed("a component is not a number"))?;
        if components.last().is_some_and(|(last, _)| *last >= name) {
            return Err(VersionDecodeError::Malformed("the clusters are not in order"));
        }
        // The error of a component's mark is returned only for a well-formed text, because the error for a malformed
        // text takes precedence.
        checked = checked.and(check(&name, mark));
        components.push((name, version));
    }
    checked?;
    Ok(components.into_iter().collect())
}

fn is_mark(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tributary_apimachinery::ResourceVersion;

    use super::*;

    fn vector(components: &[(&str, u64)]) -> CompositeResourceVersion {
        components.iter().map(|(name, v)| (ClusterName::new(name).unwrap(), ResourceVersion(*v))).collect()
    }

    #[test]
    fn documented_composite_version_decodes_and_encodes_to_the_same_text() {
        let text = "eyJjbHVzdGVyMSI6IjEyMzQiLCJjbHVzdGVyMiI6IjU2NzgifQ";
        let value = vector(&[("cluster2", 5678), ("cluster1", 1234)]);
        assert_eq!(value.encode(&Epochs::default()), text);
        assert_eq!(CompositeResourceVersion::decode(text, &Epochs::default()), Ok(value));
    }

    #[test]
    fn malformed_and_unusable_composite_versions_have_different_errors() {
        let encode = |json: &str| URL_SAFE_NO_PAD.encode(json);
        let malformed = [
            String::new(),
            "abc".into(),
            "01".into(),
            "00".into(),
            "-1".into(),
            "1x".into(),
            encode("{}") + "==",
            encode("[]"),
            encode("{"),
            encode("null"),
            encode(r#"{"a":1}"#),
            encode(r#"{"a":"01"}"#),
            encode(r#"{"a":""}"#),
            encode(r#"{"a":"-1"}"#),
            encode(r#"{"a":"0-1"}"#),
            encode(r#"{"a":"1-"}"#),
            encode(r#"{"a":"1-01"}"#),
            encode(r#"{"a":"18446744073709551616"}"#),
            encode(r#"{"a":"1","a":"1"}"#),
            encode(r#"{"b":"1","a":"1"}"#),
            encode(r#"{"A":"1"}"#),
            encode(r#"{"all":"1"}"#),
            encode(r#"{"a":"1",}"#),
            encode(r#"{"a":"1"} "#),
            encode(r#"{ "a":"1"}"#),
            encode(r#"{"a":"1"}}"#),
            encode(r#"{"a":{"b":"1"}}"#),
            encode(r#"{"\u0061":"1"}"#),
            // The last character has unused bits, which must be zero. Here they are not zero.
            format!("{}S", &encode(r#"{"a":"12"}"#)[..13]),
            "é".into(),
            "x".repeat(TEXT_MAX + 1),
            URL_SAFE_NO_PAD.encode([b'{', 0xff, b'}']),
        ];
        for text in malformed {
            let result = CompositeResourceVersion::decode(&text, &Epochs::default());
            assert!(matches!(result, Err(VersionDecodeError::Malformed(_))), "{text:.60}: {result:?}");
        }
        for text in ["0", "1", "5", "12340001", "340282366920938463463374607431768211455"] {
            let result = CompositeResourceVersion::decode(text, &Epochs::default());
            assert_eq!(result, Err(Foreign::Number.into()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn composite_version_encodes_and_decodes_to_an_equal_version(components in prop::collection::btree_map("[a-z][a-z0-9]{0,20}x", any::<(u64, Option<u32>)>(), 0..40)) {
            let version = |(revision, part): (u64, Option<u32>)| match part {
                Some(changes) if revision > 0 => CollectionVersion::part(ResourceVersion(revision), changes),
                _ => CollectionVersion::whole(ResourceVersion(revision)),
            };
            let value: CompositeResourceVersion =
                components.iter().map(|(n, v)| (ClusterName::new(n).unwrap(), version(*v))).collect();
            let text = value.encode(&Epochs::default());
            prop_assert_eq!(base64_len(value.json_len(|_| None)), text.len());
            prop_assert_eq!(CompositeResourceVersion::decode(&text, &Epochs::default()), Ok(value));
        }

        #[test]
        fn decoded_composite_version_encodes_to_the_same_text(text in "(eyJ|e30|c1\\.)?[A-Za-z0-9_.=-]{0,40}") {
            if let Ok(value) = CompositeResourceVersion::decode(&text, &Epochs::default()) {
                prop_assert_eq!(value.encode(&Epochs::default()), text);
            }
        }
    }
}
