//! One run of the specs: `ginkgo` with `e2e.test` against one kubeconfig.

use super::report::{self, Report};
use anyhow::{Context, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tributary_e2e::{Process, Tools, guard};

/// Which specs run, and how long they may take.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Regular expressions; a spec whose full name matches one of them is selected.
    pub(crate) focus: Vec<String>,
    /// Regular expressions; a spec whose full name matches one of them is not.
    pub(crate) skip: Vec<String>,
    /// How many specs run at once, each in a process of its own.
    pub(crate) processes: usize,
    /// Longest that one spec may take.
    pub(crate) spec_timeout: Duration,
    /// Longest that the run may take.
    pub(crate) timeout: Duration,
}

/// Runs the specs of `selection` against the current context of `kubeconfig`. The report, with everything that specs
/// wrote, is kept as `<target>.jsonl` in the folder that `TRIBUTARY_SPECS_REPORTS` names, if it does.
///
/// # Errors
/// When ginkgo cannot be run or runs out of time, or when no spec ran. A spec that fails is a result, not an error.
pub(crate) async fn run(
    tools: &Tools,
    target: &str,
    kubeconfig: &Path,
    selection: &Selection,
) -> anyhow::Result<Report> {
    let specs = tools.specs().await?;
    let folder = guard::temporary_folder("specs")?;
    fs::create_dir(folder.path().join("reports")).context("make a folder for reports")?;
    let log = folder.path().join("ginkgo.log");
    let mut process = Process::spawn("ginkgo", command(tools, &specs, folder.path(), kubeconfig, selection), &log)?;
    // Ginkgo ends by its own timeout; the grace that specs have after it is what is added here.
    let ended = process.wait(selection.timeout + Duration::from_secs(90)).await;
    let lines = reported(&folder.path().join("reports"))?;
    if let Some(reports) = std::env::var_os("TRIBUTARY_SPECS_REPORTS") {
        let path = PathBuf::from(reports).join(format!("{target}.jsonl"));
        fs::write(&path, &lines).with_context(|| format!("write {}", path.display()))?;
    }
    ended?;
    let report = report::parse(&lines)?;
    // Where the suite's own beginning fails, no spec runs.
    ensure!(!report.is_empty(), "no spec of {target} ran\n{}", process.log_tail(60));
    Ok(report)
}

/// The lines that all processes wrote.
fn reported(folder: &Path) -> anyhow::Result<String> {
    let mut lines = String::new();
    for file in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        lines.push_str(&fs::read_to_string(file?.path())?);
    }
    Ok(lines)
}

fn command(tools: &Tools, specs: &Path, folder: &Path, kubeconfig: &Path, selection: &Selection) -> Command {
    let mut command = Command::new(specs.join("ginkgo"));
    command.current_dir(folder).env("HOME", folder).env_remove("KUBECONFIG");
    command.args(["--no-color", "--silence-skips", "--keep-going"]);
    command.arg(format!("--procs={}", selection.processes));
    command.arg(format!("--timeout={}s", selection.timeout.as_secs()));
    command.args(selection.focus.iter().map(|focus| format!("--focus={focus}")));
    command.args(selection.skip.iter().map(|skip| format!("--skip={skip}")));
    command.arg(specs.join("e2e.test")).arg("--");
    command.arg(format!("--kubeconfig={}", kubeconfig.display()));
    command.arg(format!("--kubectl-path={}", tools.server("kubectl").display()));
    command.arg(format!("--spec-timeout={}s", selection.spec_timeout.as_secs()));
    command.arg(format!("--spec-reports={}", folder.join("reports").display()));
    command.arg(format!("--e2e-output-dir={}", folder.display()));
    // Any provider but a cloud; no waiting for DaemonSets; no dumps of logs from nodes that are none.
    command.args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--dump-logs-on-failure=false"]);
    command
}
