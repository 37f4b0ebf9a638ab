//! An event of audit.k8s.io/v1 (apiserver `pkg/apis/audit/v1/types.go`, filled as `pkg/audit/request.go` does).

mod annotation;
mod object_reference;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use serde_json::value::RawValue;
use tributary_apimachinery::{RequestInfo, Verb};

use crate::body::{AuditBody, Omitted};
use crate::checker::{AuditAttributes, AuditDecision};
use crate::response_status::ResponseStatus;
use crate::truncation::{TRUNCATED_ANNOTATION, shortened};
use crate::{Level, MicroTime, Stage, without_tokens};
use crate::{json, secrets};
pub use annotation::Annotation;
pub use object_reference::ObjectReference;

/// The longest name of a client's program that is written, in bytes.
const USER_AGENT_MAX: usize = 1024;
/// The key of whom somebody asks to be.
const IMPERSONATED_USER: &[u8] = br#","impersonatedUser":"#;

/// How many bytes of an event are known from its beginning, as a rule, so that its text is not moved while it grows.
const KNOWN_BYTES: usize = 768;
/// How many come at its end, without bodies.
const REST_BYTES: usize = 320;

/// Who asks, as authentication.k8s.io/v1 `UserInfo` has it.
#[derive(Clone, Copy, Debug)]
pub struct AuditedUser<'a> {
    /// The name.
    pub username: &'a str,
    /// The uid; empty where there is none.
    pub uid: &'a str,
    /// The groups.
    pub groups: &'a [String],
    /// What else is known, by key.
    pub extra: &'a BTreeMap<String, Vec<String>>,
}

impl AuditedUser<'_> {
    /// Adds it as JSON. What is empty is left out, but for the name.
    fn write_to(self, line: &mut Vec<u8>) {
        line.extend_from_slice(br#"{"username":"#);
        json::string(line, self.username);
        if !self.uid.is_empty() {
            json::field(line, r#","uid":"#, self.uid);
        }
        if !self.groups.is_empty() {
            line.extend_from_slice(br#","groups":"#);
            json::strings(line, self.groups);
        }
        for (at, (key, values)) in self.extra.iter().enumerate() {
            json::field(line, if at == 0 { r#","extra":{"# } else { "," }, key);
            line.push(b':');
            json::strings(line, values);
        }
        if !self.extra.is_empty() {
            line.push(b'}');
        }
        line.push(b'}');
    }
}

/// What is known of a request when it arrives.
#[derive(Debug)]
pub struct RequestFacts<'a> {
    /// The audit ID.
    pub audit_id: Cow<'a, str>,
    /// Path and query as the client sent them.
    pub uri: &'a str,
    /// What is asked for; `None` where the path cannot be read.
    pub info: Option<&'a RequestInfo>,
    /// Who asks; `None` for who could not say.
    pub user: Option<AuditedUser<'a>>,
    /// Whom they ask to be, as authentication.k8s.io/v1 `UserInfo`.
    pub impersonated_user: Option<Box<RawValue>>,
    /// Where it came from.
    pub source_ips: Vec<IpAddr>,
    /// The client's program, as it says.
    pub user_agent: &'a str,
    /// When it arrived.
    pub received: MicroTime,
}

/// What is written of one request. It is made when the request arrives, told what comes of it, and written at each
/// stage.
///
/// What does not change is JSON from the beginning: a text for each field would be got, copied and given back for each
/// request, and most of what an event costs is memory that is touched.
#[derive(Debug)]
pub struct Event {
    level: Level,
    /// The fields up to the stage, and those after it up to the object's.
    known: Vec<u8>,
    /// Where in them the stage belongs.
    stage_at: usize,
    /// Where whom the user asks to be is among them; empty where nobody is, or nobody lets them, or nobody decides.
    impersonated_at: Range<usize>,
    /// Whether the request is about a resource.
    has_object: bool,
    /// The object, where the body of the request may say more of it; else it is among what is known.
    object_ref: Option<Box<ObjectReference<'static>>>,
    response_status: Option<ResponseStatus>,
    request_object: Option<Box<RawValue>>,
    response_object: Option<Box<RawValue>>,
    received: MicroTime,
    /// In the order of their keys.
    annotations: Vec<(&'static str, Cow<'static, str>)>,
    decision: AuditDecision,
    holds_secrets: bool,
    /// Whether the body of the request is the object that it is about.
    is_object: bool,
    /// Whether the answer may be a Status although it is a success.
    is_write: bool,
    /// Whether a workload answers, whose words are none of the API's.
    is_for_workload: bool,
}

impl Event {
    /// The event of a request that just arrived; `None` where nothing is written of it. `attributes` are what the
    /// policy decided by. What holds Secrets or tokens is written at Metadata at most.
    pub fn received(
        decision: AuditDecision,
        attributes: &AuditAttributes<'_>,
        facts: &RequestFacts<'_>,
    ) -> Option<Self> {
        let holds_secrets = attributes.resource.is_some_and(|resource| secrets::holds_secrets(&resource));
        let level = secrets::cap(decision.level, holds_secrets);
        if level == Level::None {
            return None;
        }
        let request = facts.info.and_then(RequestInfo::resource);
        let verb = facts.info.map(|info| info.verb);
        let is_object =
            request.is_some_and(|request| !request.is_opaque()) && matches!(verb, Some(Verb::Create | Verb::Update));
        let (mut known, stage_at, impersonated_at) = encode_constant_part(level, attributes.verb, facts);
        let mut object_ref = request.map(ObjectReference::from_request);
        if let Some(reference) = object_ref.take_if(|_| !is_object) {
            known.extend_from_slice(br#","objectRef":"#);
            reference.write_to(&mut known);
        }
        Some(Self {
            level,
            known,
            stage_at,
            impersonated_at,
            has_object: request.is_some(),
            object_ref: object_ref.map(|reference| Box::new(reference.into_owned())),
            response_status: None,
            request_object: None,
            response_object: None,
            received: facts.received,
            annotations: Vec::new(),
            decision,
            holds_secrets,
            is_object,
            is_write: request.is_some_and(|request| !request.is_opaque()) && verb.is_some_and(|verb| !verb.is_read()),
            is_for_workload: facts.info.is_some_and(RequestInfo::is_for_workload),
        })
    }

    /// Whether a stage is written.
    pub fn has(&self, stage: Stage) -> bool {
        !self.decision.omit_stages.contains(stage)
    }

    /// Whether the event says something of the request's body: the body itself, or the name in it.
    pub fn wants_request_body(&self) -> bool {
        self.is_object || (self.is_write && self.level >= Level::Request)
    }

    /// Whether the event says something of the body of an answer with this status: the body itself, or the message in
    /// it. Not asked of what is long-running. Of what a workload answers nothing is said but its code.
    pub fn wants_response_body(&self, code: u16) -> bool {
        let says_more = self.has_object && (self.level == Level::RequestResponse || self.is_write);
        !self.is_for_workload && (says_more || code >= 400)
    }

    /// Notes the body of the request.
    pub fn set_request_body(&mut self, body: &AuditBody<'_>) {
        if self.is_object
            && let Some(reference) = &mut self.object_ref
        {
            let facts = body.facts();
            for (field, value) in [
                (&mut reference.name, facts.name),
                (&mut reference.namespace, facts.namespace),
                (&mut reference.uid, facts.uid),
                (&mut reference.resource_version, facts.resource_version),
            ] {
                if let Some(value) = value.filter(|_| field.is_empty()) {
                    *field = value.into();
                }
            }
        }
        if self.level >= Level::Request && self.has_object {
            let written = body.written(self.decision.omit_managed_fields);
            self.request_object = self.object(written, Annotation::RequestObject);
        }
    }

    /// Notes the head of the answer.
    pub fn set_response_code(&mut self, code: u16) {
        self.response_status.get_or_insert_default().code = code;
    }

    /// Notes what an answer says that is no Status of the API, or before there is one.
    pub fn set_response_message(&mut self, message: String) {
        self.response_status.get_or_insert_default().message = message;
    }

    /// Notes that nobody lets the user act as whom they ask to be. As in kube-apiserver they are not said to have: an
    /// annotation says whom they asked for.
    pub fn set_not_let(&mut self) {
        self.without_impersonated("refused");
    }

    /// Notes that the answer is everybody's, so that no cluster decides whether the user may act as whom they ask to
    /// be. They are not said to have, either: an annotation says whom they asked for.
    pub fn set_told_to_all(&mut self) {
        self.without_impersonated("asked");
    }

    /// Has an annotation say whom the user asks to be, and what came of it, in place of the field. Once.
    fn without_impersonated(&mut self, outcome: &str) {
        let place = std::mem::take(&mut self.impersonated_at);
        if place.is_empty() {
            return;
        }
        let field: Vec<u8> = self.known.drain(place).collect();
        let asked = String::from_utf8_lossy(&field[IMPERSONATED_USER.len()..]);
        self.annotate(Annotation::Impersonation, format!("{outcome}: {asked}"));
    }

    /// Notes that nobody knows who asks: kube-apiserver's Status, with what was tried for its message.
    pub fn set_unauthorized(&mut self, message: String) {
        self.response_status = Some(ResponseStatus {
            status: "Failure".to_owned(),
            reason: "Unauthorized".to_owned(),
            message,
            code: 401,
            ..ResponseStatus::default()
        });
    }

    /// Notes the answer of a handler that panicked, in kube-apiserver's words but for what the panic said: it may quote
    /// what nobody may read.
    pub fn set_panicked(&mut self) {
        self.response_status = Some(ResponseStatus {
            status: "Failure".to_owned(),
            reason: "InternalError".to_owned(),
            message: "APIServer panic'd".to_owned(),
            code: 500,
            ..ResponseStatus::default()
        });
    }

    /// Notes the body of the answer. Of what holds Secrets not even its message is written: it may quote them. A
    /// workload's is not looked at: it may say whatever it likes, in the form of a Status, too.
    pub fn set_response_body(&mut self, body: &AuditBody<'_>) {
        if self.is_for_workload {
            return;
        }
        if let Some(status) = body.status() {
            let code = self.response_status.as_ref().map_or(status.code, |own| own.code);
            let (message, details) = match self.holds_secrets {
                true => (String::new(), None),
                false => (status.message, status.details),
            };
            self.response_status = Some(ResponseStatus { code, message, details, ..status });
        }
        if self.level == Level::RequestResponse && self.has_object {
            let written = body.written(self.decision.omit_managed_fields);
            self.response_object = self.object(written, Annotation::ResponseObject);
        }
    }

    /// Notes something that kube-apiserver has no field for.
    pub fn annotate(&mut self, annotation: Annotation, value: impl Into<Cow<'static, str>>) {
        self.add_annotation(annotation.key(), value.into());
    }

    fn add_annotation(&mut self, key: &'static str, value: Cow<'static, str>) {
        match self.annotations.binary_search_by_key(&key, |(key, _)| key) {
            Ok(at) => self.annotations[at].1 = value,
            Err(at) => self.annotations.insert(at, (key, value)),
        }
    }

    fn object(&mut self, written: Result<Box<RawValue>, Omitted>, annotation: Annotation) -> Option<Box<RawValue>> {
        match written {
            Ok(object) => Some(object),
            Err(omitted) => {
                if omitted == Omitted::TooLong {
                    self.add_annotation(TRUNCATED_ANNOTATION, "true".into());
                }
                if let Some(words) = omitted.as_annotation() {
                    self.annotate(annotation, words);
                }
                None
            }
        }
    }

    /// The event at a stage, as one line of JSON with its newline. Costs half a microsecond at Metadata.
    pub fn line(&self, stage: Stage, now: MicroTime) -> Vec<u8> {
        let now = if stage == Stage::RequestReceived { self.received } else { now };
        let bodies =
            [&self.request_object, &self.response_object].map(|body| body.as_ref().map_or(0, |body| body.get().len()));
        let mut line = Vec::with_capacity(self.known.len() + REST_BYTES + bodies.iter().sum::<usize>());
        let (before, after) = self.known.split_at(self.stage_at);
        line.extend_from_slice(before);
        line.extend_from_slice(stage.as_str().as_bytes());
        line.extend_from_slice(after);
        if let Some(reference) = &self.object_ref {
            line.extend_from_slice(br#","objectRef":"#);
            reference.write_to(&mut line);
        }
        if let Some(status) = &self.response_status {
            line.extend_from_slice(br#","responseStatus":"#);
            status.write_to(&mut line);
        }
        let (request, response) = (r#","requestObject":"#, r#","responseObject":"#);
        for (key, body) in [(request, &self.request_object), (response, &self.response_object)] {
            if let Some(body) = body {
                line.extend_from_slice(key.as_bytes());
                line.extend_from_slice(body.get().as_bytes());
            }
        }
        for (key, time) in [(r#","requestReceivedTimestamp":"#, self.received), (r#","stageTimestamp":"#, now)] {
            line.extend_from_slice(key.as_bytes());
            time.write_to(&mut line);
        }
        for (at, (key, value)) in self.annotations.iter().enumerate() {
            json::word(&mut line, if at == 0 { r#","annotations":{"# } else { "," }, key);
            json::field(&mut line, ":", value);
        }
        line.extend_from_slice(if self.annotations.is_empty() { b"}" } else { b"}}" });
        // Whatever among it was written by others: nobody begins a line, which could be anybody's event.
        json::on_one_line(&mut line);
        line.push(b'\n');
        line
    }
}

/// What does not change of an event, where in it the stage belongs, and where whom the user asks to be is.
fn encode_constant_part(level: Level, verb: &str, facts: &RequestFacts<'_>) -> (Vec<u8>, usize, Range<usize>) {
    let mut known = Vec::with_capacity(KNOWN_BYTES);
    json::word(&mut known, r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"#, level.as_str());
    json::field(&mut known, r#","auditID":"#, &facts.audit_id);
    known.extend_from_slice(br#","stage":""#);
    let stage_at = known.len();
    json::field(&mut known, r#"","requestURI":"#, &without_tokens(facts.uri));
    json::field(&mut known, r#","verb":"#, verb);
    match facts.user {
        Some(user) => {
            known.extend_from_slice(br#","user":"#);
            user.write_to(&mut known);
        }
        // Who could not say who they are.
        None => known.extend_from_slice(br#","user":{}"#),
    }
    let impersonated_from = known.len();
    if let Some(user) = &facts.impersonated_user {
        known.extend_from_slice(IMPERSONATED_USER);
        known.extend_from_slice(user.get().as_bytes());
    }
    let impersonated_at = impersonated_from..known.len();
    known.extend_from_slice(br#","sourceIPs":["#);
    for (at, address) in facts.source_ips.iter().enumerate() {
        if at > 0 {
            known.push(b',');
        }
        json::address(&mut known, *address);
    }
    known.push(b']');
    if !facts.user_agent.is_empty() {
        json::field(&mut known, r#","userAgent":"#, &shortened(facts.user_agent, USER_AGENT_MAX));
    }
    (known, stage_at, impersonated_at)
}

/// An `EventList` of these lines, as webhooks get it.
pub fn event_list<L: AsRef<[u8]>>(lines: &[L]) -> Vec<u8> {
    let mut list = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#.to_vec();
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            list.push(b',');
        }
        list.extend_from_slice(line.as_ref().trim_ascii_end());
    }
    list.extend_from_slice(b"]}");
    list
}

#[cfg(test)]
mod tests;
