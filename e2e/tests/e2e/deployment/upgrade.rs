//! Two replicas of an earlier version are exchanged for this one's, back, and forth again, while clients go on: what
//! one version has handed out (versions of lists and watches, `continue` tokens) or kept in its data directory, the
//! other takes.

use super::rolling;
use crate::context::{Case, TestContext};
use anyhow::Context as _;
use std::{path::PathBuf, time::Duration};
use tributary_e2e::tributary;

/// Names the binary of the earlier version; `e2e/proof.sh` builds it.
const FROM: &str = "TRIBUTARY_UPGRADE_FROM_BIN";

/// Eight replicas are started, and six drained, which takes some seconds each.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

pub(super) fn cases() -> Vec<Case> {
    let name = "deployment::upgrade::proof_two_versions_are_exchanged_and_no_request_is_lost";
    vec![Case::new(name, proof_two_versions_are_exchanged_and_no_request_is_lost).patience(PATIENCE)]
}

async fn proof_two_versions_are_exchanged_and_no_request_is_lost(context: TestContext) -> anyhow::Result<()> {
    let before = std::env::var_os(FROM).map(PathBuf::from);
    let before = before.with_context(|| format!("{FROM} is to name the binary of an earlier version"))?;
    let now = tributary::binary()?;
    rolling::exchanged(&context, &before, &[&now, &before, &now]).await
}
