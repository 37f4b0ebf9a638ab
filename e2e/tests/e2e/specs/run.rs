//! Runs many specs at one target. Each spec runs in a separate process, so that it cannot block or end another spec.
//! When the process ends, the result is recorded.

use super::{
    Target, catalog,
    clusters::Clusters,
    differences,
    ledger::{Attempt, Ledger},
    report::{self, Outcome},
};
use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use std::{
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tokio::time::Instant;
use tributary_e2e::{Process, Tools, guard};

/// Longest duration of a spec that is marked as slow. Some slow specs keep a connection or a schedule idle for five
/// minutes.
const SLOW_PATIENCE: Duration = Duration::from_secs(8 * 60);

/// Time for a spec to remove its objects after a timeout. The removal of namespaces needs this time.
const CLEANING: Duration = Duration::from_secs(60);

/// Time for ginkgo to write its report, before its process is killed.
const REPORTING: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Number of concurrent specs, without slow specs. Serial specs run alone after all other specs.
    pub(crate) processes: usize,
    /// Longest duration of a spec that is not marked as slow.
    pub(crate) patience: Duration,
    /// Largest number of attempts at a failing spec. A spec that is listed as failing at this target has only one
    /// attempt.
    pub(crate) attempts: usize,
}

pub(crate) struct Run<'a> {
    pub(crate) tools: &'a Tools,
    /// Folder with the program `e2e.test`.
    pub(crate) specs: &'a Path,
    pub(crate) target: Target,
    pub(crate) clusters: &'a Clusters,
    pub(crate) ledger: &'a Ledger,
    pub(crate) limits: Limits,
}

struct Progress {
    ended: AtomicUsize,
    all: usize,
    attempt: usize,
}

impl Run<'_> {
    /// Runs the specs in `names` that have no result yet, and then the failed specs again. Serial specs run after the
    /// other specs. Specs that are listed as failing run last, because the objects that they leave may disturb other
    /// specs. A failing spec is a result, not an error.
    ///
    /// # Errors
    /// If a spec cannot be started, or the target no longer answers.
    pub(crate) async fn all(&self, names: &[String]) -> anyhow::Result<()> {
        for attempt in 1..=self.limits.attempts {
            let due = names.iter().filter(|name| is_due(self.ledger, self.target, name, attempt)).cloned();
            let (known, due): (Vec<String>, Vec<String>) = due.partition(|name| is_known(self.target, name));
            let (serial, others): (Vec<String>, Vec<String>) =
                due.into_iter().partition(|name| catalog::is_serial(name));
            let (slow, quick): (Vec<String>, Vec<String>) = others.into_iter().partition(|name| catalog::is_slow(name));
            let all = known.len() + serial.len() + slow.len() + quick.len();
            let progress = Progress { ended: AtomicUsize::new(0), all, attempt };
            // Slow specs mostly wait, so they are not included in the number of concurrent specs.
            let waiting = slow.len();
            tokio::try_join!(
                self.at_once(slow, waiting, &progress),
                self.at_once(quick, self.limits.processes, &progress)
            )?;
            self.at_once(serial, 1, &progress).await?;
            self.at_once(known, self.limits.processes, &progress).await?;
        }
        Ok(())
    }

    async fn at_once(&self, names: Vec<String>, count: usize, progress: &Progress) -> anyhow::Result<()> {
        let running = stream::iter(names).map(|name| self.one(name, progress));
        running.buffer_unordered(count.max(1)).try_collect().await
    }

    async fn one(&self, name: String, progress: &Progress) -> anyhow::Result<()> {
        let started = Instant::now();
        let outcome = self.outcome(&name).await.with_context(|| name.clone())?;
        if outcome != Outcome::Passed {
            // If the target no longer answers, the failure is not the result of the spec.
            self.clusters.check().await?;
        }
        let seconds = started.elapsed().as_secs();
        let ended = progress.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let again = if progress.attempt > 1 { ", once more" } else { "" };
        let (words, how) = (self.target.words(), word(&outcome));
        eprintln!("{words} {ended}/{}{again}: {how} after {seconds} s: {name}", progress.all);
        self.ledger.add(Attempt { spec: name, outcome, seconds })
    }

    async fn outcome(&self, name: &str) -> anyhow::Result<Outcome> {
        let folder = guard::temporary_folder("spec")?;
        let log = folder.path().join("e2e.log");
        let report = folder.path().join("report.json");
        let patience = if catalog::is_slow(name) { SLOW_PATIENCE } else { self.limits.patience };
        let mut process = Process::spawn("e2e.test", self.command(name, patience, folder.path(), &report), &log)?;
        let ended = process.wait(patience + CLEANING + REPORTING).await;
        let Ok(text) = fs::read_to_string(&report) else {
            let how = ended.map_or_else(|error| format!("{error:#}"), |status| status.to_string());
            return Ok(Outcome::Failed(format!("no report: {how}\n{}", report::tail(&process.output()))));
        };
        report::parse(&text).with_context(|| report::tail(&process.output()))
    }

    fn command(&self, name: &str, patience: Duration, folder: &Path, report: &Path) -> Command {
        let mut command = Command::new(self.specs.join("e2e.test"));
        command.current_dir(folder).env("HOME", folder).env("TMPDIR", folder).env_remove("KUBECONFIG");
        let suite = patience + CLEANING;
        // ginkgo compares the focus with a text that begins with the name of the suite.
        command.arg(format!("--ginkgo.focus=^Kubernetes e2e suite {}$", quoted(name)));
        command.args(["--ginkgo.no-color", "--ginkgo.silence-skips"]);
        command.arg(format!("--ginkgo.json-report={}", report.display()));
        command.arg(format!("--ginkgo.timeout={}s", suite.as_secs()));
        command.arg(format!("--spec-timeout={}s", patience.as_secs()));
        command.arg(format!("--kubeconfig={}", self.clusters.kubeconfig().display()));
        command.arg(format!("--kubectl-path={}", self.tools.server("kubectl").display()));
        command.arg(format!("--e2e-output-dir={}", folder.display()));
        // These flags select no cloud provider, do not wait for ready nodes (a failed spec may have left an unready
        // node), and do not print the nodes' logs.
        command.args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--dump-logs-on-failure=false"]);
        command
    }
}

/// Returns whether a spec still needs an attempt.
pub(crate) fn is_any_due(ledger: &Ledger, target: Target, names: &[String], limits: Limits) -> bool {
    (1..=limits.attempts).any(|attempt| names.iter().any(|name| is_due(ledger, target, name, attempt)))
}

/// Returns whether a spec needs the attempt with this number. A spec that is listed as failing is not repeated.
fn is_due(ledger: &Ledger, target: Target, name: &str, attempt: usize) -> bool {
    let (made, has_passed) = ledger.standing(name);
    let may_fail = attempt > 1 && is_known(target, name);
    made < attempt && !has_passed && !may_fail
}

fn is_known(target: Target, name: &str) -> bool {
    differences::of(target, name).is_some()
}

/// Returns the outcome of a spec in one word, for the progress output.
fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed(_) => "FAILED",
        Outcome::Skipped(_) => "skipped",
    }
}

/// Makes a regular expression that matches exactly this text.
fn quoted(text: &str) -> String {
    let special = |character: char| r"\.+*?()|[]{}^$".contains(character);
    text.chars().flat_map(|character| special(character).then_some('\\').into_iter().chain([character])).collect()
}
