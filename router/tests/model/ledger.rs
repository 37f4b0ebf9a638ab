//! The writes sent through the routers and the objects that they changed: a pure data structure, so that a table can
//! test it.
//!
//! Every write has a marker, which reappears in a member's history. A write *lands* where a member's change carries its
//! marker, or where it is the only possible cause of a deletion. A write lands at most once, and only in the object
//! that it means. A refused write never lands; a write answered with 2xx has landed.

use std::collections::BTreeMap;

use crate::truth::{Component, Lie, State, Truth};
use crate::world::NAMES;

/// The clusters that every router has and none is about to lose, each with the number of the configuration change that
/// added it.
pub(crate) type Settled = BTreeMap<String, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Server-side apply. Creates missing objects.
    Apply,
    /// A JSON merge patch.
    Merge,
    Replace,
    Delete,
}

/// How a write identifies its object.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    /// The annotation names a cluster of this member.
    Annotated(usize),
    /// A precondition names an object of this member by its uid, its version, or both.
    Object {
        /// The member that has the object.
        member: usize,
        /// The uid in the write.
        uid: Option<String>,
        /// The state whose version the write names. No two states of an object are equal.
        state: Option<State>,
    },
    /// No identification: the write means the only object of the name.
    Bare(Bare),
}

/// A router's possible knowledge when it received a bare write.
///
/// The write must not land if the router could know of another cluster's object of the same name. That applies to each
/// cluster that the router had before the write and still has after it, if that object existed without a gap
///
/// * since the version up to which the router had shown the cluster's objects a moment before. The router's watch may
///   not have seen later objects, as long as the cluster is cut off: no fault;
/// * since the router received the write, if the router had no version of the cluster. The cluster is unknown then, so
///   the router must ask it or refuse the write;
/// * since the router received the write, if the write creates the object: then the router asks all clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bare {
    /// The router's knowledge of each of its clusters.
    pub(crate) known: Vec<Known>,
}

/// A router's knowledge of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) cluster: String,
    /// Number of the configuration change that added the cluster to all routers.
    pub(crate) settled: u64,
    /// The version up to which the router had shown the cluster's objects.
    pub(crate) version: Option<Component>,
    /// The cluster's last step when the router received the write.
    pub(crate) step: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The value that the write sets. The marker of a deletion is only its name.
    pub(crate) marker: String,
    pub(crate) verb: Verb,
    /// The object's `namespace/name`.
    pub(crate) key: String,
    pub(crate) meaning: Meaning,
}

/// One change of one object of a member, from the member's history.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) member: usize,
    /// The object's `namespace/name`.
    pub(crate) key: String,
    /// The state before the change. `None` if there was no object.
    pub(crate) before: Option<State>,
    /// The state after the change. `None` if the object is gone.
    pub(crate) after: Option<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// An answer with a 2xx code.
    Done,
    /// An error answer that does not say that the write may have been carried out.
    Refused(u16),
    /// An answer that leaves the result open.
    Lost(u16),
}

#[derive(Debug)]
struct Entry {
    write: Write,
    outcome: Option<Outcome>,
    landed: Option<Change>,
}

/// All writes of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    /// Records a write before the client sends it.
    pub(crate) fn sent(&mut self, write: Write) {
        self.entries.push(Entry { write, outcome: None, landed: None });
    }

    /// Records the answer of a write. The caller must record all earlier changes first.
    ///
    /// # Errors
    /// The write was refused but has landed, or was done but has not landed.
    pub(crate) fn answered(&mut self, marker: &str, outcome: Outcome) -> Result<(), Lie> {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.write.marker == marker) else {
            return Err(Lie(format!("{marker} was never sent")));
        };
        entry.outcome = Some(outcome);
        match (outcome, &entry.landed) {
            (Outcome::Done, None) => Err(entry.lie("was done, and no member shows it")),
            (Outcome::Refused(code), Some(change)) => Err(entry.lie(&format!("was refused with {code}: {change:?}"))),
            _ => Ok(()),
        }
    }

    /// Records a change that only a client's write can have made. `truth` and `settled` include the change.
    ///
    /// # Errors
    /// The write of this change means another object, was refused, or has landed before; or no client asked for this
    /// deletion.
    pub(crate) fn changed(&mut self, change: &Change, truth: &Truth, settled: &Settled) -> Result<(), Lie> {
        let Some(after) = &change.after else { return self.deleted(change, truth, settled) };
        let written = |entry: &&mut Entry| entry.write.verb != Verb::Delete && entry.write.marker == after.value;
        match self.entries.iter_mut().find(written) {
            Some(entry) => entry.lands(change, truth, settled),
            None => Ok(()),
        }
    }

    /// Records a deletion for the newest write that can have made it.
    fn deleted(&mut self, change: &Change, truth: &Truth, settled: &Settled) -> Result<(), Lie> {
        let mut why = Lie(format!("nobody deleted it: {change:?}"));
        let asked = |entry: &&mut Entry| entry.write.verb == Verb::Delete && entry.write.key == change.key;
        for entry in self.entries.iter_mut().rev().filter(asked) {
            match entry.lands(change, truth, settled) {
                Ok(()) => return Ok(()),
                // A write that was answered long ago is a poor explanation.
                Err(lie) if entry.outcome.is_none() => why = lie,
                Err(_) => {}
            }
        }
        Err(why)
    }
}

impl Entry {
    fn lands(&mut self, change: &Change, truth: &Truth, settled: &Settled) -> Result<(), Lie> {
        if let Some(Outcome::Refused(code)) = self.outcome {
            return Err(self.lie(&format!("was refused with {code}: {change:?}")));
        }
        if let Some(before) = &self.landed {
            return Err(self.lie(&format!("has landed twice: {before:?} and {change:?}")));
        }
        self.write.may_land(change, truth, settled).map_err(|why| self.lie(&format!("{why}: {change:?}")))?;
        self.landed = Some(change.clone());
        Ok(())
    }

    fn lie(&self, what: &str) -> Lie {
        Lie(format!("{:?} {what}", self.write))
    }
}

impl Write {
    /// Checks that the write means the object of this change.
    fn may_land(&self, change: &Change, truth: &Truth, settled: &Settled) -> Result<(), String> {
        if self.key != change.key {
            return Err("landed in another name".to_owned());
        }
        match &self.meaning {
            Meaning::Annotated(member) if *member != change.member => Err("landed in another cluster".to_owned()),
            Meaning::Annotated(_) => Ok(()),
            Meaning::Object { member, .. } if *member != change.member => Err("landed in another cluster".to_owned()),
            Meaning::Object { uid, state, .. } => self.is_meant(uid.as_deref(), state.as_ref(), change, truth),
            Meaning::Bare(bare) => match bare.rival(change, truth, settled) {
                Some(rival) => Err(format!("landed though {} has one of the name, too", rival.cluster)),
                None => Ok(()),
            },
        }
    }

    /// Checks the precondition against the object before the change. A version in an apply that creates the object
    /// means nothing. After a restore another state may have the version.
    fn is_meant(&self, uid: Option<&str>, state: Option<&State>, change: &Change, truth: &Truth) -> Result<(), String> {
        let before = change.before.as_ref();
        if uid.is_some_and(|uid| before.is_none_or(|before| before.uid != uid)) {
            return Err("landed in an object of another uid".to_owned());
        }
        let makes = self.verb == Verb::Apply && before.is_none();
        let went_back = truth.history(NAMES[change.member][0]).is_ok_and(|history| history.restores() > 0);
        if state.is_some() && state != before && !makes && !went_back {
            return Err("landed in another version".to_owned());
        }
        Ok(())
    }
}

impl Bare {
    /// Returns a cluster that, as the router could know, also has an object of the name.
    fn rival(&self, change: &Change, truth: &Truth, settled: &Settled) -> Option<&Known> {
        let own = |known: &&Known| NAMES[change.member].contains(&&*known.cluster);
        // If the router knows that this cluster had the object, the router may take that object for the only one.
        let was_there = self.known.iter().find(own).is_none_or(|own| own.had(&change.key, truth));
        let makes = change.before.is_none() && !was_there;
        let has = |known: &Known| {
            settled.get(&known.cluster) == Some(&known.settled)
                && truth.history(&known.cluster).is_ok_and(|history| match known.version {
                    Some(version) if !makes => history.has_had_since_version(&change.key, version),
                    _ => history.has_had_since(&change.key, known.step),
                })
        };
        self.known.iter().find(|known| !own(known) && has(known))
    }
}

impl Known {
    /// Returns whether the cluster had an object at its version or later.
    fn had(&self, key: &str, truth: &Truth) -> bool {
        truth.history(&self.cluster).is_ok_and(|history| match self.version {
            Some(version) => history.had_since_version(key, version),
            None => history.had_since(key, self.step),
        })
    }
}
