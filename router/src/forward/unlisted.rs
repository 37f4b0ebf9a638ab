//! Requests for paths that no discovery document lists, forwarded to the only cluster that serves their group and
//! version.

use http::{Request, Response};
use tributary_answers::refusal::Refusal;
use tributary_sharing::body::Body;

use super::owner::UnknownClusters;
use super::send::send;
use crate::request::ClientRequest;

/// Forwards a request and its answer unchanged.
///
/// # Errors
/// 404 if the cluster is no candidate; 503 for a write if another cluster may serve the path, too.
pub(crate) async fn to_only_cluster(
    request: ClientRequest<'_>,
    message: Request<Body>,
) -> Result<Response<Body>, Refusal> {
    let ClientRequest { router, caller, info, resource, query, .. } = request;
    let cluster = request.serving().find_map(|name| request.cluster(name)).ok_or(Refusal::NoRoute)?;
    let others: Vec<_> = request.may_serve().iter().map(|own| own.name().clone()).collect();
    if !info.verb.is_read() && !others.is_empty() {
        let (resource, name) = (resource.resource.clone(), resource.name.clone().unwrap_or_default());
        let unknown = UnknownClusters { clusters: &others, failures: &[] };
        return Err(unknown.refuse(router.fleet(), resource, name).into());
    }
    send(&cluster, caller, message, info, query).await
}
