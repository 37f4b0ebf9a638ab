//! Counts the bytes that a connection receives, and pauses reading while the connection is unauthenticated.
//!
//! A request without credentials costs its sender nothing, so the memory for its bytes is bounded:
//!
//! * An unauthenticated connection is not read while one of its requests is being authenticated. Meanwhile, bodies and
//!   further requests stay in the kernel.
//! * An incomplete head may have [`SHORT_HEAD_BYTES`]. Longer heads need one of a constant number of permits
//!   (`UnauthenticatedConnection::acquire_long_head`). A new long head closes the connection with the oldest long head.
//! * A complete head is counted by its size, see [`ConnectionAuthentication::count_head`].

use std::task::{Context, Poll};

use crate::authentication::ConnectionAuthentication;
use crate::trailers::TrailerCounter;
use crate::unauthenticated_connections::ConnectionPermit;

/// The longest incomplete head without a permit for long heads, in bytes. One received byte in HTTP/2 may need 144
/// bytes of memory (an indexed header without a value, in a vector that has just doubled). So 455 received bytes need
/// at most 64 KiB of memory.
const SHORT_HEAD_BYTES: usize = 455;

#[derive(Default)]
pub(super) struct ByteCounter {
    trailers: TrailerCounter,
    unfinished: UnfinishedHead,
    is_authenticated: bool,
    /// True if the connection's bytes were read since the last poll of the task.
    has_read: bool,
}

/// An incomplete request head. Over HTTP/1, its size is the number of bytes since the last head. Over HTTP/2, its size
/// is the number of bytes in its frames.
#[derive(Default)]
struct UnfinishedHead {
    bytes: usize,
    /// The number of complete request heads on the connection before this head.
    heads: usize,
    /// The permit for a long request head.
    permit: Option<ConnectionPermit>,
}

impl ByteCounter {
    /// Polls whether the connection may be read. The connection may not be read while an authentication is in progress.
    pub(super) fn poll_read_allowed(
        &mut self,
        authentication: &ConnectionAuthentication,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if self.is_authenticated {
            return Poll::Ready(());
        }
        // The waker is registered before the checks, so that the end of an authentication between two checks wakes the
        // task.
        authentication.register_reader(cx.waker());
        if authentication.is_authenticated() {
            self.is_authenticated = true;
            self.unfinished.permit = None;
            return Poll::Ready(());
        }
        let heads = authentication.complete_heads();
        // Over HTTP/2, the next head may already have begun when hyper passes on a complete request. The count of such
        // a head must not be reset.
        if heads != self.unfinished.heads && self.trailers.open_head_bytes().is_none() {
            self.unfinished = UnfinishedHead { heads, ..UnfinishedHead::default() };
        }
        // The task yields after each read. So hyper passes on the requests of this read first, and the task reads no
        // more bytes while they are being authenticated.
        if std::mem::take(&mut self.has_read) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if authentication.is_authenticating() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Counts received bytes. Returns `false` if the connection has sent more trailers than allowed.
    pub(super) fn add(&mut self, bytes: &[u8], authentication: &ConnectionAuthentication) -> bool {
        let are_within_bound = self.trailers.read(bytes);
        if !self.is_authenticated && !bytes.is_empty() {
            self.has_read = true;
            let unfinished = &mut self.unfinished;
            unfinished.bytes = self.trailers.open_head_bytes().unwrap_or(unfinished.bytes + bytes.len());
            match unfinished.bytes > SHORT_HEAD_BYTES {
                true if unfinished.permit.is_none() => unfinished.permit = Some(authentication.acquire_long_head()),
                true => {}
                false => unfinished.permit = None,
            }
        }
        are_within_bound
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::service::AuthenticationOutcome;
    use crate::unauthenticated_connections::UnauthenticatedConnections;
    use crate::user_connections::UserConnections;

    #[derive(Default)]
    struct Wakeups(AtomicUsize);

    impl Wake for Wakeups {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn connection_is_not_read_while_its_request_is_being_authenticated() {
        let authentication = ConnectionAuthentication::new(
            UnauthenticatedConnections::with_connections(8).admit(),
            UserConnections::with_connections(8),
        );
        let (mut received, wakeups) = (ByteCounter::default(), Arc::<Wakeups>::default());
        let waker = Waker::from(Arc::clone(&wakeups));
        let mut is_read = || received.poll_read_allowed(&authentication, &mut Context::from_waker(&waker)).is_ready();
        assert!(is_read());
        let first = authentication.count_head(100).unwrap();
        let second = authentication.count_head(100).unwrap();
        assert!(!is_read());
        drop(first);
        assert!(!is_read());
        authentication.record_outcome(AuthenticationOutcome::Unauthorized);
        drop(second);
        assert_eq!(wakeups.0.load(Ordering::SeqCst), 1);
        assert!(is_read());
        let third = authentication.count_head(100).unwrap();
        assert!(!is_read(), "what comes after a refusal is authenticated, too");
        authentication.record_outcome(AuthenticationOutcome::Authenticated { user: None });
        assert_eq!(wakeups.0.load(Ordering::SeqCst), 2);
        assert!(is_read(), "nobody else is waited for");
        drop(third);
    }

    #[test]
    fn unauthenticated_connection_is_read_once_in_each_task_poll() {
        let authentication = ConnectionAuthentication::new(
            UnauthenticatedConnections::with_connections(8).admit(),
            UserConnections::with_connections(8),
        );
        let (mut received, wakeups) = (ByteCounter::default(), Arc::<Wakeups>::default());
        let waker = Waker::from(Arc::clone(&wakeups));
        let cx = &mut Context::from_waker(&waker);
        assert!(received.add(&[b'x'; SHORT_HEAD_BYTES], &authentication) && received.unfinished.permit.is_none());
        assert!(received.poll_read_allowed(&authentication, cx).is_pending() && wakeups.0.load(Ordering::SeqCst) == 1);
        assert!(received.poll_read_allowed(&authentication, cx).is_ready());
        assert!(received.add(b"x", &authentication) && received.unfinished.permit.is_some());
        drop(authentication.count_head(100));
        let _turn = received.poll_read_allowed(&authentication, cx);
        assert!(received.unfinished.permit.is_none(), "the head has ended");
    }

    #[test]
    fn incomplete_long_head_keeps_its_permit_after_a_complete_head() {
        let authentication = ConnectionAuthentication::new(
            UnauthenticatedConnections::with_connections(8).admit(),
            UserConnections::with_connections(8),
        );
        let mut received = ByteCounter::default();
        let headers = |stream: u8, flags: u8, payload: [u8; 2]| {
            let mut frame = vec![0, payload[0], payload[1], 1, flags, 0, 0, 0, stream];
            frame.resize(9 + usize::from(u16::from_be_bytes(payload)), 0x95);
            frame
        };
        let sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), headers(1, 4, [0, 20]), headers(3, 0, [2, 0])];
        assert!(received.add(&sent.concat(), &authentication) && received.unfinished.permit.is_some());
        drop(authentication.count_head(100));
        let _turn = received.poll_read_allowed(&authentication, &mut Context::from_waker(Waker::noop()));
        assert!(received.unfinished.permit.is_some(), "stream 3 has not ended its head");
    }
}
