//! An event of audit.k8s.io/v1 (apiserver `pkg/apis/audit/v1/types.go`, filled as `pkg/audit/request.go` does).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tributary_apimachinery::{RequestInfo, ResourceRequest, Verb};

use crate::body::{AuditBody, Omitted};
use crate::checker::{AuditAttributes, AuditDecision};
use crate::secrets;
use crate::{Level, MicroTime, Stage, without_tokens};

/// The longest name of a client's program that is written, in bytes.
const USER_AGENT_MAX: usize = 1024;
/// What is put where a longer one was cut.
const TRUNCATED_SUFFIX: &str = "...TRUNCATED";
/// Said of an event whose bodies were too long, by kube-apiserver (`plugin/pkg/audit/truncate`) and here.
const TRUNCATED_ANNOTATION: &str = "audit.k8s.io/truncated";

/// What Tributary says of a request that kube-apiserver has no field for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// `allow`, or `forbid` where the answer was 403.
    Decision,
    /// Who answered: `memory`, `tributary` (discovery, health, what was refused), or the clusters that were asked.
    AnsweredBy,
    /// Which dispatch policies took the request, and what they did.
    DispatchPolicy,
    /// Whose decision an impersonation is.
    Impersonation,
    /// Why the body of the request is not there.
    RequestObject,
    /// Why the body of the answer is not there.
    ResponseObject,
}

impl Annotation {
    /// Its key.
    pub fn key(self) -> &'static str {
        match self {
            Self::Decision => "tributary.dev/decision",
            Self::AnsweredBy => "tributary.dev/answered-by",
            Self::DispatchPolicy => "tributary.dev/dispatch-policy",
            Self::Impersonation => "tributary.dev/impersonation",
            Self::RequestObject => "tributary.dev/request-object",
            Self::ResponseObject => "tributary.dev/response-object",
        }
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
    /// Who asks, as authentication.k8s.io/v1 `UserInfo`; `None` for who could not say.
    pub user: Option<Box<RawValue>>,
    /// Whom they ask to be, in the same form.
    pub impersonated_user: Option<Box<RawValue>>,
    /// Where it came from.
    pub source_ips: Vec<IpAddr>,
    /// The client's program, as it says.
    pub user_agent: &'a str,
    /// When it arrived.
    pub received: MicroTime,
}

/// The object that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// The resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Its namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its uid, where the body of the request has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// The version of the group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The version of the object, where the body of the request has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

impl ObjectReference {
    fn of(request: &ResourceRequest) -> Self {
        Self {
            resource: request.resource.resource.to_string(),
            namespace: request.authorization_namespace().to_owned(),
            name: request.authorization_name().to_owned(),
            api_group: request.resource.group.to_string(),
            api_version: request.resource.version.to_string(),
            subresource: request.subresource.clone().unwrap_or_default(),
            ..Self::default()
        }
    }
}

/// What a request came to: a `metav1.Status`, of which a success has the code alone.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ResponseStatus {
    metadata: Metadata,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Box<RawValue>>,
    /// The HTTP status.
    code: u16,
}

/// A Status's metadata, which is always there and says nothing.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Metadata {}

/// The kind of a body that may be a Status.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// What is written of one request. It is made when the request arrives, told what comes of it, and written at each stage.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    kind: &'static str,
    api_version: &'static str,
    level: Level,
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<Box<RawValue>>,
    #[serde(rename = "sourceIPs")]
    source_ips: Vec<IpAddr>,
    #[serde(skip_serializing_if = "String::is_empty")]
    user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<Box<RawValue>>,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, Cow<'static, str>>,
    #[serde(skip)]
    decision: AuditDecision,
    #[serde(skip)]
    holds_secrets: bool,
    /// Whether the body of the request is the object that it is about.
    #[serde(skip)]
    is_object: bool,
    /// Whether the answer may be a Status although it is a success.
    #[serde(skip)]
    is_write: bool,
}

impl Event {
    /// The event of a request that just arrived; `None` where nothing is written of it. `attributes` are what the policy
    /// decided by. What holds Secrets or tokens is written at Metadata at most.
    pub fn received(
        decision: AuditDecision,
        attributes: &AuditAttributes<'_>,
        facts: RequestFacts<'_>,
    ) -> Option<Self> {
        let holds_secrets = attributes.resource.is_some_and(|resource| secrets::holds_secrets(&resource));
        let level = secrets::cap(decision.level, holds_secrets);
        if level == Level::None {
            return None;
        }
        let request = facts.info.and_then(RequestInfo::resource);
        let verb = facts.info.map(|info| info.verb);
        Some(Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level,
            audit_id: facts.audit_id.into_owned(),
            stage: Stage::RequestReceived,
            request_uri: without_tokens(facts.uri).into_owned(),
            verb: attributes.verb.to_owned(),
            user: Some(facts.user.unwrap_or_else(nobody)),
            impersonated_user: facts.impersonated_user,
            source_ips: facts.source_ips,
            user_agent: shortened(facts.user_agent),
            object_ref: request.map(ObjectReference::of),
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: facts.received,
            stage_timestamp: facts.received,
            annotations: BTreeMap::new(),
            decision,
            holds_secrets,
            is_object: request.is_some_and(|request| !request.is_opaque())
                && matches!(verb, Some(Verb::Create | Verb::Update)),
            is_write: request.is_some_and(|request| !request.is_opaque()) && verb.is_some_and(|verb| !verb.is_read()),
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

    /// Whether the event says something of the body of an answer with this status: the body itself, or the message in it.
    /// Not asked of what is long-running.
    pub fn wants_response_body(&self, code: u16) -> bool {
        self.object_ref.is_some() && (self.level == Level::RequestResponse || code >= 400 || self.is_write)
            || code >= 400
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
                    *field = value;
                }
            }
        }
        if self.level >= Level::Request && self.object_ref.is_some() {
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

    /// Notes the body of the answer. Of what holds Secrets not even its message is written: it may quote them.
    pub fn set_response_body(&mut self, body: &AuditBody<'_>) {
        if let Some(status) = body.json().and_then(read_status) {
            let code = self.response_status.as_ref().map_or(status.code, |own| own.code);
            let (message, details) = match self.holds_secrets {
                true => (String::new(), None),
                false => (status.message, status.details),
            };
            self.response_status = Some(ResponseStatus { code, message, details, ..status });
        }
        if self.level == Level::RequestResponse && self.object_ref.is_some() {
            let written = body.written(self.decision.omit_managed_fields);
            self.response_object = self.object(written, Annotation::ResponseObject);
        }
    }

    /// Notes something that kube-apiserver has no field for.
    pub fn annotate(&mut self, annotation: Annotation, value: impl Into<Cow<'static, str>>) {
        self.annotations.insert(annotation.key(), value.into());
    }

    fn object(&mut self, written: Result<Box<RawValue>, Omitted>, annotation: Annotation) -> Option<Box<RawValue>> {
        match written {
            Ok(object) => Some(object),
            Err(omitted) => {
                if omitted == Omitted::TooLong {
                    self.annotations.insert(TRUNCATED_ANNOTATION, "true".into());
                }
                if let Some(words) = omitted.as_annotation() {
                    self.annotate(annotation, words);
                }
                None
            }
        }
    }

    /// The event at a stage, as one line of JSON with its newline. Costs some microseconds at Metadata.
    pub fn line(&mut self, stage: Stage, now: MicroTime) -> Vec<u8> {
        self.stage = stage;
        self.stage_timestamp = match stage {
            Stage::RequestReceived => self.request_received_timestamp,
            _ => now,
        };
        let mut line = Vec::with_capacity(1024);
        // Nothing in an event fails to be written as JSON.
        let _ = serde_json::to_writer(&mut line, self);
        line.push(b'\n');
        line
    }
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

/// A Status; `None` for another kind.
fn read_status(json: &[u8]) -> Option<ResponseStatus> {
    let Kind { kind } = serde_json::from_slice(json).ok()?;
    (kind == "Status").then(|| serde_json::from_slice(json).ok()).flatten()
}

/// Who could not say who they are.
fn nobody() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

/// The name of a client's program, cut if it is too long.
fn shortened(user_agent: &str) -> String {
    match user_agent.len() > USER_AGENT_MAX {
        true => format!("{}{TRUNCATED_SUFFIX}", &user_agent[..user_agent.floor_char_boundary(USER_AGENT_MAX)]),
        false => user_agent.to_owned(),
    }
}

#[cfg(test)]
mod tests;
