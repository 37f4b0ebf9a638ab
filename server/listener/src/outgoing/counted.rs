//! Counts the bytes of an answer until the socket has accepted them.

use std::sync::Arc;

use bytes::Bytes;

use super::capacity::ConnectionCapacity;

/// The size, in bytes, from which a piece of an answer is counted until the socket has accepted the piece. A smaller
/// piece, such as a watch event, is added to the count of the next large piece of the same answer. The uncounted bytes,
/// less than 1 KiB, are few compared with the memory of the stream itself.
const COUNTED_BYTES: usize = 1 << 10;

/// The least count of a piece, in bytes: HTTP/2's own memory for a queued piece. Without this minimum, a member that
/// sends its answers in tiny pieces could occupy much more memory than is counted.
const PIECE_COST_MIN: usize = 256;

/// Counted unread bytes of a connection. Dropping this value subtracts them. A `Permit` is not used, because it would
/// allocate a box for each piece of an answer.
pub(super) struct Counted {
    capacity: Arc<ConnectionCapacity>,
    bytes: usize,
}

impl Counted {
    pub(super) fn new(capacity: &Arc<ConnectionCapacity>, bytes: usize) -> Self {
        capacity.add(bytes);
        Self { capacity: Arc::clone(capacity), bytes }
    }

    /// Counts these unread bytes if the connection has capacity for them. Otherwise returns `None`.
    pub(super) fn try_new(capacity: &Arc<ConnectionCapacity>, bytes: usize) -> Option<Self> {
        capacity.try_add(bytes).then(|| Self { capacity: Arc::clone(capacity), bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Wraps the data of a piece, so that its bytes are counted until the last reference to the data is dropped.
    pub(super) fn count_until_dropped(self, data: Bytes) -> Bytes {
        Bytes::from_owner(CountedBytes { data, _counted: self })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.capacity.remove(self.bytes);
    }
}

struct CountedBytes {
    data: Bytes,
    _counted: Counted,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Counts the pieces of one answer. A request for the next piece shows that HTTP/2 has accepted the previous one.
#[derive(Default)]
pub(super) struct CountedPieces {
    /// The bytes of small pieces since the last large piece. These bytes are added to the count of the next large
    /// piece.
    small: usize,
    /// The count of the answer's last piece, if that piece is small.
    last: Option<Counted>,
}

impl CountedPieces {
    /// Begins to count a piece of an answer, and returns its data for the connection.
    pub(super) fn count_piece(&mut self, capacity: &Arc<ConnectionCapacity>, data: Bytes) -> Bytes {
        let costs = data.len().max(PIECE_COST_MIN);
        let with_small = self.small + costs;
        if with_small < COUNTED_BYTES {
            self.small = with_small;
            self.last = Some(Counted::new(capacity, costs));
            return data;
        }
        // When the socket has accepted this piece, it has also accepted all earlier small pieces, because it accepts a
        // stream's pieces in order. So this piece's count includes them.
        self.small = 0;
        Counted::new(capacity, with_small).count_until_dropped(data)
    }

    /// Ends the count of the last small piece: HTTP/2 has accepted the piece, or the answer has ended.
    pub(super) fn release(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;
    use crate::settings::UNREAD_BYTES_MAX;
    use crate::unread::Unread;

    #[test]
    fn small_answer_pieces_are_counted_until_the_socket_accepts_them() {
        let unread = Gauge::default();
        let capacity = Arc::new(ConnectionCapacity::new(Unread::new(unread.clone(), UNREAD_BYTES_MAX)));
        let counted = || usize::try_from(unread.get()).unwrap();
        let mut pieces = CountedPieces::default();
        let given: Vec<_> = (0..32)
            .map(|_| {
                pieces.release();
                pieces.count_piece(&capacity, vec![b'x'; 500].into())
            })
            .collect();
        pieces.release();
        let all: usize = given.iter().map(Bytes::len).sum();
        assert!((all - COUNTED_BYTES..=all).contains(&counted()), "of {all} bytes {} are counted", counted());
        drop(given);
        assert_eq!(counted(), 0);
    }
}
