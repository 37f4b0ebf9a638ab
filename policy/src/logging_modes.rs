//! Which requests are written, by what the configuration says.

use std::collections::BTreeMap;
use std::time::Duration;

use tributary_apimachinery::ClusterName;

use crate::outcome::LogMode;

/// An answer that takes longer is written, unless nothing is to be (KubeGateway's bound).
const SLOW: Duration = Duration::from_secs(5);

/// The same, of a list.
const SLOW_LIST: Duration = Duration::from_secs(30);

/// What `spec.logging.mode` says, of each place that a configuration object describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggingModes {
    /// Of the merged view; `None` where no MergedEndpoint describes it.
    pub merged: Option<PlaceLogging>,
    /// Of clusters that an UpstreamCluster describes.
    pub clusters: BTreeMap<ClusterName, PlaceLogging>,
}

/// What one object says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceLogging {
    /// `spec.logging.mode`, where it is given.
    pub mode: Option<LogMode>,
}

/// What an answer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerOutcome {
    /// The status; 0 for none.
    pub status: u16,
    /// How long it took, to its end.
    pub took: Duration,
    /// Whether it lasts by itself: a watch, exec.
    pub is_long_running: bool,
    /// Whether it is a list.
    pub is_list: bool,
}

impl LoggingModes {
    /// Whether a request is written: at a cluster (`None`: the merged view), of this policy. At a place that no object
    /// describes each is. Elsewhere one is that is asked for, and one that fails or is slow unless it is not to be.
    pub fn is_written(&self, cluster: Option<&ClusterName>, policy: Option<LogMode>, outcome: AnswerOutcome) -> bool {
        let place = match cluster {
            Some(cluster) => self.clusters.get(cluster),
            None => self.merged.as_ref(),
        };
        let Some(PlaceLogging { mode }) = place.copied() else { return policy != Some(LogMode::Disabled) };
        let is_forbidden = [mode, policy].contains(&Some(LogMode::Disabled));
        LogMode::is_logged(mode, policy) || (!is_forbidden && outcome.is_remarkable())
    }
}

impl AnswerOutcome {
    fn is_remarkable(self) -> bool {
        let slow = if self.is_list { SLOW_LIST } else { SLOW };
        self.status == 0 || self.status >= 500 || (!self.is_long_running && self.took > slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: AnswerOutcome =
        AnswerOutcome { status: 200, took: Duration::from_secs(1), is_long_running: false, is_list: false };

    /// Case 25 of the gateways' contract, and what KubeGateway writes in any case.
    #[test]
    fn log_modes_of_objects_decide_which_requests_are_logged() {
        let eu = ClusterName::new("eu").unwrap();
        let (on, off) = (Some(LogMode::Enabled), Some(LogMode::Disabled));
        let failed = AnswerOutcome { status: 503, ..FINE };
        for (mode, policy, is_written, if_it_fails) in [
            (off, on, false, false),
            (on, off, false, false),
            (None, None, false, true),
            (on, None, true, true),
            (None, on, true, true),
            (None, off, false, false),
        ] {
            let modes = LoggingModes { clusters: [(eu.clone(), PlaceLogging { mode })].into(), merged: None };
            let said = [FINE, failed].map(|outcome| modes.is_written(Some(&eu), policy, outcome));
            assert_eq!(said, [is_written, if_it_fails], "{mode:?} {policy:?}");
            assert!(modes.is_written(None, None, FINE), "no object describes the merged view");
        }
    }

    #[test]
    fn slow_requests_are_logged_and_long_running_ones_are_not_slow() {
        let modes = LoggingModes { merged: Some(PlaceLogging::default()), ..LoggingModes::default() };
        let is_written = |seconds, is_list, is_long_running| {
            let took = Duration::from_secs(seconds);
            modes.is_written(None, None, AnswerOutcome { took, is_list, is_long_running, ..FINE })
        };
        assert_eq!([is_written(4, false, false), is_written(6, false, false)], [false, true]);
        assert_eq!([is_written(6, true, false), is_written(31, true, false)], [false, true]);
        assert!(!is_written(3_600, false, true));
        // Exec and port-forward are switched to another protocol, which is no failure.
        for (status, is_long_running, expected) in
            [(101, true, false), (503, true, true), (0, true, true), (0, false, true)]
        {
            let outcome = AnswerOutcome { status, is_long_running, ..FINE };
            assert_eq!(modes.is_written(None, None, outcome), expected, "{status} {is_long_running}");
        }
    }
}
