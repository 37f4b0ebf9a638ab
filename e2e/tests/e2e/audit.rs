//! Compares the audit log of a real kube-apiserver with the events of `tributary-audit` for the same policies and
//! requests.

mod generated;
mod member_logs;
mod policies;
mod shared;

use crate::context::{Case, cases};
use anyhow::Context;
use member_logs::audit_events_share_their_ids_with_the_members_events;
use policies::audit_policy_selects_the_same_levels_as_in_kube_apiserver;
use serde_json::Value;
use shared::audit_events_of_many_users_equal_those_of_kube_apiserver;
use std::{fs, path::Path};

pub(crate) fn cases() -> Vec<Case> {
    cases!["audit";
        audit_policy_selects_the_same_levels_as_in_kube_apiserver, audit_events_share_their_ids_with_the_members_events,
        audit_events_of_many_users_equal_those_of_kube_apiserver,
    ]
}

/// Parses the events of an audit log. The parser ignores a last line without a line end, because the server may still
/// write that line.
fn events(log: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(log).with_context(|| format!("read {}", log.display()))?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).with_context(|| format!("read {line}"))).collect()
}
