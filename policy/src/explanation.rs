//! Why a rule matches a request, or does not.

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

    /// The field as configuration files have it.
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

/// Why a field accepts a request, or does not. Numbers are places in the field as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is empty, and that accepts everything.
    Empty,
    /// This entry matches.
    Entry(usize),
    /// No inverted entry matches.
    NotExcluded,
    /// No entry matches: not accepted.
    NoEntry,
    /// This inverted entry matches: not accepted.
    Excluded(usize),
}

impl Reason {
    /// Whether the field accepts the request.
    pub fn accepts(self) -> bool {
        matches!(self, Self::Empty | Self::Entry(_) | Self::NotExcluded)
    }
}

/// What a field says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldVerdict {
    /// The field. Of `users` and `serviceAccounts` the one that accepts, or `users`.
    pub field: RuleField,
    /// Whether it accepts the request, and why.
    pub reason: Reason,
}

/// What a rule says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleVerdict {
    /// Its fields, as far as they are about this kind of request.
    pub fields: Vec<FieldVerdict>,
}

impl RuleVerdict {
    /// Whether the rule matches.
    pub fn matches(&self) -> bool {
        self.fields.iter().all(|verdict| verdict.reason.accepts())
    }

    /// The fields that do not accept the request.
    pub fn against(&self) -> impl Iterator<Item = &FieldVerdict> {
        self.fields.iter().filter(|verdict| !verdict.reason.accepts())
    }
}

/// What the policies say of a request, up to the rule that takes it, or of all where none does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What each rule says, in their order.
    pub rules: Vec<(RulePlace, RuleVerdict)>,
}
