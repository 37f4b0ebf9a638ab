//! One run of the specs: `ginkgo` with `e2e.test` against one kubeconfig.

use super::report::{self, Report};
use anyhow::Context;
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
/// wrote, is kept as `<target>.json` in the folder that `TRIBUTARY_SPECS_REPORTS` names, if it does.
///
/// # Errors
/// When ginkgo cannot be run, runs out of time or leaves no report. A spec that fails is a result, not an error.
pub(crate) async fn run(
    tools: &Tools,
    target: &str,
    kubeconfig: &Path,
    selection: &Selection,
) -> anyhow::Result<Report> {
    let specs = tools.specs().await?;
    let folder = guard::temporary_folder("specs")?;
    let log = folder.path().join("ginkgo.log");
    let mut process = Process::spawn("ginkgo", command(tools, &specs, folder.path(), kubeconfig, selection), &log)?;
    // Ginkgo ends by its own timeout; the grace that specs have after it is what is added here.
    let ended = process.wait(selection.timeout + Duration::from_secs(90)).await;
    let report = fs::read_to_string(folder.path().join("report.json"));
    if let (Ok(report), Some(reports)) = (&report, std::env::var_os("TRIBUTARY_SPECS_REPORTS")) {
        let path = PathBuf::from(reports).join(format!("{target}.json"));
        fs::write(&path, report).with_context(|| format!("write {}", path.display()))?;
    }
    ended?;
    let report = report.with_context(|| format!("ginkgo left no report\n{}", process.log_tail(40)))?;
    report::parse(&report).with_context(|| format!("{target}\n{}", process.log_tail(40)))
}

fn command(tools: &Tools, specs: &Path, folder: &Path, kubeconfig: &Path, selection: &Selection) -> Command {
    let mut command = Command::new(specs.join("ginkgo"));
    command.current_dir(folder).env("HOME", folder).env_remove("KUBECONFIG");
    command.args(["--no-color", "--silence-skips", "--keep-going", "--json-report=report.json", "--output-dir=."]);
    command.arg(format!("--procs={}", selection.processes));
    command.arg(format!("--timeout={}s", selection.timeout.as_secs()));
    command.args(selection.focus.iter().map(|focus| format!("--focus={focus}")));
    command.args(selection.skip.iter().map(|skip| format!("--skip={skip}")));
    command.arg(specs.join("e2e.test")).arg("--");
    command.arg(format!("--kubeconfig={}", kubeconfig.display()));
    command.arg(format!("--kubectl-path={}", tools.server("kubectl").display()));
    command.arg(format!("--spec-timeout={}s", selection.spec_timeout.as_secs()));
    command.arg(format!("--e2e-output-dir={}", folder.display()));
    // Any provider but a cloud; no waiting for DaemonSets; no dumps of logs from nodes that are none.
    command.args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--dump-logs-on-failure=false"]);
    command
}
