//! Explanation why a policy rule matches a request or not.

use crate::place::RulePlace;

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

/// The reason why a field of a rule accepts or rejects a request. Numbers are indices of entries in the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The field is empty and accepts every request.
    Empty,
    /// The field accepts the request, because the entry with this index matches.
    Entry(usize),
    /// The field accepts the request, because no inverted entry matches.
    NotExcluded,
    /// The field rejects the request, because no entry matches.
    NoEntry,
    /// The field rejects the request, because the inverted entry with this index matches.
    Excluded(usize),
}

impl Reason {
    /// Returns whether the field accepts the request.
    pub fn accepts(self) -> bool {
        matches!(self, Self::Empty | Self::Entry(_) | Self::NotExcluded)
    }
}

/// Verdict of one field of a rule on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldVerdict {
    /// The field. `users` and `serviceAccounts` share one verdict: the field that accepts the request, or `users` if
    /// neither accepts.
    pub field: RuleField,
    /// The reason for the verdict.
    pub reason: Reason,
}

/// Verdict of a rule on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleVerdict {
    /// Verdicts of the fields that apply to the request: resource fields or `nonResourceURLs`, and the common fields.
    pub fields: Vec<FieldVerdict>,
}

impl RuleVerdict {
    /// Returns whether the rule matches the request.
    pub fn matches(&self) -> bool {
        self.fields.iter().all(|verdict| verdict.reason.accepts())
    }

    /// Returns the fields that reject the request.
    pub fn against(&self) -> impl Iterator<Item = &FieldVerdict> {
        self.fields.iter().filter(|verdict| !verdict.reason.accepts())
    }
}

/// Verdicts of the policy rules on a request, up to and including the deciding rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The verdict of each rule, in the order of the rules.
    pub rules: Vec<(RulePlace, RuleVerdict)>,
}
