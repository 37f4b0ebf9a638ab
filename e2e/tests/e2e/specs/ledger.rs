//! Results of the specs at one target. Each result is written to disk at once, so that the next run can continue an
//! interrupted run.

use super::report::Outcome;
use anyhow::Context;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) spec: String,
    pub(crate) outcome: Outcome,
    pub(crate) seconds: u64,
}

/// First line of the file, which identifies the tested programs. Attempts with other programs are ignored.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Subject {
    subject: String,
}

/// Attempts at all specs at one target, in memory and in a file with one JSON document per line.
pub(crate) struct Ledger {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: File,
    attempts: BTreeMap<String, Vec<Attempt>>,
}

impl Ledger {
    /// Opens the ledger at `path`, and reads the attempts of an earlier run with the same `subject`.
    ///
    /// # Errors
    /// If the file can be neither read nor created.
    pub(crate) fn open(path: PathBuf, subject: &str) -> anyhow::Result<Self> {
        let subject = Subject { subject: subject.to_owned() };
        let attempts = read(&path, &subject).unwrap_or_default();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        // Writes the file again, because an interrupted run may have left an incomplete last line.
        let mut text = line(&subject)?;
        for attempt in attempts.values().flatten() {
            text.push_str(&line(attempt)?);
        }
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        let file = OpenOptions::new().append(true).open(&path).with_context(|| format!("open {}", path.display()))?;
        Ok(Self { path, state: Mutex::new(State { file, attempts }) })
    }

    /// Adds an attempt in memory and on disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn add(&self, attempt: Attempt) -> anyhow::Result<()> {
        let text = line(&attempt)?;
        let mut state = self.state.lock();
        state.file.write_all(text.as_bytes()).with_context(|| format!("write {}", self.path.display()))?;
        state.attempts.entry(attempt.spec.clone()).or_default().push(attempt);
        Ok(())
    }

    /// Returns the number of attempts at a spec, and whether the last attempt passed.
    pub(crate) fn standing(&self, spec: &str) -> (usize, bool) {
        let state = self.state.lock();
        let attempts = state.attempts.get(spec).map(Vec::as_slice).unwrap_or_default();
        (attempts.len(), attempts.last().is_some_and(|last| last.outcome == Outcome::Passed))
    }

    pub(crate) fn attempts(&self) -> BTreeMap<String, Vec<Attempt>> {
        self.state.lock().attempts.clone()
    }

    /// Deletes the ledger, so that the next run repeats all specs.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub(crate) fn remove(self) -> anyhow::Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("remove {}", self.path.display()))
    }
}

/// Reads the attempts of an earlier run with this subject, without an incomplete last line. Returns `None` if there was
/// no such run.
fn read(path: &Path, subject: &Subject) -> Option<BTreeMap<String, Vec<Attempt>>> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let left: Subject = serde_json::from_str(lines.next()?).ok()?;
    let mut attempts: BTreeMap<String, Vec<Attempt>> = BTreeMap::new();
    for attempt in lines.map_while(|line| serde_json::from_str::<Attempt>(line).ok()) {
        attempts.entry(attempt.spec.clone()).or_default().push(attempt);
    }
    (left == *subject).then_some(attempts)
}

fn line(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string(value).context("write JSON")? + "\n")
}
