//! What connects to a workload: `exec`, `attach` and `portforward`.
//!
//! A WebSocket opens them by GET, SPDY by POST: one thing is done, so it has one verb, `create`. kube-apiserver asks
//! RBAC for that in both cases since 1.35 (`AuthorizePodWebsocketUpgradeCreatePermission`).

use tributary_apimachinery::Verb;

use crate::entries::{Empty, FieldEntries};
use crate::pattern::{Pattern, ResourcePattern, Word};

/// The subresources.
const CONNECTING: [&str; 3] = ["attach", "exec", "portforward"];

/// Whether a subresource connects to a workload.
pub(crate) fn connects(subresource: &str) -> bool {
    CONNECTING.contains(&subresource)
}

/// How much of what connects to workloads a rule names by its resources and never takes, because its verbs have no
/// `create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedConnections {
    /// None.
    Nothing,
    /// Some of what it names: what connects beside other things.
    Some,
    /// All that it names connects, so that its resources never match.
    All,
}

impl MissedConnections {
    /// Of a rule with these entries.
    pub fn from_rule(verbs: &[String], resources: &[String]) -> Self {
        let verbs = FieldEntries::<Word>::parse(verbs, Empty::Nothing);
        if verbs.verdict(std::iter::once(Verb::Create.as_str())).accepts() {
            return Self::Nothing;
        }
        match FieldEntries::<ResourcePattern>::parse(resources, Empty::Nothing) {
            FieldEntries::Any(_) => Self::Some,
            FieldEntries::Only(entries) => {
                let connecting = entries.iter().filter(|entry| connects(&entry.pattern.subresource)).count();
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
    fn what_connects_is_missed_without_create() {
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
