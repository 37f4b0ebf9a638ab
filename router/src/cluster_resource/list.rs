//! Lists of `clusters`.

use std::sync::Arc;

use http::{Response, StatusCode};
use tributary_answers::negotiate::{Encoding, Representation, ResponseKind};
use tributary_answers::protobuf;
use tributary_answers::refusal::{Refusal, VersionRefusal};
use tributary_apimachinery::{ListOptions, Object, ResourceVersionMatch, Status};
use tributary_fleet::aggregated_group::clusters_kind;
use tributary_sharing::body::Body;
use tributary_sharing::limits;

use super::known::KnownClusters;
use super::request::ClustersRequest;
use super::sample;
use super::version::ClustersVersion;
use crate::response::list::list_kind;
use crate::response::{self, Columns, ObjectContext, ObjectWriter};

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
    let mut writer = ObjectWriter::without_clusters(&clusters_kind(), form, include);
    let text = write_list(&mut writer, &items, &store.version(revision, scope));
    Ok(response::whole(StatusCode::OK, form, text))
}

/// Writes a list of objects, each with its version. Text formats become JSON.
fn write_list(writer: &mut ObjectWriter, items: &[(Arc<Object>, String)], version: &str) -> Vec<u8> {
    let form = writer.form();
    let mut out = Vec::new();
    if form.encoding == Encoding::Protobuf {
        let mut list = protobuf::list_metadata(version, "", None);
        for (object, version) in items {
            writer.write_of(None, object, version, ObjectContext::Item, &mut list);
        }
        protobuf::list_begin(list.len(), &mut out);
        out.extend(list);
        protobuf::list_end(&mut out);
        return out;
    }
    let metadata = format!("\"resourceVersion\":\"{version}\"");
    if matches!(form.shape, Representation::Table(_)) {
        writer.table_head(Columns::Defined, &metadata, &mut out);
    } else {
        let kind = clusters_kind();
        let (kind, api_version) = list_kind(&kind.kind, &kind.resource, form);
        let head =
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{metadata}}},\"items\":[");
        out.extend_from_slice(head.as_bytes());
    }
    for (at, (object, version)) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        writer.write_of(None, object, version, ObjectContext::Item, &mut out);
    }
    out.extend_from_slice(b"]}\n");
    out
}
