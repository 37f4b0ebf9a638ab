//! What a connection sends on which nobody is known, so that what is held of it is counted from the first byte on.

use super::acquaintance::Acquaintance;
use super::heads::HeldHead;
use super::unfinished::Unfinished;

/// What has come, and what is held of it.
pub(super) struct Sending {
    unfinished: Unfinished,
    held: HeldHead,
    /// How many heads were whole when it was looked last.
    heads: usize,
}

impl Sending {
    /// Nothing has come yet.
    pub(super) fn of(acquaintance: &Acquaintance) -> Self {
        Self { unfinished: Unfinished::default(), held: acquaintance.begun_head(), heads: 0 }
    }

    /// Whether as much of a body has come as is read of somebody who is not known.
    pub(super) fn is_body_full(&self) -> bool {
        self.unfinished.is_body_full()
    }

    /// Takes note of what has come. Whether there is room for it.
    pub(super) fn note(&mut self, bytes: &[u8], acquaintance: &Acquaintance) -> bool {
        let heads = acquaintance.whole_heads();
        if heads != self.heads {
            self.heads = heads;
            self.unfinished.head_is_whole();
        }
        self.unfinished.note(bytes);
        self.held.resize(self.unfinished.head_bytes())
    }
}
