//! A client that writes through the routers and must read its own writes.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::time::{Duration, sleep};

use crate::schedule::{COLORS, NAMESPACES, OBJECTS, TYPES};
use crate::world::{REPLICAS, RESOURCE, World, service, vector};

/// Writes and reads until a failure or until the faults end.
pub(crate) async fn run(world: Arc<World>) {
    let mut random = StdRng::seed_from_u64(world.profile.seed ^ 0x0717e);
    while world.failure().is_none() && !world.is_quiet() {
        let pause = random.random_range(50..3000);
        sleep(Duration::from_millis(pause)).await;
        if let Err(error) = write_and_read(&world, &mut random).await {
            world.fail("the writer", &format!("{error:#}"));
        }
    }
}

async fn write_and_read(world: &World, random: &mut StdRng) -> anyhow::Result<()> {
    let configured: Vec<_> = world.configured().1.into_iter().collect();
    let Some((cluster, member)) = configured.choose(random).cloned() else { return Ok(()) };
    if world.is_frozen(member) {
        return Ok(());
    }
    let mut pick = |of: &[&'static str]| of.choose(random).copied().unwrap_or_default();
    let [namespace, name, color, service_type] = [pick(&NAMESPACES), pick(&OBJECTS), pick(&COLORS), pick(&TYPES)];
    let value = world.value();
    let mut object = service(namespace, name, &value, color, service_type);
    object["metadata"]["annotations"]["tributary.dev/cluster"] = cluster.clone().into();
    let replica = random.random_range(0..REPLICAS);
    let path = format!("/api/v1/namespaces/{namespace}/{RESOURCE}");
    let breaks = || {
        world.with_truth(|truth| truth.history(&cluster).map(|history| (history.restores(), history.replacements())))
    };
    let before = breaks()?;
    let router = world.router(replica);
    let body = Some(("application/json", &object));
    let mut written = world.send(replica, "POST", &path, body).await?;
    if written.code == 409 {
        written = world.send(replica, "PUT", &format!("{path}/{name}"), body).await?;
    }
    if !matches!(written.code, 200 | 201) {
        // A member has a fault, or the object was deleted between the two requests.
        return Ok(());
    }
    let version = world.version(&written.json["metadata"]["resourceVersion"])?;
    let revision = version.of_item(&cluster).map(|own| own.revision);
    anyhow::ensure!(revision.is_some_and(|own| own > 0), "{cluster} answered a write with {version:?}");
    let list = world.get(replica, &path).await?;
    let same = Arc::ptr_eq(&router, &world.router(replica)) && world.configured().1.contains_key(&cluster);
    let went_back = before != breaks()?;
    if list.code != 200 || went_back || !same || list.warnings.contains(&format!("cluster {cluster}:")) {
        return Ok(());
    }
    let seen = vector(&list.json["metadata"]["resourceVersion"])?.get(&cluster).map(|own| own.revision);
    let excused = seen.is_none() && (world.profile.topology || world.profile.hides);
    anyhow::ensure!(excused || seen >= revision, "what was written at {cluster} {revision:?} is not seen: {seen:?}");
    Ok(())
}
