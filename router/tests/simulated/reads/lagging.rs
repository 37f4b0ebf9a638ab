//! Tests of a member whose watches deliver writes late. Only reads of these writes wait.

use serde_json::json;
use tributary_router::Policies;

use crate::harness::{CONFIG_MAPS, Fixture, allow, config, config_map_in, items, until};

const FILTER: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

fn made() -> String {
    format!("{CONFIG_MAPS}?{FILTER}")
}

/// Starts members `a` and `b` with one object each. Then limits the watches of `a` to ten bytes per second, and writes
/// the object `written` to `a`.
async fn lagging(policies: Policies) -> Fixture {
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    fixture.put_and_see("a", "x", "1").await;
    fixture.put_and_see("b", "y", "1").await;
    fixture.member("a").control().slow(Some(10));
    fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "written", "1")).await.ok();
    fixture
}

#[tokio::test]
async fn lagging_member_delays_only_reads_of_its_writes() {
    let fixture = lagging(Policies::default()).await;
    let y = format!("{CONFIG_MAPS}/y");
    assert_eq!(fixture.get(&y).await.ok()["data"]["v"], "1");
    assert_eq!(fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok()["data"]["v"], "1", "nor of another object there");
    fixture.patch(&y, "merge-patch+json", &json!({"data": {"v": "2"}})).await.ok();
    assert_eq!(fixture.get(&y).await.ok()["data"]["v"], "2", "its own writes are seen");
    let of_b = format!("{}&labelSelector=tributary.dev/cluster=b", made());
    assert_eq!(items(&fixture.get(&of_b).await.ok()), ["b/y"]);
    fixture.write("DELETE", &y, &json!({})).await.ok();
    fixture.get(&y).await.refused(404);
    // The router has not yet received the written object. A 404 for it would be wrong.
    let written = fixture.get(&format!("{CONFIG_MAPS}/written")).await;
    assert!(written.refused(504).contains("Too large resource version"), "{written:?}");
    fixture.get(&made()).await.refused(504);
    fixture.member("a").control().slow(None);
    until(|| async { fixture.get(&made()).await.code == 200 }).await;
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["a/written", "a/x"]);
}

#[tokio::test]
async fn lagging_member_causes_one_504_and_then_warnings_in_lists() {
    let fixture = lagging(allow()).await;
    fixture.get(&made()).await.refused(504);
    for query in ["", "&limit=1"] {
        let list = fixture.get(&format!("{}{query}", made())).await;
        assert_eq!(items(&list.ok())[0], "a/x");
        let warnings = list.warnings();
        assert!(
            warnings.len() == 1 && warnings[0].contains("cluster a: configmaps may be stale, last updated"),
            "{warnings:?}"
        );
        assert!(
            warnings[0].contains("the watch of the cluster has not delivered the latest writes yet"),
            "{warnings:?}"
        );
    }
    let of_b = fixture.get(&format!("{}&labelSelector=tributary.dev/cluster=b", made())).await;
    assert!(of_b.warnings().is_empty(), "{of_b:?}");
    // A new write does not make lists wait again. A get of the written object is still refused.
    fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "more", "1")).await.ok();
    assert_eq!(fixture.get(&made()).await.warnings().len(), 1);
    fixture.get(&format!("{CONFIG_MAPS}/more")).await.refused(504);
    fixture.member("a").control().slow(None);
    until(|| async {
        let list = fixture.get(&made()).await;
        list.code == 200 && list.warnings().is_empty()
    })
    .await;
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["a/more", "a/written", "a/x", "b/y"]);
}
