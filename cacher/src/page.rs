//! The body of a list, or of a page of a list, while it is being read.

use std::io::{self, Write};
use std::time::Duration;

use flate2::write::MultiGzDecoder;
use tokio::time::Instant;
use tributary_apimachinery::body::Body;

use crate::list_stream::ListError;

/// The number of compressed bytes that are decompressed at once. 4 KiB: gzip expands 1 KB to at most 1 MB, so at most 4
/// MB of decompressed text wait for the parser.
const EXPANDED_AT_ONCE: usize = 4 << 10;

pub(crate) struct Page {
    pub(crate) body: Body,
    pub(crate) requested_token: Option<String>,
    /// The time at which the request was sent.
    pub(crate) started_at: Instant,
    pub(crate) text: BodyDecoder,
}

impl Page {
    pub(crate) fn took(&self) -> Duration {
        self.started_at.elapsed()
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// The body is not gzip, or is damaged.
    #[error("the compressed list cannot be read")]
    Gzip(#[source] io::Error),
    #[error(transparent)]
    List(#[from] ListError),
}

/// Decompresses the bytes of a body.
pub(crate) enum BodyDecoder {
    Plain,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
}

impl BodyDecoder {
    pub(crate) fn new(gzip: bool) -> Self {
        if gzip { Self::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))) } else { Self::Plain }
    }

    /// Decodes the next bytes of the body, and calls `take` with each part of the decoded text.
    ///
    /// # Errors
    /// The error of `take`, or an error for bytes that are not gzip.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), ListError>,
    ) -> Result<(), PageError> {
        let Self::Gzip(decoder) = self else { return Ok(take(bytes)?) };
        for piece in bytes.chunks(EXPANDED_AT_ONCE) {
            decoder.write_all(piece).map_err(PageError::Gzip)?;
            take(decoder.get_ref())?;
            decoder.get_mut().clear();
        }
        Ok(())
    }

    /// Calls `take` with the remaining text, after the last bytes of the body.
    ///
    /// # Errors
    /// The error of `take`, or an error for bytes that end early or have a wrong checksum.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(&[u8]) -> Result<(), ListError>) -> Result<(), PageError> {
        let Self::Gzip(decoder) = self else { return Ok(()) };
        decoder.try_finish().map_err(PageError::Gzip)?;
        Ok(take(decoder.get_ref())?)
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// Decodes the gzip body `bytes`, which arrives in chunks of `size` bytes.
    fn read(bytes: &[u8], size: usize) -> Result<Vec<u8>, PageError> {
        let (mut text, mut out) = (BodyDecoder::new(true), Vec::new());
        for piece in bytes.chunks(size) {
            text.push(piece, |text| {
                out.extend_from_slice(text);
                Ok(())
            })?;
        }
        text.finish(|text| {
            out.extend_from_slice(text);
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn gzip_body_is_decoded_whatever_the_chunk_size() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|number| (number % 251).to_le_bytes()).collect();
        let bytes = gzip(&text);
        for size in [1, 7, 4096, 1 << 20] {
            assert_eq!(read(&bytes, size).unwrap(), text, "in pieces of {size}");
        }
        let cut = read(&bytes[..bytes.len() / 2], 4096).unwrap_err();
        assert!(matches!(cut, PageError::Gzip(_)), "{cut}");
        assert!(matches!(read(b"{\"items\":[]}", 4096), Err(PageError::Gzip(_))));
    }

    #[test]
    fn gzip_body_is_decompressed_in_bounded_pieces() {
        let bytes = gzip(&vec![b' '; 64 << 20]);
        let (mut text, mut longest, mut all) = (BodyDecoder::new(true), 0, 0);
        let mut take = |text: &[u8]| {
            longest = text.len().max(longest);
            all += text.len();
            Ok(())
        };
        text.push(&bytes, &mut take).unwrap();
        text.finish(&mut take).unwrap();
        assert_eq!(all, 64 << 20);
        assert!(longest <= 1200 * EXPANDED_AT_ONCE, "{longest}");
    }
}
