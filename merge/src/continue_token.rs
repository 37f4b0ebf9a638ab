//! The continue token of a paged list: where the next page starts, and at which vector.
//!
//! ```text
//! v1.<base64url of {"cluster":"a","after":"ns/name","remaining":7}>[.<composite resourceVersion>]
//! ```
//!
//! The vector keeps its own text (either form) instead of being wrapped in base64 again, which would cost a third
//! more. A token without a vector is *inconsistent*: it goes out with a 410 in `metadata.continue` and carries on
//! after the last key in the present state, as kube-apiserver's tokens with resourceVersion −1 do
//! (`pkg/storage/continue.go`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterName;

use crate::Epochs;
use crate::composite::CompositeResourceVersion;
use crate::decode_error::{Foreign, VersionDecodeError};
use crate::version_text::TEXT_MAX;

/// What every token begins with; the digit is the version of the layout.
const PREFIX: &str = "v1.";

/// The longest key, in bytes: a namespace of 63 and a name of 253, and room for kinds with laxer names.
const KEY_MAX: usize = 1024;

/// A place between two objects of a merged list: clusters by name, objects of each by key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The cluster in which the list goes on; those before it are done.
    pub cluster: ClusterName,
    /// The last key of that cluster that is done.
    pub after: Box<str>,
}

/// A decoded continue token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// Where the next page starts.
    pub position: Position,
    /// How many objects are still to come, if the list has no selectors. Counting once and subtracting spares each page
    /// a walk over all that follows.
    pub remaining: Option<u64>,
    /// The vector that all pages share; `None` for an inconsistent token.
    pub version: Option<CompositeResourceVersion>,
}

/// Why a continue token cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContinueError {
    /// No token that anybody handed out: 400.
    #[error("continue key is not valid: {0}")]
    Invalid(&'static str),
    /// A token whose vector has no meaning here: 410, with an inconsistent token for `position`.
    #[error("the provided continue parameter cannot be honoured here")]
    Foreign {
        /// Where the list would have gone on.
        position: Position,
        /// What is the matter with the vector.
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
    /// The token that goes on from a position in the present state.
    pub fn inconsistent(position: Position) -> Self {
        Self { position, remaining: None, version: None }
    }

    /// The text that clients are given.
    pub fn encode(&self, epochs: &Epochs) -> String {
        let Position { cluster, after } = self.position.clone();
        // A struct of texts and a number always serializes.
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

    /// Reads a text that a client sent back.
    ///
    /// # Errors
    /// [`ContinueError`]: a token that cannot be read is never a list from the start.
    pub fn decode(text: &str, epochs: &Epochs) -> Result<Self, ContinueError> {
        Self::decode_told(text, epochs, |_| true)
    }

    /// Decodes as [`decode`](Self::decode) for a reader who may know some clusters only.
    ///
    /// # Errors
    /// As of [`decode`](Self::decode).
    pub fn decode_told(
        text: &str,
        epochs: &Epochs,
        is_told: impl Fn(&ClusterName) -> bool,
    ) -> Result<Self, ContinueError> {
        if text.len() > TEXT_MAX + 2 * KEY_MAX {
            return Err(ContinueError::Invalid("it is too long"));
        }
        let rest = text
            .strip_prefix(PREFIX)
            .ok_or(ContinueError::Invalid("server does not recognize this encoded version"))?;
        let (place, version) = match rest.split_once('.') {
            Some((place, version)) => (place, Some(version)),
            None => (rest, None),
        };
        let (position, remaining) = decode_place(place)?;
        let version = version.map(|text| CompositeResourceVersion::decode_told(text, epochs, is_told)).transpose();
        match version {
            Ok(version) => Ok(Self { position, remaining, version }),
            Err(VersionDecodeError::Malformed(_)) => {
                Err(ContinueError::Invalid("incorrect encoded start resourceVersion (version v1)"))
            }
            Err(VersionDecodeError::Foreign(source)) => Err(ContinueError::Foreign { position, source }),
        }
    }
}

fn decode_place(place: &str) -> Result<(Position, Option<u64>), ContinueError> {
    let json = URL_SAFE_NO_PAD.decode(place).map_err(|_| ContinueError::Invalid("it is not unpadded base64url"))?;
    let text: ContinueTokenFields =
        serde_json::from_slice(&json).map_err(|_| ContinueError::Invalid("it does not say where to continue"))?;
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
    fn round_trips_in_every_form() {
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
    fn a_vector_of_an_unknown_epoch_keeps_the_position() {
        let (version, epochs) = large();
        let text = ContinueToken { position: position(), remaining: None, version: Some(version) }.encode(&epochs);
        let error = ContinueToken::decode(&text, &Epochs::default()).unwrap_err();
        assert!(matches!(error, ContinueError::Foreign { position: at, .. } if at == position()));
    }

    #[test]
    fn garbage_is_refused() {
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
