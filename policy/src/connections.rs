//! Subresources that connect to a workload: `exec`, `attach` and `portforward`.
//!
//! A WebSocket client opens the connection with GET, and a SPDY client opens it with POST. Policies use the verb
//! `create` for both methods. Since 1.35 kube-apiserver also checks the RBAC verb `create` for both methods
//! (`AuthorizePodWebsocketUpgradeCreatePermission`).

use tributary_apimachinery::Verb;

use crate::entries::{Empty, FieldEntries};
use crate::pattern::{Pattern, ResourcePattern, Word};

const CONNECTING: [&str; 3] = ["attach", "exec", "portforward"];

pub(crate) fn is_connecting(subresource: &str) -> bool {
    CONNECTING.contains(&subresource)
}

/// Connecting subresources (such as `exec`) that a rule names but never matches, because its verbs lack `create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedConnections {
    /// The rule names no connecting subresource, or has the verb `create`.
    Nothing,
    /// The rule never matches its connecting subresources, but may match its other resources.
    Some,
    /// All resources of the rule are connecting subresources, so the rule matches no resource.
    All,
}

impl MissedConnections {
    /// Finds the connecting subresources (exec, attach, …) that a rule names but, without the verb `create`, never
    /// matches.
    pub fn from_rule(verbs: &[String], resources: &[String]) -> Self {
        let verbs = FieldEntries::<Word>::parse(verbs, Empty::Nothing);
        if verbs.verdict(std::iter::once(Verb::Create.as_str())).accepts() {
            return Self::Nothing;
        }
        match FieldEntries::<ResourcePattern>::parse(resources, Empty::Nothing) {
            FieldEntries::Any(_) => Self::Some,
            FieldEntries::Only(entries) => {
                let connecting = entries.iter().filter(|entry| is_connecting(&entry.pattern.subresource)).count();
                match connecting {
                    0 => Self::Nothing,
                    _ if connecting == entries.len() => Self::All,
                    _ => Self::Some,
                }
            }
            FieldEntries::AllBut(entries) => {
                let every = |subresource: &str| ResourcePattern { resource: None, subresource: subresource.into() };
                let is_excluded =
                    |subresource: &str| entries.iter().any(|entry| entry.pattern.covers(&every(subresource)));
                if CONNECTING.into_iter().all(is_excluded) { Self::Nothing } else { Self::Some }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MissedConnections::{All, Nothing, Some};
    use super::*;

    #[test]
    fn policy_rule_for_exec_without_the_verb_create_never_matches() {
        let entries = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (verbs, resources, expected) in [
            ("get", "pods/exec", All),
            ("get list watch", "pods/exec */attach pods/portforward", All),
            ("-create", "pods/exec", All),
            ("get create", "pods/exec", Nothing),
            ("*", "pods/exec", Nothing),
            ("-get", "pods/exec", Nothing),
            ("get", "pods pods/exec", Some),
            ("get", "*", Some),
            ("get", "-secrets", Some),
            ("get", "-pods/exec -pods/attach -pods/portforward", Some),
            ("get", "-*/exec -*/attach -*/portforward", Nothing),
            ("get", "pods pods/log", Nothing),
            ("get", "", Nothing),
        ] {
            assert_eq!(
                MissedConnections::from_rule(&entries(verbs), &entries(resources)),
                expected,
                "{verbs}: {resources}"
            );
        }
    }
}
