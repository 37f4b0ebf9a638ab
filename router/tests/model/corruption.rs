//! Tests of the model's checker: it accepts a correct history and detects each corruption of the history.

mod writes;

use std::collections::BTreeMap;

use libtest_mimic::{Failed, Trial};
use tokio::time::Duration;
use tributary_simulator::compact;

use crate::follower::{Change, Event, Expectations, Follower, Version};
use crate::schedule::Profile;
use crate::truth::{Clusters, Component, History, Selection, State, Truth, Vector};
use crate::world::{NAMES, World};

type Corrupt = fn(&mut Vec<Event>);

/// The corruptions of a stream. Each simulates a defect in the merge, the cacher or the router.
const CORRUPTIONS: [(&str, Corrupt); 16] = [
    ("an_event_is_lost", |events| drop(events.remove(3))),
    ("the_last_event_is_lost", |events| drop(events.remove(6))),
    ("an_event_comes_twice", |events| {
        let again = events[3].clone();
        events.insert(4, again);
    }),
    ("two_events_change_places", |events| events.swap(2, 4)),
    ("a_version_runs_ahead", |events| set(&mut events[0], "a", 13)),
    ("a_version_of_another_cluster_runs_ahead", |events| set(&mut events[0], "b", 6)),
    ("a_version_goes_back", |events| set(&mut events[4], "a", 11)),
    ("a_version_loses_a_cluster", |events| {
        change_vector(&mut events[4], |vector| vector.retain(|name, _| name != "b"));
    }),
    ("a_version_has_a_cluster_that_never_was", |events| set(&mut events[4], "c", 1)),
    ("a_bookmark_runs_ahead", |events| {
        let ahead = Event::Bookmark { vector: vector(13, 6), initial_end: false };
        events.insert(1, ahead);
    }),
    ("a_deletion_is_shown_as_a_change", |events| replace(&mut events[5], Change::Modified, "v2")),
    ("a_change_is_shown_as_an_addition", |events| replace(&mut events[3], Change::Added, "v3")),
    ("a_state_that_never_was", |events| replace(&mut events[3], Change::Modified, "v4")),
    ("a_state_of_before", |events| replace(&mut events[3], Change::Modified, "v1")),
    ("a_deletion_without_the_other_cluster_of_that_name", |events| {
        events.remove(7);
        set(&mut events[6], "a", 15);
    }),
    ("an_end_of_initial_events_that_are_none", |events| {
        events.push(Event::Bookmark { vector: vector(15, 6), initial_end: true });
    }),
];

/// The corruptions of a stream whose objects have integer resourceVersions.
const CORRUPTIONS_OF_INTEGERS: [(&str, Corrupt); 8] = [
    ("an_event_is_lost", |events| drop(events.remove(3))),
    ("the_last_event_is_lost", |events| drop(events.remove(6))),
    ("an_event_comes_twice", |events| {
        let again = events[3].clone();
        events.insert(4, again);
    }),
    ("an_integer_of_another_revision", |events| set_item(&mut events[3], "a", 12)),
    ("an_integer_of_another_cluster", |events| set_item(&mut events[3], "b", 13)),
    ("a_deletion_with_the_integer_of_what_it_deletes", |events| set_item(&mut events[5], "a", 12)),
    ("a_bookmark_runs_ahead", |events| {
        events.insert(1, Event::Bookmark { vector: vector(13, 6), initial_end: false });
    }),
    ("a_deletion_without_the_other_cluster_of_that_name", |events| drop(events.remove(7))),
];

pub(crate) fn trials() -> Vec<Trial> {
    let name = |name: &str| format!("checker::{name}");
    let mut trials = vec![
        Trial::test(name("the_truth_passes"), || {
            told(&Selection::default(), &truth(), &stream()).map_err(Failed::from)
        }),
        Trial::test(name("the_truth_with_integers_passes"), || {
            told(&Selection::default(), &truth(), &stream_of_integers()).map_err(Failed::from)
        }),
        Trial::test(name("question_for_the_latest_version_explains_no_refusal"), refused_in_a_calm_run),
        Trial::test(name("pages_of_two_states_are_found_out"), pages_of_two_states),
        Trial::test(name("pages_that_continue_at_another_state_are_checked"), pages_that_go_on_elsewhere),
        Trial::test(name("event_of_an_unselected_cluster_is_found_out"), || {
            let clusters = Clusters { among: false, names: vec!["b".to_owned()] };
            let selection = Selection { clusters: Some(clusters), ..Selection::default() };
            told_until(&selection, &stream()[..1])?;
            found_out(told_until(&selection, &stream()[1..2]).map(drop))
        }),
        Trial::test(name("optional_event_after_a_deletion_excuses_no_other_event"), perhaps_owed),
        Trial::test(name("deletion_repeated_after_a_relist_excuses_no_other_event"), deleted_again),
        Trial::test(name("restore_is_undetectable_only_if_it_keeps_the_clients_version"), undone),
        Trial::test(name("object_of_a_replaced_cluster_is_found_out"), replaced),
        Trial::test(name("unselected_object_without_an_event_is_found_out"), || found_out(unselected())),
        Trial::test(name("event_beyond_its_version_is_found_out"), || {
            let expected = Expectations { calm: false, ..Expectations::default() };
            let told = |event: &Event| {
                let mut follower = Follower::listed(Selection::default(), objects(&truth(), 13, 6), vector(13, 6));
                follower.observe(&truth(), &expected, event).map_err(|lie| lie.to_string())
            };
            told(&event(Change::Deleted, "a", "n/y", "v2", vector(13, 6)))?;
            let mut truth = truth();
            if let Some(a) = truth.clusters.get_mut("a") {
                a.changed(16, "n/x", Some(state("v6")));
            }
            let mut follower = Follower::listed(Selection::default(), objects(&truth, 15, 6), vector(15, 6));
            let early = event(Change::Added, "a", "n/x", "v6", vector(15, 6));
            found_out(follower.observe(&truth, &expected, &early).map_err(|lie| lie.to_string()))
        }),
        Trial::test(name("departed_cluster_without_deletions_is_found_out"), || {
            let mut follower = Follower::listed(Selection::default(), objects(&truth(), 13, 6), vector(13, 6));
            let left = Event::Bookmark { vector: [("b".to_owned(), 6.into())].into(), initial_end: false };
            let expected = Expectations { calm: false, may_go_back: ["a".to_owned()].into() };
            found_out(follower.observe(&truth(), &expected, &left).map_err(|lie| lie.to_string()))
        }),
    ];
    for (what, corrupt) in CORRUPTIONS {
        trials.push(Trial::test(name(&format!("{what}_is_found_out")), move || {
            let mut events = stream();
            corrupt(&mut events);
            found_out(told(&Selection::default(), &truth(), &events))
        }));
    }
    for (what, corrupt) in CORRUPTIONS_OF_INTEGERS {
        trials.push(Trial::test(name(&format!("with_integers_{what}_is_found_out")), move || {
            let mut events = stream_of_integers();
            corrupt(&mut events);
            found_out(told(&Selection::default(), &truth(), &events))
        }));
    }
    trials.extend(writes::trials());
    trials
}

fn found_out(result: Result<(), String>) -> Result<(), Failed> {
    result.err().map(drop).ok_or_else(|| "it was taken for the truth".into())
}

fn state(value: &str) -> State {
    let color = if value == "v3" { "red" } else { "blue" };
    State { uid: "u".into(), value: value.into(), color: color.into(), service_type: "ClusterIP".into() }
}

fn vector(a: u64, b: u64) -> Vector {
    [("a".to_owned(), a.into()), ("b".to_owned(), b.into())].into()
}

/// Returns the histories of two members: `a` with the objects x and y, `b` with the objects x and z.
fn truth() -> Truth {
    let (mut a, mut b) = (History::new(10, ""), History::new(4, ""));
    for (revision, key, value) in
        [(11, "n/x", "v1"), (12, "n/y", "v2"), (13, "n/x", "v3"), (14, "n/y", ""), (15, "n/x", "")]
    {
        a.changed(revision, key, (!value.is_empty()).then(|| state(value)));
    }
    b.changed(5, "n/x", Some(state("w1")));
    b.changed(6, "n/z", Some(state("w2")));
    Truth { clusters: [("a".to_owned(), a), ("b".to_owned(), b)].into() }
}

fn event(change: Change, cluster: &str, key: &str, value: &str, vector: Vector) -> Event {
    Event::Object {
        change,
        cluster: cluster.into(),
        key: key.into(),
        state: state(value),
        version: Version::Vector(vector),
    }
}

/// Returns the events that a client must receive after a list of the initial state.
fn stream() -> Vec<Event> {
    use Change::{Added, Deleted, Modified};
    vec![
        event(Added, "a", "n/x", "v1", vector(11, 4)),
        event(Added, "b", "n/x", "w1", vector(11, 5)),
        event(Added, "a", "n/y", "v2", vector(12, 5)),
        event(Modified, "a", "n/x", "v3", vector(13, 5)),
        event(Added, "b", "n/z", "w2", vector(13, 6)),
        event(Deleted, "a", "n/y", "v2", vector(14, 6)),
        event(Deleted, "a", "n/x", "v3", vector(14, 6)),
        event(Added, "b", "n/x", "w1", vector(15, 6)),
        Event::Bookmark { vector: vector(15, 6), initial_end: false },
    ]
}

/// Returns the events of [`stream`] with integer resourceVersions: the revision of the object or of its deletion.
fn stream_of_integers() -> Vec<Event> {
    let mut events = stream();
    for (event, revision) in events.iter_mut().zip([11, 5, 12, 13, 6, 14, 15, 5]) {
        if let Event::Object { cluster, version, .. } = event {
            *version = Version::Item(cluster.clone(), revision);
        }
    }
    events
}

/// Passes all events to a client of a run without faults, and compares its final state with the members' objects.
fn told(selection: &Selection, truth: &Truth, events: &[Event]) -> Result<(), String> {
    let expected = Expectations { calm: true, ..Expectations::default() };
    let mut follower = Follower::listed(selection.clone(), BTreeMap::new(), vector(10, 4));
    for event in events {
        follower.observe(truth, &expected, event).map_err(|lie| lie.to_string())?;
    }
    if follower.is_complete() && follower.objects == objects(truth, 15, 6) {
        Ok(())
    } else {
        Err(format!("the client ends with {:?}", follower.objects))
    }
}

/// Returns the objects of `a` at revision `a`, and the objects of `b` at revision `b`.
fn objects(truth: &Truth, a: u64, b: u64) -> BTreeMap<(String, String), State> {
    let mut objects = BTreeMap::new();
    for (cluster, revision) in vector(a, b) {
        for key in ["n/x", "n/y", "n/z"] {
            for value in ["v1", "v2", "v3", "w1", "w2"] {
                let state = state(value);
                let history = &truth.clusters[&cluster];
                if history.is_at(&Selection::default(), key, Some(&state), revision) {
                    objects.insert((cluster.clone(), key.to_owned()), state);
                }
            }
        }
    }
    objects
}

/// A router may refuse a version from before its last relist of a member. To get a member's latest revision, a router
/// lists a single object. Such a list is no relist, and no reason to refuse a version.
fn refused_in_a_calm_run() -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let calm = (0..).map(Profile::of).find(|profile| profile.quorum && profile.expectations().calm);
        let world = World::start(Profile { watch_list: false, ..calm.ok_or("no calm run has Quorum")? }).await?;
        let list = || world.get(0, "/api/v1/services");
        list().await?;
        let control = world.members[0].control();
        let [own, other] = [NAMES[0][0], NAMES[1][0]];
        let explained = |code, cluster: &str, revision: u64| {
            world.is_explained(code, &[(cluster.to_owned(), revision.into())].into())
        };
        if !control.lists().iter().any(|list| list.limit == 1) {
            return Err("nobody asked for a version".into());
        }
        if explained(410, own, 0) || explained(429, own, 0) {
            return Err("a question for the latest version explains a refusal".into());
        }
        control.expire_watches();
        // The sleep is longer than the router's longest delay between two attempts.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let listed = control.lists().iter().filter(|list| list.limit != 1).map(|list| list.revision).max();
        let listed = listed.unwrap_or_default();
        if !explained(410, own, listed - 1) {
            return Err("a list does not explain that versions before it are not known".into());
        }
        if explained(429, own, listed - 1) || explained(410, own, listed) || explained(410, other, 0) {
            return Err("a list explains more than that versions before it are not known".into());
        }
        Ok(())
    })
}

fn pages_of_two_states() -> Result<(), Failed> {
    let truth = truth();
    let selection = Selection::default();
    for (a, b) in [(10, 4), (12, 5), (13, 6), (15, 6)] {
        truth.is_state(&selection, &objects(&truth, a, b), &vector(a, b))?;
    }
    // The second page is from a newer state than the first page, so the checker must reject the two pages.
    let mut pages = objects(&truth, 12, 5);
    pages.extend(objects(&truth, 12, 6));
    found_out(truth.is_state(&selection, &pages, &vector(12, 5)).map_err(|lie| lie.to_string()))
}

/// If a list continues with a newer state, the remaining pages must have exactly that state.
fn pages_that_go_on_elsewhere() -> Result<(), Failed> {
    let (truth, selection) = (truth(), Selection::default());
    let place = |cluster: &str, key: &str| (cluster.to_owned(), key.to_owned());
    let after = place("a", "n/x");
    let mut rest = objects(&truth, 13, 6);
    rest.remove(&after);
    let is_rest = |rest: &_| truth.is_state_after(&selection, rest, &vector(13, 6), &after);
    is_rest(&rest)?;
    let mut wrong = rest.clone();
    wrong.remove(&place("a", "n/y"));
    found_out(is_rest(&wrong).map_err(|lie| lie.to_string()))?;
    let mut wrong = rest.clone();
    wrong.insert(after.clone(), state("v3"));
    found_out(is_rest(&wrong).map_err(|lie| lie.to_string()))?;
    rest.insert(place("b", "n/z"), state("w1"));
    found_out(is_rest(&rest).map_err(|lie| lie.to_string()))
}

/// Two clusters have an object with the same name. A client has received the deletion of one object, but its version
/// does not cover the deletion. When the other cluster's object is deleted, the router sends the first object again. If
/// the version covers the deletion, the router does not send the object. In both cases an omitted event is an error.
fn perhaps_owed() -> Result<(), Failed> {
    use Change::{Added, Deleted};
    let mut truth = truth();
    if let Some(b) = truth.clusters.get_mut("b") {
        b.changed(7, "n/x", None);
    }
    let told = |own: u64, events: &[Event]| {
        let mut has = objects(&truth, 14, 6);
        has.remove(&("b".to_owned(), "n/x".to_owned()));
        let mut follower = Follower::listed(Selection::default(), has, vector(14, own));
        follower.resumed(&truth);
        let expected = Expectations { calm: true, ..Expectations::default() };
        let mut told = events.iter().map(|event| follower.observe(&truth, &expected, event));
        told.find_map(Result::err).map_or(Ok(()), |lie| Err(lie.to_string()))
    };
    let events = [
        event(Deleted, "a", "n/x", "v3", vector(14, 6)),
        event(Added, "b", "n/x", "w1", vector(15, 6)),
        event(Deleted, "b", "n/x", "w1", vector(15, 7)),
        Event::Bookmark { vector: vector(15, 7), initial_end: false },
    ];
    told(6, &events)?;
    found_out(told(7, &[event(Deleted, "a", "n/x", "v3", vector(14, 7))]))?;
    found_out(told(6, &[events[0].clone(), Event::Bookmark { vector: vector(14, 6), initial_end: false }]))?;
    found_out(told(6, &[events[0].clone(), event(Added, "b", "n/x", "w1", vector(14, 6))]))?;
    found_out(told(6, &events[3..]))
}

/// A client's version covers a revision with several deletions. If a router received only the first deletion before a
/// relist, the router may send the later deletions again. The router must not send the first deletion again. Without a
/// relist, the router must not repeat any deletion.
fn deleted_again() -> Result<(), Failed> {
    let mut truth = truth();
    for (revision, key, value) in [(16, "n/x", "v1"), (17, "n/y", "v1"), (18, "n/y", "v2")] {
        truth.clusters.get_mut("a").ok_or("there is no a")?.changed(revision, key, Some(state(value)));
    }
    for key in ["n/x", "n/y"] {
        truth.clusters.get_mut("a").ok_or("there is no a")?.changed(19, key, None);
    }
    let mut told = |listed: Option<u64>, resumes: bool, events: &[(&str, &str)]| {
        if let Some(a) = truth.clusters.get_mut("a") {
            a.listed_anew = listed;
        }
        let mut follower = Follower::listed(Selection::default(), objects(&truth, 19, 6), vector(19, 6));
        if resumes {
            follower.resumed(&truth);
        }
        let expected = Expectations { calm: true, ..Expectations::default() };
        let mut told = events.iter().map(|(key, value)| {
            follower.observe(&truth, &expected, &event(Change::Deleted, "a", key, value, vector(19, 6)))
        });
        told.find_map(Result::err).map_or(Ok(()), |lie| Err(lie.to_string()))
    };
    told(Some(20), true, &[("n/y", "v2")])?;
    found_out(told(Some(20), true, &[("n/y", "v2"), ("n/y", "v2")]))?;
    found_out(told(Some(20), true, &[("n/x", "v1")]))?;
    found_out(told(Some(20), true, &[("n/y", "v1")]))?;
    found_out(told(Some(20), false, &[("n/y", "v2")]))?;
    found_out(told(Some(19), true, &[("n/y", "v2")]))?;
    found_out(told(None, true, &[("n/y", "v2")]))
}

/// No router can detect a restore that preserves the client's version and undoes later changes. A restore that undoes
/// the version itself must be detected.
fn undone() -> Result<(), Failed> {
    let before = truth();
    let mut after = before.clone();
    if let Some(a) = after.clusters.get_mut("a") {
        a.restored(15, 11);
    }
    for (has, version, truth, expected) in
        [(12, 11, &after, true), (12, 11, &before, false), (11, 11, &after, false), (15, 15, &after, false)]
    {
        let follower = Follower::listed(Selection::default(), objects(&before, has, 6), vector(version, 6));
        if follower.is_undone(truth) != expected {
            return Err(format!("who has {has} and says {version}: {}", !expected).into());
        }
    }
    Ok(())
}

/// A new cluster with lower revisions replaces the cluster `a`. A response must not show objects of one of these
/// clusters under a version of the other. A version of the earlier cluster is no version of the new cluster.
fn replaced() -> Result<(), Failed> {
    let mut truth = truth();
    let a = truth.clusters.get_mut("a").ok_or("there is no a")?;
    a.replaced(15, "another".to_owned());
    a.changed(3, "n/w", Some(state("v5")));
    a.changed(13, "n/y", Some(state("v6")));
    let mark = compact::mark("another");
    let version = |a: &str| -> Result<Vector, Failed> {
        let component = Component::parse(a).ok_or_else(|| format!("{a} is no component"))?;
        Ok([("a".to_owned(), component), ("b".to_owned(), 6.into())].into())
    };
    let (earlier, new) = (version("13")?, version(&format!("13@{mark:08x}"))?);
    let has = |own: &[(&str, &str)]| {
        let others = [("b", "n/x", "w1"), ("b", "n/z", "w2")];
        let own = own.iter().map(|(key, value)| ("a", *key, *value));
        let objects = others.into_iter().chain(own);
        objects.map(|(cluster, key, value)| ((cluster.to_owned(), key.to_owned()), state(value))).collect()
    };
    let (of_earlier, of_new) = (has(&[("n/x", "v3"), ("n/y", "v2")]), has(&[("n/w", "v5"), ("n/y", "v6")]));
    let mixed = has(&[("n/x", "v3"), ("n/w", "v5"), ("n/y", "v6")]);
    let listed =
        |objects, version| truth.is_state(&Selection::default(), objects, version).map_err(|lie| lie.to_string());
    listed(&of_earlier, &earlier)?;
    listed(&of_new, &new)?;
    for (objects, version) in [(&of_earlier, &new), (&of_new, &earlier), (&mixed, &new), (&mixed, &earlier)] {
        found_out(listed(objects, version))?;
    }
    let expected = Expectations { calm: false, may_go_back: ["a".to_owned()].into() };
    let told = |events: &[Event]| {
        let mut follower = Follower::listed(Selection::default(), of_earlier.clone(), earlier.clone());
        follower.resumed(&truth);
        let mut told = events.iter().map(|event| follower.observe(&truth, &expected, event));
        told.find_map(Result::err).map_or(Ok(()), |lie| Err(lie.to_string()))
    };
    let bookmark = || Event::Bookmark { vector: new.clone(), initial_end: false };
    let leaves = version("0")?;
    let events = [
        event(Change::Deleted, "a", "n/x", "v3", leaves.clone()),
        event(Change::Added, "b", "n/x", "w1", leaves.clone()),
        event(Change::Deleted, "a", "n/y", "v2", leaves),
        event(Change::Added, "a", "n/w", "v5", version(&format!("3@{mark:08x}"))?),
        event(Change::Added, "a", "n/y", "v6", new.clone()),
    ];
    told(&events)?;
    // The checker must detect that the version of the earlier cluster is used for the new cluster.
    found_out(told(&[bookmark()]))?;
    // The checker must detect that an object of the earlier cluster stays.
    found_out(told(&[&events[2..], &[bookmark()]].concat()))
}

/// A client that selects blue objects must receive a DELETED event when an object turns red.
fn unselected() -> Result<(), String> {
    let selection = Selection { color: Some("blue".to_owned()), ..Selection::default() };
    let events: Vec<_> = stream().into_iter().take(3).collect();
    told_until(&selection, &events).and_then(|mut follower| {
        let expected = Expectations::default();
        let bookmark = Event::Bookmark { vector: vector(13, 6), initial_end: false };
        follower.observe(&truth(), &expected, &bookmark).map_err(|lie| lie.to_string())
    })
}

fn told_until(selection: &Selection, events: &[Event]) -> Result<Follower, String> {
    let expected = Expectations { calm: true, ..Expectations::default() };
    let mut follower = Follower::listed(selection.clone(), BTreeMap::new(), vector(10, 4));
    for event in events {
        follower.observe(&truth(), &expected, event).map_err(|lie| lie.to_string())?;
    }
    Ok(follower)
}

fn change_vector(event: &mut Event, change: impl FnOnce(&mut Vector)) {
    match event {
        Event::Object { version: Version::Vector(vector), .. } | Event::Bookmark { vector, .. } => change(vector),
        Event::Object { version: Version::Item(..), .. } => {}
    }
}

fn set(event: &mut Event, cluster: &str, revision: u64) {
    change_vector(event, |vector| {
        vector.insert(cluster.to_owned(), revision.into());
    });
}

fn set_item(event: &mut Event, cluster: &str, revision: u64) {
    if let Event::Object { version, .. } = event {
        *version = Version::Item(cluster.to_owned(), revision);
    }
}

fn replace(event: &mut Event, to: Change, value: &str) {
    if let Event::Object { change, state: own, .. } = event {
        (*change, *own) = (to, state(value));
    }
}
