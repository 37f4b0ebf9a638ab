//! Which answers of a connection have been there for too long without that their client takes any of them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::AbortHandle;
use tokio::time::Instant;

/// How long an answer may be there without that a byte of it is taken. As long as a short request may take.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// How long it may of a connection that is in others' way, and one that lasts, too. Longer than a network needs to lose
/// a packet and send it again a few times.
const TAKEN_WITHIN_IN_THE_WAY: Duration = Duration::from_secs(15);

/// The answers under way of one connection.
#[derive(Default)]
pub(super) struct AnswersUnderWay {
    under_way: BTreeMap<u64, UnderWay>,
    /// Counts all answers.
    answers: u64,
    /// Those under way that last as long as their client pleases and have the connection for themselves, as over
    /// HTTP/1.1: somebody may read a log page by page, and the socket takes nothing meanwhile. Over HTTP/2 the stream's
    /// window says so, and the socket is read.
    lasting: usize,
    /// Since when the socket takes nothing.
    blocked: Option<Instant>,
}

/// An answer under way.
struct UnderWay {
    /// What is there of it to be taken.
    bytes: usize,
    /// Since when nothing of that is taken.
    since: Instant,
    lasts: bool,
    /// What ends it alone; `None` where that is the connection.
    stream: Option<AbortHandle>,
}

impl UnderWay {
    /// Whether it is one of those that last and have the connection for themselves.
    fn is_lasting_alone(&self) -> bool {
        self.lasts && self.stream.is_none()
    }
}

/// What is to be ended.
#[derive(Default)]
pub(super) struct Overdue {
    pub(super) streams: Vec<AbortHandle>,
    pub(super) connection: bool,
}

impl AnswersUnderWay {
    /// An answer begins. Its number, until it [ends](Self::end).
    pub(super) fn begin(&mut self, now: Instant, lasts: bool, stream: Option<AbortHandle>) -> u64 {
        let answer = UnderWay { bytes: 0, since: now, lasts, stream };
        self.answers += 1;
        self.lasting += usize::from(answer.is_lasting_alone());
        self.under_way.insert(self.answers, answer);
        self.answers
    }

    /// What is there of an answer to be taken begins to be there, or some of it is taken.
    pub(super) fn progressed(&mut self, now: Instant, number: u64, bytes: usize) {
        if let Some(answer) = self.under_way.get_mut(&number) {
            (answer.bytes, answer.since) = (bytes, now);
        }
    }

    /// An answer has ended, or is given up.
    pub(super) fn end(&mut self, number: u64) {
        let ended = self.under_way.remove(&number);
        self.lasting -= usize::from(ended.is_some_and(|answer| answer.is_lasting_alone()));
    }

    /// Notes whether the socket took what was to be written.
    pub(super) fn wrote(&mut self, now: impl FnOnce() -> Instant, is_blocked: bool) {
        self.blocked = is_blocked.then(|| self.blocked.unwrap_or_else(now));
    }

    /// Decides what has been waiting for too long.
    pub(super) fn overdue(&self, now: Instant, is_in_the_way: bool) -> Overdue {
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
            AnswersUnderWay { under_way: answers.into_iter().collect(), lasting: 1, ..AnswersUnderWay::default() };
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
        let state = AnswersUnderWay { under_way: [(1, alone)].into(), ..AnswersUnderWay::default() };
        assert!(state.overdue(now, false).connection);
    }
}
