//! A policy rule as written, and the matcher that is compiled from it.

use crate::attributes::{DispatchAttributes, DispatchTarget};
use crate::entries::{Empty, FieldEntries};
use crate::explanation::{FieldVerdict, Reason, RuleField, RuleVerdict};
use crate::names::{Name, PROXIED, PROXY};
use crate::pattern::{ResourcePattern, ServiceAccountPattern, TextPattern, Word};

/// A policy rule: a condition for requests. A request matches the rule if it matches every field that applies. The
/// resource fields apply to resource requests, and `non_resource_urls` to all other requests.
///
/// In every field, `*` matches every value, and `-x` (an inverted entry) every value except `x`. Several inverted
/// entries exclude all their values. If a field has an entry without `-`, its inverted entries have no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// RBAC verbs, and HTTP methods in lower case for non-resource requests. An empty list matches no request.
    pub verbs: Vec<String>,
    /// API groups; the empty string is the core group. An empty list matches no group.
    pub api_groups: Vec<String>,
    /// Resources: `pods`, `pods/status`, `*/status`. An empty list matches no resource.
    pub resources: Vec<String>,
    /// Names of objects; `x*` matches a prefix, and the empty string matches requests without a name. An empty list
    /// matches all names.
    ///
    /// The path can spell the name of a proxied object in several ways (`web`, `web:80`). An entry without a colon is
    /// compared with the object's name. In a denying policy, an entry matches if any spelling matches. In a dispatching
    /// policy, the name as written in the path must match, too. For inverted entries, the rules for denying and
    /// dispatching policies are exchanged.
    pub resource_names: Vec<String>,
    /// Namespaces; `x*` matches a prefix. The empty string matches cluster-scoped requests and requests for all
    /// namespaces. An empty list matches all requests.
    pub namespaces: Vec<String>,
    /// User names; `x*` matches a prefix. An empty list matches all users, unless `service_accounts` has entries.
    pub users: Vec<String>,
    /// ServiceAccounts, as an alternative to `users`: `NAMESPACE/NAME`, `NAMESPACE/*`. These entries, including
    /// inverted entries, match only ServiceAccounts.
    pub service_accounts: Vec<String>,
    /// Groups of the user; `x*` matches a prefix. The user must be in at least one of these groups. With inverted
    /// entries, the user must be in none of the groups. An empty list matches all users.
    pub user_groups: Vec<String>,
    /// Paths of non-resource requests; `x*` matches a prefix. An empty list matches no path.
    pub non_resource_urls: Vec<String>,
    /// Values of the `User-Agent` header; `x*` matches a prefix. An empty list matches all clients.
    pub user_agents: Vec<String>,
}

impl Rule {
    /// Returns the entries of a field.
    pub fn entries(&self, field: RuleField) -> &[String] {
        match field {
            RuleField::Verbs => &self.verbs,
            RuleField::ApiGroups => &self.api_groups,
            RuleField::Resources => &self.resources,
            RuleField::ResourceNames => &self.resource_names,
            RuleField::Namespaces => &self.namespaces,
            RuleField::Users => &self.users,
            RuleField::ServiceAccounts => &self.service_accounts,
            RuleField::UserGroups => &self.user_groups,
            RuleField::NonResourceUrls => &self.non_resource_urls,
            RuleField::UserAgents => &self.user_agents,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Matcher {
    pub(crate) verbs: FieldEntries<Word>,
    pub(crate) users: FieldEntries<TextPattern>,
    pub(crate) service_accounts: FieldEntries<ServiceAccountPattern>,
    pub(crate) user_groups: FieldEntries<TextPattern>,
    pub(crate) user_agents: FieldEntries<TextPattern>,
    pub(crate) api_groups: FieldEntries<Word>,
    pub(crate) resources: FieldEntries<ResourcePattern>,
    pub(crate) resource_names: FieldEntries<TextPattern>,
    pub(crate) namespaces: FieldEntries<TextPattern>,
    pub(crate) non_resource_urls: FieldEntries<TextPattern>,
}

impl Matcher {
    pub(crate) fn new(rule: &Rule) -> Self {
        // A request has to match only one of the fields `users` and `serviceAccounts`. So an empty field `users`
        // matches all users only if `serviceAccounts` is empty, too.
        let no_users = if rule.service_accounts.is_empty() { Empty::Any } else { Empty::Nothing };
        Self {
            verbs: FieldEntries::parse(&rule.verbs, Empty::Nothing),
            users: FieldEntries::parse(&rule.users, no_users),
            service_accounts: FieldEntries::parse(&rule.service_accounts, Empty::Nothing),
            user_groups: FieldEntries::parse(&rule.user_groups, Empty::Any),
            user_agents: FieldEntries::parse(&rule.user_agents, Empty::Any),
            api_groups: FieldEntries::parse(&rule.api_groups, Empty::Nothing),
            resources: FieldEntries::parse(&rule.resources, Empty::Nothing),
            resource_names: FieldEntries::parse(&rule.resource_names, Empty::Any),
            namespaces: FieldEntries::parse(&rule.namespaces, Empty::Any),
            non_resource_urls: FieldEntries::parse(&rule.non_resource_urls, Empty::Nothing),
        }
    }

    pub(crate) fn matches_resources(&self) -> bool {
        !self.api_groups.is_nothing() && !self.resources.is_nothing()
    }

    pub(crate) fn matches_paths(&self) -> bool {
        !self.non_resource_urls.is_nothing()
    }

    /// Returns whether the rule can match requests to the subresource `proxy`.
    pub(crate) fn matches_proxied(&self) -> bool {
        let is_named = |resource: &&str| self.resources.verdict(one((*resource, PROXY))).accepts();
        self.api_groups.verdict(one("")).accepts() && PROXIED.iter().any(is_named)
    }

    /// Compares each field of the rule with a request. `denies` is true if the rule's policy denies requests. The index
    /// in `index.rs` gives the same result for many rules at once.
    pub(crate) fn explain(&self, attributes: &DispatchAttributes<'_>, denies: bool) -> RuleVerdict {
        let user = self.users.verdict(one(attributes.user));
        let account = self.service_accounts.verdict(attributes.service_account().into_iter());
        let account = if attributes.service_account().is_none() { Reason::NoEntry } else { account };
        let mut fields =
            vec![FieldVerdict { field: RuleField::Verbs, reason: self.verbs.verdict(one(attributes.verb)) }];
        // A request matches if `users` or `serviceAccounts` accepts it. The explanation shows the field that accepts.
        fields.push(match account.accepts() && !user.accepts() {
            true => FieldVerdict { field: RuleField::ServiceAccounts, reason: account },
            false => FieldVerdict { field: RuleField::Users, reason: user },
        });
        let groups = attributes.groups.iter().map(String::as_str);
        fields.push(FieldVerdict { field: RuleField::UserGroups, reason: self.user_groups.verdict(groups) });
        fields.push(FieldVerdict {
            field: RuleField::UserAgents,
            reason: self.user_agents.verdict(one(attributes.user_agent)),
        });
        match &attributes.target {
            DispatchTarget::Resource(resource) => {
                let requested_resource = (resource.resource, resource.subresource);
                fields.extend(
                    [
                        (RuleField::ApiGroups, self.api_groups.verdict(one(resource.group))),
                        (RuleField::Resources, self.resources.verdict(one(requested_resource))),
                        (
                            RuleField::ResourceNames,
                            self.resource_names.name_verdict(Name::from_resource(resource), denies),
                        ),
                        (RuleField::Namespaces, self.namespaces.verdict(one(resource.namespace))),
                    ]
                    .map(|(field, reason)| FieldVerdict { field, reason }),
                );
            }
            DispatchTarget::NonResource(path) => fields.push(FieldVerdict {
                field: RuleField::NonResourceUrls,
                reason: self.non_resource_urls.verdict(one(path.as_ref())),
            }),
        }
        RuleVerdict { fields }
    }
}

fn one<T: Copy>(value: T) -> std::iter::Once<T> {
    std::iter::once(value)
}
