//! Tests of messages: a refusal names only commands and paths that work at the same door.

use serde_json::json;
use tributary_apimachinery::{ClusterName, Door, ForeignSystem, Mount, MountTarget};
use tributary_router::Policies;

use super::at_door::AtDoor;
use super::table::{DoorForm, DoorRow, MEMBERS, MERGED_VIEWS};
use crate::harness::{ANNOTATION, CONFIG_MAPS, Client, allow, composite, config_map};

/// Returns the paths of clusters in a message, with the name `a` instead of a placeholder.
fn paths(text: &str) -> Vec<String> {
    let words = text.split(|own: char| own.is_whitespace() || ",;\"()".contains(own));
    let words = words.map(|word| word.trim_start_matches("https://HUB").trim_start_matches('…').trim_end_matches(':'));
    let paths = words.filter(|word| word.starts_with("/apis/") || word.contains("/clusters/"));
    paths.map(|path| path.replace("<name>", "a").replace("NAME", "a")).collect()
}

/// Checks that each path of a cluster in the message leads to this cluster at the door.
async fn check_message(row: &DoorRow, fixture: &AtDoor, text: &str) {
    let plain = fixture.client().below("");
    let mount = (row.mount)(plain.open_doors(&ForeignSystem::ALL, &["a", "b"]));
    let door = mount.resolve(&format!("{}/api", row.prefix)).unwrap().door;
    assert_eq!(text.contains("--context"), door == Door::Direct, "{row:?}: {text}");
    let found = paths(text);
    assert!(door == Door::Direct || !found.is_empty(), "{row:?}: {text}");
    for path in found {
        let mounted = mount.resolve(&path).unwrap();
        let is_cluster = matches!(&mounted.target, MountTarget::Cluster(name) if name_is_known(name));
        // The search proxy of Karmada has no paths of single clusters, so its messages name Karmada's other door.
        let is_same = mounted.door == door || door == Door::KarmadaSearch && mounted.door == Door::KarmadaClusters;
        assert!(is_cluster && is_same, "{row:?}: {path} in {text}");
        let below = path.replace(mounted.inner, "");
        let prefix = if mounted.inner == "/" { &path } else { &below };
        let answer = get_below(&plain, prefix).await;
        assert_eq!(answer, 200, "{row:?}: {path} in {text}");
    }
}

fn name_is_known(name: &ClusterName) -> bool {
    ["a", "b"].contains(&name.as_str())
}

async fn get_below(client: &Client, prefix: &str) -> u16 {
    client.get(&format!("{prefix}/api/v1/nodes")).await.code
}

#[tokio::test]
async fn messages_of_the_merged_view_name_paths_of_the_same_door() {
    for row in MERGED_VIEWS.iter().filter(|row| row.form != DoorForm::InKarmadasWords) {
        let fixture = row.start(["a", "b"]).await;
        for member in ["a", "b"] {
            fixture.put_and_see(member, "both", "1").await;
        }
        let both = format!("{CONFIG_MAPS}/both");
        let mut moved = config_map("only", "1");
        moved["metadata"]["annotations"] = json!({ ANNOTATION: "b" });
        fixture.put_and_see("a", "only", "1").await;
        for answer in [
            fixture.get(&both).await,
            fixture.write("DELETE", &both, &json!(null)).await,
            fixture.write("POST", CONFIG_MAPS, &config_map("new", "1")).await,
            fixture.write("PUT", &format!("{CONFIG_MAPS}/only"), &moved).await,
        ] {
            check_message(row, &fixture, &answer.refused(answer.code)).await;
        }
        fixture.router.set_policies(Policies { registered: Some(vec!["pods".parse().unwrap()]), ..allow() });
        let watch = fixture.get(&format!("{CONFIG_MAPS}?watch=1")).await;
        // Karmada's control plane answers at its door.
        if row.form == DoorForm::Equal {
            check_message(row, &fixture, &watch.refused(405)).await;
        }
    }
}

#[tokio::test]
async fn messages_of_a_member_name_paths_of_the_same_door() {
    for row in MEMBERS {
        let fixture = row.start(["a", "b"]).await;
        fixture.put_and_see("a", "x", "1").await;
        let mut of_b = config_map("new", "1");
        of_b["metadata"]["annotations"] = json!({ ANNOTATION: "b" });
        let mut stale = config_map("x", "2");
        stale["metadata"]["resourceVersion"] = composite(&json!({"b": "1"})).into();
        for answer in [
            fixture.write("POST", CONFIG_MAPS, &of_b).await,
            fixture.write("PUT", &format!("{CONFIG_MAPS}/x"), &stale).await,
        ] {
            check_message(row, &fixture, &answer.refused(409)).await;
        }
        let answer = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={}", composite(&json!({"b": "1"})))).await;
        let text = answer.refused(410);
        let own = paths(&text);
        assert!(own.len() == 1 && row.prefix.ends_with(own[0].trim_start_matches("/k8s")), "{row:?}: {text}");
    }
}

/// cluster-gateway knows the member `a` by a name that is no name of a cluster in Tributary.
#[tokio::test]
async fn messages_name_a_cluster_as_the_system_of_the_door_does() {
    let row = MEMBERS.iter().find(|row| row.prefix.contains("clustergateways")).unwrap();
    let fixture = row.start(["a", "b"]).await;
    let mut of_b = config_map("new", "1");
    of_b["metadata"]["annotations"] = json!({ ANNOTATION: "b" });
    let client = fixture.fixture.client();
    let own = client.foreign_members(&[ForeignSystem::ClusterGateway], &[("eu.example", "a"), ("us.example", "b")]);
    let client = client.at_mount(Mount::Aggregated(own));
    let path = format!("/apis/cluster.core.oam.dev/v1alpha1/clustergateways/eu.example/proxy{CONFIG_MAPS}");
    let json = [("content-type", "application/json")];
    let text = client.send("POST", &path, &json, &of_b.to_string()).await.refused(409);
    assert!(text.contains("/clustergateways/us.example/proxy …"), "{text}");
}
