//! A client that writes through the routers in any state of the clusters. An object's name may exist in no cluster, in
//! one, or in several. A write has an annotation, a precondition, or neither. [`crate::ledger`] checks which object
//! each write changes.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::follower::Version;
use crate::ledger::{Bare, Known, Meaning, Outcome, Verb, Write};
use crate::schedule::{COLORS, NAMESPACES, OBJECTS, TYPES};
use crate::truth::{State, Vector};
use crate::world::{Answer, NAMES, REPLICAS, RESOURCE, World, service, vector};

/// Names of objects that only this client writes. Often one cluster or no cluster has an object with such a name.
const OWN_OBJECTS: [&str; 2] = ["lone", "sole"];

/// The number of objects that the client remembers from its reads. Some of them are outdated.
const REMEMBERED: usize = 40;

/// Writes until a failure or until the faults end.
pub(crate) async fn run(world: Arc<World>) {
    let random = StdRng::seed_from_u64(world.profile.seed ^ 0x0031_7e50);
    let mut client = Client { world, random, read: VecDeque::new(), count: 0 };
    while client.world.failure().is_none() && !client.world.is_quiet() {
        let pause = client.random.random_range(500..10_000);
        sleep(Duration::from_millis(pause)).await;
        if let Err(error) = client.write().await {
            client.world.fail("a client that writes", &format!("{error:#}"));
        }
    }
}

struct Client {
    world: Arc<World>,
    random: StdRng,
    read: VecDeque<Read>,
    count: usize,
}

#[derive(Clone)]
struct Read {
    member: usize,
    key: String,
    state: State,
    version: String,
}

impl Client {
    /// Reads a router's version and writes through that router.
    async fn write(&mut self) -> anyhow::Result<()> {
        let replica = self.random.random_range(0..REPLICAS);
        let namespace = self.pick(&NAMESPACES);
        let collection = format!("/api/v1/namespaces/{namespace}/{RESOURCE}");
        let (router, settled) = (self.world.router(replica), self.world.settled());
        let list = self.world.get(replica, &format!("{collection}?resourceVersion=0")).await?;
        let known = self.remember(&list)?;
        if !Arc::ptr_eq(&router, &self.world.router(replica)) || settled != self.world.settled() {
            return Ok(());
        }
        let Some((write, path, body)) = self.draw(namespace, known.as_ref()) else { return Ok(()) };
        let marker = write.marker.clone();
        let (method, query, media_type) = match write.verb {
            Verb::Apply => ("PATCH", "?fieldManager=model&force=true", "application/apply-patch+yaml"),
            Verb::Merge => ("PATCH", "", "application/merge-patch+json"),
            Verb::Replace => ("PUT", "", "application/json"),
            Verb::Delete => ("DELETE", "", "application/json"),
        };
        self.world.sent(write);
        let body = body.as_ref().map(|body| (media_type, body));
        let answer = self.world.send(replica, method, &format!("{path}{query}"), body).await?;
        self.world.answered(&marker, outcome(&answer))?;
        Ok(())
    }

    /// Remembers objects of a list. Returns the list's composite version.
    fn remember(&mut self, list: &Answer) -> anyhow::Result<Option<Vector>> {
        let Some(items) = list.json["items"].as_array().filter(|_| list.code == 200) else { return Ok(None) };
        for item in items {
            let (cluster, key, state, version) = self.world.shown(item)?;
            let named = if let Version::Item(own, _) = &version { own } else { &cluster };
            let Some(member) = NAMES.iter().position(|names| names.contains(&named.as_str())) else { continue };
            if !self.random.random_bool(0.2) {
                continue;
            }
            let version = item["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            self.read.push_back(Read { member, key, state, version });
            if self.read.len() > REMEMBERED {
                let forgotten = self.random.random_range(0..self.read.len());
                self.read.remove(forgotten);
            }
        }
        Ok(Some(vector(&list.json["metadata"]["resourceVersion"])?))
    }

    /// Chooses a random write, and returns it with its path and body.
    fn draw(&mut self, namespace: &str, known: Option<&Vector>) -> Option<(Write, String, Option<Value>)> {
        let own = self.random.random_bool(0.5);
        let name = self.pick(if own { &OWN_OBJECTS } else { &OBJECTS });
        let key = format!("{namespace}/{name}");
        let any = *[Verb::Apply, Verb::Apply, Verb::Merge, Verb::Replace, Verb::Delete].choose(&mut self.random)?;
        // A deletion cannot name its cluster in an annotation, because `DeleteOptions` have none.
        let annotated = if any == Verb::Delete { Verb::Apply } else { any };
        let (verb, key, meaning, metadata) = match self.random.random_range(0..3) {
            0 => {
                let names = NAMES.choose(&mut self.random)?;
                let cluster = self.cluster(names);
                let member = NAMES.iter().position(|own| own == names)?;
                let metadata = json!({"annotations": {"tributary.dev/cluster": cluster}});
                (annotated, key, Meaning::Annotated(member), metadata)
            }
            1 => {
                let place = self.random.random_range(0..self.read.len().max(1));
                let Read { member, key, state, version } = self.read.get(place)?.clone();
                let (by_uid, by_version) = [(true, false), (false, true), (true, true)].choose(&mut self.random)?;
                let mut metadata = json!({});
                if *by_uid {
                    metadata["uid"] = state.uid.clone().into();
                }
                if *by_version {
                    metadata["resourceVersion"] = version.into();
                }
                let uid = by_uid.then(|| state.uid.clone());
                (any, key, Meaning::Object { member, uid, state: by_version.then_some(state) }, metadata)
            }
            _ => (any, key, Meaning::Bare(self.known(known)), json!({})),
        };
        self.count += 1;
        let marker = format!("w{}", self.count);
        let body = self.body(verb, &key, &marker, metadata);
        let (namespace, name) = key.split_once('/')?;
        let path = format!("/api/v1/namespaces/{namespace}/{RESOURCE}/{name}");
        Some((Write { marker, verb, key, meaning }, path, body))
    }

    /// Chooses one of a member's two cluster names: usually the configured name, if there is one.
    fn cluster(&mut self, names: &[&'static str; 2]) -> &'static str {
        let configured = self.world.configured().1;
        let has = names.iter().find(|name| configured.contains_key(**name)).copied();
        let any = self.pick(names);
        if self.random.random_bool(0.9) { has.unwrap_or(any) } else { any }
    }

    /// Returns the knowledge of a router that answered a list with this version.
    fn known(&self, known: Option<&Vector>) -> Bare {
        // The router's answer to the list has no version, so the knowledge of the router is unknown.
        let Some(vector) = known else { return Bare::default() };
        let settled = self.world.settled();
        self.world.with_truth(|truth| {
            let known = settled.into_iter().filter_map(|(cluster, settled)| {
                let step = truth.history(&cluster).ok()?.last_step();
                let version = vector.get(&cluster).copied();
                // A cluster that does not serve the resource is missing in the version and has no objects of the
                // resource.
                let counts = version.is_some() || !self.world.profile.hides;
                counts.then_some(Known { cluster, settled, version, step })
            });
            Bare { known: known.collect() }
        })
    }

    /// Returns the body of a request. `metadata` identifies the object of the write.
    fn body(&mut self, verb: Verb, key: &str, marker: &str, metadata: Value) -> Option<Value> {
        if verb == Verb::Delete {
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": metadata});
            return (metadata != json!({})).then_some(options);
        }
        let (namespace, name) = key.split_once('/')?;
        let (color, service_type) = (self.pick(&COLORS), self.pick(&TYPES));
        let mut object = match verb {
            Verb::Merge => json!({"metadata": {"annotations": {"value": marker}}}),
            _ => service(namespace, name, marker, color, service_type),
        };
        for (member, said) in metadata.as_object()? {
            match said.as_object() {
                Some(annotations) => {
                    for (annotation, value) in annotations {
                        object["metadata"][member][annotation] = value.clone();
                    }
                }
                None => object["metadata"][member] = said.clone(),
            }
        }
        Some(object)
    }

    fn pick(&mut self, of: &[&'static str]) -> &'static str {
        of.choose(&mut self.random).copied().unwrap_or_default()
    }
}

/// Returns the outcome of a write from its response. After an error response the write was not carried out, unless the
/// message says that it may have been.
fn outcome(answer: &Answer) -> Outcome {
    let message = answer.json["message"].as_str().unwrap_or_default();
    match answer.code {
        200..300 => Outcome::Done,
        code if message.contains("may have been carried out") => Outcome::Lost(code),
        code => Outcome::Refused(code),
    }
}
