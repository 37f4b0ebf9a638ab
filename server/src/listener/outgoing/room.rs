//! Whether a connection may be given more, and who waits until it may.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use tributary_router::AnswerRoom;

use super::super::heads::ConnectionHeads;
use super::super::unread::Unread;
use super::super::waiting::{QueueTicket, WaitQueue};

/// How long a request waits for room. 10 s: longer than whoever reads needs to read on, and shorter than clients' own
/// patience, so that they learn why nothing comes.
const ROOM_WITHIN: Duration = Duration::from_secs(10);

/// What one connection has been given and its client has not taken, and who waits to give it more.
pub(super) struct ConnectionRoom {
    unread: Unread,
    /// What the requests that wait for room have in their heads.
    heads: ConnectionHeads,
    state: Mutex<RoomState>,
}

#[derive(Default)]
struct RoomState {
    /// What has been given and is not taken.
    bytes: usize,
    waiting: WaitQueue,
}

impl RoomState {
    /// Who is to be woken, if there is room.
    fn next_waiting(&mut self, unread: &Unread) -> Option<Waker> {
        if self.has_room(unread) { self.waiting.next() } else { None }
    }

    fn has_room(&self, unread: &Unread) -> bool {
        unread.load().has_room(self.bytes)
    }

    /// Counts bytes that are given.
    fn add(&mut self, unread: &Unread, bytes: usize) {
        unread.add(self.bytes, bytes);
        self.bytes += bytes;
    }
}

impl ConnectionRoom {
    pub(super) fn new(unread: Unread) -> Self {
        let heads = unread.waiting_heads.of_connection();
        Self { unread, heads, state: Mutex::default() }
    }

    /// Counts bytes that are given, whether or not there is room.
    pub(super) fn add(&self, bytes: usize) {
        self.state.lock().add(&self.unread, bytes);
    }

    /// Counts bytes that are given, if the connection may be given more now. Whether it may. It is one step: others of
    /// the connection that ask at the same time find them counted.
    pub(super) fn add_if_room(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        let has_room = state.has_room(&self.unread);
        if has_room {
            state.add(&self.unread, bytes);
        }
        has_room
    }

    /// Takes bytes off the count, and wakes whoever waits for that.
    pub(super) fn remove(&self, bytes: usize) {
        let next = {
            let mut state = self.state.lock();
            state.bytes -= bytes;
            self.unread.remove(state.bytes, bytes);
            state.next_waiting(&self.unread)
        };
        next.into_iter().for_each(Waker::wake);
    }

    /// Whether the connection is in others' way. Wakes whoever waits, if there is room again because of other
    /// connections.
    pub(super) fn look(&self) -> bool {
        let (is_in_the_way, next) = {
            let mut state = self.state.lock();
            (self.unread.load().is_in_the_way(state.bytes), state.next_waiting(&self.unread))
        };
        next.into_iter().for_each(Waker::wake);
        is_in_the_way
    }

    /// Waits until there is room for another answer, to a request whose head has so many bytes. Whether there is.
    pub(super) async fn wait(self: &Arc<Self>, head_bytes: usize) -> bool {
        let mut turn = RoomWaiter::new(self);
        // Nearly always; only who has to wait looks at the clock.
        if poll_fn(|cx| Poll::Ready(turn.has_room(cx))).await {
            return true;
        }
        let mut held = None;
        let room = poll_fn(|cx| {
            if turn.has_room(cx) {
                return Poll::Ready(true);
            }
            if held.is_none() {
                held = self.heads.hold(head_bytes);
            }
            if held.is_some() { Poll::Pending } else { Poll::Ready(false) }
        });
        tokio::time::timeout(ROOM_WITHIN, room).await.unwrap_or(false)
    }

    /// Has a request with this method wait for room when it is about to be carried out: that may be much later than it
    /// came. `None` of a read, which need not: its answer can be withheld. Whoever has left nothing unread may write,
    /// however much others have: they would keep everybody from it otherwise. The head of a request is given up by
    /// then, so it counts for nothing among those that wait.
    pub(super) fn answer_room(self: &Arc<Self>, method: &Method) -> Option<AnswerRoom> {
        if is_read(method) {
            return None;
        }
        let own = Arc::clone(self);
        Some(AnswerRoom::new(move || {
            let own = Arc::clone(&own);
            async move { own.wait(0).await }
        }))
    }
}

/// Whether a request with this method changes nothing.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// One's turn among those that wait for room. Passed on when dropped.
pub(super) struct RoomWaiter {
    pub(super) room: Arc<ConnectionRoom>,
    place: QueueTicket,
}

impl RoomWaiter {
    pub(super) fn new(room: &Arc<ConnectionRoom>) -> Self {
        Self { room: Arc::clone(room), place: QueueTicket::default() }
    }

    /// Whether more may be given. If not, the task is woken once it may.
    pub(super) fn has_room(&mut self, cx: &Context<'_>) -> bool {
        let Self { room, place } = self;
        let mut state = room.state.lock();
        if !state.has_room(&room.unread) {
            state.waiting.join(place, cx.waker());
            return false;
        }
        state.waiting.leave(place);
        let next = state.waiting.next();
        drop(state);
        next.into_iter().for_each(Waker::wake);
        true
    }
}

impl Drop for RoomWaiter {
    fn drop(&mut self) {
        let Self { room, place } = self;
        if !place.is_taken() {
            return;
        }
        let next = {
            let mut state = room.state.lock();
            if state.waiting.leave(place) { state.next_waiting(&room.unread) } else { None }
        };
        next.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use futures::FutureExt;
    use prometheus_client::metrics::gauge::Gauge;

    use super::super::super::heads::HEADS_BYTES_MAX;
    use super::super::counted::Counted;
    use super::super::pieces::PIECE_BYTES;
    use super::*;
    use crate::listener_settings::UNREAD_BYTES_MAX;

    #[tokio::test(start_paused = true)]
    async fn who_has_nothing_unread_may_write_however_much_others_have() {
        let unread = Unread::new(Gauge::default(), 1 << 20);
        let stuck = Arc::new(ConnectionRoom::new(unread.clone()));
        let other = Arc::new(ConnectionRoom::new(unread));
        let _all = Counted::new(&stuck, 1 << 20);
        let admits = async |own: &Arc<ConnectionRoom>| own.answer_room(&Method::PATCH).unwrap().wait().await;
        assert!(!admits(&stuck).await);
        assert!(stuck.answer_room(&Method::GET).is_none(), "what a read is answered can be withheld");
        assert!(admits(&other).await);
    }

    /// One user has a thousand connections, and may leave a little unread on each.
    #[tokio::test(start_paused = true)]
    async fn what_waits_for_room_on_all_connections_is_bounded_together() {
        let unread = Unread::new(Gauge::default(), 1 << 20);
        let stuck = Arc::new(ConnectionRoom::new(unread.clone()));
        let all = Counted::new(&stuck, 1 << 20);
        let others: Vec<_> = (0..100).map(|_| Arc::new(ConnectionRoom::new(unread.clone()))).collect();
        let unread: Vec<_> = others.iter().map(|own| Counted::new(own, 64 << 10)).collect();
        let mut waiting: Vec<_> = others.iter().map(|own| Box::pin(own.wait(HEADS_BYTES_MAX))).collect();
        let answers = waiting.iter_mut().map(|room| room.as_mut().now_or_never());
        assert_eq!(answers.filter(|answer| *answer == Some(false)).count(), 84, "64 MiB of them wait");
        assert!(others[99].wait(1 << 10).now_or_never().is_none(), "a small one of each connection waits");
        drop((waiting, all, unread));
        assert!(others[99].wait(HEADS_BYTES_MAX).await);
    }

    /// A connection that reads a long list has a frame of it under way nearly always.
    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_what_its_connection_is_about_to_read() {
        let unread = Unread::new(Gauge::default(), 1 << 20);
        let stuck = Arc::new(ConnectionRoom::new(unread.clone()));
        let reader = Arc::new(ConnectionRoom::new(unread));
        let _nearly_all = Counted::new(&stuck, (1 << 20) - 1);
        let frame = Counted::new(&reader, 4 * PIECE_BYTES);
        let write = tokio::spawn({
            let room = reader.answer_room(&Method::PATCH).unwrap();
            async move { room.wait().await }
        });
        tokio::time::sleep(ROOM_WITHIN / 2).await;
        drop(frame);
        assert!(write.await.unwrap(), "it has been read within the time");
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Turns that wait on a connection that has all that it may, the last 16 KiB of which are apart.
    struct Crowd {
        room: Arc<ConnectionRoom>,
        _most: Counted,
        piece: Option<Counted>,
        waiting: VecDeque<(RoomWaiter, Arc<Woken>)>,
    }

    impl Crowd {
        fn new() -> Self {
            let room = Arc::new(ConnectionRoom::new(Unread::new(Gauge::default(), UNREAD_BYTES_MAX)));
            let most = Counted::new(&room, (16 << 20) - PIECE_BYTES);
            let piece = Some(Counted::new(&room, PIECE_BYTES));
            let waiting = (0..2000).map(|_| (RoomWaiter::new(&room), Arc::new(Woken::default()))).collect();
            let mut crowd = Self { room, _most: most, piece, waiting };
            assert!((0..2000).all(|at| !crowd.poll(at)));
            crowd
        }

        fn poll(&mut self, at: usize) -> bool {
            let (turn, woken) = &mut self.waiting[at];
            turn.has_room(&Context::from_waker(&Waker::from(Arc::clone(woken))))
        }

        fn woken(&self) -> usize {
            self.waiting.iter().map(|(_, woken)| woken.0.load(Ordering::SeqCst)).sum()
        }
    }

    #[test]
    fn a_piece_wakes_one_of_those_who_wait_and_not_all() {
        let mut crowd = Crowd::new();
        crowd.piece = None;
        assert_eq!(crowd.woken(), 1);
        assert!(crowd.poll(0), "who came first is given it");
        crowd.piece = Some(Counted::new(&crowd.room, PIECE_BYTES));
        assert!(!crowd.poll(1) && crowd.woken() == 2, "the next one looks whether anything is left");
        crowd.piece = None;
        assert!(crowd.woken() == 3 && crowd.poll(1), "and has kept its place");
    }

    #[test]
    fn room_that_one_does_not_use_is_the_next_ones() {
        let mut crowd = Crowd::new();
        crowd.piece = None;
        assert!((0..1000).all(|at| crowd.poll(at)), "each has nothing to give");
        assert_eq!(crowd.woken(), 1001);
        // And from here on each goes away instead.
        crowd.waiting.drain(..1000);
        while let Some((turn, woken)) = crowd.waiting.pop_front() {
            assert_eq!(woken.0.load(Ordering::SeqCst), 1);
            drop(turn);
        }
    }
}
