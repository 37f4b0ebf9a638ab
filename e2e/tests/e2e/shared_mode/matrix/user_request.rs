//! Requests of the matrix test: every verb that discovery lists for a kind, with every namespace, name, subresource and
//! selector, by every user.

use super::{
    kinds::Kind,
    world::{SHARED_NAME, Served, World},
};
use anyhow::bail;
use http::Method;
use serde_json::{Value, json};
use tributary_e2e::{HttpClient, http::RequestBuilder};

#[derive(Clone, Debug)]
pub(super) struct UserRequest {
    pub(super) person: usize,
    pub(super) kind: &'static Kind,
    /// Namespace. Empty for all namespaces, and for cluster-scoped kinds.
    pub(super) place: String,
    pub(super) ask: Operation,
}

#[derive(Clone, Debug)]
pub(super) enum Operation {
    List(ListForm, Selector),
    Watch(Selector),
    Get(ObjectForm, String),
    /// Verb on a subresource, with the names of the subresource and of the object.
    Below(Verb, String, String),
    /// Dry run of a write with this verb, on the object of this name.
    Write(Verb, String),
    /// Dry run of a create with this name. The request may name the target member. Some members may already have the
    /// name.
    Create(Option<usize>, String),
    /// Dry run of a deletion of a collection.
    DeleteCollection(Selector),
    /// SelfSubjectAccessReview of a verb, and of an object's name or an empty name.
    May(String, String),
}

/// Media type of a list, or a list in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListForm {
    Whole,
    Pages,
    Table,
    Metadata,
    MetadataInProtobuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectForm {
    Whole,
    Table,
    Metadata,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Create,
    Update,
    Patch,
    /// Server-side apply, which creates the object if it is missing.
    Apply,
    Delete,
}

/// Label and field selectors of a request for a collection.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: &'static str,
    fields: String,
    /// The only member that the label selector selects.
    pub(super) member: Option<usize>,
}

/// Server to which a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Endpoint,
    Member,
}

/// HTTP request without credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    body: Option<(&'static str, String)>,
}

impl Request {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: None }
    }

    pub(super) fn with(method: Method, path: impl Into<String>, content_type: &'static str, body: &Value) -> Self {
        Self { method, path: path.into(), body: Some((content_type, body.to_string())) }
    }

    /// Removes the query parameter `dryRun`, so that the request is executed.
    pub(super) fn for_real(self) -> Self {
        let path = self.path.replace("dryRun=All&", "").replace("?dryRun=All", "");
        Self { path, ..self }
    }

    pub(super) fn of(&self, http: &HttpClient) -> RequestBuilder {
        let request = http.request(self.method.clone(), &self.path);
        match &self.body {
            Some((content_type, text)) => request.body(content_type, text.clone()),
            None => request,
        }
    }
}

impl Operation {
    /// Returns the kind of the operation in one word.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::List(..) => "list",
            Self::Watch(_) => "watch",
            Self::Get(..) => "get",
            Self::Below(..) => "below",
            Self::Write(verb, _) => verb.word(),
            Self::Create(..) => "create",
            Self::DeleteCollection(_) => "deletecollection",
            Self::May(..) => "may",
        }
    }
}

impl Verb {
    /// The name of the verb in a role's rules.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch | Self::Apply => "patch",
            Self::Delete => "delete",
        }
    }

    fn of_word(word: &str) -> anyhow::Result<Self> {
        let all = [Self::Get, Self::Create, Self::Update, Self::Patch, Self::Delete];
        match all.into_iter().find(|verb| verb.word() == word) {
            Some(verb) => Ok(verb),
            None => bail!("nothing is asked about {word}"),
        }
    }
}

impl Selector {
    /// Selects the objects with the label `set=yes`, in one member or in all members.
    pub(super) fn of_set(member: Option<usize>) -> Self {
        Self { labels: "set=yes", member, ..Self::default() }
    }

    /// Returns the query parameters. A member does not support the selector of members, so its query omits this
    /// selector.
    fn query(&self, world: &World, side: Side) -> String {
        let mut labels = self.labels.to_owned();
        if let (Some(member), Side::Endpoint) = (self.member, side) {
            let comma = if labels.is_empty() { "" } else { "," };
            labels = format!("{labels}{comma}tributary.dev/cluster={}", world.member(member).name());
        }
        let parts = [("labelSelector", &labels), ("fieldSelector", &self.fields)];
        let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
        parts.map(|(name, value)| format!("{name}={}", escaped(value))).collect::<Vec<_>>().join("&")
    }

    /// Returns the selectors that the test uses for the collection of a kind.
    fn all(world: &World, kind: &Kind) -> Vec<Self> {
        let name = world.name(kind, SHARED_NAME);
        let of_fields = |fields: String| Self { fields, ..Self::default() };
        let mut all = vec![
            Self::default(),
            Self { labels: "of=both", ..Self::default() },
            Self { labels: "owners in (1),of!=of-two", ..Self::default() },
            Self { labels: "!of", ..Self::default() },
            Self { member: Some(0), ..Self::default() },
            Self { member: Some(1), labels: "of", ..Self::default() },
            of_fields(format!("metadata.name={name}")),
            of_fields(format!("metadata.name={}", world.name(kind, "of-one"))),
            of_fields(format!("metadata.name!={name}")),
            Self { labels: "of!=both", fields: format!("metadata.name={name}"), member: None },
        ];
        if kind.namespaced {
            let place = &world.places[0];
            all.push(of_fields(format!("metadata.namespace={place}")));
            all.push(of_fields(format!("metadata.name={name},metadata.namespace={place}")));
        }
        all
    }
}

fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

impl UserRequest {
    /// Returns all requests of the matrix.
    ///
    /// # Errors
    /// If a member serves a verb that the matrix does not cover.
    pub(super) fn all(world: &World) -> anyhow::Result<Vec<Self>> {
        let mut all = Vec::new();
        for served in &world.served {
            let kind = served.kind;
            let mut places = vec![String::new()];
            places.extend(world.places.iter().filter(|_| kind.namespaced).cloned());
            for place in places {
                let asks = asks(world, served, &place)?;
                let of = |person| {
                    asks.iter().map(move |ask| (person, ask.clone())).map(|(person, ask)| (person, place.clone(), ask))
                };
                let all_of = (0..world.people.len()).flat_map(of);
                all.extend(all_of.map(|(person, place, ask)| Self { person, kind, place, ask }));
            }
        }
        Ok(all)
    }

    /// Path of the collection if `name` is empty, or of the object with this name.
    fn path(&self, name: &str) -> String {
        let slash = if name.is_empty() { "" } else { "/" };
        format!("{}{slash}{name}", self.kind.path(&self.place))
    }

    pub(super) fn request(&self, world: &World, side: Side) -> Request {
        let with = |path: String, query: &str| if query.is_empty() { path } else { format!("{path}?{query}") };
        match &self.ask {
            Operation::List(_, selector) => Request::get(with(self.path(""), &selector.query(world, side))),
            Operation::Watch(selector) => {
                let options = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                               &allowWatchBookmarks=true&timeoutSeconds=20";
                let selected = selector.query(world, side);
                let and = if selected.is_empty() { "" } else { "&" };
                Request::get(format!("{}?{options}{and}{selected}", self.path("")))
            }
            Operation::Get(_, name) => Request::get(self.path(name)),
            Operation::Below(verb, below, name) => {
                let object = self.kind.below(below, name, &self.place);
                written(*verb, &format!("{}/{below}", self.path(name)), &object)
            }
            Operation::Write(verb, name) => {
                written(*verb, &self.path(name), &self.kind.object(name, &json!({"touched": "yes"})))
            }
            Operation::Create(member, name) => {
                let mut object = self.kind.object(name, &json!({}));
                if let (Some(member), Side::Endpoint) = (member, side) {
                    object["metadata"]["annotations"] = json!({"tributary.dev/cluster": world.member(*member).name()});
                }
                written(Verb::Create, &self.path(""), &object)
            }
            Operation::DeleteCollection(selector) => {
                let selected = selector.query(world, side);
                let and = if selected.is_empty() { "" } else { "&" };
                Request {
                    method: Method::DELETE,
                    ..Request::get(format!("{}?dryRun=All{and}{selected}", self.path("")))
                }
            }
            Operation::May(verb, name) => self.review(verb, "", name),
        }
    }

    /// Makes a self-review of the user's right to a verb on this kind.
    pub(super) fn review(&self, verb: &str, below: &str, name: &str) -> Request {
        // A kube-apiserver authorizes a request for a single Namespace in the namespace of the same name, and a request
        // for the collection of Namespaces without a namespace.
        let is_named_namespace = self.kind.resource == "namespaces" && !name.is_empty();
        let place = if is_named_namespace { name } else { &self.place };
        review(json!({"verb": verb, "group": self.kind.group, "version": "v1", "resource": self.kind.resource,
            "subresource": below, "namespace": place, "name": name}))
    }
}

pub(super) fn review(attributes: Value) -> Request {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    Request::with(Method::POST, path, "application/json", &review)
}

fn written(verb: Verb, path: &str, object: &Value) -> Request {
    let path = if verb == Verb::Get { path.to_owned() } else { format!("{path}?dryRun=All") };
    let with = |method, content_type, body| Request::with(method, &*path, content_type, body);
    match verb {
        Verb::Get => Request::get(path),
        Verb::Create => with(Method::POST, "application/json", object),
        Verb::Update => with(Method::PUT, "application/json", object),
        Verb::Patch => {
            let patch = json!({"metadata": {"labels": {"touched": "yes"}}});
            with(Method::PATCH, "application/merge-patch+json", &patch)
        }
        Verb::Apply => {
            let path = format!("{path}&fieldManager=matrix&force=true");
            Request::with(Method::PATCH, path, "application/apply-patch+yaml", object)
        }
        Verb::Delete => Request { method: Method::DELETE, ..Request::get(path) },
    }
}

/// Returns all operations on a kind in a namespace, or in all namespaces.
fn asks(world: &World, Served { kind, verbs, below }: &Served, place: &str) -> anyhow::Result<Vec<Operation>> {
    let names = world.names(kind);
    let is_of_all = kind.namespaced && place.is_empty();
    let each = |ask: &dyn Fn(String) -> Operation| -> Vec<Operation> { names.iter().cloned().map(ask).collect() };
    let mut all = Vec::new();
    for verb in verbs {
        all.extend([String::new(), names[2].clone()].map(|name| Operation::May(verb.clone(), name)));
        match &**verb {
            "list" => {
                let forms = [ListForm::Whole, ListForm::Pages, ListForm::Table];
                let more_forms = [ListForm::Metadata, ListForm::MetadataInProtobuf];
                for selector in Selector::all(world, kind) {
                    let forms = forms.iter().chain(&more_forms);
                    all.extend(forms.map(|form| Operation::List(*form, selector.clone())));
                }
            }
            "watch" => all.extend(Selector::all(world, kind).into_iter().map(Operation::Watch)),
            // Only collections of namespaced kinds exist for all namespaces. All other operations need a namespace.
            _ if is_of_all => {}
            "get" => {
                for form in [ObjectForm::Whole, ObjectForm::Table, ObjectForm::Metadata] {
                    all.extend(each(&|name| Operation::Get(form, name)));
                }
            }
            "create" => {
                for member in [None, Some(0), Some(1)] {
                    all.extend(each(&|name| Operation::Create(member, name)));
                }
            }
            "deletecollection" => {
                // These selectors match only objects of the current run of the test.
                let selectors = [
                    Selector { labels: "of=both", ..Selector::default() },
                    Selector { labels: "of", fields: format!("metadata.name={}", names[2]), member: None },
                    Selector { labels: "of", member: Some(1), ..Selector::default() },
                ];
                all.extend(selectors.map(Operation::DeleteCollection));
            }
            "patch" => {
                all.extend(each(&|name| Operation::Write(Verb::Patch, name)));
                all.extend(each(&|name| Operation::Write(Verb::Apply, name)));
            }
            verb => {
                let verb = Verb::of_word(verb)?;
                all.extend(each(&|name| Operation::Write(verb, name)));
            }
        }
    }
    for (below, verbs) in below.iter().filter(|_| !is_of_all) {
        for verb in verbs {
            let verb = Verb::of_word(verb)?;
            all.extend(each(&|name| Operation::Below(verb, below.clone(), name)));
        }
    }
    Ok(all)
}
