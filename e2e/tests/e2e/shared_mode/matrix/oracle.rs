//! Computes the expected response from the members' own responses to the user.
//!
//! * A collection is the combination of the members' lists. If a member refuses to list all namespaces, its part is the
//!   combination of the namespaces that the user may list. Roles decide which namespaces Tributary tries, even if a
//!   further authorizer also decides. If roles allow a list of all namespaces that the member refuses, a list of all
//!   namespaces has no object of this member (`docs/shared-mode.md`, "By what a cluster is judged").
//! * A watch reports the objects that the user may list. It is refused if the user may not watch some of these objects.
//! * If only one member shows an object to the user, the response is that member's response. If several members do, the
//!   name is ambiguous. If no member does, the response is 404 or 403.
//! * Candidates for a write are the members where the user may execute the write or get its object (for a collection:
//!   list the collection). If no member allows the write, it is refused before any search for the object.
//! * A create goes to its target member, without a search for the name in other members. Only the target reports that
//!   the name exists (409), and only to a user who may create there.
//!
//! If Tributary does not cache a kind (`is_live`), it sends requests to the members as the user, and these rules differ
//! (`docs/shared-mode.md`, "What a user sees"; `forward/owner/search.rs` of the router):
//!
//! * A list of all namespaces has only the members that let the user list all namespaces. If the selector leaves these
//!   members out, the list is empty.
//! * A watch is 405 for every user.
//! * If a user may write a name in a member but not get it, Tributary cannot search that member. A write is then 503 if
//!   a different member has the name, because both members may have it. Otherwise it is 403, with the message of the
//!   member that forbids the get.

use super::{
    answer::{self, Identity, Objects},
    kinds::KINDS,
    user_request::{Operation, Request, Selector, Side, UserRequest, Verb, review},
    world::World,
};
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};
use tokio::sync::Mutex;
use tributary_e2e::{HttpResponse, http::RequestBuilder};

/// Cache of the members' responses. The cache is valid as long as rights do not change.
pub(super) struct Oracle<'a> {
    pub(super) world: &'a World,
    said: Mutex<HashMap<(usize, usize, Request), Arc<HttpResponse>>>,
    watches: Mutex<HashMap<(usize, usize, String), u16>>,
}

#[derive(Debug)]
pub(super) struct Expectation {
    pub(super) expected: Expected,
    /// Members whose existence the response may reveal to the user.
    pub(super) known: [bool; 2],
}

#[derive(Debug)]
pub(super) enum Expected {
    Objects(Objects),
    Object(Identity, Box<Value>),
    /// The response must be the response of this member.
    Of(usize, Arc<HttpResponse>),
    /// The response must be a refusal with this status. If the list is not empty, its message must be one of these
    /// messages of members.
    Refused(u16, Vec<String>),
    /// The response must be 409, because both members have the name.
    NameInSeveral,
    Deleted,
    May(bool),
}

/// Cluster in which a new object must be created.
enum Target {
    Member(usize),
    Nowhere,
    /// One member has the namespace and allows the create. The other member may also have the namespace, but the user
    /// may not look for it there.
    Unsure,
}

/// Key of an extra field that marks an access review. The test's webhooks never deny such a review, so only roles
/// decide about it.
pub(super) const ROLES_ALONE: &str = "roles-alone";

const MEMBERS: [usize; 2] = [0, 1];

impl<'a> Oracle<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        Self { world, said: Mutex::default(), watches: Mutex::default() }
    }

    pub(super) async fn expect_answer(&self, user_request: &UserRequest) -> anyhow::Result<Expectation> {
        match &user_request.ask {
            Operation::List(_, selector) => self.list(user_request, selector).await,
            Operation::Watch(_) if user_request.kind.is_live => {
                Ok(Expectation { expected: Expected::Refused(405, Vec::new()), known: [false; 2] })
            }
            Operation::Watch(selector) => self.watch(user_request, selector).await,
            Operation::Get(_, name) => self.get(user_request, name).await,
            Operation::Below(verb, below, name) => self.named(user_request, *verb, below, name).await,
            Operation::Write(verb, name) => self.named(user_request, *verb, "", name).await,
            Operation::Create(member, _) => self.create(user_request, *member).await,
            Operation::DeleteCollection(selector) => self.delete_collection(user_request, selector).await,
            Operation::May(verb, name) => self.review(user_request, verb, name).await,
        }
    }

    async fn member_answer(
        &self,
        member: usize,
        person: usize,
        request: &Request,
    ) -> anyhow::Result<Arc<HttpResponse>> {
        let key = (member, person, request.clone());
        if let Some(said) = self.said.lock().await.get(&key) {
            return Ok(Arc::clone(said));
        }
        let said = Arc::new(self.by(member, person, request).send().await?);
        self.said.lock().await.insert(key, Arc::clone(&said));
        Ok(said)
    }

    fn by(&self, member: usize, person: usize, request: &Request) -> RequestBuilder {
        let person = &self.world.people[person];
        let request = request.of(self.world.member(member).http());
        request.header("impersonate-user", &person.name).header("impersonate-group", &person.group)
    }

    /// Returns the status of a member's response to a user's watch.
    async fn watch_status(&self, member: usize, person: usize, request: &Request) -> anyhow::Result<u16> {
        let key = (member, person, request.path.clone());
        if let Some(status) = self.watches.lock().await.get(&key) {
            return Ok(*status);
        }
        let status = self.by(member, person, request).stream().await?.status.as_u16();
        self.watches.lock().await.insert(key, status);
        Ok(status)
    }

    /// Returns for each member whether it allows the user a verb.
    async fn may(&self, user_request: &UserRequest, verb: &str, below: &str, name: &str) -> anyhow::Result<[bool; 2]> {
        self.allowed(user_request.person, &user_request.review(verb, below, name)).await
    }

    async fn allowed(&self, person: usize, review: &Request) -> anyhow::Result<[bool; 2]> {
        let mut allowed = [false; 2];
        for member in MEMBERS {
            let answer = self.member_answer(member, person, review).await?.json()?;
            allowed[member] = answer["status"]["allowed"].as_bool().context("no answer")?;
        }
        Ok(allowed)
    }

    /// Returns for each member whether it has an object at a path.
    async fn has(&self, path: &str) -> anyhow::Result<[bool; 2]> {
        let mut has = [false; 2];
        for member in MEMBERS {
            has[member] = self.world.member(member).http().get(path).send().await?.status == 200;
        }
        Ok(has)
    }

    /// Splits a request for all namespaces into one request per namespace. Requests for one namespace, and requests for
    /// kinds that Tributary does not cache, are not split.
    fn within(&self, user_request: &UserRequest) -> Vec<UserRequest> {
        let is_joined = user_request.kind.namespaced && user_request.place.is_empty() && !user_request.kind.is_live;
        let all: &[String] = if is_joined { &self.world.places } else { &[] };
        all.iter().map(|place| UserRequest { place: place.clone(), ..user_request.clone() }).collect()
    }

    /// Returns the requests for single namespaces that Tributary tries after a member has refused the request for all
    /// namespaces. If roles allow the request for all namespaces, Tributary tries no single namespace.
    async fn proposed(
        &self,
        user_request: &UserRequest,
        member: usize,
        verb: &str,
    ) -> anyhow::Result<Vec<UserRequest>> {
        let parts = self.within(user_request);
        if parts.is_empty() {
            return Ok(parts);
        }
        let review = user_request.review(verb, "", "");
        let asked = self.by(member, user_request.person, &review);
        let asked = asked.header(&format!("impersonate-extra-{ROLES_ALONE}"), "yes");
        let said = asked.send().await?.json()?;
        let is_all_given = said["status"]["allowed"].as_bool().context("no answer")?;
        Ok(if is_all_given { Vec::new() } else { parts })
    }

    /// Returns a member's responses to a list: either one response for all namespaces (with an empty namespace), or one
    /// for each namespace that the user may list.
    async fn listed(
        &self,
        user_request: &UserRequest,
        member: usize,
    ) -> anyhow::Result<Vec<(String, Arc<HttpResponse>)>> {
        let mut listed = Vec::new();
        let whole =
            self.member_answer(member, user_request.person, &user_request.request(self.world, Side::Member)).await?;
        match whole.status.as_u16() {
            200 => listed.push((String::new(), whole)),
            403 => {
                for part in self.proposed(user_request, member, "list").await? {
                    let said = self.member_answer(member, part.person, &part.request(self.world, Side::Member)).await?;
                    match said.status.as_u16() {
                        200 => listed.push((part.place, said)),
                        403 => {}
                        status => bail!("a list is answered {status}: {}", said.text()),
                    }
                }
            }
            status => bail!("a list is answered {status}: {}", whole.text()),
        }
        Ok(listed)
    }

    async fn list(&self, user_request: &UserRequest, selector: &Selector) -> anyhow::Result<Expectation> {
        let (mut known, mut all) = ([false; 2], None);
        for member in MEMBERS {
            let listed = self.listed(user_request, member).await?;
            known[member] = !listed.is_empty();
            for (_, answer) in listed.iter().filter(|_| selector.member.is_none_or(|only| only == member)) {
                let items = answer.json()?["items"].take();
                let name = self.world.member(member).name();
                all.get_or_insert_with(Objects::new).extend(answer::objects(self.world, &items, Some(name))?);
            }
        }
        let expected = match all {
            Some(all) => Expected::Objects(all),
            // If a kind is cached and the user may read no object, the response is 403 with every selector. A kind that
            // is not cached may get an empty list.
            None if user_request.kind.is_live && known.contains(&true) => Expected::Objects(Objects::new()),
            None => {
                Expected::Refused(403, self.words(user_request, &user_request.request(self.world, Side::Member)).await?)
            }
        };
        Ok(Expectation { expected, known })
    }

    /// Returns the messages with which the members refuse a request.
    async fn words(&self, user_request: &UserRequest, request: &Request) -> anyhow::Result<Vec<String>> {
        let mut words = Vec::new();
        for member in MEMBERS {
            let said = self.member_answer(member, user_request.person, request).await?;
            if !said.status.is_success() {
                words.push(said.json()?["message"].as_str().unwrap_or_default().to_owned());
            }
        }
        Ok(words)
    }

    async fn watch(&self, user_request: &UserRequest, selector: &Selector) -> anyhow::Result<Expectation> {
        let list = UserRequest {
            ask: Operation::List(super::user_request::ListForm::Whole, selector.clone()),
            ..user_request.clone()
        };
        let Expectation { expected, mut known } = self.list(&list, selector).await?;
        let (mut covers, mut only_watched) = (true, false);
        for member in MEMBERS {
            let listed: BTreeSet<_> = self.listed(&list, member).await?.into_iter().map(|(place, _)| place).collect();
            let watched = self.watched(user_request, member).await?;
            known[member] |= !watched.is_empty();
            if selector.member.is_some_and(|only| only != member) {
                continue;
            }
            covers &= watched.contains("") || listed.is_subset(&watched);
            only_watched |= !watched.is_empty();
        }
        let expected = match expected {
            Expected::Objects(objects) if covers => Expected::Objects(objects),
            Expected::Objects(_) => Expected::Refused(403, self.cannot(user_request, "watch")),
            _ if only_watched => Expected::Refused(403, self.cannot(user_request, "list")),
            _ => Expected::Refused(403, self.cannot(user_request, "watch")),
        };
        Ok(Expectation { expected, known })
    }

    /// Returns the first words of the message with which Tributary itself refuses the request.
    fn cannot(&self, user_request: &UserRequest, verb: &str) -> Vec<String> {
        let (user, kind) = (&self.world.people[user_request.person].name, user_request.kind);
        vec![format!("User {user:?} cannot {verb} resource {:?} in API group {:?}", kind.resource, kind.group)]
    }

    /// Returns the namespaces of a member that the user may watch. An empty string means all namespaces.
    async fn watched(&self, user_request: &UserRequest, member: usize) -> anyhow::Result<BTreeSet<String>> {
        let mut watched = BTreeSet::new();
        let whole = user_request.request(self.world, Side::Member);
        if self.watch_status(member, user_request.person, &whole).await? == 200 {
            watched.insert(String::new());
        }
        for part in self.proposed(user_request, member, "watch").await? {
            let request = part.request(self.world, Side::Member);
            if self.watch_status(member, part.person, &request).await? == 200 {
                watched.insert(part.place);
            }
        }
        Ok(watched)
    }

    async fn get(&self, user_request: &UserRequest, name: &str) -> anyhow::Result<Expectation> {
        let request = user_request.request(self.world, Side::Member);
        let mut known = [false; 2];
        let (mut found, mut nowhere) = (Vec::new(), false);
        for member in MEMBERS {
            let said = self.member_answer(member, user_request.person, &request).await?;
            let status = said.status.as_u16();
            ensure!([200, 403, 404].contains(&status), "a get of {name} is answered {status}: {}", said.text());
            known[member] = status != 403;
            nowhere |= status == 404;
            if status == 200 {
                let (identity, object) = answer::object(&said.json()?, Some(self.world.member(member).name()))?;
                found.push((identity, Box::new(object)));
            }
        }
        let expected = match (found.len(), found.pop()) {
            (1, Some((identity, object))) => Expected::Object(identity, object),
            (0, _) => {
                let status = if nowhere { 404 } else { 403 };
                let mut words = self.words(user_request, &request).await?;
                words.retain(|words| words.ends_with("not found") == nowhere);
                Expected::Refused(status, words)
            }
            _ => Expected::NameInSeveral,
        };
        Ok(Expectation { expected, known })
    }

    /// Computes the expected response to a request for one object.
    async fn named(
        &self,
        user_request: &UserRequest,
        verb: Verb,
        below: &str,
        name: &str,
    ) -> anyhow::Result<Expectation> {
        let does = self.may(user_request, verb.word(), below, name).await?;
        let looks = self.may(user_request, "get", "", name).await?;
        let known = MEMBERS.map(|member| does[member] || looks[member]);
        let object = UserRequest {
            ask: Operation::Get(super::user_request::ObjectForm::Whole, name.to_owned()),
            ..user_request.clone()
        };
        let look = object.request(self.world, Side::Member);
        let has = self.has(&look.path).await?;
        let shows = MEMBERS.map(|member| known[member] && (looks[member] || !user_request.kind.is_live));
        let is_one_hidden = shows != known;
        let owners: Vec<_> = MEMBERS.into_iter().filter(|member| shows[*member] && has[*member]).collect();
        let request = user_request.request(self.world, Side::Member);
        let is_made = below.is_empty() && (verb == Verb::Apply || verb == Verb::Update);
        let expected = match owners[..] {
            _ if does == [false; 2] => Expected::Refused(403, self.words(user_request, &request).await?),
            [_] if is_one_hidden => Expected::Refused(503, Vec::new()),
            [] if is_one_hidden => Expected::Refused(403, self.words(user_request, &look).await?),
            [owner] => self.of(user_request, owner, &request).await?,
            [_, ..] => Expected::NameInSeveral,
            [] if is_made => match (self.target_of_new(user_request, known, name).await?, verb) {
                // In the other member, the user may write but not read the name, and the object may just have been
                // created there. Tributary therefore does not create the object.
                (Target::Member(member), _)
                    if MEMBERS.into_iter().any(|of| of != member && known[of] && !looks[of]) =>
                {
                    Expected::Refused(404, Vec::new())
                }
                (Target::Member(member), _) => self.of(user_request, member, &request).await?,
                (Target::Unsure, _) => Expected::Refused(503, Vec::new()),
                (Target::Nowhere, Verb::Apply) => Expected::Refused(400, Vec::new()),
                (Target::Nowhere, _) => Expected::Refused(404, Vec::new()),
            },
            [] => Expected::Refused(404, Vec::new()),
        };
        Ok(Expectation { expected, known })
    }

    /// Expects the response of this member. Only the messages of the two responses may differ.
    async fn of(&self, user_request: &UserRequest, member: usize, request: &Request) -> anyhow::Result<Expected> {
        Ok(Expected::Of(member, self.member_answer(member, user_request.person, request).await?))
    }

    /// Returns the cluster of a new object without a cluster annotation. If only one member allows the create, it is
    /// this member. If several allow it, it is the only one with the namespace.
    async fn target_of_new(
        &self,
        user_request: &UserRequest,
        candidates: [bool; 2],
        name: &str,
    ) -> anyhow::Result<Target> {
        if let Some(only) = only(candidates) {
            return Ok(Target::Member(only));
        }
        if !user_request.kind.namespaced {
            return Ok(Target::Nowhere);
        }
        let place = &user_request.place;
        // A role with resourceNames can only allow a create whose path has the name, such as a server-side apply.
        let makes = self.may(user_request, "create", "", name).await?;
        let look = json!({"verb": "get", "version": "v1", "resource": "namespaces", "namespace": place, "name": place});
        let looks = self.allowed(user_request.person, &review(look)).await?;
        let has = self.has(&format!("/api/v1/namespaces/{place}")).await?;
        let is_maker = MEMBERS.map(|member| candidates[member] && makes[member]);
        let hides = MEMBERS.into_iter().any(|member| is_maker[member] && !looks[member]);
        Ok(match only(MEMBERS.map(|member| is_maker[member] && looks[member] && has[member])) {
            Some(_) if hides => Target::Unsure,
            Some(only) => Target::Member(only),
            None => Target::Nowhere,
        })
    }

    async fn create(&self, user_request: &UserRequest, named: Option<usize>) -> anyhow::Result<Expectation> {
        let makes = self.may(user_request, "create", "", "").await?;
        let lists = self.may(user_request, "list", "", "").await?;
        let known = MEMBERS.map(|member| makes[member] || lists[member]);
        let request = user_request.request(self.world, Side::Member);
        let expected = match named {
            _ if makes == [false; 2] => Expected::Refused(403, self.words(user_request, &request).await?),
            Some(member) if known[member] => self.of(user_request, member, &request).await?,
            Some(_) => Expected::Refused(400, Vec::new()),
            None => match self.target_of_new(user_request, known, "").await? {
                Target::Member(member) => self.of(user_request, member, &request).await?,
                Target::Nowhere => Expected::Refused(400, Vec::new()),
                Target::Unsure => Expected::Refused(503, Vec::new()),
            },
        };
        Ok(Expectation { expected, known })
    }

    /// Computes the expected response to a deletion of a collection. If a member that the user may see forbids the
    /// deletion, the whole deletion is refused.
    async fn delete_collection(&self, user_request: &UserRequest, selector: &Selector) -> anyhow::Result<Expectation> {
        let deletes = self.may(user_request, "deletecollection", "", "").await?;
        let lists = self.may(user_request, "list", "", "").await?;
        let known = MEMBERS.map(|member| deletes[member] || lists[member]);
        let is_wanted = |member: &usize| selector.member.is_none_or(|only| only == *member);
        let wanted: Vec<_> = MEMBERS.into_iter().filter(is_wanted).filter(|member| known[*member]).collect();
        let request = user_request.request(self.world, Side::Member);
        let is_refused = wanted.is_empty() || wanted.iter().any(|member| !deletes[*member]);
        let expected = match is_refused {
            true => Expected::Refused(403, self.cannot(user_request, "deletecollection")),
            false => {
                for member in &wanted {
                    let said = self.member_answer(*member, user_request.person, &request).await?;
                    ensure!(said.status == 200, "a deletion is answered {}: {}", said.status, said.text());
                }
                Expected::Deleted
            }
        };
        Ok(Expectation { expected, known })
    }

    /// Returns the members in `known` that a self-review concerns. A member without the namespace is left out if the
    /// user may look for the namespace in this member. If the user finds the namespace in no member, the review
    /// concerns all members in `known`.
    async fn concerned(&self, user_request: &UserRequest, known: [bool; 2]) -> anyhow::Result<[bool; 2]> {
        if user_request.place.is_empty() {
            return Ok(known);
        }
        let kind = KINDS.iter().find(|kind| kind.resource == "namespaces").context("namespaces")?;
        let of_place = UserRequest { kind, ..user_request.clone() };
        let gets = self.may(&of_place, "get", "", &user_request.place).await?;
        let has_place = MEMBERS.map(|member| self.world.places_in(member).contains(&user_request.place));
        let finds = |member: usize| known[member] && gets[member] && has_place[member];
        Ok(match MEMBERS.into_iter().any(finds) {
            true => MEMBERS.map(|member| known[member] && (has_place[member] || !gets[member])),
            false => known,
        })
    }

    /// Computes the result of a self-review. A read is allowed if one member allows it. A write is allowed if each
    /// member that the review concerns allows it.
    async fn review(&self, user_request: &UserRequest, verb: &str, name: &str) -> anyhow::Result<Expectation> {
        let does = self.may(user_request, verb, "", name).await?;
        let gets = self.may(user_request, "get", "", name).await?;
        let lists = self.may(user_request, "list", "", name).await?;
        let known = MEMBERS.map(|member| does[member] || gets[member] || lists[member]);
        let is_read = matches!(verb, "get" | "list" | "watch");
        let concerned = self.concerned(user_request, known).await?;
        let mut asked = MEMBERS.into_iter().filter(|member| concerned[*member]);
        let is_allowed = match is_read {
            true => asked.any(|member| does[member]),
            false => concerned.contains(&true) && asked.all(|member| does[member]),
        };
        Ok(Expectation { expected: Expected::May(is_allowed), known })
    }
}

/// Returns the index of the `true` if exactly one element is `true`.
fn only(of: [bool; 2]) -> Option<usize> {
    let mut all = MEMBERS.into_iter().filter(|member| of[*member]);
    all.next().filter(|_| all.next().is_none())
}
