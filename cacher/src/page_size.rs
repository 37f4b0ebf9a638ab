//! Chooses the page size of the next list request, and whether to request gzip.
//!
//! A kube-apiserver limits the time of a list to `--request-timeout`, 60 s by default, even while the response is being
//! sent. After the limit, the server answers 504. If the response head has been sent, the server resets the stream or
//! closes the connection (`baseTimeoutWriter.timeout` in apiserver's `pkg/server/filters/timeout.go`). A page that
//! takes longer over a slow connection fails on each attempt. Smaller pages succeed, and the continue token keeps the
//! earlier pages. Watches and WatchLists have no such limit.
//!
//! A slow page makes the next page smaller, and a fast page makes the next page larger. The cacher needs to know
//! neither the bandwidth of the connection nor the time limit of the member. gzip reduces a list of pods to a tenth of
//! its bytes, and costs the member about 10 ms of CPU per MB. The cacher requests gzip after a list was cut off at its
//! time limit, and for all later lists, because the connection does not become faster.
//!
//! Some members limit lists to less time: a kube-apiserver with a shorter `--request-timeout`, or a load balancer in
//! front. The duration of a list that was cut off therefore bounds the time of later pages. A connection may also be
//! reset by chance, so each successful list doubles this bound. If a page is cut off twice in a row, the next page is
//! smaller, regardless of the page's duration.

use std::time::Duration;

/// The shortest time limit that the cacher infers from a list that was cut off. 1 s: no server has a shorter limit, and
/// a page that takes 1 s is large enough. If a list is cut off within 1 s, the cause is not a time limit.
const PAGE_TIME_MIN: Duration = Duration::from_secs(1);

/// The time within which a page should be complete. After a page within this time, the next page is larger. If a page
/// takes longer and is cut off, the next page is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageTimeTarget {
    /// The initial time, which is also the longest time.
    max: Duration,
    time: Duration,
}

impl PageTimeTarget {
    pub(crate) fn new(max: Duration) -> Self {
        Self { max, time: max }
    }

    pub(crate) fn is_soon(self, took: Duration) -> bool {
        took <= self.time
    }

    pub(crate) fn is_late(self, took: Duration) -> bool {
        took >= self.time
    }

    /// Returns the time for pages after a list was cut off: at most a quarter of that list's duration. A page of twice
    /// the size then takes at most half of that duration.
    pub(crate) fn after_break(self, took: Duration) -> Self {
        if took < PAGE_TIME_MIN {
            return self;
        }
        Self { time: self.time.min((took / 4).max(PAGE_TIME_MIN)), ..self }
    }

    /// Returns the time for pages after a complete list: twice as long, up to the initial time. If a server or proxy
    /// does limit the time of lists, the longer time costs one retry of a page.
    pub(crate) fn after_list(self) -> Self {
        Self { time: self.time.saturating_mul(2).min(self.max), ..self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageSize {
    /// The maximum number of objects per page.
    max: u32,
    /// The number of objects of the next page.
    limit: u32,
    compressed: bool,
}

impl PageSize {
    pub(crate) fn new(max: u32) -> Self {
        Self { max, limit: max, compressed: false }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Doubles the page size after a page that was complete within its time. The larger page still takes at most half
    /// of the duration at which the member cuts off a list.
    pub(crate) fn after_soon(self) -> Self {
        Self { limit: self.limit.saturating_mul(2).min(self.max), ..self }
    }

    /// Halves the page size after a response head that did not arrive in time, down to one object. Compression cannot
    /// help, because the member sent no body.
    pub(crate) fn after_silence(self) -> Self {
        Self { limit: (self.limit / 2).max(1), ..self }
    }

    /// Sets the page size to half of the received objects, and turns on compression. Called after a list was cut off at
    /// its time limit.
    pub(crate) fn after_break(self, read: u32) -> Self {
        let received = if read == 0 { self.limit } else { read.min(self.limit) };
        Self { limit: (received / 2).max(1), compressed: true, ..self }
    }

    /// Turns on compression after a continue token expired: pages take too long.
    pub(crate) fn after_expiry(self) -> Self {
        Self { compressed: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limit_of_a_page_is_a_quarter_of_the_duration_of_an_interrupted_list() {
        let seconds = Duration::from_secs;
        let whole = PageTimeTarget::new(seconds(10));
        let cases = [(0, 10_000), (1, 1000), (3, 1000), (8, 2000), (20, 5000), (60, 10_000)];
        for (duration, expected) in cases {
            assert_eq!(whole.after_break(seconds(duration)).time, Duration::from_millis(expected), "{duration} s");
        }
        let shorter = whole.after_break(seconds(8));
        assert_eq!(shorter.after_break(seconds(60)), shorter, "the shortest limit counts");
        assert!(!whole.is_late(seconds(8)) && shorter.is_late(seconds(8)), "the second break at 8 s is late");
        assert!(
            whole.is_soon(seconds(5)) && !shorter.is_soon(seconds(5)),
            "a page of twice the size would be too slow"
        );
        let mut grown = whole.after_break(seconds(1));
        for expected in [1, 2, 4, 8, 10, 10] {
            assert_eq!(grown.time, seconds(expected), "the limit after complete lists");
            grown = grown.after_list();
        }
    }

    fn page_size(limit: u32, compressed: bool) -> PageSize {
        PageSize { max: 10_000, limit, compressed }
    }

    #[test]
    fn list_page_size_shrinks_after_slow_and_grows_after_fast_pages() {
        let whole = PageSize::new(10_000);
        assert_eq!((whole.limit(), whole.is_compressed()), (10_000, false));
        let cases: [(PageSize, PageSize, &str); 12] = [
            (whole.clone().after_soon(), page_size(10_000, false), "never above the initial size"),
            (whole.clone().after_silence(), page_size(5_000, false), "half"),
            (whole.clone().after_break(6_000), page_size(3_000, true), "half of the received objects"),
            (
                whole.clone().after_break(40_000),
                page_size(5_000, true),
                "an unpaged list may have more objects than a page",
            ),
            (whole.clone().after_break(1), page_size(1, true), "at least one object"),
            (whole.clone().after_break(0), page_size(5_000, true), "no object was received"),
            (
                whole.after_expiry(),
                page_size(10_000, true),
                "the page size is right, only the number of pages is too high",
            ),
            (page_size(3_000, true).after_soon(), page_size(6_000, true), "twice the size"),
            (page_size(6_000, true).after_soon(), page_size(10_000, true), "up to the initial size"),
            (page_size(3_000, true).after_silence(), page_size(1_500, true), "it stays compressed"),
            (page_size(1, true).after_silence(), page_size(1, true), "at least one object"),
            (page_size(1, true).after_break(0), page_size(1, true), "at least one object"),
        ];
        for (after, expected, why) in cases {
            assert_eq!(after, expected, "{why}");
        }
    }
}
