//! The hub as a source of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tributary_sources::data_directory::DataDirectory;

use crate::accept::{Acceptance, ConfigurationCheck, accept};
use crate::disappearance::DisappearanceGuard;
use crate::in_force::InForce;
use crate::lease::LeaseCandidate;
use crate::members::HubRules;
use crate::other_sources::OtherSources;
use crate::status_writer::{StatusWriter, WriteRecord};
use crate::{HubClient, HubCollections, HubMonitor, Verdict};

/// The file in the data directory with the last accepted configuration and its credentials.
const FILE: &str = "hub.json";

/// Time for which the start waits for the hub before it uses the copy in the data directory. Also the interval of
/// checks for a new problem during a start without a copy.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which the contact with the hub is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The hub as a source of the configuration. Without contact, the last accepted configuration stays in force.
pub struct HubSource {
    collections: Arc<HubCollections>,
    rules: HubRules,
    in_force: InForce,
    guard: DisappearanceGuard,
    /// The data directory for the copy of the last accepted configuration; `None` with `--hub-remember=false`.
    copy: Option<DataDirectory>,
    /// Whether the copy contains the present state of the objects in force.
    is_written: bool,
    decides_at: Option<Instant>,
    /// Whether the start has read a copy.
    has_copy: bool,
    /// True until the first acceptance.
    is_starting: bool,
    problem: Mutex<Option<String>>,
    /// The last problem of each source that was logged.
    source_problems: Mutex<BTreeMap<String, String>>,
    verdicts: watch::Sender<Arc<[Verdict]>>,
    client: Arc<HubClient>,
}

impl HubSource {
    /// Starts to follow the hub, and waits for its objects. With a copy in the data directory, the wait lasts up to 5
    /// s. Without a copy, it lasts until the hub has listed all objects, because a start without DeniedUsers or
    /// policies would admit too much. `copy` is the data directory, unless Tributary stores no copy. Must be called
    /// within a tokio runtime. Cancel: safe.
    ///
    /// # Errors
    /// The copy is unreadable.
    pub async fn start(client: Arc<HubClient>, rules: HubRules, copy: Option<DataDirectory>) -> anyhow::Result<Self> {
        let collections = Arc::new(HubCollections::start(&client, &rules.namespace)?);
        let remembered = copy.as_ref().map(read_copy).transpose()?.flatten();
        let has_copy = remembered.is_some();
        let in_force = match remembered {
            Some(in_force) => {
                if timeout(FIRST_LIST_TIMEOUT, collections.listed()).await.is_err() {
                    let (problem, members) = (collections.problem(), in_force.members.len());
                    tracing::warn!(
                        problem,
                        members,
                        "the hub has not listed its objects within 5 s; the copy in the data directory is served"
                    );
                }
                in_force
            }
            None => {
                wait_for_lists(&collections).await;
                InForce::default()
            }
        };
        Ok(Self {
            collections,
            rules,
            in_force,
            guard: DisappearanceGuard::default(),
            copy,
            is_written: false,
            decides_at: None,
            has_copy,
            is_starting: true,
            problem: Mutex::default(),
            source_problems: Mutex::default(),
            verdicts: watch::Sender::new(Arc::default()),
            client,
        })
    }

    /// Returns the writer of status. The writer tries to hold the Lease of `candidate` while it runs.
    pub fn status_writer(&self, candidate: LeaseCandidate) -> StatusWriter {
        StatusWriter {
            client: Arc::clone(&self.client),
            collections: Arc::clone(&self.collections),
            verdicts: self.verdicts.subscribe(),
            candidate,
            record: WriteRecord::default(),
            publisher: None,
        }
    }

    /// Returns a view of the hub's state for the report and the metrics.
    pub fn monitor(&self) -> HubMonitor {
        HubMonitor { collections: Arc::clone(&self.collections), verdicts: self.verdicts.subscribe() }
    }

    /// Waits until the objects of the hub must be accepted again. Logs when contact with the hub is lost and when it is
    /// restored. Cancel: safe.
    pub async fn changed(&self) {
        loop {
            // The caller cancels and repeats this call every few seconds, so the log comes before the wait.
            self.log_problem();
            let check = Instant::now() + CHECK_INTERVAL;
            tokio::select! {
                () = self.collections.changed() => return,
                () = sleep_until(self.decides_at.unwrap_or(check).min(check)) => {}
            }
            if self.decides_at.is_some_and(|at| at <= Instant::now()) {
                return;
            }
        }
    }

    /// Returns the reason why changes of the hub do not arrive.
    pub fn problem(&self) -> Option<String> {
        self.collections.problem()
    }

    /// Returns the objects in force.
    pub fn in_force(&self) -> &InForce {
        &self.in_force
    }

    /// Accepts the present objects of the hub in addition to the other sources. Does no I/O except for the copy in the
    /// data directory. The first call waits for the lists of the ClusterSources.
    pub async fn accept(&mut self, others: &OtherSources<'_>, check: ConfigurationCheck<'_>) -> Acceptance {
        let mut accepted = self.accept_present(others, check).await;
        let has_started = self.collections.follow_sources(self.in_force.source_lists())
            | self.collections.follow_decisions(self.in_force.decision_namespaces());
        if has_started && std::mem::take(&mut self.is_starting) {
            self.wait_for_sources().await;
            let is_changed = accepted.is_changed;
            accepted = self.accept_present(others, check).await;
            accepted.is_changed |= is_changed;
        }
        self.is_starting = false;
        self.verdicts.send_replace(Arc::clone(&accepted.verdicts));
        self.write_copy();
        accepted
    }

    /// Waits at the start until the sources are listed: up to 5 s with a copy, otherwise until each is listed or cannot
    /// be listed. Without the wait, the merged view would lack members, and controllers would see their objects
    /// deleted.
    async fn wait_for_sources(&self) {
        while timeout(FIRST_LIST_TIMEOUT, self.collections.sources_listed()).await.is_err() {
            let problems = self.collections.source_problems();
            if self.has_copy {
                tracing::warn!(
                    ?problems,
                    "the list of a ClusterSource did not arrive within 5 s; its last accepted members are served"
                );
                return;
            }
            tracing::warn!(
                ?problems,
                "the start waits until the hub has listed the items of its ClusterSources, because the data directory \
                 has no copy of them"
            );
        }
    }

    async fn accept_present(&mut self, others: &OtherSources<'_>, check: ConfigurationCheck<'_>) -> Acceptance {
        let snapshot = self.collections.snapshot();
        let (in_force, guard) = (&mut self.in_force, &mut self.guard);
        let accepted = accept(in_force, guard, &snapshot, others, &self.rules, check).await;
        self.decides_at = accepted.decides_at;
        self.is_written &= !accepted.is_changed;
        accepted
    }

    fn log_problem(&self) {
        let problem = self.collections.problem();
        let mut last = self.problem.lock();
        match (&problem, &*last) {
            (Some(problem), before) if before.as_ref() != Some(problem) => {
                tracing::warn!(problem, "changes of the hub do not arrive; the last accepted configuration is served");
            }
            (None, Some(_)) => tracing::info!("changes of the hub arrive again"),
            _ => {}
        }
        *last = problem;
        let problems = self.collections.source_problems();
        let mut last = self.source_problems.lock();
        for (source, problem) in &problems {
            if last.get(source) != Some(problem) {
                tracing::warn!(source, problem, "changes of a ClusterSource do not arrive; its members stay");
            }
        }
        for source in last.keys().filter(|source| !problems.contains_key(*source)) {
            tracing::info!(source, "changes of a ClusterSource arrive, or the ClusterSource is gone");
        }
        *last = problems;
    }

    fn write_copy(&mut self) {
        let Some(directory) = &self.copy else { return };
        if self.is_written {
            return;
        }
        // Maps of texts and numbers always serialize.
        let text = serde_json::to_vec(&self.in_force).unwrap_or_default();
        match directory.write(FILE, &text) {
            Ok(()) => self.is_written = true,
            Err(error) => tracing::error!(%error, "the copy of the hub's configuration was not written"),
        }
    }
}

/// Waits until the hub has listed each collection. Logs each new problem.
async fn wait_for_lists(collections: &HubCollections) {
    let mut logged = None;
    while timeout(FIRST_LIST_TIMEOUT, collections.listed()).await.is_err() {
        let problem = collections.problem();
        if problem != logged {
            tracing::warn!(
                problem,
                "the start waits until the hub has listed its objects, because the data directory has no copy of them"
            );
            logged = problem;
        }
    }
}

/// Reads the copy of the last accepted configuration; `None` without a copy.
///
/// # Errors
/// The file cannot be read, or is damaged. A damaged file is not ignored, because users expect the members in it.
fn read_copy(directory: &DataDirectory) -> anyhow::Result<Option<InForce>> {
    let Some(bytes) = directory.read(FILE)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        // The parser's message could quote a credential.
        anyhow::anyhow!(
            "{} is damaged at line {}, column {}; remove it, and start Tributary while the hub answers",
            directory.file(FILE).display(),
            error.line(),
            error.column()
        )
    })
}
