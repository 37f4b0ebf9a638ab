//! Splits an answer's bytes into pieces.

use bytes::Bytes;

/// The size of a piece, in bytes: one HTTP/2 frame (`SETTINGS_MAX_FRAME_SIZE`, RFC 9113, 6.5.2). A client with 300
/// bytes a second reads a piece within the time limit.
///
/// If the data has at least this size, its last byte becomes a piece of its own. HTTP/2 accepts a piece as soon as the
/// client's window has capacity for one byte, so a single piece would count as read too early. HTTP/2 accepts the
/// separate last byte only after the window had capacity for all bytes before it.
pub(super) const PIECE_BYTES: usize = 16 << 10;

/// Data of an answer that is split into pieces.
#[derive(Default)]
pub(super) struct Pieces {
    rest: Bytes,
    /// The last byte of the data, if that byte is a piece of its own.
    last: Bytes,
}

impl Pieces {
    pub(super) fn new(mut data: Bytes) -> Self {
        let last = if data.len() < PIECE_BYTES { Bytes::new() } else { data.split_off(data.len() - 1) };
        Self { rest: data, last }
    }

    /// Returns the number of bytes in the remaining pieces.
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
    fn large_data_ends_with_a_piece_of_one_byte() {
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
