//! The token of personal mode. The token is random, and stays the same after a restart, so that kubeconfigs stay valid.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tributary_sources::data_directory::{DataDirectory, DataDirectoryError};

/// The file of the bearer token.
const TOKEN_FILE: &str = "token";
/// The file of the token as a header, for `curl -H @FILE`, because other users can read command lines.
const HEADER_FILE: &str = "authorization-header";
/// The length of the token, in bytes. A random token of 256 bits cannot be guessed.
const TOKEN_BYTES: usize = 32;

/// The reason why the token cannot be read or created.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The token's file cannot be read or written.
    #[error("the client credential is not available")]
    File(#[from] DataDirectoryError),
    /// The content of the token's file is not a valid token.
    #[error("{0} has no token of Tributary; delete the file, and Tributary makes a new one")]
    Malformed(std::path::PathBuf),
}

/// The bearer token. Its `Debug` form hides the token.
#[derive(Clone)]
pub struct BearerToken(String);

impl BearerToken {
    /// Reads the token of a data directory, or creates one.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn open(directory: &DataDirectory) -> Result<Self, TokenError> {
        let bytes = directory.read_or_create(TOKEN_FILE, || Self::random().0.into_bytes())?;
        let token = Self::parse(&bytes).ok_or_else(|| TokenError::Malformed(directory.file(TOKEN_FILE)))?;
        directory.write(HEADER_FILE, format!("Authorization: Bearer {}\n", token.0).as_bytes())?;
        Ok(token)
    }

    /// Creates a random bearer token.
    pub fn random() -> Self {
        Self(URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>()))
    }

    /// Returns the path of the header file for `curl -H @FILE`.
    pub fn header_file(directory: &DataDirectory) -> std::path::PathBuf {
        directory.file(HEADER_FILE)
    }

    /// Returns the token as text, to be written into a kubeconfig.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the digest of the token, which the server stores.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest::from_token(self.0.as_bytes())
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim_end();
        let decoded = URL_SAFE_NO_PAD.decode(text).ok()?;
        (decoded.len() == TOKEN_BYTES).then(|| Self(text.to_owned()))
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(hidden)")
    }
}

/// The SHA-256 of a token. Tokens are compared by digest, so the duration of a comparison reveals nothing about the
/// token.
#[derive(Clone, Copy)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Computes the SHA-256 digest of a token.
    pub fn from_token(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Returns whether a presented token has this digest.
    pub fn matches(&self, presented: &[u8]) -> bool {
        let presented = Self::from_token(presented);
        let difference = self.0.iter().zip(&presented.0).fold(0, |difference, (a, b)| difference | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn personal_token_survives_restarts() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
        let first = BearerToken::open(&directory).unwrap();
        let second = BearerToken::open(&directory).unwrap();
        assert_eq!(first.expose(), second.expose());
        assert_eq!(first.expose().len(), 43);
        assert!(first.digest().matches(second.expose().as_bytes()));
        assert!(!first.digest().matches(BearerToken::random().expose().as_bytes()));
        assert!(!first.digest().matches(b""));
        assert_eq!(format!("{first:?}"), "BearerToken(hidden)");
        let header = std::fs::read_to_string(BearerToken::header_file(&directory)).unwrap();
        assert_eq!(header, format!("Authorization: Bearer {}\n", first.expose()));
    }

    #[test]
    fn error_for_a_damaged_token_file_contains_the_remedy() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
        directory.write(TOKEN_FILE, b"short").unwrap();
        assert!(BearerToken::open(&directory).unwrap_err().to_string().contains("delete the file"));
    }
}
