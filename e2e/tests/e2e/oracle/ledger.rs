//! Records the events of one kube-rs client, and checks that they are possible. The Go clients have the same checks in
//! `clients/oracle`.

use super::writer::{PAYLOAD, SEQUENCE};
use anyhow::{Context, ensure};
use kube::api::ObjectMeta;
use std::collections::{BTreeMap, HashMap, HashSet};

/// State of an object at a client: its uid and its sequence number.
pub(crate) type State = (String, u64);

pub(crate) type States = BTreeMap<String, State>;

/// Record of the events of a resource, in the order in which a client received them.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    held: States,
    /// Uids of objects that were deleted or missing from a list. An object with such a uid must never appear again.
    gone: HashSet<String>,
    last: HashMap<String, u64>,
    /// Names whose next event must not skip a state, with their last sequence number. A name is in this map if it had
    /// an object at the last list or at the last call of [`Self::look`], or if it has had an event since.
    steady: HashMap<String, u64>,
    /// Objects of a list that is not complete yet.
    listing: Option<States>,
    pub(crate) applied: usize,
    pub(crate) lists: usize,
    /// States that the client did not receive, although no list in between explains the gap.
    pub(crate) gaps: Vec<String>,
    pub(crate) violations: Vec<String>,
}

impl Ledger {
    fn read(&mut self, metadata: &ObjectMeta, event: &str) -> Option<(String, State)> {
        match read(metadata) {
            Ok(read) => Some(read),
            Err(error) => {
                self.violations.push(format!("{event}: {error:#}"));
                None
            }
        }
    }

    pub(crate) fn begin(&mut self) {
        self.listing = Some(States::new());
    }

    pub(crate) fn listed(&mut self, metadata: &ObjectMeta) {
        let Some((key, state)) = self.read(metadata, "list") else { return };
        self.forward(&key, &state, "list");
        if self.listing.get_or_insert_default().insert(key.clone(), state).is_some() {
            self.violations.push(format!("list: {key} is there twice"));
        }
    }

    /// Completes a list. An object that is missing from the list is treated as deleted.
    pub(crate) fn end(&mut self) {
        let next = self.listing.take().unwrap_or_default();
        for (key, (uid, _)) in std::mem::take(&mut self.held) {
            if next.get(&key).is_none_or(|(other, _)| *other != uid) {
                self.gone.insert(uid);
            }
        }
        self.held = next;
        self.lists += 1;
        self.settle();
    }

    /// Records an ADDED or MODIFIED event, which kube-rs does not distinguish.
    pub(crate) fn apply(&mut self, metadata: &ObjectMeta) {
        self.applied += 1;
        let Some((key, state)) = self.read(metadata, "apply") else { return };
        if let Some((uid, sequence)) = self.held.get(&key)
            && *uid != state.0
        {
            self.violations
                .push(format!("apply: {key} turns uid {uid} into {}: {sequence}, then {}", state.0, state.1));
        }
        self.forward(&key, &state, "apply");
        self.held.insert(key, state);
    }

    /// Records a DELETED event. After a reconnection, the DELETED event of an object may arrive twice.
    pub(crate) fn delete(&mut self, metadata: &ObjectMeta) {
        let Some((key, (uid, sequence))) = self.read(metadata, "delete") else { return };
        match self.held.get(&key) {
            Some((held, _)) if *held == uid => {
                self.held.remove(&key);
            }
            _ if self.gone.contains(&uid) => return,
            held => self.violations.push(format!("delete of {key} with uid {uid} at {sequence}, held is {held:?}")),
        }
        self.step(&key, sequence, "delete");
        let last = self.last.entry(key).or_default();
        *last = sequence.max(*last);
        self.gone.insert(uid);
    }

    fn forward(&mut self, key: &str, (uid, sequence): &State, event: &str) {
        if self.gone.contains(uid) {
            self.violations.push(format!("{event}: {key} comes back with sequence {sequence}, uid {uid}"));
        }
        if let Some(last) = self.last.get(key).filter(|last| sequence < last) {
            self.violations.push(format!("{event}: {key} goes back from {last} to {sequence}"));
        }
        let last = self.last.entry(key.to_owned()).or_default();
        *last = (*sequence).max(*last);
        if event != "list" {
            self.step(key, *sequence, event);
        }
    }

    /// Records a gap if the client has not received the previous state of the object.
    fn step(&mut self, key: &str, sequence: u64, event: &str) {
        match self.steady.get_mut(key) {
            Some(before) => {
                if sequence > *before + 1 {
                    self.gaps.push(format!("{event} of {key}: sequence {sequence} after {before}"));
                }
                *before = sequence.max(*before);
            }
            None => drop(self.steady.insert(key.to_owned(), sequence)),
        }
    }

    /// Removes names without an object from `steady`. Before the next event arrives, such an object may be created and
    /// deleted without events.
    fn settle(&mut self) {
        self.steady = self.held.iter().map(|(key, (_, sequence))| (key.clone(), *sequence)).collect();
    }

    /// Returns the client's objects. From now on, a skipped state of a name without an object is not a gap, because the
    /// state may be older than the last list.
    pub(crate) fn look(&mut self) -> &States {
        self.settle();
        &self.held
    }
}

/// Reads the name and state of an object.
///
/// # Errors
/// If the payload of the object does not match its sequence number, so that the object mixes two states.
fn read(metadata: &ObjectMeta) -> anyhow::Result<(String, State)> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let key = format!("{}/{}", text(&metadata.namespace), text(&metadata.name));
    let annotation = |name: &str| metadata.annotations.as_ref().and_then(|all| all.get(name)).map(String::as_str);
    let sequence = annotation(SEQUENCE).with_context(|| format!("{key} has no sequence"))?;
    let payload = annotation(PAYLOAD).unwrap_or_default();
    let mut parts = payload.splitn(3, ':');
    let (first, length, letters) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
    let whole = first == Some(sequence) && length == Some(&letters.len().to_string());
    ensure!(whole, "{key} is torn: sequence {sequence} with payload {payload:.60}");
    Ok((key, (text(&metadata.uid), sequence.parse().context("read the sequence")?)))
}
