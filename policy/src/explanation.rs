//! The explanation why a rule matches a request or not.

use crate::place::RulePlace;

/// A field of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleField {
    /// `verbs`
    Verbs,
    /// `users`
    Users,
    /// `serviceAccounts`
    ServiceAccounts,
    /// `userGroups`
    UserGroups,
    /// `userAgents`
    UserAgents,
    /// `apiGroups`
    ApiGroups,
    /// `resources`
    Resources,
    /// `resourceNames`
    ResourceNames,
    /// `namespaces`
    Namespaces,
    /// `nonResourceURLs`
    NonResourceUrls,
}

impl RuleField {
    /// All fields.
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

    /// The name of the field in configuration files.
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

/// The reason why a field accepts a request or not. Numbers are indices of entries in the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The field is empty, so every request is accepted.
    Empty,
    /// The entry with this index matches.
    Entry(usize),
    /// No inverted entry matches, so the field accepts the request.
    NotExcluded,
    /// No entry matches, so the field rejects the request.
    NoEntry,
    /// The inverted entry with this index matches, so the field rejects the request.
    Excluded(usize),
}

impl Reason {
    /// Whether the field accepts the request.
    pub fn accepts(self) -> bool {
        matches!(self, Self::Empty | Self::Entry(_) | Self::NotExcluded)
    }
}

/// The verdict of a field on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldVerdict {
    /// The field. For `users` and `serviceAccounts`, the one that accepts, or `users` if neither does.
    pub field: RuleField,
    /// The reason for accepting or rejecting.
    pub reason: Reason,
}

/// The verdict of a rule on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleVerdict {
    /// The verdicts of the fields that apply to this kind of request.
    pub fields: Vec<FieldVerdict>,
}

impl RuleVerdict {
    /// Whether the rule matches.
    pub fn matches(&self) -> bool {
        self.fields.iter().all(|verdict| verdict.reason.accepts())
    }

    /// The fields that reject the request.
    pub fn against(&self) -> impl Iterator<Item = &FieldVerdict> {
        self.fields.iter().filter(|verdict| !verdict.reason.accepts())
    }
}

/// The verdicts of the policies on a request, up to and including the rule that decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The verdict of each rule, in order.
    pub rules: Vec<(RulePlace, RuleVerdict)>,
}
