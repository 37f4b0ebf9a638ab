//! The audit log of a real kube-apiserver, compared with the events of `tributary-audit` for the same policies and
//! requests.

mod beside;
mod generated;
mod policies;
mod shared;

use crate::context::{Case, cases};
use anyhow::Context;
use beside::beside_members;
use policies::policies;
use serde_json::Value;
use shared::beside_a_real_server_for_many_users;
use std::{fs, path::Path};

pub(crate) fn cases() -> Vec<Case> {
    cases!["audit"; policies, beside_members, beside_a_real_server_for_many_users]
}

/// The events of an audit log. Only whole lines count, because the last one may be half written.
fn events(log: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(log).with_context(|| format!("read {}", log.display()))?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).with_context(|| format!("read {line}"))).collect()
}
