//! Flow-control schema of a request, and the permit that the request keeps until its end. A request passes the schema
//! before Tributary plans the answer.
//!
//! A request to the merged view passes schemas of the merged view, also for a read from memory. A request to a
//! cluster's own path passes schemas of the cluster, unless a global policy names a schema of the merged view. A
//! request that Tributary sends to several clusters counts once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use tributary_apimachinery::{ClusterName, RequestInfo};
use tributary_fleet::discovery::MergedDiscovery;
use tributary_flow_control::{
    Attributes, DuplicateSchema, Flow, FlowControl, FlowResource, REFUSAL_REASONS, Schema, SchemaLimiter, SchemaUsage,
};
use tributary_rights::User;
use tributary_sharing::flow::share_key::ShareKey;
use tributary_sharing::gauges::gauges;

use crate::caller::Caller;
use crate::dispatch::SchemaName;
use crate::health;

/// Flow-control schemas of the merged view and of all clusters.
#[derive(Clone, Debug, Default)]
pub struct FlowSettings {
    /// Schemas of the merged view.
    pub merged: EntryPointSchemas,
    /// Schemas of clusters' own views.
    pub clusters: BTreeMap<ClusterName, EntryPointSchemas>,
}

/// Schemas of one entry point: the merged view or a cluster.
#[derive(Clone, Debug, Default)]
pub struct EntryPointSchemas {
    /// The schemas, in any order.
    pub schemas: Vec<Schema>,
    /// Name of the schema of all requests, which applies unless a dispatch policy decides about the schema; `None`
    /// without such a schema.
    pub all: Option<Arc<str>>,
}

/// Error in flow-control settings, with the entry point of the schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("flow control of {}: {problem}", shown(cluster.as_ref()))]
pub struct FlowSettingsError {
    /// Cluster of the schemas; `None` for the merged view.
    pub cluster: Option<ClusterName>,
    /// Kind of the error.
    pub problem: FlowSettingsProblem,
}

/// Kind of an error in flow-control settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowSettingsProblem {
    /// Two schemas have an equal name.
    #[error(transparent)]
    Duplicate(#[from] DuplicateSchema),
    /// The settings refer to a schema that does not exist.
    #[error("there is no schema \"{name}\"; add it, or name an existing schema")]
    Unknown {
        /// Name of the missing schema.
        name: Arc<str>,
    },
    /// The schema's name contains a character that an HTTP header must not contain.
    #[error("the name of schema \"{name}\" cannot be sent in a header; use only visible ASCII characters")]
    Name {
        /// Name of the schema.
        name: Arc<str>,
    },
}

fn shown(cluster: Option<&ClusterName>) -> String {
    cluster.map_or_else(|| "the merged view".to_owned(), |cluster| format!("cluster {cluster}"))
}

/// Schemas in force, with the requests that they have admitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveSchemas {
    merged: ActiveEntryPoint,
    clusters: BTreeMap<ClusterName, ActiveEntryPoint>,
}

#[derive(Clone, Debug, Default)]
struct ActiveEntryPoint {
    control: FlowControl,
    all: Option<PassedSchema>,
    /// Schemas that policies may name, including removed schemas of the previous configuration: the previous policies
    /// stay in force a moment longer than their schemas.
    by_name: BTreeMap<Arc<str>, PassedSchema>,
}

#[derive(Clone, Debug)]
pub(crate) struct PassedSchema {
    pub(crate) schema: SchemaLimiter,
    pub(crate) is_merged: bool,
    header: HeaderValue,
}

impl ActiveSchemas {
    /// Returns the schemas after a change of the settings. A schema whose entry point, name and kind stay unchanged
    /// continues to count its admitted requests.
    ///
    /// # Errors
    /// [`FlowSettingsError`]. On an error, nothing changes.
    pub(crate) fn next(&self, settings: FlowSettings) -> Result<Self, FlowSettingsError> {
        // All settings are validated first, because a changed limit takes effect immediately for all requests.
        let places = settings.clusters.iter().map(|(name, place)| (Some(name), place));
        for (cluster, place) in [(None, &settings.merged)].into_iter().chain(places) {
            place.check().map_err(|problem| FlowSettingsError { cluster: cluster.cloned(), problem })?;
        }
        let unused = ActiveEntryPoint::default();
        let next = |cluster: Option<&ClusterName>, before: &ActiveEntryPoint, place| {
            before
                .next(place, cluster.is_none())
                .map_err(|problem| FlowSettingsError { cluster: cluster.cloned(), problem })
        };
        let merged = next(None, &self.merged, settings.merged)?;
        let mut clusters = BTreeMap::new();
        let removed = self.clusters.keys().filter(|name| !settings.clusters.contains_key(*name));
        let removed: Vec<_> = removed.map(|name| (name.clone(), EntryPointSchemas::default())).collect();
        for (name, place) in settings.clusters.into_iter().chain(removed) {
            let place = next(Some(&name), self.clusters.get(&name).unwrap_or(&unused), place)?;
            if !place.by_name.is_empty() {
                clusters.insert(name, place);
            }
        }
        Ok(Self { merged, clusters })
    }

    /// Returns the schema of a request; `None` without a schema. Health checks have no schema, so that a busy process
    /// still answers. With dispatch policies, the matching policy names the schema. Otherwise the schema of all
    /// requests applies.
    pub(crate) fn schema_of(&self, info: &RequestInfo, named: &SchemaName) -> Option<&PassedSchema> {
        if health::is_check(info) {
            return None;
        }
        let place = match (named, &info.cluster) {
            (SchemaName::Global(_), _) | (_, None) => &self.merged,
            (_, Some(cluster)) => self.clusters.get(cluster)?,
        };
        match named {
            SchemaName::Undecided => place.all.as_ref(),
            SchemaName::None => None,
            SchemaName::Named(name) | SchemaName::Global(name) => place.by_name.get(&**name),
        }
    }

    #[cfg(test)]
    pub(crate) fn merged_schema(&self, name: &str) -> Option<&SchemaLimiter> {
        self.merged.control.schema(name)
    }

    fn schemas(&self) -> Vec<(SchemaLabels, &SchemaLimiter)> {
        let clusters = self.clusters.iter().map(|(name, place)| (name.as_str(), place));
        let mut schemas = Vec::new();
        for (cluster, place) in [("", &self.merged)].into_iter().chain(clusters) {
            schemas.extend(place.control.schemas().map(|schema| {
                let labels = SchemaLabels { cluster: cluster.to_owned(), schema: schema.name().to_string() };
                (labels, schema)
            }));
        }
        schemas.sort_by(|(one, _), (other, _)| one.cmp(other));
        schemas
    }
}

impl FlowSettings {
    pub(crate) fn divided_among(mut self, replicas: NonZeroU32) -> Self {
        for place in self.clusters.values_mut().chain([&mut self.merged]) {
            let whole = std::mem::take(&mut place.schemas);
            place.schemas = whole.into_iter().map(|schema| schema.divided_among(replicas)).collect();
        }
        self
    }
}

impl EntryPointSchemas {
    fn check(&self) -> Result<(), FlowSettingsProblem> {
        let mut names = BTreeSet::new();
        for Schema { name, .. } in &self.schemas {
            if !names.insert(name) {
                return Err(DuplicateSchema { name: Arc::clone(name) }.into());
            }
            header(name)?;
        }
        match &self.all {
            Some(name) if !names.contains(name) => Err(FlowSettingsProblem::Unknown { name: Arc::clone(name) }),
            _ => Ok(()),
        }
    }
}

impl ActiveEntryPoint {
    fn next(&self, settings: EntryPointSchemas, is_merged: bool) -> Result<Self, FlowSettingsProblem> {
        let EntryPointSchemas { schemas, all } = settings;
        let control = self.control.changed(schemas)?;
        let mut by_name = BTreeMap::new();
        for schema in control.schemas().chain(control.removed()) {
            let header = header(schema.name())?;
            let passed = PassedSchema { schema: schema.clone(), is_merged, header };
            by_name.entry(Arc::clone(schema.name())).or_insert(passed);
        }
        let all = all.map(|name| match control.schema(&name).and(by_name.get(&name)) {
            Some(passed) => Ok(passed.clone()),
            None => Err(FlowSettingsProblem::Unknown { name }),
        });
        let all = all.transpose()?;
        Ok(Self { control, all, by_name })
    }
}

fn header(name: &Arc<str>) -> Result<HeaderValue, FlowSettingsProblem> {
    HeaderValue::from_str(name).map_err(|_| FlowSettingsProblem::Name { name: Arc::clone(name) })
}

impl PassedSchema {
    /// Returns the value of the answer's header that names the schema.
    pub(crate) fn header(&self) -> &HeaderValue {
        &self.header
    }
}

/// Common resource of all requests for resources that no cluster serves.
const UNSERVED: FlowResource<'static> = FlowResource { group: "", resource: "", subresource: None };

/// Returns the attributes by which a schema counts a request. The user is the authenticated user, also of an
/// impersonated request, and `authority` is the name of its authority. In personal mode each connection is a flow.
/// `is_served` tells whether a cluster serves the resource.
pub(crate) fn attributes<'a>(
    info: &'a RequestInfo,
    is_served: bool,
    user: &'a User,
    authority: &'a str,
    caller: &Caller,
) -> Attributes<'a> {
    let member = user.authority.only_member().map(ClusterName::as_str);
    let resource = info.resource().map(|request| match is_served {
        true => FlowResource {
            group: &request.resource.group,
            resource: &request.resource.resource,
            subresource: request.subresource.as_deref(),
        },
        false => UNSERVED,
    });
    Attributes {
        verifier: authority,
        user: &user.info.username,
        member,
        groups: &user.info.groups,
        client_address: caller.connection.map(|peer| peer.ip()),
        verb: info.verb.as_str(),
        resource,
        is_long_running: info.class().is_long_running(),
        width: 1,
        flow: flow_of(caller.share_key),
    }
}

/// Returns whether a request is for a resource that a cluster serves, or for no resource. All other requests share one
/// limit. Otherwise clients could invent resources, and get a separate limit for each.
pub(crate) fn is_served(info: &RequestInfo, merged_discovery: &MergedDiscovery) -> bool {
    match merged_discovery.served(info) {
        Some((request, served)) => request.subresource.is_none() || served.description.below(request).is_some(),
        None => info.resource().is_none(),
    }
}

/// Returns the flow (fair share of a queue) of a waiting request. Users whom only one member authenticates share one
/// flow, as they share one part of each limit (`GroupedShareKey::group`). Otherwise an account that may create users in
/// the member could get thousands of flows. Within the shared flow, the users are served round robin.
fn flow_of(share_key: ShareKey) -> Flow {
    match share_key.member() {
        Some(member) => Flow::from_shared_identity(&member, &share_key),
        None => Flow::from_identity(&share_key),
    }
}

/// Metric labels of a schema. Only configured schemas have series, so clients cannot create series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct SchemaLabels {
    /// Cluster of the schema; empty for the merged view.
    cluster: String,
    schema: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    cluster: String,
    schema: String,
    /// `admitted`, or the reason for the refusal.
    decision: &'static str,
}

pub(crate) struct FlowMetrics(pub(crate) Arc<ArcSwap<ActiveSchemas>>);

impl fmt::Debug for FlowMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowMetrics")
    }
}

type SchemaGauge = (&'static str, &'static str, fn(&SchemaUsage) -> usize);

const GAUGES: [SchemaGauge; 3] = [
    ("tributary_flow_control_requests_in_flight", "Requests in flight that a schema admitted", |it| it.in_flight),
    ("tributary_flow_control_requests_long_running", "Long-running requests that hold no permit of a schema", |it| {
        it.long_running
    }),
    ("tributary_flow_control_requests_waiting", "Requests in the queue of a schema", |it| it.waiting),
];

impl Collector for FlowMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let governed = self.0.load();
        let schemas = governed.schemas();
        if schemas.is_empty() {
            return Ok(());
        }
        let (name, help) = ("tributary_flow_control_limit", "This process's part of a schema's limit, for each key");
        let limits = schemas.iter().filter_map(|(labels, schema)| Some((labels, u64::from(schema.in_force()?))));
        gauges(&mut encoder, name, help, limits)?;
        let usage: Vec<_> = schemas.into_iter().map(|(labels, schema)| (labels, schema.usage())).collect();
        for (name, help, value) in GAUGES {
            gauges(&mut encoder, name, help, usage.iter().map(|(labels, usage)| (labels, value(usage) as u64)))?;
        }
        let (name, help) = ("tributary_flow_control_requests", "Requests with a flow-control schema, by decision");
        let mut counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (SchemaLabels { cluster, schema }, usage) in usage {
            let refused = REFUSAL_REASONS.into_iter().zip(usage.refused);
            for (decision, count) in [("admitted", usage.admitted)].into_iter().chain(refused) {
                let labels = DecisionLabels { cluster: cluster.clone(), schema: schema.clone(), decision };
                ConstCounter::new(count).encode(counter.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
