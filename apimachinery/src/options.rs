//! The query parameters of get, list and watch, with the defaults, rules and errors of kube-apiserver 1.36
//! (apimachinery's `meta/internalversion` and its validation).

mod timeout;

use crate::Status;
use crate::query::{Query, check_unambiguous};
use crate::selector::{FieldSelector, LabelSelector, SelectorBounds};
use crate::status::FieldError;
pub use timeout::Timeout;

/// The meaning of the resourceVersion in a list or watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceVersionMatch {
    /// Exactly this resourceVersion.
    Exact,
    /// This resourceVersion or a newer one.
    NotOlderThan,
}

/// The query parameters of a GET of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// The resourceVersion as the client sent it; `None` if absent or empty.
    pub resource_version: Option<String>,
}

/// The query parameters of a list, or of a deletecollection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// The resourceVersion as the client sent it; `None` if absent or empty.
    pub resource_version: Option<String>,
    /// The meaning of the resourceVersion.
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// The maximum number of items; 0 for no limit.
    pub limit: u64,
    /// The continue token; `None` if absent or empty.
    pub continue_token: Option<String>,
    /// The label selector.
    pub label_selector: LabelSelector,
    /// The field selector.
    pub field_selector: FieldSelector,
    /// The time limit of the request; `None` if absent or 0.
    pub timeout: Option<Timeout>,
}

/// The query parameters of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// The resourceVersion as the client sent it; `None` if absent or empty.
    pub resource_version: Option<String>,
    /// The meaning of the resourceVersion; always `NotOlderThan` with initial events.
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// Whether the watch begins with initial events, as requested or by default (see [`WatchOptions::parse`]).
    pub send_initial_events: Option<bool>,
    /// Whether the client accepts bookmarks.
    pub allow_watch_bookmarks: bool,
    /// The label selector.
    pub label_selector: LabelSelector,
    /// The field selector.
    pub field_selector: FieldSelector,
    /// The time limit of the watch; `None` if absent or 0. Tributary then chooses a random limit of at least 1,800 s
    /// and less than 3,600 s.
    pub timeout: Option<Timeout>,
}

/// All query parameters after conversion. Their combination has not been checked yet.
struct Parameters {
    resource_version: Option<String>,
    resource_version_match: String,
    send_initial_events: Option<bool>,
    allow_watch_bookmarks: bool,
    limit: u64,
    continue_token: Option<String>,
    label_selector: LabelSelector,
    field_selector: FieldSelector,
    timeout: Option<Timeout>,
}

impl GetOptions {
    /// Parses a query string without its `?`.
    ///
    /// # Errors
    /// 400 for an undecodable query, and for an export (kubernetes/apiserver `pkg/endpoints/handlers/get.go`).
    pub fn parse(query: Option<&str>) -> Result<Self, Status> {
        let query = decoded(query)?;
        if query.bool("export") == Some(true) {
            return Err(Status::bad_request("the export parameter, deprecated since v1.14, is no longer supported"));
        }
        Ok(Self { resource_version: text(&query, "resourceVersion") })
    }
}

impl ListOptions {
    /// Parses a query string without its `?`.
    ///
    /// # Errors
    /// 400 for a malformed number, selector or query, and for a selector beyond `bounds`; 422 for contradicting
    /// parameters.
    pub fn parse(query: Option<&str>, bounds: SelectorBounds) -> Result<Self, Status> {
        let parameters = Parameters::parse(query, bounds)?;
        let errors = list_errors(&parameters);
        if !errors.is_empty() {
            return Err(Status::invalid_list_options(&errors));
        }
        Ok(Self {
            resource_version_match: version_match(&parameters.resource_version_match),
            resource_version: parameters.resource_version,
            limit: parameters.limit,
            continue_token: parameters.continue_token,
            label_selector: parameters.label_selector,
            field_selector: parameters.field_selector,
            timeout: parameters.timeout,
        })
    }
}

impl WatchOptions {
    /// Parses a query string without its `?`, and applies kube-apiserver's default for initial events.
    ///
    /// A watch without a version or from `0`, with neither `sendInitialEvents` nor `resourceVersionMatch`, gets initial
    /// events (`SetListOptionsDefaults`; the WatchList gate is on since 1.34). A client that accepts bookmarks then
    /// receives the annotated bookmark even if the client did not request initial events.
    ///
    /// # Errors
    /// 400 for a malformed number, selector or query, and for a selector beyond `bounds`; 422 for contradicting
    /// parameters.
    pub fn parse(query: Option<&str>, bounds: SelectorBounds) -> Result<Self, Status> {
        let mut parameters = Parameters::parse(query, bounds)?;
        default_initial_events(&mut parameters);
        let errors = watch_errors(&parameters);
        if !errors.is_empty() {
            return Err(Status::invalid_list_options(&errors));
        }
        Ok(Self {
            resource_version_match: version_match(&parameters.resource_version_match),
            resource_version: parameters.resource_version,
            send_initial_events: parameters.send_initial_events,
            allow_watch_bookmarks: parameters.allow_watch_bookmarks,
            label_selector: parameters.label_selector,
            field_selector: parameters.field_selector,
            timeout: parameters.timeout,
        })
    }

    /// Returns whether the watch begins with the existing objects, as ADDED events.
    pub fn sends_initial_events(&self) -> bool {
        self.send_initial_events == Some(true)
    }

    /// Returns whether the watch sends the bookmark that ends the initial events.
    pub fn sends_initial_events_end(&self) -> bool {
        self.sends_initial_events() && self.allow_watch_bookmarks
    }
}

impl Parameters {
    /// Checks and converts the parameters in kube-apiserver's order. If several parameters are invalid, the error is
    /// the one that a kube-apiserver reports.
    fn parse(query: Option<&str>, bounds: SelectorBounds) -> Result<Self, Status> {
        let query = decoded(query)?;
        let timeout = integer(&query, "timeoutSeconds")?.and_then(Timeout::from_seconds);
        let limit = integer(&query, "limit")?.unwrap_or_default();
        let label_selector = LabelSelector::parse_within(query.get("labelSelector").unwrap_or_default(), bounds)
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let field_selector = FieldSelector::parse_within(query.get("fieldSelector").unwrap_or_default(), bounds)
            .map_err(|error| Status::bad_request(error.to_string()))?;
        Ok(Self {
            resource_version: text(&query, "resourceVersion"),
            resource_version_match: query.get("resourceVersionMatch").unwrap_or_default().to_owned(),
            send_initial_events: query.bool("sendInitialEvents"),
            allow_watch_bookmarks: query.bool("allowWatchBookmarks").unwrap_or_default(),
            // A negative limit means no limit, as in kube-apiserver.
            limit: u64::try_from(limit).unwrap_or_default(),
            continue_token: text(&query, "continue"),
            label_selector,
            field_selector,
            timeout,
        })
    }
}

fn decoded(query: Option<&str>) -> Result<Query<'_>, Status> {
    // kube-apiserver ignores undecodable parameters. If a selector were ignored, the request would select all objects,
    // so Tributary refuses such a query.
    check_unambiguous(query)?;
    Ok(Query::parse(query))
}

fn text(query: &Query<'_>, name: &str) -> Option<String> {
    query.get(name).filter(|value| !value.is_empty()).map(str::to_owned)
}

fn integer(query: &Query<'_>, name: &str) -> Result<Option<i64>, Status> {
    let Some(value) = query.get(name) else {
        return Ok(None);
    };
    value.parse().map(Some).map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let fault = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        Status::bad_request(format!("strconv.ParseInt: parsing {value:?}: {fault}"))
    })
}

fn version_match(text: &str) -> Option<ResourceVersionMatch> {
    match text {
        "Exact" => Some(ResourceVersionMatch::Exact),
        "NotOlderThan" => Some(ResourceVersionMatch::NotOlderThan),
        _ => None,
    }
}

fn default_initial_events(parameters: &mut Parameters) {
    let silent = parameters.send_initial_events.is_none() && parameters.resource_version_match.is_empty();
    if silent && matches!(parameters.resource_version.as_deref(), None | Some("0")) {
        parameters.send_initial_events = Some(true);
        "NotOlderThan".clone_into(&mut parameters.resource_version_match);
    }
}

const MATCH: &str = "resourceVersionMatch";

fn list_errors(parameters: &Parameters) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let wanted = parameters.resource_version_match.as_str();
    if !wanted.is_empty() {
        if parameters.resource_version.is_none() {
            errors.push(FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if parameters.continue_token.is_some() {
            errors.push(FieldError::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if version_match(wanted).is_none() {
            errors.push(FieldError::not_supported(MATCH, wanted, &["Exact", "NotOlderThan", ""]));
        }
        if wanted == "Exact" && parameters.resource_version.as_deref() == Some("0") {
            errors.push(FieldError::forbidden(
                MATCH,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if parameters.send_initial_events.is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    errors
}

fn watch_errors(parameters: &Parameters) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let wanted = parameters.resource_version_match.as_str();
    if parameters.send_initial_events.is_some() && wanted != "NotOlderThan" {
        errors.push(FieldError::forbidden(
            MATCH,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if !wanted.is_empty() {
        if parameters.send_initial_events.is_none() {
            errors.push(FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if wanted != "NotOlderThan" {
            errors.push(FieldError::not_supported(MATCH, wanted, &["NotOlderThan"]));
        }
        if parameters.continue_token.is_some() {
            errors.push(FieldError::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    errors
}

#[cfg(test)]
mod tests;
