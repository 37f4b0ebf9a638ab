//! Wake-up of a view's watches after a change, connection by connection.
//!
//! An event costs the same work for each of hundreds of watches, and the first watch should not wait for the last
//! watch. Therefore all watches of one connection are woken together, so that their output leaves in a few large
//! writes. The next connection's watches are woken after the previous connection has written. So Tributary prepares the
//! next output while the socket and the client process the previous output.
//!
//! A watch with a [declared filter](HeadWaiter::only_for) is not woken for changes that do not match. The watch also
//! never reads the part of the log that [contains no match](HeadWaiter::passed). Watches with equal filters form a
//! crowd, whose filter is compared with each change once. Connections are visited only if at least one watch must be
//! woken.
//!
//! ```text
//! advance ──▶ check crowd by crowd ──▶ no match: idle
//!         └─▶ connection 1 ──yield──▶ connection 2 ──yield──▶ … ──▶ idle, or again if it advanced in the meantime
//!             (the next round begins with another connection)
//! ```

use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};

use futures::task::AtomicWaker;
use parking_lot::Mutex;

use tributary_proxy::Peer;

use super::crowds::{Call, Crowd, Crowds};
use super::news::{Interest, News};

/// Minimum number of woken watches before the task yields. All watches of a connection are woken together, so the
/// number may be larger. Measured with 500 watches on 5 connections: the median watch got its event 2.0 ms after the
/// response to the write with 64, 2.5 ms with 128, and 2.4 ms if all were woken together. The CPU time of Tributary per
/// watch was 4.6 µs, 4.3 µs and 5.3 µs.
const TOGETHER: usize = 64;

/// Minimum number of crowds and watches whose filters are compared before the task yields. 1,024 take some 0.1 ms.
const ASKED_TOGETHER: usize = 1024;

#[derive(Default)]
pub(super) struct Head(Arc<HeadState>);

#[derive(Default)]
struct HeadState {
    advances: AtomicU64,
    lines: Mutex<WatcherGroups>,
}

/// Registration of a watch for wake-ups. Dropping the value removes the registration.
pub struct HeadWaiter {
    head: Arc<HeadState>,
    peer: Option<Peer>,
    bell: Arc<Bell>,
    seen: u64,
}

#[derive(Default)]
struct Bell {
    waker: AtomicWaker,
    /// Crowd of the watch. Unset until the watch declares its filter; until this time each change wakes the watch.
    crowd: OnceLock<Arc<Crowd>>,
    /// Log position up to which the watch has read the log, or up to which no change matches its filter. The position
    /// never decreases: the watch raises it after a read of the log, and the waking task raises it for changes that do
    /// not match.
    place: AtomicU64,
}

/// Watches by connection, and the progress of the running round of wake-ups.
#[derive(Default)]
struct WatcherGroups {
    watchers: BTreeMap<Option<Peer>, Vec<Arc<Bell>>>,
    crowds: Crowds,
    /// Number of watches without a declared filter.
    for_everything: usize,
    /// Connection after which the next round of wake-ups begins.
    last: Option<Peer>,
    round: Option<Round>,
}

/// A round of wake-ups for one piece of news. News during the round wait for the next round.
struct Round {
    news: News,
    stage: RoundStage,
    again: Option<News>,
}

enum RoundStage {
    /// The filters of the crowds up to number `up_to` have been compared with the changes.
    Hearing { up_to: Option<u64>, is_one_to_look: bool },
    /// The task visits the connections and wakes their watches.
    Calling(Lap),
}

/// A pass over all connections: from the connection after `last` to the greatest, then from the least to `last`.
/// Connections may open and close during the pass. Each connection that exists during the whole pass is visited.
struct Lap {
    first: Option<Option<Peer>>,
    at: Option<Peer>,
    wrapped: bool,
}

impl Head {
    /// Wakes all watches that the news concerns. The watches of the first connections are woken at once, and a task
    /// wakes the others. Must be called within a tokio runtime.
    pub(super) fn advance(&self, news: News) {
        self.0.advances.fetch_add(1, Ordering::SeqCst);
        if self.0.lines.lock().begin(news) && self.0.wake_some() {
            let head = Arc::clone(&self.0);
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                while head.wake_some() {
                    tokio::task::yield_now().await;
                }
            });
        }
    }

    pub(super) fn wait(&self, peer: Option<Peer>) -> HeadWaiter {
        let bell = Arc::<Bell>::default();
        self.0.lines.lock().join(peer, Arc::clone(&bell));
        HeadWaiter { seen: self.0.advances.load(Ordering::SeqCst), head: Arc::clone(&self.0), peer, bell }
    }
}

impl HeadState {
    /// Wakes the watches of the next connections. Returns whether more connections follow. The lock is released before
    /// the wake-ups, because waking a finished task may drop the task together with a registration whose drop needs the
    /// lock.
    fn wake_some(&self) -> bool {
        let mut wakers = Vec::new();
        let more = self.lines.lock().take_wakers(&mut wakers);
        wakers.into_iter().for_each(Waker::wake);
        more
    }
}

impl HeadWaiter {
    /// Marks all previous changes as seen. Call this function before you read the log.
    pub fn look(&mut self) {
        self.seen = self.head.advances.load(Ordering::SeqCst);
    }

    /// Declares the filter of a watch that has read the log up to `place`. After this call, only matching changes wake
    /// the watch. Call this function after each read of the log.
    pub fn only_for(&self, place: u64, interest: impl FnOnce() -> Arc<dyn Interest>) {
        self.bell.place.fetch_max(place, Ordering::AcqRel);
        self.bell.crowd.get_or_init(|| self.head.lines.lock().gather(interest(), place));
    }

    /// Returns the log position up to which the log contains no event for this watch. The log may remove older entries
    /// without loss for the watch. Zero for a watch without a declared filter.
    pub fn passed(&self) -> u64 {
        let place = self.bell.place.load(Ordering::Acquire);
        self.bell.crowd.get().map_or(place, |crowd| crowd.passed(place))
    }

    /// Waits for a change that came after the last [`look`](Self::look) and concerns this watch. Cancellation is safe:
    /// no change is lost.
    pub async fn advanced(&self) {
        std::future::poll_fn(|cx| {
            self.bell.waker.register(cx.waker());
            if self.head.advances.load(Ordering::SeqCst) == self.seen { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

impl Drop for HeadWaiter {
    fn drop(&mut self) {
        self.head.lines.lock().leave(self.peer, &self.bell);
    }
}

impl WatcherGroups {
    fn join(&mut self, peer: Option<Peer>, bell: Arc<Bell>) {
        self.watchers.entry(peer).or_default().push(bell);
        self.for_everything += 1;
    }

    /// Adds a watch to the crowd of its filter. The watch has read the log up to `place`.
    fn gather(&mut self, interest: Arc<dyn Interest>, place: u64) -> Arc<Crowd> {
        self.for_everything -= 1;
        self.crowds.join(interest, place)
    }

    fn leave(&mut self, peer: Option<Peer>, bell: &Arc<Bell>) {
        match bell.crowd.get() {
            Some(crowd) => self.crowds.leave(crowd),
            None => self.for_everything -= 1,
        }
        let Some(line) = self.watchers.get_mut(&peer) else { return };
        if let Some(at) = line.iter().position(|other| Arc::ptr_eq(other, bell)) {
            line.swap_remove(at);
        }
        if line.is_empty() {
            self.watchers.remove(&peer);
        }
    }

    /// Begins a round of wake-ups. Returns `false` if a round is running; in this case a second round follows.
    fn begin(&mut self, news: News) -> bool {
        let Some(round) = &mut self.round else {
            self.round = Some(Round::from_news(news));
            return true;
        };
        match &mut round.again {
            Some(since) => since.add(news),
            None => round.again = Some(news),
        }
        false
    }

    /// Collects the wakers of the watches on the next connections. Returns whether more connections follow.
    fn take_wakers(&mut self, wakers: &mut Vec<Waker>) -> bool {
        let Self { watchers, crowds, for_everything, last, round } = self;
        let mut asked = 0;
        while let Some(Round { news, stage, again }) = round {
            match (&mut *stage, &*news) {
                (RoundStage::Hearing { up_to, is_one_to_look }, News::Changes(changes)) => {
                    if let Some((number, crowd)) = crowds.next(*up_to) {
                        asked += 1;
                        *is_one_to_look |= crowd.hear(changes);
                        *up_to = Some(number);
                    } else if *is_one_to_look || *for_everything > 0 {
                        *stage = RoundStage::Calling(Lap::behind(*last));
                    } else {
                        *round = again.take().map(Round::from_news);
                    }
                }
                (RoundStage::Hearing { .. }, News::Anything) => *stage = RoundStage::Calling(Lap::behind(*last)),
                (RoundStage::Calling(lap), news) => {
                    if let Some(line) = lap.next(watchers, *last).and_then(|peer| watchers.get(&peer)) {
                        asked += line.len();
                        wakers.extend(line.iter().filter_map(|bell| bell.woken_by(news)));
                    } else {
                        *last = lap.first.unwrap_or(*last);
                        *round = again.take().map(Round::from_news);
                    }
                }
            }
            if wakers.len() >= TOGETHER || asked >= ASKED_TOGETHER {
                break;
            }
        }
        round.is_some()
    }
}

impl Bell {
    /// Waker of the watch, if the watch waits and the news concerns it.
    fn woken_by(&self, news: &News) -> Option<Waker> {
        if let (News::Changes(_), Some(crowd)) = (news, self.crowd.get()) {
            match crowd.call(self.place.load(Ordering::Acquire)) {
                Call::Sleep => return None,
                Call::Look { from } => self.place.fetch_max(from, Ordering::AcqRel),
            };
        }
        self.waker.take()
    }
}

impl Round {
    fn from_news(news: News) -> Self {
        Self { news, stage: RoundStage::Hearing { up_to: None, is_one_to_look: false }, again: None }
    }
}

impl Lap {
    fn behind(last: Option<Peer>) -> Self {
        Self { first: None, at: last, wrapped: false }
    }

    /// Next connection of the pass; `None` at the end of the pass.
    fn next<T>(&mut self, watchers: &BTreeMap<Option<Peer>, T>, last: Option<Peer>) -> Option<Option<Peer>> {
        let behind = |bound| watchers.range((bound, Bound::Unbounded)).next();
        let mut next = behind(Bound::Excluded(self.at));
        if next.is_none() && !mem::replace(&mut self.wrapped, true) {
            next = behind(Bound::Unbounded);
        }
        let (peer, _) = next.filter(|(peer, _)| !self.wrapped || **peer <= last)?;
        self.first.get_or_insert(*peer);
        self.at = *peer;
        Some(*peer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};
    use std::task::Wake;

    use proptest::prelude::*;
    use tributary_apimachinery::{ClusterName, ResourceVersion};

    use super::super::View;
    use super::super::test_news::{InNamespace, news_behind, news_in};
    use super::*;

    struct Note(usize, Arc<Mutex<Vec<usize>>>);

    impl Wake for Note {
        fn wake(self: Arc<Self>) {
            self.1.lock().push(self.0);
        }
    }

    fn peer(number: u16) -> Option<Peer> {
        Some(Peer(([127, 0, 0, 1], number).into()))
    }

    /// Watches with numbers, the log of wake-ups, and the number of changes.
    #[derive(Default)]
    struct Audience {
        head: Head,
        watchers: Vec<Option<HeadWaiter>>,
        woken: Arc<Mutex<Vec<usize>>>,
        happened: u64,
    }

    impl Audience {
        fn join(&mut self, peer: Option<Peer>) {
            let waiting = self.head.wait(peer);
            self.watchers.push(Some(waiting));
            self.listen(self.watchers.len() - 1);
        }

        fn listen(&self, number: usize) {
            if let Some(Some(waiting)) = self.watchers.get(number) {
                waiting.bell.waker.register(&Arc::new(Note(number, Arc::clone(&self.woken))).into());
            }
        }

        /// Runs one step of the round of wake-ups. Returns the woken watches, and whether the round continues.
        fn step(&self) -> (Vec<usize>, bool) {
            let more = self.head.0.wake_some();
            (mem::take(&mut *self.woken.lock()), more)
        }

        fn advance(&self) {
            self.announce(News::Anything);
        }

        fn announce(&self, news: News) {
            self.head.0.lines.lock().begin(news);
        }

        /// Announces one new change for each of these namespaces.
        fn announce_changes(&mut self, namespaces: &[&str]) {
            let news = news_in(self.happened, namespaces);
            self.happened += namespaces.len() as u64;
            self.announce(news);
        }

        /// As the watch with this number, reads the log to its end and declares a filter by one namespace.
        fn only_for(&self, number: usize, namespace: &'static str) {
            if let Some(Some(waiting)) = self.watchers.get(number) {
                waiting.only_for(self.happened, || Arc::new(InNamespace(namespace)));
            }
        }

        fn all(&self) -> Vec<usize> {
            let mut all = Vec::new();
            loop {
                let (some, more) = self.step();
                all.extend(some);
                if !more {
                    all.sort_unstable();
                    return all;
                }
            }
        }
    }

    #[test]
    fn watches_of_a_connection_wake_together_and_connections_take_turns() {
        let mut audience = Audience::default();
        for number in 0..300 {
            audience.join(peer(1 + number % 3));
        }
        let mut firsts = Vec::new();
        for _ in 0..4 {
            audience.advance();
            let mut woken = Vec::new();
            for connection in 0..3 {
                let (some, more) = audience.step();
                assert_eq!(some.len(), 100, "a whole connection");
                assert!(some.iter().all(|number| number % 3 == some[0] % 3), "of one connection");
                assert!(more, "only a further step finds the end, here after {connection}");
                woken.extend(some);
            }
            assert_eq!(audience.step(), (Vec::new(), false));
            firsts.push(woken[0] % 3);
            assert_eq!(woken.iter().collect::<BTreeSet<_>>().len(), 300);
            (0..300).for_each(|number| audience.listen(number));
        }
        assert_eq!(firsts, [0, 1, 2, 0]);
    }

    #[test]
    fn few_watches_on_many_connections_are_woken_in_one_step() {
        let mut audience = Audience::default();
        (0..10).for_each(|number| audience.join(peer(number)));
        audience.join(None);
        audience.advance();
        let (woken, more) = audience.step();
        assert_eq!((woken.len(), more), (11, false));
    }

    #[test]
    fn watch_with_a_filter_wakes_only_for_matching_changes() {
        let mut audience = Audience::default();
        (0..3).for_each(|number| audience.join(peer(number)));
        let look = |audience: &Audience, woken: &[usize]| {
            for number in woken {
                let own = [None, Some("shop"), Some("bank")][*number];
                own.into_iter().for_each(|own| audience.only_for(*number, own));
                audience.listen(*number);
            }
        };
        look(&audience, &[0, 1, 2]);
        let mut woken_by = |steps: &[&[&str]]| {
            steps.iter().for_each(|namespaces| audience.announce_changes(namespaces));
            let woken = audience.all();
            look(&audience, &woken);
            woken
        };
        assert_eq!(woken_by(&[&["shop"]]), [0, 1]);
        assert_eq!(woken_by(&[&["mill", "bank"]]), [0, 2]);
        assert_eq!(woken_by(&[&["mill"]]), [0]);
        // The second change comes during a round of wake-ups.
        assert_eq!(woken_by(&[&["mill"], &["shop"]]), [0, 1]);
        assert_eq!(woken_by(&[&["mill"; 40]]), [0, 1, 2], "too many changes to compare");
        assert_eq!(woken_by(&[&["mill"]]), [0]);
        audience.advance();
        assert_eq!(audience.all(), [0, 1, 2]);
    }

    #[test]
    fn watch_skips_unmatched_changes_without_reading_the_log() {
        let mut audience = Audience::default();
        audience.join(None);
        audience.only_for(0, "shop");
        let passed = |audience: &Audience| audience.watchers[0].as_ref().unwrap().passed();
        for _ in 0..10_000 {
            audience.announce_changes(&["mill"]);
            assert_eq!(audience.all(), [0; 0]);
            assert_eq!(passed(&audience), audience.happened);
        }
        audience.announce_changes(&["shop"]);
        assert_eq!(audience.all(), [0]);
        assert_eq!(passed(&audience), audience.happened - 1, "the watcher has not looked at the last change yet");
    }

    /// The changes of two clusters may be announced in an order that differs from the order in the log.
    #[test]
    fn watch_does_not_skip_log_changes_announced_later() {
        let mut audience = Audience::default();
        audience.join(None);
        audience.only_for(0, "shop");
        audience.announce(news_in(1, &["mill"]));
        assert_eq!(audience.all(), [0], "something may have happened before it");
        // The woken watch reads both changes in the log.
        audience.happened = 2;
        audience.only_for(0, "shop");
        audience.listen(0);
        audience.announce(news_in(0, &["shop"]));
        assert_eq!(audience.all(), [0; 0], "it has been looked at");
    }

    /// Each of a thousand members reports progress every minute, even if no object changes.
    #[tokio::test]
    async fn progress_report_of_a_member_wakes_no_watch() {
        let (view, eu, us) = (View::for_tests(), ClusterName::new("eu").unwrap(), ClusterName::new("us").unwrap());
        for cluster in [&eu, &us] {
            view.join_for_tests(cluster, ResourceVersion(1));
        }
        let waiting = view.head.wait(None);
        let place = view.log.read().position();
        waiting.only_for(place, || Arc::new(InNamespace("shop")));
        let (woken, waker) = (Arc::default(), |woken: &Arc<Mutex<Vec<usize>>>| Note(0, Arc::clone(woken)));
        for round in 1..=100 {
            waiting.bell.waker.register(&Arc::new(waker(&woken)).into());
            view.progress_for_tests(&us, ResourceVersion(10 * round));
            view.change_for_tests(&eu, "mill", ResourceVersion(10 * round));
        }
        assert_eq!(woken.lock().len(), 0, "nothing was for it");
        assert_eq!(waiting.passed(), view.log.read().quiet_since());
        view.change_for_tests(&eu, "shop", ResourceVersion(2_000));
        assert_eq!(woken.lock().len(), 1);
    }

    #[tokio::test]
    async fn watch_wakes_only_after_a_change_since_its_last_read() {
        let head = Head::default();
        let mut waiting = head.wait(None);
        head.advance(News::Anything);
        waiting.advanced().await;
        waiting.look();
        let early = tokio::time::timeout(std::time::Duration::from_millis(5), waiting.advanced()).await;
        assert!(early.is_err());
        let task = tokio::spawn(async move {
            waiting.advanced().await;
            drop(waiting);
        });
        tokio::task::yield_now().await;
        head.advance(News::Anything);
        task.await.unwrap();
        assert!(head.0.lines.lock().watchers.is_empty(), "a place is left");
    }

    const NAMESPACES: [&str; 3] = ["bank", "mill", "shop"];

    /// Filter of a watch: a watch with an odd number has a filter by one namespace, other watches have none.
    fn interest(number: usize) -> Option<&'static str> {
        (number % 2 == 1).then(|| NAMESPACES[number / 2 % NAMESPACES.len()])
    }

    proptest! {
        /// Watches join, leave and read the log while rounds of wake-ups run. A change wakes each existing watch that
        /// the change concerns.
        #[test]
        fn change_wakes_matching_watches(steps in prop::collection::vec((0_u8..8, 0_u16..12, 1_usize..90), 1..120)) {
            let mut audience = Audience::default();
            let mut owed = BTreeSet::new();
            // After a watch has read the log, only later changes have to wake the watch.
            let look = |audience: &Audience, number: usize| {
                interest(number).into_iter().for_each(|namespace| audience.only_for(number, namespace));
                audience.listen(number);
            };
            for (step, connection, count) in steps {
                match step {
                    0..2 => for _ in 0..count {
                        audience.join(peer(connection));
                        look(&audience, audience.watchers.len() - 1);
                    },
                    2 => {
                        let number = count * 7 % audience.watchers.len().max(1);
                        if let Some(waiting) = audience.watchers.get_mut(number) {
                            *waiting = None;
                            owed.remove(&number);
                        }
                    }
                    3 => {
                        owed.extend((0..audience.watchers.len()).filter(|number| audience.watchers[*number].is_some()));
                        audience.advance();
                    }
                    4 => {
                        let namespace = NAMESPACES[count % NAMESPACES.len()];
                        let is_for = |number: &usize| interest(*number).is_none_or(|own| own == namespace);
                        let there = |number: &usize| audience.watchers[*number].is_some();
                        owed.extend((0..audience.watchers.len()).filter(|number| there(number) && is_for(number)));
                        audience.announce_changes(&[namespace]);
                    }
                    _ => {
                        for number in audience.step().0 {
                            owed.remove(&number);
                            look(&audience, number);
                        }
                    }
                }
            }
            let mut rounds = 0;
            loop {
                let (woken, more) = audience.step();
                for number in woken {
                    owed.remove(&number);
                    look(&audience, number);
                }
                if !more {
                    break;
                }
                rounds += 1;
                prop_assert!(rounds < 1000, "a round without end");
            }
            prop_assert!(owed.is_empty(), "{owed:?} were not woken");
        }

        /// Two clusters append changes to the log and announce them in different orders, with progress and relists
        /// between them. Watches read the log at any time. No watch skips a matching change, and a watch that sleeps at
        /// the end has missed no change.
        fn watch_never_skips_a_matching_change(
            steps in prop::collection::vec((0_u8..12, 0_usize..2, 0_u16..90), 1..200),
        ) {
            const ANYTHING: &str = "*";
            const PROGRESS: &str = "";
            let mut audience = Audience::default();
            let (mut log, mut quiet_since) = (Vec::new(), 0);
            let mut untold = [VecDeque::new(), VecDeque::new()];
            let (mut looked, mut awake) = (Vec::new(), BTreeSet::new());
            let is_for = |number: usize, what: &str| {
                what == ANYTHING || what != PROGRESS && interest(number).is_none_or(|own| own == what)
            };
            let missed = |log: &[&str], number: usize, from: u64, to: u64| {
                (0..).zip(log).any(|(place, what)| (from..to).contains(&place) && is_for(number, what))
            };
            let look = |audience: &Audience, looked: &mut Vec<u64>, number: usize| {
                looked[number] = audience.happened;
                interest(number).into_iter().for_each(|namespace| audience.only_for(number, namespace));
                audience.listen(number);
            };
            for (step, cluster, connection) in steps {
                let number = usize::from(connection);
                match step {
                    0 => {
                        audience.join(peer(connection % 5));
                        looked.push(0);
                        look(&audience, &mut looked, audience.watchers.len() - 1);
                    }
                    1..=4 => {
                        let namespace = NAMESPACES[number % NAMESPACES.len()];
                        untold[cluster].push_back(news_behind((quiet_since, audience.happened), &[namespace]));
                        log.push(namespace);
                        quiet_since = log.len() as u64;
                    }
                    5 => log.push(PROGRESS),
                    6 if number < 20 => {
                        untold[cluster].push_back(News::Anything);
                        log.push(ANYTHING);
                        quiet_since = log.len() as u64;
                    }
                    7..=8 => untold[cluster].pop_front().into_iter().for_each(|news| audience.announce(news)),
                    9 => awake.extend(audience.step().0),
                    10 => if let Some(next) = awake.iter().copied().nth(number % awake.len().max(1)) {
                        awake.remove(&next);
                        look(&audience, &mut looked, next);
                    },
                    // The watch reads the log because of a timer, without a wake-up.
                    _ => {
                        let number = number % looked.len().max(1);
                        if number < looked.len() && !awake.contains(&number) {
                            look(&audience, &mut looked, number);
                        }
                    }
                }
                audience.happened = log.len() as u64;
                for (number, from) in looked.iter().enumerate() {
                    let passed = audience.watchers[number].as_ref().unwrap().passed();
                    prop_assert!(!missed(&log, number, *from, passed), "{number} goes on from {passed}, not {from}");
                }
            }
            untold.into_iter().flatten().for_each(|news| audience.announce(news));
            awake.extend(audience.all());
            for number in (0..looked.len()).filter(|number| !awake.contains(number)) {
                prop_assert!(!missed(&log, number, looked[number], log.len() as u64), "{number} sleeps");
                let passed = audience.watchers[number].as_ref().unwrap().passed();
                prop_assert!(interest(number).is_none() || passed >= quiet_since, "{number} is to look again");
            }
        }
    }
}
