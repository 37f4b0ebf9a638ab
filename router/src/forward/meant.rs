//! Which cluster a write means: goes through the [`Ground`]s until one decides.

use std::sync::Arc;

use tributary_answers::ground::Ground;
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::ClusterName;
use tributary_fleet::topology::Cluster;

use super::buffered::BufferedRequest;
use super::evidence::{self, Gathered, Referenced};
use super::locate::{FoundObject, Located};
use super::target::OwnerTarget;
use super::torn_release;
use crate::grounds::Finding;
use crate::helm_release::Release;
use crate::request::ClientRequest;
use crate::versions::ClientVersion;

/// The cluster that a write means.
pub(super) struct Meant {
    /// Why this one.
    pub(super) ground: Ground,
    /// The cluster, and what is known of the object there.
    pub(super) target: OwnerTarget,
}

impl Meant {
    fn of_new(ground: Ground, cluster: Arc<Cluster>) -> Self {
        Self::of_found(ground, (cluster, None))
    }

    /// The cluster where an object was found, or not.
    pub(super) fn of_found(ground: Ground, (cluster, object): FoundObject) -> Self {
        Self { ground, target: OwnerTarget { cluster, object, involved: None } }
    }
}

/// Finds the cluster of a new object, by the first ground that applies; `None` without one. `seen` are the client's
/// versions of a former object: its replacement goes to the same cluster. Asks clusters for their discovery again
/// before a ground that depends on it decides.
///
/// # Errors
/// 400 for a named cluster that does not serve the resource; 503 if an unknown cluster may decide.
pub(super) async fn of_new(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    seen: &[ClientVersion],
) -> Result<Option<Meant>, Refusal> {
    let found = of_new_by_grounds(request, held, seen).await;
    let rests_on_served = match &found {
        Ok(Some(meant)) => matches!(meant.ground, Ground::Kind | Ground::Namespace),
        Ok(None) => true,
        Err(refusal) => refusal.is_not_serving(),
    };
    if !rests_on_served {
        return found;
    }
    match request.renewed().await {
        Some(renewed) => of_new_by_grounds(renewed.renew_request(request), held, seen).await,
        None => found,
    }
}

/// Decides like [`of_new`], by the known discovery of the clusters.
async fn of_new_by_grounds(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    seen: &[ClientVersion],
) -> Result<Option<Meant>, Refusal> {
    let mut forbidden = None;
    for ground in Ground::OF_NEW {
        let found = match ground {
            Ground::Annotation => annotated(request, held).transpose()?,
            Ground::Precondition => {
                let cluster = seen.iter().find_map(ClientVersion::only_cluster);
                let cluster = cluster.map(|cluster| configured(request, cluster.as_str())).transpose()?;
                cluster.map(|cluster| Meant::of_new(ground, cluster))
            }
            Ground::Owner => referenced(request, held).await?,
            Ground::Placement => placed(request, forbidden.take())?,
            _ => match by_evidence(request, held, ground).await? {
                GroundResult::Forbidden(refusal) => {
                    forbidden = Some(refusal);
                    None
                }
                said => said.meant(ground),
            },
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The cluster that the configuration names.
///
/// # Errors
/// As [`configured`]; `forbidden`, where that is the only ground and one that comes before it is not shown to the
/// client.
fn placed(request: ClientRequest<'_>, forbidden: Option<Refusal>) -> Result<Option<Meant>, Refusal> {
    let placement = request.configuration.policy(&request.resource.resource).placement.as_ref();
    match (placement, forbidden) {
        (None, _) => Ok(None),
        (Some(_), Some(forbidden)) => Err(forbidden),
        (Some(placement), None) => Ok(Some(Meant::of_new(Ground::Placement, configured(request, placement.as_str())?))),
    }
}

/// The cluster of the object's owner, or of the object that an Event is about.
async fn referenced(request: ClientRequest<'_>, held: &BufferedRequest) -> Result<Option<Meant>, Refusal> {
    let found = evidence::of_references(request, held).await?;
    Ok(found.map(|Referenced { cluster, involved }| Meant {
        ground: Ground::Owner,
        target: OwnerTarget { cluster, object: None, involved },
    }))
}

/// What a write of a name itself says of the cluster that it means.
pub(super) enum OfExisting<'a> {
    /// It goes to this one, whatever others have of the name.
    Goes(Meant),
    /// Of those that have the name it means this one.
    Chooses(Meant),
    /// Its annotation names a cluster, which must have the name: what only changes an object makes none.
    Annotated(&'a str),
    /// Nothing, or only what is true of no cluster that has the name.
    Nothing,
}

/// What a write of a name itself says of the cluster that it means, by the first ground that applies.
///
/// # Errors
/// As [`of_new`].
pub(super) async fn of_existing<'a>(
    request: ClientRequest<'_>,
    held: &'a BufferedRequest,
    seen: &[ClientVersion],
    located: &Located,
) -> Result<OfExisting<'a>, Refusal> {
    let makes = makes(request, held);
    // What belongs together decides nothing where there is one object of the name alone, and no other can be made.
    let may_be_others = located.is_one_unknown || !located.unknown.is_empty();
    let is_open = makes || located.found.len() > 1 || (!located.found.is_empty() && may_be_others);
    for ground in Ground::OF_EXISTING {
        let found = match ground {
            Ground::Annotation if makes => annotated(request, held).transpose()?,
            Ground::Annotation => match held.named_cluster() {
                Some(named) => return Ok(OfExisting::Annotated(named)),
                None => None,
            },
            Ground::Precondition => by_precondition(request, held, seen, &located.found)?,
            Ground::Owner if is_open => referenced(request, held).await?,
            Ground::Release if is_open => by_evidence(request, held, ground).await?.meant(ground),
            Ground::Node if located.found.len() > 1 => by_evidence(request, held, ground).await?.meant(ground),
            _ => None,
        };
        let has_it = |meant: &Meant| located.found.iter().any(|(own, _)| own.name() == meant.target.cluster.name());
        match found {
            Some(meant) if makes => return Ok(OfExisting::Goes(meant)),
            Some(meant) if has_it(&meant) => return Ok(OfExisting::Chooses(meant)),
            _ => {}
        }
    }
    torn_release::refuse(request, located).await?;
    Ok(OfExisting::Nothing)
}

/// Whether a write makes the object where there is none, or changes it where there is one: an apply. It says all that
/// there is to say of it, so that it goes where the object belongs, whatever is elsewhere.
pub(super) fn makes(request: ClientRequest<'_>, held: &BufferedRequest) -> bool {
    held.is_apply() && request.resource.subresource.is_none()
}

/// The cluster that the annotation names.
fn annotated(request: ClientRequest<'_>, held: &BufferedRequest) -> Option<Result<Meant, Refusal>> {
    let named = held.named_cluster()?;
    Some(configured(request, named).map(|cluster| Meant::of_new(Ground::Annotation, cluster)))
}

/// The cluster that the precondition of a write names, of those that have the name: by the version of its object, or by
/// the object's uid.
///
/// # Errors
/// 409 where the uid is all that names one, and several have an object of it: one of them has copied it.
fn by_precondition(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    seen: &[ClientVersion],
    found: &[FoundObject],
) -> Result<Option<Meant>, Refusal> {
    let meant = |cluster: &Arc<Cluster>| Ok(Some(Meant::of_new(Ground::Precondition, Arc::clone(cluster))));
    let of_version = |(cluster, _): &&FoundObject| seen.iter().any(|own| own.only_cluster() == Some(cluster.name()));
    if let Some((cluster, _)) = found.iter().find(of_version) {
        return meant(cluster);
    }
    let uid = held.facts.precondition_uid.as_deref().or(held.facts.uid.as_deref());
    let of_uid = |(_, object): &&FoundObject| object.as_ref().is_some_and(|own| Some(own.uid()) == uid);
    let of_uid: Vec<_> = found.iter().filter(of_uid).map(|(cluster, _)| cluster).collect();
    match of_uid[..] {
        [] => Ok(None),
        [cluster] => meant(cluster),
        _ => {
            let clusters = of_uid.iter().map(|cluster| cluster.name().clone()).collect();
            let (resource, name) = (request.resource.resource.clone(), name_of(request, held));
            Err(ClusterRefusal::UidInSeveral { resource, name, clusters }.into())
        }
    }
}

/// Builds the refusal of a create that names no cluster. It lists the clusters of the present discovery, which may have
/// grown since the request came in.
pub(super) fn not_named(request: ClientRequest<'_>, held: &BufferedRequest) -> ClusterRefusal {
    let (union, resource) = (request.router.fleet().union(), request.resource.resource.clone());
    let serving = union.get(&resource).into_iter().flat_map(|served| served.clusters.iter());
    let clusters = serving.filter(|cluster| request.candidates.has(cluster)).cloned().collect();
    ClusterRefusal::NotNamed { resource, name: name_of(request, held), clusters }
}

/// The name of the object of a write; empty where the member is to make one up.
fn name_of(request: ClientRequest<'_>, held: &BufferedRequest) -> String {
    request.resource.name.as_ref().or(held.facts.name.as_ref()).cloned().unwrap_or_default()
}

/// The cluster of this name.
///
/// # Errors
/// 400 naming the clusters that serve the resource.
fn configured(request: ClientRequest<'_>, name: &str) -> Result<Arc<Cluster>, Refusal> {
    let served = request.served;
    let serves = |cluster: &Arc<Cluster>| {
        served.clusters.contains(cluster.name()) || request.configuration.may_serve(cluster, served)
    };
    let found = ClusterName::new(name).ok().and_then(|name| request.cluster(&name)).filter(serves);
    found.ok_or_else(|| {
        let (resource, clusters) = (served.resource.clone(), request.serving().cloned().collect());
        ClusterRefusal::NotServing { resource, named: name.to_owned(), clusters }.into()
    })
}

/// What a ground says of the cluster that is meant.
enum GroundResult {
    /// It is this one.
    Cluster(Arc<Cluster>),
    /// Nothing.
    Nothing,
    /// It may say something, of which the client is shown nothing: so is refused what rests on a default alone.
    Forbidden(Refusal),
}

impl GroundResult {
    fn meant(self, ground: Ground) -> Option<Meant> {
        match self {
            Self::Cluster(cluster) => Some(Meant::of_new(ground, cluster)),
            Self::Nothing | Self::Forbidden(_) => None,
        }
    }
}

/// The cluster that a ground speaks for by what clusters have.
///
/// # Errors
/// 503 where clusters are unknown that may have it, too, 429 where one of them was not asked; 409 where several have
/// what belongs to one.
async fn by_evidence(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    ground: Ground,
) -> Result<GroundResult, Refusal> {
    let ClientRequest { router, configuration, .. } = request;
    let name = name_of(request, held);
    let release = Release::from_facts(request.resource, Some(&name), &held.facts.release);
    let gathered = match (ground, &release) {
        (Ground::Release, Some(release)) => evidence::of_release(request, release).await,
        (Ground::Node, _) => evidence::of_node(request, held).await?,
        (Ground::Kind, _) => evidence::of_kind(request).into(),
        (Ground::Namespace, _) => evidence::of_namespace(request).await?,
        _ => return Ok(GroundResult::Nothing),
    };
    let resource = request.resource.resource.clone();
    let release = Box::new(release.map(Release::into_name).unwrap_or_default());
    let placement = configuration.policy(&resource).placement.as_ref();
    let Gathered { evidence, told, not_put } = gathered;
    // What an unnamed cluster has might speak for it.
    let is_one_unknown = request.candidates.is_one_unknown();
    let is_of_unknown_release = is_one_unknown && ground == Ground::Release;
    let rests_on_unknown = is_one_unknown && (ground.rests_on_others() || evidence.is_weak);
    let finding = evidence.judge(ground, placement);
    if let (Finding::Unsure { .. } | Finding::Perhaps(_), Some(not_put)) = (&finding, not_put) {
        return Err(not_put);
    }
    let refusal = match finding {
        Finding::Meant(cluster) if rests_on_unknown && placement == Some(&cluster) => return Ok(GroundResult::Nothing),
        Finding::Meant(_) if rests_on_unknown => ClusterRefusal::rights_unknown(resource, name),
        Finding::Nothing if is_of_unknown_release => ClusterRefusal::rights_unknown(resource, name),
        Finding::Meant(cluster) => {
            return Ok(router.fleet().cluster(&cluster).map_or(GroundResult::Nothing, GroundResult::Cluster));
        }
        Finding::Nothing => return Ok(GroundResult::Nothing),
        Finding::Unsure { known, unknown } => {
            let unknown = router.fleet().troubles(&unknown, &told);
            ClusterRefusal::Unsure { resource, name, ground, known, unknown }
        }
        Finding::Perhaps(unknown) => {
            let unknown = router.fleet().troubles(&unknown, &told);
            ClusterRefusal::ReleaseUnsure { resource, name, release, unknown }
        }
        Finding::Forbidden(clusters) => {
            return Ok(GroundResult::Forbidden(
                ClusterRefusal::ReleaseForbidden { resource, name, release, clusters }.into(),
            ));
        }
        Finding::Several(clusters) => ClusterRefusal::ReleaseInSeveral { resource, name, release, clusters },
    };
    Err(refusal.into())
}
