//! Records the writes that clients send through the routers, and the objects that they change. The module is pure data,
//! so that tables can test it.
//!
//! Each write has a marker, which reappears in the history of a member. A write *lands* in a member if a change of the
//! member has the write's marker, or if the write is the only possible cause of a deletion. A write lands at most once,
//! and only in the object that the write identifies. A refused write never lands. A write with a 2xx response has
//! landed.

use std::collections::BTreeMap;

use crate::truth::{Component, Lie, State, Truth};
use crate::world::NAMES;

/// The clusters that all routers have and that no configuration change is removing. Each has the number of the
/// configuration change that added it.
pub(crate) type Settled = BTreeMap<String, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// A server-side apply, which creates missing objects.
    Apply,
    Merge,
    Replace,
    Delete,
}

/// The way in which a write identifies its object.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    /// An annotation names the cluster of this member.
    Annotated(usize),
    /// A precondition identifies an object of this member by its uid, by its resourceVersion, or by both.
    Object {
        member: usize,
        uid: Option<String>,
        /// The object's state whose resourceVersion is in the precondition.
        state: Option<State>,
    },
    /// The write has no annotation and no precondition, so it affects the object with this name in the only cluster
    /// that has one.
    Bare(Bare),
}

/// The possible knowledge of a router when it receives a write without annotation and precondition.
///
/// The write must not land if the router could know of another cluster's object with the same name. This rule applies
/// to each cluster that the router had before the write and still has after the write. The object must have existed
/// without interruption in one of these periods:
///
/// * since the version of the cluster that the router served just before the write. The router's watch may lack later
///   objects while the cluster is disconnected, which is no defect;
/// * since the arrival of the write, if the router had no version of the cluster. The router must then ask the cluster
///   or refuse the write;
/// * since the arrival of the write, if the write creates the object, because the router asks all clusters then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bare {
    pub(crate) known: Vec<Known>,
}

#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) cluster: String,
    /// The number of the configuration change that added the cluster to all routers.
    pub(crate) settled: u64,
    /// The version of the cluster that the router served just before the write.
    pub(crate) version: Option<Component>,
    /// The last step in the cluster's history when the router received the write.
    pub(crate) step: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The unique value that the write sets in the object. A deletion sets no value, so its marker only identifies the
    /// write.
    pub(crate) marker: String,
    pub(crate) verb: Verb,
    /// The object's key, `namespace/name`.
    pub(crate) key: String,
    pub(crate) meaning: Meaning,
}

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) member: usize,
    /// The object's key, `namespace/name`.
    pub(crate) key: String,
    /// The state before the change; `None` if the object did not exist.
    pub(crate) before: Option<State>,
    /// The state after the change; `None` if the object was deleted.
    pub(crate) after: Option<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// An error response which implies that the write was not carried out.
    Refused(u16),
    /// A response after which the write may or may not have been carried out.
    Lost(u16),
}

#[derive(Debug)]
struct Entry {
    write: Write,
    outcome: Option<Outcome>,
    landed: Option<Change>,
}

/// All writes of a run, with their responses and changes.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    pub(crate) fn sent(&mut self, write: Write) {
        self.entries.push(Entry { write, outcome: None, landed: None });
    }

    /// Records the response to a write. The caller must record all earlier changes of the members first.
    ///
    /// # Errors
    /// The write was refused but has landed, or it succeeded but has not landed.
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

    /// Records a change of a member that only a client's write can have caused. `truth` and `settled` include the
    /// change.
    ///
    /// # Errors
    /// The write of this change identifies another object, was refused, or has already landed; or no client requested
    /// this deletion.
    pub(crate) fn changed(&mut self, change: &Change, truth: &Truth, settled: &Settled) -> Result<(), Lie> {
        let Some(after) = &change.after else { return self.deleted(change, truth, settled) };
        let written = |entry: &&mut Entry| entry.write.verb != Verb::Delete && entry.write.marker == after.value;
        match self.entries.iter_mut().find(written) {
            Some(entry) => entry.lands(change, truth, settled),
            None => Ok(()),
        }
    }

    /// Assigns a deletion to the newest write that can have caused it.
    fn deleted(&mut self, change: &Change, truth: &Truth, settled: &Settled) -> Result<(), Lie> {
        let mut why = Lie(format!("nobody deleted it: {change:?}"));
        let asked = |entry: &&mut Entry| entry.write.verb == Verb::Delete && entry.write.key == change.key;
        for entry in self.entries.iter_mut().rev().filter(asked) {
            match entry.lands(change, truth, settled) {
                Ok(()) => return Ok(()),
                // If no write explains the deletion, the error for a write without a response is the most useful one.
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
    /// Checks that the write identifies the object of this change.
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

    /// Checks that the object before the change fulfills the precondition. An apply that creates the object may have
    /// any resourceVersion. After a restore, the same resourceVersion may belong to another state, so it is not
    /// checked.
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
    /// Returns another cluster that has an object with this name, if the router could know of this object.
    fn rival(&self, change: &Change, truth: &Truth, settled: &Settled) -> Option<&Known> {
        let own = |known: &&Known| NAMES[change.member].contains(&&*known.cluster);
        // If the router knew that this cluster had the object, the router need not treat the write as a create.
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
    /// Returns whether the cluster had the object at the version that the router served, or later.
    fn had(&self, key: &str, truth: &Truth) -> bool {
        truth.history(&self.cluster).is_ok_and(|history| match self.version {
            Some(version) => history.had_since_version(key, version),
            None => history.had_since(key, self.step),
        })
    }
}
