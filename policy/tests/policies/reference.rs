//! The slow and obvious reading of the contract: lists of texts, one rule after the other.

use tributary_policy::{DispatchAttributes, DispatchTarget, Mode, Place, Policy, Rule};

/// The first rule that acts and matches, and the first one that is only told and matches before it.
pub(crate) fn decide(policies: &[Policy], asked: &DispatchAttributes<'_>) -> (Option<Place>, Option<Place>) {
    let mut told = None;
    for (policy, given) in policies.iter().enumerate() {
        for (rule, written) in given.rules.iter().enumerate() {
            if !matches(written, asked) {
                continue;
            }
            let place = Place { policy, rule };
            if given.mode == Mode::Enforce {
                return (Some(place), told);
            }
            told = told.or(Some(place));
        }
    }
    (None, told)
}

/// Whether a rule matches a request.
pub(crate) fn matches(rule: &Rule, asked: &DispatchAttributes<'_>) -> bool {
    let verb = list(&rule.verbs, false, |entry| entry == asked.verb);
    let anybody = rule.users.is_empty() && rule.service_accounts.is_empty();
    let user = list(&rule.users, false, |entry| glob(entry, asked.user));
    let account = match asked.user.split(':').collect::<Vec<_>>()[..] {
        ["system", "serviceaccount", namespace, name] if !namespace.is_empty() && !name.is_empty() => {
            let account = format!("{namespace}/{name}");
            list(&rule.service_accounts, false, |entry| glob(entry, &account))
        }
        _ => false,
    };
    let group = list(&rule.user_groups, true, |entry| asked.groups.iter().any(|group| glob(entry, group)));
    let agent = list(&rule.user_agents, true, |entry| glob(entry, asked.user_agent));
    let target = match &asked.target {
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
                && list(&rule.resource_names, true, |entry| glob(entry, resource.name))
                && list(&rule.namespaces, true, |entry| glob(entry, resource.namespace))
        }
    };
    verb && (anybody || user || account) && group && agent && target
}

/// Whether a list of entries takes what `is_meant` says each entry means.
fn list(entries: &[String], empty: bool, is_meant: impl Fn(&str) -> bool) -> bool {
    if entries.is_empty() {
        return empty;
    }
    if entries.iter().any(|entry| entry == "*") {
        return true;
    }
    let plain: Vec<&String> = entries.iter().filter(|entry| !entry.starts_with('-')).collect();
    if !plain.is_empty() {
        return plain.into_iter().any(|entry| is_meant(entry));
    }
    entries.iter().all(|entry| &entry[1..] != "*" && !is_meant(&entry[1..]))
}

fn glob(entry: &str, text: &str) -> bool {
    match entry.split_once('*') {
        Some((beginning, _)) => text.get(..beginning.len()) == Some(beginning),
        None => entry == text,
    }
}
