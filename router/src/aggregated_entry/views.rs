//! Resource `views`: the merged views, which are constants.

use std::sync::{Arc, LazyLock};

use http::request::Parts;
use http::{Response, StatusCode};
use tributary_answers::negotiate::{AnswerForm, IncludeObject, Preferences, ResponseKind};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{
    Filter, GetOptions, GroupVersionResource, ListOptions, Object, ObjectDecoder, ResourceRequest, SelectableResource,
    Status, Verb,
};
use tributary_fleet::aggregated_group::{GROUP, VERSION, view, views_kind};
use tributary_sharing::body::Body;
use tributary_sharing::limits;

use super::EntryRefusal;
use crate::request::include_object;
use crate::response::list::whole_list;
use crate::response::{self, Columns, ObjectContext, ObjectWriter};

/// The resourceVersion of views, which never change.
const REVISION: &str = "1";

static VIEW: LazyLock<Option<Arc<Object>>> = LazyLock::new(|| {
    let decoder = ObjectDecoder::new(&format!("{GROUP}/{VERSION}"), "View", Arc::default());
    decoder.decode(view(REVISION).to_string().as_bytes()).map(Arc::new).ok()
});

/// Answers a get or list of `views`.
///
/// # Errors
/// 400 for invalid parameters; 404 for an unknown view; 405 for other verbs; 406 if the client accepts no possible form
/// of the answer.
pub(super) fn answer(head: &Parts, verb: Verb, request: &ResourceRequest) -> Result<Response<Body>, EntryRefusal> {
    match (verb, &request.name) {
        (Verb::Get, Some(name)) => get(head, request, name),
        (Verb::List, None) => Ok(list(head, request)?),
        (verb, _) => Err(EntryRefusal::Written(Status::method_not_supported(&request.resource, verb.as_str()))),
    }
}

fn get(head: &Parts, request: &ResourceRequest, name: &str) -> Result<Response<Body>, EntryRefusal> {
    let (form, include) = choose_form(head, &request.resource, ResponseKind::Object)?;
    GetOptions::parse(head.uri.query()).map_err(Refusal::malformed)?;
    let Some(view) = VIEW.iter().find(|view| view.name() == name) else {
        return Err(EntryRefusal::Written(Status::not_found(&request.resource, name)));
    };
    let mut text = Vec::new();
    let mut writer = ObjectWriter::without_clusters(&views_kind(), form, include);
    writer.write_of(None, view, REVISION, ObjectContext::Alone(Columns::Defined), &mut text);
    Ok(response::whole(StatusCode::OK, form, text))
}

fn list(head: &Parts, request: &ResourceRequest) -> Result<Response<Body>, Refusal> {
    let resource = &request.resource;
    let (form, include) = choose_form(head, resource, ResponseKind::List)?;
    let options = ListOptions::parse(head.uri.query(), limits::SELECTOR).map_err(Refusal::malformed)?;
    let selectable = SelectableResource { resource, fields: &[], namespaced: false };
    let filter = Filter::compile(None, None, &options.label_selector, &options.field_selector, selectable);
    let filter = filter.map_err(Refusal::malformed)?;
    let shown = VIEW.iter().filter(|view| filter.matches_object(view));
    let items: Vec<_> = shown.map(|view| (Arc::clone(view), REVISION.to_owned())).collect();
    let kind = views_kind();
    let mut writer = ObjectWriter::without_clusters(&kind, form, include);
    Ok(response::whole(StatusCode::OK, form, whole_list(&kind, &mut writer, &items, REVISION)))
}

/// Chooses the form of the answer.
///
/// # Errors
/// 406 if the client accepts no possible form of the answer; 400 for an unknown value of `includeObject`.
fn choose_form(
    head: &Parts,
    resource: &GroupVersionResource,
    kind: ResponseKind,
) -> Result<(AnswerForm, IncludeObject), Refusal> {
    let query = head.uri.query();
    let preferences = Preferences::from_headers(&head.headers, query);
    let form = preferences.form(kind)?;
    preferences.fits(form, kind, resource, "View")?;
    Ok((form, include_object(form, query)?))
}
