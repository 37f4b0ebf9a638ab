//! Reference implementation of dispatch policies: compares texts rule by rule, without an index.

use tributary_apimachinery::RequestedResource;
use tributary_policy::{Action, DispatchAttributes, DispatchTarget, Mode, Policy, PolicyList, Rule, RulePosition};

/// Returns the first enforced rule that matches, and the first matching rule in audit mode before the enforced rule.
pub(crate) fn decide(
    policies: &[Policy],
    request: &DispatchAttributes<'_>,
) -> (Option<RulePosition>, Option<RulePosition>) {
    let mut audited = None;
    for (policy, policy_object) in policies.iter().enumerate() {
        for (rule, rule_object) in policy_object.rules.iter().enumerate() {
            if !matches(rule_object, denies(policy_object), request) {
                continue;
            }
            let position = RulePosition { list: PolicyList::Dispatch, policy, rule };
            if policy_object.mode == Mode::Enforce {
                return (Some(position), audited);
            }
            audited = audited.or(Some(position));
        }
    }
    (None, audited)
}

pub(crate) fn denies(policy: &Policy) -> bool {
    matches!(policy.outcome.action, Action::Deny { .. })
}

/// Returns whether a rule matches a request. `denies` is true if the rule's policy denies requests.
pub(crate) fn matches(rule: &Rule, denies: bool, request: &DispatchAttributes<'_>) -> bool {
    let verb = list(&rule.verbs, false, |entry| entry == request.verb);
    let anybody = rule.users.is_empty() && rule.service_accounts.is_empty();
    let user = list(&rule.users, false, |entry| glob(entry, request.user));
    let account = match request.user.split(':').collect::<Vec<_>>()[..] {
        ["system", "serviceaccount", namespace, name] if !namespace.is_empty() && !name.is_empty() => {
            let account = format!("{namespace}/{name}");
            list(&rule.service_accounts, false, |entry| glob(entry, &account))
        }
        _ => false,
    };
    let group = list(&rule.user_groups, true, |entry| request.groups.iter().any(|group| glob(entry, group)));
    let agent = list(&rule.user_agents, true, |entry| glob(entry, request.user_agent));
    let target = match &request.target {
        DispatchTarget::NonResource(path) => list(&rule.non_resource_urls, false, |entry| glob(entry, path)),
        DispatchTarget::Resource(resource) => {
            let of = |own: &str| match resource.subresource {
                "" => own.to_owned(),
                subresource => format!("{own}/{subresource}"),
            };
            let is_named =
                |entry: &str| entry == of(resource.resource) || (!resource.subresource.is_empty() && entry == of("*"));
            list(&rule.api_groups, false, |entry| entry == resource.group)
                && list(&rule.resources, false, is_named)
                && is_of_name(&rule.resource_names, denies, resource)
                && list(&rule.namespaces, true, |entry| glob(entry, resource.namespace))
        }
    };
    verb && (anybody || user || account) && group && agent && target
}

/// Returns whether entries match the object name of a request. The name of a proxied object has several spellings
/// (`web`, `web:80`). In a denying rule, one spelling has to match; in a dispatching rule, all spellings have to match.
fn is_of_name(entries: &[String], denies: bool, resource: &RequestedResource<'_>) -> bool {
    let written = resource.name;
    let parts: Vec<_> = written.split(':').collect();
    let own = match parts[..] {
        [name, _] | [_, name, _] if !name.is_empty() => name,
        _ => written,
    };
    let is_proxied = resource.subresource == "proxy"
        && resource.group.is_empty()
        && ["pods", "services", "nodes"].contains(&resource.resource);
    let own = if is_proxied { own } else { written };
    let by_some = |entry: &str| glob(entry, written) || glob(entry, own);
    let by_all = |entry: &str| glob(entry, written) && (entry.contains(':') || glob(entry, own));
    match denies {
        true => list_by(entries, true, by_some, by_all),
        false => list_by(entries, true, by_all, by_some),
    }
}

/// Returns whether a list of entries matches a value. `is_match` compares one entry with the value.
fn list(entries: &[String], empty: bool, is_match: impl Fn(&str) -> bool) -> bool {
    list_by(entries, empty, &is_match, &is_match)
}

/// Like [`list`], with a separate comparison for inverted entries (`-x`).
fn list_by(
    entries: &[String],
    empty: bool,
    is_match: impl Fn(&str) -> bool,
    is_excluded: impl Fn(&str) -> bool,
) -> bool {
    if entries.is_empty() {
        return empty;
    }
    if entries.iter().any(|entry| entry == "*") {
        return true;
    }
    let plain: Vec<&String> = entries.iter().filter(|entry| !entry.starts_with('-')).collect();
    if !plain.is_empty() {
        return plain.into_iter().any(|entry| is_match(entry));
    }
    entries.iter().all(|entry| &entry[1..] != "*" && !is_excluded(&entry[1..]))
}

fn glob(entry: &str, text: &str) -> bool {
    match entry.split_once('*') {
        Some((beginning, _)) => text.get(..beginning.len()) == Some(beginning),
        None => entry == text,
    }
}
