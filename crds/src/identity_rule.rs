//! The user that the members of a `ClusterSource` see.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The user that the members of a source see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.type) && self.type == 'Rules') == (has(self.rules) && size(self.rules) > 0)",
     "message": "the type Rules needs rules, and other types take no rules"}
]))]
pub struct SourceIdentity {
    /// `Impersonate`: the caller, by impersonation. `Stored`: the user of the stored credential, as in cluster-gateway
    /// without authentication; all callers then have the rights of this user. `Rules`: the user of the first matching
    /// rule, or else the caller.
    #[serde(rename = "type")]
    pub kind: IdentityType,
    /// Rules in the form of cluster-gateway's ClusterGatewayProxyConfiguration (`spec.clientIdentityExchanger.rules`).
    /// The first rule with a matching source applies. Rules in the annotation
    /// `cluster.core.oam.dev/cluster-gateway-proxy-configuration` of a Secret come first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub rules: Vec<IdentityRule>,
    /// Whether patterns must match the whole name. In cluster-gateway, a match anywhere in the name is sufficient.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

impl SourceIdentity {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The kind of user that the members of a source see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IdentityType {
    /// The caller, by impersonation.
    #[default]
    Impersonate,
    /// The user of the stored credential.
    Stored,
    /// The user of the first matching rule, or else the caller.
    Rules,
}

/// A rule of cluster-gateway that exchanges the identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(self.type == 'StaticMappingIdentityExchanger') == has(self.target)",
     "message": "StaticMappingIdentityExchanger needs a target, and PrivilegedIdentityExchanger takes none"}
]))]
pub struct IdentityRule {
    /// The name of the rule, for messages.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub name: String,
    /// `PrivilegedIdentityExchanger`: the user of the stored credential. `StaticMappingIdentityExchanger`: the user in
    /// `target`. ExternalIdentityExchanger is not supported, as in cluster-gateway.
    #[serde(rename = "type")]
    pub kind: IdentityRuleType,
    /// The callers and clusters for which the rule applies. All given fields must match.
    pub source: IdentityRuleSource,
    /// The user and groups that the cluster sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<IdentityRuleTarget>,
}

/// The exchange that a rule makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IdentityRuleType {
    /// The cluster sees the user of the stored credential.
    PrivilegedIdentityExchanger,
    /// The cluster sees the user of the rule's target.
    StaticMappingIdentityExchanger,
}

/// The callers and clusters for which a rule applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IdentityRuleSource {
    /// The name of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A group of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The uid of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The name of the cluster in the foreign system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// A regular expression for the name of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub user_pattern: Option<String>,
    /// A regular expression for any group of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub group_pattern: Option<String>,
    /// A regular expression for the name of the cluster in the foreign system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub cluster_pattern: Option<String>,
}

/// The user that a cluster sees because of a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityRuleTarget {
    /// The name of the user.
    #[schemars(length(min = 1))]
    pub user: String,
    /// The groups of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The uid of the user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}
