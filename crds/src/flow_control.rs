//! Flow control: how many of the requests that a policy takes go on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::patterns::WAIT;

/// A rule of the definitions for an object's `spec`: each schema that a policy of a list names is one of the object's
/// own.
///
/// A kube-apiserver takes no rule that may cost more than 10,000,000 (`StaticEstimatedCostLimit` in
/// apiextensions-apiserver's `pkg/apis/apiextensions/validation/validation.go`), and ends one that has cost 1,000,000
/// (`PerCallLimit` in apiserver's `pkg/apis/cel/config.go`); cel-go reckons both (`checker/cost.go`,
/// `interpreter/runtimecost.go`). To compare the names of 1,024 policies with those of 256 schemas one by one, by
/// `exists`, may cost 28,800,000 by the first: 110 for each pair, of which 102 are for a name, whose 253 characters
/// count as four bytes each. It costs more than 2,000,000 by the second, however short the names are. So the names are
/// gathered once, and `in` costs 1 for each that it looks through: 14 for each schema and 264 for each policy are
/// 275,000 together. CEL has no variables here: what `all` calls the one element of a list is one.
macro_rules! named_schemas_are_there {
    ($list:literal) => {
        concat!(
            "!has(self.",
            $list,
            ") || [has(self.flowControl) && has(self.flowControl.flowControlSchemas) ? ",
            "self.flowControl.flowControlSchemas.map(schema, schema.name) : []].all(names, self.",
            $list,
            ".all(policy, !has(policy.flowControlSchemaName) || policy.flowControlSchemaName in names))"
        )
    };
}

/// The rule for `dispatchPolicies`.
pub(crate) const NAMED_SCHEMAS_ARE_THERE: &str = named_schemas_are_there!("dispatchPolicies");

/// The rule for `globalDispatchPolicies`.
pub(crate) const GLOBALLY_NAMED_SCHEMAS_ARE_THERE: &str = named_schemas_are_there!("globalDispatchPolicies");

/// How many requests go on, by schemas that dispatch policies name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FlowControl {
    /// The schemas, each of its own name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flow_control_schemas: Vec<FlowControlSchema>,
}

impl FlowControl {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.flow_control_schemas.is_empty()
    }
}

/// What is limited, and how: one of `exempt`, `maxRequestsInflight` and `tokenBucket`. What is above a limit is
/// answered 429.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.exempt) ? 1 : 0) + (has(self.maxRequestsInflight) ? 1 : 0) + (has(self.tokenBucket) ? 1 : 0) == 1",
     "message": "give exactly one of exempt, maxRequestsInflight and tokenBucket"}
]))]
pub struct FlowControlSchema {
    /// The name by which policies refer to it, and which clients are told.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[!-~]+$"))]
    pub name: String,
    /// Nothing is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exempt: Option<Exempt>,
    /// How many requests are in flight at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_requests_inflight: Option<MaxRequestsInflight>,
    /// How many requests begin in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_bucket: Option<TokenBucket>,
}

/// No limit. It has no fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exempt {}

/// How many requests are in flight at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.max > 0 || !has(self.queueing)",
     "message": "with max 0 nobody would ever be let in; remove queueing"}
]))]
pub struct MaxRequestsInflight {
    /// How many; 0 refuses all, those that last, too.
    #[schemars(with = "i32", range(min = 0, max = 1_000_000))]
    pub max: u32,
    /// Whether what lasts (watches, exec, attach, port-forward, logs, what is proxied) takes a place like any other
    /// request, as long as it lasts. Otherwise it is let in, and counted apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub count_long_running: bool,
    /// What has a limit of its own: each combination of values of these. Where there is none, all requests share one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    pub limit_by: Vec<LimitBy>,
    /// Lets requests that find no place wait, instead of answering 429 at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<Queueing>,
}

/// How many requests begin. What lasts spends a token when it begins, like any other request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.burst) || self.burst >= self.qps",
     "message": "burst is less than qps"}
]))]
pub struct TokenBucket {
    /// How many tokens come back in a second.
    #[schemars(with = "i32", range(min = 1, max = 1_000_000))]
    pub qps: u32,
    /// How many tokens there are at most, and at first; as many as `qps` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 1_000_000))]
    pub burst: Option<u32>,
    /// What has a limit of its own: each combination of values of these. Where there is none, all requests share one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    pub limit_by: Vec<LimitBy>,
    /// Lets requests that find no token wait, instead of answering 429 at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<Queueing>,
}

/// By what requests of one schema are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum LimitBy {
    /// The user.
    User,
    /// A group of the user: the first in the order of the alphabet that does not begin with `system:`.
    Group,
    /// The address that the request comes from; of IPv6 the first 64 bits.
    ClientAddress,
    /// The verb.
    Verb,
    /// The resource, with its subresource.
    Resource,
    /// It has no effect in an UpstreamCluster, and a MergedEndpoint with it is refused: limits of one cluster are the
    /// schemas of its UpstreamCluster.
    Cluster,
}

/// Who may wait, as kube-apiserver's `limitResponse.queuing` has it (KEP-1040): users are spread over queues, which
/// take turns, so that one user's many requests do not keep another's few waiting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.handSize <= self.queues",
     "message": "handSize is more than queues"},
    {"rule": "duration(self.maxWait) > duration('0s') && duration(self.maxWait) <= duration('60s')",
     "message": "maxWait is out of range; give more than nothing and at most 60 s"}
]))]
pub struct Queueing {
    /// How many queues there are.
    #[schemars(with = "i32", range(min = 1, max = 1024))]
    pub queues: u16,
    /// Among how many of them each user's requests choose the shortest.
    #[schemars(with = "i32", range(min = 1, max = 10))]
    pub hand_size: u8,
    /// How many requests wait in a queue at most.
    #[schemars(with = "i32", range(min = 1, max = 10_000))]
    pub queue_length_limit: u16,
    /// How long one waits at most: `750ms`, `1s`.
    #[schemars(length(max = 32), regex(pattern = WAIT))]
    pub max_wait: String,
}

impl Default for Queueing {
    /// kube-apiserver's defaults for the queues, and a second.
    fn default() -> Self {
        Self { queues: 64, hand_size: 8, queue_length_limit: 50, max_wait: "1s".to_owned() }
    }
}
