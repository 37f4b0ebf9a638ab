//! Random actions on members and routers: writes, faults, and changes of the configuration.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::time::{Duration, sleep};
use tributary_simulator::{Rejection, RequestKind};

use crate::follower::Expectations;
use crate::world::{MEMBERS, NAMES, REPLICAS, RESOURCE, World, service, vector};

pub(crate) const COLORS: [&str; 2] = ["red", "blue"];
/// The values of the selectable field `spec.type`.
pub(crate) const TYPES: [&str; 2] = ["ClusterIP", "NodePort"];
pub(crate) const NAMESPACES: [&str; 2] = ["default", "kube-public"];
/// The names of objects. All members use the same names.
pub(crate) const OBJECTS: [&str; 5] = ["a", "b", "b-1", "c", "d"];

/// The maximum time until all routers detect a restore: two failed attempts with the longest delay between them.
const NOTICED_WITHIN: Duration = Duration::from_secs(200);

/// Maximum number of replacements of members by other clusters. A router accepts the next replacement of a cluster only
/// after 10 s, and this pause doubles with each replacement.
const REPLACEMENTS_MAX: usize = 3;

/// The properties of a run, derived from its seed. Each kind of fault is limited to some runs, so that the checks can
/// distinguish defects from permitted effects of a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) seed: u64,
    pub(crate) steps: usize,
    /// Whether members drop the events in their watch windows.
    pub(crate) expires: bool,
    pub(crate) restores: bool,
    /// Whether clusters are added, removed and renamed.
    pub(crate) topology: bool,
    /// Whether members stop serving the resource for some time, as if an administrator deletes and recreates a CRD.
    pub(crate) hides: bool,
    pub(crate) restarts: bool,
    /// Whether the policy for unreachable clusters denies partial responses.
    pub(crate) deny: bool,
    /// Whether members sometimes send malformed responses.
    pub(crate) nonsense: bool,
    /// Whether members forbid lists and watches for some time: all of them, or only those of all namespaces.
    pub(crate) forbids: bool,
    /// Whether objects have integer resourceVersions (`itemResourceVersions: Integer`).
    pub(crate) integer: bool,
    /// Whether each client sends all requests to one router, so that it can resume from integer resourceVersions.
    pub(crate) alone: bool,
    /// Whether reads without a version contain the members' latest state (`consistency: Quorum`).
    pub(crate) quorum: bool,
    /// Whether clients sometimes send composite versions in the compact form.
    pub(crate) compact: bool,
    pub(crate) watch_list: bool,
    pub(crate) bookmark_interval: Duration,
    /// Whether members send no bookmarks, like a kube-apiserver for resources without a watch cache.
    pub(crate) unmarked: bool,
    /// Whether watches deliver writes seconds late.
    pub(crate) lags: bool,
    /// The cluster in which an object is created if the request names no cluster.
    pub(crate) placement: Option<&'static str>,
    /// Whether members are replaced by other clusters.
    pub(crate) replaces: bool,
    /// The number of events in the members' watch windows.
    pub(crate) window: usize,
}

impl Profile {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        // One run in five has no faults, independently of the other random numbers.
        let calm = random.random_bool(0.2);
        let mut some = |share| !calm && random.random_bool(share);
        let (expires, restores, topology) = (some(0.5), some(0.25), some(0.4));
        let (hides, restarts, deny, nonsense) = (some(0.2), some(0.3), some(0.2), some(0.2));
        let small = some(0.2);
        let steps = random.random_range(30..120);
        let (watch_list, bookmarks) = (random.random_bool(0.7), [1, 5, 60][random.random_range(0..3)]);
        let forbids = !calm && random.random_bool(0.2);
        let (integer, quorum, compact) = (random.random_bool(0.3), random.random_bool(0.2), random.random_bool(0.3));
        let alone = integer && random.random_bool(0.5);
        let unmarked = random.random_bool(0.2);
        let lags = !calm && random.random_bool(0.3);
        Self {
            seed,
            steps,
            expires,
            restores,
            topology,
            hides,
            restarts,
            deny,
            nonsense,
            forbids,
            integer,
            alone,
            quorum,
            compact,
            watch_list,
            bookmark_interval: Duration::from_secs(bookmarks),
            unmarked,
            lags,
            placement: placement(seed),
            // A version from before a restore, or with an earlier name of the cluster, has no mark that identifies the
            // cluster. So runs with restores or renamed clusters have no replacements.
            replaces: !restores && !topology && StdRng::seed_from_u64(seed ^ 0xab1e).random_bool(0.4),
            window: if small { 6 } else { 10_000 },
        }
    }

    /// Returns what the checks may assume about the run.
    pub(crate) fn expectations(&self) -> Expectations {
        // If bookmarks are missing or late, a router relists the collection for a client that waits for a version. So
        // `unmarked` and `lags` exclude a calm run.
        let failure = [
            self.expires,
            self.restores,
            self.topology,
            self.hides,
            self.restarts,
            self.nonsense,
            self.forbids,
            self.unmarked,
            self.lags,
            self.replaces,
        ];
        let calm = !failure.contains(&true);
        let any = self.restores || self.topology || self.hides || self.replaces;
        let names: BTreeSet<String> = NAMES.iter().flatten().map(ToString::to_string).collect();
        Expectations { calm: calm && self.window > 100, may_go_back: if any { names } else { BTreeSet::new() } }
    }
}

/// Returns the default cluster for new objects in half of all runs, and `None` in the other half. This choice has a
/// separate random generator, so that the runs of existing seeds stay the same.
fn placement(seed: u64) -> Option<&'static str> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x91ace);
    let [name, _] = NAMES.choose(&mut random)?;
    random.random_bool(0.5).then_some(*name)
}

pub(crate) async fn run(world: &Arc<World>) {
    let mut random = StdRng::seed_from_u64(world.profile.seed ^ 0x5eed);
    for _ in 0..world.profile.steps {
        if world.failure().is_some() {
            return;
        }
        if random.random_bool(0.6) {
            for _ in 0..random.random_range(1..6) {
                write(world, &mut random);
            }
        } else if let Err(error) = failure(world, &mut random).await {
            world.fail("the schedule", &format!("{error:#}"));
        }
        let pause = match random.random_range(0..100) {
            0..40 => random.random_range(0..30),
            40..75 => random.random_range(30..500),
            75..97 => random.random_range(500..4000),
            _ => random.random_range(10_000..70_000),
        };
        sleep(Duration::from_millis(pause)).await;
    }
}

/// Writes or deletes a random object of a random member.
fn write(world: &World, random: &mut StdRng) {
    let number = random.random_range(0..MEMBERS);
    if world.is_frozen(number) {
        return;
    }
    let member = &world.members[number];
    if random.random_bool(0.08) {
        return expire(world, number, random);
    }
    let [namespace, name] = [pick(random, &NAMESPACES), pick(random, &OBJECTS)];
    if random.random_bool(0.3) {
        let gone = world.by_itself(|| member.delete(RESOURCE, namespace, name));
        world.trace(|| format!("{} deletes {namespace}/{name}: {gone:?}", member.name()));
        return;
    }
    let (color, service_type, value) = (pick(random, &COLORS), pick(random, &TYPES), world.value());
    let put = member.apply(service(namespace, name, &value, color, service_type));
    world.trace(|| format!("{} puts {namespace}/{name} {value} {color} {service_type}: {put:?}", member.name()));
}

/// Deletes several objects of one member in one transaction, like etcd at the end of a lease that the objects share.
fn expire(world: &World, number: usize, random: &mut StdRng) {
    let places = NAMESPACES.iter().flat_map(|namespace| OBJECTS.iter().map(move |name| (*namespace, *name)));
    let chosen: Vec<_> = places.filter(|_| random.random_bool(0.5)).collect();
    let member = &world.members[number];
    let gone = world.by_itself(|| member.expire(RESOURCE, &chosen));
    world.trace(|| format!("{} deletes at once {chosen:?}: {gone:?}", member.name()));
}

fn pick<'a>(random: &mut StdRng, of: &[&'a str]) -> &'a str {
    of.choose(random).copied().unwrap_or_default()
}

/// Starts one fault. A task ends the fault later.
async fn failure(world: &Arc<World>, random: &mut StdRng) -> anyhow::Result<()> {
    let number = random.random_range(0..MEMBERS);
    let (member, profile) = (Arc::clone(&world.members[number]), world.profile);
    let control = member.control().clone();
    let lasts = Duration::from_millis(if random.random_bool(0.9) {
        random.random_range(10..6000)
    } else {
        random.random_range(6000..60_000)
    });
    let kind = random.random_range(0..21);
    let name = member.name().to_owned();
    let note = |what: &str| world.trace(|| format!("{name}: {what}, for {lasts:?}"));
    match kind {
        0 => {
            note("streams are cut");
            control.cut_streams();
        }
        1 => {
            let bytes = random.random_range(0..3000);
            note(&format!("streams are cut after {bytes} bytes"));
            control.cut_streams_after(Some(bytes));
            heal(lasts, move || control.cut_streams_after(None));
        }
        2 => {
            note("slow");
            control.slow(Some(random.random_range(100..5000)));
            heal(lasts, move || control.slow(None));
        }
        3 => {
            note("half open");
            control.half_open(true);
            heal(lasts, move || control.half_open(false));
        }
        4 => {
            note("disconnects");
            control.disconnect();
        }
        5 | 6 => {
            let code = [429, 500, 503][random.random_range(0..3)];
            let kinds = [vec![RequestKind::List], vec![RequestKind::Watch], vec![]][random.random_range(0..3)].clone();
            note(&format!("refuses {kinds:?} with {code}"));
            let retry_after = random.random_bool(0.5).then_some(Duration::from_secs(1));
            control.reject(Some(Rejection { kinds, retry_after, ..Rejection::all(code) }));
            heal(lasts, move || control.reject(None));
        }
        // A member that is frozen for a restore must stay reachable until the routers detect the restore.
        7 if !world.is_frozen(number) => {
            note("down");
            control.stop_listening().await;
            // If the member is frozen for a restore in the meantime, the restore starts it again.
            let world = Arc::clone(world);
            tokio::spawn(async move {
                sleep(lasts).await;
                if !world.is_frozen(number) {
                    control.start_listening().await;
                }
            });
        }
        8 => {
            let revision = if world.is_frozen(number) { 0 } else { elsewhere(world, number) };
            note(&format!("moves on elsewhere: {revision}"));
        }
        9 | 10 if profile.expires => {
            note("watches expire");
            control.expire_watches();
        }
        11 if profile.expires => {
            note("compacts");
            control.compact();
        }
        12 if profile.restores => restore(world, number, random).await?,
        13 if profile.restores && !world.is_frozen(number) => {
            note("another incarnation");
            control.new_incarnation();
        }
        14 | 15 if profile.topology => topology(world, number, random).await?,
        16 if profile.hides => {
            note("does not serve the resource");
            control.serve(RESOURCE, false);
            heal(lasts * 4, move || control.serve(RESOURCE, true));
        }
        17 if profile.restarts => {
            let replica = random.random_range(0..REPLICAS);
            world.trace(|| format!("router {replica} restarts"));
            world.restart(replica).await?;
        }
        18 if profile.nonsense && !world.is_frozen(number) => {
            note("talks nonsense");
            let frame = pick(
                random,
                &[
                    "nonsense",
                    r#"{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"1"}}}"#,
                    r#"{"type":"MODIFIED","object":{"kind":"Service","metadata":{"name":"x","#,
                ],
            );
            control.inject(RESOURCE, frame);
        }
        19 if profile.forbids => {
            let code = [401, 403, 403][random.random_range(0..3)];
            let kinds =
                [vec![RequestKind::List], vec![RequestKind::Watch], vec![RequestKind::List, RequestKind::Watch]];
            let kinds = kinds[random.random_range(0..3)].clone();
            let cluster_wide_only = random.random_bool(0.5);
            note(&format!("forbids {kinds:?} with {code}, in all namespaces at once only: {cluster_wide_only}"));
            control.reject(Some(Rejection { kinds, cluster_wide_only, ..Rejection::all(code) }));
            // Without this cut, open streams of the member continue during the fault.
            if random.random_bool(0.5) {
                control.cut_streams();
            }
            heal(lasts, move || control.reject(None));
        }
        20 if profile.lags => {
            note("watches lag");
            control.lag_watches(Duration::from_millis(random.random_range(100..6000)));
            heal(lasts, move || control.lag_watches(Duration::ZERO));
        }
        _ => {
            for _ in 0..20 {
                write(world, random);
            }
        }
    }
    Ok(())
}

/// Ends a fault after a time, even if the run has failed.
fn heal(after: Duration, end: impl FnOnce() + Send + 'static) {
    tokio::spawn(async move {
        sleep(after).await;
        end();
    });
}

/// Advances a member's revision by a write to another resource.
fn elsewhere(world: &World, number: usize) -> u64 {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x", "namespace": "default"}});
    world.members[number].apply(object).unwrap_or_default()
}

/// Restores a member to an older state. The run writes nothing to the member until every router and its clients have
/// detected the restore. A restore becomes undetectable when the member's revision exceeds the last revision that
/// clients received. (For this reason, `etcdutl snapshot restore` has `--bump-revision`.)
async fn restore(world: &Arc<World>, number: usize, random: &mut StdRng) -> anyhow::Result<()> {
    if !world.frozen.lock().insert(number) {
        return Ok(());
    }
    let control = world.members[number].control().clone();
    // The member must not apply requests in flight after the restore.
    control.read_only(true);
    // An administrator also stops a kube-apiserver while restoring its etcd.
    control.stop_listening().await;
    sleep(Duration::from_millis(random.random_range(0..3000))).await;
    let before = control.revision();
    let target = before.saturating_sub(random.random_range(0..12));
    let restored = control.restore(target);
    world.trace(|| format!("{} goes back from {before} to {target}: {restored}", NAMES[number][0]));
    sleep(Duration::from_millis(random.random_range(0..3000))).await;
    control.half_open(false);
    control.reject(None);
    control.lag_watches(Duration::ZERO);
    control.start_listening().await;
    let world = Arc::clone(world);
    tokio::spawn(async move {
        for _ in 0..NOTICED_WITHIN.as_secs() {
            sleep(Duration::from_secs(1)).await;
            match is_noticed(&world, number).await {
                Ok(true) if !world.is_followed_beyond(number) => {
                    world.trace(|| format!("{}: everybody has seen it", NAMES[number][0]));
                    world.restores.fetch_add(1, Ordering::Relaxed);
                    world.frozen.lock().remove(&number);
                    world.members[number].control().read_only(false);
                    return;
                }
                Ok(_) => {}
                Err(error) => return world.fail("the schedule", &format!("{error:#}")),
            }
        }
        world.fail("the schedule", &format!("nobody sees that {} went back", NAMES[number][0]));
    });
    Ok(())
}

/// Replaces members by other clusters, a few times in a run. The function has its own random generator, so that the
/// other random numbers of existing seeds stay the same.
pub(crate) async fn run_replacements(world: Arc<World>) {
    let mut random = StdRng::seed_from_u64(world.profile.seed ^ 0x5cce5);
    for _ in 0..random.random_range(1..=REPLACEMENTS_MAX) {
        sleep(Duration::from_millis(random.random_range(500..30_000))).await;
        if world.is_quiet() || world.failure().is_some() {
            return;
        }
        let number = random.random_range(0..MEMBERS);
        if let Err(error) = replace(&world, number, &mut random).await {
            world.fail("a replacement", &format!("{error:#}"));
        }
    }
}

/// Replaces a member by another cluster with a lower revision, at the same address or at a new one. The revision of the
/// new cluster soon exceeds the revision of the earlier cluster.
async fn replace(world: &Arc<World>, number: usize, random: &mut StdRng) -> anyhow::Result<()> {
    let (member, name) = (Arc::clone(&world.members[number]), NAMES[number][0]);
    let control = member.control().clone();
    control.stop_listening().await;
    // In this time, the earlier cluster completes the requests that it has already received.
    sleep(Duration::from_millis(random.random_range(1..3000))).await;
    if world.is_quiet() {
        control.start_listening().await;
        return Ok(());
    }
    let before = control.revision();
    control.replace(before.saturating_sub(random.random_range(1..60)));
    let (to, moves) = (control.revision(), random.random_bool(0.5));
    world.trace(|| format!("{name}: another cluster, from {before} to {to}, at a new address: {moves}"));
    for object in OBJECTS.choose_multiple(random, 2) {
        member.apply(service(pick(random, &NAMESPACES), object, &world.value(), COLORS[0], TYPES[0]))?;
    }
    if moves {
        world.reconfigure().await?;
    }
    sleep(Duration::from_millis(random.random_range(0..3000))).await;
    control.start_listening().await;
    let (world, after) = (Arc::clone(world), Duration::from_millis(random.random_range(0..20_000)));
    tokio::spawn(async move {
        sleep(after).await;
        while !world.is_quiet() && world.members[number].control().revision() <= before {
            elsewhere(&world, number);
        }
    });
    Ok(())
}

/// Returns whether no router shows a later version of the member than the member's revision, so that every router has
/// detected the restore.
async fn is_noticed(world: &World, number: usize) -> anyhow::Result<bool> {
    let revision = world.members[number].control().revision();
    for replica in 0..REPLICAS {
        let list = world.get(replica, &format!("/api/v1/{RESOURCE}?resourceVersion=0")).await?;
        if list.code != 200 {
            return Ok(false);
        }
        let version = vector(&list.json["metadata"]["resourceVersion"])?;
        if NAMES[number].iter().any(|name| version.get(*name).is_some_and(|own| own.revision > revision)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Adds, removes, renames or reconfigures a cluster.
async fn topology(world: &Arc<World>, number: usize, random: &mut StdRng) -> anyhow::Result<()> {
    let [name, other] = NAMES[number];
    let configured = world.configured().1;
    let present = configured.iter().find(|(_, member)| **member == number).map(|(name, _)| name.clone());
    let kind = random.random_range(0..4);
    world.trace(|| format!("the configuration changes: {name} is {present:?}, {kind}"));
    match (present, kind) {
        (Some(_), 3) => world.reconfigure().await,
        (Some(present), 0 | 1) => {
            world.configure(|configured| configured.retain(|name, _| *name != present)).await?;
            let (world, after) = (Arc::clone(world), Duration::from_millis(random.random_range(0..20_000)));
            tokio::spawn(async move {
                sleep(after).await;
                let back = world.configure(|configured| {
                    if !configured.values().any(|member| *member == number) {
                        configured.insert(present, number);
                    }
                });
                if let Err(error) = back.await {
                    world.fail("the schedule", &format!("{error:#}"));
                }
            });
            Ok(())
        }
        (present, _) => {
            let to = if present.as_deref() == Some(name) { other } else { name };
            world
                .configure(|configured| {
                    configured.retain(|_, member| *member != number);
                    configured.insert(to.to_owned(), number);
                })
                .await
        }
    }
}

pub(crate) async fn end_of_trouble(world: &Arc<World>) -> anyhow::Result<()> {
    world.trace(|| "everything comes to rest".to_owned());
    world.quiet.store(true, Ordering::Relaxed);
    for member in &world.members {
        let control = member.control();
        control.cut_streams_after(None);
        control.slow(None);
        control.half_open(false);
        control.reject(None);
        control.lag_watches(Duration::ZERO);
        control.serve(RESOURCE, true);
        control.start_listening().await;
    }
    world
        .configure(|configured| {
            for (number, names) in NAMES.iter().enumerate() {
                if !configured.values().any(|member| *member == number) {
                    configured.insert(names[0].to_owned(), number);
                }
            }
        })
        .await
}
