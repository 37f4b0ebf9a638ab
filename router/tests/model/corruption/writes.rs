//! Tests of the ledger, which records writes: it accepts correct writes and detects a write to a wrong object.

use libtest_mimic::{Failed, Trial};

use super::found_out;
use crate::ledger::{Bare, Change, Known, Ledger, Meaning, Outcome, Settled, Verb, Write};
use crate::truth::{Component, History, Lie, State, Truth};

const KEY: &str = "n/x";

/// A step of a test: a client sends a write, a member changes, or a router answers.
type Step = fn(&mut Ledger) -> Result<(), Lie>;

/// Correct runs, which the ledger must accept.
const RIGHT: [(&str, &[Step]); 10] = [
    ("annotated_write_in_the_named_cluster", &[annotated, |to| put(to, 0, None), done]),
    ("a_write_that_was_refused_everywhere", &[annotated, refused]),
    ("a_write_whose_answer_was_lost_and_that_arrives_late", &[annotated, lost, |to| put(to, 0, None)]),
    ("a_write_whose_answer_was_lost_and_that_never_arrives", &[annotated, lost]),
    ("a_version_of_the_object_that_is_there", &[of_version, |to| put(to, 1, Some("v2")), done]),
    ("a_uid_of_the_object_that_is_there", &[of_uid, |to| put(to, 1, Some("v2")), done]),
    ("a_deletion_by_uid", &[deletes_by_uid, |to| gone(to, 1, "v2"), done]),
    ("bare_write_of_a_name_in_one_cluster", &[|to| bare(to, None), |to| put(to, 1, Some("v2")), done]),
    // The first member has the object since revision 12, but the router's version of this member is 10. So the router
    // cannot know of the object.
    ("bare_write_beside_an_object_not_seen_yet", &[|to| bare(to, Some(10)), |to| put(to, 1, Some("v2")), done]),
    (
        "a_deletion_after_one_that_was_refused",
        &[
            deletes_by_uid,
            refused,
            |to| deletes(to, "w1"),
            |to| gone(to, 1, "v2"),
            |to| to.answered("w1", Outcome::Done),
        ],
    ),
];

/// Runs in which the router writes to a wrong object. The last step must be detected.
const WRONG: [(&str, &[Step]); 14] = [
    ("an_annotated_write_in_another_cluster", &[annotated, |to| put(to, 1, None)]),
    ("a_write_in_two_clusters", &[|to| bare(to, None), |to| put(to, 1, None), |to| put(to, 2, None)]),
    ("a_write_that_lands_twice", &[annotated, |to| put(to, 0, None), |to| put(to, 0, Some("w0"))]),
    ("a_refused_write_that_lands", &[annotated, |to| put(to, 0, None), refused]),
    ("a_refused_write_that_lands_later", &[annotated, refused, |to| put(to, 0, None)]),
    ("a_write_that_was_done_nowhere", &[annotated, done]),
    ("a_write_of_another_name", &[annotated, |to| changed(to, 0, "n/y", None, Some("w0"))]),
    ("a_version_of_another_cluster", &[of_version, |to| put(to, 0, Some("v2"))]),
    ("a_version_that_is_not_there_any_more", &[of_version, |to| put(to, 1, Some("v3"))]),
    ("a_uid_of_another_object", &[of_uid, |to| put(to, 1, Some("other"))]),
    ("bare_write_beside_a_known_object_of_the_name", &[|to| bare(to, Some(12)), |to| put(to, 1, Some("v2"))]),
    // The first member has the object, and the router has no version of this member. The router must then ask the
    // member or refuse the write.
    ("bare_write_beside_an_object_in_an_unknown_cluster", &[|to| bare(to, Some(0)), |to| put(to, 1, Some("v2"))]),
    ("a_deletion_that_nobody_asked_for", &[|to| gone(to, 1, "v2")]),
    ("a_deletion_of_another_object", &[deletes_by_uid, |to| gone(to, 0, "v2")]),
];

pub(super) fn trials() -> Vec<Trial> {
    let right = RIGHT.into_iter().map(|(what, steps)| {
        Trial::test(format!("checker::writes::{what}_passes"), move || Ok(play(steps).map_err(|lie| lie.0)?))
    });
    let wrong = WRONG.into_iter().map(|(what, steps)| {
        Trial::test(format!("checker::writes::{what}_is_found_out"), move || {
            let Some((last, before)) = steps.split_last() else { return Err(Failed::from("nothing happens")) };
            let mut ledger = Ledger::default();
            before.iter().try_for_each(|step| step(&mut ledger)).map_err(|lie| lie.0)?;
            found_out(last(&mut ledger).map_err(|lie| lie.0))
        })
    });
    right.chain(wrong).collect()
}

fn play(steps: &[Step]) -> Result<(), Lie> {
    let mut ledger = Ledger::default();
    steps.iter().try_for_each(|step| step(&mut ledger))
}

fn sent(ledger: &mut Ledger, marker: &str, verb: Verb, meaning: Meaning) -> Result<(), Lie> {
    ledger.sent(Write { marker: marker.to_owned(), verb, key: KEY.to_owned(), meaning });
    Ok(())
}

fn annotated(ledger: &mut Ledger) -> Result<(), Lie> {
    sent(ledger, "w0", Verb::Apply, Meaning::Annotated(0))
}

fn of_version(ledger: &mut Ledger) -> Result<(), Lie> {
    sent(ledger, "w0", Verb::Replace, Meaning::Object { member: 1, uid: None, state: Some(state("v2")) })
}

fn of_uid(ledger: &mut Ledger) -> Result<(), Lie> {
    sent(ledger, "w0", Verb::Merge, Meaning::Object { member: 1, uid: Some("uid of v2".to_owned()), state: None })
}

fn deletes_by_uid(ledger: &mut Ledger) -> Result<(), Lie> {
    sent(ledger, "w0", Verb::Delete, Meaning::Object { member: 1, uid: Some("uid of v2".to_owned()), state: None })
}

fn deletes(ledger: &mut Ledger, marker: &str) -> Result<(), Lie> {
    sent(ledger, marker, Verb::Delete, Meaning::Bare(Bare::default()))
}

/// Sends a write that does not identify its object. `known` is the router's revision of the first member: 0 if the
/// router has no revision, and `None` if the router does not have the cluster.
fn bare(ledger: &mut Ledger, known: Option<u64>) -> Result<(), Lie> {
    let known = known.map(|revision| Known {
        cluster: "ap".to_owned(),
        settled: 1,
        version: (revision > 0).then(|| Component::from(revision)),
        step: truth().clusters["ap"].last_step(),
    });
    sent(ledger, "w0", Verb::Merge, Meaning::Bare(Bare { known: known.into_iter().collect() }))
}

fn done(ledger: &mut Ledger) -> Result<(), Lie> {
    ledger.answered("w0", Outcome::Done)
}

fn refused(ledger: &mut Ledger) -> Result<(), Lie> {
    ledger.answered("w0", Outcome::Refused(409))
}

fn lost(ledger: &mut Ledger) -> Result<(), Lie> {
    ledger.answered("w0", Outcome::Lost(504))
}

fn put(ledger: &mut Ledger, member: usize, before: Option<&str>) -> Result<(), Lie> {
    changed(ledger, member, KEY, before, Some("w0"))
}

fn gone(ledger: &mut Ledger, member: usize, before: &str) -> Result<(), Lie> {
    changed(ledger, member, KEY, Some(before), None)
}

fn changed(
    ledger: &mut Ledger,
    member: usize,
    key: &str,
    before: Option<&str>,
    after: Option<&str>,
) -> Result<(), Lie> {
    let (before, after) = (before.map(state), after.map(state));
    let settled: Settled = [("ap".to_owned(), 1)].into();
    ledger.changed(&Change { member, key: key.to_owned(), before, after }, &truth(), &settled)
}

/// Returns histories in which the first member has the object since revision 12.
fn truth() -> Truth {
    let mut first = History::new(10, "");
    first.changed(11, "n/z", Some(state("v0")));
    first.changed(12, KEY, Some(state("v1")));
    let others = ["eu", "us"].map(|name| (name.to_owned(), History::new(10, "")));
    Truth { clusters: others.into_iter().chain([("ap".to_owned(), first)]).collect() }
}

fn state(value: &str) -> State {
    State {
        uid: format!("uid of {value}"),
        value: value.to_owned(),
        color: "red".to_owned(),
        service_type: "ClusterIP".to_owned(),
    }
}
