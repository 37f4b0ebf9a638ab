//! An answer's bytes, a piece at a time.

use bytes::Bytes;

/// What is given at once, in bytes: what HTTP/2 has in a frame (`SETTINGS_MAX_FRAME_SIZE`, RFC 9113, 6.5.2). A client
/// that reads slowly takes one in time: 300 bytes a second are enough.
///
/// Of what is as long as that the last byte is given on its own. HTTP/2 takes a piece as soon as there is room for one
/// byte of it, and the answer would be done with; that the last byte is taken says that there was room for the rest.
pub(super) const PIECE_BYTES: usize = 16 << 10;

/// Bytes that are given piece by piece.
#[derive(Default)]
pub(super) struct Pieces {
    rest: Bytes,
    /// The last byte, if it is given on its own.
    last: Bytes,
}

impl Pieces {
    pub(super) fn new(mut data: Bytes) -> Self {
        let last = if data.len() < PIECE_BYTES { Bytes::new() } else { data.split_off(data.len() - 1) };
        Self { rest: data, last }
    }

    /// How many bytes are not given yet.
    pub(super) fn len(&self) -> usize {
        self.rest.len() + self.last.len()
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let of = if self.rest.is_empty() { &mut self.last } else { &mut self.rest };
        let piece = of.split_to(of.len().min(PIECE_BYTES));
        (!piece.is_empty()).then_some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_taken_says_that_the_others_are() {
        let lengths = |bytes: usize| Pieces::new(vec![b'x'; bytes].into()).map(|piece| piece.len()).collect::<Vec<_>>();
        assert_eq!(lengths(0), [0; 0]);
        assert_eq!(lengths(100), [100]);
        assert_eq!(lengths(PIECE_BYTES), [PIECE_BYTES - 1, 1]);
        assert_eq!(lengths(2 * PIECE_BYTES + 2), [PIECE_BYTES, PIECE_BYTES, 1, 1]);
        let mut pieces = Pieces::new(vec![b'x'; PIECE_BYTES + 5].into());
        pieces.next();
        assert_eq!(pieces.len(), 5);
    }
}
