//! How much of a collection is asked for at once, and whether compressed.
//!
//! A kube-apiserver gives a list as long as `--request-timeout`, 60 s by default, however much of it is on its way. Then it answers 504,
//! or, behind a head that is sent, resets the stream or closes the connection (`baseTimeoutWriter.timeout` in apiserver's
//! `pkg/server/filters/timeout.go`). A page that takes longer over a slow line breaks off each time it is asked for; smaller ones come
//! through, and a continue token keeps what came before. Watches last, so a WatchList has no such bound.
//!
//! What took too long makes the next page smaller, what came soon makes it larger again: neither the speed of the line nor the member's
//! bound has to be known. gzip makes a list of pods a tenth as long and costs a member's processor some 10 ms per MB, so it is asked for
//! where a list has broken off for its length, and from then on: the line does not become faster.

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

    /// After an answer that did not begin in time: half as much, one object at least. There is nothing of it that could be compressed.
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
