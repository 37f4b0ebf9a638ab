//! Resource `clusters` of the group `aggregation.tributary.dev`: the state of each cluster, as Tributary sees it.
//!
//! ```text
//! report ──▶ ClusterStatus ──▶ ClusterCollection (revisions, last changes) ──▶ get, list
//!            pure              pure                                      └───▶ watch: compares once a second
//! ```
//!
//! The objects come from the [report](tributary_fleet::report), so they agree with `tributary status`. No task runs
//! without requests: a request or an open watch takes a sample of the report if the last sample is too old.

mod collection;
mod known;
mod list;
mod request;
mod sample;
mod store;
mod version;
mod watch;

pub(crate) use store::ClusterStore;

use std::sync::Arc;

use http::{Response, StatusCode};
use tributary_answers::negotiate::{Encoding, ResponseKind};
use tributary_answers::refusal::{ClusterRefusal, Refusal, RequestRefusal};
use tributary_apimachinery::request_info::ResourceRequest;
use tributary_apimachinery::{ClusterName, GetOptions, GroupVersionResource, Status, Verb};
use tributary_fleet::aggregated_group::{CLUSTERS, GROUP, VERSION, clusters_kind};
use tributary_sharing::body::Body;

use crate::Router;
use crate::caller::Caller;
use crate::received::ReceivedRequest;
use crate::response::{self, Columns, ObjectContext, ObjectWriter};
use known::KnownClusters;
use request::ClustersRequest;
use version::{ClustersVersion, UnusableVersion};

/// Returns whether a resource belongs to Tributary's own group. If a cluster serves this group, too, the merged view
/// hides the cluster's resources.
pub(crate) fn is_own(resource: &GroupVersionResource) -> bool {
    &*resource.group == GROUP
}

/// Checks that the merged view has a route for a request for a resource of Tributary's own group.
///
/// # Errors
/// [`Refusal::NoRoute`] for other resources than `clusters`; 405 for writes.
pub(crate) fn check_route(verb: Verb, request: &ResourceRequest) -> Result<(), Refusal> {
    let ResourceRequest { resource, namespace, subresource, .. } = request;
    let is_known = &*resource.version == VERSION && &*resource.resource == CLUSTERS;
    if !is_known || namespace.is_some() || subresource.is_some() {
        return Err(Refusal::NoRoute);
    }
    match verb {
        Verb::Get | Verb::List | Verb::Watch => Ok(()),
        _ => Err(Refusal::method()),
    }
}

/// Answers a get, list or watch of `clusters`. In shared mode, the answer contains only clusters that the caller may
/// know.
///
/// # Errors
/// 400 for invalid parameters; 403 for an impersonated read in personal mode; 404 for an unknown cluster; 406 if the
/// client accepts no possible form; 410 for a list at a resourceVersion of a different process; 503 for one cluster
/// while the caller's rights are unknown.
pub(crate) async fn answer(
    router: &Arc<Router>,
    caller: &Caller,
    received: ReceivedRequest<'_>,
) -> Result<Response<Body>, Refusal> {
    let resource = received.info.resource().ok_or(Refusal::NoRoute)?;
    if caller.impersonates_another() {
        return Err(RequestRefusal::ReadForAnother { resource: resource.resource.clone() }.into());
    }
    let request = ClustersRequest { router, caller, received, resource };
    match received.info.verb {
        Verb::Watch => watch::watch(request).await,
        Verb::List => list::list(request).await,
        _ => get(request).await,
    }
}

async fn get(request: ClustersRequest<'_>) -> Result<Response<Body>, Refusal> {
    let (form, include) = request.form(ResponseKind::Object)?;
    let store = request.router.cluster_store();
    let options = GetOptions::parse(request.received.query).map_err(Refusal::malformed)?;
    let collection = sample::for_read(request.router).await;
    if let Some(text) = options.resource_version.filter(|text| text != "0") {
        let version = ClustersVersion::parse(&text, store.instance());
        version.map_err(|unusable| Refusal::malformed(Status::bad_request(unusable.to_string())))?;
    }
    let objects = collection.objects();
    let known = KnownClusters::find(request.rights(), &objects).await;
    let name = request.resource.name.as_deref().unwrap_or_default();
    let found = ClusterName::new(name).ok().filter(|cluster| known.has(cluster));
    let Some(object) = found.and_then(|cluster| objects.get(&cluster)) else {
        let (resource, name) = (request.resource.resource.clone(), name.to_owned());
        // A hidden cluster and a missing cluster get equal answers, so that the answer reveals no cluster.
        return Err(match known.has_unknown() {
            true => ClusterRefusal::rights_unknown(resource, name),
            false => ClusterRefusal::NotFound { resource, name, warnings: Vec::new() },
        }
        .into());
    };
    let version = store.version(object.resource_version().0, known.scope(objects.keys()));
    let mut text = Vec::new();
    let mut writer = ObjectWriter::without_clusters(&clusters_kind(), form, include);
    writer.write_of(None, object, &version, ObjectContext::Alone(Columns::Defined), &mut text);
    if form.encoding != Encoding::Protobuf {
        text.push(b'\n');
    }
    Ok(response::whole(StatusCode::OK, form, text))
}

impl From<UnusableVersion> for Refusal {
    fn from(unusable: UnusableVersion) -> Self {
        match unusable {
            UnusableVersion::Malformed => Self::malformed(Status::bad_request(unusable.to_string())),
            UnusableVersion::OfAnotherProcess => tributary_answers::refusal::VersionRefusal::OfAnotherProcess.into(),
        }
    }
}
