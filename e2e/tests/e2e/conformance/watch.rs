//! Cases for the start, the events and the end of watches.

use super::{
    Conformance, conformance,
    differences::{WATCH_OF_A_FUTURE_VERSION, WATCH_OF_GARBAGE_VERSION},
    target::{Kind, QUIET, SOON, Target, assert_status, ends_initial_events, pod, summary, version_of},
};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};
use tributary_e2e::EventStream;

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["watch";
        watch_without_a_version_starts_with_the_current_objects, watch_at_version_zero_starts_with_the_current_objects,
        watch_from_the_version_of_a_list_sends_nothing_before_a_change, watch_from_the_version_of_a_list_sends_every_change,
        initial_events_end_with_a_bookmark_to_resume_from, initial_events_of_an_empty_namespace_are_one_bookmark,
        watch_with_bookmarks_sends_initial_events_by_default, send_initial_events_false_suppresses_initial_events,
        watch_with_initial_events_accepts_the_version_of_a_list, watch_without_allow_watch_bookmarks_has_no_bookmark,
        watch_ends_at_its_timeout, watch_accepts_any_timeout_in_64_bits, watch_ends_with_a_bookmark_at_its_timeout,
        watch_at_an_invalid_version_is_an_error, watch_at_a_future_version_sends_no_object_events,
        watch_resumes_from_the_version_of_each_event, watch_with_a_label_selector_sends_added_or_deleted_after_a_label_change,
        watch_of_one_object_name_sends_no_other_object, watch_of_a_namespace_sends_no_object_of_other_namespaces,
        deleted_event_has_the_last_state_of_the_object_and_a_new_version, watch_with_version_match_but_without_initial_events_is_422,
        watch_with_initial_events_but_without_version_match_is_422, watch_works_at_the_deprecated_watch_path,
        watch_parameter_accepts_all_boolean_forms, concurrent_watches_send_events_in_the_same_order,
        watch_event_has_the_version_that_the_write_returned, graceful_deletion_of_a_pod_sends_a_modified_and_a_deleted_event,
        watch_response_is_json_without_a_content_length_header, bookmark_has_kind_and_version,
        watch_sends_many_changes_of_each_object_in_order, watch_event_object_has_kind_and_api_version,
    ]
}

/// Reads events until `count` events other than bookmarks have arrived.
pub(super) async fn take(stream: &mut EventStream, count: usize) -> anyhow::Result<Vec<Value>> {
    let mut events = Vec::new();
    while events.len() < count {
        let event = stream.expect(SOON).await?;
        if event["type"] != "BOOKMARK" {
            events.push(event);
        }
    }
    Ok(events)
}

/// Fails if an event other than a bookmark arrives within [`QUIET`].
pub(super) async fn nothing_more(stream: &mut EventStream) -> anyhow::Result<()> {
    let (events, ended) = stream.drain(QUIET).await?;
    let others: Vec<&Value> = events.iter().filter(|event| event["type"] != "BOOKMARK").collect();
    ensure!(others.is_empty(), "unexpected: {others:?}");
    ensure!(!ended, "the stream ended");
    Ok(())
}

async fn expect_initial(stream: &mut EventStream, names: &[String]) -> anyhow::Result<()> {
    let events = take(stream, names.len()).await?;
    ensure!(events.iter().all(|event| event["type"] == "ADDED"), "{events:?}");
    let shown: BTreeSet<String> = events.iter().map(|event| summary(event).1).collect();
    ensure!(shown == names.iter().cloned().collect(), "{shown:?}");
    Ok(())
}

async fn list_version(target: &Target) -> anyhow::Result<String> {
    Ok(version_of(&target.read(&target.maps("")).await?))
}

async fn watch_without_a_version_starts_with_the_current_objects(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(5).await?;
    let mut stream = target.watch_maps("").await?;
    expect_initial(&mut stream, &names).await?;
    nothing_more(&mut stream).await?;
    target.change_map("map-03", "1").await?;
    let event = &take(&mut stream, 1).await?[0];
    ensure!(summary(event) == ("MODIFIED".into(), "map-03".into(), "1".into()), "{event}");
    Ok(())
}

async fn watch_at_version_zero_starts_with_the_current_objects(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(5).await?;
    let mut stream = target.watch_maps("resourceVersion=0").await?;
    expect_initial(&mut stream, &names).await?;
    nothing_more(&mut stream).await
}

async fn watch_from_the_version_of_a_list_sends_nothing_before_a_change(target: Target) -> anyhow::Result<()> {
    target.seed_maps(4).await?;
    let version = list_version(&target).await?;
    let mut stream = target.watch_maps(&format!("resourceVersion={version}")).await?;
    nothing_more(&mut stream).await?;
    target.create_map("later", &[]).await?;
    ensure!(summary(&take(&mut stream, 1).await?[0]).1 == "later", "another object");
    Ok(())
}

async fn watch_from_the_version_of_a_list_sends_every_change(target: Target) -> anyhow::Result<()> {
    target.seed_maps(4).await?;
    let version = list_version(&target).await?;
    target.create_map("new", &[]).await?;
    target.change_map("map-00", "1").await?;
    target.change_map("map-02", "2").await?;
    target.delete_map("new").await?;
    target.delete_map("map-02").await?;
    let mut stream = target.watch_maps(&format!("resourceVersion={version}")).await?;
    let events: BTreeSet<_> = take(&mut stream, 5).await?.iter().map(summary).collect();
    let expected = [
        ("ADDED", "new", "0"),
        ("MODIFIED", "map-00", "1"),
        ("MODIFIED", "map-02", "2"),
        ("DELETED", "new", "0"),
        ("DELETED", "map-02", "2"),
    ];
    let expected = expected.map(|(kind, name, step)| (kind.to_owned(), name.to_owned(), step.to_owned()));
    ensure!(events == BTreeSet::from(expected), "{events:?}");
    nothing_more(&mut stream).await
}

const INITIAL: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Reads the initial events up to the bookmark that ends them.
async fn initial_events(stream: &mut EventStream) -> anyhow::Result<(Vec<Value>, Value)> {
    let mut events = Vec::new();
    loop {
        let event = stream.expect(SOON).await?;
        if ends_initial_events(&event) {
            return Ok((events, event));
        }
        events.push(event);
    }
}

async fn initial_events_end_with_a_bookmark_to_resume_from(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(7).await?;
    let mut stream = target.watch_maps(INITIAL).await?;
    let (events, bookmark) = initial_events(&mut stream).await?;
    let shown: Vec<String> = events.iter().map(|event| summary(event).1).collect();
    ensure!(shown == target.in_list_order(&names), "{shown:?}");
    ensure!(events.iter().all(|event| event["type"] == "ADDED"), "{events:?}");
    // A watch from the bookmark's version repeats no event.
    let mut again = target.watch_maps(&format!("resourceVersion={}", version_of(&bookmark["object"]))).await?;
    nothing_more(&mut again).await?;
    target.change_map("map-01", "1").await?;
    for stream in [&mut stream, &mut again] {
        ensure!(summary(&take(stream, 1).await?[0]).1 == "map-01", "another object");
    }
    Ok(())
}

async fn initial_events_of_an_empty_namespace_are_one_bookmark(target: Target) -> anyhow::Result<()> {
    let mut stream = target.watch_maps(INITIAL).await?;
    let (events, bookmark) = initial_events(&mut stream).await?;
    ensure!(events.is_empty() && !version_of(&bookmark["object"]).is_empty(), "{events:?} {bookmark}");
    let (more, _) = stream.drain(QUIET).await?;
    ensure!(!more.iter().any(ends_initial_events), "the end of initial events came twice");
    Ok(())
}

async fn watch_with_bookmarks_sends_initial_events_by_default(target: Target) -> anyhow::Result<()> {
    target.seed_maps(2).await?;
    for version in ["", "&resourceVersion=0"] {
        let mut stream = target.watch_maps(&format!("allowWatchBookmarks=true{version}")).await?;
        let (events, _) = initial_events(&mut stream).await?;
        ensure!(events.len() == 2, "{events:?}");
    }
    Ok(())
}

async fn send_initial_events_false_suppresses_initial_events(target: Target) -> anyhow::Result<()> {
    target.seed_maps(2).await?;
    for version in ["", "&resourceVersion=0"] {
        let query = format!("sendInitialEvents=false&resourceVersionMatch=NotOlderThan{version}");
        let mut stream = target.watch_maps(&query).await?;
        nothing_more(&mut stream).await?;
        target.change_map("map-00", version).await?;
        ensure!(summary(&take(&mut stream, 1).await?[0]).1 == "map-00", "another object");
    }
    Ok(())
}

async fn watch_with_initial_events_accepts_the_version_of_a_list(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(3).await?;
    let version = list_version(&target).await?;
    let mut stream = target.watch_maps(&format!("{INITIAL}&resourceVersion={version}")).await?;
    let (events, _) = initial_events(&mut stream).await?;
    ensure!(events.len() == names.len(), "{events:?}");
    Ok(())
}

async fn watch_without_allow_watch_bookmarks_has_no_bookmark(target: Target) -> anyhow::Result<()> {
    target.seed_maps(2).await?;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=4";
    let mut stream = target.watch_maps(query).await?;
    let (events, ended) = stream.drain(SOON).await?;
    ensure!(ended && events.len() == 2, "{events:?}");
    ensure!(!events.iter().any(|event| event["type"] == "BOOKMARK"), "{events:?}");
    Ok(())
}

async fn watch_ends_at_its_timeout(target: Target) -> anyhow::Result<()> {
    let started = tokio::time::Instant::now();
    let version = list_version(&target).await?;
    let mut stream = target.watch_maps(&format!("timeoutSeconds=2&resourceVersion={version}")).await?;
    let (events, ended) = stream.drain(SOON).await?;
    ensure!(ended && events.is_empty(), "{events:?}");
    let took = started.elapsed();
    ensure!(took > Duration::from_millis(1500), "ended after {took:?}");
    Ok(())
}

/// A valid timeout opens a watch even if the end time overflows.
async fn watch_accepts_any_timeout_in_64_bits(target: Target) -> anyhow::Result<()> {
    let version = list_version(&target).await?;
    for timeout in ["-1", "31536000", "9223372036", "9223372037", "9223372036854775807"] {
        target.watch_maps(&format!("timeoutSeconds={timeout}&resourceVersion={version}")).await?;
    }
    let query = "?watch=true&timeoutSeconds=9223372036854775808";
    target.http.get(&target.maps(query)).send().await?.expect(400)?;
    Ok(())
}

async fn watch_ends_with_a_bookmark_at_its_timeout(target: Target) -> anyhow::Result<()> {
    let version = list_version(&target).await?;
    let query = format!("timeoutSeconds=5&allowWatchBookmarks=true&resourceVersion={version}");
    let mut stream = target.watch_maps(&query).await?;
    target.create_map("one", &[]).await?;
    let (events, ended) = stream.drain(SOON).await?;
    ensure!(ended, "the stream did not end");
    let last = events.last().context("no events")?;
    ensure!(last["type"] == "BOOKMARK", "{events:?}");
    let mut again = target.watch_maps(&format!("resourceVersion={}", version_of(&last["object"]))).await?;
    nothing_more(&mut again).await
}

async fn watch_at_an_invalid_version_is_an_error(target: Target) -> anyhow::Result<()> {
    let path = target.maps("?watch=true&resourceVersion=gar!bage");
    if !target.differs(&WATCH_OF_GARBAGE_VERSION) {
        target.http.get(&path).send().await?.expect(500)?;
        return Ok(());
    }
    // A plain number has no component of any cluster, so Tributary cannot resume a watch from it.
    for path in [path, target.maps("?watch=true&resourceVersion=1")] {
        let mut stream = target.http.watch(&path).await?;
        let event = stream.expect(SOON).await?;
        let status = &event["object"];
        ensure!(event["type"] == "ERROR" && status["kind"] == "Status", "{event}");
        ensure!(status["code"] == 410 && status["reason"] == "Expired" && status["message"].is_string(), "{event}");
        ensure!(stream.next(SOON).await?.is_none(), "the stream goes on after an ERROR");
    }
    Ok(())
}

async fn watch_at_a_future_version_sends_no_object_events(target: Target) -> anyhow::Result<()> {
    let future = target.future(&list_version(&target).await?)?;
    let mut stream = target.watch_maps(&format!("resourceVersion={future}&timeoutSeconds=5")).await?;
    target.create_map("early", &[]).await?;
    let (events, ended) = stream.drain(SOON).await?;
    if target.differs(&WATCH_OF_A_FUTURE_VERSION) {
        ensure!(ended && events.len() == 1, "{events:?}");
        ensure!(events[0]["type"] == "ERROR" && events[0]["object"]["code"] == 410, "{events:?}");
    } else {
        ensure!(ended && events.is_empty(), "{events:?}");
    }
    Ok(())
}

async fn watch_resumes_from_the_version_of_each_event(target: Target) -> anyhow::Result<()> {
    target.seed_maps(4).await?;
    let version = list_version(&target).await?;
    for step in 1..=6 {
        // The changes alternate between objects of the two members.
        target.change_map(if step % 2 == 0 { "map-00" } else { "map-02" }, &step.to_string()).await?;
    }
    let mut whole = target.watch_maps(&format!("resourceVersion={version}")).await?;
    let events = take(&mut whole, 6).await?;
    for (index, event) in events.iter().enumerate() {
        let mut rest = target.watch_maps(&format!("resourceVersion={}", version_of(&event["object"]))).await?;
        let shown: Vec<_> = take(&mut rest, 5 - index).await?.iter().map(summary).collect();
        let expected: Vec<_> = events[index + 1..].iter().map(summary).collect();
        ensure!(shown == expected, "after event {index}: {shown:?} instead of {expected:?}");
        nothing_more(&mut rest).await?;
    }
    Ok(())
}

async fn watch_with_a_label_selector_sends_added_or_deleted_after_a_label_change(target: Target) -> anyhow::Result<()> {
    target.create_map("moving", &[("state", "out")]).await?;
    let version = list_version(&target).await?;
    let mut stream = target.watch_maps(&format!("resourceVersion={version}&labelSelector=state%3Din")).await?;
    let mut versions = Vec::new();
    for (state, step) in [("in", "1"), ("in", "2"), ("out", "3"), ("out", "4"), ("in", "5")] {
        let patch = serde_json::json!({"metadata": {"labels": {"state": state}}, "data": {"step": step}});
        let answer = target.http.patch(&target.map("moving"), "merge-patch+json", &patch).send().await?.expect(200)?;
        versions.push(version_of(&answer.json()?));
    }
    target.delete_map("moving").await?;
    let events = take(&mut stream, 5).await?;
    let shown: Vec<(String, String)> = events.iter().map(summary).map(|(kind, _, step)| (kind, step)).collect();
    // If an object no longer matches the selector, the DELETED event has the last state that matched.
    let expected = [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2"), ("ADDED", "5"), ("DELETED", "5")];
    ensure!(shown == expected.map(|(kind, step)| (kind.to_owned(), step.to_owned())), "{shown:?}");
    ensure!(events[2]["object"]["metadata"]["labels"]["state"] == "in", "{}", events[2]);
    // The DELETED event has the version of the change. A client that resumes from this version next receives the event
    // for the object that matches again.
    let mut rest = target
        .watch_maps(&format!("resourceVersion={}&labelSelector=state%3Din", version_of(&events[2]["object"])))
        .await?;
    ensure!(summary(&take(&mut rest, 1).await?[0]).2 == "5", "resumed at another place");
    Ok(())
}

async fn watch_of_one_object_name_sends_no_other_object(target: Target) -> anyhow::Result<()> {
    target.seed_maps(4).await?;
    let version = list_version(&target).await?;
    let query = format!("resourceVersion={version}&fieldSelector=metadata.name%3Dmap-02");
    let mut stream = target.watch_maps(&query).await?;
    target.change_map("map-01", "1").await?;
    target.change_map("map-02", "2").await?;
    ensure!(summary(&take(&mut stream, 1).await?[0]).1 == "map-02", "another object");
    nothing_more(&mut stream).await
}

async fn watch_of_a_namespace_sends_no_object_of_other_namespaces(target: Target) -> anyhow::Result<()> {
    let version = list_version(&target).await?;
    let mut stream = target.watch_maps(&format!("resourceVersion={version}")).await?;
    let elsewhere = super::target::config_map(&target.namespace, &[]);
    let member = target.members[0].http();
    member.post("/api/v1/namespaces/default/configmaps", &elsewhere).send().await?.expect(201)?;
    nothing_more(&mut stream).await?;
    let path = format!("/api/v1/namespaces/default/configmaps/{}", target.namespace);
    member.delete(&path).send().await?.expect(200)?;
    Ok(())
}

async fn deleted_event_has_the_last_state_of_the_object_and_a_new_version(target: Target) -> anyhow::Result<()> {
    target.create_map("doomed", &[]).await?;
    let version = list_version(&target).await?;
    target.change_map("doomed", "last").await?;
    target.delete_map("doomed").await?;
    let mut stream = target.watch_maps(&format!("resourceVersion={version}")).await?;
    let events = take(&mut stream, 2).await?;
    ensure!(summary(&events[1]) == ("DELETED".into(), "doomed".into(), "last".into()), "{events:?}");
    let (modified, deleted) = (version_of(&events[0]["object"]), version_of(&events[1]["object"]));
    ensure!(modified != deleted, "DELETED has the version of the last change");
    let mut rest = target.watch_maps(&format!("resourceVersion={deleted}")).await?;
    nothing_more(&mut rest).await
}

async fn watch_with_version_match_but_without_initial_events_is_422(target: Target) -> anyhow::Result<()> {
    let version = list_version(&target).await?;
    let path = target.maps(&format!("?watch=true&resourceVersion={version}&resourceVersionMatch=NotOlderThan"));
    let answer = target.http.get(&path).send().await?;
    assert_status(&answer, 422, Some("Invalid"), "forbidden for watch unless sendInitialEvents is provided")?;
    Ok(())
}

async fn watch_with_initial_events_but_without_version_match_is_422(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.maps("?watch=true&sendInitialEvents=true")).send().await?;
    let message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    assert_status(&answer, 422, Some("Invalid"), message)?;
    Ok(())
}

async fn watch_works_at_the_deprecated_watch_path(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(2).await?;
    let path = format!("/api/v1/watch/namespaces/{}/configmaps", target.namespace);
    let mut stream = target.http.watch(&path).await?;
    expect_initial(&mut stream, &names).await?;
    let path = format!("/api/v1/watch/namespaces/{}/configmaps/map-01", target.namespace);
    let mut stream = target.http.watch(&path).await?;
    expect_initial(&mut stream, &["map-01".to_owned()]).await?;
    nothing_more(&mut stream).await
}

async fn watch_parameter_accepts_all_boolean_forms(target: Target) -> anyhow::Result<()> {
    for form in ["watch=1", "watch=true", "watch", "watch="] {
        let version = list_version(&target).await?;
        let path = target.maps(&format!("?{form}&timeoutSeconds=1&resourceVersion={version}"));
        let answer = target.http.get(&path).send().await?.expect(200)?;
        ensure!(answer.body.is_empty(), "{form}: {}", answer.text());
    }
    for form in ["watch=0", "watch=false"] {
        let list = target.read(&target.maps(&format!("?{form}"))).await?;
        ensure!(list["kind"] == "ConfigMapList", "{form}: {list}");
    }
    Ok(())
}

async fn concurrent_watches_send_events_in_the_same_order(target: Target) -> anyhow::Result<()> {
    target.seed_maps(4).await?;
    let version = list_version(&target).await?;
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(target.watch_maps(&format!("resourceVersion={version}")).await?);
    }
    for step in 0..10 {
        let names = ["map-00", "map-02", "map-01", "map-03"];
        target.change_map(names[step % names.len()], &format!("s{step}")).await?;
    }
    let mut sequences = BTreeSet::new();
    for stream in &mut streams {
        let events = take(stream, 10).await?;
        let sequence: Vec<String> =
            events.iter().map(|event| format!("{:?} {}", summary(event), version_of(&event["object"]))).collect();
        sequences.insert(sequence);
    }
    ensure!(sequences.len() == 1, "{} different sequences: {sequences:?}", sequences.len());
    Ok(())
}

async fn watch_event_has_the_version_that_the_write_returned(target: Target) -> anyhow::Result<()> {
    let version = list_version(&target).await?;
    let mut stream = target.watch_maps(&format!("resourceVersion={version}")).await?;
    let written = target.create_map("one", &[]).await?;
    let event = &take(&mut stream, 1).await?[0];
    if target.members.len() == 1 || target.kind == Kind::OverTwoIntegers {
        let read = target.read(&target.map("one")).await?;
        let listed = target.read(&target.maps("")).await?;
        let versions = [&event["object"], &written, &read, &listed["items"][0]].map(version_of);
        ensure!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
    }
    if target.kind == Kind::OverTwoIntegers {
        version_of(&written).parse::<u64>().with_context(|| format!("not an integer: {written}"))?;
    }
    // Over several members, an event has a composite version, but the response to a write has a version with only the
    // member's component. An update must succeed with either version.
    let mut object = event["object"].clone();
    object["data"]["step"] = "with the event's version".into();
    target.http.put(&target.map("one"), &object).send().await?.expect(200)?;
    Ok(())
}

async fn graceful_deletion_of_a_pod_sends_a_modified_and_a_deleted_event(target: Target) -> anyhow::Result<()> {
    target.http.post(&target.core("pods", ""), &pod("doomed")).send().await?.expect(201)?;
    let list = target.read(&target.core("pods", "")).await?;
    let path = target.core("pods", &format!("?watch=true&resourceVersion={}", version_of(&list)));
    let mut stream = target.http.watch(&path).await?;
    let delete = target.core("pods", "/doomed?gracePeriodSeconds=0");
    target.http.delete(&delete).send().await?.expect(200)?;
    let events = take(&mut stream, 2).await?;
    ensure!(events[0]["type"] == "MODIFIED" && events[1]["type"] == "DELETED", "{events:?}");
    ensure!(events[0]["object"]["metadata"]["deletionTimestamp"].is_string(), "{events:?}");
    ensure!(version_of(&events[0]["object"]) != version_of(&events[1]["object"]), "one version for two events");
    Ok(())
}

async fn watch_response_is_json_without_a_content_length_header(target: Target) -> anyhow::Result<()> {
    let stream = target.watch_maps("timeoutSeconds=2").await?;
    let kind = stream.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    ensure!(kind == "application/json", "{kind:?}");
    ensure!(!stream.headers.contains_key("content-length"), "a stream with a length");
    Ok(())
}

async fn bookmark_has_kind_and_version(target: Target) -> anyhow::Result<()> {
    let mut stream = target.watch_maps(INITIAL).await?;
    let (_, bookmark) = initial_events(&mut stream).await?;
    let object = &bookmark["object"];
    ensure!(object["kind"] == "ConfigMap" && object["apiVersion"] == "v1", "{bookmark}");
    ensure!(!version_of(object).is_empty(), "{bookmark}");
    Ok(())
}

async fn watch_sends_many_changes_of_each_object_in_order(target: Target) -> anyhow::Result<()> {
    target.seed_maps(4).await?;
    let version = list_version(&target).await?;
    let mut stream = target.watch_maps(&format!("resourceVersion={version}")).await?;
    let writers = target.members.iter().enumerate().map(|(index, member)| {
        let (path, member) = (target.map(&format!("map-{:02}", index * 2)), member.clone());
        async move {
            for step in 0..60 {
                let patch = serde_json::json!({"data": {"step": step.to_string()}});
                member.http().patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?;
            }
            anyhow::Ok(())
        }
    });
    let (written, events) =
        tokio::join!(futures::future::try_join_all(writers), take(&mut stream, 59 * target.members.len()));
    written?;
    // The first write does not change the object, because the step is already 0, so it causes no event.
    for (index, _) in target.members.iter().enumerate() {
        let name = format!("map-{:02}", index * 2);
        let steps: Vec<String> = events
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error:#}"))?
            .iter()
            .map(summary)
            .filter(|(_, of, _)| *of == name)
            .map(|(_, _, step)| step)
            .collect();
        let expected: Vec<String> = (1..60).map(|step| step.to_string()).collect();
        ensure!(steps == expected, "{name}: {steps:?}");
    }
    Ok(())
}

async fn watch_event_object_has_kind_and_api_version(target: Target) -> anyhow::Result<()> {
    target.seed_maps(1).await?;
    let mut stream = target.watch_maps("").await?;
    let event = &take(&mut stream, 1).await?[0];
    ensure!(event["object"]["kind"] == "ConfigMap" && event["object"]["apiVersion"] == "v1", "{event}");
    Ok(())
}
