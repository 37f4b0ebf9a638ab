//! Converts the flow-control schemas of configuration objects into the router's settings. Without I/O.

use std::num::{NonZeroU16, NonZeroU32};

use tributary_apimachinery::duration;
use tributary_crds::{ConfigurationObjects, FlowControlSchema, LimitBy};
use tributary_flow_control::{
    Deck, Dimension, Limited, MaxRequestsInflight, Queueing, Schema, SchemaKind, TokenBucket,
};
use tributary_router::{EntryPointSchemas, FlowSettings};

use crate::named_clusters::NamedCluster;

/// Converts the flow-control schemas of validated configuration objects. Flow control applies only to requests whose
/// policy names a schema. `clusters` take the place of the clusters in `objects`.
pub(super) fn flow_settings(objects: &ConfigurationObjects, clusters: &[NamedCluster<'_>]) -> FlowSettings {
    // Validation allows at most one MergedEndpoint, so the first is the only one.
    let merged = objects.merged_endpoints.first();
    let merged = merged.map(|endpoint| schemas(&endpoint.spec.flow_control.flow_control_schemas));
    let written = clusters.iter().map(|(name, cluster)| (name, &cluster.spec.flow_control.flow_control_schemas));
    let clusters = written.filter(|(_, written)| !written.is_empty());
    let clusters = clusters.map(|(name, written)| (name.clone(), schemas(written))).collect();
    FlowSettings { merged: merged.unwrap_or_default(), clusters }
}

fn schemas(written: &[FlowControlSchema]) -> EntryPointSchemas {
    EntryPointSchemas { schemas: written.iter().map(schema).collect(), all: None }
}

fn schema(written: &FlowControlSchema) -> Schema {
    let FlowControlSchema { name, max_requests_inflight, token_bucket, .. } = written;
    let kind = match (max_requests_inflight, token_bucket) {
        (Some(given), _) => SchemaKind::MaxRequestsInflight(Limited {
            limit: MaxRequestsInflight { max: given.max, count_long_running: given.count_long_running },
            by: dimensions(&given.limit_by),
            queueing: given.queueing.as_ref().map(queueing),
        }),
        (None, Some(given)) => {
            let qps = at_least_one(given.qps);
            SchemaKind::TokenBucket(Limited {
                limit: TokenBucket { qps, burst: given.burst.map_or(qps, at_least_one) },
                by: dimensions(&given.limit_by),
                queueing: given.queueing.as_ref().map(queueing),
            })
        }
        (None, None) => SchemaKind::Exempt,
    };
    Schema { name: name.as_str().into(), kind }
}

/// Converts a number of a flow-control limit. Validation guarantees a number above 0.
fn at_least_one(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

/// Converts the dimensions of a flow-control limit, without duplicates.
fn dimensions(given: &[LimitBy]) -> Vec<Dimension> {
    let mut dimensions: Vec<_> = given.iter().filter_map(|by| dimension(*by)).collect();
    dimensions.sort_unstable();
    dimensions.dedup();
    dimensions
}

/// Converts a dimension. Returns `None` for `Cluster`: validation refuses the dimension `Cluster` in a MergedEndpoint,
/// and the schemas of an UpstreamCluster always belong to one cluster.
fn dimension(by: LimitBy) -> Option<Dimension> {
    match by {
        LimitBy::User => Some(Dimension::User),
        LimitBy::Group => Some(Dimension::Group),
        LimitBy::ClientAddress => Some(Dimension::ClientAddress),
        LimitBy::Verb => Some(Dimension::Verb),
        LimitBy::Resource => Some(Dimension::Resource),
        LimitBy::Cluster => None,
    }
}

/// Converts queueing settings. Validation guarantees valid numbers.
fn queueing(given: &tributary_crds::Queueing) -> Queueing {
    let usual = Queueing::default();
    Queueing {
        deck: Deck::new(given.queues, given.hand_size).unwrap_or(usual.deck),
        length: NonZeroU16::new(given.queue_length_limit).unwrap_or(usual.length),
        wait_max: duration::parse(&given.max_wait).unwrap_or(usual.wait_max),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use tributary_apimachinery::ClusterName;

    use super::*;
    use crate::named_clusters::named_clusters;

    fn settings(spec: &str) -> FlowSettings {
        let text = format!(
            "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {{name: eu}}\nspec: {spec}\n---\n\
             apiVersion: tributary.dev/v1alpha1\nkind: MergedEndpoint\nmetadata: {{name: all}}\nspec: {spec}\n"
        );
        let objects = tributary_crds::parse(&text, Path::new("test.yaml")).unwrap();
        flow_settings(&objects, &named_clusters(&objects))
    }

    #[test]
    fn flow_control_is_read_per_cluster_and_for_the_merged_view() {
        let settings = settings("{flowControl: {flowControlSchemas: [{name: few, maxRequestsInflight: {max: 3}}]}}");
        let limit = MaxRequestsInflight { max: 3, count_long_running: false };
        let kind = SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing: None });
        let eu = &settings.clusters[&ClusterName::new("eu").unwrap()];
        for place in [eu, &settings.merged] {
            assert_eq!(
                (&place.schemas[..], &place.all),
                (&[Schema { name: "few".into(), kind: kind.clone() }][..], &None)
            );
        }
        let nothing = flow_settings(&ConfigurationObjects::default(), &[]);
        assert!(nothing.merged.schemas.is_empty() && nothing.clusters.is_empty());
    }

    #[test]
    fn every_flow_control_field_is_converted() {
        let settings = settings(
            "{flowControl: {flowControlSchemas: [{name: free, exempt: {}}, {name: all, maxRequestsInflight: \
             {max: 0, countLongRunning: true, limitBy: [Cluster, User, User]}}, {name: slow, tokenBucket: {qps: 10}}, \
             {name: fair, tokenBucket: {qps: 10, burst: 20, limitBy: [Group, ClientAddress, Verb, Resource], queueing: \
             {queues: 16, handSize: 4, queueLengthLimit: 7, maxWait: 750ms}}}]}}",
        );
        let number = |number| NonZeroU32::new(number).unwrap();
        let bucket = |burst, by: &[Dimension], queueing| {
            let limit = TokenBucket { qps: number(10), burst: number(burst) };
            SchemaKind::TokenBucket(Limited { limit, by: by.to_vec(), queueing })
        };
        let queueing = Queueing {
            deck: Deck::new(16, 4).unwrap(),
            length: NonZeroU16::new(7).unwrap(),
            wait_max: Duration::from_millis(750),
        };
        let counted = Limited {
            limit: MaxRequestsInflight { max: 0, count_long_running: true },
            by: vec![Dimension::User],
            queueing: None,
        };
        let by = [Dimension::Group, Dimension::ClientAddress, Dimension::Verb, Dimension::Resource];
        let expected = [
            ("free", SchemaKind::Exempt),
            ("all", SchemaKind::MaxRequestsInflight(counted)),
            ("slow", bucket(10, &[], None)),
            ("fair", bucket(20, &by, Some(queueing))),
        ];
        let expected = expected.map(|(name, kind)| Schema { name: name.into(), kind });
        assert_eq!(settings.merged.schemas, expected);
    }
}
