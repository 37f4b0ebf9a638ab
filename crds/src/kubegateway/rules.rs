//! KubeGateway's rules: the same words, with what its code makes of them (`evaluation_helpers.go`).

use tributary_policy::{MissedConnections, RuleField, can_match};

use super::Conversion;
use super::manifest::{GatewayRule, ServiceAccount};
use crate::DispatchRule;

impl Conversion {
    /// A rule; none where no request could ever match it here.
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
        // Half of what names resources, or names none of which is left, matches none.
        let no_names = !resource_names.0 && resource_names.1.is_empty();
        let (has_groups, has_resources) = (!api_groups.is_empty(), !resources.is_empty());
        if has_groups != has_resources || (has_groups && no_names) {
            self.differs(path, "its apiGroups, resources and resourceNames never match together; these are left out");
            (api_groups, resources) = (Vec::new(), Vec::new());
        } else if self.only_misses(&mut verbs, &resources, path) {
            (api_groups, resources) = (Vec::new(), Vec::new());
        }
        let no_subject = has_subjects && users.is_empty() && service_accounts.is_empty();
        let no_group = !user_groups.0 && user_groups.1.is_empty();
        let no_target = resources.is_empty() && non_resource_urls.is_empty();
        if verbs.is_empty() || no_subject || no_group || no_target {
            self.differs(path, "never matches here; left out");
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

    /// Whether all that a rule names is what connects to a workload, and none of it is taken here: it is left out, as
    /// what never matches. What a rule took there by GET, which is how a WebSocket opens it, is told; where that is all
    /// that the rule is about, it gets the verb by which it takes that here: without it what comes after would.
    fn only_misses(&mut self, verbs: &mut Vec<String>, resources: &[String], path: &str) -> bool {
        const WHAT: &str = "opened by a WebSocket (GET), and here exec, attach and portforward are \"create\"";
        let missed = MissedConnections::from_rule(verbs, resources);
        let took_by_get = is_taken(verbs, "get");
        match missed {
            MissedConnections::Nothing => {}
            MissedConnections::Some if !took_by_get => {}
            MissedConnections::Some => self.differs(
                &format!("{path}.verbs"),
                format!(
                    "there it takes exec, attach and portforward, too, where they are {WHAT}: here a later policy takes \
                     them, or none; add that if they are meant"
                ),
            ),
            MissedConnections::All if took_by_get && !verbs.iter().any(|verb| verb.starts_with('-')) => {
                self.differs(
                    &format!("{path}.verbs"),
                    format!("there it takes what its resources name where it is {WHAT}, which is added"),
                );
                verbs.push("create".to_owned());
                return false;
            }
            MissedConnections::All if took_by_get => self.differs(
                path,
                format!(
                    "there it takes what its resources name where it is {WHAT}, so it never matches; left out: here a \
                     later policy takes that, or none"
                ),
            ),
            MissedConnections::All => self.differs(path, "its verbs and resources never match together; these are left out"),
        }
        missed == MissedConnections::All
    }

    /// A list as it is meant there: `*` alone, else what has no `-`, else the inverted entries.
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
            self.differs(path, format!("{text:?} never matches; left out"));
        }
        for text in taken.iter().filter(|text| text.ends_with('*') && is_literal_there(field)) {
            self.differs(path, format!("{text:?} is one name there, and here whatever begins so"));
        }
        taken
    }

    /// There several inverted entries exclude nothing, since what is not the one is the other.
    fn inverted(&mut self, field: RuleField, inverted: Vec<String>, path: &str) -> Vec<String> {
        let shown = inverted.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ");
        if field == RuleField::NonResourceUrls && !inverted.is_empty() {
            self.differs(path, format!("{shown} never matches there, where paths are not inverted; left out"));
            return Vec::new();
        }
        if inverted.len() > 1 {
            self.differs(path, format!("{shown} matches everything there, and here what is none of these"));
        } else if inverted
            .iter()
            .any(|text| text.starts_with("-*/") || (field == RuleField::Users && text.ends_with('*')))
        {
            self.differs(path, format!("{shown} excludes nothing, or too little, there; here what it names"));
        }
        // To exclude what never is excludes nothing; everything, what is no list any more.
        let (excluding, void): (Vec<_>, Vec<_>) =
            inverted.into_iter().partition(|text| can_match(field, &text[1..]) && &text[1..] != "*");
        match (excluding.is_empty(), void.is_empty()) {
            (true, false) => {
                self.differs(path, format!("{shown} excludes nothing; written as \"*\""));
                vec!["*".to_owned()]
            }
            _ => excluding,
        }
    }

    fn accounts(&mut self, accounts: Vec<ServiceAccount>, path: &str) -> Vec<String> {
        let mut named = Vec::new();
        for (index, ServiceAccount { name, namespace }) in accounts.into_iter().enumerate() {
            match name.is_empty() || namespace.is_empty() {
                true => self.differs(
                    &format!("{path}.serviceAccounts[{index}]"),
                    "lacks its name or its namespace and never matches; left out",
                ),
                false => named.push(format!("{namespace}/{name}")),
            }
        }
        named
    }
}

/// Whether a list as it is written here takes a verb.
fn is_taken(verbs: &[String], verb: &str) -> bool {
    let is_inverted = verbs.iter().any(|entry| entry.starts_with('-'));
    match is_inverted {
        true => !verbs.iter().any(|entry| entry.strip_prefix('-') == Some(verb)),
        false => verbs.iter().any(|entry| entry == verb || entry == "*"),
    }
}

/// Whether a `*` at the end is a letter like others there.
fn is_literal_there(field: RuleField) -> bool {
    matches!(field, RuleField::ResourceNames | RuleField::UserGroups)
}
