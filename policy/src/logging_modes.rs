//! Rules that decide, by the configuration, which requests appear in the access log.

use std::collections::BTreeMap;
use std::time::Duration;

use tributary_apimachinery::ClusterName;

use crate::outcome::LogMode;

/// If a response takes longer than 5 s, its request is logged unless a setting disables the log. KubeGateway has the
/// same limit.
const SLOW: Duration = Duration::from_secs(5);

/// If a list takes longer than 30 s, it is logged unless a setting disables the log.
const SLOW_LIST: Duration = Duration::from_secs(30);

/// Settings `spec.logging.mode` of the merged view and of each cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggingModes {
    /// Setting of the merged view; `None` if the configuration has no MergedEndpoint object.
    pub merged: Option<AccessLogSetting>,
    /// Setting of each cluster that has an UpstreamCluster object.
    pub clusters: BTreeMap<ClusterName, AccessLogSetting>,
}

/// Access-log setting of one configuration object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessLogSetting {
    /// `spec.logging.mode`; `None` if the field is absent.
    pub mode: Option<LogMode>,
}

/// Facts about a response that decide whether its request is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerOutcome {
    /// HTTP status code; 0 if there was no response.
    pub status: u16,
    /// Time from the request to the end of the response.
    pub took: Duration,
    /// Whether the request is long-running, for example a watch or an exec.
    pub is_long_running: bool,
    /// Whether the request is a list.
    pub is_list: bool,
}

impl LoggingModes {
    /// Returns whether a request to a cluster (`None`: the merged view) appears in the access log. `policy` is the
    /// setting of the matching policy.
    ///
    /// If the cluster has no configuration object, every request is logged unless its policy disables the log. If the
    /// cluster has an object, a request is logged if the setting of the object or of the policy enables the log, and
    /// neither disables it. A failed or slow request is logged unless one of the two settings disables the log.
    pub fn is_written(&self, cluster: Option<&ClusterName>, policy: Option<LogMode>, outcome: AnswerOutcome) -> bool {
        let setting = match cluster {
            Some(cluster) => self.clusters.get(cluster),
            None => self.merged.as_ref(),
        };
        let Some(AccessLogSetting { mode }) = setting.copied() else { return policy != Some(LogMode::Disabled) };
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

    /// KubeGateway logs failed requests by the same rule.
    #[test]
    fn request_is_logged_depending_on_the_log_modes_of_cluster_and_policy() {
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
            let modes = LoggingModes { clusters: [(eu.clone(), AccessLogSetting { mode })].into(), merged: None };
            let is_logged = [FINE, failed].map(|outcome| modes.is_written(Some(&eu), policy, outcome));
            assert_eq!(is_logged, [is_written, if_it_fails], "{mode:?} {policy:?}");
            assert!(modes.is_written(None, None, FINE), "no object describes the merged view");
        }
    }

    #[test]
    fn slow_requests_are_logged_unless_they_are_long_running() {
        let modes = LoggingModes { merged: Some(AccessLogSetting::default()), ..LoggingModes::default() };
        let is_written = |seconds, is_list, is_long_running| {
            let took = Duration::from_secs(seconds);
            modes.is_written(None, None, AnswerOutcome { took, is_list, is_long_running, ..FINE })
        };
        assert_eq!([is_written(4, false, false), is_written(6, false, false)], [false, true]);
        assert_eq!([is_written(6, true, false), is_written(31, true, false)], [false, true]);
        assert!(!is_written(3_600, false, true));
        // A successful response to exec and port-forward has the code 101, which is no failure.
        for (status, is_long_running, expected) in
            [(101, true, false), (503, true, true), (0, true, true), (0, false, true)]
        {
            let outcome = AnswerOutcome { status, is_long_running, ..FINE };
            assert_eq!(modes.is_written(None, None, outcome), expected, "{status} {is_long_running}");
        }
    }
}
