//! Tests the systemd unit. systemd must accept the unit and its sandboxing, and the program must accept the unit's
//! flags.

use super::deploy;
use crate::context::{Case, TestContext, cases};
use anyhow::{Context as _, ensure};
use std::{
    fs,
    process::{Command, Output},
};
use tributary_e2e::{guard, tributary};

/// Largest exposure level that `systemd-analyze security` may report, in tenths. The program is still exposed because
/// it uses sockets.
const EXPOSURE_MAX: &str = "15";

/// systemd's program that checks units. Machines without systemd do not have it.
const JUDGE: &str = "systemd-analyze";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = cases!["deployment::unit"; systemd_unit_flags_are_accepted_by_the_program];
    cases.push(Case::new("deployment::unit::systemd_accepts_the_unit", systemd_accepts_the_unit).only_with(JUDGE));
    cases
}

fn systemd_analyze(arguments: &[&str]) -> anyhow::Result<Output> {
    Command::new(JUDGE).args(arguments).output().with_context(|| format!("start {JUDGE}"))
}

async fn systemd_accepts_the_unit(_: TestContext) -> anyhow::Result<()> {
    let text = fs::read_to_string(deploy("systemd/tributary.service")).context("read the unit")?;
    // systemd refuses a unit if its program does not exist.
    let (folder, program) = (guard::temporary_folder("unit")?, tributary::binary()?);
    let unit = folder.path().join("tributary.service");
    fs::write(&unit, text.replace("/usr/local/bin/tributary", &program.display().to_string()))?;
    let unit = unit.display().to_string();
    let verified = systemd_analyze(&["verify", &unit])?;
    let words = String::from_utf8_lossy(&verified.stderr);
    ensure!(verified.status.success() && !words.contains("tributary.service:"), "{words}");
    let judged = systemd_analyze(&["security", "--offline=true", "--threshold", EXPOSURE_MAX, &unit])?;
    let (table, words) = (String::from_utf8_lossy(&judged.stdout), String::from_utf8_lossy(&judged.stderr));
    ensure!(judged.status.success(), "{table}\n{words}");
    Ok(())
}

async fn systemd_unit_flags_are_accepted_by_the_program(_: TestContext) -> anyhow::Result<()> {
    let text = fs::read_to_string(deploy("systemd/tributary.service")).context("read the unit")?.replace("\\\n", "");
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).context("no ExecStart")?;
    let words: Vec<&str> = line.split_whitespace().skip(1).filter(|word| !word.starts_with('$')).collect();
    // The program must accept the flags, and must stop because the configuration is missing.
    let absent = words.iter().map(|word| word.replace("/etc/tributary/", "/there/is/none/")).collect::<Vec<_>>();
    let absent: Vec<&str> = absent.iter().map(String::as_str).collect();
    let output = tributary::run(&absent).await?;
    ensure!(output.stderr.contains("--config /there/is/none/clusters"), "{}", output.stderr);
    Ok(())
}
