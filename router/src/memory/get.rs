//! Answers to gets from memory.

use std::sync::Arc;

use http::{Response, StatusCode, header};
use tokio::time::Instant;
use tributary_answers::negotiate::{Encoding, ResponseKind};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterSelector, GetOptions, Names, Partial};
use tributary_rights::Readable;
use tributary_sharing::body::Body;
use tributary_views::view::{EarlierCacheStates, Unreached, View, WriterSelector, cache_state};

use crate::forward::owner::MissingOwner;
use crate::forward::owner::decision::{Claim, Evidence, OwnerError};
use crate::memory::choice::Lifetime;
use crate::request::ClientRequest;
use crate::response::{self, Columns, ObjectContext, ObjectWriter};
use crate::versions::{ReadVersion, Versions, of_clusters, refuse_get, seen};

/// Answers a get from memory. Before a 404, Tributary renews the discovery of the clusters where the caller may get the
/// object.
///
/// # Errors
/// [`Refusal::NotCached`] if a reachable cluster has objects that memory lacks; 404, with a Warning for each cluster
/// whose cached objects may be old; 503 for an unknown cluster that may have the object; 409 for an object in several
/// clusters; 504 for a version that does not arrive within 3 s; 400 and 406.
pub(crate) async fn get(request: ClientRequest<'_>) -> Result<Response<Body>, Refusal> {
    match get_of_served(request).await {
        Err(refusal) if refusal.is_not_found() => {
            // `request` has all clusters as candidates, because memory checks the caller's rights.
            let candidates = request.candidates_of(request.resource, "get").await;
            let renewed = Box::pin(request.about(request.resource, request.served, &candidates).renewed()).await;
            match renewed {
                Some(renewed) => Box::pin(get_of_served(renewed.renew_request(request))).await,
                None => Err(refusal),
            }
        }
        answer => answer,
    }
}

/// Answers a get according to the current discovery of the clusters.
///
/// # Errors
/// The errors of [`get`].
async fn get_of_served(request: ClientRequest<'_>) -> Result<Response<Body>, Refusal> {
    let ClientRequest { router, served, .. } = request;
    let form = request.preferences.form(ResponseKind::Object)?;
    let options = GetOptions::parse(request.query).map_err(Refusal::malformed)?;
    let text = options.resource_version.as_deref();
    // A cluster where the caller may not get the object is treated as a cluster without the object.
    let everywhere = ClusterSelector::default();
    let mut readable = request.readable("get", &everywhere, Partial::Allow).await?;
    let CachedObject { view, before, versions, clusters } = loop {
        let begun = Instant::now();
        let found_object = find_object(request, text, readable.as_ref()).await?;
        match request.readable_anew(("get", &everywhere, Partial::Allow), &readable, begun).await? {
            None => break found_object,
            Some(anew) => readable = Some(anew),
        }
    };
    let key = request.resource.key();
    let (mut found, cache_states) = view.find(before, &key)?;
    found.retain(|(cluster, _)| clusters.matches(cluster));
    let is_unique = request.configuration.policy(&served.resource).names == Names::Unique;
    if !(is_unique && found.len() == 1) && cache_states.unknown().any(|cluster| request.can_ask(cluster)) {
        return Err(Refusal::NotCached(Box::default()));
    }
    let evidence = Evidence {
        has: found.iter().map(|(cluster, _)| cluster.clone()).collect(),
        may: cache_states.may_have().cloned().collect(),
        is_one_hidden: readable.as_ref().is_some_and(|readable| readable.has_unknown),
        ..Evidence::default()
    };
    let refuse = |none| {
        let refusal: Refusal = MissingOwner::for_name(request, &cache_states.failures()).refuse(none).into();
        refusal.with_warnings(|| cache_state::warnings(&served.resource, &cache_states))
    };
    let owner = evidence.owner_of_name(&Claim::AnyKnown).map_err(refuse)?;
    let owned = found.into_iter().find(|(cluster, _)| *cluster == owner);
    let (cluster, object) = owned.ok_or_else(|| refuse(OwnerError::NotFound))?;
    let include = request.finish(form, ResponseKind::Object)?;
    let mark = view.mark(&cluster);
    let mut version = String::new();
    versions.item_versions().for_cluster(&mark).write(object.resource_version(), &mut version);
    let body_permit =
        router.large_bodies().body_permit(request.caller.share_key, form.writing_cost(object.json().len())).await;
    let mut answer = body_permit.run(|| {
        let mut text = Vec::with_capacity(object.json().len() + 256);
        ObjectWriter::new(&view.kind, form, include).write(
            &object,
            &version,
            &mark,
            ObjectContext::Alone(Columns::Defined),
            &mut text,
        );
        if form.encoding != Encoding::Protobuf {
            text.push(b'\n');
        }
        response::whole(StatusCode::OK, form, text)
    });
    view.warn(answer.headers_mut(), &cache_states.trouble_of(&cluster), &clusters);
    let failures = if is_unique { Vec::new() } else { cache_states.doubts_of(&cluster) };
    let warnings =
        cache_state::doubts(&served.resource, request.resource.name.as_deref().unwrap_or_default(), &failures);
    answer.headers_mut().extend(warnings.into_iter().map(|warning| (header::WARNING, warning)));
    Ok(answer)
}

/// Cached view that has reached the requested version, and the clusters in which to look up the object.
struct CachedObject {
    view: Arc<View>,
    before: EarlierCacheStates,
    versions: Versions,
    clusters: ClusterSelector,
}

/// Waits until the cached view has reached the requested version in the clusters that the caller may read. Returns the
/// view and these clusters.
///
/// # Errors
/// As [`get`].
async fn find_object(
    request: ClientRequest<'_>,
    text: Option<&str>,
    readable: Option<&Readable>,
) -> Result<CachedObject, Refusal> {
    let resource = &request.served.resource;
    let audience = readable.map(|readable| Arc::clone(&readable.audience));
    let clusters = readable.map(|readable| ClusterSelector::default().within(Arc::clone(&readable.only)));
    let clusters = clusters.unwrap_or_default();
    let versions = request.configuration.versions(resource).of_audience(audience);
    let wanted = versions.read_wanted(resource, text, refuse_get)?;
    let (view, before) = request.read(&clusters, Partial::Allow, Lifetime::Name).await;
    let mut before = before?;
    match wanted {
        ReadVersion::Newest => {
            let key = request.resource.key();
            if view.writes_of_seen(WriterSelector::One(request.caller.writer()), &clusters, &key).await? {
                view.look_again(&mut before);
            }
        }
        ReadVersion::Any => {}
        ReadVersion::Item(cluster, version) => {
            let seen = seen(&cluster, version);
            view.reached(&of_clusters(&seen, &clusters)).await.map_err(Unreached::of_object)?;
        }
        ReadVersion::Version(version) => {
            view.reached(&of_clusters(&version, &clusters)).await.map_err(Unreached::of_object)?
        }
    }
    Ok(CachedObject { view, before, versions, clusters })
}
