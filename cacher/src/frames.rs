//! Splits the body of a watch response into frames, one JSON value per line, as the bytes arrive.

use bytes::Bytes;

/// The error for a frame that exceeds the size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a watch event is larger than {limit} bytes")]
pub struct FrameTooLarge {
    /// The limit, in bytes.
    pub limit: usize,
}

/// Splits chunks of bytes into frames at newlines. A frame within one chunk is a slice of the chunk. A frame across
/// chunks is copied once.
#[derive(Debug)]
pub struct FrameSplitter {
    /// The bytes of an incomplete frame.
    partial: Vec<u8>,
    chunk: Bytes,
    limit: usize,
}

impl FrameSplitter {
    /// Creates a splitter that refuses frames of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { partial: Vec::new(), chunk: Bytes::new(), limit }
    }

    /// Adds the next chunk. The caller must have taken all frames of the previous chunk.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "the previous chunk has unread frames");
        self.chunk = chunk;
    }

    /// Returns the next complete frame, without its newline and never empty. Returns `None` when the chunk has no more
    /// complete frames.
    ///
    /// # Errors
    /// [`FrameTooLarge`], after which the stream is unusable.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameTooLarge> {
        while !self.chunk.is_empty() {
            let end = memchr::memchr(b'\n', &self.chunk);
            if self.partial.len() + end.unwrap_or(self.chunk.len()) > self.limit {
                return Err(FrameTooLarge { limit: self.limit });
            }
            let Some(end) = end else {
                self.partial.extend_from_slice(&self.chunk);
                self.chunk.clear();
                return Ok(None);
            };
            let mut frame = self.chunk.split_to(end + 1);
            frame.truncate(end);
            if !self.partial.is_empty() {
                self.partial.extend_from_slice(&frame);
                frame = std::mem::take(&mut self.partial).into();
            }
            if !frame.trim_ascii().is_empty() {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]], limit: usize) -> Result<Vec<Vec<u8>>, FrameTooLarge> {
        let mut splitter = FrameSplitter::new(limit);
        let mut frames = Vec::new();
        for chunk in chunks {
            splitter.push(Bytes::copy_from_slice(chunk));
            while let Some(frame) = splitter.next_frame()? {
                frames.push(frame.to_vec());
            }
        }
        Ok(frames)
    }

    #[test]
    fn watch_frames_do_not_depend_on_the_chunk_size() {
        let text = b"{\"a\":1}\n\n{\"b\":\"x\"}\r\n \n{}\n{\"cut";
        let whole = split(&[text], 100).unwrap();
        assert_eq!(whole, [b"{\"a\":1}".to_vec(), b"{\"b\":\"x\"}\r".to_vec(), b"{}".to_vec()]);
        for first in 0..text.len() {
            for second in first..text.len() {
                let chunks = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(split(&chunks, 100).unwrap(), whole, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn oversized_watch_frame_is_refused_before_its_end() {
        assert_eq!(split(&[b"12345\n"], 5).unwrap().len(), 1);
        assert_eq!(split(&[b"123456\n"], 5), Err(FrameTooLarge { limit: 5 }));
        assert_eq!(split(&[b"123", b"456"], 5), Err(FrameTooLarge { limit: 5 }));
        assert_eq!(split(&[b"1234", b"5\n1"], 5).unwrap().len(), 1);
    }
}
