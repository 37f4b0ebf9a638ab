//! What of its answers a connection has been given and its client has not taken.
//!
//! HTTP/2 takes a frame of each answer before there is room for it: a client that opens two thousand streams and reads
//! none would have as many frames held for it, or as many whole objects. So a connection is given no more than
//! [`Unread`] has room for, of what one may have and of what all of them together may, and an answer of which nothing
//! is taken for [`TAKEN_WITHIN`] is cut, whatever its client does otherwise: pings are answered by a library, and one
//! answer that is read says nothing of another.
//!
//! HTTP/2 takes more of an answer than its client does, as far as the windows are open that the client announces: up to
//! 128 KiB of each. So what is given is counted until the last piece of it is dropped, which is when the socket has it;
//! what is too small for that, with the next that follows it on the same stream.
//!
//! What is written is written whatever becomes of its answer, which is never withheld. So where there is no room, a
//! write is refused before it is made: when its head comes, and once more when its body has come.
//!
//! ```text
//! request ─▶ room? ─▶ handler ─▶ room? ─▶ Metered ── piece ──▶ hyper, HTTP/2 ──▶ TLS ──▶ socket
//!                                           │ asked for the next one:          blocked: nothing can be taken
//!                                           │ HTTP/2 has room for it
//! ```

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::AbortHandle;
use http::{Method, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use tributary_apimachinery::RequestClass;
use tributary_router::AnswerRoom;

use super::coalesce::OpenStream;
use super::heads::ConnectionHeads;
use super::refusal::ListenerRefusal;
use super::streams;
use super::unread::Unread;
use super::waiting::{QueueTicket, WaitQueue};
use crate::handler::{Body, BoxError};

/// How long an answer may be there without that a byte of it is taken. As long as a short request may take.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// How long it may of a connection that is in others' way, and one that lasts, too. Longer than a network needs to lose
/// a packet and send it again a few times.
const TAKEN_WITHIN_IN_THE_WAY: Duration = Duration::from_secs(15);

/// How often it is looked at. What is stuck is cut so much later at most.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(15);

/// How long a request waits for room. 10 s: longer than whoever reads needs to read on, and shorter than clients' own
/// patience, so that they learn why nothing comes.
const ROOM_WITHIN: Duration = Duration::from_secs(10);

/// What is given at once, in bytes: what HTTP/2 has in a frame (`SETTINGS_MAX_FRAME_SIZE`, RFC 9113, 6.5.2). A client
/// that reads slowly takes one in time: 300 bytes a second are enough.
///
/// Of what is as long as that the last byte is given on its own. HTTP/2 takes a piece as soon as there is room for one
/// byte of it, and the answer would be done with; that the last byte is taken says that there was room for the rest.
const PIECE_BYTES: usize = 16 << 10;

/// From how much on what an answer is given is counted until the socket has it, in bytes. Small pieces, as watch events
/// are, add up to that, and the one that completes it counts for all. 1 KiB: what is less is a small part of what a
/// stream costs by itself.
const COUNTED_BYTES: usize = 1 << 10;

/// What a piece of an answer counts at least, in bytes, however little it brings: what HTTP/2 keeps beside it until the
/// socket has it. A member decides how small the pieces of its answers are.
const PIECE_COSTS: usize = 256;

/// The answers of one connection.
pub(super) struct Outgoing {
    unread: Unread,
    /// What the requests that wait for room have in their heads.
    heads: ConnectionHeads,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    /// What has been given and is not taken.
    bytes: usize,
    /// The answers under way.
    under_way: BTreeMap<u64, UnderWay>,
    /// Counts all answers.
    answers: u64,
    /// Those under way that last as long as their client pleases and have the connection for themselves, as over
    /// HTTP/1.1: somebody may read a log page by page, and the socket takes nothing meanwhile. Over HTTP/2 the stream's
    /// window says so, and the socket is read.
    lasting: usize,
    /// Since when the socket takes nothing.
    blocked: Option<Instant>,
    waiting: WaitQueue,
}

/// An answer under way.
struct UnderWay {
    /// What is there of it to be taken.
    bytes: usize,
    /// Since when nothing of that is taken.
    since: Instant,
    lasts: bool,
    /// What ends it alone.
    stream: Option<AbortHandle>,
}

/// What is to be ended.
#[derive(Default)]
struct Overdue {
    streams: Vec<AbortHandle>,
    connection: bool,
}

impl ConnectionState {
    /// Decides what has been waiting for too long.
    fn overdue(&self, now: Instant, is_in_the_way: bool) -> Overdue {
        let longer = |since: Instant, than: Duration| now.saturating_duration_since(since) >= than;
        let is_late = |answer: &&UnderWay| match is_in_the_way {
            true => longer(answer.since, TAKEN_WITHIN_IN_THE_WAY),
            false => !answer.lasts && longer(answer.since, TAKEN_WITHIN),
        };
        let stuck: Vec<_> = self.under_way.values().filter(|answer| answer.bytes > 0).filter(is_late).collect();
        // What cannot be told that it is cut, and what the kernel does not take off us,
        // is held until the connection is closed.
        let within = if is_in_the_way { TAKEN_WITHIN_IN_THE_WAY } else { TAKEN_WITHIN };
        let is_blocked = self.blocked.is_some_and(|since| longer(since, within));
        let connection = is_blocked && (self.lasting == 0 || !stuck.is_empty())
            || stuck.iter().any(|answer| answer.stream.is_none());
        Overdue { streams: stuck.into_iter().filter_map(|answer| answer.stream.clone()).collect(), connection }
    }

    /// Who is to be woken, if there is room.
    fn next_waiting(&mut self, unread: &Unread) -> Option<Waker> {
        if self.has_room(unread) { self.waiting.next() } else { None }
    }

    fn has_room(&self, unread: &Unread) -> bool {
        unread.load().has_room(self.bytes)
    }
}

impl Outgoing {
    pub(super) fn new(unread: Unread) -> Self {
        let heads = unread.waiting_heads.of_connection();
        Self { unread, heads, state: Mutex::default() }
    }

    /// Waits until there is room for another answer, to a request whose head has so many bytes. Whether there is.
    pub(super) async fn room(self: &Arc<Self>, head_bytes: usize) -> bool {
        let mut turn = RoomWaiter::new(self);
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
    /// came. A read need not: its answer can be withheld. Whoever has left nothing unread may write, however much
    /// others have: they would keep everybody from it otherwise. The head of a request is given up by then, so it
    /// counts for nothing among those that wait.
    pub(super) fn answer_room(self: &Arc<Self>, method: &Method) -> AnswerRoom {
        let (own, is_read) = (Arc::clone(self), is_read(method));
        AnswerRoom::new(move || {
            let own = Arc::clone(&own);
            async move { is_read || own.room(0).await }
        })
    }

    /// Meters the body of the answer to a request with this method. One that is in memory as a whole, as an object is,
    /// is held from now on to its end. A length alone says nothing: that of a member's answer is what the member says,
    /// and its bytes come when they come.
    ///
    /// There was room when the request came; many that came together, and waited for the same, may find none. What was
    /// read for them is dropped, and they are told to come again. What a write is answered is never withheld;
    /// see [`Self::answer_room`].
    ///
    /// # Errors
    /// [`ListenerRefusal::TooManyUnread`], which is the answer in place of this one.
    pub(super) fn meter(
        self: &Arc<Self>,
        method: &Method,
        response: Response<Body>,
        stream: OpenStream,
    ) -> Result<Response<Body>, ListenerRefusal> {
        let lasts = response.extensions().get() == Some(&RequestClass::LongRunning);
        let (head, mut body) = response.into_parts();
        let exact = body.size_hint().exact();
        if exact == Some(0) {
            return Ok(Response::from_parts(head, body));
        }
        let first = exact.and_then(|_| body.frame().now_or_never());
        let length = |frame: &Frame<Bytes>| frame.data_ref().map(|data| data.len() as u64);
        let (whole, first) = match first {
            Some(Some(Ok(frame))) if length(&frame) == exact => (frame.into_data().ok(), None),
            first => (None, first),
        };
        let is_large = whole.as_ref().is_some_and(|whole| whole.len() >= PIECE_BYTES);
        if is_read(method) && is_large && !self.state.lock().has_room(&self.unread) {
            return Err(ListenerRefusal::TooManyUnread);
        }
        let answer = OutgoingBody::new(self, lasts, stream);
        let mut metered = Metered { body, answer, is_whole: whole.is_some(), first, rest: Pieces::default() };
        if let Some(whole) = whole {
            metered.hold(whole);
        }
        Ok(Response::from_parts(head, metered.boxed_unsync()))
    }

    /// Notes whether the socket took what was to be written.
    pub(super) fn wrote(&self, is_blocked: bool) {
        let mut state = self.state.lock();
        state.blocked = is_blocked.then(|| state.blocked.unwrap_or_else(Instant::now));
    }

    /// Cuts answers that are not taken, and counts them. Ends when the connection as a whole is to be closed.
    pub(super) async fn stuck(&self, cut: &Counter) {
        loop {
            tokio::time::sleep(LOOKED_AT_EVERY).await;
            let (overdue, waiting) = {
                let mut state = self.state.lock();
                let overdue = state.overdue(Instant::now(), self.unread.load().is_in_the_way(state.bytes));
                // There may be room again because of other connections.
                (overdue, state.next_waiting(&self.unread))
            };
            if overdue.connection {
                return;
            }
            for stream in overdue.streams {
                cut.inc();
                stream.abort();
            }
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

/// Whether a request with this method changes nothing.
fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// One's turn among those that wait for room. Passed on when dropped.
struct RoomWaiter {
    outgoing: Arc<Outgoing>,
    place: QueueTicket,
}

impl RoomWaiter {
    fn new(outgoing: &Arc<Outgoing>) -> Self {
        Self { outgoing: Arc::clone(outgoing), place: QueueTicket::default() }
    }

    /// Whether more may be given. If not, the task is woken once it may.
    fn has_room(&mut self, cx: &Context<'_>) -> bool {
        let Self { outgoing, place } = self;
        let mut state = outgoing.state.lock();
        if !state.has_room(&outgoing.unread) {
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
        let Self { outgoing, place } = self;
        if !place.is_taken() {
            return;
        }
        let next = {
            let mut state = outgoing.state.lock();
            if state.waiting.leave(place) { state.next_waiting(&outgoing.unread) } else { None }
        };
        next.into_iter().for_each(Waker::wake);
    }
}

/// Bytes that were given and are not taken, as they are counted. Taken when dropped. No `Permit`, which costs a box:
/// there is one for each piece of an answer.
struct Counted {
    outgoing: Arc<Outgoing>,
    bytes: usize,
}

impl Counted {
    fn new(outgoing: &Arc<Outgoing>, bytes: usize) -> Self {
        let mut state = outgoing.state.lock();
        outgoing.unread.add(state.bytes, bytes);
        state.bytes += bytes;
        drop(state);
        Self { outgoing: Arc::clone(outgoing), bytes }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Self { outgoing, bytes } = self;
        let next = {
            let mut state = outgoing.state.lock();
            state.bytes -= *bytes;
            outgoing.unread.remove(state.bytes, *bytes);
            state.next_waiting(&outgoing.unread)
        };
        next.into_iter().for_each(Waker::wake);
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

/// What is held of one answer. Released when dropped.
struct OutgoingBody {
    outgoing: Arc<Outgoing>,
    turn: RoomWaiter,
    number: u64,
    /// Whether it is one of those that last and have the connection for themselves.
    is_lasting: bool,
    held: usize,
    /// What was given in pieces too small to be counted until the socket has them, in bytes,
    /// since one was that counts for them.
    small: usize,
    /// Counts it, where the bytes themselves do not.
    counted: Option<Counted>,
    /// It is open until this is dropped.
    _stream: OpenStream,
}

impl OutgoingBody {
    fn new(outgoing: &Arc<Outgoing>, lasts: bool, stream: OpenStream) -> Self {
        let outgoing = Arc::clone(outgoing);
        let under_way = UnderWay { bytes: 0, since: Instant::now(), lasts, stream: streams::stream() };
        let is_lasting = lasts && under_way.stream.is_none();
        let number = {
            let mut state = outgoing.state.lock();
            state.answers += 1;
            state.lasting += usize::from(is_lasting);
            let number = state.answers;
            state.under_way.insert(number, under_way);
            number
        };
        let turn = RoomWaiter::new(&outgoing);
        Self { outgoing, turn, number, is_lasting, held: 0, small: 0, counted: None, _stream: stream }
    }

    /// Holds these bytes from now on, and gives them as they are to be passed on. Nothing is held before.
    fn hold(&mut self, data: Bytes) -> Bytes {
        self.held = data.len();
        self.progressed();
        let costs = data.len().max(PIECE_COSTS);
        let with_small = self.small + costs;
        if with_small < COUNTED_BYTES {
            self.small = with_small;
            self.counted = Some(Counted::new(&self.outgoing, costs));
            return data;
        }
        // A stream's pieces go one after another: when the socket has this one, it has those before.
        self.small = 0;
        Bytes::from_owner(CountedBytes { data, _counted: Counted::new(&self.outgoing, with_small) })
    }

    /// What is held begins to be there, or some of it is taken.
    fn progressed(&self) {
        if let Some(own) = self.outgoing.state.lock().under_way.get_mut(&self.number) {
            (own.bytes, own.since) = (self.held, Instant::now());
        }
    }

    /// What was given is taken, or on its way, or will never be.
    fn release(&mut self) {
        if std::mem::take(&mut self.held) > 0 {
            self.progressed();
            self.counted = None;
        }
    }
}

impl Drop for OutgoingBody {
    fn drop(&mut self) {
        self.release();
        let mut state = self.outgoing.state.lock();
        state.under_way.remove(&self.number);
        state.lasting -= usize::from(self.is_lasting);
    }
}

/// The body of an answer. What it gives is held until the next is asked for.
struct Metered {
    body: Body,
    answer: OutgoingBody,
    /// Whether all of it is there: it is held from the beginning to the end.
    is_whole: bool,
    /// What else was there when the answer was made, until it is given.
    first: Option<Option<Result<Frame<Bytes>, BoxError>>>,
    /// What is held and not given yet.
    rest: Pieces,
}

impl Metered {
    /// Holds what is to be given next.
    fn hold(&mut self, data: Bytes) {
        self.rest = Pieces::new(self.answer.hold(data));
    }

    /// How many bytes there were when the answer was made, and are neither held nor given yet.
    fn first_bytes(&self) -> usize {
        match &self.first {
            Some(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        }
    }
}

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Some(piece) = self.rest.next() {
            self.answer.progressed();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if !self.is_whole {
            self.answer.release();
            if !self.answer.turn.has_room(cx) {
                return Poll::Pending;
            }
        }
        let polled = match self.first.take() {
            Some(first) => Poll::Ready(first),
            None => Pin::new(&mut self.body).poll_frame(cx),
        };
        let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
        let frame = match frame.into_data() {
            Ok(data) if self.is_whole => Frame::data(data),
            // It brings nothing, and would cost as much as one that does. Others have their turn before the next.
            Ok(data) if data.is_empty() => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Ok(data) => {
                self.hold(data);
                Frame::data(self.rest.next().unwrap_or_default())
            }
            Err(other) => other,
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.len() == 0 && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let given = (self.first_bytes() + self.rest.len()) as u64;
        match self.body.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(given + rest),
            None => SizeHint::default(),
        }
    }
}

/// Bytes that are given piece by piece.
#[derive(Default)]
struct Pieces {
    rest: Bytes,
    /// The last byte, if it is given on its own.
    last: Bytes,
}

impl Pieces {
    fn new(mut data: Bytes) -> Self {
        let last = if data.len() < PIECE_BYTES { Bytes::new() } else { data.split_off(data.len() - 1) };
        Self { rest: data, last }
    }

    fn len(&self) -> usize {
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
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use http_body_util::StreamBody;
    use prometheus_client::metrics::gauge::Gauge;

    use super::super::coalesce::OpenStreams;
    use super::super::heads::HEADS_BYTES_MAX;
    use super::super::unread::UNREAD_BYTES_MAX;
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

    #[tokio::test(start_paused = true)]
    async fn each_answer_is_judged_by_itself() {
        let now = Instant::now();
        let streams: Vec<_> = (0..4).map(|_| AbortHandle::new_pair().0).collect();
        let before = |seconds| now - Duration::from_secs(seconds);
        let untaken = |at: usize, seconds, lasts| {
            let stream = Some(streams[at].clone());
            (at as u64, UnderWay { bytes: 1, since: before(seconds), lasts, stream })
        };
        let idle = UnderWay { bytes: 0, since: before(3600), lasts: false, stream: None };
        let answers =
            [untaken(0, 60, false), untaken(1, 59, false), untaken(2, 3600, true), untaken(3, 14, true), (4, idle)];
        let mut state =
            ConnectionState { under_way: answers.into_iter().collect(), lasting: 1, ..ConnectionState::default() };
        let cut = |overdue: Overdue| {
            overdue.streams.iter().for_each(AbortHandle::abort);
            streams.iter().map(AbortHandle::is_aborted).collect::<Vec<_>>()
        };
        assert!(!state.overdue(now, false).connection);
        assert_eq!(cut(state.overdue(now, false)), [true, false, false, false], "who reads a log page by page may");
        assert_eq!(cut(state.overdue(now, true)), [true, true, true, false], "unless it is in others' way");
        // A socket that takes nothing takes no reset either.
        state.blocked = Some(before(60));
        assert!(state.overdue(now, false).connection);
        state.under_way.remove(&0);
        assert!(!state.overdue(now, false).connection, "a log that has the connection for itself");
        state.lasting = 0;
        assert!(
            state.overdue(now, false).connection,
            "over HTTP/2 who reads a log page by page takes what is on its way"
        );
        state.under_way.clear();
        state.blocked = Some(before(15));
        assert_eq!((state.overdue(now, false).connection, state.overdue(now, true).connection), (false, true));
        // Over HTTP/1.1 an answer is the connection's only one.
        let alone = UnderWay { bytes: 1, since: before(60), lasts: false, stream: None };
        let state = ConnectionState { under_way: [(1, alone)].into(), ..ConnectionState::default() };
        assert!(state.overdue(now, false).connection);
    }

    #[test]
    fn small_pieces_are_counted_until_the_socket_has_them() {
        let outgoing = Arc::new(Outgoing::new(Unread::new(Gauge::default(), UNREAD_BYTES_MAX)));
        let counted = || outgoing.state.lock().bytes;
        let mut answer = OutgoingBody::new(&outgoing, false, OpenStreams::default().open());
        let given: Vec<_> = (0..32)
            .map(|_| {
                answer.release();
                answer.hold(vec![b'x'; 500].into())
            })
            .collect();
        answer.release();
        let all: usize = given.iter().map(Bytes::len).sum();
        assert!((all - COUNTED_BYTES..=all).contains(&counted()), "of {all} bytes {} are counted", counted());
        drop(given);
        assert_eq!(counted(), 0);
    }

    #[tokio::test]
    async fn what_brings_nothing_is_not_passed_on() {
        let frames = ["", "a", "", "", "b", ""].map(|data| Ok(Frame::data(Bytes::from_static(data.as_bytes()))));
        let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
        let outgoing = Arc::new(Outgoing::new(Unread::new(Gauge::default(), UNREAD_BYTES_MAX)));
        let mut given = Vec::new();
        let metered = outgoing.meter(&Method::GET, Response::new(body), OpenStreams::default().open());
        let mut metered = metered.unwrap().into_body();
        while let Some(frame) = metered.frame().await {
            given.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(given, ["a", "b"]);
        drop((metered, given));
        assert_eq!(outgoing.state.lock().bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_nothing_unread_may_write_however_much_others_have() {
        let unread = Unread::new(Gauge::default(), 1 << 20);
        let stuck = Arc::new(Outgoing::new(unread.clone()));
        let other = Arc::new(Outgoing::new(unread));
        let _all = Counted::new(&stuck, 1 << 20);
        let admits = async |own: &Arc<Outgoing>, method| own.answer_room(&method).wait().await;
        assert!(!admits(&stuck, Method::PATCH).await);
        assert!(admits(&stuck, Method::GET).await, "what a read is answered can be withheld");
        assert!(admits(&other, Method::PATCH).await);
    }

    /// One user has a thousand connections, and may leave a little unread on each.
    #[tokio::test(start_paused = true)]
    async fn what_waits_for_room_on_all_connections_is_bounded_together() {
        let unread = Unread::new(Gauge::default(), 1 << 20);
        let stuck = Arc::new(Outgoing::new(unread.clone()));
        let all = Counted::new(&stuck, 1 << 20);
        let others: Vec<_> = (0..100).map(|_| Arc::new(Outgoing::new(unread.clone()))).collect();
        let unread: Vec<_> = others.iter().map(|own| Counted::new(own, 64 << 10)).collect();
        let mut waiting: Vec<_> = others.iter().map(|own| Box::pin(own.room(HEADS_BYTES_MAX))).collect();
        let answers = waiting.iter_mut().map(|room| room.as_mut().now_or_never());
        assert_eq!(answers.filter(|answer| *answer == Some(false)).count(), 84, "64 MiB of them wait");
        assert!(others[99].room(1 << 10).now_or_never().is_none(), "a small one of each connection waits");
        drop((waiting, all, unread));
        assert!(others[99].room(HEADS_BYTES_MAX).await);
    }

    /// A connection that reads a long list has a frame of it under way nearly always.
    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_what_its_connection_is_about_to_read() {
        let unread = Unread::new(Gauge::default(), 1 << 20);
        let stuck = Arc::new(Outgoing::new(unread.clone()));
        let reader = Arc::new(Outgoing::new(unread));
        let _nearly_all = Counted::new(&stuck, (1 << 20) - 1);
        let frame = Counted::new(&reader, 4 * PIECE_BYTES);
        let write = tokio::spawn({
            let room = reader.answer_room(&Method::PATCH);
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
        outgoing: Arc<Outgoing>,
        _most: Counted,
        piece: Option<Counted>,
        waiting: VecDeque<(RoomWaiter, Arc<Woken>)>,
    }

    impl Crowd {
        fn new() -> Self {
            let outgoing = Arc::new(Outgoing::new(Unread::new(Gauge::default(), UNREAD_BYTES_MAX)));
            let most = Counted::new(&outgoing, (16 << 20) - PIECE_BYTES);
            let piece = Some(Counted::new(&outgoing, PIECE_BYTES));
            let waiting = (0..2000).map(|_| (RoomWaiter::new(&outgoing), Arc::new(Woken::default()))).collect();
            let mut crowd = Self { outgoing, _most: most, piece, waiting };
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
        crowd.piece = Some(Counted::new(&crowd.outgoing, PIECE_BYTES));
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
