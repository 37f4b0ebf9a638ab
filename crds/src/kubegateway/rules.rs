//! Converts the rules of KubeGateway, according to the behaviour of its code (`evaluation_helpers.go`).

use tributary_policy::{MissedConnections, RuleField, can_match};

use super::Conversion;
use super::manifest::{GatewayRule, ServiceAccount};
use crate::DispatchRule;

impl Conversion {
    /// Converts a rule; `None` if the rule can match no request.
    pub(super) fn rule(&mut self, rule: GatewayRule, path: &str) -> Option<DispatchRule> {
        self.unknown(path, &rule.rest);
        let has_subjects = !rule.users.is_empty() || !rule.service_accounts.is_empty();
        let service_accounts = self.accounts(rule.service_accounts, path);
        let mut list =
            |field: RuleField, texts: Vec<String>| self.list(field, texts, &format!("{path}.{}", field.as_str()));
        let users = list(RuleField::Users, rule.users);
        let user_groups = (rule.user_groups.is_empty(), list(RuleField::UserGroups, rule.user_groups));
        let resource_names = (rule.resource_names.is_empty(), list(RuleField::ResourceNames, rule.resource_names));
        let mut verbs = list(RuleField::Verbs, rule.verbs);
        let mut api_groups = list(RuleField::ApiGroups, rule.api_groups);
        let mut resources = list(RuleField::Resources, rule.resources);
        let non_resource_urls = list(RuleField::NonResourceUrls, rule.non_resource_urls);
        // Two kinds of rules match no resource request: rules with only one of apiGroups and resources, and rules
        // without a usable resource name.
        let no_names = !resource_names.0 && resource_names.1.is_empty();
        let (has_groups, has_resources) = (!api_groups.is_empty(), !resources.is_empty());
        if has_groups != has_resources || (has_groups && no_names) {
            self.add_difference(
                path,
                "its apiGroups, resources and resourceNames never match together; they are removed",
            );
            (api_groups, resources) = (Vec::new(), Vec::new());
        } else if self.matches_no_connect_request(&mut verbs, &resources, path) {
            (api_groups, resources) = (Vec::new(), Vec::new());
        }
        let no_subject = has_subjects && users.is_empty() && service_accounts.is_empty();
        let no_group = !user_groups.0 && user_groups.1.is_empty();
        let no_target = resources.is_empty() && non_resource_urls.is_empty();
        if verbs.is_empty() || no_subject || no_group || no_target {
            self.add_difference(path, "never matches; removed");
            return None;
        }
        let resource_names = if resources.is_empty() { Vec::new() } else { resource_names.1 };
        Some(DispatchRule {
            verbs,
            api_groups,
            resources,
            resource_names,
            users,
            service_accounts,
            user_groups: user_groups.1,
            non_resource_urls,
            ..DispatchRule::default()
        })
    }

    /// Returns whether the resources of a rule match no request, so that the conversion must remove them. This is the
    /// case if all resources are connections (exec, attach, portforward), and none of the rule's verbs matches a
    /// connection.
    ///
    /// KubeGateway matches such a connection by GET, the method that opens a WebSocket. The conversion reports this
    /// difference. If the rule selects only connections and has `get`, the conversion adds `create`, so that no later
    /// policy matches these requests instead.
    fn matches_no_connect_request(&mut self, verbs: &mut Vec<String>, resources: &[String], path: &str) -> bool {
        const WHAT: &str = "opened by a WebSocket (GET); in Tributary their verb is \"create\"";
        let missed = MissedConnections::from_rule(verbs, resources);
        let matched_get = matches_verb(verbs, "get");
        match missed {
            MissedConnections::Nothing => {}
            MissedConnections::Some if !matched_get => {}
            MissedConnections::Some => self.add_difference(
                &format!("{path}.verbs"),
                format!(
                    "in KubeGateway this rule also matches exec, attach and portforward that are {WHAT}, so a later \
                     policy or none matches them; add \"create\" if the rule should match them"
                ),
            ),
            MissedConnections::All if matched_get && !verbs.iter().any(|verb| verb.starts_with('-')) => {
                self.add_difference(
                    &format!("{path}.verbs"),
                    format!("in KubeGateway this rule matches requests that are {WHAT}, which is added"),
                );
                verbs.push("create".to_owned());
                return false;
            }
            MissedConnections::All if matched_get => self.add_difference(
                path,
                format!(
                    "in KubeGateway this rule matches requests that are {WHAT}, so it never matches and is removed; a \
                     later policy or none matches these requests"
                ),
            ),
            MissedConnections::All => {
                self.add_difference(path, "its verbs and resources never match together; they are removed")
            }
        }
        missed == MissedConnections::All
    }

    /// Converts a list by KubeGateway's precedence: `*` alone, otherwise the entries without `-`, otherwise the entries
    /// with `-`.
    fn list(&mut self, field: RuleField, texts: Vec<String>, path: &str) -> Vec<String> {
        if texts.iter().any(|text| text == "*") {
            return vec!["*".to_owned()];
        }
        let (inverted, plain): (Vec<String>, Vec<String>) = texts.into_iter().partition(|text| text.starts_with('-'));
        if plain.is_empty() {
            return self.inverted(field, inverted, path);
        }
        let (taken, never): (Vec<_>, Vec<_>) = plain.into_iter().partition(|text| can_match(field, text));
        for text in never {
            self.add_difference(path, format!("{text:?} never matches; removed"));
        }
        for text in taken.iter().filter(|text| text.ends_with('*') && has_literal_star(field)) {
            self.add_difference(path, format!("{text:?} is a single name in KubeGateway, and a prefix in Tributary"));
        }
        taken
    }

    /// Converts a list whose entries all begin with `-`. In KubeGateway, a list with several of these entries excludes
    /// no value, because each value differs from one of the entries.
    fn inverted(&mut self, field: RuleField, inverted: Vec<String>, path: &str) -> Vec<String> {
        let shown = inverted.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ");
        if field == RuleField::NonResourceUrls && !inverted.is_empty() {
            self.add_difference(
                path,
                format!("{shown} never matches in KubeGateway, which does not invert paths; removed"),
            );
            return Vec::new();
        }
        if inverted.len() > 1 {
            self.add_difference(
                path,
                format!("{shown} matches all values in KubeGateway, and excludes all of these values in Tributary"),
            );
        } else if inverted
            .iter()
            .any(|text| text.starts_with("-*/") || (field == RuleField::Users && text.ends_with('*')))
        {
            self.add_difference(path, format!("{shown} excludes no value, or too few, in KubeGateway; in Tributary it excludes all matching values"));
        }
        // Entries that can never match, and `-*`, exclude no value.
        let (excluding, void): (Vec<_>, Vec<_>) =
            inverted.into_iter().partition(|text| can_match(field, &text[1..]) && &text[1..] != "*");
        match (excluding.is_empty(), void.is_empty()) {
            (true, false) => {
                self.add_difference(path, format!("{shown} excludes no value; replaced by \"*\""));
                vec!["*".to_owned()]
            }
            _ => excluding,
        }
    }

    fn accounts(&mut self, accounts: Vec<ServiceAccount>, path: &str) -> Vec<String> {
        let mut named = Vec::new();
        for (index, ServiceAccount { name, namespace }) in accounts.into_iter().enumerate() {
            match name.is_empty() || namespace.is_empty() {
                true => self.add_difference(
                    &format!("{path}.serviceAccounts[{index}]"),
                    "lacks its name or its namespace and never matches; removed",
                ),
                false => named.push(format!("{namespace}/{name}")),
            }
        }
        named
    }
}

/// Returns whether a converted list matches a verb.
fn matches_verb(verbs: &[String], verb: &str) -> bool {
    let is_inverted = verbs.iter().any(|entry| entry.starts_with('-'));
    match is_inverted {
        true => !verbs.iter().any(|entry| entry.strip_prefix('-') == Some(verb)),
        false => verbs.iter().any(|entry| entry == verb || entry == "*"),
    }
}

/// Returns whether KubeGateway reads a `*` at the end of an entry as an ordinary character.
fn has_literal_star(field: RuleField) -> bool {
    matches!(field, RuleField::ResourceNames | RuleField::UserGroups)
}
