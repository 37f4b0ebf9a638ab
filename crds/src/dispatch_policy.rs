//! Dispatch policies: rules that allow, limit or deny requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tributary_apimachinery::AuditLevel;
use tributary_policy as policy;

/// A policy for requests that match one of its rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.deny) || (!has(self.flowControlSchemaName) && (!has(self.endpoints) || size(self.endpoints) == 0))",
     "message": "a denied request reaches no endpoint; give deny alone, or flowControlSchemaName and endpoints"}
]))]
pub struct DispatchPolicy {
    /// The policy applies to a request that matches at least one of these rules.
    #[schemars(length(min = 1, max = 256))]
    pub rules: Vec<DispatchRule>,
    /// `Enforce`: the policy applies. `Audit`: matching requests are only counted, and evaluation continues with the
    /// next policy.
    #[serde(default, skip_serializing_if = "PolicyMode::is_enforce")]
    pub mode: PolicyMode,
    /// Denies matching requests (403). If unset, matching requests are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<Deny>,
    /// The schema in `flowControl.flowControlSchemas` that limits the requests. Unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_control_schema_name: Option<String>,
    /// The only `endpoints` of the cluster that may receive the requests, even if they are all unhealthy. All endpoints
    /// if empty. Not allowed in a MergedEndpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub endpoints: Vec<String>,
    /// Whether to write the requests to the access log. `Enabled` has no effect under `logging.mode: Disabled`. If
    /// unset, `logging.mode` applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LogMode")]
    pub log_mode: Option<LogMode>,
    /// The audit level of the requests. It overrides the audit policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AuditLevel")]
    pub audit_level: Option<AuditLevel>,
}

/// A rule matches a request if every field matches. `apiGroups`, `resources`, `resourceNames` and `namespaces` apply to
/// resource requests, `nonResourceURLs` to all remaining requests. In each list, `*` matches everything, and `-x`
/// matches all values except `x`. Several `-` entries exclude all their values. An entry without `-` makes the `-`
/// entries of the list void.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.apiGroups) && size(self.apiGroups) > 0) == (has(self.resources) && size(self.resources) > 0)",
     "message": "give apiGroups and resources together; \"\" is the core group, \"*\" all groups"},
    {"rule": "(has(self.resources) && size(self.resources) > 0) || (has(self.nonResourceURLs) && size(self.nonResourceURLs) > 0)",
     "message": "give resources, nonResourceURLs or both"}
]))]
pub struct DispatchRule {
    /// Verbs, as in RBAC: get, list, watch, create, update, patch, delete, deletecollection. For a non-resource path,
    /// the HTTP method in lower case. For `exec`, `attach` and `portforward`, always `create`.
    #[schemars(length(min = 1, max = 64))]
    pub verbs: Vec<String>,
    /// API groups; `""` is the core group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub api_groups: Vec<String>,
    /// Resources in the plural: `pods`, `pods/status`, `*/status`. `pods` does not match subresources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(regex(pattern = r"^(\*|-?(\*/[^/*A-Z]+|[^-/*A-Z][^/*A-Z]*(/[^/*A-Z]+)?))$")))]
    pub resources: Vec<String>,
    /// Names of objects; `x*` matches a prefix. `""` matches requests without a name, such as lists. All if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub resource_names: Vec<String>,
    /// Namespaces; `x*` matches a prefix. `""` matches cluster-scoped requests and lists of all namespaces. All if
    /// empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub namespaces: Vec<String>,
    /// User names; `x*` matches a prefix. All if empty, unless `serviceAccounts` is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub users: Vec<String>,
    /// ServiceAccounts, as `NAMESPACE/NAME` or `NAMESPACE/*`. `users` or `serviceAccounts` must match. Entries with `-`
    /// also match only ServiceAccounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub service_accounts: Vec<String>,
    /// Groups; `x*` matches a prefix. The user must be in one of them; for `-` entries, in no such group. All if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub user_groups: Vec<String>,
    /// Non-resource paths; `/x/*` matches a prefix.
    #[serde(rename = "nonResourceURLs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(regex(pattern = r"^(\*|-?/[^*]*\**)$")))]
    pub non_resource_urls: Vec<String>,
    /// Values of the header `User-Agent`; `kubectl/*` matches a prefix. All if empty. Clients can send any value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub user_agents: Vec<String>,
}

/// The answer to denied requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deny {
    /// The message for the client: the reason, and the remedy.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
}

/// Whether a policy applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyMode {
    /// The policy applies.
    #[default]
    Enforce,
    /// Matching requests are only counted.
    Audit,
}

impl PolicyMode {
    fn is_enforce(&self) -> bool {
        *self == Self::Enforce
    }
}

/// Whether requests are sent to the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Dispatch {
    /// The policies decide; without policies, all requests are allowed.
    #[default]
    Policies,
    /// No request is sent to the cluster.
    DenyAll,
}

impl Dispatch {
    /// Returns whether the dispatch policies apply.
    pub fn is_by_policies(&self) -> bool {
        *self == Self::Policies
    }
}

/// The requests to write to the access log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Logging {
    /// `Enabled`: all requests, except of policies with `logMode: Disabled`. `Disabled`: no requests. If unset:
    /// requests of policies with `logMode: Enabled`; and, unless their policy has `logMode: Disabled`, requests that
    /// fail (5xx or no answer) or take more than 5 s (lists: 30 s; long-running requests: no limit).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LogMode")]
    pub mode: Option<LogMode>,
}

impl Logging {
    /// Returns whether no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether to write requests to the access log. The values are not `on` and `off`, which kubectl reads as booleans in
/// YAML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogMode {
    /// Requests are written.
    Enabled,
    /// Requests are not written.
    Disabled,
}

impl From<LogMode> for policy::LogMode {
    fn from(mode: LogMode) -> Self {
        match mode {
            LogMode::Enabled => Self::Enabled,
            LogMode::Disabled => Self::Disabled,
        }
    }
}

impl From<PolicyMode> for policy::Mode {
    fn from(mode: PolicyMode) -> Self {
        match mode {
            PolicyMode::Enforce => Self::Enforce,
            PolicyMode::Audit => Self::Audit,
        }
    }
}

impl From<&DispatchPolicy> for policy::Policy {
    fn from(written: &DispatchPolicy) -> Self {
        let action = match &written.deny {
            Some(deny) => policy::Action::Deny { message: deny.message.clone() },
            None => policy::Action::Dispatch {
                endpoints: written.endpoints.clone(),
                flow_control_schema: written.flow_control_schema_name.clone(),
            },
        };
        let log_mode = written.log_mode.map(policy::LogMode::from);
        let outcome = policy::Outcome { action, log_mode, audit_level: written.audit_level };
        Self { rules: written.rules.iter().map(policy::Rule::from).collect(), mode: written.mode.into(), outcome }
    }
}

impl From<&DispatchRule> for policy::Rule {
    fn from(written: &DispatchRule) -> Self {
        let DispatchRule {
            verbs,
            api_groups,
            resources,
            resource_names,
            namespaces,
            users,
            service_accounts,
            user_groups,
            non_resource_urls,
            user_agents,
        } = written.clone();
        Self {
            verbs,
            api_groups,
            resources,
            resource_names,
            namespaces,
            users,
            service_accounts,
            user_groups,
            non_resource_urls,
            user_agents,
        }
    }
}
