//! Requests with compact resourceVersions, which a server of many clusters sends. The answer must be the same as for
//! the long form. A bare kube-apiserver has only one form, so there the cases use that form.

use super::{
    Conformance, conformance,
    differences::VERSION_OF_OTHER_CLUSTERS,
    list::escape,
    target::{SOON, Target, assert_status, names_of, summary, version_of},
    watch::{nothing_more, take},
};
use anyhow::{Context, ensure};

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["compact";
        exact_list_accepts_a_compact_version, list_not_older_than_a_compact_version_succeeds,
        continue_token_with_a_compact_version_reads_the_next_page, watch_resumes_from_a_compact_version,
        watch_with_initial_events_accepts_a_compact_version, get_accepts_a_compact_version,
        update_with_a_stale_compact_version_is_409, compact_resource_version_for_an_unknown_list_of_clusters_is_refused,
    ]
}

/// A compact resourceVersion of clusters that do not exist. Its epoch consists of zeros, and it has one component.
const OF_OTHER_CLUSTERS: &str = "c1.AAAAAAAAAAAC";

async fn exact_list_accepts_a_compact_version(target: Target) -> anyhow::Result<()> {
    target.seed_maps(5).await?;
    let before = target.read(&target.maps("")).await?;
    target.change_map("map-00", "changed").await?;
    target.delete_map("map-03").await?;
    let version = target.compact(&version_of(&before)).await?;
    let again = target.read(&target.maps(&format!("?resourceVersion={version}&resourceVersionMatch=Exact"))).await?;
    ensure!(again == before, "{again}\ninstead of\n{before}");
    // A list with `limit` and `resourceVersion`, but without `resourceVersionMatch`, returns the state at exactly that
    // version.
    let page = target.read(&target.maps(&format!("?resourceVersion={version}&limit=50"))).await?;
    ensure!(page == before, "{page}\ninstead of\n{before}");
    Ok(())
}

async fn list_not_older_than_a_compact_version_succeeds(target: Target) -> anyhow::Result<()> {
    target.seed_maps(3).await?;
    let before = target.read(&target.maps("")).await?;
    let version = target.compact(&version_of(&before)).await?;
    for query in ["", "&resourceVersionMatch=NotOlderThan"] {
        let list = target.read(&target.maps(&format!("?resourceVersion={version}{query}"))).await?;
        ensure!(names_of(&list) == names_of(&before), "{query}: {list}");
    }
    let future = target.compact(&target.future(&version_of(&before))?).await?;
    let answer = target.http.get(&target.maps(&format!("?resourceVersion={future}"))).send().await?;
    ensure!(answer.status == 410 || answer.status == 504, "{}: {}", answer.status, answer.text());
    Ok(())
}

/// Lists the first page. Returns its continue token, which contains a compact version, and its version.
async fn token(target: &Target, query: &str) -> anyhow::Result<(String, String)> {
    let page = target.read(&target.maps(query)).await?;
    let token = page["metadata"]["continue"].as_str().context("no continue token")?;
    let version = version_of(&page);
    Ok((token.replace(&version, &target.compact(&version).await?), version))
}

async fn continue_token_with_a_compact_version_reads_the_next_page(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(7).await?;
    let (token, version) = token(&target, "?limit=3").await?;
    target.delete_map("map-06").await?;
    target.delete_map("map-05").await?;
    let rest = target.read(&target.maps(&format!("?limit=9&continue={}", escape(&token)))).await?;
    ensure!(names_of(&rest) == target.in_list_order(&names)[3..], "{rest}");
    ensure!(version_of(&rest) == version, "another version");
    Ok(())
}

async fn watch_resumes_from_a_compact_version(target: Target) -> anyhow::Result<()> {
    target.seed_maps(4).await?;
    let mut from = version_of(&target.read(&target.maps("")).await?);
    let steps: Vec<String> = (1..=4).map(|step| step.to_string()).collect();
    for (index, step) in steps.iter().enumerate() {
        target.change_map(["map-00", "map-02"][index % 2], step).await?;
    }
    // Each watch starts from the version of the previous event, converted to the compact form.
    for step in &steps {
        let version = target.compact(&from).await?;
        let mut stream = target.watch_maps(&format!("resourceVersion={version}")).await?;
        let event = take(&mut stream, 1).await?.remove(0);
        ensure!(summary(&event).2 == *step, "{event} instead of step {step}");
        from = version_of(&event["object"]);
    }
    let version = target.compact(&from).await?;
    nothing_more(&mut target.watch_maps(&format!("resourceVersion={version}")).await?).await
}

async fn watch_with_initial_events_accepts_a_compact_version(target: Target) -> anyhow::Result<()> {
    target.seed_maps(3).await?;
    let version = target.compact(&version_of(&target.read(&target.maps("")).await?)).await?;
    let query = format!(
        "resourceVersion={version}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut stream = target.watch_maps(&query).await?;
    let events = take(&mut stream, 3).await?;
    ensure!(events.iter().all(|event| event["type"] == "ADDED"), "{events:?}");
    let end = stream.expect(SOON).await?;
    ensure!(super::target::ends_initial_events(&end), "{end}");
    Ok(())
}

async fn get_accepts_a_compact_version(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    let list = target.read(&target.maps("")).await?;
    let object = target.read(&target.map("here")).await?;
    for version in [version_of(&list), version_of(&object)] {
        let version = target.compact(&version).await?;
        let read = target.read(&format!("{}?resourceVersion={version}", target.map("here"))).await?;
        ensure!(read == object, "{read}\ninstead of\n{object}");
    }
    let future = target.compact(&target.future(&version_of(&list))?).await?;
    let answer = target.http.get(&format!("{}?resourceVersion={future}", target.map("here"))).send().await?;
    assert_status(&answer, 504, Some("Timeout"), "Too large resource version")?;
    Ok(())
}

/// A write with the compact version of an event succeeds once. Afterwards the version is stale.
async fn update_with_a_stale_compact_version_is_409(target: Target) -> anyhow::Result<()> {
    let version = version_of(&target.read(&target.maps("")).await?);
    let mut stream = target.watch_maps(&format!("resourceVersion={version}")).await?;
    target.create_map("one", &[]).await?;
    let mut object = take(&mut stream, 1).await?.remove(0)["object"].take();
    object["metadata"]["resourceVersion"] = target.compact(&version_of(&object)).await?.into();
    object["data"]["step"] = "1".into();
    target.http.put(&target.map("one"), &object).send().await?.expect(200)?;
    object["data"]["step"] = "2".into();
    let answer = target.http.put(&target.map("one"), &object).send().await?;
    assert_status(&answer, 409, Some("Conflict"), "the object has been modified")?;
    let precondition = serde_json::json!({"preconditions": {"resourceVersion": version_of(&object)}});
    let answer = target.http.delete(&target.map("one")).json(&precondition).send().await?;
    assert_status(&answer, 409, Some("Conflict"), "")?;
    let now = target.compact(&version_of(&target.read(&target.map("one")).await?)).await?;
    let precondition = serde_json::json!({"preconditions": {"resourceVersion": now}});
    target.http.delete(&target.map("one")).json(&precondition).send().await?.expect(200)?;
    Ok(())
}

async fn compact_resource_version_for_an_unknown_list_of_clusters_is_refused(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(5).await?;
    let list = target.http.get(&target.maps(&format!("?resourceVersion={OF_OTHER_CLUSTERS}"))).send().await?;
    let get = target.http.get(&format!("{}?resourceVersion={OF_OTHER_CLUSTERS}", target.map("map-00"))).send().await?;
    let watch = target.maps(&format!("?watch=true&timeoutSeconds=5&resourceVersion={OF_OTHER_CLUSTERS}"));
    let watch = target.http.get(&watch).send().await?;
    if !target.differs(&VERSION_OF_OTHER_CLUSTERS) {
        let shown = [list.status, get.status, watch.status].map(|status| status.as_u16());
        ensure!(shown == [400, 500, 500], "{shown:?}");
        return Ok(());
    }
    assert_status(&list, 410, Some("Expired"), "")?;
    assert_status(&get, 400, Some("BadRequest"), "")?;
    let event = watch.expect(200)?.json()?;
    ensure!(event["type"] == "ERROR" && event["object"]["code"] == 410, "{event}");
    let page = target.read(&target.maps("?limit=2")).await?;
    let token = page["metadata"]["continue"].as_str().context("no continue token")?;
    let token = token.replace(&version_of(&page), OF_OTHER_CLUSTERS);
    let answer = target.http.get(&target.maps(&format!("?limit=9&continue={}", escape(&token)))).send().await?;
    let status = assert_status(&answer, 410, Some("Expired"), "use the continue token in this response")?;
    let token = status["metadata"]["continue"].as_str().context("no token to go on from")?;
    let rest = target.read(&target.maps(&format!("?limit=9&continue={}", escape(token)))).await?;
    ensure!(names_of(&rest) == target.in_list_order(&names)[2..], "{rest}");
    Ok(())
}
