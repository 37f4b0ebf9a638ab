//! Creates, changes and deletes pods continuously without a request from a test.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::catalog::PODS;
use crate::config::Churn;
use crate::generate;
use crate::scale;
use crate::store::MemberStore;
use crate::write;

/// Of ten changes, the number that change the status of a pod. The remaining changes replace a pod.
const STATUS_CHANGES: u32 = 7;
/// The maximum time between two changes, in seconds.
const PAUSE_MAX: f64 = 3600.0;

/// Changes pods until `stop` is cancelled. The seed determines the pods and the changes, and the clock determines their
/// times.
pub(crate) async fn run(store: Arc<MemberStore>, churn: Churn, seed: u64, stop: CancellationToken) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut replaced = HashMap::new();
    let pause = Duration::from_secs_f64((1.0 / churn.changes_per_second).clamp(1e-6, PAUSE_MAX));
    let mut ticks = tokio::time::interval(pause);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => change(&store, &mut random, &mut replaced),
        }
    }
}

/// Makes one change. `replaced` contains the names of the pods that replaced generated pods.
fn change(store: &MemberStore, random: &mut StdRng, replaced: &mut HashMap<usize, String>) {
    let layout = store.generator().layout();
    let count = layout.count(PODS);
    if count == 0 {
        return;
    }
    let place = random.random_range(0..count);
    let key = replaced.get(&place).cloned().unwrap_or_else(|| layout.key(PODS, place));
    if random.random_range(0..10) < STATUS_CHANGES {
        scale::change(store, PODS, &key, restart);
        return;
    }
    let Some(pod) = store.view(PODS).get(&key) else { return };
    write::remove(store, PODS, pod.namespace(), pod.name());
    let mut successor = write::to_value(&pod);
    let prefix = successor["metadata"]["generateName"].as_str().unwrap_or_default();
    let name = format!("{prefix}{}", write::suffix(store.entropy()));
    replaced.insert(place, format!("{}/{name}", pod.namespace()));
    let metadata = &mut successor["metadata"];
    metadata["name"] = name.into();
    metadata["managedFields"] = Value::Null;
    successor["spec"]["nodeName"] = Value::Null;
    scale::run(store, &mut successor);
    // The copy of a pod has a kind, a name and a namespace, so the write succeeds.
    let _ = write::apply(store, successor);
}

fn restart(pod: &mut Value) {
    let now = generate::rfc3339(Timestamp::now().as_second());
    let Some(status) = pod["status"]["containerStatuses"].get_mut(0) else {
        pod["metadata"]["annotations"]["simulator/seen"] = now.into();
        return;
    };
    status["restartCount"] = (status["restartCount"].as_u64().unwrap_or(0) + 1).into();
    status["lastState"] =
        json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now, "startedAt": now}});
    if !status["state"]["running"].is_null() {
        status["state"]["running"]["startedAt"] = now.clone().into();
    }
}
