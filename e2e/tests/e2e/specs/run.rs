//! A run of many specs at one target. Each has a process of its own, so that none can hold up or end another, and what
//! is known of it is kept as soon as it ends.

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

/// Longest that a spec may take that says of itself that it is slow. Such a one lets a connection or a
/// schedule rest for five minutes.
const SLOW_PATIENCE: Duration = Duration::from_secs(8 * 60);

/// What a spec that ran out of time gets to remove what it made, before ginkgo gives it up; namespaces take this long.
const CLEANING: Duration = Duration::from_secs(60);

/// What ginkgo gets to write its report, before its process is killed.
const REPORTING: Duration = Duration::from_secs(60);

/// How specs are run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many run at once, but for those that say of themselves that they are slow: they run beside. Those that say
    /// that they are serial run alone, after the others.
    pub(crate) processes: usize,
    /// Longest that one may take that does not say of itself that it is slow.
    pub(crate) patience: Duration,
    /// How often one that fails is tried in all, but for those that are known to fail at this target.
    pub(crate) attempts: usize,
}

/// Specs at one target.
pub(crate) struct Run<'a> {
    /// Where `kubectl` is.
    pub(crate) tools: &'a Tools,
    /// The folder of `e2e.test`.
    pub(crate) specs: &'a Path,
    /// What the specs run against.
    pub(crate) target: Target,
    /// The same, running.
    pub(crate) clusters: &'a Clusters,
    /// What is known already, and what becomes known.
    pub(crate) ledger: &'a Ledger,
    /// How they are run.
    pub(crate) limits: Limits,
}

/// How far a round is, for the terminal.
struct Progress {
    ended: AtomicUsize,
    all: usize,
    attempt: usize,
}

impl Run<'_> {
    /// Runs what of `names` the ledger does not know yet: all once, then those that failed again. Serial ones come
    /// after the others, and last those that are known to fail: where a spec stops,
    /// it may leave things behind that are in others' way.
    ///
    /// # Errors
    /// When a spec cannot be run, or the target does not answer any more. A spec that fails is a result, not an error.
    pub(crate) async fn all(&self, names: &[String]) -> anyhow::Result<()> {
        for attempt in 1..=self.limits.attempts {
            let due = names.iter().filter(|name| is_due(self.ledger, self.target, name, attempt)).cloned();
            let (known, due): (Vec<String>, Vec<String>) = due.partition(|name| is_known(self.target, name));
            let (serial, others): (Vec<String>, Vec<String>) =
                due.into_iter().partition(|name| catalog::is_serial(name));
            let (slow, quick): (Vec<String>, Vec<String>) = others.into_iter().partition(|name| catalog::is_slow(name));
            let all = known.len() + serial.len() + slow.len() + quick.len();
            let progress = Progress { ended: AtomicUsize::new(0), all, attempt };
            // Slow ones do nothing but wait: they take no turn of the others.
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
            // What the end of a member or of Tributary makes of specs says nothing about them.
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
        // What it is matched against begins with the name of the suite.
        command.arg(format!("--ginkgo.focus=^Kubernetes e2e suite {}$", quoted(name)));
        command.args(["--ginkgo.no-color", "--ginkgo.silence-skips"]);
        command.arg(format!("--ginkgo.json-report={}", report.display()));
        command.arg(format!("--ginkgo.timeout={}s", suite.as_secs()));
        command.arg(format!("--spec-timeout={}s", patience.as_secs()));
        command.arg(format!("--kubeconfig={}", self.clusters.kubeconfig().display()));
        command.arg(format!("--kubectl-path={}", self.tools.server("kubectl").display()));
        command.arg(format!("--e2e-output-dir={}", folder.display()));
        // Any provider but a cloud; no waiting for nodes, of which a failed spec may have left one that is none; no
        // dumps of their logs.
        command.args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--dump-logs-on-failure=false"]);
        command
    }
}

/// Whether there is anything to run.
pub(crate) fn is_any_due(ledger: &Ledger, target: Target, names: &[String], limits: Limits) -> bool {
    (1..=limits.attempts).any(|attempt| names.iter().any(|name| is_due(ledger, target, name, attempt)))
}

/// Whether a spec is to be tried for the `attempt`th time. One that failed as it is known to is not tried again.
fn is_due(ledger: &Ledger, target: Target, name: &str, attempt: usize) -> bool {
    let (made, has_passed) = ledger.standing(name);
    let may_fail = attempt > 1 && is_known(target, name);
    made < attempt && !has_passed && !may_fail
}

/// Whether a spec is known to fail at a target.
fn is_known(target: Target, name: &str) -> bool {
    differences::of(target, name).is_some()
}

/// One word for the terminal.
fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed(_) => "FAILED",
        Outcome::Skipped(_) => "skipped",
    }
}

/// A regular expression that matches this text alone.
fn quoted(text: &str) -> String {
    let special = |character: char| r"\.+*?()|[]{}^$".contains(character);
    text.chars().flat_map(|character| special(character).then_some('\\').into_iter().chain([character])).collect()
}
