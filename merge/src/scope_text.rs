//! The scope of a resourceVersion or continue token: a hash of the user's access rights, as a prefix of the text.
//!
//! ```text
//! s1.<base64url of the first 16 bytes of a hash>.<the version, or the token, in any of its forms>
//! ```
//!
//! A user with full rights in all clusters gets versions without a scope. Such a version has the same text on each
//! replica and for each such user. The base64url alphabet has no dot, so no other form has this prefix.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::decode_error::VersionDecodeError;

/// The prefix of a text with a scope. The digit is the version of the scope's layout.
const PREFIX: &str = "s1.";

/// Returns the prefix for a scope; empty for a user with full rights.
pub fn scope_prefix(scope: Option<[u8; 16]>) -> String {
    scope.map(|hash| format!("{PREFIX}{}.", URL_SAFE_NO_PAD.encode(hash))).unwrap_or_default()
}

/// Splits a text into its scope and the version or token.
///
/// # Errors
/// [`VersionDecodeError::Malformed`] for a scope that Tributary did not issue.
pub fn split_scope(text: &str) -> Result<(Option<[u8; 16]>, &str), VersionDecodeError> {
    const SHAPE: VersionDecodeError = VersionDecodeError::Malformed("the scope in the text is invalid");
    let Some(rest) = text.strip_prefix(PREFIX) else { return Ok((None, text)) };
    let (hash, rest) = rest.split_once('.').ok_or(SHAPE)?;
    let hash = URL_SAFE_NO_PAD.decode(hash).ok().and_then(|hash| hash.try_into().ok()).ok_or(SHAPE)?;
    // A text has at most one scope, in its canonical spelling.
    if rest.starts_with(PREFIX) { Err(SHAPE) } else { Ok((Some(hash), rest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_prefix_of_a_version_decodes_to_its_scope_or_is_refused_if_malformed() {
        let scope = Some(*b"0123456789abcdef");
        for text in ["eyJhIjoiMSJ9", "c1.AAAA", "v1.e30.c1.AAAA", ""] {
            assert_eq!(split_scope(&format!("{}{text}", scope_prefix(scope))), Ok((scope, text)));
            assert_eq!(split_scope(&format!("{}{text}", scope_prefix(None))), Ok((None, text)));
        }
        let twice = format!("{0}{0}x", scope_prefix(scope));
        for bad in
            ["s1.", "s1.AAAA", "s1.AAAA.x", "s1.MDEyMzQ1Njc4OWFiY2RlZg==.x", "s1.MDEyMzQ1Njc4OWFiY2RlZh.x", &twice]
        {
            assert!(split_scope(bad).is_err(), "{bad}");
        }
    }
}
