//! Runs Kubernetes' own end-to-end specs against a bare member, Tributary over one member and Tributary over two
//! members. A spec that passes on the bare member must pass through Tributary, except for the specs in [`differences`].
//!
//! Continuous integration runs the specs of the API machinery over one member. The proof test `proof_specs::all` runs
//! the list in `e2e/specs/passing.txt` at all targets. It takes half an hour on two cores, and prints a line for each
//! spec. It records each result in the target folder (`tmp/specs`, or the folder in `TRIBUTARY_SPECS_LEDGERS`). The
//! next call continues an interrupted run, unless Tributary or the specs were rebuilt.
//!
//! * `TRIBUTARY_SPECS_RESULTS=<file>` writes the results to a file after a complete run;
//! * `TRIBUTARY_SPECS_FIND=1` first tries all other specs on the bare member, and adds the passing specs to the list;
//! * `TRIBUTARY_SPECS_FOCUS=<part of a name>` and `TRIBUTARY_SPECS_TARGETS=over-one,…` run a part of the list.

mod catalog;
mod clusters;
mod differences;
mod ledger;
mod report;
mod results;
mod run;

use crate::context::{Case, TestContext};
use anyhow::{Context, ensure};
use clusters::Clusters;
use ledger::Ledger;
use report::Outcome;
use results::Verdicts;
use run::{Limits, Run};
use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tributary_e2e::{Tools, tributary};

/// Limits in continuous integration. Each spec has only one attempt, so that an unreliable spec is noticed.
const MACHINERY_LIMITS: Limits = Limits { processes: 4, patience: Duration::from_secs(150), attempts: 1 };

/// Limits for the search for specs that pass. Most failing specs wait for running containers until they time out, and
/// need no CPU time.
const FIND_LIMITS: Limits = Limits { processes: 14, patience: Duration::from_secs(60), attempts: 1 };

/// Limits for the whole list. Specs mostly wait. A spec gets more time than in the search, because other specs run at
/// the same time.
const LIST_LIMITS: Limits = Limits { processes: 6, patience: Duration::from_secs(180), attempts: 2 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Bare kube-apiserver, with which Tributary is compared.
    Bare,
    OverOne,
    /// Tributary over two members. Specs write only to one of them.
    OverTwo,
}

impl Target {
    const ALL: [Self; 3] = [Self::Bare, Self::OverOne, Self::OverTwo];

    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::OverOne => "over-one",
            Self::OverTwo => "over-two",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::OverOne => "over one",
            Self::OverTwo => "over two",
        }
    }
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "specs::kubernetes_api_machinery_specs_pass_through_tributary",
            kubernetes_api_machinery_specs_pass_through_tributary,
        )
        .patience(Duration::from_secs(600)),
        Case::new("proof_specs::all", kubernetes_specs_that_pass_at_a_member_pass_through_tributary)
            .patience(Duration::from_secs(6 * 3600)),
    ]
}

/// The proof test `proof_specs::all` shows that these specs pass on the bare member.
async fn kubernetes_api_machinery_specs_pass_through_tributary(context: TestContext) -> anyhow::Result<()> {
    let tools = context.fixture.tools().await?;
    let specs = tools.specs().await?;
    let mut wanted = catalog::all(&specs).await?;
    wanted.retain(|name| catalog::is_machinery(name));
    ensure!(wanted.len() == catalog::MACHINERY_COUNT, "{} specs instead of {}", wanted.len(), catalog::MACHINERY_COUNT);
    let folder = tempfile::tempdir().context("make a folder")?;
    let ledger = Ledger::open(folder.path().join("ledger"), "")?;
    let target = Target::OverOne;
    let clusters = Clusters::start(tools, target, false).await?;
    let run = Run { tools, specs: &specs, target, clusters: &clusters, ledger: &ledger, limits: MACHINERY_LIMITS };
    run.all(&wanted).await.with_context(|| clusters.log_tail())?;
    settle(&[(target, results::faults(target, &wanted, &results::verdicts(&ledger)))])
}

async fn kubernetes_specs_that_pass_at_a_member_pass_through_tributary(context: TestContext) -> anyhow::Result<()> {
    let tools = context.fixture.tools().await?;
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/passing.txt");
    let passing = fs::read_to_string(&list).context("read the list")?;
    let mut wanted: BTreeSet<String> = passing.lines().map(str::to_owned).collect();
    let focus = env::var("TRIBUTARY_SPECS_FOCUS").unwrap_or_default();
    if env::var_os("TRIBUTARY_SPECS_FIND").is_some() {
        wanted.extend(find(tools, &wanted, &focus).await?);
        let text: String = wanted.iter().map(|name| format!("{name}\n")).collect();
        fs::write(list, text).context("write the list")?;
    }
    let wanted: Vec<String> = wanted.into_iter().filter(|name| name.contains(&focus)).collect();
    let chosen = env::var("TRIBUTARY_SPECS_TARGETS").ok();
    let is_chosen =
        |target: &Target| chosen.as_deref().is_none_or(|chosen| chosen.split(',').any(|name| name == target.name()));
    let targets: Vec<Target> = Target::ALL.into_iter().filter(is_chosen).collect();
    let is_whole = focus.is_empty() && targets == Target::ALL;
    let mut ledgers = Vec::new();
    for target in targets {
        let ledger = open(tools, target.name(), target != Target::Bare).await?;
        run_at(tools, target, &wanted, &ledger, LIST_LIMITS).await?;
        ledgers.push((target, ledger));
    }
    let verdicts: Vec<(Target, Verdicts)> =
        ledgers.iter().map(|(target, ledger)| (*target, results::verdicts(ledger))).collect();
    if let Some(file) = env::var_os("TRIBUTARY_SPECS_RESULTS").filter(|_| is_whole) {
        let now = jiff::Timestamp::now().to_string();
        let today = now.split('T').next().unwrap_or_default();
        fs::write(file, results::document(today, &wanted, &verdicts)).context("write the results")?;
    }
    let faults = verdicts.iter().map(|(target, verdicts)| (*target, results::faults(*target, &wanted, verdicts)));
    settle(&faults.collect::<Vec<_>>())?;
    // Removes the ledgers after a complete run, so that the next run repeats all specs.
    if is_whole { ledgers.into_iter().try_for_each(|(_, ledger)| ledger.remove()) } else { Ok(()) }
}

/// Finds specs that are not in the list and pass on the bare member twice: with [`FIND_LIMITS`], and then with
/// [`LIST_LIMITS`].
async fn find(tools: &Tools, known: &BTreeSet<String>, focus: &str) -> anyhow::Result<Vec<String>> {
    let mut names = catalog::all(&tools.specs().await?).await?;
    names.retain(|name| catalog::is_worth_trying(name) && !known.contains(name) && name.contains(focus));
    for (round, limits) in [("find", FIND_LIMITS), ("find-again", LIST_LIMITS)] {
        let ledger = open(tools, round, false).await?;
        run_at(tools, Target::Bare, &names, &ledger, limits).await?;
        let verdicts = results::verdicts(&ledger);
        names.retain(|name| verdicts.get(name).is_some_and(|verdict| verdict.outcome == Outcome::Passed));
    }
    Ok(names)
}

/// Opens the ledger of an earlier run if the run had the same programs, or a new ledger.
async fn open(tools: &Tools, name: &str, through_tributary: bool) -> anyhow::Result<Ledger> {
    let mut programs = vec![tools.server("kube-apiserver"), tools.specs().await?.join("e2e.test")];
    if through_tributary {
        programs.push(tributary::binary()?);
    }
    let folder = env::var_os("TRIBUTARY_SPECS_LEDGERS")
        .map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("specs"), PathBuf::from);
    let subject = programs.iter().map(version).collect::<anyhow::Result<Vec<_>>>()?;
    Ledger::open(folder.join(format!("{name}.jsonl")), &subject.join(" "))
}

/// Identifies the build of a program by its size and modification time.
fn version(program: &PathBuf) -> anyhow::Result<String> {
    let read = || {
        let metadata = fs::metadata(program)?;
        let modified = metadata.modified()?.duration_since(std::time::UNIX_EPOCH)?;
        anyhow::Ok(format!("{}:{}:{}", program.display(), metadata.len(), modified.as_secs()))
    };
    read().with_context(|| format!("look at {}", program.display()))
}

/// Runs all specs that have no result in the ledger.
async fn run_at(
    tools: &Tools,
    target: Target,
    names: &[String],
    ledger: &Ledger,
    limits: Limits,
) -> anyhow::Result<()> {
    if !run::is_any_due(ledger, target, names, limits) {
        return Ok(());
    }
    let specs = tools.specs().await?;
    let clusters = Clusters::start(tools, target, true).await?;
    let run = Run { tools, specs: &specs, target, clusters: &clusters, ledger, limits };
    run.all(names).await.with_context(|| format!("{}\n{}", target.words(), clusters.log_tail()))
}

fn settle(faults: &[(Target, Vec<String>)]) -> anyhow::Result<()> {
    let mut text = String::new();
    for (target, faults) in faults.iter().filter(|(_, faults)| !faults.is_empty()) {
        text.push_str(&format!("{} specs {}:\n{}\n", faults.len(), target.words(), faults.join("\n")));
    }
    ensure!(text.is_empty(), "{text}");
    Ok(())
}
