//! Tests of promtool's test cases for the alert rules (`e2e/tests/e2e/observability`). Each alert has one case in which
//! the alert fires, and one case in which it does not fire, and the series in the cases exist in the list of metrics.

use std::collections::BTreeSet;
use std::fs;

use serde::Deserialize;
use serde_json::Value;

use crate::alerts::ALERTS;
use crate::{labels_of, promql, root};

const CASES: &str = "e2e/tests/e2e/observability/alerts-tests.yaml";

/// The fields of promtool's test file that this test reads.
#[derive(Deserialize)]
struct Cases {
    tests: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    input_series: Vec<Series>,
    alert_rule_test: Vec<Expectation>,
}

#[derive(Deserialize)]
struct Series {
    series: String,
}

#[derive(Deserialize)]
struct Expectation {
    alertname: String,
    /// The expected alerts; missing in cases that raise no alert.
    #[serde(default)]
    exp_alerts: Vec<Value>,
}

fn cases() -> Cases {
    let text = fs::read_to_string(root().join(CASES)).unwrap();
    serde_json::from_value(serde_saphyr::from_str(&text).unwrap()).unwrap()
}

#[test]
fn each_alert_has_a_firing_and_a_silent_test_case() {
    let all: BTreeSet<&str> = ALERTS.iter().map(|alert| alert.name).collect();
    let cases = cases();
    let expectations: Vec<_> = cases.tests.iter().flat_map(|case| &case.alert_rule_test).collect();
    for (is_raised, what) in [(true, "raised"), (false, "not raised")] {
        let so = expectations.iter().filter(|expectation| expectation.exp_alerts.is_empty() != is_raised);
        let so: BTreeSet<&str> = so.map(|expectation| expectation.alertname.as_str()).collect();
        assert_eq!(so, all, "{what}");
    }
}

#[test]
fn alert_test_cases_use_known_series() {
    for Case { name, input_series, .. } in cases().tests {
        for Series { series } in input_series {
            let Some(metric) = promql::metrics_of(&series).next() else {
                assert_eq!(series, "other", "{name}: what is no metric of ours");
                continue;
            };
            let known = labels_of(metric).unwrap_or_else(|| panic!("{name}: {metric} is not in the list"));
            for (labels, _) in promql::named_labels(&series) {
                assert!(
                    labels.iter().all(|label| known.contains(label)),
                    "{name}: {metric} has {known:?}, not {labels:?}"
                );
            }
        }
    }
}
