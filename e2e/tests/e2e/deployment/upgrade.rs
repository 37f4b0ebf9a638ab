//! Two replicas of an earlier version are upgraded to this version, rolled back, and upgraded again, while clients
//! continue. Each version must accept the other version's resourceVersions, `continue` tokens and data directory.

use super::rolling;
use crate::context::{Case, TestContext};
use anyhow::Context as _;
use std::{path::PathBuf, time::Duration};
use tributary_e2e::tributary;

/// Name of the environment variable with the path of the earlier version's binary, which `e2e/proof.sh` builds.
const FROM: &str = "TRIBUTARY_UPGRADE_FROM_BIN";

/// Longest duration of the test. It starts eight replicas and drains six, which takes some seconds each.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

pub(super) fn cases() -> Vec<Case> {
    let name = "deployment::upgrade::proof_rolling_upgrade_and_rollback_fail_no_request";
    vec![Case::new(name, proof_rolling_upgrade_and_rollback_fail_no_request).patience(PATIENCE)]
}

async fn proof_rolling_upgrade_and_rollback_fail_no_request(context: TestContext) -> anyhow::Result<()> {
    let before = std::env::var_os(FROM).map(PathBuf::from);
    let before = before.with_context(|| format!("{FROM} is to name the binary of an earlier version"))?;
    let now = tributary::binary()?;
    rolling::exchanged(&context, &before, &[&now, &before, &now]).await
}
