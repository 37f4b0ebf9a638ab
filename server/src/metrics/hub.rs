//! Metrics of the hub.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tributary_router::report::HubReport;

/// A view of the hub's present state. Clones show the same hub.
#[derive(Clone)]
pub struct HubView(Arc<dyn Fn() -> HubReport + Send + Sync>);

impl HubView {
    /// Creates a view from a function that returns the present state without I/O.
    pub fn new(read: impl Fn() -> HubReport + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Returns the present state.
    pub fn report(&self) -> HubReport {
        (self.0)()
    }

    /// Registers the metrics of the hub in a metrics registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl fmt::Debug for HubView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("HubView").finish()
    }
}

impl Collector for HubView {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let report = self.report();
        let up = ConstGauge::new(i64::from(report.problem.is_none()));
        let help = "Whether changes of the hub arrive";
        up.encode(encoder.encode_descriptor("tributary_hub_up", help, None, up.metric_type())?)?;
        let mut problems = BTreeMap::<&str, i64>::new();
        for object in &report.objects {
            *problems.entry(&object.kind).or_default() += i64::from(object.problem.is_some());
        }
        let help = "Objects of the hub with a problem";
        let metric = ConstGauge::new(0_i64);
        let mut family =
            encoder.encode_descriptor("tributary_hub_object_problems", help, None, metric.metric_type())?;
        for (kind, count) in problems {
            ConstGauge::new(count).encode(family.encode_family(&[("kind", kind)])?)?;
        }
        let help = "Generation in force of an object of the hub";
        let mut family =
            encoder.encode_descriptor("tributary_hub_generation_in_force", help, None, metric.metric_type())?;
        for object in &report.objects {
            let Some(generation) = object.generation_in_force else { continue };
            let labels = [("kind", object.kind.as_str()), ("name", object.name.as_str())];
            ConstGauge::new(generation).encode(family.encode_family(&labels)?)?;
        }
        let help = "Items of a ClusterSource";
        let mut family = encoder.encode_descriptor("tributary_hub_source_items", help, None, metric.metric_type())?;
        for object in &report.objects {
            let Some(source) = &object.source else { continue };
            let (Some(found), Some(accepted)) = (source.found, source.accepted) else { continue };
            for (verdict, count) in [("accepted", accepted), ("refused", found - accepted)] {
                let count = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
                count.encode(family.encode_family(&[("source", object.name.as_str()), ("verdict", verdict)])?)?;
            }
        }
        let help = "Objects that are published in the hub for controllers";
        let mut family =
            encoder.encode_descriptor("tributary_hub_published_objects", help, None, metric.metric_type())?;
        for own in &report.publications {
            let count = i64::try_from(own.published).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(family.encode_family(&[("kind", own.kind.as_str())])?)?;
        }
        let help = "Reasons for which objects for controllers are not published or not up to date";
        let mut family =
            encoder.encode_descriptor("tributary_hub_publication_problems", help, None, metric.metric_type())?;
        for own in &report.publications {
            let count = i64::try_from(own.problem_count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(family.encode_family(&[("kind", own.kind.as_str())])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tributary_router::report::{HubObjectReport, PublicationReport, SourceReport};

    use super::*;

    #[test]
    fn metrics_show_the_generation_in_force_and_problems() {
        let object = |name: &str, generation_in_force, problem: Option<&str>| HubObjectReport {
            kind: "UpstreamCluster".to_owned(),
            name: name.to_owned(),
            generation: 4,
            generation_in_force,
            problem: problem.map(str::to_owned),
            source: None,
        };
        let list = SourceReport { list: "karmadaClusters".to_owned(), found: Some(12), accepted: Some(11) };
        let source = HubObjectReport {
            kind: "ClusterSource".to_owned(),
            name: "karmada".to_owned(),
            source: Some(list),
            ..HubObjectReport::default()
        };
        let objects = vec![
            object("us", Some(3), Some("no")),
            object("new", None, Some("no")),
            object("eu", Some(4), None),
            source,
        ];
        let problem = Some("upstreamclusters: forbidden".to_owned());
        let publications = vec![PublicationReport {
            kind: "ClusterProfile".to_owned(),
            published: 3,
            problem_count: 2,
            ..PublicationReport::default()
        }];
        let report = HubReport { problem, objects, publications };
        let view = HubView::new(move || report.clone());
        let mut registry = Registry::default();
        view.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "tributary_hub_up 0",
                "tributary_hub_object_problems{kind=\"ClusterSource\"} 0",
                "tributary_hub_object_problems{kind=\"UpstreamCluster\"} 2",
                "tributary_hub_generation_in_force{kind=\"UpstreamCluster\",name=\"us\"} 3",
                "tributary_hub_generation_in_force{kind=\"UpstreamCluster\",name=\"eu\"} 4",
                "tributary_hub_source_items{source=\"karmada\",verdict=\"accepted\"} 11",
                "tributary_hub_source_items{source=\"karmada\",verdict=\"refused\"} 1",
                "tributary_hub_published_objects{kind=\"ClusterProfile\"} 3",
                "tributary_hub_publication_problems{kind=\"ClusterProfile\"} 2",
            ]
        );
    }
}
