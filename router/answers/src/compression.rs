//! gzip of large answers.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/responsewriters/writers.go`:
//! answers above 128 KiB, level 1, never watches.

use std::io::Write;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use parking_lot::Mutex;

use tributary_sharing::body::FRAME_BYTES;

/// The size from which an answer is compressed, in bytes.
pub const THRESHOLD_BYTES: usize = 128 << 10;

/// kube-apiserver's compression level. Level 1 compresses about 150 MB/s. Level 6 takes ten times as long and saves
/// twice as many bytes.
const LEVEL: Compression = Compression::new(1);

/// gzip header by RFC 1952 §2.3: magic bytes, deflate, no flags, no time, fastest level, unknown operating system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];

/// Maximum of uncompressed text in a frame, in bytes. The compression of 256 KiB takes a millisecond, and other answers
/// get the CPU between two frames.
const TEXT_BYTES: usize = 256 << 10;

/// Compresses an answer frame by frame.
///
/// Each frame consists of complete deflate blocks and ends at a whole byte, so only a checksum stays in memory between
/// frames. A compressor takes about 300 KiB, and thousands of clients may read slowly. Therefore an answer has a
/// compressor only while it writes a frame, and then returns the compressor to a pool. A frame starts without the text
/// of earlier frames as a dictionary, so the result is one or two per cent larger.
#[derive(Default)]
pub struct Gzip {
    crc: Crc,
    begun: bool,
}

/// A frame of a compressed answer, to which the caller adds chunks.
pub struct Frame<'a> {
    crc: &'a mut Crc,
    compressor: Compressor,
    text_bytes: usize,
}

impl Gzip {
    /// Begins the next frame of the compressed answer.
    pub fn frame(&mut self) -> Frame<'_> {
        let header: &[u8] = if std::mem::replace(&mut self.begun, true) { &[] } else { &HEADER };
        Frame { crc: &mut self.crc, compressor: Compressor::with_header(header), text_bytes: 0 }
    }
}

impl Frame<'_> {
    /// Compresses a chunk of the answer into the frame.
    pub fn push(&mut self, chunk: &[u8]) {
        self.crc.update(chunk);
        self.text_bytes += chunk.len();
        self.compressor.push(chunk);
    }

    /// Returns whether the frame has reached its maximum of compressed or of uncompressed bytes.
    pub fn is_full(&self) -> bool {
        let bytes = self.compressor.0.as_ref().map_or(0, |deflate| deflate.get_ref().len());
        bytes >= FRAME_BYTES || self.text_bytes >= TEXT_BYTES
    }

    /// Ends a frame that is not the last one, and returns its compressed bytes.
    pub fn end(self) -> Vec<u8> {
        self.compressor.end(|deflate| deflate.flush())
    }

    /// Ends the last frame of the answer, and returns its compressed bytes with the gzip trailer.
    pub fn finish(self) -> Vec<u8> {
        let mut out = self.compressor.end(DeflateEncoder::try_finish);
        out.extend_from_slice(&self.crc.sum().to_le_bytes());
        out.extend_from_slice(&self.crc.amount().to_le_bytes());
        out
    }
}

type Deflate = DeflateEncoder<Vec<u8>>;

/// Pool of idle compressors. Without the pool, each list allocates a new compressor, and a thousand concurrent lists
/// made the allocator keep 60 MB.
static IDLE: Mutex<Vec<Deflate>> = Mutex::new(Vec::new());

/// Maximum number of idle compressors, each of about 300 KiB. More than 8 threads rarely compress at the same time.
const IDLE_MAX: usize = 8;

/// A compressor that returns to the pool [`IDLE`] on drop, even if the client has cancelled the answer.
struct Compressor(Option<Deflate>);

// The compressor writes to memory, which cannot fail. So the methods ignore errors.
impl Compressor {
    fn with_header(header: &[u8]) -> Self {
        let idle = IDLE.lock().pop();
        let mut deflate = idle.unwrap_or_else(|| DeflateEncoder::new(Vec::new(), LEVEL));
        deflate.get_mut().extend_from_slice(header);
        Self(Some(deflate))
    }

    fn push(&mut self, chunk: &[u8]) {
        let _ = self.0.as_mut().map(|deflate| deflate.write_all(chunk));
    }

    fn end(mut self, end: impl FnOnce(&mut Deflate) -> std::io::Result<()>) -> Vec<u8> {
        let Some(deflate) = &mut self.0 else { return Vec::new() };
        let _ = end(deflate);
        std::mem::take(deflate.get_mut())
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        let Some(mut deflate) = self.0.take() else { return };
        // `reset` writes the end of the old stream into the old buffer, which is dropped, and begins a new stream.
        if deflate.reset(Vec::new()).is_ok() {
            let mut idle = IDLE.lock();
            if idle.len() < IDLE_MAX {
                idle.push(deflate);
            }
        }
    }
}

/// Compresses an answer that is already complete in memory.
pub fn whole(text: &[u8]) -> Vec<u8> {
    let mut gzip = Gzip::default();
    let mut frame = gzip.frame();
    frame.push(text);
    frame.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn decompressed(text: &[u8]) -> Vec<u8> {
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(text).read_to_end(&mut back).unwrap();
        back
    }

    #[test]
    fn gzip_frames_form_one_valid_stream() {
        let text: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 28) as u8).collect();
        let (mut gzip, mut out, mut frames) = (Gzip::default(), Vec::new(), 0);
        let mut frame = gzip.frame();
        for chunk in text.chunks(65_536) {
            if frame.is_full() {
                out.extend(frame.end());
                frames += 1;
                frame = gzip.frame();
            }
            frame.push(chunk);
        }
        out.extend(frame.finish());
        assert!(frames > 5 && out.len() < text.len() * 2 / 3, "{frames} frames of {} bytes", out.len());
        assert!(decompressed(&out) == text);
    }

    #[test]
    fn gzip_of_an_empty_or_whole_answer_is_valid() {
        assert_eq!(decompressed(&whole(b"")), b"");
        assert_eq!(decompressed(&whole(b"text")), b"text");
    }
}
