//! Metrics with labels that others choose: clients, and who defines resources in clusters. They have no more series
//! than a bound; what has no room is counted together.

use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::family::{Family, MetricConstructor};

/// Labels of which some are others' words.
pub(crate) trait ChosenLabels {
    /// The same without others' words: what is counted together where there is no room. There are few of these.
    fn without_choice(&self) -> Self;
}

/// A family of metrics with a bound of its series. Clones share their series.
#[derive(Clone, Debug)]
pub(crate) struct Capped<Labels, Metric, Constructor = fn() -> Metric> {
    /// The series, to be registered.
    pub(crate) family: Family<Labels, Metric, Constructor>,
    /// How many more series there may be. Held while one begins.
    room: Arc<Mutex<usize>>,
}

impl<Labels, Metric, Constructor> Capped<Labels, Metric, Constructor>
where
    Labels: ChosenLabels + Clone + Eq + Hash,
    Constructor: MetricConstructor<Metric>,
{
    /// A family with so many series at most, and those that are counted together.
    pub(crate) fn new(max: usize, constructor: Constructor) -> Self {
        Self { family: Family::new_with_constructor(constructor), room: Arc::new(Mutex::new(max)) }
    }

    /// Has something done to the metric of these labels. Whoever keeps a clone of it counts where all others do who
    /// count by the same labels: there is room for them from the beginning, or never.
    pub(crate) fn with<T>(&self, labels: &Labels, act: impl FnOnce(&Metric) -> T) -> T {
        if let Some(metric) = self.family.get(labels) {
            return act(&metric);
        }
        match self.has_or_begins(labels) {
            true => act(&self.family.get_or_create(labels)),
            false => act(&self.family.get_or_create(&labels.without_choice())),
        }
    }

    /// Whether these labels have a series, which begins here where there is room for it.
    fn has_or_begins(&self, labels: &Labels) -> bool {
        let mut room = self.room.lock();
        // Another thread may have begun it just now.
        if self.family.get(labels).is_some() {
            return true;
        }
        let Some(less) = room.checked_sub(1) else { return false };
        *room = less;
        drop(self.family.get_or_create(labels));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Chosen(String);

    impl ChosenLabels for Chosen {
        fn without_choice(&self) -> Self {
            Self("other".to_owned())
        }
    }

    #[test]
    fn what_has_no_room_is_counted_together_and_what_is_known_goes_on() {
        let capped = Capped::new(3, Counter::default as fn() -> Counter);
        for round in 1..=2 {
            for number in 0..1000 {
                capped.with(&Chosen(number.to_string()), |counter| counter.inc());
            }
            let known = (0..1000).filter(|number| capped.family.get(&Chosen(number.to_string())).is_some()).count();
            assert_eq!(known, 3);
            let counted = |label: &str| capped.with(&Chosen(label.to_owned()), |counter: &Counter| counter.get());
            assert_eq!((counted("0"), counted("2"), counted("other")), (round, round, round * 997));
        }
    }

    #[test]
    fn threads_that_begin_the_same_series_take_room_for_it_once() {
        const THREADS: usize = 8;
        const SERIES: usize = 2_000;
        let capped = Capped::new(SERIES, Counter::default as fn() -> Counter);
        let begin = Barrier::new(THREADS);
        let count = || {
            begin.wait();
            for number in 0..SERIES {
                capped.with(&Chosen(number.to_string()), |counter| counter.inc());
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(count);
            }
        });
        for number in 0..SERIES {
            let counted = capped.family.get(&Chosen(number.to_string())).map(|counter| counter.get());
            assert_eq!(counted, Some(THREADS as u64), "{number}");
        }
        assert!(capped.family.get(&Chosen("other".to_owned())).is_none());
    }
}
