//! Flow control: limits for the requests of dispatch policies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::patterns::WAIT;

/// A CEL rule for the `spec` of an object: each schema that a policy names must be a schema of the object.
///
/// kube-apiserver rejects a rule with an estimated cost above 10,000,000 (`StaticEstimatedCostLimit` in
/// apiextensions-apiserver's `pkg/apis/apiextensions/validation/validation.go`), and stops a rule at a cost of
/// 1,000,000 (`PerCallLimit` in apiserver's `pkg/apis/cel/config.go`). cel-go computes both costs (`checker/cost.go`,
/// `interpreter/runtimecost.go`).
///
/// A comparison of the names of 1,024 policies and 256 schemas by `exists` has an estimated cost of 28,800,000: 110 for
/// each pair, of which 102 are for a name of 253 characters of four bytes. At run time, the comparison costs more than
/// 2,000,000, even with short names. Therefore the rule collects the names of the schemas once. With `in`, the cost for
/// each name is 1: 14 for each schema and 264 for each policy are 275,000 together.
///
/// CEL has no variables in these rules. The element of a list with one element (`[names].all(names, …)`) serves as a
/// variable.
macro_rules! named_schemas_exist {
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

pub(crate) const NAMED_SCHEMAS_EXIST: &str = named_schemas_exist!("dispatchPolicies");

pub(crate) const GLOBALLY_NAMED_SCHEMAS_EXIST: &str = named_schemas_exist!("globalDispatchPolicies");

/// Limits for requests, as schemas to which dispatch policies refer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FlowControl {
    /// The schemas. Each has a unique name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flow_control_schemas: Vec<FlowControlSchema>,
}

impl FlowControl {
    /// Returns whether the object has no schemas.
    pub fn is_empty(&self) -> bool {
        self.flow_control_schemas.is_empty()
    }
}

/// A limit: exactly one of `exempt`, `maxRequestsInflight` and `tokenBucket`. Requests above the limit are answered
/// 429.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.exempt) ? 1 : 0) + (has(self.maxRequestsInflight) ? 1 : 0) + (has(self.tokenBucket) ? 1 : 0) == 1",
     "message": "give exactly one of exempt, maxRequestsInflight and tokenBucket"}
]))]
pub struct FlowControlSchema {
    /// The name of the schema, for policies and in answers to clients.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[!-~]+$"))]
    pub name: String,
    /// No limit. Requests are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exempt: Option<Exempt>,
    /// A limit for the number of requests in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_requests_inflight: Option<MaxRequestsInflight>,
    /// A limit for the rate at which requests start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_bucket: Option<TokenBucket>,
}

/// No limit. The type has no fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exempt {}

/// A limit for the number of requests in flight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.max > 0 || !has(self.queueing)",
     "message": "queueing has no effect with max 0, because no request is ever admitted; remove queueing"}
]))]
pub struct MaxRequestsInflight {
    /// Maximum number of requests in flight; 0 refuses all requests, also long-running requests.
    #[schemars(with = "i32", range(min = 0, max = 1_000_000))]
    pub max: u32,
    /// Whether long-running requests (watch, logs, exec, attach, port-forward, proxy) count against `max`. If false,
    /// they are admitted and counted separately.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub count_long_running: bool,
    /// Attributes that have separate limits (`User`, `Group`, `ClientAddress`, `Verb`, `Resource`): each combination of
    /// their values has its own limit. If empty, all requests share a single limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    pub limit_by: Vec<LimitBy>,
    /// Lets requests above the limit wait. If unset, they are answered 429 at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<Queueing>,
}

/// A limit for the rate at which requests start. A long-running request costs a single token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.burst) || self.burst >= self.qps",
     "message": "burst is less than qps"}
]))]
pub struct TokenBucket {
    /// Tokens added per second.
    #[schemars(with = "i32", range(min = 1, max = 1_000_000))]
    pub qps: u32,
    /// Maximum number of tokens, and the number at the start. `qps` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 1_000_000))]
    pub burst: Option<u32>,
    /// Attributes that have separate limits (`User`, `Group`, `ClientAddress`, `Verb`, `Resource`): each combination of
    /// their values has its own limit. If empty, all requests share a single limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    pub limit_by: Vec<LimitBy>,
    /// Lets requests above the limit wait. If unset, they are answered 429 at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<Queueing>,
}

/// A request attribute that has separate limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum LimitBy {
    /// The user.
    User,
    /// The first group of the user, in alphabetical order, that does not begin with `system:`.
    Group,
    /// The address of the client; for IPv6 the first 64 bits.
    ClientAddress,
    /// The verb.
    Verb,
    /// The resource and the subresource.
    Resource,
    /// No effect in an UpstreamCluster, and an error in a MergedEndpoint. The schemas of an UpstreamCluster limit
    /// requests to that cluster.
    Cluster,
}

/// Queues for waiting requests, as `limitResponse.queuing` of kube-apiserver (KEP-1040): users are spread over queues
/// that take turns, so that the many requests of a user do not delay users with few requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.handSize <= self.queues",
     "message": "handSize is more than queues"},
    {"rule": "duration(self.maxWait) > duration('0s') && duration(self.maxWait) <= duration('60s')",
     "message": "maxWait is out of range; give a duration above 0 and at most 60s"}
]))]
pub struct Queueing {
    /// Number of queues.
    #[schemars(with = "i32", range(min = 1, max = 1024))]
    pub queues: u16,
    /// Number of queues that are assigned to a user. A request joins the shortest of them.
    #[schemars(with = "i32", range(min = 1, max = 10))]
    pub hand_size: u8,
    /// Maximum number of waiting requests in a queue.
    #[schemars(with = "i32", range(min = 1, max = 10_000))]
    pub queue_length_limit: u16,
    /// Maximum time that a request waits: `750ms`, `1s`.
    #[schemars(length(max = 32), regex(pattern = WAIT))]
    pub max_wait: String,
}

impl Default for Queueing {
    /// Returns the default queues: kube-apiserver's numbers of queues, and a maximum wait of 1 s.
    fn default() -> Self {
        Self { queues: 64, hand_size: 8, queue_length_limit: 50, max_wait: "1s".to_owned() }
    }
}
