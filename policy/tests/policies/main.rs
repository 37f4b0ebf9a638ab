//! Tests that the decisions of policies follow the documented rules, and equal the decisions of the reference
//! implementation.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod findings;
mod generated;
mod properties;
mod reference;
mod truth_table;

use tributary_apimachinery::RequestedResource;
use tributary_policy::{Action, DispatchAttributes, DispatchTarget, Outcome, Policy, Rule};

/// Parses entries separated by spaces; `''` is the empty string.
pub(crate) fn entries(text: &str) -> Vec<String> {
    text.split_whitespace().map(|word| if word == "''" { String::new() } else { word.to_owned() }).collect()
}

pub(crate) fn everything() -> Rule {
    let all = || entries("*");
    Rule {
        verbs: all(),
        api_groups: all(),
        resources: all(),
        resource_names: all(),
        namespaces: all(),
        users: all(),
        service_accounts: Vec::new(),
        user_groups: all(),
        non_resource_urls: all(),
        user_agents: all(),
    }
}

pub(crate) fn denying(message: &str, rules: Vec<Rule>) -> Policy {
    let action = Action::Deny { message: message.to_owned() };
    Policy { rules, outcome: Outcome { action, ..Outcome::default() }, ..Policy::default() }
}

/// Returns a request of `ann` for a resource of the core group, for example `get pods`, `get pods/status`, `get pods
/// web-0`.
pub(crate) fn resource(text: &str) -> DispatchAttributes<'_> {
    let mut words = text.split_whitespace();
    let (verb, resource) = (words.next().unwrap(), words.next().unwrap());
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let name = words.next().unwrap_or_default();
    let target = RequestedResource { resource, subresource, name, ..RequestedResource::default() };
    DispatchAttributes { user: "ann", groups: &[], user_agent: "", verb, target: DispatchTarget::Resource(target) }
}

pub(crate) fn path(path: &str) -> DispatchAttributes<'_> {
    let target = DispatchTarget::NonResource(path.into());
    DispatchAttributes { user: "ann", groups: &[], user_agent: "", verb: "get", target }
}
