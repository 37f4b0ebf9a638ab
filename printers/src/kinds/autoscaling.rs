//! The printer of HorizontalPodAutoscalers of autoscaling/v2 and v1.
//!
//! kube-apiserver prints the internal form. Version v1 stores all metrics except CPU in an annotation, and this printer
//! reads the annotation. The annotation does not preserve the original order of the metrics.

use std::fmt;

use jiff::Timestamp;

use super::decode;
use super::metadata::{FullMetadata, KindAndName};
use crate::Row;
use crate::value::{JoinedTexts, ListValue, TextOrNumber, TextValue, parts};

/// The annotation in which `autoscaling/v1` stores metrics without a field in v1.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
/// The annotation in which `autoscaling/v1` stores the current values of metrics without a field in v1.
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
/// The maximum number of metrics in a cell. If there are more metrics, the cell ends with the number of the remaining
/// metrics.
const SHOWN_MAX: usize = 2;
/// The default target of a v1 autoscaler without metrics: CPU utilization in percent.
const DEFAULT_UTILIZATION: i64 = 80;

parts! {
    struct HorizontalPodAutoscaler<'a> {
        metadata: FullMetadata<'a>,
        api_version: TextValue<'a>,
        spec: AutoscalerSpec<'a>,
        status: AutoscalerStatus<'a>,
    }

    struct AutoscalerSpec<'a> {
        scale_target_ref: KindAndName<'a>,
        min_replicas: Option<i64>,
        max_replicas: i64,
        metrics: ListValue<Metric<'a>>,
        #[serde(rename = "targetCPUUtilizationPercentage")]
        target_cpu: Option<i64>,
    }

    struct AutoscalerStatus<'a> {
        current_metrics: ListValue<Metric<'a>>,
        current_replicas: i64,
        #[serde(rename = "currentCPUUtilizationPercentage")]
        current_cpu: Option<i64>,
    }

    /// The target or the current value of a metric.
    struct Metric<'a> {
        r#type: TextValue<'a>,
        resource: Option<Source<'a>>,
        container_resource: Option<Source<'a>>,
        pods: Option<Source<'a>>,
        object: Option<Source<'a>>,
        external: Option<Source<'a>>,
    }

    /// The values of a metric. Version v2 nests its fields in `target` or `current`; v1 does not.
    struct Source<'a> {
        name: TextValue<'a>,
        target: MetricValue<'a>,
        current: MetricValue<'a>,
        #[serde(alias = "currentAverageUtilization")]
        target_average_utilization: Option<i64>,
        #[serde(alias = "currentAverageValue", alias = "averageValue")]
        target_average_value: Option<TextOrNumber<'a>>,
        #[serde(alias = "currentValue")]
        target_value: Option<TextOrNumber<'a>>,
    }

    struct MetricValue<'a> {
        average_value: Option<TextOrNumber<'a>>,
        value: Option<TextOrNumber<'a>>,
        average_utilization: Option<i64>,
    }
}

impl<'a> Source<'a> {
    fn average_value(&self) -> Option<&TextOrNumber<'a>> {
        let nested = self.target.average_value.as_ref().or(self.current.average_value.as_ref());
        nested.or(self.target_average_value.as_ref())
    }

    fn value(&self) -> Option<&TextOrNumber<'a>> {
        self.target.value.as_ref().or(self.current.value.as_ref()).or(self.target_value.as_ref())
    }

    fn utilization(&self) -> Option<i64> {
        self.target.average_utilization.or(self.current.average_utilization).or(self.target_average_utilization)
    }

    /// Creates a metric of CPU utilization, in percent.
    fn cpu(utilization: i64) -> Self {
        Self { name: TextValue("cpu".into()), target_average_utilization: Some(utilization), ..Self::default() }
    }
}

impl Metric<'_> {
    fn cpu(utilization: i64) -> Self {
        Self { r#type: TextValue("Resource".into()), resource: Some(Source::cpu(utilization)), ..Self::default() }
    }
}

/// A quantity. If the quantity is absent, the text is Go's text for a nil pointer.
struct QuantityOrNil<'a>(Option<&'a TextOrNumber<'a>>);

impl fmt::Display for QuantityOrNil<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(quantity) => fmt::Display::fmt(quantity, f),
            None => f.write_str("<nil>"),
        }
    }
}

pub(super) fn print(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let autoscaler: HorizontalPodAutoscaler<'_> = decode(object)?;
    let (spec, status) = (&autoscaler.spec, &autoscaler.status);
    row.text(&autoscaler.metadata.name);
    row.format(format_args!("{}/{}", spec.scale_target_ref.kind, spec.scale_target_ref.name));
    if &*autoscaler.api_version == "autoscaling/v1" {
        let (metrics, current) = v1_metrics(&autoscaler);
        row.text(&targets(&metrics, &current));
    } else {
        row.text(&targets(&spec.metrics, &status.current_metrics));
    }
    match spec.min_replicas {
        Some(replicas) => row.format(format_args!("{replicas}")),
        None => row.text("<unset>"),
    }
    row.number(spec.max_replicas);
    row.number(status.current_replicas);
    row.format(format_args!("{}", autoscaler.metadata.creation_timestamp.since(now)));
    Ok(())
}

/// Returns the target metrics and current metrics of a v1 object, from annotations and fields.
fn v1_metrics<'a>(autoscaler: &'a HorizontalPodAutoscaler<'_>) -> (Vec<Metric<'a>>, Vec<Metric<'a>>) {
    let annotation = |key: &str| -> Option<Vec<Metric<'a>>> {
        let text: &'a str = autoscaler.metadata.annotations.get(key)?;
        // As in kube-apiserver, a malformed annotation is ignored.
        serde_json::from_str(text).ok()
    };
    let mut metrics = annotation(METRICS).unwrap_or_default();
    metrics.extend(autoscaler.spec.target_cpu.map(Metric::cpu));
    if metrics.is_empty() {
        metrics.push(Metric::cpu(DEFAULT_UTILIZATION));
    }
    let current = annotation(CURRENT_METRICS)
        .unwrap_or_else(|| autoscaler.status.current_cpu.map(Metric::cpu).into_iter().collect());
    (metrics, current)
}

fn targets(metrics: &[Metric<'_>], current: &[Metric<'_>]) -> String {
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let shown: Vec<String> =
        metrics.iter().enumerate().take(SHOWN_MAX).map(|(index, metric)| target(metric, current.get(index))).collect();
    if metrics.len() > SHOWN_MAX {
        format!("{} + {} more...", JoinedTexts(", ", &shown), metrics.len() - SHOWN_MAX)
    } else {
        JoinedTexts(", ", &shown).to_string()
    }
}

/// Formats a metric as `current/target`.
fn target(metric: &Metric<'_>, current: Option<&Metric<'_>>) -> String {
    match &*metric.r#type {
        "External" => plain(metric.external.as_ref(), current.and_then(|current| current.external.as_ref())),
        "Object" => plain(metric.object.as_ref(), current.and_then(|current| current.object.as_ref())),
        "Pods" => {
            let now = current.and_then(|current| current.pods.as_ref());
            let target_source = metric.pods.as_ref().and_then(Source::average_value);
            format!("{}/{}", average_or_unknown(now), QuantityOrNil(target_source))
        }
        "Resource" => resource(metric.resource.as_ref(), current.and_then(|current| current.resource.as_ref())),
        "ContainerResource" => resource(
            metric.container_resource.as_ref(),
            current.and_then(|current| current.container_resource.as_ref()),
        ),
        _ => "<unknown type>".to_owned(),
    }
}

/// Formats a metric with a target value or a target average value.
fn plain(target_source: Option<&Source<'_>>, current: Option<&Source<'_>>) -> String {
    let average = target_source.and_then(Source::average_value);
    if average.is_some() {
        let now = current.and_then(Source::average_value).map_or("<unknown>".to_owned(), ToString::to_string);
        return format!("{now}/{} (avg)", QuantityOrNil(average));
    }
    let now = current.map_or("<unknown>".to_owned(), |current| QuantityOrNil(current.value()).to_string());
    format!("{now}/{}", QuantityOrNil(target_source.and_then(Source::value)))
}

/// Formats a resource metric with a target average value, or with a target utilization in percent.
fn resource(target_source: Option<&Source<'_>>, current: Option<&Source<'_>>) -> String {
    let name = target_source.map_or("", |target_source| &target_source.name);
    let average = target_source.and_then(Source::average_value);
    if average.is_some() {
        return format!("{name}: {}/{}", average_or_unknown(current), QuantityOrNil(average));
    }
    let percent = |value: Option<i64>, otherwise: &str| value.map_or(otherwise.to_owned(), |value| format!("{value}%"));
    let now = percent(current.and_then(Source::utilization), "<unknown>");
    format!("{name}: {now}/{}", percent(target_source.and_then(Source::utilization), "<auto>"))
}

fn average_or_unknown(current: Option<&Source<'_>>) -> String {
    current.map_or("<unknown>".to_owned(), |current| QuantityOrNil(current.average_value()).to_string())
}
