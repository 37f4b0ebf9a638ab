//! Detects answers of a connection that its client has not read for too long.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::AbortHandle;
use tokio::time::Instant;

/// The time limit for a client to read the next byte of an answer: the timeout of a short request.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The shorter limit for reading the next byte, on a connection that blocks other connections. This limit also applies
/// to long-running answers. A network may lose a packet and resend it several times within this limit.
const BLOCKING_READ_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(super) struct UnreadAnswers {
    unread_answers: BTreeMap<u64, UnreadAnswer>,
    /// The number of answers that the connection has begun. Each answer gets its identifying number from this counter.
    answers: u64,
    /// The number of long-running answers that occupy the whole connection, as over HTTP/1.1. A user may read a log
    /// page by page with `less`, and the socket accepts no bytes while the user reads a page. So a blocked socket alone
    /// does not close such a connection. Over HTTP/2, only the stream's window blocks, and the client still reads the
    /// socket.
    long_running: usize,
    /// The time of the first blocked write after the last accepted write.
    blocked: Option<Instant>,
}

struct UnreadAnswer {
    /// The number of bytes of the answer that are ready for the client.
    bytes: usize,
    /// The time when the client last read some bytes of the answer, or when the first byte became ready.
    since: Instant,
    is_long_running: bool,
    /// The handle that aborts the answer's stream. `None` over HTTP/1.1, where only the connection can be closed.
    stream: Option<AbortHandle>,
}

impl UnreadAnswer {
    /// Returns whether the answer is long-running and occupies the whole connection.
    fn occupies_connection(&self) -> bool {
        self.is_long_running && self.stream.is_none()
    }
}

/// The stuck streams to abort, and whether the connection must be closed.
#[derive(Default)]
pub(super) struct Overdue {
    pub(super) streams: Vec<AbortHandle>,
    pub(super) connection: bool,
}

impl UnreadAnswers {
    /// Registers an answer. Returns its number for [`end`](Self::end).
    pub(super) fn begin(&mut self, now: Instant, is_long_running: bool, stream: Option<AbortHandle>) -> u64 {
        let answer = UnreadAnswer { bytes: 0, since: now, is_long_running, stream };
        self.answers += 1;
        self.long_running += usize::from(answer.occupies_connection());
        self.unread_answers.insert(self.answers, answer);
        self.answers
    }

    /// Restarts the time limit of an answer, because data became ready or the client read some of the data.
    pub(super) fn record_progress(&mut self, now: Instant, number: u64, bytes: usize) {
        if let Some(answer) = self.unread_answers.get_mut(&number) {
            (answer.bytes, answer.since) = (bytes, now);
        }
    }

    /// Removes an answer that has ended or was aborted.
    pub(super) fn end(&mut self, number: u64) {
        let ended = self.unread_answers.remove(&number);
        self.long_running -= usize::from(ended.is_some_and(|answer| answer.occupies_connection()));
    }

    /// Records whether the socket accepted the last write.
    pub(super) fn record_write(&mut self, now: impl FnOnce() -> Instant, is_blocked: bool) {
        self.blocked = is_blocked.then(|| self.blocked.unwrap_or_else(now));
    }

    /// Returns the answers that the client has not read within the time limit.
    pub(super) fn overdue(&self, now: Instant, blocks_others: bool) -> Overdue {
        let longer = |since: Instant, than: Duration| now.saturating_duration_since(since) >= than;
        let is_late = |answer: &&UnreadAnswer| match blocks_others {
            true => longer(answer.since, BLOCKING_READ_TIMEOUT),
            false => !answer.is_long_running && longer(answer.since, READ_TIMEOUT),
        };
        let stuck: Vec<_> = self.unread_answers.values().filter(|answer| answer.bytes > 0).filter(is_late).collect();
        // In two cases, the whole connection must be closed: an answer over HTTP/1.1 is overdue, or the socket accepts
        // no data.
        let within = if blocks_others { BLOCKING_READ_TIMEOUT } else { READ_TIMEOUT };
        let is_blocked = self.blocked.is_some_and(|since| longer(since, within));
        let connection = is_blocked && (self.long_running == 0 || !stuck.is_empty())
            || stuck.iter().any(|answer| answer.stream.is_none());
        Overdue { streams: stuck.into_iter().filter_map(|answer| answer.stream.clone()).collect(), connection }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_limit_of_an_unread_answer_ignores_other_answers() {
        let now = Instant::now();
        let streams: Vec<_> = (0..4).map(|_| AbortHandle::new_pair().0).collect();
        let before = |seconds| now - Duration::from_secs(seconds);
        let untaken = |at: usize, seconds, is_long_running| {
            let stream = Some(streams[at].clone());
            (at as u64, UnreadAnswer { bytes: 1, since: before(seconds), is_long_running, stream })
        };
        let idle = UnreadAnswer { bytes: 0, since: before(3600), is_long_running: false, stream: None };
        let answers =
            [untaken(0, 60, false), untaken(1, 59, false), untaken(2, 3600, true), untaken(3, 14, true), (4, idle)];
        let mut state = UnreadAnswers {
            unread_answers: answers.into_iter().collect(),
            long_running: 1,
            ..UnreadAnswers::default()
        };
        let cut = |overdue: Overdue| {
            overdue.streams.iter().for_each(AbortHandle::abort);
            streams.iter().map(AbortHandle::is_aborted).collect::<Vec<_>>()
        };
        assert!(!state.overdue(now, false).connection);
        assert_eq!(cut(state.overdue(now, false)), [true, false, false, false], "who reads a log page by page may");
        assert_eq!(cut(state.overdue(now, true)), [true, true, true, false], "unless it is in others' way");
        // A socket that accepts no data accepts no RST_STREAM either, so the whole connection must be closed.
        state.blocked = Some(before(60));
        assert!(state.overdue(now, false).connection);
        state.unread_answers.remove(&0);
        assert!(!state.overdue(now, false).connection, "a log that has the connection for itself");
        state.long_running = 0;
        assert!(
            state.overdue(now, false).connection,
            "over HTTP/2 who reads a log page by page takes what is on its way"
        );
        state.unread_answers.clear();
        state.blocked = Some(before(15));
        assert_eq!((state.overdue(now, false).connection, state.overdue(now, true).connection), (false, true));
        // Over HTTP/1.1, a connection has one answer at a time, so an overdue answer closes the connection.
        let alone = UnreadAnswer { bytes: 1, since: before(60), is_long_running: false, stream: None };
        let state = UnreadAnswers { unread_answers: [(1, alone)].into(), ..UnreadAnswers::default() };
        assert!(state.overdue(now, false).connection);
    }
}
