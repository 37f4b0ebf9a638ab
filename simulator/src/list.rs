//! Handles lists: complete, in pages, or at a version.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Response;
use serde::{Deserialize, Serialize};
use tributary_apimachinery::status::FieldError;
use tributary_apimachinery::{GroupVersionResource, Object, Query, Status};

use crate::api::Api;
use crate::body::{self, Body};
use crate::catalog::CATALOG;
use crate::control::Listed;
use crate::path::ResourcePath;
use crate::present::Form;
use crate::response::json;
use crate::select::Selection;
use crate::view::ResourceAtRevision;

/// The time for which a request waits for a future version (kube-apiserver's blockTimeout).
pub(crate) const FRESHNESS_WAIT: Duration = Duration::from_secs(3);
const CHUNK: usize = 64 * 1024;

/// The number of objects after which a list yields to other tasks. Generating an object takes about 15 µs. So without
/// yields, a list whose selector matches no object would block its thread.
const YIELD_AFTER: u32 = 64;

/// The contents of a continue token in kube-apiserver's format: the version of the first page, and the key of the last
/// object.
#[derive(Serialize, Deserialize)]
struct ApiServerContinueToken {
    v: String,
    /// The revision; −1 for the newest version.
    rv: i64,
    start: String,
}

struct ListParameters {
    limit: usize,
    after: Option<String>,
    exact: Option<u64>,
    not_older_than: Option<u64>,
}

pub(crate) async fn list(
    api: &Arc<Api>,
    target: &ResourcePath,
    query: &Query<'_>,
    form: Form,
) -> Result<Response<Body>, Status> {
    let store = api.store();
    let selection = Selection::parse(target, query, store.decoder(target.resource).fields())?;
    let options = ListParameters::parse(query)?;
    if let Some(revision) = options.exact.or(options.not_older_than) {
        wait_for(api, revision).await?;
    }
    let view = match options.exact {
        None => store.view(target.resource),
        Some(revision) => store.view_at(target.resource, revision).ok_or_else(|| expired(&options))?,
    };
    if options.exact.is_none() && target.namespace.is_none() {
        let resource = CATALOG[target.resource].qualified();
        api.faults().log_list(Listed { resource, limit: options.limit, revision: view.revision() });
    }
    let body = match options.limit {
        0 => whole(api, target, view, selection, form, options.after),
        limit => body::page(api.faults(), page(target, &view, &selection, form, limit, options.after.as_deref())),
    };
    Ok(json(200, body))
}

pub(crate) async fn wait_for(api: &Api, revision: u64) -> Result<(), Status> {
    let mut changes = api.store().changes();
    let reached = tokio::time::timeout(FRESHNESS_WAIT, changes.wait_for(|&reached| reached >= revision)).await;
    match reached {
        Ok(_) => Ok(()),
        Err(_) => Err(Status::too_large_resource_version(revision, api.store().revision())),
    }
}

impl ListParameters {
    fn parse(query: &Query<'_>) -> Result<Self, Status> {
        let parameter = |name| query.get(name).filter(|value| !value.is_empty());
        let (version, matching, token) =
            (parameter("resourceVersion"), parameter("resourceVersionMatch"), parameter("continue"));
        if query.get("sendInitialEvents").is_some() {
            return Err(Status::invalid_list_options(&[FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            )]));
        }
        if let Some(matching) = matching {
            let detail = match (version, token) {
                (_, Some(_)) => Some("resourceVersionMatch is forbidden when continue is provided"),
                (None, None) => Some("resourceVersionMatch is forbidden unless resourceVersion is provided"),
                (Some("0"), None) if matching == "Exact" => {
                    Some("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
                }
                _ => None,
            };
            if let Some(detail) = detail {
                return Err(Status::invalid_list_options(&[FieldError::forbidden("resourceVersionMatch", detail)]));
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                return Err(Status::invalid_list_options(&[FieldError::not_supported(
                    "resourceVersionMatch",
                    matching,
                    &["Exact", "NotOlderThan", ""],
                )]));
            }
        }
        let limit =
            parameter("limit").map_or(Ok(0), str::parse::<usize>).map_err(|_| Status::bad_request("invalid limit"))?;
        let number = version.map(parse_version).transpose()?.filter(|&number| number != 0);
        if let Some(token) = token {
            if number.is_some() {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            let token = ApiServerContinueToken::decode(token)?;
            let exact = u64::try_from(token.rv).ok();
            return Ok(Self { limit, after: Some(token.start), exact, not_older_than: None });
        }
        // For historical reasons, a resourceVersion with a limit and without a resourceVersionMatch means exactly that
        // version.
        let exact = matching == Some("Exact") || (matching.is_none() && limit > 0);
        // Version 0 (any state) is served from the watch cache, which has no pages.
        let limit = if version == Some("0") { 0 } else { limit };
        Ok(Self { limit, after: None, exact: number.filter(|_| exact), not_older_than: number.filter(|_| !exact) })
    }
}

pub(crate) fn parse_version(text: &str) -> Result<u64, Status> {
    text.parse().map_err(|_| Status::invalid_resource_version(text, "strconv.ParseUint: parsing: invalid syntax"))
}

impl ApiServerContinueToken {
    fn encode(revision: i64, after: &str) -> String {
        let token = Self { v: "meta.k8s.io/v1".to_owned(), rv: revision, start: after.to_owned() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, Status> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(Status::invalid_continue_token)?;
        let token: Self = serde_json::from_slice(&bytes).map_err(Status::invalid_continue_token)?;
        if token.v != "meta.k8s.io/v1" || token.rv == 0 {
            return Err(Status::invalid_continue_token("unrecognized token"));
        }
        Ok(token)
    }
}

fn expired(options: &ListParameters) -> Status {
    match &options.after {
        Some(after) => Status::continue_expired(Some(ApiServerContinueToken::encode(-1, after))),
        None => Status::list_expired(),
    }
}

/// Sends a complete list, or the objects after a key. The objects are generated while the list is sent.
fn whole(
    api: &Arc<Api>,
    target: &ResourcePath,
    view: ResourceAtRevision,
    selection: Selection,
    form: Form,
    after: Option<String>,
) -> Body {
    let (sender, body) = body::list(api.faults());
    let described = &CATALOG[target.resource];
    api.spawn(async move {
        let mut out = Vec::with_capacity(CHUNK + 8192);
        form.list_head(
            described.kind,
            &described.api_version(),
            &format!(r#""resourceVersion":"{}""#, view.revision()),
            &mut out,
        );
        let (mut first, mut examined) = (true, 0_u32);
        for object in view.range(selection.namespace.as_deref(), after.as_deref()) {
            if selection.matches(&object) {
                form.list_item(&object, first, &mut out);
                first = false;
            }
            examined += 1;
            if examined % YIELD_AFTER == 0 {
                tokio::task::yield_now().await;
            }
            if out.len() >= CHUNK {
                let chunk = std::mem::replace(&mut out, Vec::with_capacity(CHUNK + 8192));
                if sender.send(Bytes::from(chunk)).await.is_err() {
                    return;
                }
            }
        }
        out.extend_from_slice(b"]}\n");
        let _ = sender.send(Bytes::from(out)).await;
    });
    body
}

fn page(
    target: &ResourcePath,
    view: &ResourceAtRevision,
    selection: &Selection,
    form: Form,
    limit: usize,
    after: Option<&str>,
) -> Vec<u8> {
    let namespace = selection.namespace.as_deref();
    let mut objects: Vec<Arc<Object>> =
        view.range(namespace, after).filter(|object| selection.matches(object)).take(limit.saturating_add(1)).collect();
    let more = objects.len() > limit;
    objects.truncate(limit);
    let mut metadata = format!(r#""resourceVersion":"{}""#, view.revision());
    if let Some(last) = objects.last().filter(|_| more) {
        let revision = i64::try_from(view.revision()).unwrap_or(i64::MAX);
        metadata += &format!(r#","continue":"{}""#, ApiServerContinueToken::encode(revision, last.key().as_str()));
        if !selection.has_selectors() {
            metadata += &format!(r#","remainingItemCount":{}"#, view.count(namespace, Some(last.key().as_str())));
        }
    }
    let described = &CATALOG[target.resource];
    let mut out = Vec::new();
    form.list_head(described.kind, &described.api_version(), &metadata, &mut out);
    for (index, object) in objects.iter().enumerate() {
        form.list_item(object, index == 0, &mut out);
    }
    out.extend_from_slice(b"]}\n");
    out
}

/// Returns the resource for error messages.
pub(crate) fn named(target: &ResourcePath) -> GroupVersionResource {
    let described = &CATALOG[target.resource];
    GroupVersionResource::new(described.group, described.version, described.name)
}
