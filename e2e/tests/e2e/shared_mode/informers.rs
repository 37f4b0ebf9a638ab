//! Tests client-go informers of a user whose rights change. At the end they must have exactly the objects that the user
//! may list.

use super::{Shared, config_maps, grant, make_config_map, reads_config_maps, revoke};
use crate::clients::follower::Follower;
use crate::context::{Case, TestContext, eventually};
use anyhow::ensure;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{collections::BTreeSet, time::Duration};
use tributary_e2e::namespace;

/// Longest time until an informer has the objects of a newly granted right. Tributary collects new rights for up to 30
/// s before it ends the watch.
const GAINED: Duration = Duration::from_secs(75);

/// Number of rounds. Each round changes rights and compares the informer's objects.
const ROUNDS: usize = 3;

pub(super) fn cases() -> Vec<Case> {
    [("watch_list", true), ("list_and_watch", false)]
        .into_iter()
        .map(|(name, watch_list)| {
            Case::new(format!("shared_mode::informers::informer_with_{name}_follows_changing_rights"), move |context| {
                follows(context, watch_list)
            })
        })
        .collect()
}

async fn follows(context: TestContext, watch_list: bool) -> anyhow::Result<()> {
    let seed: u64 = rand::random();
    anyhow::Context::with_context(run(context, watch_list, seed).await, || format!("seed {seed}"))
}

async fn run(context: TestContext, watch_list: bool, seed: u64) -> anyhow::Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let shared = Shared::start(&context).await?;
    let ann = namespace::unique_name("ann");
    let mut places = Vec::new();
    for _ in 0..3 {
        let namespace = context.namespace("followed", &shared.members).await?;
        for member in 0..2 {
            places.push(WatchedNamespace { member, namespace: namespace.clone(), may: false });
        }
    }
    // The user may always list this namespace. Without it, the informer could not complete the first list.
    let always = context.namespace("always", &shared.members).await?;
    grant(&shared.members[0], &always, &ann, &ann, reads_config_maps()).await?;
    let http = shared.http(&ann, &[]).await?;
    eventually(GAINED, async || http.get("/api/v1/configmaps").send().await?.expect(200).map(drop)).await?;
    let environment = [("KUBE_FEATURE_WatchListClient", if watch_list { "true" } else { "false" })];
    let arguments = ["informer", "--namespace", "", "--resources", "configmaps"];
    let kubeconfig = shared.kubeconfig(&ann, &[])?;
    let tools = context.fixture.tools().await?;
    let mut follower = Follower::start(&tools.clients(), &kubeconfig, &arguments, &environment)?;
    follower.wait_for("synced", GAINED).await?;
    for round in 0..ROUNDS {
        let at = random.random_range(0..places.len());
        for (index, place) in places.iter_mut().enumerate() {
            // At least this right changes, so that no round is without a change.
            if index == at || random.random_bool(0.4) {
                place.turn(&shared, &ann).await?;
            }
            make_config_map(&shared.members[place.member], &place.namespace, &place.name(round), 10).await?;
        }
        let held = wait_until_equal(&shared, &mut follower, &places, round).await?;
        // The endpoint's list must have the same objects as the informer.
        let list = http.get("/api/v1/configmaps").send().await?.expect(200)?.json()?;
        let listed: BTreeSet<String> =
            config_maps(&list).into_iter().map(|(_, namespace, name)| format!("{namespace}/{name}")).collect();
        ensure!(listed == held, "{listed:?} is listed, {held:?} is held");
    }
    follower.exit().await
}

struct WatchedNamespace {
    member: usize,
    namespace: String,
    may: bool,
}

impl WatchedNamespace {
    fn name(&self, round: usize) -> String {
        format!("of-{}-{round}", self.member)
    }

    async fn turn(&mut self, shared: &Shared, ann: &str) -> anyhow::Result<()> {
        let member = &shared.members[self.member];
        if self.may {
            revoke(member, &self.namespace, ann).await?;
            let role = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/{ann}", self.namespace);
            member.http().delete(&role).send().await?.expect(200)?;
        } else {
            grant(member, &self.namespace, ann, ann, reads_config_maps()).await?;
        }
        self.may = !self.may;
        Ok(())
    }
}

/// Waits until the informer has the objects that the user may read, and returns them.
async fn wait_until_equal(
    shared: &Shared,
    follower: &mut Follower,
    places: &[WatchedNamespace],
    round: usize,
) -> anyhow::Result<BTreeSet<String>> {
    let names = |place: &WatchedNamespace| {
        let namespace = place.namespace.clone();
        (0..=round).map(|at| format!("{namespace}/{}", place.name(at))).collect::<Vec<_>>()
    };
    let expected: BTreeSet<String> = places.iter().filter(|place| place.may).flat_map(names).collect();
    let deadline = tokio::time::Instant::now() + GAINED;
    loop {
        let dump = follower.dump().await?;
        let held = dump["objects"]["configmaps"].as_object().into_iter().flatten().map(|(key, _)| key.clone());
        let held: BTreeSet<String> = held.filter(|key| !key.ends_with("/kube-root-ca.crt")).collect();
        if held == expected {
            return Ok(held);
        }
        ensure!(
            tokio::time::Instant::now() < deadline,
            "{held:?} is held instead of {expected:?}\n{}",
            shared.tributary.log_tail(20),
        );
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
