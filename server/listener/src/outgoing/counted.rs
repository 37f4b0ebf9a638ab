//! What an answer is given, as it is counted until the socket has it.

use std::sync::Arc;

use bytes::Bytes;

use super::room::ConnectionRoom;

/// From how much on what an answer is given is counted until the socket has it, in bytes. Small pieces, as watch events
/// are, add up to that, and the one that completes it counts for all. 1 KiB: what is less is a small part of what a
/// stream costs by itself.
const COUNTED_BYTES: usize = 1 << 10;

/// What a piece of an answer counts at least, in bytes, however little it brings: what HTTP/2 keeps beside it until the
/// socket has it. A member decides how small the pieces of its answers are.
const PIECE_COSTS: usize = 256;

/// Bytes that were given and are not taken, as they are counted. Taken when dropped. No `Permit`, which costs a box:
/// there is one for each piece of an answer.
pub(super) struct Counted {
    room: Arc<ConnectionRoom>,
    bytes: usize,
}

impl Counted {
    pub(super) fn new(room: &Arc<ConnectionRoom>, bytes: usize) -> Self {
        room.add(bytes);
        Self { room: Arc::clone(room), bytes }
    }

    /// The same, if there is room for more now; else nothing is counted.
    pub(super) fn if_room(room: &Arc<ConnectionRoom>, bytes: usize) -> Option<Self> {
        room.add_if_room(bytes).then(|| Self { room: Arc::clone(room), bytes })
    }

    /// How many these are.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// This data as it is to be passed on: they are counted until the last piece of it is dropped.
    pub(super) fn until_dropped(self, data: Bytes) -> Bytes {
        Bytes::from_owner(CountedBytes { data, _counted: self })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.room.remove(self.bytes);
    }
}

/// Bytes that are counted as long as any part of them is there.
struct CountedBytes {
    data: Bytes,
    _counted: Counted,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// The pieces of one answer, of which the last is given and the one before it is taken.
#[derive(Default)]
pub(super) struct CountedPieces {
    /// What was given in pieces too small to be counted until the socket has them, in bytes,
    /// since one was that counts for them.
    small: usize,
    /// Counts the last one, where the bytes themselves do not.
    last: Option<Counted>,
}

impl CountedPieces {
    /// Counts these bytes from now on, and gives them as they are to be passed on.
    pub(super) fn give(&mut self, room: &Arc<ConnectionRoom>, data: Bytes) -> Bytes {
        let costs = data.len().max(PIECE_COSTS);
        let with_small = self.small + costs;
        if with_small < COUNTED_BYTES {
            self.small = with_small;
            self.last = Some(Counted::new(room, costs));
            return data;
        }
        // A stream's pieces go one after another: when the socket has this one, it has those before.
        self.small = 0;
        Counted::new(room, with_small).until_dropped(data)
    }

    /// The last one is taken, or on its way, or will never be.
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
    fn small_pieces_are_counted_until_the_socket_has_them() {
        let unread = Gauge::default();
        let room = Arc::new(ConnectionRoom::new(Unread::new(unread.clone(), UNREAD_BYTES_MAX)));
        let counted = || usize::try_from(unread.get()).unwrap();
        let mut pieces = CountedPieces::default();
        let given: Vec<_> = (0..32)
            .map(|_| {
                pieces.release();
                pieces.give(&room, vec![b'x'; 500].into())
            })
            .collect();
        pieces.release();
        let all: usize = given.iter().map(Bytes::len).sum();
        assert!((all - COUNTED_BYTES..=all).contains(&counted()), "of {all} bytes {} are counted", counted());
        drop(given);
        assert_eq!(counted(), 0);
    }
}
