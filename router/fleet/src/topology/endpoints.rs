//! Metrics of the clusters' endpoints, which are collected when a client reads the metrics.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use tributary_proxy::LeftOutReason;

use super::Fleet;
use crate::report::EndpointReport;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    cluster: String,
    /// Host and port of the endpoint.
    endpoint: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeftOutLabels {
    cluster: String,
    /// Host and port of the endpoint.
    endpoint: String,
    /// Reason why the endpoint gets no requests, as one word.
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: String,
}

/// Collector for the state and load of each endpoint.
pub struct EndpointMetrics(Weak<Fleet>);

impl EndpointMetrics {
    /// Creates a collector for a fleet. The collector exposes nothing after the fleet is dropped.
    pub fn for_fleet(fleet: &Arc<Fleet>) -> Self {
        Self(Arc::downgrade(fleet))
    }

    fn reports(&self) -> Vec<(EndpointLabels, EndpointReport)> {
        let Some(fleet) = self.0.upgrade() else { return Vec::new() };
        let clusters = fleet.clusters();
        let endpoints = clusters.iter().flat_map(|(name, cluster)| {
            cluster.endpoint_reports().into_iter().map(|endpoint| {
                (EndpointLabels { cluster: name.to_string(), endpoint: endpoint.address.clone() }, endpoint)
            })
        });
        endpoints.collect()
    }
}

impl EndpointMetrics {
    /// Writes the retry metrics of each cluster: the number of retries, and the number of retries that the retry budget
    /// prevented.
    fn encode_retries(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let clusters = self.0.upgrade().map(|fleet| fleet.clusters());
        let retries: Vec<_> = clusters
            .iter()
            .flat_map(|clusters| clusters.iter())
            .filter_map(|(name, cluster)| {
                let client = cluster.setup.client.as_ref().ok()?;
                Some((ClusterLabel { cluster: name.to_string() }, client.retries()))
            })
            .collect();
        let help = "Requests that were sent to a cluster again";
        let mut family = encoder.encode_descriptor("tributary_member_retries", help, None, MetricType::Counter)?;
        for (label, retries) in &retries {
            ConstCounter::new(retries.retries).encode(family.encode_family(label)?)?;
        }
        let name = "tributary_member_retries_refused";
        let help = "Requests that were not sent to a cluster again, because too many were";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (label, retries) in &retries {
            ConstCounter::new(retries.refused).encode(family.encode_family(label)?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for EndpointMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndpointMetrics")
    }
}

impl Collector for EndpointMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let reports = self.reports();
        let name = "tributary_endpoint_reachable";
        let help = "0 if the endpoint is known to be unreachable, else 1";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, endpoint) in &reports {
            ConstGauge::new(i64::from(endpoint.is_reachable)).encode(family.encode_family(labels)?)?;
        }
        let name = "tributary_endpoint_ready";
        let help = "0 if the endpoint's /readyz reports that it is not ready, else 1";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, endpoint) in &reports {
            ConstGauge::new(i64::from(endpoint.is_ready)).encode(family.encode_family(labels)?)?;
        }
        let name = "tributary_endpoint_ejected";
        let help = "1 while the endpoint answers Tributary's own requests with errors and is left out, else 0";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, endpoint) in &reports {
            ConstGauge::new(i64::from(endpoint.is_ejected)).encode(family.encode_family(labels)?)?;
        }
        let help = "Ejections of the endpoint because of its errors";
        let mut family = encoder.encode_descriptor("tributary_endpoint_ejections", help, None, MetricType::Counter)?;
        for (labels, endpoint) in &reports {
            ConstCounter::new(endpoint.ejections).encode(family.encode_family(labels)?)?;
        }
        let name = "tributary_endpoint_left_out";
        let help = "1 for the reason why the endpoint gets no requests, or only as the last one, else 0";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (EndpointLabels { cluster, endpoint }, report) in &reports {
            for reason in LeftOutReason::ALL.map(LeftOutReason::as_str) {
                let labels = LeftOutLabels { cluster: cluster.clone(), endpoint: endpoint.clone(), reason };
                let is_so = report.left_out.as_deref() == Some(reason);
                ConstGauge::new(i64::from(is_so)).encode(family.encode_family(&labels)?)?;
            }
        }
        let name = "tributary_endpoint_breaker_openings";
        let help = "Openings of the endpoint's circuit breaker";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, endpoint) in &reports {
            ConstCounter::new(endpoint.breaker_openings).encode(family.encode_family(labels)?)?;
        }
        let name = "tributary_endpoint_latency_seconds";
        let help = "Duration of the endpoint's last answer to Tributary's probe";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, endpoint) in &reports {
            if let Some(latency) = endpoint.latency_microseconds {
                let seconds = Duration::from_micros(latency).as_secs_f64();
                ConstGauge::new(seconds).encode(family.encode_family(labels)?)?;
            }
        }
        let name = "tributary_endpoint_outstanding_requests";
        let help = "Requests in flight at an endpoint, including watches and upgraded connections";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, endpoint) in &reports {
            let outstanding = i64::try_from(endpoint.outstanding_requests).unwrap_or(i64::MAX);
            ConstGauge::new(outstanding).encode(family.encode_family(labels)?)?;
        }
        let help = "Requests sent to an endpoint";
        let mut family = encoder.encode_descriptor("tributary_endpoint_requests", help, None, MetricType::Counter)?;
        for (labels, endpoint) in &reports {
            ConstCounter::new(endpoint.requests).encode(family.encode_family(labels)?)?;
        }
        let help = "Followed logs, watches and upgraded connections of clients that broke off at an endpoint";
        let mut family = encoder.encode_descriptor("tributary_endpoint_broken", help, None, MetricType::Counter)?;
        for (labels, endpoint) in &reports {
            ConstCounter::new(endpoint.broken).encode(family.encode_family(labels)?)?;
        }
        self.encode_retries(&mut encoder)
    }
}
