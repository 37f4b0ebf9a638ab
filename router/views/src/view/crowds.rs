//! Groups of watches with the same filter (*crowds*). Each change is compared with a filter once for the whole crowd. A
//! change that does not match the filter wakes no watch of the crowd.
//!
//! A crowd stores *stretches*: ranges of the log without a matching change. A change that does not match extends the
//! current stretch. A matching change ends the current stretch, and a new stretch starts after the change. A watch that
//! has not read the log up to the new stretch must read the log.
//!
//! ```text
//!   log   … │ match │ other │ other │ match │ other │ ◀─ another change extends `now`
//!                   └──── before ───┘       └─ now ─┘
//!   a watch here ─────────▶ continues at ──▶ and reads the log, because a change matches
//!   a watch here ─────────────────────────────▶ sleeps, and later continues at the end
//! ```

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::news::{Interest, NewChanges};

#[derive(Default)]
pub(super) struct Crowds {
    by_interest: HashMap<Arc<dyn Interest>, u64>,
    by_number: BTreeMap<u64, (Arc<Crowd>, usize)>,
    /// Number of crowds ever created. The newest crowd has this number.
    begun: u64,
}

/// Watches with the same filter.
pub(super) struct Crowd {
    number: u64,
    interest: Arc<dyn Interest>,
    /// Whether the latest changes make it necessary that some watches read the log.
    is_to_look: AtomicBool,
    stretches: Mutex<Stretches>,
}

/// Ranges of log positions without a matching change.
struct Stretches {
    /// Last completed range of log positions without a matching change. A watch that sleeps at a position in this range
    /// will be woken.
    before: Range<u64>,
    /// Current range of log positions without a matching change, which still grows. A watch at a position before this
    /// range has been woken, or will read the log.
    now: Range<u64>,
}

impl Crowds {
    /// Adds a watch to the crowd of its filter. The watch has read the log up to `place`.
    pub(super) fn join(&mut self, interest: Arc<dyn Interest>, place: u64) -> Arc<Crowd> {
        let number = *self.by_interest.entry(Arc::clone(&interest)).or_insert_with(|| {
            self.begun += 1;
            self.begun
        });
        let new = || (Arc::new(Crowd::new(number, interest, place)), 0);
        let (crowd, watchers) = self.by_number.entry(number).or_insert_with(new);
        *watchers += 1;
        Arc::clone(crowd)
    }

    pub(super) fn leave(&mut self, crowd: &Crowd) {
        let Some((_, watchers)) = self.by_number.get_mut(&crowd.number) else { return };
        *watchers -= 1;
        if *watchers == 0 {
            self.by_number.remove(&crowd.number);
            self.by_interest.remove(&crowd.interest);
        }
    }

    /// Returns the first crowd whose number is greater than `behind`. Without `behind`, returns the crowd with the
    /// lowest number. New crowds have the highest numbers.
    pub(super) fn next(&self, behind: Option<u64>) -> Option<(u64, &Crowd)> {
        let behind = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_number.range((behind, Bound::Unbounded)).next().map(|(number, (crowd, _))| (*number, &**crowd))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_interest.is_empty() && self.by_number.is_empty()
    }
}

impl Crowd {
    fn new(number: u64, interest: Arc<dyn Interest>, place: u64) -> Self {
        let stretches = Stretches { before: place..place, now: place..place };
        Self { number, interest, is_to_look: AtomicBool::new(false), stretches: Mutex::new(stretches) }
    }

    /// Compares changes with the crowd's filter. Returns whether some watches must read the log, because a change
    /// matches or an earlier change may have been missed. If so, [`call`](Self::call) must be used for each watch
    /// before the next changes.
    pub(super) fn hear(&self, changes: &NewChanges) -> bool {
        let is_to_look = self.stretches.lock().hear(changes, &*self.interest);
        self.is_to_look.store(is_to_look, Ordering::Relaxed);
        is_to_look
    }

    /// Returns whether a watch that has read the log up to `place` can sleep after the latest changes.
    pub(super) fn call(&self, place: u64) -> Call {
        if !self.is_to_look.load(Ordering::Relaxed) {
            return Call::Sleep;
        }
        let stretches = self.stretches.lock();
        let place = stretches.passed(place);
        if place < stretches.now.start { Call::Look { from: place } } else { Call::Sleep }
    }

    /// Position up to which a watch can skip the log, if the watch has read the log up to `place`.
    pub(super) fn passed(&self, place: u64) -> u64 {
        self.stretches.lock().passed(place)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The watch can sleep: no change matches its filter.
    Sleep,
    /// The watch must read the log from this position on.
    Look { from: u64 },
}

impl Stretches {
    /// Updates the ranges without a matching change. Returns whether watches must read these changes.
    fn hear(&mut self, changes: &NewChanges, interest: &dyn Interest) -> bool {
        let Range { start, end } = self.now;
        // Later changes were announced before these changes. The watches that were woken for the later changes read
        // these changes too.
        if changes.to() <= start {
            return false;
        }
        let known_from = if changes.quiet_since() <= end { start } else { changes.quiet_since() };
        let begins = changes.last_for(interest, known_from).map_or(known_from, |place| place + 1);
        let has_ended = begins > start;
        if has_ended {
            self.before = self.now.clone();
        }
        self.now = begins..changes.to().max(end);
        has_ended
    }

    fn passed(&self, place: u64) -> u64 {
        [&self.before, &self.now]
            .into_iter()
            .fold(place, |place, stretch| if place >= stretch.start { place.max(stretch.end) } else { place })
    }
}

#[cfg(test)]
mod tests {
    use super::super::news::News;
    use super::super::test_news::{InNamespace, news_behind, news_in};
    use super::*;

    fn changes(news: News) -> NewChanges {
        let News::Changes(changes) = news else { panic!("few are told apart") };
        changes
    }

    /// A crowd of one watch. The watch has a filter by one namespace, and has read the log up to `place`.
    fn crowd(namespace: &'static str, place: u64) -> Arc<Crowd> {
        Crowds::default().join(Arc::new(InNamespace(namespace)), place)
    }

    #[test]
    fn watches_with_equal_filters_skip_exactly_the_unmatched_changes() {
        // Columns: position of the first change and namespaces of the changes; position that the watch has read;
        // position up to which the watch can skip (`None`: must read the log); reason.
        type Happened<'a> = (u64, &'a [&'a str]);
        let cases: [(Happened<'_>, u64, Option<u64>, &str); 9] = [
            ((5, &["mill"]), 5, Some(6), "nothing for it"),
            ((5, &["mill", "bank"]), 5, Some(7), "nothing for it in all of them"),
            ((5, &["mill", "shop"]), 5, None, "something for it"),
            ((5, &["mill", "shop"]), 6, None, "the second is for it"),
            ((5, &["shop", "mill"]), 6, Some(7), "the first has been looked at"),
            ((5, &["shop"]), 6, Some(6), "it has looked at them"),
            ((5, &["shop"]), 9, Some(9), "it has looked at later ones"),
            ((5, &["mill"]), 4, None, "it was not told of what stands before"),
            ((5, &[]), 5, Some(5), "nothing has happened"),
        ];
        for ((from, namespaces), place, expected, why) in cases {
            let crowd = crowd("shop", place);
            crowd.hear(&changes(news_in(from, namespaces)));
            let found = (crowd.call(place) == Call::Sleep).then(|| crowd.passed(place));
            assert_eq!(found, expected, "{why}");
        }
    }

    #[test]
    fn watches_that_have_not_read_a_matching_change_are_woken() {
        let crowd = crowd("shop", 5);
        assert!(!crowd.hear(&changes(news_in(5, &["mill"]))));
        assert!(crowd.hear(&changes(news_in(6, &["mill", "shop", "mill"]))));
        // A watch skips the changes before the matching change.
        assert_eq!([5, 6, 7].map(|place| crowd.call(place)), [6, 6, 7].map(|from| Call::Look { from }));
        assert_eq!([5, 6, 7].map(|place| crowd.passed(place)), [6, 6, 7]);
        assert_eq!([8, 9, 10].map(|place| crowd.call(place)), [Call::Sleep; 3]);
        assert_eq!([8, 9, 10].map(|place| crowd.passed(place)), [9, 9, 10]);
        assert!(!crowd.hear(&changes(news_in(9, &["bank"]))), "watchers that have not looked yet were called before");
        assert_eq!([7, 8, 9].map(|place| crowd.passed(place)), [7, 10, 10]);
    }

    /// Members report progress at positions 7, 8 and 10.
    #[test]
    fn watches_with_equal_filters_skip_progress_reports_between_changes() {
        let mut news = news_behind((7, 9), &["mill"]);
        news.add(news_behind((10, 11), &["mill", "shop"]));
        let news = changes(news);
        let passed = |place, namespace| {
            let crowd = crowd(namespace, place);
            crowd.hear(&news);
            (crowd.call(place) == Call::Sleep).then(|| crowd.passed(place))
        };
        for place in 7..=13 {
            assert_eq!(passed(place, "bank"), Some(13), "from {place}");
            assert_eq!(passed(place, "shop"), (place == 13).then_some(13), "from {place}");
            assert_eq!(passed(place, "mill"), (place >= 12).then_some(13), "from {place}");
        }
        assert_eq!(passed(6, "bank"), None, "something happened there");
    }

    #[test]
    fn group_of_equal_watch_filters_exists_while_it_has_watches() {
        let mut crowds = Crowds::default();
        let [shop, same, bank] = ["shop", "shop", "bank"].map(|own| crowds.join(Arc::new(InNamespace(own)), 5));
        assert!(Arc::ptr_eq(&shop, &same) && !Arc::ptr_eq(&shop, &bank));
        let numbers = |crowds: &Crowds| {
            let mut next = crowds.next(None);
            std::iter::from_fn(|| {
                let found = next.map(|(number, _)| number);
                next = crowds.next(found);
                found
            })
            .take(9)
            .collect::<Vec<_>>()
        };
        assert_eq!(numbers(&crowds), [1, 2]);
        crowds.leave(&shop);
        assert_eq!(numbers(&crowds), [1, 2]);
        crowds.leave(&same);
        assert_eq!(numbers(&crowds), [2]);
        let again = crowds.join(Arc::new(InNamespace("shop")), 5);
        assert!(!Arc::ptr_eq(&shop, &again));
        assert_eq!(numbers(&crowds), [2, 3]);
        [again, bank].iter().for_each(|crowd| crowds.leave(crowd));
        assert!(crowds.is_empty());
    }
}
