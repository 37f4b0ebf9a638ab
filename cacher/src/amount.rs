//! How much of a collection is asked for at once, and whether compressed.
//!
//! A kube-apiserver gives a list as long as `--request-timeout`, 60 s by default, however much of it is on its way.
//! Then it answers 504, or, behind a head that is sent, resets the stream or closes the connection
//! (`baseTimeoutWriter.timeout` in apiserver's `pkg/server/filters/timeout.go`). A page that takes longer over a slow
//! line breaks off each time it is asked for; smaller ones come through, and a continue token keeps what came before.
//! Watches last, so a WatchList has no such bound.
//!
//! What took too long makes the next page smaller, what came soon makes it larger again: neither the speed of the line
//! nor the member's bound has to be known. gzip makes a list of pods a tenth as long and costs a member's processor
//! some 10 ms per MB, so it is asked for where a list has broken off for its length, and from then on:
//! the line does not become faster.
//!
//! Some give a list less: a kube-apiserver with a shorter `--request-timeout`, or a load balancer before it. How long a
//! list took that broke off bounds how long pages may take from then on; as a connection may also be reset by chance,
//! that is twice as long after each list that came through. And whatever breaks off twice in a row, however soon,
//! is asked for in less.

use std::time::Duration;

/// The shortest bound of a list's time that is believed in. 1 s: nobody sets a shorter one, and a page that takes as
/// long is large enough. What breaks off sooner does so for other reasons.
const PAGE_TIME_MIN: Duration = Duration::from_secs(1);

/// How long a page may take: what comes sooner is followed by a larger one, and what breaks off later by a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageTime {
    /// So long where no list has broken off sooner.
    most: Duration,
    time: Duration,
}

impl PageTime {
    /// So long as no list has broken off sooner.
    pub(crate) fn new(most: Duration) -> Self {
        Self { most, time: most }
    }

    /// Whether a page twice as large as one that took so long would still come.
    pub(crate) fn is_soon(self, took: Duration) -> bool {
        took <= self.time
    }

    /// Whether what broke off after so long was too large.
    pub(crate) fn is_late(self, took: Duration) -> bool {
        took >= self.time
    }

    /// After a list that somebody else ended when it had taken so long: a quarter of that at most, so that a page twice
    /// as large still comes within half of it.
    pub(crate) fn after_break(self, took: Duration) -> Self {
        if took < PAGE_TIME_MIN {
            return self;
        }
        Self { time: self.time.min((took / 4).max(PAGE_TIME_MIN)), ..self }
    }

    /// After a list that came through to its end: twice as long, up to the beginning's. Where somebody does end lists
    /// sooner, this costs one page that breaks off, of one list.
    pub(crate) fn after_list(self) -> Self {
        Self { time: self.time.saturating_mul(2).min(self.most), ..self }
    }
}

/// How much is asked for at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    /// Objects per page, at most.
    most: u32,
    /// Objects of the next page.
    limit: u32,
    compressed: bool,
}

impl Amount {
    /// Pages of so many objects, as they are.
    pub(crate) fn new(most: u32) -> Self {
        Self { most, limit: most, compressed: false }
    }

    /// How many objects the next page may have.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether lists are to be compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// After a page that came soon: twice as much, which still comes within half of the time.
    pub(crate) fn after_soon(self) -> Self {
        Self { limit: self.limit.saturating_mul(2).min(self.most), ..self }
    }

    /// After an answer that did not begin in time: half as much, one object at least.
    /// There is nothing of it that could be compressed.
    pub(crate) fn after_silence(self) -> Self {
        Self { limit: (self.limit / 2).max(1), ..self }
    }

    /// After a list that broke off late, with so many objects read: half of what came through.
    pub(crate) fn after_break(self, read: u32) -> Self {
        let came = if read == 0 { self.limit } else { read.min(self.limit) };
        Self { limit: (came / 2).max(1), compressed: true, ..self }
    }

    /// After a continue token that expired: pages take long.
    pub(crate) fn after_expiry(self) -> Self {
        Self { compressed: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_take_far_less_time_than_lists_are_given() {
        let seconds = Duration::from_secs;
        let whole = PageTime::new(seconds(10));
        let cases = [(0, 10_000), (1, 1000), (3, 1000), (8, 2000), (20, 5000), (60, 10_000)];
        for (given, expected) in cases {
            assert_eq!(whole.after_break(seconds(given)).time, Duration::from_millis(expected), "{given} s");
        }
        let shorter = whole.after_break(seconds(8));
        assert_eq!(shorter.after_break(seconds(60)), shorter, "the shortest counts");
        assert!(!whole.is_late(seconds(8)) && shorter.is_late(seconds(8)), "the second break at 8 s is a late one");
        assert!(whole.is_soon(seconds(5)) && !shorter.is_soon(seconds(5)), "twice as much would not come");
        let mut grown = whole.after_break(seconds(1));
        for expected in [1, 2, 4, 8, 10, 10] {
            assert_eq!(grown.time, seconds(expected), "lists come through");
            grown = grown.after_list();
        }
    }

    fn amount(limit: u32, compressed: bool) -> Amount {
        Amount { most: 10_000, limit, compressed }
    }

    #[test]
    fn what_took_too_long_makes_less_and_what_came_soon_more() {
        let whole = Amount::new(10_000);
        assert_eq!((whole.limit(), whole.is_compressed()), (10_000, false));
        let cases: [(Amount, Amount, &str); 12] = [
            (whole.clone().after_soon(), amount(10_000, false), "never more than at the beginning"),
            (whole.clone().after_silence(), amount(5_000, false), "half"),
            (whole.clone().after_break(6_000), amount(3_000, true), "half of what came"),
            (whole.clone().after_break(40_000), amount(5_000, true), "of a list in one piece there may be more"),
            (whole.clone().after_break(1), amount(1, true), "one object at least"),
            (whole.clone().after_break(0), amount(5_000, true), "nothing came"),
            (whole.after_expiry(), amount(10_000, true), "the pages are well, there are too many"),
            (amount(3_000, true).after_soon(), amount(6_000, true), "twice as much"),
            (amount(6_000, true).after_soon(), amount(10_000, true), "up to the beginning's"),
            (amount(3_000, true).after_silence(), amount(1_500, true), "it stays compressed"),
            (amount(1, true).after_silence(), amount(1, true), "one object at least"),
            (amount(1, true).after_break(0), amount(1, true), "one object at least"),
        ];
        for (after, expected, why) in cases {
            assert_eq!(after, expected, "{why}");
        }
    }
}
