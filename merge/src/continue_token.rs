//! The continue token of a paginated list: the start of the next page, and the composite version of the list.
//!
//! ```text
//! v1.<base64url of {"cluster":"a","after":"ns/name","remaining":7}>[.<composite resourceVersion>]
//! ```
//!
//! The composite version keeps its own text form, because a second encoding in base64 would cost a third more bytes. A
//! token without a composite version is *inconsistent*: a 410 response carries such a token in `metadata.continue`. The
//! list then resumes after the last key in the present state, as with a kube-apiserver's tokens with resourceVersion −1
//! (`pkg/storage/continue.go`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterName;

use crate::Epochs;
use crate::composite::CompositeResourceVersion;
use crate::decode_error::{Foreign, VersionDecodeError};
use crate::version_text::TEXT_MAX;

/// The prefix of each continue token. The digit is the version of the token's layout.
const PREFIX: &str = "v1.";

/// The longest key (`namespace/name`) in a token, in bytes: a namespace of 63, a name of 253, and a margin for kinds
/// with longer names.
const KEY_MAX: usize = 1024;

/// A position between two objects of a merged list. Clusters are ordered by name, and the objects of a cluster by key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The cluster in which the list resumes. Earlier pages contain all objects of the clusters before it.
    pub cluster: ClusterName,
    /// The last key of this cluster that earlier pages contain.
    pub after: Box<str>,
}

/// A decoded continue token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The start of the next page.
    pub position: Position,
    /// The number of objects on later pages. `None` for a list with selectors. The first page counts the objects and
    /// later pages subtract their own objects, so that no page walks over the objects of later pages.
    pub remaining: Option<u64>,
    /// The composite version that all pages share. `None` for an inconsistent token, with which the list resumes in the
    /// present state.
    pub version: Option<CompositeResourceVersion>,
}

/// The reason why a continue token cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContinueError {
    /// The text is not a token that Tributary issued. The response is 400.
    #[error("continue key is not valid: {0}")]
    Invalid(&'static str),
    /// The token's composite version is not usable in this process. The response is 410. It contains an inconsistent
    /// token, with which the client can resume from `position` in the present state.
    #[error("the provided continue parameter cannot be used by this server")]
    Foreign {
        /// The position from which the list would have resumed.
        position: Position,
        /// The reason why the composite version is not usable.
        #[source]
        source: Foreign,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContinueTokenFields {
    cluster: ClusterName,
    after: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
}

impl ContinueToken {
    /// Creates a token without a composite version. The list resumes from the position in the present state.
    pub fn inconsistent(position: Position) -> Self {
        Self { position, remaining: None, version: None }
    }

    /// Encodes the token as clients receive it.
    pub fn encode(&self, epochs: &Epochs) -> String {
        let Position { cluster, after } = self.position.clone();
        // A struct of strings and a number always serializes.
        let json =
            serde_json::to_vec(&ContinueTokenFields { cluster, after, remaining: self.remaining }).unwrap_or_default();
        let mut text = PREFIX.to_owned();
        URL_SAFE_NO_PAD.encode_string(json, &mut text);
        if let Some(version) = &self.version {
            text.push('.');
            text.push_str(&version.encode(epochs));
        }
        text
    }

    /// Decodes a token that a client sent back.
    ///
    /// # Errors
    /// [`ContinueError`]. An unreadable token never restarts the list: a client would receive objects twice.
    pub fn decode(text: &str, epochs: &Epochs) -> Result<Self, ContinueError> {
        Self::decode_for(text, epochs, |_| true)
    }

    /// Decodes a token like [`decode`](Self::decode), for a client that may see only some clusters.
    ///
    /// # Errors
    /// The errors of [`decode`](Self::decode).
    pub fn decode_for(
        text: &str,
        epochs: &Epochs,
        may_know: impl Fn(&ClusterName) -> bool,
    ) -> Result<Self, ContinueError> {
        if text.len() > TEXT_MAX + 2 * KEY_MAX {
            return Err(ContinueError::Invalid("the token is too long"));
        }
        let rest = text
            .strip_prefix(PREFIX)
            .ok_or(ContinueError::Invalid("server does not recognize this encoded version"))?;
        let (position_text, version) = match rest.split_once('.') {
            Some((position_text, version)) => (position_text, Some(version)),
            None => (rest, None),
        };
        let (position, remaining) = decode_position(position_text)?;
        let version = version.map(|text| CompositeResourceVersion::decode_for(text, epochs, may_know)).transpose();
        match version {
            Ok(version) => Ok(Self { position, remaining, version }),
            Err(VersionDecodeError::Malformed(_)) => {
                Err(ContinueError::Invalid("incorrect encoded start resourceVersion (version v1)"))
            }
            Err(VersionDecodeError::Foreign(source)) => Err(ContinueError::Foreign { position, source }),
        }
    }
}

fn decode_position(position_text: &str) -> Result<(Position, Option<u64>), ContinueError> {
    let json = URL_SAFE_NO_PAD
        .decode(position_text)
        .map_err(|_| ContinueError::Invalid("the token is not unpadded base64url"))?;
    let text: ContinueTokenFields =
        serde_json::from_slice(&json).map_err(|_| ContinueError::Invalid("the token has no start key"))?;
    if text.after.is_empty() {
        return Err(ContinueError::Invalid("encoded start key empty (version v1)"));
    }
    if text.after.len() > KEY_MAX {
        return Err(ContinueError::Invalid("encoded start key too long (version v1)"));
    }
    Ok((Position { cluster: text.cluster, after: text.after }, text.remaining))
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ResourceVersion;

    use super::*;

    fn position() -> Position {
        Position { cluster: ClusterName::new("b").unwrap(), after: "ns/\"name\"".into() }
    }

    fn large() -> (CompositeResourceVersion, Epochs) {
        let names: Vec<_> = (0..500).map(|index| ClusterName::new(&format!("cluster-{index:04}")).unwrap()).collect();
        let mut epochs = Epochs::default();
        epochs.update(names.iter().map(|name| (name.clone(), format!("uid of {name}"))));
        (names.into_iter().map(|name| (name, ResourceVersion(1 << 30))).collect(), epochs)
    }

    #[test]
    fn continue_token_encodes_and_decodes_to_an_equal_token_in_each_form() {
        let (large, epochs) = large();
        let small: CompositeResourceVersion =
            [(ClusterName::new("b").unwrap(), ResourceVersion(7))].into_iter().collect();
        for (version, remaining) in [(None, None), (Some(small), Some(3)), (Some(large), None)] {
            let token = ContinueToken { position: position(), remaining, version };
            let text = token.encode(&epochs);
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)), "{text}");
            assert_eq!(ContinueToken::decode(&text, &epochs), Ok(token));
        }
    }

    #[test]
    fn error_for_a_continue_token_of_an_unknown_cluster_list_has_its_position() {
        let (version, epochs) = large();
        let text = ContinueToken { position: position(), remaining: None, version: Some(version) }.encode(&epochs);
        let error = ContinueToken::decode(&text, &Epochs::default()).unwrap_err();
        assert!(matches!(error, ContinueError::Foreign { position: at, .. } if at == position()));
    }

    #[test]
    fn malformed_continue_tokens_are_refused() {
        let token = |json: &str| PREFIX.to_owned() + &URL_SAFE_NO_PAD.encode(json);
        let good = token(r#"{"cluster":"a","after":"x"}"#);
        assert!(ContinueToken::decode(&good, &Epochs::default()).is_ok());
        let bad = [
            String::new(),
            "abc".into(),
            "v1.".into(),
            "v2.e30".into(),
            token("{}"),
            token(r#"{"cluster":"a"}"#),
            token(r#"{"cluster":"a","after":""}"#),
            token(r#"{"cluster":"A","after":"x"}"#),
            token(r#"{"cluster":"a","after":"x","else":1}"#),
            token(r#"{"cluster":"a","after":"x","remaining":-1}"#),
            token(&format!(r#"{{"cluster":"a","after":"{}"}}"#, "x".repeat(KEY_MAX + 1))),
            good.clone() + ".",
            good.clone() + ".abc",
            good.clone() + "=",
            good.clone() + ".e30.e30",
            "v1.".to_owned() + &"A".repeat(TEXT_MAX * 2),
        ];
        for text in bad {
            let result = ContinueToken::decode(&text, &Epochs::default());
            assert!(matches!(result, Err(ContinueError::Invalid(_))), "{text:.80}: {result:?}");
        }
        let number = ContinueToken::decode(&(good + ".12"), &Epochs::default());
        assert!(matches!(number, Err(ContinueError::Foreign { source: Foreign::Number, .. })));
    }
}
