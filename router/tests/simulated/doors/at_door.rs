//! Members behind a router, with a client at one door.

use std::ops::Deref;

use serde_json::{Value, json};
use tributary_apimachinery::ForeignSystem;

use super::table::{DoorForm, DoorRow};
use crate::harness::{ANNOTATION, Answer, Client, Events, Fixture};

/// The annotation by which Karmada names the cluster of an object.
const CACHED_FROM: &str = "resource.karmada.io/cached-from-cluster";

/// A fixture whose requests use a door.
pub(crate) struct AtDoor {
    pub(crate) fixture: Fixture,
    row: &'static DoorRow,
}

impl Deref for AtDoor {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl DoorRow {
    /// Starts members with these names. All doors are open.
    pub(crate) async fn start<const N: usize>(&'static self, names: [&str; N]) -> AtDoor {
        AtDoor { fixture: Fixture::start(names).await, row: self }
    }

    /// Returns this client at the door. All doors are open, and foreign systems know the members by their names.
    pub(crate) fn enter(&self, client: Client, fixture: &Fixture) -> Client {
        let others = fixture.members.iter().map(|member| member.name()).filter(|name| *name != "a");
        let names: Vec<_> = ["a"].into_iter().chain(others).collect();
        let doors = client.open_doors(&ForeignSystem::ALL, &names);
        client.at_mount((self.mount)(doors)).below(self.prefix)
    }

    pub(crate) fn client(&self, fixture: &Fixture) -> Client {
        self.enter(fixture.client(), fixture)
    }

    /// Checks that the request is refused with this code, in the form of the door.
    #[track_caller]
    pub(crate) fn check_refusal(&self, answer: &Answer, code: u16) {
        if self.form == DoorForm::InKarmadasWords && matches!(code, 404 | 405 | 409) {
            let is_text = answer.headers["content-type"].to_str().unwrap().starts_with("text/plain");
            assert!(answer.code == code && is_text, "{self:?}: {answer:?}");
            return;
        }
        answer.refused(code);
    }

    /// Removes what the door adds to an answer of the first row.
    pub(crate) fn without_additions(&self, mut value: Value) -> Value {
        if self.form != DoorForm::Equal {
            remove_karmadas_annotation(&mut value);
        }
        value
    }
}

fn remove_karmadas_annotation(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                assert_eq!(annotations.remove(CACHED_FROM), annotations.get(ANNOTATION).cloned());
            }
            fields.values_mut().for_each(remove_karmadas_annotation);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_karmadas_annotation),
        _ => {}
    }
}

impl AtDoor {
    pub(crate) fn client(&self) -> Client {
        self.row.client(&self.fixture)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.client().get(path).await
    }

    pub(crate) async fn write(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.client().send(method, path, &[("content-type", "application/json")], &body.to_string()).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Events {
        self.client().watch(path).await
    }
}

/// Returns a ConfigMap in `default` for a create: at a door of the merged view it names the cluster `a`.
pub(crate) fn config_map_for(row: &DoorRow, name: &str) -> Value {
    let mut object = crate::harness::config_map(name, "1");
    if row.is_merged() {
        object["metadata"]["annotations"] = json!({ ANNOTATION: "a" });
    }
    object
}
