//! What a connection sends, as far as it is held before it is a request that is counted: of strangers all of it, from
//! the first byte on; of users only trailers, which h2 holds for as long as their stream is open.

use super::acquaintance::Acquaintance;
use super::heads::HeldHead;
use super::refusal::ListenerRefusal;
use super::unfinished::Unfinished;

/// How much memory the trailers of a connection may take on which somebody is known, in bytes, over its whole life:
/// what is given back when their streams end is not followed. 64 KiB, some 450 bytes as they are sent, and as much as
/// each connection may have in heads in any case: no client of Kubernetes sends any, and a user's 1,024 connections
/// have 64 MiB of them then.
const TRAILER_BYTES_MAX: usize = 64 << 10;

/// What has come, and what is held of it.
pub(super) struct Sending {
    unfinished: Unfinished,
    /// Of what strangers have together; `None` once somebody is known.
    held: Option<HeldHead>,
    /// How many heads were whole when it was looked last.
    heads: usize,
}

impl Sending {
    /// Nothing has come yet.
    pub(super) fn of(acquaintance: &Acquaintance) -> Self {
        Self { unfinished: Unfinished::default(), held: Some(acquaintance.begun_head()), heads: 0 }
    }

    /// Whether as much of a body has come as is read of somebody who is not known.
    pub(super) fn is_body_full(&self) -> bool {
        self.held.is_some() && self.unfinished.is_body_full()
    }

    /// Somebody is known: what is held takes nothing from strangers any more.
    pub(super) fn becomes_known(&mut self) {
        self.held = None;
    }

    /// Takes note of what has come.
    ///
    /// # Errors
    /// Why there is no room for it.
    pub(super) fn note(&mut self, bytes: &[u8], acquaintance: &Acquaintance) -> Result<(), ListenerRefusal> {
        let heads = acquaintance.whole_heads();
        if heads != self.heads {
            self.heads = heads;
            self.unfinished.head_is_whole();
        }
        self.unfinished.note(bytes);
        let (has_room, refusal) = match &mut self.held {
            Some(held) => (held.resize(self.unfinished.head_bytes()), ListenerRefusal::TooManyUnknown),
            None => (self.unfinished.trailer_bytes() <= TRAILER_BYTES_MAX, ListenerRefusal::TooManyTrailers),
        };
        if has_room { Ok(()) } else { Err(refusal) }
    }
}
