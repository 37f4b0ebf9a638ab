//! Metrics with labels that clients or cluster users choose. The number of series has a limit. All label sets above the
//! limit share one series.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::family::{Family, MetricConstructor};

/// Label set with values that clients or cluster users choose.
pub(crate) trait ChosenLabels {
    /// Returns the label set of the shared series, which contains no chosen value.
    fn without_choice(&self) -> Self;
}

/// A family of metrics with a maximum number of series. Clones share their series.
#[derive(Clone, Debug)]
pub(crate) struct Capped<Labels, Metric, Constructor = fn() -> Metric> {
    /// The metric family with its series, for registration.
    pub family: Family<Labels, Metric, Constructor>,
    max: usize,
    /// Label sets that have their own series. Lock order: this lock before the lock of `family`. Only a label set
    /// without a series needs this lock.
    known: Arc<Mutex<HashSet<Labels>>>,
}

impl<Labels, Metric, Constructor> Capped<Labels, Metric, Constructor>
where
    Labels: ChosenLabels + Clone + Eq + Hash,
    Constructor: MetricConstructor<Metric>,
{
    pub(crate) fn new(max: usize, constructor: Constructor) -> Self {
        Self { family: Family::new_with_constructor(constructor), max, known: Arc::default() }
    }

    /// Runs a function on the metric of these labels. The metric is the label set's own series, or the shared series if
    /// the number of series has reached the limit. The caller may store a clone of the metric.
    pub(crate) fn with<T>(&self, labels: &Labels, act: impl FnOnce(&Metric) -> T) -> T {
        if let Some(metric) = self.family.get(labels) {
            return act(&metric);
        }
        let mut known = self.known.lock();
        if known.contains(labels) || (known.len() < self.max && known.insert(labels.clone())) {
            return act(&self.family.get_or_create(labels));
        }
        drop(known);
        act(&self.family.get_or_create(&labels.without_choice()))
    }

    /// Removes the series for which `is_kept` returns false, but not the shared series. If a removed label set is used
    /// again, its counter starts at zero.
    ///
    /// Visits each series.
    pub(crate) fn retain(&self, retains: impl Fn(&Labels) -> bool) {
        self.known.lock().retain(|labels| {
            let stays = retains(labels);
            if !stays {
                self.family.remove(labels);
            }
            stays
        });
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
    fn label_sets_above_the_limit_share_one_series() {
        let capped = Capped::new(3, Counter::default as fn() -> Counter);
        for round in 1..=2 {
            for number in 0..1000 {
                capped.with(&Chosen(number.to_string()), |counter| counter.inc());
            }
            let known = (0..1000).filter(|number| capped.family.get(&Chosen(number.to_string())).is_some()).count();
            assert_eq!(known, 3);
            let count_of = |label: &str| capped.with(&Chosen(label.to_owned()), |counter: &Counter| counter.get());
            assert_eq!((count_of("0"), count_of("2"), count_of("other")), (round, round, round * 997));
        }
    }

    #[test]
    fn concurrent_threads_create_each_metric_series_once() {
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
            let value = capped.family.get(&Chosen(number.to_string())).map(|counter| counter.get());
            assert_eq!(value, Some(THREADS as u64), "{number}");
        }
        assert!(capped.family.get(&Chosen("other".to_owned())).is_none());
    }

    #[test]
    fn removed_metric_series_free_capacity_for_new_series() {
        let capped: Capped<Chosen, Counter> = Capped::new(3, Counter::default);
        let count = |label: &str| {
            capped.with(&Chosen(label.to_owned()), |counter| counter.inc());
        };
        let count_of = |label: &str| capped.family.get(&Chosen(label.to_owned())).map(|counter| counter.get());
        // `retain` frees the series of the previous round, so the new names of each round get their own series.
        for generation in 1..=100 {
            let names = ["a", "b", "c"].map(|name| format!("{name}-{generation}"));
            names.iter().for_each(|name| count(name));
            assert_eq!(names.each_ref().map(|name| count_of(name)), [Some(1); 3], "generation {generation}");
            count("beyond");
            assert_eq!((count_of("beyond"), count_of("other")), (None, Some(generation)));
            capped.retain(|Chosen(label)| label == "a-100");
        }
        assert_eq!((count_of("a-100"), count_of("b-100")), (Some(1), None));
        assert_eq!(count_of("other"), Some(100), "what is counted together stays");
        count("a-100");
        assert_eq!(count_of("a-100"), Some(2), "what is kept goes on");
    }
}
