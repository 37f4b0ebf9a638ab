//! gzip of large answers.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/responsewriters/writers.go`: answers above 128 KiB, level 1, never
//! watches.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// The size from which an answer is compressed, in bytes.
pub const THRESHOLD_BYTES: usize = 128 << 10;

/// kube-apiserver's level: about 150 MB/s, and half the bytes that level 6 would save at a tenth of its cost.
const LEVEL: Compression = Compression::new(1);

/// Compresses an answer chunk by chunk.
pub struct Gzip {
    encoder: GzEncoder<Vec<u8>>,
}

impl Default for Gzip {
    fn default() -> Self {
        Self { encoder: GzEncoder::new(Vec::new(), LEVEL) }
    }
}

impl Gzip {
    /// Takes a chunk, and gives what is ready to be sent: often nothing.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        // Writing to memory cannot fail.
        let _ = self.encoder.write_all(chunk);
        std::mem::take(self.encoder.get_mut())
    }

    /// Ends the stream and gives the rest.
    pub fn finish(self) -> Vec<u8> {
        self.encoder.finish().unwrap_or_default()
    }
}

/// Compresses a whole answer.
pub fn whole(text: &[u8]) -> Vec<u8> {
    let mut gzip = Gzip::default();
    let mut out = gzip.push(text);
    out.extend(gzip.finish());
    out
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn chunks_make_one_member() {
        let text: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
        let mut gzip = Gzip::default();
        let mut out = Vec::new();
        for chunk in text.chunks(65_536) {
            out.extend(gzip.push(chunk));
        }
        out.extend(gzip.finish());
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&out[..]).read_to_end(&mut back).unwrap();
        assert!(back == text && out.len() < text.len() / 4);
    }
}
