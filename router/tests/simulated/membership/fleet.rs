//! Tests of a large fleet: hundreds of members behind one router that start at the same time.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tributary_apimachinery::ClusterName;
use tributary_proxy::{BoxIo, ClientTuning, ClusterClient, Connector};
use tributary_router::{ClusterAddress, ClusterAuthorization, ClusterSetup, MemberRules, Policies};
use tributary_simulator::{Rejection, RequestKind, SimulatedCluster, Simulator, SimulatorConfig};

use crate::harness::{CONFIG_MAPS, Events, Fixture, SOON, config, config_map, router, until, version};
use crate::outages::liveness::{Probes, others_live};

const PODS: usize = 3;

pub(crate) async fn setup(member: &Arc<SimulatedCluster>) -> ClusterSetup {
    setup_tuned(member, ClientTuning::default()).await
}

pub(crate) async fn setup_tuned(member: &Arc<SimulatedCluster>, tuning: ClientTuning) -> ClusterSetup {
    let mut config = kube::Config::new(Uri::from_static("http://member.invalid"));
    config.auth_info.token = Some(member.token().to_owned().into());
    let dialed = Arc::clone(member);
    let connector = Connector::new(tower::service_fn(move |_: Uri| {
        std::future::ready(dialed.dial().map(|stream| -> BoxIo { Box::new(stream) }).map_err(Into::into))
    }));
    let name = ClusterName::new(member.name()).unwrap();
    let client = ClusterClient::connect_through(connector, name.clone(), config, tuning).await.unwrap();
    ClusterSetup {
        name,
        client: Ok(client),
        client_generation: 0,
        address: ClusterAddress::from_description(member.token()),
        index: None,
        impersonation: MemberRules::default(),
        // These tests skip the detection of the member's authorizer, which `rights_detected` tests.
        authorization: ClusterAuthorization::Rbac,
    }
}

/// Starts `count` members and a router at the same time, then reads, watches and writes. Returns the longest time in
/// which the router did not answer another client.
async fn a_fleet_of(count: usize) -> Duration {
    let mut members = Vec::new();
    for number in 0..count {
        let config = SimulatorConfig { pods: PODS, seed: number as u64, ..config(&format!("member-{number:04}")) };
        members.push(Arc::new(Simulator::start_in_process(config).unwrap()));
    }
    // One member hides its uid, as if Tributary had no rights in the namespace kube-system.
    let rejection = Rejection { kinds: vec![RequestKind::Get], ..Rejection::all(403) };
    members[count / 2].control().reject(Some(rejection));
    let mut setups = Vec::new();
    for member in &members {
        setups.push(setup(member).await);
    }

    let fixture = Fixture { members: Vec::new(), router: router(Policies::default()) };
    let probes = Probes::start(fixture.client());
    fixture.router.set_clusters(setups);
    fixture.router.asked_once(SOON * 6).await;

    // The policy denies partial responses, so the list contains all clusters.
    let page = fixture.get("/api/v1/pods?limit=5").await.ok();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(5));
    assert_eq!(page["metadata"]["remainingItemCount"], count * PODS - 5);
    // When the router has read the uids of the members, versions have the compact form.
    let is_compact = || async { version(&fixture.get("/api/v1/pods?limit=5").await.ok()).starts_with("c1.") };
    until(is_compact).await;
    let from = version(&fixture.get("/api/v1/pods?limit=5").await.ok());
    assert!(from.len() < 10 * count, "{} bytes", from.len());

    let list = fixture.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
    let path = format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name=x&resourceVersion={}", version(&list));
    let mut events: Vec<Events> = Vec::new();
    for _ in 0..20 {
        events.push(fixture.watch(&path).await);
    }
    members[count - 1].apply(config_map("x", "")).unwrap();
    for events in &mut events {
        assert_eq!(events.brief().await, format!("ADDED {}/x", members[count - 1].name()));
    }
    let object = fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok();
    assert_eq!(object["data"]["v"], "");
    probes.longest_silence().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn router_over_three_hundred_members_stays_responsive() {
    others_live("300 members", async || a_fleet_of(300).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make proof runs it"]
async fn proof_of_a_responsive_router_over_a_thousand_members() {
    others_live("1000 members", async || a_fleet_of(1000).await).await;
}
