//! Writing of the answer: a refusal as a Status, and the headers that the stages add.

use http::{Response, StatusCode, header};
use tributary_answers::negotiate::Preferences;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{Door, RequestClass, Status};
use tributary_fleet::discovery::DiscoveryPath;
use tributary_flow_control::SCHEMA_HEADER;
use tributary_sharing::body::{self, Body};

use super::parse::ParsedRequest;
use super::staged_request::StagedRequest;
use crate::received::ReceivedRequest;
use crate::request_context::Answer;
use crate::request_trace::RequestTrace;
use crate::{Router, confinement, response};

/// Writes the answer to a valid request. The headers name the schema of the request, and warn of clusters that are
/// missing in the answer.
pub(crate) fn encode_answer(request: StagedRequest<'_>, answer: Result<Response<Body>, Refusal>) -> Response<Body> {
    let StagedRequest { router, received, schema, warning, .. } = request;
    let mut answer = answer.unwrap_or_else(|refusal| router.refuse(&refusal, received));
    if let Some(schema) = schema {
        answer.headers_mut().insert(SCHEMA_HEADER, schema.header().clone());
    }
    answer.headers_mut().extend(warning.map(|warning| (header::WARNING, *warning)));
    answer
}

pub(crate) fn encode_unread(parsed: &ParsedRequest<'_>, status: &Status) -> Response<Body> {
    written_at_door(status, parsed.door, &parsed.preferences)
}

/// Writes an error in the form that clients of the door expect. Open Cluster Management's user-server answers with
/// plain text, and with 502 for each cluster that does not answer. It has no answers with other codes, so these stay a
/// Status.
fn written_at_door(status: &Status, door: Door, preferences: &Preferences) -> Response<Body> {
    let code = match (door, status.code) {
        (Door::OpenClusterManagement, 400) => Some(StatusCode::BAD_REQUEST),
        (Door::OpenClusterManagement, 502..=504) => Some(StatusCode::BAD_GATEWAY),
        _ => None,
    };
    match code {
        Some(code) => response::plain_text(code, &status.message),
        None => response::status(status, preferences.error_form()),
    }
}

/// Last step of every answer: removes the body for HEAD, adds the sandbox for browsers, and marks a watch of a
/// cluster's own view.
pub(crate) fn finish_answer(
    router: &Router,
    parsed: &ParsedRequest<'_>,
    trace: &RequestTrace,
    mut response: Response<Body>,
) -> Answer {
    if parsed.is_head() {
        *response.body_mut() = body::empty();
    }
    if router.rights().is_some() {
        confinement::confine(&mut response);
    }
    let class = parsed.class();
    let is_forwarded_watch = class == RequestClass::Watch
        && parsed.is_of_one_cluster()
        && response.status().is_success()
        && trace.is_forwarded();
    Answer { class, is_forwarded_watch, ..response.into() }
}

impl Router {
    fn refuse(&self, refusal: &Refusal, received: ReceivedRequest<'_>) -> Response<Body> {
        let ReceivedRequest { info, preferences, door, .. } = received;
        let mut status = refusal.status_at(door);
        status.message = self.foreign.borrow().replace_paths(door, status.message);
        let status = &status;
        let is_of_all = door == Door::KarmadaClusters && info.cluster.is_none();
        let is_unknown = matches!(refusal, Refusal::NoRoute) && !(is_of_all && info.resource().is_some());
        if is_unknown && info.cluster.is_none() && !self.has_root(&info.path) {
            return response::page_not_found();
        }
        let mut response = match refusal.text_of_karmada().filter(|_| is_of_all) {
            Some(text) => response::plain_text(response::code_of(status), &text),
            None => written_at_door(status, door, preferences),
        };
        match info.resource() {
            // Warnings name clusters, and a user in shared mode may not know every cluster.
            Some(_) if self.rights.is_some() => {}
            Some(request) if info.cluster.is_none() && !matches!(refusal, Refusal::NoRoute | Refusal::Route(_)) => {
                // A refused read also gets the Warning about a deprecated version.
                if let Some(view) = self.views.all().find(|view| view.kind.resource == request.resource) {
                    view.warnings.add_to(response.headers_mut());
                }
            }
            // client-go hides the message of a 503 for discovery (`newUnstructuredResponseError`), but prints Warnings.
            // kubectl reads discovery before any other request.
            None if status.code == StatusCode::SERVICE_UNAVAILABLE.as_u16() => {
                response.headers_mut().extend(
                    tributary_answers::warnings::warning_header(&status.message).map(|it| (header::WARNING, it)),
                );
            }
            _ => {}
        }
        let warnings = refusal.warnings().iter().filter_map(|text| tributary_answers::warnings::warning_header(text));
        response.headers_mut().extend(warnings.map(|warning| (header::WARNING, warning)));
        response
    }

    /// Returns whether kube-apiserver answers an unknown path with this beginning by a Status, not by plain text: below
    /// `/api`, and below groups that exist.
    fn has_root(&self, path: &str) -> bool {
        let mut segments = path.split('/').skip(1);
        match (segments.next(), segments.next()) {
            (Some("api"), _) | (Some("apis"), None | Some("")) => true,
            (Some("apis"), Some(group)) => self.fleet.merged_discovery().has_document(&DiscoveryPath::Group(group)),
            _ => false,
        }
    }
}
