//! The scope of a version or continue token, as its text carries it.
//!
//! ```text
//! s1.<base64url of the first 16 bytes of a hash>.<the version, or the token, in any of its forms>
//! ```
//!
//! Whoever may see everything in the clusters that a version names gets it without one, so that it is the same text on
//! every replica and for everybody. A dot is no letter of base64url, so no other form begins like this.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::decode_error::VersionDecodeError;

/// What a text with a scope begins with; the digit is the version of the layout.
const PREFIX: &str = "s1.";

/// What stands before the text of a version that was made under a scope; nothing for everything.
pub fn scope_prefix(scope: Option<[u8; 16]>) -> String {
    scope.map(|hash| format!("{PREFIX}{}.", URL_SAFE_NO_PAD.encode(hash))).unwrap_or_default()
}

/// The scope of a text, and the text without it.
///
/// # Errors
/// [`VersionDecodeError::Malformed`] for a scope that nobody wrote.
pub fn split_scope(text: &str) -> Result<(Option<[u8; 16]>, &str), VersionDecodeError> {
    const SHAPE: VersionDecodeError = VersionDecodeError::Malformed("its scope is not one");
    let Some(rest) = text.strip_prefix(PREFIX) else { return Ok((None, text)) };
    let (hash, rest) = rest.split_once('.').ok_or(SHAPE)?;
    let hash = URL_SAFE_NO_PAD.decode(hash).ok().and_then(|hash| hash.try_into().ok()).ok_or(SHAPE)?;
    // One scope, in its one spelling.
    if rest.starts_with(PREFIX) { Err(SHAPE) } else { Ok((Some(hash), rest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_comes_back_and_garbage_does_not() {
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
