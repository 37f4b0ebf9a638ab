//! The hub as a source of the configuration.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tributary_sources::LoadedConfiguration;
use tributary_sources::data_directory::DataDirectory;

use crate::accept::{Acceptance, WholeCheck, accept};
use crate::disappearance::DisappearanceGuard;
use crate::in_force::InForce;
use crate::lease::LeaseCandidate;
use crate::members::HubRules;
use crate::status_writer::{StatusWriter, WriteRecord};
use crate::{HubClient, HubCollections, HubMonitor, Verdict};

/// The file in the data directory with the last accepted configuration and its credentials.
const FILE: &str = "hub.json";

/// Time for which the start waits for the hub before it uses the copy in the data directory.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of checks whether the hub is in contact.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The hub as a source of the configuration. Without contact, the last accepted configuration stays in force.
pub struct HubSource {
    collections: Arc<HubCollections>,
    rules: HubRules,
    in_force: InForce,
    guard: DisappearanceGuard,
    /// The place of the copy; `None` with `--hub-remember=false`.
    copy: Option<DataDirectory>,
    /// The fingerprint of the objects in the copy.
    written: Option<u64>,
    decides_at: Option<Instant>,
    problem: Mutex<Option<String>>,
    verdicts: watch::Sender<Vec<Verdict>>,
    client: Arc<HubClient>,
}

impl HubSource {
    /// Starts to follow the hub, and waits up to 5 s for its objects. `copy` is the data directory with the last
    /// accepted configuration, unless no copy is kept. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The copy is unreadable.
    pub async fn start(client: Arc<HubClient>, rules: HubRules, copy: Option<DataDirectory>) -> anyhow::Result<Self> {
        let collections = Arc::new(HubCollections::start(&client, &rules.namespace)?);
        let in_force = copy.as_ref().map(read_copy).transpose()?.unwrap_or_default();
        if timeout(FIRST_LIST_TIMEOUT, collections.listed()).await.is_err() {
            let problem = collections.problem().unwrap_or_default();
            tracing::warn!(
                problem,
                members = in_force.members.len(),
                "the hub has not listed its objects within 5 s; the last accepted configuration is served"
            );
        }
        Ok(Self {
            collections,
            rules,
            in_force,
            guard: DisappearanceGuard::default(),
            copy,
            written: None,
            decides_at: None,
            problem: Mutex::default(),
            verdicts: watch::Sender::default(),
            client,
        })
    }

    /// Returns the writer of status. `identity` must differ from the identities of all other replicas.
    pub fn status_writer(&self, identity: String) -> StatusWriter {
        StatusWriter {
            client: Arc::clone(&self.client),
            collections: Arc::clone(&self.collections),
            verdicts: self.verdicts.subscribe(),
            candidate: LeaseCandidate::new(self.rules.namespace.clone(), identity),
            record: WriteRecord::default(),
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

    /// Postpones the present changes to the next acceptance, because other sources cannot be read.
    pub fn postpone_changes(&mut self) {
        self.collections.postpone_changes();
        self.decides_at = None;
    }

    /// Returns the reason why changes of the hub do not arrive.
    pub fn problem(&self) -> Option<String> {
        self.collections.problem()
    }

    /// Returns the objects in force.
    pub fn in_force(&self) -> &InForce {
        &self.in_force
    }

    /// Accepts the present objects of the hub in addition to `base`, the configuration of all other sources. Does no
    /// I/O except for the copy in the data directory.
    pub async fn accept(&mut self, base: LoadedConfiguration, check: WholeCheck<'_>) -> Acceptance {
        let snapshot = self.collections.snapshot();
        let before = self.in_force.fingerprint();
        let (in_force, guard) = (&mut self.in_force, &mut self.guard);
        let mut accepted = accept(in_force, guard, &snapshot, base, &self.rules, check).await;
        accepted.is_changed = before != self.in_force.fingerprint();
        self.decides_at = accepted.decides_at;
        self.verdicts.send_replace(accepted.verdicts.clone());
        self.write_copy();
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
    }

    fn write_copy(&mut self) {
        let Some(directory) = &self.copy else { return };
        let fingerprint = Some(self.in_force.fingerprint());
        if fingerprint == self.written {
            return;
        }
        // Maps of texts and numbers always serialize.
        let text = serde_json::to_vec(&self.in_force).unwrap_or_default();
        match directory.write(FILE, &text) {
            Ok(()) => self.written = fingerprint,
            Err(error) => tracing::error!(%error, "the copy of the hub's configuration was not written"),
        }
    }
}

/// Reads the copy of the last accepted configuration.
///
/// # Errors
/// The file cannot be read. A damaged file is an error, too: it names the members that a user expects.
fn read_copy(directory: &DataDirectory) -> anyhow::Result<InForce> {
    let Some(bytes) = directory.read(FILE)? else { return Ok(InForce::default()) };
    match serde_json::from_slice(&bytes) {
        Ok(in_force) => Ok(in_force),
        Err(error) => {
            // The parser's message could quote a credential.
            let place = directory.file(FILE);
            anyhow::bail!(
                "{} is damaged at line {}, column {}; remove it, and start Tributary while the hub answers",
                place.display(),
                error.line(),
                error.column()
            )
        }
    }
}
