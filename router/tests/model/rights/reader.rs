//! The client of a user, which lists, watches and stores the objects like an informer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http_body_util::BodyExt;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::{Objects, RESOURCE, World, is_ours, objects, place, text};

pub(super) struct Reader {
    world: Arc<World>,
    user: &'static str,
    random: StdRng,
    held: Arc<Mutex<Objects>>,
}

impl Reader {
    pub(super) fn new(world: &Arc<World>, user: &'static str, seed: u64) -> Self {
        Self { world: Arc::clone(world), user, random: StdRng::seed_from_u64(seed), held: Arc::default() }
    }

    pub(super) fn held(&self) -> Arc<Mutex<Objects>> {
        Arc::clone(&self.held)
    }

    pub(super) async fn run(mut self) {
        loop {
            match self.list().await {
                Ok(Some(mut version)) => {
                    // The client resumes a watch that ends regularly or breaks. After a refused watch, the client lists
                    // again.
                    while let Ok(Some(next)) = self.watch(&version).await {
                        version = next;
                    }
                }
                Ok(None) => sleep(Duration::from_millis(self.random.random_range(100..2000))).await,
                Err(error) => {
                    self.world.fail(&format!("{}: {error:#}", self.user));
                    return;
                }
            }
        }
    }

    /// Lists all objects. Returns the list's resourceVersion, or `None` if the router refuses the list.
    async fn list(&mut self) -> anyhow::Result<Option<String>> {
        let begun = Instant::now();
        let (code, list) = self.world.get(self.user, &format!("/api/v1/{RESOURCE}")).await?;
        self.world.trace(|| format!("{} lists: {code} {:?}", self.user, list.as_ref().map(objects)));
        let Some(list) = list else { return Ok(None) };
        for item in list["items"].as_array().into_iter().flatten().filter(|item| is_ours(item)) {
            self.world.shown(self.user, item, begun);
        }
        *self.held.lock() = objects(&list);
        Ok(Some(text(&list["metadata"]["resourceVersion"])))
    }

    /// Watches from a resourceVersion. Returns the version to resume from, or `None` if the client must list again.
    async fn watch(&mut self, version: &str) -> anyhow::Result<Option<String>> {
        let seconds = self.random.random_range(1..120);
        let options = format!("watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}");
        let (code, mut body) = self.world.call(self.user, &format!("/api/v1/{RESOURCE}?{options}")).await?;
        if code != 200 {
            self.world.trace(|| format!("{} watches: {code}", self.user));
            return Ok(None);
        }
        let (mut buffer, mut version) = (Vec::new(), version.to_owned());
        let leave = Duration::from_secs(self.random.random_range(1..150));
        let left = Instant::now() + leave;
        loop {
            let may_leave = !self.world.quiet.load(Ordering::Relaxed);
            let patience =
                if may_leave { left.saturating_duration_since(Instant::now()) } else { Duration::from_secs(300) };
            let Ok(frame) = timeout(patience, body.frame()).await else { return Ok(Some(version)) };
            let Some(frame) = frame else { return Ok(Some(version)) };
            let frame = frame.map_err(|error| anyhow::anyhow!("the watch broke off: {error}"))?;
            buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                match self.take(&serde_json::from_slice(&line)?) {
                    Some(next) => version = next,
                    None => return Ok(None),
                }
            }
        }
    }

    /// Applies an event. Returns the event's resourceVersion, or `None` if the client must list again.
    fn take(&self, event: &Value) -> Option<String> {
        let object = &event["object"];
        let kind = event["type"].as_str().unwrap_or_default();
        self.world.trace(|| format!("{} is told: {kind} {:?} {}", self.user, place(object), object["code"]));
        if kind == "ERROR" {
            return None;
        }
        if kind != "BOOKMARK" && is_ours(object) {
            self.world.shown(self.user, object, Instant::now());
            let value = text(&object["metadata"]["annotations"]["value"]);
            match kind {
                "DELETED" => drop(self.held.lock().remove(&place(object))),
                _ => drop(self.held.lock().insert(place(object), value)),
            }
        }
        Some(text(&object["metadata"]["resourceVersion"]))
    }
}
