//! What was written through the routers, and where it arrived: a pure account, so that a table can test it.
//!
//! Every write has a marker, which the members' histories show again. A write *lands* where a change of a member
//! carries its marker, or where a deletion can be that of nobody else. It may land in one object at most, in the one
//! that was meant, and not at all once it was refused; one that was answered 2xx has landed.

use std::collections::BTreeMap;

use crate::truth::{Component, Lie, State, Truth};
use crate::world::NAMES;

/// The clusters that every router has, and none is about to lose, each with the change of the configuration since
/// which that is so.
pub(crate) type Settled = BTreeMap<String, u64>;

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Server-side apply: makes what is not there.
    Apply,
    /// A JSON merge patch.
    Merge,
    /// PUT.
    Replace,
    /// DELETE.
    Delete,
}

/// What a write says of the object that it means.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    /// Its annotation names a cluster of this member.
    Annotated(usize),
    /// It depends on an object of this member, by its uid, its version, or both.
    Object {
        /// The member that has it.
        member: usize,
        /// The uid that the write names.
        uid: Option<String>,
        /// The state whose version the write names: no two states of an object are alike.
        state: Option<State>,
    },
    /// Nothing: the one object of the name.
    Bare(Bare),
}

/// What a router could know when a bare write was sent to it.
///
/// The write must not land while another cluster has an object of the name, too, and the router could know that. It
/// could, of each cluster that it had before the write and has still after it, if that object has been there without a
/// gap
///
/// * since the version up to which the router itself had told the cluster's objects a moment before. What was made
///   after that version, the router's watch may not have told it yet, for as long as the cluster is cut off: no fault;
/// * since the write was sent, where the router had no version of the cluster: it is unknown, whatever it has had from
///   the start, so it must be asked or the write refused;
/// * since the write was sent, for one that makes the object: then all clusters are asked, whatever is known of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bare {
    /// What it knew of each cluster that it had.
    pub(crate) known: Vec<Known>,
}

/// What a router knew of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The cluster's name.
    pub(crate) cluster: String,
    /// Since which change of the configuration the routers have it.
    pub(crate) settled: u64,
    /// The version up to which it had told its objects.
    pub(crate) version: Option<Component>,
    /// The cluster's last step when the write was sent.
    pub(crate) step: usize,
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The value that it sets; a deletion's is only its name.
    pub(crate) marker: String,
    /// How it writes.
    pub(crate) verb: Verb,
    /// The object's `namespace/name`.
    pub(crate) key: String,
    /// Which object it means.
    pub(crate) meaning: Meaning,
}

/// One change of one object of a member, as the member's history has it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The member.
    pub(crate) member: usize,
    /// The object's `namespace/name`.
    pub(crate) key: String,
    /// The object before it; `None` where there was none.
    pub(crate) before: Option<State>,
    /// The object after it; `None` where it is gone.
    pub(crate) after: Option<State>,
}

/// How a write was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 2xx.
    Done,
    /// Not done, and the answer does not say that it may have been.
    Refused(u16),
    /// Nobody knows.
    Lost(u16),
}

/// A write and what has become of it.
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
    /// Notes a write that is about to be sent.
    pub(crate) fn sent(&mut self, write: Write) {
        self.entries.push(Entry { write, outcome: None, landed: None });
    }

    /// Notes how a write was answered. All changes up to now are noted before.
    ///
    /// # Errors
    /// It was refused and has landed, or was done and has not.
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

    /// Notes a change of a member that nobody made but a client. `truth` and `settled` are as of now, after the change.
    ///
    /// # Errors
    /// It is that of a write which means another object, was refused, or has landed before; or a deletion that nobody
    /// asked for.
    pub(crate) fn changed(&mut self, change: &Change, truth: &Truth, settled: &Settled) -> Result<(), Lie> {
        let Some(after) = &change.after else { return self.deleted(change, truth, settled) };
        let written = |entry: &&mut Entry| entry.write.verb != Verb::Delete && entry.write.marker == after.value;
        match self.entries.iter_mut().find(written) {
            Some(entry) => entry.lands(change, truth, settled),
            None => Ok(()),
        }
    }

    /// Notes a deletion: that of the newest write that can have made it.
    fn deleted(&mut self, change: &Change, truth: &Truth, settled: &Settled) -> Result<(), Lie> {
        let mut why = Lie(format!("nobody deleted it: {change:?}"));
        let asked = |entry: &&mut Entry| entry.write.verb == Verb::Delete && entry.write.key == change.key;
        for entry in self.entries.iter_mut().rev().filter(asked) {
            match entry.lands(change, truth, settled) {
                Ok(()) => return Ok(()),
                // What was settled long ago says nothing.
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
    /// Whether it means the object of this change.
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

    /// Whether the object was as the precondition says. A version says nothing of an object that an apply makes anew,
    /// nor where the member's revisions went back: then another state may have it.
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
    /// A cluster that the router could know to have an object of the name, too.
    fn rival(&self, change: &Change, truth: &Truth, settled: &Settled) -> Option<&Known> {
        let own = |known: &&Known| NAMES[change.member].contains(&&*known.cluster);
        // Whoever is known to have had it may be taken for the only one that has it.
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
    /// Whether the cluster has had an object, at its version or since.
    fn had(&self, key: &str, truth: &Truth) -> bool {
        truth.history(&self.cluster).is_ok_and(|history| match self.version {
            Some(version) => history.had_since_version(key, version),
            None => history.had_since(key, self.step),
        })
    }
}
