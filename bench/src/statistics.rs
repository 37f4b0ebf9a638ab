//! Percentiles of measured times.

use std::time::Duration;

use serde::Serialize;

/// Percentiles of a set of times, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Percentiles {
    /// Half of the times are at most this long.
    pub p50: f64,
    /// 99 of 100 times are at most this long.
    pub p99: f64,
}

impl Percentiles {
    /// Percentiles of times in seconds, in any order; zero if there are none.
    pub(crate) fn of_seconds(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            // The nearest-rank definition.
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied().unwrap_or_default() * 1000.0
        };
        Self { p50: at(0.50), p99: at(0.99) }
    }

    pub(crate) fn from_times(times: &[Duration]) -> Self {
        Self::of_seconds(times.iter().map(Duration::as_secs_f64).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_follow_the_nearest_rank_definition() {
        let times: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        let found = Percentiles::from_times(&times);
        assert_eq!((found.p50, found.p99), (100.0, 198.0));
        assert_eq!(Percentiles::from_times(&[]).p99, 0.0);
        assert_eq!(Percentiles::from_times(&[Duration::from_millis(7)]).p50, 7.0);
    }
}
