//! The watchers of a view that are told of the same: what happened is held against each crowd's interest once, however
//! many they are, and what is for none of them passes the whole crowd by.
//!
//! Of the log a crowd knows *stretches* in which there is nothing for it. A change that is not for it makes the one
//! that is growing longer, and touches no watcher. One that is for it ends that stretch and begins the next one behind
//! itself: whoever has not come so far is to look.
//!
//! ```text
//!   log   … │ for it │ others' │ others' │ for it │ others' │ ◀─ others' makes `now` longer
//!                    └────── before ─────┘        └── now ──┘
//!   a watcher here ───────▶ goes on at ──▶ and looks: there is something for it
//!   a watcher here ──────────────────────────────▶ sleeps, and goes on at the end one day
//! ```

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::news::{Interest, NewChanges};

/// The crowds of a view.
#[derive(Default)]
pub(super) struct Crowds {
    by_interest: HashMap<Arc<dyn Interest>, u64>,
    /// Each with how many watchers it has.
    by_number: BTreeMap<u64, (Arc<Crowd>, usize)>,
    /// How many there have ever been: the number of the next.
    begun: u64,
}

/// Watchers that are told of the same.
pub(super) struct Crowd {
    number: u64,
    interest: Arc<dyn Interest>,
    /// Whether some of them are to look by what was last held against its interest.
    is_to_look: AtomicBool,
    stretches: Mutex<Stretches>,
}

/// Places of the log between which there is nothing for a crowd.
struct Stretches {
    /// The last one that has ended. Whoever sleeps there is about to be called.
    before: Range<u64>,
    /// The one that is still growing. Whoever has not come so far has been called, or is about to look.
    now: Range<u64>,
}

impl Crowds {
    /// Has a watcher join those of its interest. It has looked at everything before a place.
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

    /// Has a watcher leave.
    pub(super) fn leave(&mut self, crowd: &Crowd) {
        let Some((_, watchers)) = self.by_number.get_mut(&crowd.number) else { return };
        *watchers -= 1;
        if *watchers == 0 {
            self.by_number.remove(&crowd.number);
            self.by_interest.remove(&crowd.interest);
        }
    }

    /// The next crowd behind that of a number; the first for `None`. Those that begin meanwhile come last.
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

    /// Holds changes against its interest, and says whether some of its watchers are to look: there is something for
    /// them, or something else may have happened before that they were not told of. Then all of them are to be
    /// [called](Self::call) before it hears more.
    pub(super) fn hear(&self, changes: &NewChanges) -> bool {
        let is_to_look = self.stretches.lock().hear(changes, &*self.interest);
        self.is_to_look.store(is_to_look, Ordering::Relaxed);
        is_to_look
    }

    /// What is for who has looked at everything before a place, by what was last held against its interest.
    pub(super) fn call(&self, place: u64) -> Call {
        if !self.is_to_look.load(Ordering::Relaxed) {
            return Call::Sleep;
        }
        let stretches = self.stretches.lock();
        let place = stretches.passed(place);
        if place < stretches.now.start { Call::Look { from: place } } else { Call::Sleep }
    }

    /// The place before which there is nothing for who has looked at everything before another.
    pub(super) fn passed(&self, place: u64) -> u64 {
        self.stretches.lock().passed(place)
    }
}

/// What becomes of a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Nothing that it has not been called for.
    Sleep,
    /// It is to look, from this place of the log on.
    Look { from: u64 },
}

impl Stretches {
    /// Whether somebody is to look for these changes.
    fn hear(&mut self, changes: &NewChanges, interest: &dyn Interest) -> bool {
        let Range { start, end } = self.now;
        // They were put into the log before others that were told before them: whoever was called for those finds them.
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

    /// A crowd that has come to a place.
    fn crowd(namespace: &'static str, place: u64) -> Arc<Crowd> {
        Crowds::default().join(Arc::new(InNamespace(namespace)), place)
    }

    #[test]
    fn what_is_not_for_a_watcher_is_passed_and_no_more() {
        // (from, namespaces), place before → place after, or it is to look
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

    /// Some of a crowd have come further than others, as each looks in its own time.
    #[test]
    fn each_of_a_crowd_is_called_for_what_it_has_not_looked_at() {
        let crowd = crowd("shop", 5);
        assert!(!crowd.hear(&changes(news_in(5, &["mill"]))));
        assert!(crowd.hear(&changes(news_in(6, &["mill", "shop", "mill"]))));
        // What came before, and was not for it, is not looked at.
        assert_eq!([5, 6, 7].map(|place| crowd.call(place)), [6, 6, 7].map(|from| Call::Look { from }));
        assert_eq!([5, 6, 7].map(|place| crowd.passed(place)), [6, 6, 7]);
        assert_eq!([8, 9, 10].map(|place| crowd.call(place)), [Call::Sleep; 3]);
        assert_eq!([8, 9, 10].map(|place| crowd.passed(place)), [9, 9, 10]);
        assert!(!crowd.hear(&changes(news_in(9, &["bank"]))), "who has not looked yet was called before");
        assert_eq!([7, 8, 9].map(|place| crowd.passed(place)), [7, 10, 10]);
    }

    /// Members said how far they are at 7, 8 and 10.
    #[test]
    fn progress_before_and_between_changes_is_nothing_to_look_at() {
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
    fn those_of_one_interest_are_one_crowd_as_long_as_one_is_there() {
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
