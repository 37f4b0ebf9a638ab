//! What clients may have at most.

use super::unread::UNREAD_BYTES_MAX;

/// The most connections at once, where nothing else is asked for. Each costs tens of KiB, and a file descriptor; a
/// client holds one over HTTP/2 and one more per exec or port-forward. Beyond it connections wait in the kernel's
/// queue.
pub const CONNECTIONS_MAX: usize = 4096;

/// What part of all connections one user may have, and what part those may have together on whom nobody is known yet:
/// one in so many. A quarter, 1,024 of 4,096. A client holds one over HTTP/2, and one more for each exec or
/// port-forward; and it becomes known with its first request, some milliseconds after it connects, so few are strangers
/// at once unless somebody floods.
pub(super) const CONNECTIONS_PART: usize = 4;

/// What clients may have at most.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// Bytes that were answered and are not taken.
    pub unread_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: CONNECTIONS_MAX, unread_bytes: UNREAD_BYTES_MAX }
    }
}
