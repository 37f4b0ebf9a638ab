//! Which cluster a write means: finds out what [`Ground`]s speak for, one after the other, until one decides.

use std::sync::Arc;
use std::time::Duration;

use tributary_apimachinery::rewrite::Reference;
use tributary_apimachinery::{
    ClusterName, GroupVersion, GroupVersionResource, Object, ObjectKey, ResourceRequest, Verb,
};

use super::buffered::BufferedRequest;
use super::findings::Findings;
use super::locate::{Found, Located, Lookup, ask_unknown, locate};
use super::records;
use super::release::Release;
use super::target::OwnerTarget;
use crate::Router;
use crate::discovery::ServedResource;
use crate::grounds::{Evidence, Ground, Verdict};
use crate::ownership::{Claim, NoOwner};
use crate::refusal::{ClusterRefusal, Refusal, ReleaseName, Trouble};
use crate::request::ClientRequest;
use crate::topology::Cluster;
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
    pub(super) fn of_found(ground: Ground, (cluster, object): Found) -> Self {
        Self { ground, target: OwnerTarget { cluster, object, involved: None } }
    }
}

/// The cluster of a new object, by the first ground that applies. `None` where none does. `seen` are versions that the
/// client has of an object that was there: what is made in its place is made where it was.
///
/// # Errors
/// 400 where a cluster is named that does not serve the resource; 503 where a cluster is unknown that may have
/// what decides.
pub(super) async fn of_new(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    seen: &[ClientVersion],
) -> Result<Option<Meant>, Refusal> {
    for ground in Ground::OF_NEW {
        let found = match ground {
            Ground::Annotation => annotated(request, held).transpose()?,
            Ground::Precondition => {
                let cluster = seen.iter().find_map(ClientVersion::only_cluster);
                let cluster = cluster.map(|cluster| configured(request, cluster.as_str())).transpose()?;
                cluster.map(|cluster| Meant::of_new(ground, cluster))
            }
            Ground::Owner => owner(request, held).await?,
            Ground::Placement => {
                let placement = request.configuration.policy(&request.resource.resource).placement.as_ref();
                let cluster = placement.map(|placement| configured(request, placement.as_str())).transpose()?;
                cluster.map(|cluster| Meant::of_new(ground, cluster))
            }
            _ => by_evidence(request, held, ground).await?.map(|cluster| Meant::of_new(ground, cluster)),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The cluster that a write of a name itself says that it means, by the first ground that applies. `None` where it says
/// nothing, or only what is true of no cluster that has the name.
///
/// # Errors
/// As [`of_new`].
pub(super) async fn of_existing(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    seen: &[ClientVersion],
    located: &Located,
) -> Result<Option<Meant>, Refusal> {
    let makes = makes(request, held);
    // What belongs together decides nothing where there is one object of the name alone, and no other can be made.
    let is_open = makes || located.found.len() > 1 || !(located.found.is_empty() || located.unknown.is_empty());
    for ground in Ground::OF_EXISTING {
        let found = match ground {
            Ground::Annotation => annotated(request, held).filter(|_| makes).transpose()?,
            Ground::Precondition => by_precondition(held, seen, &located.found),
            Ground::Owner if is_open => owner(request, held).await?,
            Ground::Release if is_open => {
                by_evidence(request, held, ground).await?.map(|cluster| Meant::of_new(ground, cluster))
            }
            Ground::Name => {
                not_of_several(request, located).await?;
                None
            }
            _ => None,
        };
        let has_it = |meant: &Meant| located.found.iter().any(|(own, _)| own.name() == meant.target.cluster.name());
        if let Some(meant) = found.filter(|meant| makes || has_it(meant)) {
            return Ok(Some(meant));
        }
        if ground == Ground::Annotation && held.facts.cluster.is_some() {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Whether a write makes the object where there is none, or changes it where there is one: an apply. It says all that
/// there is to say of it, so that it goes where the object belongs, whatever is elsewhere.
pub(super) fn makes(request: ClientRequest<'_>, held: &BufferedRequest) -> bool {
    held.is_apply() && request.resource.subresource.is_none()
}

/// The cluster that the annotation names.
fn annotated(request: ClientRequest<'_>, held: &BufferedRequest) -> Option<Result<Meant, ClusterRefusal>> {
    let named = held.facts.cluster.as_deref()?;
    Some(configured(request, named).map(|cluster| Meant::of_new(Ground::Annotation, cluster)))
}

/// The cluster that the precondition of a write names, of those that have the name: by the version of its object, or by
/// the object's uid.
fn by_precondition(held: &BufferedRequest, seen: &[ClientVersion], found: &[Found]) -> Option<Meant> {
    let of_version = |(cluster, _): &&Found| seen.iter().any(|own| own.only_cluster() == Some(cluster.name()));
    let uid = held.facts.precondition_uid.as_deref().or(held.facts.uid.as_deref());
    let of_uid = |(_, object): &&Found| object.as_ref().is_some_and(|own| Some(own.uid()) == uid);
    let (cluster, _) = found.iter().find(of_version).or_else(|| found.iter().find(of_uid))?;
    Some(Meant::of_new(Ground::Precondition, Arc::clone(cluster)))
}

/// Nothing names the cluster of a new object.
pub(super) fn not_named(request: ClientRequest<'_>, held: &BufferedRequest) -> ClusterRefusal {
    let (resource, clusters) = (request.resource.resource.clone(), request.served.clusters.clone());
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
fn configured(request: ClientRequest<'_>, name: &str) -> Result<Arc<Cluster>, ClusterRefusal> {
    let ClientRequest { router, served, .. } = request;
    let serves = |cluster: &Arc<Cluster>| served.clusters.contains(cluster.name()) || cluster.discovery().is_none();
    let found = ClusterName::new(name).ok().and_then(|name| router.fleet().cluster(&name)).filter(serves);
    found.ok_or_else(|| {
        let (resource, clusters) = (served.resource.clone(), served.clusters.clone());
        ClusterRefusal::NotServing { resource, named: name.to_owned(), clusters }
    })
}

/// The cluster that a ground speaks for by what clusters have.
async fn by_evidence(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    ground: Ground,
) -> Result<Option<Arc<Cluster>>, Refusal> {
    let ClientRequest { router, configuration, .. } = request;
    let release = Release::of(request.resource, &held.facts.release);
    let found = match ground {
        Ground::Release => match &release {
            Some(release) => records::findings(request, release).await?,
            None => return Ok(None),
        },
        Ground::Node => node(request, held).await?,
        Ground::Kind => kind(request).into(),
        Ground::Namespace => namespace(request).await?,
        _ => Findings::default(),
    };
    let (resource, name) = (request.resource.resource.clone(), name_of(request, held));
    let (namespace, of) = release.map_or((None, None), |release| (release.namespace, release.name));
    let release = Box::new(ReleaseName { namespace, name: of });
    let placement = configuration.policy(&resource).placement.as_ref();
    let Findings { evidence, told } = found;
    match ground.judge(evidence, placement) {
        Verdict::Meant(cluster) => Ok(router.fleet().cluster(&cluster)),
        Verdict::Nothing => Ok(None),
        Verdict::Unsure { known, unknown } => {
            let unknown = router.fleet().troubles(&unknown, &told);
            Err(ClusterRefusal::Unsure { resource, name, ground, known, unknown }.into())
        }
        Verdict::Perhaps(unknown) => {
            let unknown = router.fleet().troubles(&unknown, &told);
            Err(ClusterRefusal::ReleaseUnsure { resource, name, release, unknown }.into())
        }
        Verdict::Several(clusters) => {
            Err(ClusterRefusal::ReleaseInSeveral { resource, name, release, clusters }.into())
        }
    }
}

/// Refuses to delete an object that is the only one of its name, and any write of a record that is, where several
/// clusters have the Helm release: an uninstallation changes the newest record, whose revision one cluster alone may
/// have, and goes on to the objects even if that is refused.
///
/// # Errors
/// As reads of the records in memory.
async fn not_of_several(request: ClientRequest<'_>, located: &Located) -> Result<(), Refusal> {
    let [(_, Some(object))] = &located.found[..] else { return Ok(()) };
    let release = Release::of_object(request.resource, object);
    let is_deleted = request.info.verb == Verb::Delete;
    let Some(release) = release.filter(|release| is_deleted || release.is_of_record()) else { return Ok(()) };
    let evidence = records::findings(request, &release).await?.evidence;
    match Ground::Release.judge(evidence, None) {
        Verdict::Several(clusters) => {
            let (resource, name) = (request.resource.resource.clone(), object.name().to_owned());
            let Release { namespace, name: of, .. } = release;
            let release = Box::new(ReleaseName { namespace, name: of });
            Err(ClusterRefusal::ReleaseInSeveral { resource, name, release, clusters }.into())
        }
        _ => Ok(()),
    }
}

/// Where the object's owner is, or the object that an Event is about.
async fn owner(request: ClientRequest<'_>, held: &BufferedRequest) -> Result<Option<Meant>, Refusal> {
    for owner in &held.facts.owners {
        if let Some((cluster, _)) = referenced(request, owner).await? {
            return Ok(Some(Meant::of_new(Ground::Owner, cluster)));
        }
    }
    let Some(involved) = &held.facts.involved else { return Ok(None) };
    let found = match just_deleted(request.router, involved, request.resource) {
        None => referenced(request, involved).await?,
        deleted => deleted,
    };
    Ok(found.map(|(cluster, involved)| Meant {
        ground: Ground::Owner,
        target: OwnerTarget { cluster, object: None, involved },
    }))
}

/// Where the node is that a new Pod is bound to; for a Binding, the Pod that is bound, or else the node.
async fn node(request: ClientRequest<'_>, held: &BufferedRequest) -> Result<Findings, Refusal> {
    let facts = &held.facts;
    if let (Some(target), Some(name)) = (&facts.target, &facts.name) {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let pod = located(request, &pods, request.resource.namespace.as_deref(), name).await?;
        return if pod.evidence.has.len() == 1 { Ok(pod) } else { node_of_name(request, &target.name).await };
    }
    match &facts.node_name {
        Some(name) => node_of_name(request, name).await,
        None => Ok(Findings::default()),
    }
}

/// Which clusters have a node of this name.
async fn node_of_name(request: ClientRequest<'_>, name: &str) -> Result<Findings, Refusal> {
    located(request, &GroupVersionResource::new("", "v1", "nodes"), None, name).await
}

/// Which clusters serve the resource. One that has not told what it serves may do so, too, and so may one whose
/// aggregated server does not answer.
fn kind(request: ClientRequest<'_>) -> Evidence {
    let ClientRequest { router, served, .. } = request;
    let version = served.resource.group_version();
    let may = |cluster: &&Arc<Cluster>| cluster.discovery().is_none_or(|own| own.is_stale(&version));
    let clusters = router.fleet().clusters();
    let may = clusters.values().filter(may).map(|cluster| cluster.name().clone()).collect();
    Evidence { has: served.clusters.to_vec(), may }
}

/// Which of the clusters that serve the resource have the namespace.
pub(super) async fn namespace(request: ClientRequest<'_>) -> Result<Findings, Refusal> {
    let Some(namespace) = &request.resource.namespace else { return Ok(Findings::default()) };
    let mut found = located(request, &GroupVersionResource::new("", "v1", "namespaces"), None, namespace).await?;
    let Evidence { has, may } = kind(request);
    for clusters in [&mut found.evidence.has, &mut found.evidence.may] {
        clusters.retain(|cluster| has.contains(cluster) || may.contains(cluster));
    }
    Ok(found)
}

/// Which clusters have an object of this name.
async fn located(
    request: ClientRequest<'_>,
    resource: &GroupVersionResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Findings, Refusal> {
    let union = request.router.fleet().union();
    let Some(served) = union.get(resource) else { return Ok(Findings::default()) };
    let wanted = ResourceRequest {
        resource: resource.clone(),
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        subresource: None,
        rest: None,
        selected_name: None,
    };
    let wanted = ClientRequest { resource: &wanted, served, ..request };
    let located = ask_unknown(wanted, locate(wanted, Lookup::Present, &[]).await?).await;
    let has = located.found.iter().map(|(cluster, _)| cluster.name().clone()).collect();
    // Who may not look for a namespace may write in it all the same.
    let forbids = |cluster: &ClusterName| Trouble {
        cluster: cluster.clone(),
        cause: format!("it forbids to ask for {}", resource.group_resource()),
        age: Duration::ZERO,
    };
    let told = located.told.into_iter().chain(located.forbidden.iter().map(forbids)).collect();
    let may = located.unknown.into_iter().chain(located.forbidden).collect();
    Ok(Findings { evidence: Evidence { has, may }, told })
}

/// The object that a reference names, and its cluster. `None` where nobody has it: then it is no ground for a choice.
///
/// The uid decides. Where the reference has none (or a node's name in its place, as kubelets write it) the name does,
/// if only one cluster has it.
///
/// # Errors
/// 503 where it is in no cluster that is known or answers, and some do not: elsewhere garbage collection would take the
/// new object for one that lost its owner. 504 where this process's own writes are not seen within 3 s.
async fn referenced(request: ClientRequest<'_>, reference: &Reference) -> Result<Option<Found>, Refusal> {
    let ClientRequest { router, resource, .. } = request;
    let Some((wanted, served)) = named(router, reference, resource) else { return Ok(None) };
    let wanted = ClientRequest { resource: &wanted, served: &served, ..request };
    let uid = Some(&*reference.uid).filter(|uid| !uid.is_empty() && *uid != reference.name);
    let located = locate(wanted, Lookup::Surely { uid }, &[]).await?;
    match located.owner(Claim::Known) {
        Ok(found) => Ok(Some(found)),
        Err(NoOwner::Several(_)) => Ok(None),
        Err(NoOwner::Nowhere) if located.refusal.is_none() => Ok(None),
        Err(none) => Err(located.refuse(wanted, none)),
    }
}

/// What a reference names, and who serves it.
fn named(
    router: &Router,
    reference: &Reference,
    resource: &ResourceRequest,
) -> Option<(ResourceRequest, Arc<ServedResource>)> {
    let union = router.fleet().union();
    let group_version = GroupVersion::parse(&reference.api_version);
    let served = union.of_kind(&group_version, &reference.kind).filter(|_| !reference.name.is_empty())?;
    let namespace = Some(&reference.namespace).filter(|own| !own.is_empty()).or(resource.namespace.as_ref());
    let wanted = ResourceRequest {
        resource: served.resource.clone(),
        namespace: namespace.filter(|_| served.description.namespaced()).cloned(),
        name: Some(reference.name.clone()),
        subresource: None,
        rest: None,
        selected_name: None,
    };
    Some((wanted, Arc::clone(served)))
}

/// The object that an Event is about, if it was deleted a moment ago: the last thing that is told of
/// many objects is that they ended.
fn just_deleted(router: &Router, reference: &Reference, resource: &ResourceRequest) -> Option<Found> {
    let (wanted, _) = named(router, reference, resource).filter(|_| !reference.uid.is_empty())?;
    let key = ObjectKey::new(wanted.namespace.as_deref().unwrap_or_default(), &reference.name);
    let is_meant = |object: &Object| object.uid() == reference.uid;
    let namespaces = [None, wanted.namespace.as_deref()].into_iter();
    let views = namespaces.filter_map(|namespace| router.views().get(&wanted.resource, namespace));
    let mut deleted = views.filter_map(|view| {
        let log = view.log();
        let is_there = log.find(key.as_str()).iter().any(|(_, object)| is_meant(object));
        if is_there { None } else { log.find_deleted(key.as_str(), is_meant) }
    });
    let (name, object) = deleted.next()?;
    Some((router.fleet().cluster(&name)?, Some(object)))
}
