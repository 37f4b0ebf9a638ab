//! Dispatch policies: which requests are sent on, where, how many of them, and which are refused.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tributary_apimachinery::AuditLevel;
use tributary_policy as policy;

/// Takes the requests that one of its rules matches, and says what becomes of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.deny) || (!has(self.flowControlSchemaName) && (!has(self.endpoints) || size(self.endpoints) == 0))",
     "message": "what is denied is sent nowhere; give deny, or flowControlSchemaName and endpoints"}
]))]
pub struct DispatchPolicy {
    /// The policy takes a request that one of them matches.
    #[schemars(length(min = 1, max = 256))]
    pub rules: Vec<DispatchRule>,
    /// `Enforce`: the policy acts. `Audit`: requests that it would take are counted, and go on as if it were not there.
    #[serde(default, skip_serializing_if = "PolicyMode::is_enforce")]
    pub mode: PolicyMode,
    /// Refuses the requests (403). Without it they go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<Deny>,
    /// The schema of `flowControl.flowControlSchemas` that the requests pass. Without it they are not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_control_schema_name: Option<String>,
    /// Those of the cluster's `endpoints` that the requests are sent to, and no others, even where none of these is
    /// healthy; all of them if empty. Of a MergedEndpoint no policy has endpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub endpoints: Vec<String>,
    /// Whether the requests are written into the access log: as `logging.mode` says if missing, `Enabled` unless
    /// that is `Disabled`, `Disabled` never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LogMode")]
    pub log_mode: Option<LogMode>,
    /// How much is written of the requests into the audit log, in the place of what the audit policy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AuditLevel")]
    pub audit_level: Option<AuditLevel>,
}

/// Which requests a policy takes: those that every field matches. `resources` with its companions is about requests for
/// resources, `nonResourceURLs` about all others. In each list `*` matches everything and `-x` what is not `x`; several
/// inverted entries exclude all that they name, and an entry without `-` makes those with it void.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.apiGroups) && size(self.apiGroups) > 0) == (has(self.resources) && size(self.resources) > 0)",
     "message": "apiGroups and resources go together; \"\" is the core group, \"*\" all groups"},
    {"rule": "(has(self.resources) && size(self.resources) > 0) || (has(self.nonResourceURLs) && size(self.nonResourceURLs) > 0)",
     "message": "a rule names resources, nonResourceURLs or both"}
]))]
pub struct DispatchRule {
    /// Verbs as RBAC has them: get, list, watch, create, update, patch, delete, deletecollection; of requests for no
    /// resource the method in lower case. `exec`, `attach` and `portforward` are `create`, whatever the method.
    #[schemars(length(min = 1, max = 64))]
    pub verbs: Vec<String>,
    /// API groups; `""` is the core group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub api_groups: Vec<String>,
    /// Resources in the plural: `pods`, `pods/status`, `*/status`. A subresource is another resource than its object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(regex(pattern = r"^(\*|-?(\*/[^/*A-Z]+|[^-/*A-Z][^/*A-Z]*(/[^/*A-Z]+)?))$")))]
    pub resources: Vec<String>,
    /// Names of objects, `x*` for those that begin with `x`; `""` is that of lists and of whatever else names none.
    /// All if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub resource_names: Vec<String>,
    /// Namespaces, `x*` for those that begin with `x`; `""` is that of objects without one, and of lists of all
    /// namespaces together. All if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub namespaces: Vec<String>,
    /// Users, `x*` for those whose names begin with `x`. All if empty, unless there are `serviceAccounts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub users: Vec<String>,
    /// ServiceAccounts, as `NAMESPACE/NAME` or `NAMESPACE/*`: beside `users`, one of the two has to match. No other
    /// user is one, not even for an inverted entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub service_accounts: Vec<String>,
    /// Groups, `x*` for those that begin with `x`: the user is in one of them, with inverted entries in none. All if
    /// empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub user_groups: Vec<String>,
    /// Paths of requests for no resource, `/x/*` for those that begin with `/x/`.
    #[serde(rename = "nonResourceURLs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(regex(pattern = r"^(\*|-?/[^*]*\**)$")))]
    pub non_resource_urls: Vec<String>,
    /// Values of the header `User-Agent`, `kubectl/*` for those that begin so. All if empty. Clients choose what they
    /// say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub user_agents: Vec<String>,
}

/// Refuses requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deny {
    /// What the client is told: why, and what to do instead.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
}

/// Whether a policy acts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyMode {
    /// It does.
    #[default]
    Enforce,
    /// What it would take is counted.
    Audit,
}

impl PolicyMode {
    fn is_enforce(&self) -> bool {
        *self == Self::Enforce
    }
}

/// Whether requests are dispatched at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Dispatch {
    /// By the policies; all of them where there are none.
    #[default]
    Policies,
    /// None is.
    DenyAll,
}

impl Dispatch {
    /// Whether the policies decide.
    pub fn is_by_policies(&self) -> bool {
        *self == Self::Policies
    }
}

/// Which requests are written into the access log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Logging {
    /// `Enabled`: all but those of policies with `logMode: Disabled`. `Disabled`: none. If missing: those of policies
    /// with `logMode: Enabled`, and, unless their policy has `logMode: Disabled`, all requests that fail (5xx, or no
    /// answer), and short ones that take longer than 5 s (a list 30 s).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LogMode")]
    pub mode: Option<LogMode>,
}

impl Logging {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether requests are written into the access log. Not `on` and `off`: in YAML as kubectl reads it these are
/// booleans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogMode {
    /// They are.
    Enabled,
    /// They are not.
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
