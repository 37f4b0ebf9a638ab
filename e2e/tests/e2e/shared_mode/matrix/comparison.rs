//! Sends a request to the endpoint, and compares its answer with the members' answers.

use super::{
    answer::{self, Objects},
    oracle::{Expectation, Expected, Oracle},
    searched,
    user_request::{ListForm, ObjectForm, Operation, Request, Side, UserRequest},
    world::World,
};
use crate::shared_mode::SOON;
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tributary_e2e::{HttpResponse, http::RequestBuilder};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const METADATA_LIST_IN_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Status of a response, and number of its objects.
pub(super) struct Outcome {
    pub(super) status: u16,
    pub(super) objects: usize,
}

pub(super) async fn compare(oracle: &Oracle<'_>, user_request: &UserRequest) -> anyhow::Result<Outcome> {
    let expectation = oracle.expect_answer(user_request).await?;
    let asked =
        Comparison { world: oracle.world, user_request, request: user_request.request(oracle.world, Side::Endpoint) };
    asked.compare(&expectation).await.with_context(|| format!("{} of {user_request:?}", asked.request.path))
}

struct Comparison<'a> {
    world: &'a World,
    user_request: &'a UserRequest,
    request: Request,
}

impl Comparison<'_> {
    fn here(&self) -> RequestBuilder {
        self.request.of(&self.world.people[self.user_request.person].http)
    }

    async fn compare(&self, expectation: &Expectation) -> anyhow::Result<Outcome> {
        match (&self.user_request.ask, &expectation.expected) {
            (Operation::List(form, _), Expected::Objects(objects)) => {
                self.list(*form, objects, expectation).await?;
                Ok(Outcome { status: 200, objects: objects.len() })
            }
            (Operation::Watch(_), Expected::Objects(objects)) => {
                self.watch(objects, expectation).await?;
                Ok(Outcome { status: 200, objects: objects.len() })
            }
            (Operation::Get(form, _), _) => {
                let accept = match form {
                    ObjectForm::Whole => "application/json",
                    ObjectForm::Table => TABLE,
                    ObjectForm::Metadata => METADATA,
                };
                self.answered(*form, self.here().accept(accept).send().await?, expectation)
            }
            _ => self.answered(ObjectForm::Whole, self.here().send().await?, expectation),
        }
    }

    /// Checks the status, the contents and the cluster names of one response.
    fn answered(&self, form: ObjectForm, answer: HttpResponse, expectation: &Expectation) -> anyhow::Result<Outcome> {
        self.reveals_only_known_clusters(&answer, expectation)?;
        let status = answer.status.as_u16();
        let due = |due: u16| {
            ensure!(status == due, "{status} instead of {due}: {} ({:?})", answer.text(), expectation.known);
            Ok(())
        };
        match &expectation.expected {
            Expected::Object(identity, object) => {
                due(200)?;
                let mut shown = answer.json()?;
                if form == ObjectForm::Table {
                    let rows = shown["rows"].as_array().context("no rows")?;
                    ensure!(rows.len() == 1, "{} rows", rows.len());
                    shown = rows[0]["object"].clone();
                }
                let one = |(identity, object)| Objects::from([(identity, object)]);
                let mut expected = one((identity.clone(), (**object).clone()));
                if form != ObjectForm::Whole {
                    expected = answer::metadata(&expected);
                }
                same(&one(answer::object(&shown, None)?), &expected)?;
            }
            Expected::Of(member, said) => {
                due(said.status.as_u16())?;
                // The log of a container that has never run is empty, so the response may have no JSON.
                let shown = if answer.body.is_empty() { Value::Null } else { answer.json()? };
                let owner = &shown["metadata"]["annotations"]["tributary.dev/cluster"];
                let is_owner = owner.as_str().is_none_or(|owner| owner == self.world.member_names()[*member]);
                ensure!(is_owner, "{owner} answers instead of {member}");
            }
            Expected::Refused(code, words) => {
                due(*code)?;
                let message = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
                let is_said = words.iter().any(|words| words.starts_with(&message) || message.contains(words));
                ensure!(words.is_empty() || is_said, "{message:?} instead of {words:?}");
            }
            Expected::NameInSeveral => {
                due(409)?;
                let [one, other] = self.world.member_names();
                let message = answer.text();
                ensure!(message.contains(one) && message.contains(other), "{message}");
            }
            Expected::Deleted => due(200)?,
            Expected::May(allowed) => {
                due(201)?;
                let said = answer.json()?["status"]["allowed"].as_bool();
                ensure!(said == Some(*allowed), "{said:?} instead of {allowed}: {}", answer.text());
            }
            Expected::Objects(_) => bail!("a collection is due: {}", answer.text()),
        }
        Ok(Outcome { status, objects: usize::from(status == 200) })
    }

    /// Checks that the response contains no name of a cluster that the user must not know.
    fn reveals_only_known_clusters(&self, answer: &HttpResponse, expectation: &Expectation) -> anyhow::Result<()> {
        for (name, known) in self.world.member_names().into_iter().zip(expectation.known) {
            let is_named = answer::names(self.world, answer, name) && !self.is_echo(answer, name);
            ensure!(known || !is_named, "{name} is named: {} {:?}", answer.text(), answer.headers);
        }
        Ok(())
    }

    /// Returns whether a refusal contains a cluster's name only because the request contains the name. This reveals
    /// nothing, because the endpoint refuses a request with any other name in the same way.
    fn is_echo(&self, answer: &HttpResponse, name: &str) -> bool {
        if self.is_echo_of_selector(answer, name) {
            return true;
        }
        let said = format!("cannot be created in cluster \\\"{name}\\\": ");
        let named = matches!(self.user_request.ask, Operation::Create(Some(_), _));
        named && answer.status == 400 && !answer::text_names(&answer.text().replacen(&said, "", 1), name)
    }

    /// Returns whether only one Warning contains the name, and this Warning is about a selector with the name of a
    /// hidden cluster. This reveals nothing, because a name that no cluster has gets the same Warning.
    fn is_echo_of_selector(&self, answer: &HttpResponse, name: &str) -> bool {
        let text = "the label selector names clusters that do not exist, or where you may not read this";
        let said = format!("299 - \"{text}: {name}\"");
        if answer.headers.get("warning").is_none_or(|warning| warning.as_bytes() != said.as_bytes()) {
            return false;
        }
        let mut others = answer.clone();
        others.headers.remove("warning");
        !answer::names(self.world, &others, name)
    }

    async fn list(&self, form: ListForm, due: &Objects, expectation: &Expectation) -> anyhow::Result<()> {
        let accept = match form {
            ListForm::Whole => "application/json",
            ListForm::Pages => return self.pages(due, expectation).await,
            ListForm::Table => TABLE,
            ListForm::Metadata => METADATA_LIST,
            ListForm::MetadataInProtobuf => METADATA_LIST_IN_PROTOBUF,
        };
        let answer = self.here().accept(accept).send().await?.expect(200)?;
        self.reveals_only_known_clusters(&answer, expectation)?;
        if form == ListForm::MetadataInProtobuf {
            let (shown, due) =
                (answer::in_protobuf(self.world, &answer.body)?, due.keys().cloned().collect::<Vec<_>>());
            ensure!(shown == due, "{shown:?} instead of {due:?}");
            return Ok(());
        }
        let mut list = answer.json()?;
        let items = match form {
            ListForm::Table => {
                let rows = list["rows"].as_array().context("no rows")?;
                rows.iter().map(|row| row["object"].clone()).collect()
            }
            _ => list["items"].take(),
        };
        let shown = answer::objects(self.world, &items, None)?;
        if form == ListForm::Whole { same(&shown, due) } else { same(&shown, &answer::metadata(due)) }
    }

    /// Compares a list in pages of three objects.
    async fn pages(&self, due: &Objects, expectation: &Expectation) -> anyhow::Result<()> {
        let (mut shown, mut left) = (Objects::new(), None);
        let (mut next, mut seen) = (String::new(), 0);
        let (http, path) = (&self.world.people[self.user_request.person].http, &self.request.path);
        let and = if path.contains('?') { '&' } else { '?' };
        loop {
            let page = http.get(&format!("{path}{and}limit=3&continue={next}")).send().await?.expect(200)?;
            self.reveals_only_known_clusters(&page, expectation)?;
            let mut page = page.json()?;
            let items = page["items"].take();
            seen += items.as_array().context("no items")?.len();
            shown.extend(answer::objects(self.world, &items, None)?);
            // Remembers the first `remainingItemCount`, which must equal the number of objects on the later pages.
            let says = page["metadata"]["remainingItemCount"].as_u64().map(|remaining| (seen, remaining));
            left = left.or(says);
            next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                break;
            }
        }
        if let Some((before, remaining)) = left {
            ensure!(before as u64 + remaining == seen as u64, "{remaining} are left after {before} of {seen}");
        }
        same(&shown, due).context("pages")
    }

    async fn watch(&self, due: &Objects, expectation: &Expectation) -> anyhow::Result<()> {
        let mut events = self.here().stream().await?.events()?;
        let mut items = Vec::new();
        loop {
            let mut event = events.next(SOON).await?.context("the watch ended before its bookmark")?;
            let text = searched::of_event(&event, &|namespace, name| self.world.is_foreign(namespace, name));
            for (name, known) in self.world.member_names().into_iter().zip(expectation.known) {
                ensure!(known || !answer::text_names(&text, name), "{name} is named: {event}");
            }
            match event["type"].as_str() {
                Some("ADDED") => items.push(event["object"].take()),
                Some("BOOKMARK") => break,
                _ => bail!("{event}"),
            }
        }
        same(&answer::objects(self.world, &Value::Array(items), None)?, due).context("a watch")
    }
}

/// Checks that the response has exactly the expected objects.
fn same(shown: &Objects, due: &Objects) -> anyhow::Result<()> {
    for (identity, object) in due {
        match shown.get(identity) {
            None => bail!("{identity:?} is missing: {:?} instead of {:?}", shown.keys(), due.keys()),
            Some(own) => ensure!(own == object, "{own} instead of {object}"),
        }
    }
    match shown.keys().find(|identity| !due.contains_key(*identity)) {
        None => Ok(()),
        Some(more) => bail!("{more:?} is not to be seen: {:?} instead of {:?}", shown.keys(), due.keys()),
    }
}
