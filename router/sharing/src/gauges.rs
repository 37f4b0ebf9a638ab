//! Gauges whose values are computed when the metrics are scraped.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// Writes a gauge with a value for each set of labels.
///
/// # Errors
/// The error of the encoder.
pub fn gauges<'a, Labels: EncodeLabelSet + 'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (&'a Labels, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}
