//! Encodes the event of audit.k8s.io/v1 (apiserver `pkg/apis/audit/v1/types.go`, filled as in `pkg/audit/request.go`).

mod annotation;
mod object_reference;

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Range;

use serde_json::value::RawValue;
use tributary_apimachinery::{RequestInfo, UserInfo, Verb};

use crate::body::{AuditBody, Omitted};
use crate::checker::{AuditAttributes, AuditDecision};
use crate::response_status::ResponseStatus;
use crate::truncation::{TRUNCATED_ANNOTATION, shortened};
use crate::{Level, MicroTime, Stage, without_tokens};
use crate::{json, secrets};
pub use annotation::Annotation;
pub use object_reference::ObjectReference;

/// The maximum length of a user agent in an event, in bytes.
const USER_AGENT_MAX: usize = 1024;
const IMPERSONATED_USER: &[u8] = br#","impersonatedUser":"#;

/// The initial capacity of the buffer for the constant part of an event, in bytes. The usual constant part is shorter,
/// so the buffer rarely grows.
const KNOWN_BYTES: usize = 768;
/// The usual length of the remaining fields of an event, without the constant part and without bodies, in bytes.
const REST_BYTES: usize = 320;

/// The properties of a request on arrival, for its audit event.
#[derive(Debug)]
pub struct RequestFacts<'a> {
    /// The value of the header `Audit-ID`, or a generated id.
    pub audit_id: Cow<'a, str>,
    /// The path and query in the client's spelling.
    pub uri: &'a str,
    /// The parsed request; `None` if the path is malformed.
    pub info: Option<&'a RequestInfo>,
    /// The user; `None` for an unauthenticated request.
    pub user: Option<&'a UserInfo>,
    /// The impersonated user as JSON, a `UserInfo` of authentication.k8s.io/v1.
    pub impersonated_user: Option<Box<RawValue>>,
    /// The addresses of the client and of proxies before Tributary, the nearest last.
    pub source_ips: Vec<IpAddr>,
    /// The header `User-Agent`.
    pub user_agent: &'a str,
    /// The time when the request arrived.
    pub received: MicroTime,
}

/// The audit event of a request. The event is created when the request arrives, completed with the response, and
/// encoded at each stage.
///
/// The constant part is encoded once, on creation. Storing a string for each field would cost an allocation, a copy and
/// a deallocation per field, and memory accesses are most of the cost of an event.
#[derive(Debug)]
pub struct Event {
    level: Level,
    /// The constant part: all encoded fields of the event from its beginning to the object reference, except the stage.
    constant_part: Vec<u8>,
    /// The position in `constant_part` at which the stage is inserted.
    stage_at: usize,
    /// The range in `constant_part` with the impersonated user. The range is empty without impersonation, or if the
    /// impersonation was denied.
    impersonated_at: Range<usize>,
    has_object: bool,
    /// The reference to the object, if the request's body may add fields to it. Otherwise the reference is already
    /// encoded in `constant_part`.
    object_ref: Option<Box<ObjectReference<'static>>>,
    response_status: Option<ResponseStatus>,
    request_object: Option<Box<RawValue>>,
    response_object: Option<Box<RawValue>>,
    received: MicroTime,
    annotations: Vec<(&'static str, Cow<'static, str>)>,
    decision: AuditDecision,
    has_secrets: bool,
    /// Whether the request's body is the object that the path names.
    is_object: bool,
    /// Whether the request may change objects. A successful response may then have a Status as its body.
    is_write: bool,
    /// Whether a workload answers the request, for example through the `proxy` subresource. The response's body is then
    /// not from the Kubernetes API.
    is_for_workload: bool,
}

impl Event {
    /// Creates the event of a request that has arrived; `None` if the policy excludes the request. `attributes` are the
    /// attributes of the policy's decision. A request for Secrets or tokens gets the level Metadata at most.
    pub fn received(
        decision: AuditDecision,
        attributes: &AuditAttributes<'_>,
        facts: &RequestFacts<'_>,
    ) -> Option<Self> {
        let has_secrets = attributes.resource.is_some_and(|resource| secrets::has_secrets(&resource));
        let level = secrets::cap(decision.level, has_secrets);
        if level == Level::None {
            return None;
        }
        let request = facts.info.and_then(RequestInfo::resource);
        let verb = facts.info.map(|info| info.verb);
        let is_object =
            request.is_some_and(|request| !request.is_streamed()) && matches!(verb, Some(Verb::Create | Verb::Update));
        let (mut constant_part, stage_at, impersonated_at) = encode_constant_part(level, attributes.verb, facts);
        let mut object_ref = request.map(ObjectReference::from_request);
        if let Some(reference) = object_ref.take_if(|_| !is_object) {
            constant_part.extend_from_slice(br#","objectRef":"#);
            reference.write_to(&mut constant_part);
        }
        Some(Self {
            level,
            constant_part,
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
            has_secrets,
            is_object,
            is_write: request.is_some_and(|request| !request.is_streamed()) && verb.is_some_and(|verb| !verb.is_read()),
            is_for_workload: facts.info.is_some_and(RequestInfo::is_for_workload),
        })
    }

    /// Returns whether the event is written at a stage.
    pub fn has(&self, stage: Stage) -> bool {
        !self.decision.omit_stages.contains(stage)
    }

    /// Returns whether the event needs the request's body: to record the body itself, or to record the name of the
    /// object in the body.
    pub fn wants_request_body(&self) -> bool {
        self.is_object || (self.is_write && self.level >= Level::Request)
    }

    /// Returns whether the event needs the body of a response with this status code, to record the body or the message
    /// of its Status. Callers must not call this function for long-running requests. For a workload's response, the
    /// event needs only the status code.
    pub fn wants_response_body(&self, code: u16) -> bool {
        let says_more = self.has_object && (self.level == Level::RequestResponse || self.is_write);
        !self.is_for_workload && (says_more || code >= 400)
    }

    /// Records the body of the request.
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

    /// Sets the status code of the response.
    pub fn set_response_code(&mut self, code: u16) {
        self.response_status.get_or_insert_default().code = code;
    }

    /// Sets the message of a response whose body is not a Status of the Kubernetes API.
    pub fn set_response_message(&mut self, message: String) {
        self.response_status.get_or_insert_default().message = message;
    }

    /// Records that the user may not impersonate the requested user. As in kube-apiserver, the event then has no
    /// impersonated user. An annotation names the requested user.
    pub fn set_impersonation_refused(&mut self) {
        self.replace_impersonated_user("refused");
    }

    /// Records that no cluster authorized the impersonation. No cluster has to, because the response is equal for all
    /// users. The event then has no impersonated user, and an annotation names the requested user.
    pub fn set_impersonation_undecided(&mut self) {
        self.replace_impersonated_user("asked");
    }

    /// Replaces the impersonated user by an annotation with the requested user and the outcome. A second call has no
    /// effect.
    fn replace_impersonated_user(&mut self, outcome: &str) {
        let place = std::mem::take(&mut self.impersonated_at);
        if place.is_empty() {
            return;
        }
        let field: Vec<u8> = self.constant_part.drain(place).collect();
        let requested = String::from_utf8_lossy(&field[IMPERSONATED_USER.len()..]);
        self.annotate(Annotation::Impersonation, format!("{outcome}: {requested}"));
    }

    /// Sets the Status of an unauthenticated request, as in kube-apiserver. The message names the authentication
    /// methods that failed.
    pub fn set_unauthorized(&mut self, message: String) {
        self.response_status = Some(ResponseStatus {
            status: "Failure".to_owned(),
            reason: "Unauthorized".to_owned(),
            message,
            code: 401,
            ..ResponseStatus::default()
        });
    }

    /// Sets the Status of a handler that panicked, with kube-apiserver's message. The text of the panic is left out,
    /// because it may quote confidential data.
    pub fn set_panicked(&mut self) {
        self.response_status = Some(ResponseStatus {
            status: "Failure".to_owned(),
            reason: "InternalError".to_owned(),
            message: "APIServer panic'd".to_owned(),
            code: 500,
            ..ResponseStatus::default()
        });
    }

    /// Records the body of the response. For requests for Secrets, the message of a Status is left out too, because the
    /// message may quote a Secret. The body of a workload's response is ignored: it can contain anything, including a
    /// forged Status.
    pub fn set_response_body(&mut self, body: &AuditBody<'_>) {
        if self.is_for_workload {
            return;
        }
        if let Some(status) = body.status() {
            let code = self.response_status.as_ref().map_or(status.code, |own| own.code);
            let (message, details) = match self.has_secrets {
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

    /// Adds an annotation for a property that kube-apiserver's event has no field for.
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

    /// Returns the event at a stage as one line of JSON with a newline. Costs half a microsecond at level Metadata.
    pub fn line(&self, stage: Stage, now: MicroTime) -> Vec<u8> {
        let now = if stage == Stage::RequestReceived { self.received } else { now };
        let bodies =
            [&self.request_object, &self.response_object].map(|body| body.as_ref().map_or(0, |body| body.get().len()));
        let mut line = Vec::with_capacity(self.constant_part.len() + REST_BYTES + bodies.iter().sum::<usize>());
        let (before, after) = self.constant_part.split_at(self.stage_at);
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
        // Some parts of the line contain text from clients and clusters. Without the replacement, a line break in this
        // text could begin a forged event.
        json::on_one_line(&mut line);
        line.push(b'\n');
        line
    }
}

/// Encodes the constant part of an event. Returns the text, the position of the stage, and the range of the
/// impersonated user.
fn encode_constant_part(level: Level, verb: &str, facts: &RequestFacts<'_>) -> (Vec<u8>, usize, Range<usize>) {
    let mut constant_part = Vec::with_capacity(KNOWN_BYTES);
    json::word(&mut constant_part, r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"#, level.as_str());
    json::field(&mut constant_part, r#","auditID":"#, &facts.audit_id);
    constant_part.extend_from_slice(br#","stage":""#);
    let stage_at = constant_part.len();
    json::field(&mut constant_part, r#"","requestURI":"#, &without_tokens(facts.uri));
    json::field(&mut constant_part, r#","verb":"#, verb);
    match facts.user {
        Some(user) => {
            constant_part.extend_from_slice(br#","user":"#);
            write_user(user, &mut constant_part);
        }
        None => constant_part.extend_from_slice(br#","user":{}"#),
    }
    let impersonated_from = constant_part.len();
    if let Some(user) = &facts.impersonated_user {
        constant_part.extend_from_slice(IMPERSONATED_USER);
        constant_part.extend_from_slice(user.get().as_bytes());
    }
    let impersonated_at = impersonated_from..constant_part.len();
    constant_part.extend_from_slice(br#","sourceIPs":["#);
    for (at, address) in facts.source_ips.iter().enumerate() {
        if at > 0 {
            constant_part.push(b',');
        }
        json::address(&mut constant_part, *address);
    }
    constant_part.push(b']');
    if !facts.user_agent.is_empty() {
        json::field(&mut constant_part, r#","userAgent":"#, &shortened(facts.user_agent, USER_AGENT_MAX));
    }
    (constant_part, stage_at, impersonated_at)
}

/// Returns an `EventList` with these lines as the body of a request to a webhook.
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

/// Appends the user as JSON. Empty fields are omitted, except the name.
fn write_user(user: &UserInfo, line: &mut Vec<u8>) {
    line.extend_from_slice(br#"{"username":"#);
    json::string(line, &user.username);
    if !user.uid.is_empty() {
        json::field(line, r#","uid":"#, &user.uid);
    }
    if !user.groups.is_empty() {
        line.extend_from_slice(br#","groups":"#);
        json::strings(line, &user.groups);
    }
    for (at, (key, values)) in user.extra.iter().enumerate() {
        json::field(line, if at == 0 { r#","extra":{"# } else { "," }, key);
        line.push(b':');
        json::strings(line, values);
    }
    if !user.extra.is_empty() {
        line.push(b'}');
    }
    line.push(b'}');
}

#[cfg(test)]
mod tests;
