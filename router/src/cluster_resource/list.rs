//! Lists of `clusters`.

use std::sync::Arc;

use http::{Response, StatusCode};
use tributary_answers::negotiate::ResponseKind;
use tributary_answers::refusal::{Refusal, VersionRefusal};
use tributary_apimachinery::{ListOptions, ResourceVersionMatch, Status};
use tributary_fleet::aggregated_group::clusters_kind;
use tributary_sharing::body::Body;
use tributary_sharing::limits;

use super::known::KnownClusters;
use super::request::ClustersRequest;
use super::sample;
use super::version::ClustersVersion;
use crate::response::list::whole_list;
use crate::response::{self, ObjectWriter};

/// Answers a list with all objects at once: the parameter `limit` has no effect, because a fleet has at most some
/// thousand clusters.
///
/// # Errors
/// As [`answer`](super::answer).
pub(super) async fn list(request: ClustersRequest<'_>) -> Result<Response<Body>, Refusal> {
    let (form, include) = request.form(ResponseKind::List)?;
    let options = ListOptions::parse(request.received.query, limits::SELECTOR).map_err(Refusal::malformed)?;
    let filter = request.filter(&options.label_selector, &options.field_selector)?;
    let store = request.router.cluster_store();
    let collection = sample::for_read(request.router).await;
    if options.continue_token.is_some() {
        let message = "lists of clusters have one page, so this continue token belongs to another list";
        return Err(Refusal::malformed(Status::bad_request(message)));
    }
    let mut revision = collection.revision();
    if let Some(text) = options.resource_version.as_deref().filter(|text| *text != "0") {
        let version = ClustersVersion::parse(text, store.instance())?;
        if version.revision > revision {
            return Err(VersionRefusal::OfAnotherProcess.into());
        }
        if options.resource_version_match == Some(ResourceVersionMatch::Exact) {
            revision = version.revision;
        }
    }
    let objects = collection.objects_at(revision).ok_or(VersionRefusal::OfAnotherProcess)?;
    let known = KnownClusters::find(request.rights(), &objects).await;
    if known.has_unknown() {
        request.caller.record_unknown_rights();
    }
    let scope = known.scope(objects.keys());
    let shown = objects.iter().filter(|(cluster, object)| known.has(cluster) && filter.matches(cluster, object));
    let items: Vec<_> =
        shown.map(|(_, object)| (Arc::clone(object), store.version(object.resource_version().0, scope))).collect();
    let kind = clusters_kind();
    let mut writer = ObjectWriter::without_clusters(&kind, form, include);
    let text = whole_list(&kind, &mut writer, &items, &store.version(revision, scope));
    Ok(response::whole(StatusCode::OK, form, text))
}
