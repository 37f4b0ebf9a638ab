//! Metrics of clients' requests at each cluster and of the limits for these requests. The metrics are collected when a
//! client reads them. Each cluster has its own limits.

use std::fmt;
use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use tributary_sharing::gauges::gauges;

use super::Fleet;
use crate::report::LimitReport;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemberLimitLabels {
    cluster: String,
    limit: String,
}

/// Collector for the limits of clients' requests at each cluster.
pub struct MemberLimitMetrics(Weak<Fleet>);

impl MemberLimitMetrics {
    /// Creates a collector for a fleet. The collector exposes nothing after the fleet is dropped.
    pub fn for_fleet(fleet: &Arc<Fleet>) -> Self {
        Self(Arc::downgrade(fleet))
    }

    fn reports(&self) -> Vec<(MemberLimitLabels, LimitReport)> {
        let clusters = self.0.upgrade().map(|fleet| fleet.clusters());
        let clusters = clusters.iter().flat_map(|clusters| clusters.values());
        // A cluster without a client gets no requests.
        let reached = clusters.filter(|cluster| cluster.setup.client.is_ok());
        let reports = reached.flat_map(|cluster| {
            cluster.limit_reports().map(|report| {
                (MemberLimitLabels { cluster: cluster.name().to_string(), limit: report.limit.clone() }, report)
            })
        });
        reports.collect()
    }
}

impl fmt::Debug for MemberLimitMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemberLimitMetrics")
    }
}

/// Name, help text and function of a gauge for each limit. The function reads the value.
type LimitGauge = (&'static str, &'static str, fn(&LimitReport) -> u64);

const GAUGES: [LimitGauge; 2] = [
    ("tributary_member_limit", "Limits of clients' requests to a cluster", |it| it.max),
    ("tributary_member_limit_used", "Used part of a cluster's limit", |it| it.used),
];

impl Collector for MemberLimitMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let reports = self.reports();
        for (name, help, value) in GAUGES {
            gauges(&mut encoder, name, help, reports.iter().map(|(labels, report)| (labels, value(report))))?;
        }
        Ok(())
    }
}
