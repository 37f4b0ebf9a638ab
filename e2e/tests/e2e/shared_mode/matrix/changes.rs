//! Executes writes on objects that the test has created for this purpose. Afterwards the members' objects must show the
//! effect of each write.

use super::{
    kinds::{KINDS, Kind},
    oracle::{Expectation, Expected, Oracle},
    user_request::{Operation, Selector, Side, UserRequest, Verb},
    world::World,
};
use crate::{context::eventually, shared_mode::SOON};
use anyhow::ensure;
use rand::{Rng, rngs::StdRng};
use serde_json::{Value, json};

/// Object with a certain name in each member. `None` for a member without the object.
type State = [Option<Value>; 2];

/// Creates and writes an object as a user, and deletes a collection. Both members have the namespace of these writes.
pub(super) async fn change(world: &World, random: &mut StdRng) -> anyhow::Result<()> {
    let namespaced: Vec<_> = KINDS.iter().filter(|kind| kind.namespaced).collect();
    let writer = Writer {
        world,
        person: random.random_range(0..world.people.len()),
        kind: namespaced[random.random_range(0..namespaced.len())],
        place: &world.places[random.random_range(0..2)],
        owner: random.random_range(0..2),
    };
    let named = [None, Some(0), Some(1)][random.random_range(0..3)];
    writer.creates(named).await?;
    for verb in [Verb::Update, Verb::Patch, Verb::Delete] {
        writer.writes(verb).await?;
    }
    writer.deletes_collection([None, Some(0), Some(1)][random.random_range(0..3)]).await
}

struct Writer<'a> {
    world: &'a World,
    person: usize,
    kind: &'static Kind,
    place: &'a str,
    /// Index of the member that has the object.
    owner: usize,
}

impl Writer<'_> {
    fn user_request(&self, ask: Operation) -> UserRequest {
        UserRequest { person: self.person, kind: self.kind, place: self.place.to_owned(), ask }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.kind.path(self.place))
    }

    async fn state(&self, name: &str) -> anyhow::Result<State> {
        let mut state = State::default();
        for (member, own) in state.iter_mut().enumerate() {
            let answer = self.world.member(member).http().get(&self.path(name)).send().await?;
            if answer.status == 200 {
                *own = Some(answer.json()?);
            }
        }
        Ok(state)
    }

    /// Executes a write, and checks the status of the response. Returns the expected response and the actual status.
    async fn done(&self, user_request: &UserRequest) -> anyhow::Result<(Expectation, u16)> {
        let expectation = Oracle::new(self.world).expect_answer(user_request).await?;
        let due = match &expectation.expected {
            Expected::Of(_, said) => said.status.as_u16(),
            Expected::Refused(status, _) => *status,
            Expected::NameInSeveral => 409,
            _ => 200,
        };
        let request = user_request.request(self.world, Side::Endpoint).for_real();
        let answer = request.of(&self.world.people[self.person].http).send().await?;
        let what = || format!("{} instead of {due}, {expectation:?}: {}", answer.status, answer.text());
        ensure!(answer.status == due, "{} {user_request:?}: {}", request.path, what());
        Ok((expectation, due))
    }

    /// Creates an object in the member that the request names, or in the member that the endpoint chooses. Afterwards
    /// deletes the object.
    async fn creates(&self, named: Option<usize>) -> anyhow::Result<()> {
        let name = self.world.name(self.kind, "new");
        let user_request = self.user_request(Operation::Create(named, name.clone()));
        let (expectation, status) = self.done(&user_request).await?;
        let state = self.state(&name).await?;
        let target = match expectation.expected {
            Expected::Of(member, _) if status == 201 => Some(member),
            _ => None,
        };
        for (member, object) in state.iter().enumerate() {
            let is_there = object.is_some();
            ensure!(
                is_there == (target == Some(member)),
                "{user_request:?} made it in {member}: {is_there}; {expectation:?}"
            );
        }
        self.clean_up(&name).await
    }

    /// Writes an object that only one member has. If the write is refused, no object may have changed.
    async fn writes(&self, verb: Verb) -> anyhow::Result<()> {
        let name = format!("written-{}", verb.word());
        self.world.make(self.owner, self.kind, self.place, &name, &json!({})).await?;
        let user_request = self.user_request(Operation::Write(verb, name.clone()));
        let is_touched = |object: &Value| object["metadata"]["labels"]["touched"] == "yes";
        // A user without the right to get the object receives 404 until Tributary has cached the object.
        eventually(SOON, async || {
            let (expectation, status) = self.done(&user_request).await?;
            let changed = match expectation.expected {
                Expected::Of(member, _) if status < 300 => Some(member),
                _ => None,
            };
            let state = self.state(&name).await?;
            for (member, object) in state.iter().enumerate() {
                // If the user cannot see the existing object, the write may instead create an object of the same name
                // in the other member.
                let is_changed = match member == self.owner {
                    true => object.as_ref().is_none_or(is_touched),
                    false => object.is_some(),
                };
                let is_due = changed == Some(member);
                ensure!(
                    is_changed == is_due,
                    "{user_request:?} is answered {status}, and in {member} it is {object:?}"
                );
            }
            Ok(())
        })
        .await?;
        self.clean_up(&name).await
    }

    async fn clean_up(&self, name: &str) -> anyhow::Result<()> {
        for (member, object) in self.state(name).await?.iter().enumerate() {
            if object.is_some() {
                self.world.member(member).http().delete(&self.path(name)).send().await?.expect(200)?;
            }
        }
        Ok(())
    }

    /// Deletes a collection with objects in both members.
    async fn deletes_collection(&self, wanted: Option<usize>) -> anyhow::Result<()> {
        let names = ["set-a", "set-b"];
        for member in 0..2 {
            for name in names {
                self.world.make(member, self.kind, self.place, name, &json!({"set": "yes"})).await?;
            }
        }
        let user_request = self.user_request(Operation::DeleteCollection(Selector::of_set(wanted)));
        let (expectation, status) = self.done(&user_request).await?;
        for name in names {
            let state = self.state(name).await?;
            for (member, object) in state.iter().enumerate() {
                let is_wanted = expectation.known[member] && wanted.is_none_or(|only| only == member);
                let is_deleted = status == 200 && is_wanted;
                ensure!(
                    object.is_none() == is_deleted,
                    "{user_request:?}: {name} in {member} with {status}: {expectation:?}"
                );
            }
            self.clean_up(name).await?;
        }
        Ok(())
    }
}
