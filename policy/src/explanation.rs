//! Explanation of the reasons for which a policy rule matches a request or not.

use crate::place::RulePosition;

/// A field of a policy rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleField {
    /// The field `verbs`.
    Verbs,
    /// The field `users`.
    Users,
    /// The field `serviceAccounts`.
    ServiceAccounts,
    /// The field `userGroups`.
    UserGroups,
    /// The field `userAgents`.
    UserAgents,
    /// The field `apiGroups`.
    ApiGroups,
    /// The field `resources`.
    Resources,
    /// The field `resourceNames`.
    ResourceNames,
    /// The field `namespaces`.
    Namespaces,
    /// The field `nonResourceURLs`.
    NonResourceUrls,
}

impl RuleField {
    /// All fields of a rule, in the order of this enum.
    pub const ALL: [Self; 10] = [
        Self::Verbs,
        Self::Users,
        Self::ServiceAccounts,
        Self::UserGroups,
        Self::UserAgents,
        Self::ApiGroups,
        Self::Resources,
        Self::ResourceNames,
        Self::Namespaces,
        Self::NonResourceUrls,
    ];

    /// Returns the name of the field in configuration files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Users => "users",
            Self::ServiceAccounts => "serviceAccounts",
            Self::UserGroups => "userGroups",
            Self::UserAgents => "userAgents",
            Self::ApiGroups => "apiGroups",
            Self::Resources => "resources",
            Self::ResourceNames => "resourceNames",
            Self::Namespaces => "namespaces",
            Self::NonResourceUrls => "nonResourceURLs",
        }
    }
}

/// The reason for which a field of a rule accepts or rejects a request. A number is the index of an entry in the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The field is empty and accepts every request.
    Empty,
    /// The field accepts the request, because the entry with this index matches the request.
    Entry(usize),
    /// The field accepts the request, because no inverted entry matches the request.
    NotExcluded,
    /// The field rejects the request, because no entry matches the request.
    NoEntry,
    /// The field rejects the request, because the inverted entry with this index matches the request.
    Excluded(usize),
}

impl Reason {
    /// Returns whether the field accepts the request.
    pub fn accepts(self) -> bool {
        matches!(self, Self::Empty | Self::Entry(_) | Self::NotExcluded)
    }
}

/// Verdict of one rule field about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldVerdict {
    /// The field of the rule. `users` and `serviceAccounts` share one verdict: it names the field that accepts the
    /// request, or `users` if neither accepts it.
    pub field: RuleField,
    /// The reason for the verdict.
    pub reason: Reason,
}

/// Verdict of a rule about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleVerdict {
    /// Verdicts of the fields that apply to the request: the resource fields or `nonResourceURLs`, and the fields for
    /// verbs, users, groups and user agents.
    pub fields: Vec<FieldVerdict>,
}

impl RuleVerdict {
    /// Returns whether the rule matches the request.
    pub fn matches(&self) -> bool {
        self.fields.iter().all(|verdict| verdict.reason.accepts())
    }

    /// Returns the fields that reject the request.
    pub fn rejecting_fields(&self) -> impl Iterator<Item = &FieldVerdict> {
        self.fields.iter().filter(|verdict| !verdict.reason.accepts())
    }
}

/// Verdicts of the policy rules about a request. The last rule is the one that decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The verdict of each rule, in the order of the rules.
    pub rules: Vec<(RulePosition, RuleVerdict)>,
}
