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

/// kube-apiserver's level: about 150 MB/s, and half the bytes that level 6 would save at a tenth of its cost.
const LEVEL: Compression = Compression::new(1);

/// RFC 1952 §2.3: magic, deflate, no flags, no time, fastest, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];

/// Size of the text of a frame, in bytes. 256 KiB: a millisecond of work, after which other answers take their turn.
const TEXT_BYTES: usize = 256 << 10;

/// Compresses an answer frame by frame.
///
/// Each frame is a run of deflate blocks of its own that ends at a whole byte, so only a checksum is kept between
/// frames. A compressor takes some 300 KiB, and thousands of readers may be slow, so there are as many compressors as
/// threads. A frame starts without a dictionary, which costs one or two per cent.
#[derive(Default)]
pub struct Gzip {
    crc: Crc,
    begun: bool,
}

/// A frame that is being made.
pub struct Frame<'a> {
    crc: &'a mut Crc,
    compressor: Compressor,
    text_bytes: usize,
}

impl Gzip {
    /// Begins the next frame.
    pub fn frame(&mut self) -> Frame<'_> {
        let header: &[u8] = if std::mem::replace(&mut self.begun, true) { &[] } else { &HEADER };
        Frame { crc: &mut self.crc, compressor: Compressor::with_header(header), text_bytes: 0 }
    }
}

impl Frame<'_> {
    /// Takes a chunk of the answer.
    pub fn push(&mut self, chunk: &[u8]) {
        self.crc.update(chunk);
        self.text_bytes += chunk.len();
        self.compressor.push(chunk);
    }

    /// Whether the frame is large enough, or has taken enough time.
    pub fn is_full(&self) -> bool {
        let bytes = self.compressor.0.as_ref().map_or(0, |deflate| deflate.get_ref().len());
        bytes >= FRAME_BYTES || self.text_bytes >= TEXT_BYTES
    }

    /// Ends the frame: more will follow.
    pub fn end(self) -> Vec<u8> {
        self.compressor.end(|deflate| deflate.flush())
    }

    /// Ends the frame and the whole answer.
    pub fn finish(self) -> Vec<u8> {
        let mut out = self.compressor.end(DeflateEncoder::try_finish);
        out.extend_from_slice(&self.crc.sum().to_le_bytes());
        out.extend_from_slice(&self.crc.amount().to_le_bytes());
        out
    }
}

type Deflate = DeflateEncoder<Vec<u8>>;

/// Idle compressors. A thousand lists at once made and freed so many of them that the allocator kept 60 MB.
static IDLE: Mutex<Vec<Deflate>> = Mutex::new(Vec::new());

/// Number of idle compressors, of some 300 KiB each. More threads than 8 do not compress at the same time for long.
const IDLE_MAX: usize = 8;

/// A compressor that returns to [`IDLE`] on drop, also when the reader of an answer goes away.
struct Compressor(Option<Deflate>);

// Writing to memory cannot fail.
impl Compressor {
    /// Returns an idle or new compressor with this header at the start of its output.
    fn with_header(header: &[u8]) -> Self {
        let idle = IDLE.lock().pop();
        let mut deflate = idle.unwrap_or_else(|| DeflateEncoder::new(Vec::new(), LEVEL));
        deflate.get_mut().extend_from_slice(header);
        Self(Some(deflate))
    }

    fn push(&mut self, chunk: &[u8]) {
        let _ = self.0.as_mut().map(|deflate| deflate.write_all(chunk));
    }

    /// Everything written, once `end` has had the rest written.
    fn end(mut self, end: impl FnOnce(&mut Deflate) -> std::io::Result<()>) -> Vec<u8> {
        let Some(deflate) = &mut self.0 else { return Vec::new() };
        let _ = end(deflate);
        std::mem::take(deflate.get_mut())
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        let Some(mut deflate) = self.0.take() else { return };
        // Ends its stream into memory that is thrown away, and begins a new one.
        if deflate.reset(Vec::new()).is_ok() {
            let mut idle = IDLE.lock();
            if idle.len() < IDLE_MAX {
                idle.push(deflate);
            }
        }
    }
}

/// Compresses a whole answer.
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
    fn frames_make_one_member() {
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
    fn empty_and_whole_answers_are_members() {
        assert_eq!(decompressed(&whole(b"")), b"");
        assert_eq!(decompressed(&whole(b"text")), b"text");
    }
}
