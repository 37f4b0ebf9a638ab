//! Kubernetes' own end-to-end specs, run against a bare member, Tributary over one and Tributary over two: what passes
//! on the bare member passes through Tributary, but for what [`differences`] lists.
//!
//! Continuous integration runs those of the API machinery over one member. The rest is a proof of its own, `proof_specs::all`,
//! which runs what `e2e/specs/passing.txt` lists at all targets:
//!
//! * `TRIBUTARY_SPECS_RESULTS=<file>` has it write its results there;
//! * `TRIBUTARY_SPECS_FIND=1` has it look among all specs for those that pass on the bare member, and write the list anew;
//! * `TRIBUTARY_SPECS_REPORTS=<folder>` keeps ginkgo's reports, with everything that specs wrote;
//! * `TRIBUTARY_SPECS_FROM=<folder>` reads such reports (`<target>*.json`) instead of running anything, where runs were made one
//!   by one;
//! * `TRIBUTARY_SPECS_FOCUS=<part of a name>` and `TRIBUTARY_SPECS_TARGETS=over-one,…` run a part.

mod clusters;
mod differences;
mod report;
mod results;
mod run;

use crate::context::{Case, TestContext};
use anyhow::{Context, ensure};
use clusters::Clusters;
use report::{Outcome, Report};
use run::Selection;
use std::{
    env,
    fs::{self, DirEntry},
    path::{Path, PathBuf},
    time::Duration,
};
use tributary_e2e::Tools;

/// The API machinery's specs of what is Tributary's own: list, watch, Table, discovery, negotiation.
const FOCUS: &str = r"Watchers|chunking|Table transformation|API Streaming|AggregatedDiscovery|\[sig-api-machinery\] Discovery|server version|health handlers|should negotiate|CustomResourceDefinition Watch";

/// Left out of them: the first kills servers; the second waits minutes for a compaction; the third needs a webhook that
/// really runs.
const FOCUS_SKIP: &str = "Disruptive|compacted away|FieldSelectors";

/// How many specs these are.
const FOCUS_COUNT: usize = 33;

/// The specs that pass on a bare member, one name a line; made by `TRIBUTARY_SPECS_FIND=1`.
const PASSING: &str = include_str!("../../../specs/passing.txt");

/// What is not even tried: specs that break the cluster, take many minutes or have to be alone where that is not for the API's
/// sake, and those of what a member whose nodes are played has none of: networks, storage, cgroups, probes of containers, clouds.
const FIND_SKIP: &str = r"Disruptive|\[Slow\]|\[Flaky\]|sig-storage|[Rr]esize|Netpol|NetworkPolicy|LoadBalancer|Networking|DNS|dual.?stack|\[Feature:OffByDefault\]|Windows|GPU|Probing|Lifecycle Hook|Security Context|Conntrack|CSI|\[Alpha\]|AdmissionWebhook|(sig-apps|sig-node|sig-network|sig-scheduling|sig-cli).*\[Serial\]";

/// What the specs run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A kube-apiserver: the oracle.
    Bare,
    /// Tributary over one member.
    OverOne,
    /// Tributary over two members, of which specs write to one.
    OverTwo,
}

impl Target {
    const ALL: [Self; 3] = [Self::Bare, Self::OverOne, Self::OverTwo];

    /// Its name in files and variables.
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::OverOne => "over-one",
            Self::OverTwo => "over-two",
        }
    }

    /// Its name in text.
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
        Case::new("specs::api_machinery_over_one", api_machinery_over_one).patience(Duration::from_secs(600)),
        Case::new("proof_specs::all", all).patience(Duration::from_secs(4 * 3600)),
    ]
}

/// The specs of the API machinery over one member. That they pass on the bare one is the other proof's to show.
async fn api_machinery_over_one(context: TestContext) -> anyhow::Result<()> {
    let selection = Selection {
        focus: vec![FOCUS.to_owned()],
        skip: vec![FOCUS_SKIP.to_owned()],
        processes: 4,
        spec_timeout: Duration::from_secs(150),
        timeout: Duration::from_secs(420),
    };
    let report = run_at(context.fixture.tools().await?, Target::OverOne, false, &selection).await?;
    ensure!(report.len() == FOCUS_COUNT, "{} specs ran instead of {FOCUS_COUNT}", report.len());
    let wanted: Vec<String> = report.keys().cloned().collect();
    settle(&[(Target::OverOne, results::faults(Target::OverOne, &wanted, &report))])
}

/// Every spec that passes on the bare member, at all targets.
async fn all(context: TestContext) -> anyhow::Result<()> {
    let tools = context.fixture.tools().await?;
    let focus = env::var("TRIBUTARY_SPECS_FOCUS").ok();
    let mut wanted: Vec<String> = PASSING.lines().map(str::to_owned).collect();
    let mut reports = Vec::new();
    if env::var_os("TRIBUTARY_SPECS_FIND").is_some() {
        let report = run_at(tools, Target::Bare, true, &everything(focus.as_deref())).await?;
        wanted =
            report.iter().filter(|(_, outcome)| **outcome == Outcome::Passed).map(|(name, _)| name.clone()).collect();
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/passing.txt");
        fs::write(list, wanted.join("\n") + "\n").context("write the list")?;
        reports.push((Target::Bare, report));
    } else if let Some(focus) = &focus {
        wanted.retain(|name| name.contains(focus.as_str()));
    }
    let chosen = env::var("TRIBUTARY_SPECS_TARGETS").ok();
    for target in Target::ALL {
        let is_chosen = chosen.as_deref().is_none_or(|chosen| chosen.split(',').any(|name| name == target.name()));
        if is_chosen && reports.iter().all(|(done, _)| *done != target) {
            let report = match env::var_os("TRIBUTARY_SPECS_FROM") {
                Some(folder) => kept(Path::new(&folder), target)?,
                None => run_at(tools, target, true, &named(&wanted)).await?,
            };
            reports.push((target, report));
        }
    }
    if let Some(file) = env::var_os("TRIBUTARY_SPECS_RESULTS") {
        let now = jiff::Timestamp::now().to_string();
        let today = now.split('T').next().unwrap_or_default();
        fs::write(file, results::document(today, &wanted, &reports)).context("write the results")?;
    }
    let faults = reports.iter().map(|(target, report)| (*target, results::faults(*target, &wanted, report)));
    settle(&faults.collect::<Vec<_>>())
}

/// The reports of a target that were kept before: all files of its name. Of two results of one spec the later file's counts.
fn kept(folder: &Path, target: Target) -> anyhow::Result<Report> {
    let mut files: Vec<_> = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?.iter().map(DirEntry::path).collect();
    files.sort();
    let of_target =
        |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(target.name()));
    let mut report = Report::new();
    for path in files.iter().filter(of_target) {
        let text = fs::read_to_string(path)?;
        report.extend(report::parse(&text).with_context(|| format!("read {}", path.display()))?);
    }
    Ok(report)
}

/// Everything that a member with played containers may pass.
fn everything(focus: Option<&str>) -> Selection {
    Selection {
        focus: focus.map(quoted).into_iter().collect(),
        skip: vec![FIND_SKIP.to_owned()],
        processes: 8,
        spec_timeout: Duration::from_secs(60),
        timeout: Duration::from_secs(2 * 3600),
    }
}

/// These specs and no others.
fn named(names: &[String]) -> Selection {
    Selection {
        focus: names.iter().map(|name| format!("{}$", quoted(name))).collect(),
        skip: Vec::new(),
        processes: 6,
        // More than they had when they were looked for: a run of specs that pass has other neighbours.
        spec_timeout: Duration::from_secs(180),
        timeout: Duration::from_secs(3600),
    }
}

/// A regular expression that matches this text alone.
fn quoted(text: &str) -> String {
    let special = |character: char| r"\.+*?()|[]{}^$".contains(character);
    text.chars().flat_map(|character| special(character).then_some('\\').into_iter().chain([character])).collect()
}

/// One run.
async fn run_at(tools: &Tools, target: Target, whole: bool, selection: &Selection) -> anyhow::Result<Report> {
    let clusters = Clusters::start(tools, target, whole).await?;
    let kubeconfig = clusters.kubeconfig();
    let run = run::run(tools, target.name(), &kubeconfig, selection).await;
    run.with_context(|| format!("--- tributary\n{}", clusters.log_tail()))
}

fn settle(faults: &[(Target, Vec<String>)]) -> anyhow::Result<()> {
    let mut text = String::new();
    for (target, faults) in faults.iter().filter(|(_, faults)| !faults.is_empty()) {
        text.push_str(&format!("{} specs {}:\n{}\n", faults.len(), target.words(), faults.join("\n")));
    }
    ensure!(text.is_empty(), "{text}");
    Ok(())
}
