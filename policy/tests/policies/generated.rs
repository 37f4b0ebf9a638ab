//! Proptest strategies for policies and requests. The strategies use only a few words, so that rules often match.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tributary_apimachinery::RequestedResource;
use tributary_policy::{DispatchAttributes, DispatchTarget, Mode, Policy, Rule};

use crate::denying;

const VERBS: [&str; 4] = ["get", "list", "create", "post"];
const GROUPS: [&str; 3] = ["", "apps", "batch"];
const RESOURCES: [&str; 3] = ["pods", "nodes", "jobs"];
const SUBRESOURCES: [&str; 4] = ["", "status", "log", "proxy"];
const NAMES: [&str; 5] = ["", "a", "ab", "abc", "bé"];
/// Names of objects. Some are spellings of proxied objects (`a:80`), and some have schemes that equal names.
const OBJECTS: [&str; 10] = ["", "a", "ab", "abc", "bé", "a:80", "ab:", "b:a:80", "ab:b:", "a:b:c:d"];
const USERS: [&str; 6] =
    ["ann", "anna", "bob", "system:serviceaccount:a:ab", "system:serviceaccount:a:b", "system:serviceaccount:b:ab"];
const PATHS: [&str; 4] = ["/", "/healthz", "/healthz/etcd", "/version"];

#[derive(Clone, Debug)]
pub(crate) struct GeneratedRequest {
    user: &'static str,
    groups: Vec<String>,
    user_agent: &'static str,
    verb: &'static str,
    target: DispatchTarget<'static>,
}

impl GeneratedRequest {
    pub(crate) fn attributes(&self) -> DispatchAttributes<'_> {
        let Self { user, groups, user_agent, verb, target } = self;
        DispatchAttributes { user, groups, user_agent, verb, target: target.clone() }
    }
}

pub(crate) fn request() -> impl Strategy<Value = GeneratedRequest> {
    let resource = (select(&GROUPS), select(&RESOURCES), select(&SUBRESOURCES), select(&NAMES), select(&OBJECTS));
    let resource = resource.prop_map(|(group, resource, subresource, namespace, name)| {
        DispatchTarget::Resource(RequestedResource { group, resource, subresource, namespace, name })
    });
    let path = select(&PATHS).prop_map(|path| DispatchTarget::NonResource(path.into()));
    let groups = vec(select(&NAMES).prop_map(str::to_owned), 0..3);
    (select(&USERS), groups, select(&NAMES), select(&VERBS), prop_oneof![3 => resource, 1 => path]).prop_map(
        |(user, groups, user_agent, verb, target)| GeneratedRequest { user, groups, user_agent, verb, target },
    )
}

/// Generates the entries of a field: often `*`, otherwise words, prefixes and inverted entries.
fn field(words: &'static [&'static str], has_beginnings: bool) -> impl Strategy<Value = Vec<String>> {
    let entry = (select(words), 0..6_u8, 0..4_usize, prop::bool::weighted(0.3)).prop_map(
        move |(word, beginning, length, inverted)| {
            let text = match word.char_indices().nth(length) {
                Some((end, _)) if beginning == 0 && has_beginnings => format!("{}*", &word[..end]),
                _ => word.to_owned(),
            };
            if inverted { format!("-{text}") } else { text }
        },
    );
    prop_oneof![4 => Just(vec!["*".to_owned()]), 1 => Just(Vec::new()), 4 => vec(entry, 1..4)]
}

fn rule() -> impl Strategy<Value = Rule> {
    const NAMED: [&str; 9] =
        ["pods", "nodes", "pods/status", "nodes/log", "*/status", "*/log", "jobs", "pods/proxy", "*/proxy"];
    const ACCOUNTS: [&str; 4] = ["a/ab", "a/*", "b/ab", "b/a*"];
    let subjects = (field(&USERS, true), field(&ACCOUNTS, false), field(&NAMES, true), field(&NAMES, true));
    let objects = (field(&GROUPS, false), field(&NAMED, false), field(&OBJECTS, true), field(&NAMES, true));
    (field(&VERBS, false), subjects, objects, field(&PATHS, true)).prop_map(
        |(verbs, subjects, objects, non_resource_urls)| {
            let (users, service_accounts, user_groups, user_agents) = subjects;
            let (api_groups, resources, resource_names, namespaces) = objects;
            Rule {
                verbs,
                api_groups,
                resources,
                resource_names,
                namespaces,
                users,
                service_accounts,
                user_groups,
                non_resource_urls,
                user_agents,
            }
        },
    )
}

pub(crate) fn policies(
    policies: std::ops::Range<usize>,
    rules: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<Policy>> {
    let policy = (vec(rule(), rules), prop::bool::weighted(0.2), prop::bool::weighted(0.5));
    let policy = policy.prop_map(|(rules, is_audit, denies)| {
        let mode = if is_audit { Mode::Audit } else { Mode::Enforce };
        match denies {
            true => Policy { mode, ..denying("no", rules) },
            false => Policy { mode, rules, ..Policy::default() },
        }
    });
    vec(policy, policies)
}
