//! Formats certificates as PEM (RFC 7468).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Formats DER certificates as PEM.
pub(crate) fn certificates<'a>(certificates: impl IntoIterator<Item = &'a [u8]>) -> String {
    let block = |der: &[u8]| {
        let text = STANDARD.encode(der);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    certificates.into_iter().map(block).collect()
}
