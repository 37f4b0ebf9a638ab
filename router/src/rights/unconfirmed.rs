//! Clusters that have not confirmed yet what lasts: for how long it goes on all the same. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

use super::reviews::ALLOWED_FOR;

/// For how long something lasts of which a cluster has not said again that it allows it, though it was to be asked. A
/// minute, as long as a yes is believed. It takes so long only where the question waits for its turn meanwhile: of a
/// cluster that is asked and does not answer, what it said last holds for a while.
pub(super) const CONFIRMED_WITHIN: Duration = ALLOWED_FOR;

/// Since when clusters have not confirmed what lasts.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    since: BTreeMap<ClusterName, Instant>,
}

impl Unconfirmed {
    /// These are being asked at this moment, and no others.
    pub(super) fn note(&mut self, unknown: [&BTreeSet<ClusterName>; 2], now: Instant) {
        self.since.retain(|cluster, _| unknown.iter().any(|own| own.contains(cluster)));
        for cluster in unknown.into_iter().flatten() {
            self.since.entry(cluster.clone()).or_insert(now);
        }
    }

    /// None is asked any more.
    pub(super) fn clear(&mut self) {
        self.since.clear();
    }

    /// Whether what a cluster said before counts as long as it is asked.
    pub(super) fn counts(&self, cluster: &ClusterName, now: Instant) -> bool {
        self.since.get(cluster).is_some_and(|since| now < *since + CONFIRMED_WITHIN)
    }

    /// When that ends next.
    pub(super) fn ends(&self, now: Instant) -> Option<Instant> {
        self.since.values().map(|since| *since + CONFIRMED_WITHIN).filter(|end| *end > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_confirmed_counts_for_a_minute_however_often_it_is_looked() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let names =
            |names: &[&str]| -> BTreeSet<_> { names.iter().map(|name| ClusterName::new(name).unwrap()).collect() };
        let [a, b] = ["a", "b"].map(|name| ClusterName::new(name).unwrap());
        let mut unconfirmed = Unconfirmed::default();
        assert!(!unconfirmed.counts(&a, at(0)) && unconfirmed.ends(at(0)).is_none());
        unconfirmed.note([&names(&["a"]), &names(&[])], at(0));
        unconfirmed.note([&names(&["a"]), &names(&["a", "b"])], at(30));
        assert_eq!((unconfirmed.counts(&a, at(59)), unconfirmed.counts(&a, at(60))), (true, false));
        assert_eq!((unconfirmed.counts(&b, at(89)), unconfirmed.counts(&b, at(90))), (true, false));
        assert_eq!([0, 60, 90].map(|now| unconfirmed.ends(at(now))), [Some(at(60)), Some(at(90)), None]);
        // It has answered, and is asked again.
        unconfirmed.note([&names(&["b"]), &names(&[])], at(50));
        unconfirmed.note([&names(&["a", "b"]), &names(&[])], at(55));
        assert_eq!((unconfirmed.counts(&a, at(114)), unconfirmed.counts(&a, at(115))), (true, false));
        unconfirmed.clear();
        assert!(!unconfirmed.counts(&a, at(56)));
    }
}
