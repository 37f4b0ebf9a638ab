//! What the members answer somebody themselves, and what that comes to.
//!
//! * A collection is what each member lists. Where one refuses to list all namespaces it is what that user may list in
//!   each. Which are asked for is what roles say, where something else decides as well: of a user whom roles let list
//!   all namespaces at once, and the member does not, nothing is shown in a list of all (`docs/shared-mode.md`, "By
//!   what a cluster is judged").
//! * A watch tells of what may be listed; it is refused where some of that may not be watched.
//! * An object of which the user may know in one member alone is that member's; in several it is ambiguous, and where
//!   they may know of none it is nowhere.
//! * A write has as its candidates the members where the user may do it, or get its object; of a collection, list it.
//!   Where nobody lets them do it, it is refused before anybody looks whether the object exists.
//! * What is made goes to the member that it is for, whoever has its name: nobody looks for that. That member alone
//!   says that it is taken (409), to those whom it lets make it; in which others it is taken shows in no answer.
//!
//! Of what memory does not hold (`is_live`) less is due, for the members are asked in the user's name
//! (`docs/shared-mode.md`, "What a user sees"; `forward/owner/search.rs` of the router):
//!
//! * A list of all namespaces has the members alone that let the user list all. Where the request asks for none of
//!   these it is empty.
//! * It cannot be watched: 405, whoever asks.
//! * In a member where the user may write a name and not get it nobody can look for it. A write of a name that one
//!   other member has is 503, for there may be two; where none is found it is 403, in the words of who forbids to look.

use super::{
    answer::{self, Identity, Objects},
    kinds::KINDS,
    question::{Ask, Question, Request, Selector, Side, Verb, review},
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

/// What members have said, as long as nobody changes their minds.
pub(super) struct Oracle<'a> {
    pub(super) world: &'a World,
    said: Mutex<HashMap<(usize, usize, Request), Arc<HttpResponse>>>,
    watches: Mutex<HashMap<(usize, usize, String), u16>>,
}

/// What is due.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) expected: Expected,
    /// The members of which the user may know by this question.
    pub(super) known: [bool; 2],
}

#[derive(Debug)]
pub(super) enum Expected {
    /// These objects.
    Objects(Objects),
    /// This object.
    Object(Identity, Box<Value>),
    /// What this member answers.
    Of(usize, Arc<HttpResponse>),
    /// A refusal, in the words that a member has for it where there are some.
    Refused(u16, Vec<String>),
    /// 409: both members have it.
    Ambiguous,
    /// A collection was deleted.
    Deleted,
    /// The answer to a review.
    May(bool),
}

/// Where something new goes.
enum Target {
    Member(usize),
    Nowhere,
    /// One member is known to have what decides, and the other may have it, too.
    Unsure,
}

/// What somebody says of themselves (an extra) whose rights are those of their roles: no webhook of a test denies them
/// anything.
pub(super) const ROLES_ALONE: &str = "roles-alone";

/// Both members, or what is true of each.
const MEMBERS: [usize; 2] = [0, 1];

impl<'a> Oracle<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        Self { world, said: Mutex::default(), watches: Mutex::default() }
    }

    /// What is due.
    pub(super) async fn tells(&self, question: &Question) -> anyhow::Result<Told> {
        match &question.ask {
            Ask::List(_, selector) => self.list(question, selector).await,
            Ask::Watch(_) if question.kind.is_live => {
                Ok(Told { expected: Expected::Refused(405, Vec::new()), known: [false; 2] })
            }
            Ask::Watch(selector) => self.watch(question, selector).await,
            Ask::Get(_, name) => self.get(question, name).await,
            Ask::Below(verb, below, name) => self.named(question, *verb, below, name).await,
            Ask::Write(verb, name) => self.named(question, *verb, "", name).await,
            Ask::Create(member, _) => self.create(question, *member).await,
            Ask::DeleteCollection(selector) => self.delete_collection(question, selector).await,
            Ask::May(verb, name) => self.review(question, verb, name).await,
        }
    }

    /// A member's answer to somebody.
    async fn says(&self, member: usize, person: usize, request: &Request) -> anyhow::Result<Arc<HttpResponse>> {
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

    /// The status with which a member answers somebody's watch.
    async fn watch_status(&self, member: usize, person: usize, request: &Request) -> anyhow::Result<u16> {
        let key = (member, person, request.path.clone());
        if let Some(status) = self.watches.lock().await.get(&key) {
            return Ok(*status);
        }
        let status = self.by(member, person, request).stream().await?.status.as_u16();
        self.watches.lock().await.insert(key, status);
        Ok(status)
    }

    /// Whether each member lets somebody do something.
    async fn may(&self, question: &Question, verb: &str, below: &str, name: &str) -> anyhow::Result<[bool; 2]> {
        self.allowed(question.person, &question.review(verb, below, name)).await
    }

    async fn allowed(&self, person: usize, review: &Request) -> anyhow::Result<[bool; 2]> {
        let mut allowed = [false; 2];
        for member in MEMBERS {
            let answer = self.says(member, person, review).await?.json()?;
            allowed[member] = answer["status"]["allowed"].as_bool().context("no answer")?;
        }
        Ok(allowed)
    }

    /// Whether each member has something at a path.
    async fn has(&self, path: &str) -> anyhow::Result<[bool; 2]> {
        let mut has = [false; 2];
        for member in MEMBERS {
            has[member] = self.world.member(member).http().get(path).send().await?.status == 200;
        }
        Ok(has)
    }

    /// The question, asked of a part of what it is asked of.
    fn within(&self, question: &Question) -> Vec<Question> {
        let is_joined = question.kind.namespaced && question.place.is_empty() && !question.kind.is_live;
        let all: &[String] = if is_joined { &self.world.places } else { &[] };
        all.iter().map(|place| Question { place: place.clone(), ..question.clone() }).collect()
    }

    /// The same of those parts that are asked for where all of it is refused: none where roles give all of it.
    async fn proposed(&self, question: &Question, member: usize, verb: &str) -> anyhow::Result<Vec<Question>> {
        let parts = self.within(question);
        if parts.is_empty() {
            return Ok(parts);
        }
        let review = question.review(verb, "", "");
        let asked = self.by(member, question.person, &review);
        let asked = asked.header(&format!("impersonate-extra-{ROLES_ALONE}"), "yes");
        let said = asked.send().await?.json()?;
        let is_all_given = said["status"]["allowed"].as_bool().context("no answer")?;
        Ok(if is_all_given { Vec::new() } else { parts })
    }

    /// What each member lists: all of it, or what may be listed of its namespaces. The places are those of the answers;
    /// the empty one is all.
    async fn listed(&self, question: &Question, member: usize) -> anyhow::Result<Vec<(String, Arc<HttpResponse>)>> {
        let mut listed = Vec::new();
        let whole = self.says(member, question.person, &question.request(self.world, Side::Member)).await?;
        match whole.status.as_u16() {
            200 => listed.push((String::new(), whole)),
            403 => {
                for part in self.proposed(question, member, "list").await? {
                    let said = self.says(member, part.person, &part.request(self.world, Side::Member)).await?;
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

    async fn list(&self, question: &Question, selector: &Selector) -> anyhow::Result<Told> {
        let (mut known, mut all) = ([false; 2], None);
        for member in MEMBERS {
            let listed = self.listed(question, member).await?;
            known[member] = !listed.is_empty();
            for (_, answer) in listed.iter().filter(|_| selector.member.is_none_or(|only| only == member)) {
                let items = answer.json()?["items"].take();
                let name = self.world.member(member).name();
                all.get_or_insert_with(Objects::new).extend(answer::objects(self.world, &items, Some(name))?);
            }
        }
        let expected = match all {
            Some(all) => Expected::Objects(all),
            // Of what is held nothing to be seen is 403, whatever is asked for.
            None if question.kind.is_live && known.contains(&true) => Expected::Objects(Objects::new()),
            None => Expected::Refused(403, self.words(question, &question.request(self.world, Side::Member)).await?),
        };
        Ok(Told { expected, known })
    }

    /// In which words members refuse something.
    async fn words(&self, question: &Question, request: &Request) -> anyhow::Result<Vec<String>> {
        let mut words = Vec::new();
        for member in MEMBERS {
            let said = self.says(member, question.person, request).await?;
            if !said.status.is_success() {
                words.push(said.json()?["message"].as_str().unwrap_or_default().to_owned());
            }
        }
        Ok(words)
    }

    async fn watch(&self, question: &Question, selector: &Selector) -> anyhow::Result<Told> {
        let list = Question { ask: Ask::List(super::question::ListForm::Whole, selector.clone()), ..question.clone() };
        let Told { expected, mut known } = self.list(&list, selector).await?;
        let (mut covers, mut only_watched) = (true, false);
        for member in MEMBERS {
            let listed: BTreeSet<_> = self.listed(&list, member).await?.into_iter().map(|(place, _)| place).collect();
            let watched = self.watched(question, member).await?;
            known[member] |= !watched.is_empty();
            if selector.member.is_some_and(|only| only != member) {
                continue;
            }
            covers &= watched.contains("") || listed.is_subset(&watched);
            only_watched |= !watched.is_empty();
        }
        let expected = match expected {
            Expected::Objects(objects) if covers => Expected::Objects(objects),
            Expected::Objects(_) => Expected::Refused(403, self.cannot(question, "watch")),
            _ if only_watched => Expected::Refused(403, self.cannot(question, "list")),
            _ => Expected::Refused(403, self.cannot(question, "watch")),
        };
        Ok(Told { expected, known })
    }

    /// How a refusal begins that has no member's own words.
    fn cannot(&self, question: &Question, verb: &str) -> Vec<String> {
        let (user, kind) = (&self.world.people[question.person].name, question.kind);
        vec![format!("User {user:?} cannot {verb} resource {:?} in API group {:?}", kind.resource, kind.group)]
    }

    /// The places that somebody may watch in a member; the empty one is all.
    async fn watched(&self, question: &Question, member: usize) -> anyhow::Result<BTreeSet<String>> {
        let mut watched = BTreeSet::new();
        let whole = question.request(self.world, Side::Member);
        if self.watch_status(member, question.person, &whole).await? == 200 {
            watched.insert(String::new());
        }
        for part in self.proposed(question, member, "watch").await? {
            let request = part.request(self.world, Side::Member);
            if self.watch_status(member, part.person, &request).await? == 200 {
                watched.insert(part.place);
            }
        }
        Ok(watched)
    }

    async fn get(&self, question: &Question, name: &str) -> anyhow::Result<Told> {
        let request = question.request(self.world, Side::Member);
        let mut known = [false; 2];
        let (mut found, mut nowhere) = (Vec::new(), false);
        for member in MEMBERS {
            let said = self.says(member, question.person, &request).await?;
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
                let mut words = self.words(question, &request).await?;
                words.retain(|words| words.ends_with("not found") == nowhere);
                Expected::Refused(status, words)
            }
            _ => Expected::Ambiguous,
        };
        Ok(Told { expected, known })
    }

    /// A request for one object that its owner answers.
    async fn named(&self, question: &Question, verb: Verb, below: &str, name: &str) -> anyhow::Result<Told> {
        let does = self.may(question, verb.word(), below, name).await?;
        let looks = self.may(question, "get", "", name).await?;
        let known = MEMBERS.map(|member| does[member] || looks[member]);
        let object =
            Question { ask: Ask::Get(super::question::ObjectForm::Whole, name.to_owned()), ..question.clone() };
        let look = object.request(self.world, Side::Member);
        let has = self.has(&look.path).await?;
        let shows = MEMBERS.map(|member| known[member] && (looks[member] || !question.kind.is_live));
        let is_one_hidden = shows != known;
        let owners: Vec<_> = MEMBERS.into_iter().filter(|member| shows[*member] && has[*member]).collect();
        let request = question.request(self.world, Side::Member);
        let is_made = below.is_empty() && (verb == Verb::Apply || verb == Verb::Update);
        let expected = match owners[..] {
            _ if does == [false; 2] => Expected::Refused(403, self.words(question, &request).await?),
            [_] if is_one_hidden => Expected::Refused(503, Vec::new()),
            [] if is_one_hidden => Expected::Refused(403, self.words(question, &look).await?),
            [owner] => self.of(question, owner, &request).await?,
            [_, ..] => Expected::Ambiguous,
            [] if is_made => match (self.target_of_new(question, known, name).await?, verb) {
                // Another member may have been given one a moment ago that the user may write, and not look for.
                (Target::Member(member), _)
                    if MEMBERS.into_iter().any(|of| of != member && known[of] && !looks[of]) =>
                {
                    Expected::Refused(404, Vec::new())
                }
                (Target::Member(member), _) => self.of(question, member, &request).await?,
                (Target::Unsure, _) => Expected::Refused(503, Vec::new()),
                (Target::Nowhere, Verb::Apply) => Expected::Refused(400, Vec::new()),
                (Target::Nowhere, _) => Expected::Refused(404, Vec::new()),
            },
            [] => Expected::Refused(404, Vec::new()),
        };
        Ok(Told { expected, known })
    }

    /// What a member answers. It is what is due, but for its words.
    async fn of(&self, question: &Question, member: usize, request: &Request) -> anyhow::Result<Expected> {
        Ok(Expected::Of(member, self.says(member, question.person, request).await?))
    }

    /// The cluster of something new that names none: the only one that there is for it, or the only one of those where
    /// it may be made that has the namespace.
    async fn target_of_new(&self, question: &Question, candidates: [bool; 2], name: &str) -> anyhow::Result<Target> {
        if let Some(only) = only(candidates) {
            return Ok(Target::Member(only));
        }
        if !question.kind.namespaced {
            return Ok(Target::Nowhere);
        }
        let place = &question.place;
        // A role may let somebody make what has this name, if they say it in the path.
        let makes = self.may(question, "create", "", name).await?;
        let look = json!({"verb": "get", "version": "v1", "resource": "namespaces", "namespace": place, "name": place});
        let looks = self.allowed(question.person, &review(look)).await?;
        let has = self.has(&format!("/api/v1/namespaces/{place}")).await?;
        let is_maker = MEMBERS.map(|member| candidates[member] && makes[member]);
        let hides = MEMBERS.into_iter().any(|member| is_maker[member] && !looks[member]);
        Ok(match only(MEMBERS.map(|member| is_maker[member] && looks[member] && has[member])) {
            Some(_) if hides => Target::Unsure,
            Some(only) => Target::Member(only),
            None => Target::Nowhere,
        })
    }

    async fn create(&self, question: &Question, named: Option<usize>) -> anyhow::Result<Told> {
        let makes = self.may(question, "create", "", "").await?;
        let lists = self.may(question, "list", "", "").await?;
        let known = MEMBERS.map(|member| makes[member] || lists[member]);
        let request = question.request(self.world, Side::Member);
        let expected = match named {
            _ if makes == [false; 2] => Expected::Refused(403, self.words(question, &request).await?),
            Some(member) if known[member] => self.of(question, member, &request).await?,
            Some(_) => Expected::Refused(400, Vec::new()),
            None => match self.target_of_new(question, known, "").await? {
                Target::Member(member) => self.of(question, member, &request).await?,
                Target::Nowhere => Expected::Refused(400, Vec::new()),
                Target::Unsure => Expected::Refused(503, Vec::new()),
            },
        };
        Ok(Told { expected, known })
    }

    /// A collection of which somebody may not delete a part that they see is not touched.
    async fn delete_collection(&self, question: &Question, selector: &Selector) -> anyhow::Result<Told> {
        let deletes = self.may(question, "deletecollection", "", "").await?;
        let lists = self.may(question, "list", "", "").await?;
        let known = MEMBERS.map(|member| deletes[member] || lists[member]);
        let is_wanted = |member: &usize| selector.member.is_none_or(|only| only == *member);
        let wanted: Vec<_> = MEMBERS.into_iter().filter(is_wanted).filter(|member| known[*member]).collect();
        let request = question.request(self.world, Side::Member);
        let is_refused = wanted.is_empty() || wanted.iter().any(|member| !deletes[*member]);
        let expected = match is_refused {
            true => Expected::Refused(403, self.cannot(question, "deletecollection")),
            false => {
                for member in &wanted {
                    let said = self.says(*member, question.person, &request).await?;
                    ensure!(said.status == 200, "a deletion is answered {}: {}", said.status, said.text());
                }
                Expected::Deleted
            }
        };
        Ok(Told { expected, known })
    }

    /// The `known` members that a review concerns: members without the namespace are left out if the person may look
    /// for it there. All of them if the person finds the namespace in none.
    async fn concerned(&self, question: &Question, known: [bool; 2]) -> anyhow::Result<[bool; 2]> {
        if question.place.is_empty() {
            return Ok(known);
        }
        let kind = KINDS.iter().find(|kind| kind.resource == "namespaces").context("namespaces")?;
        let of_place = Question { kind, ..question.clone() };
        let gets = self.may(&of_place, "get", "", &question.place).await?;
        let has_place = MEMBERS.map(|member| self.world.places_in(member).contains(&question.place));
        let finds = |member: usize| known[member] && gets[member] && has_place[member];
        Ok(match MEMBERS.into_iter().any(finds) {
            true => MEMBERS.map(|member| known[member] && (has_place[member] || !gets[member])),
            false => known,
        })
    }

    /// A read is allowed where a member allows it, a write where each does that there is for it.
    async fn review(&self, question: &Question, verb: &str, name: &str) -> anyhow::Result<Told> {
        let does = self.may(question, verb, "", name).await?;
        let gets = self.may(question, "get", "", name).await?;
        let lists = self.may(question, "list", "", name).await?;
        let known = MEMBERS.map(|member| does[member] || gets[member] || lists[member]);
        let is_read = matches!(verb, "get" | "list" | "watch");
        let concerned = self.concerned(question, known).await?;
        let mut asked = MEMBERS.into_iter().filter(|member| concerned[*member]);
        let is_allowed = match is_read {
            true => asked.any(|member| does[member]),
            false => concerned.contains(&true) && asked.all(|member| does[member]),
        };
        Ok(Told { expected: Expected::May(is_allowed), known })
    }
}

/// The only one of which something is true.
fn only(of: [bool; 2]) -> Option<usize> {
    let mut all = MEMBERS.into_iter().filter(|member| of[*member]);
    all.next().filter(|_| all.next().is_none())
}
