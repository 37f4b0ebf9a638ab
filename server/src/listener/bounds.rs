//! What clients may have at most.

use super::unread::UNREAD_BYTES_MAX;

/// The most connections at once, where nothing else is asked for. Each costs tens of KiB, and a file descriptor; a
/// client holds one over HTTP/2 and one more per exec or port-forward. Beyond it connections wait in the kernel's
/// queue.
pub const CONNECTIONS_MAX: usize = 4096;

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
