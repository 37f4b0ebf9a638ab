//! Refusals about the cluster of a request: unknown, ambiguous or wrong clusters.

use std::fmt::Display;
use std::sync::Arc;

use tributary_apimachinery::object::CLUSTER_ANNOTATION;
use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{
    ClusterName, Door, ForeignSystem, GroupVersionResource, Status, StatusCause, StatusDetails, StatusReason,
};

use super::ClusterFailure;
use super::wording::{ANY_CLUSTER, can_be_typed, first, listed, object, one_cluster, typed};
use crate::ground::Ground;
use crate::helm_record::is_record;

/// Name of a Helm release for a message.
#[derive(Clone, Debug, Default)]
pub struct ReleaseName {
    /// Namespace of the Helm release.
    pub namespace: String,
    /// Name of the Helm release. `None` if the object may belong to any release in the namespace.
    pub name: Option<String>,
}

/// Reason for which the cluster of a request is unknown, ambiguous or wrong.
#[derive(Clone, Debug)]
pub enum ClusterRefusal {
    /// No cluster of this name is configured: 404. At the door of a foreign system, the answer of that system for an
    /// unknown name.
    NotConfigured(ClusterName),
    /// A foreign system does not know the name in the path: 404 or 500, as the foreign system answers.
    NotInSystem {
        /// The foreign system whose door the client uses.
        system: ForeignSystem,
        /// Name in the path.
        name: String,
    },
    /// No cluster has the object: 404.
    NotFound {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object.
        name: String,
        /// Texts of the answer's Warnings about stale clusters, which may have the object by now.
        warnings: Vec<String>,
    },
    /// No reachable cluster has the object or resource, and other clusters are unreachable: 503, because controllers
    /// would read a 404 as a deletion.
    Unknown {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object; empty if the request is about the resource.
        name: String,
        /// Unreachable clusters, with reasons.
        unknown: Vec<ClusterFailure>,
        /// True if at least one of the clusters is known to be unreachable, so that an early retry would fail.
        is_lasting: bool,
    },
    /// A write does not name its cluster, and unreachable clusters may have the object: 503 without Retry-After,
    /// because a retry would fail as well.
    Unsure {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object; empty if the cluster generates the name.
        name: String,
        /// Ground (reason) to choose the reachable cluster `known`.
        ground: Ground,
        /// The reachable cluster that the ground suggests.
        known: ClusterName,
        /// Unreachable clusters, with reasons.
        unknown: Vec<ClusterFailure>,
    },
    /// A write belongs to a Helm release that no reachable cluster has, and other clusters are unreachable: 503 without
    /// Retry-After, as for [`Self::Unsure`].
    ReleaseUnsure {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object; empty if the cluster generates the name.
        name: String,
        /// The Helm release of the object.
        release: Box<ReleaseName>,
        /// Unreachable clusters, with reasons.
        unknown: Vec<ClusterFailure>,
    },
    /// A write belongs to a Helm release whose records the client may not read, and only the placement in the
    /// configuration names a cluster: 403.
    ReleaseForbidden {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object; empty if the cluster generates the name.
        name: String,
        /// Helm release of the object.
        release: Box<ReleaseName>,
        /// Clusters that forbid the client to read the release's records.
        clusters: Vec<ClusterName>,
    },
    /// Several clusters have an object with this name and uid: 409. A uid identifies a single object, so one of the
    /// objects is a copy.
    UidInSeveral {
        /// Resource of the object.
        resource: GroupVersionResource,
        /// Name of the object.
        name: String,
        /// Clusters that have an object of this name.
        clusters: Vec<ClusterName>,
    },
    /// Tributary has not yet read the objects of some clusters, which a list, a watch or a resourceVersion includes:
    /// 429.
    Unread {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Clusters whose objects Tributary has not read yet.
        clusters: Vec<ClusterName>,
        /// Reasons for the delay. Contains only clusters with a known reason.
        reasons: Vec<(ClusterName, Arc<str>)>,
        /// Retry-After in seconds; `None` for a cause that lasts until an administrator acts.
        retry_after: Option<u32>,
    },
    /// The rights of the caller in some clusters are unknown: 429 for a collection, 503 for a single object.
    RightsUnknown {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object; empty for a collection.
        name: String,
        /// Clusters with unknown rights, with reasons. Empty if the caller may not know all clusters.
        clusters: Vec<ClusterFailure>,
        /// True if the rights stay unknown until an administrator removes the cause. The answer then has no
        /// Retry-After.
        is_lasting: bool,
    },
    /// Several clusters have an object of this name: 409.
    NameInSeveral {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object.
        name: String,
        /// Clusters that have an object of the name.
        clusters: Vec<ClusterName>,
        /// Path of the request without the part that selects a cluster, as kube-apiserver would see it.
        path: String,
    },
    /// The annotation in the body names a cluster, but the object exists in a different cluster: 409.
    Elsewhere {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object.
        name: String,
        /// Cluster in the annotation.
        named: String,
        /// The cluster that has the object.
        owner: ClusterName,
    },
    /// The annotation in a body names a cluster other than the cluster in the request's path: 409.
    OfOtherContext {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object; empty if the cluster generates the name.
        name: String,
        /// Cluster in the annotation.
        named: String,
        /// True if a cluster of that name is configured.
        is_configured: bool,
        /// Cluster of the request's path.
        cluster: ClusterName,
    },
    /// A review has no single answer, because the caller has different user names in different clusters: 409.
    DifferentUsers {
        /// Resource of the review.
        resource: GroupVersionResource,
        /// Name of the caller in each cluster.
        users: Vec<(ClusterName, String)>,
    },
    /// No ground (reason to choose a cluster) applies to a new object: 400.
    NotNamed {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object; empty if the cluster generates the name.
        name: String,
        /// Clusters that serve the resource.
        clusters: Arc<[ClusterName]>,
    },
    /// A write belongs to a Helm release that several clusters have: 409. Tributary refuses before it writes any object
    /// of the release.
    ReleaseInSeveral {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object; empty if the cluster generates the name.
        name: String,
        /// The Helm release of the object.
        release: Box<ReleaseName>,
        /// Clusters that have the release.
        clusters: Vec<ClusterName>,
    },
    /// The cluster that Tributary chose for a new object does not have the object's namespace: 404.
    NoNamespace {
        /// The resource of the new object.
        resource: GroupVersionResource,
        /// Name of the namespace.
        namespace: Arc<str>,
        /// Cluster of the new object.
        cluster: ClusterName,
        /// Ground (reason) to choose the cluster of the new object.
        ground: Ground,
        /// Other clusters that have the namespace and serve the resource.
        elsewhere: Vec<ClusterName>,
    },
    /// The cluster that a new object names does not serve the resource: 400.
    NotServing {
        /// Resource of the new object.
        resource: GroupVersionResource,
        /// Cluster that the new object names.
        named: String,
        /// Clusters that serve the resource.
        clusters: Arc<[ClusterName]>,
    },
}

impl ClusterRefusal {
    /// Refuses a request because the rights of the caller in some clusters are unknown.
    pub fn rights_unknown(resource: GroupVersionResource, name: String) -> Self {
        Self::RightsUnknown { resource, name, clusters: Vec::new(), is_lasting: false }
    }

    /// Refuses a request because Tributary has not read the objects of these clusters yet. The refusal contains no
    /// reasons for the delay.
    pub fn unread(resource: &GroupVersionResource, clusters: Vec<ClusterName>, retry_after: Option<u32>) -> Self {
        Self::Unread { resource: resource.clone(), clusters, reasons: Vec::new(), retry_after }
    }

    pub(super) fn status(&self, door: Door) -> Status {
        match self {
            Self::NotConfigured(name) => match door.foreign_system() {
                Some(system) => system.unknown_cluster(name.as_str()),
                None => Status::cluster_not_found(name.as_str()),
            },
            Self::NotInSystem { system, name } => system.unknown_cluster(name),
            Self::NotFound { resource, name, .. } => Status::not_found(resource, name),
            Self::Unknown { resource, name, unknown, is_lasting } => {
                owner_unknown(resource, name, unknown, *is_lasting)
            }
            Self::Unsure { resource, name, ground, known, unknown } => {
                unsure(door, (resource, name), *ground, known, unknown)
            }
            Self::ReleaseUnsure { resource, name, release, unknown } => {
                release_unsure(door, (resource, name), release, unknown)
            }
            Self::ReleaseForbidden { resource, name, release, clusters } => {
                release_forbidden(door, (resource, name), release, clusters)
            }
            Self::UidInSeveral { resource, name, clusters } => uid_in_several(door, resource, name, clusters),
            Self::Unread { resource, clusters, reasons, retry_after } => {
                unread(resource, clusters, reasons, *retry_after)
            }
            Self::RightsUnknown { resource, name, clusters, is_lasting } => {
                rights_unknown(resource, name, clusters, *is_lasting)
            }
            Self::NameInSeveral { resource, name, clusters, path } => ambiguous(door, (resource, name), clusters, path),
            Self::Elsewhere { resource, name, named, owner } => elsewhere(door, (resource, name), named, owner),
            Self::OfOtherContext { resource, name, named, is_configured, cluster } => {
                of_other_context(door, (resource, name), (named, *is_configured), cluster)
            }
            Self::DifferentUsers { resource, users } => different_users(door, resource, users),
            Self::NotNamed { resource, name, clusters } => not_named(door, resource, name, clusters),
            Self::ReleaseInSeveral { resource, name, release, clusters } => {
                release_in_several(door, (resource, name), release, clusters)
            }
            Self::NoNamespace { resource, namespace, cluster, ground, elsewhere } => {
                no_namespace(door, (resource, namespace), (cluster, *ground), elsewhere)
            }
            Self::NotServing { resource, named, clusters } => not_serving(resource, named, clusters),
        }
    }
}

fn owner_unknown(resource: &GroupVersionResource, name: &str, unknown: &[ClusterFailure], is_lasting: bool) -> Status {
    let what = match name {
        "" => format!("the resource {}", resource.group_resource()),
        name => object(resource, name),
    };
    let message = format!(
        "{what} was not found in the clusters that answer; these clusters cannot be queried now: {}",
        listed(unknown),
    );
    let status = unavailable(message, resource, name);
    if is_lasting { status } else { status.with_retry_after(1) }
}

fn unread(
    resource: &GroupVersionResource,
    clusters: &[ClusterName],
    reasons: &[(ClusterName, Arc<str>)],
    retry_after: Option<u32>,
) -> Status {
    let of = resource.group_resource();
    let mut message = format!("{of} of these clusters have not been read yet: {}", listed(clusters));
    for (cluster, reason) in reasons {
        message.push_str(&format!("; {cluster}: {reason}"));
    }
    match retry_after {
        Some(seconds) => Status::too_many_requests(message, seconds),
        None => Status::new(429, StatusReason::TooManyRequests, message),
    }
}

/// Retry-After in seconds while the rights of a client are unknown.
const RIGHTS_RETRY_AFTER: u32 = 1;

fn rights_unknown(
    resource: &GroupVersionResource,
    name: &str,
    clusters: &[ClusterFailure],
    is_lasting: bool,
) -> Status {
    let what = object(resource, name);
    let mut message = match is_lasting {
        true => {
            format!("{what}: your rights in some clusters are unknown until an administrator removes the cause")
        }
        false => format!("{what}: your rights in some clusters are not known yet"),
    };
    match clusters {
        [] if is_lasting => {
            message.push_str("; an administrator sees the clusters and the remedies with tributary status")
        }
        [] => {}
        clusters => message.push_str(&format!(": {}", first(clusters, "; "))),
    }
    let status = match name {
        "" => Status::new(429, StatusReason::TooManyRequests, message),
        name => unavailable(message, resource, name),
    };
    if is_lasting { status } else { status.with_retry_after(RIGHTS_RETRY_AFTER) }
}

/// Makes the 409 for a conflict that only a decision of the client can solve. The message begins with the suggested
/// command, because terminal UIs cut the end. The reason is `BadRequest`, because kubectl repeats a request after the
/// reason `Conflict`, and after any 409 with an unknown reason (`IsConflict` in apimachinery's errors.go).
fn conflict_with_choices(
    message: String,
    resource: &GroupVersionResource,
    name: &str,
    clusters: &[ClusterName],
) -> Status {
    let cause = |cluster: &ClusterName| of_annotation("FieldValueDuplicate", cluster.to_string());
    let causes = clusters.iter().map(cause).collect();
    let details = StatusDetails { causes, ..StatusDetails::for_object(resource, name) };
    Status::new(409, StatusReason::BadRequest, message).with_details(details)
}

/// Makes a StatusCause for the annotation `tributary.dev/cluster`.
fn of_annotation(reason: &str, message: String) -> StatusCause {
    StatusCause { reason: reason.to_owned(), message, field: format!("metadata.annotations[{CLUSTER_ANNOTATION}]") }
}

fn unsure(
    door: Door,
    (resource, name): (&GroupVersionResource, &str),
    ground: Ground,
    known: &ClusterName,
    unknown: &[ClusterFailure],
) -> Status {
    let what = object(resource, name);
    let to_create = format!("to create {what} in {known}");
    let (aim, uncertainty) = match ground {
        Ground::Kind => (to_create, format!("may serve {}, too", resource.group_resource())),
        Ground::Namespace => (to_create, "may have its namespace, too".to_owned()),
        // Records in Secrets would have decided the cluster. So the records of this release are ConfigMaps.
        Ground::Release => (
            format!("if you mean the Helm release in {known}, whose records are ConfigMaps, which anyone may make"),
            "may have the records in Secrets".to_owned(),
        ),
        Ground::Node => (to_create, "may have the Pod or its node, too".to_owned()),
        _ => (format!("if you mean the object in {known}"), format!("may have {what}, too")),
    };
    let (clusters, why) = name_unreachable(unknown);
    let message = format!("{} {aim}: {clusters} {uncertainty}, and cannot be queried ({why})", typed(door, known));
    unavailable(message, resource, name)
}

fn release_unsure(
    door: Door,
    (resource, name): (&GroupVersionResource, &str),
    release: &ReleaseName,
    unknown: &[ClusterFailure],
) -> Status {
    let (clusters, why) = name_unreachable(unknown);
    let message = format!(
        "{}: {} may be in {clusters}, which cannot be queried ({why}); try again when {} can be queried, or set the \
         annotation {CLUSTER_ANNOTATION}",
        typed_for_helm(door, ANY_CLUSTER),
        released(release),
        if unknown.len() > 1 { "they" } else { "it" },
    );
    unavailable(message, resource, name)
}

fn unavailable(message: String, resource: &GroupVersionResource, name: &str) -> Status {
    Status::new(503, StatusReason::ServiceUnavailable, message).with_details(StatusDetails::for_object(resource, name))
}

/// Returns the names of unreachable clusters and the reasons: `b` and `for 12 s: refused`, or `b, c` and `b for 12 s:
/// …, c for 3 s: …`.
fn name_unreachable(unknown: &[ClusterFailure]) -> (String, String) {
    let clusters: Vec<_> = unknown.iter().map(|failure| &failure.cluster).collect();
    let why = match unknown {
        [only] => only.why(),
        several => listed(&several.iter().map(ClusterFailure::cluster_and_cause).collect::<Vec<_>>()),
    };
    (listed(&clusters), why)
}

/// Makes the Status for a choice between several clusters. The message has a command for each cluster, an alternative
/// to the commands (`or`), and the description of the duplicate (`what`).
fn in_several(
    (resource, name): (&GroupVersionResource, &str),
    clusters: &[ClusterName],
    typed: impl Fn(&ClusterName) -> String,
    (or, what): (&str, &str),
) -> Status {
    let commands: Vec<_> = clusters.iter().map(typed).collect();
    let message = format!("{}{or}: {what} in more than one cluster: {}", first(&commands, " or "), listed(clusters));
    conflict_with_choices(message, resource, name, clusters)
}

fn ambiguous(
    door: Door,
    (resource, name): (&GroupVersionResource, &str),
    clusters: &[ClusterName],
    path: &str,
) -> Status {
    let typed = |cluster: &ClusterName| typed_for(door, resource, name, cluster);
    let status = in_several((resource, name), clusters, typed, ("", &format!("{} exists", object(resource, name))));
    let base = door.cluster_path(ANY_CLUSTER);
    Status { message: format!("{}; the path of each is {base}{path}", status.message), ..status }
}

/// Returns the suggested command for an object: `helm` for a release record, `kubectl` for other objects.
fn typed_for(door: Door, resource: &GroupVersionResource, name: &str, cluster: &ClusterName) -> String {
    if is_record(resource, name.as_bytes()) { typed_for_helm(door, cluster) } else { typed(door, cluster) }
}

fn typed_for_helm(door: Door, cluster: impl Display) -> String {
    format!("{} …", door.helm(cluster))
}

fn elsewhere(door: Door, (resource, name): (&GroupVersionResource, &str), named: &str, owner: &ClusterName) -> Status {
    let other = ClusterName::new(named).map_or_else(
        |_| String::new(),
        |named| format!(", or {} for a different object with this name", typed(door, &named)),
    );
    let message = format!(
        "{} for the existing object{other}: {} is in cluster {}, and the annotation {CLUSTER_ANNOTATION} names {}; an \
         object cannot move to a different cluster",
        typed(door, owner),
        object(resource, name),
        go_quote(owner.as_str()),
        go_quote(named),
    );
    conflict_with_choices(message, resource, name, std::slice::from_ref(owner))
}

fn of_other_context(
    door: Door,
    (resource, name): (&GroupVersionResource, &str),
    (named, is_configured): (&str, bool),
    cluster: &ClusterName,
) -> Status {
    let named_cluster = ClusterName::new(named).ok().filter(|_| is_configured);
    let typed = named_cluster.map(|named| format!("{}, or ", typed(door, &named)));
    let message = format!(
        "{}remove the annotation: {} has {CLUSTER_ANNOTATION}: {}, and this is the path of cluster {}",
        typed.unwrap_or_default(),
        object(resource, name),
        go_quote(named),
        go_quote(cluster.as_str()),
    );
    let expected = format!("Invalid value: {}: must be {}", go_quote(named), go_quote(cluster.as_str()));
    let causes = vec![of_annotation("FieldValueInvalid", expected)];
    let details = StatusDetails { causes, ..StatusDetails::for_object(resource, name) };
    Status::new(409, StatusReason::BadRequest, message).with_details(details)
}

fn different_users(door: Door, resource: &GroupVersionResource, users: &[(ClusterName, String)]) -> Status {
    let texts: Vec<_> = users.iter().map(|(cluster, user)| format!("{cluster}: {user}")).collect();
    let texts = texts.join(", ");
    let cause = format!(
        "the clusters authenticate you as different users ({texts}); send the request to one cluster ({})",
        one_cluster(door)
    );
    Status::conflict(resource, "", &cause)
}

fn not_named(door: Door, resource: &GroupVersionResource, name: &str, clusters: &[ClusterName]) -> Status {
    let typed_here = |cluster| typed_for(door, resource, name, cluster);
    let first = clusters.first().map_or_else(|| typed(door, ANY_CLUSTER), typed_here);
    let others = clusters.get(1..).filter(|others| !others.is_empty());
    let other = others.map(|others| format!(" (or {})", listed(others))).unwrap_or_default();
    Status::bad_request(format!(
        "{first}{other}: no rule selects the cluster in which to create {}; or set the annotation \
         {CLUSTER_ANNOTATION}, or use the path {}, or set a default: --create-in, or placement of a ResourceRegistry",
        object(resource, name),
        door.cluster_path(ANY_CLUSTER),
    ))
}

/// Describes a release by namespace and name, or all releases of a namespace if the name is unknown.
fn released(release: &ReleaseName) -> String {
    let of = format!(" of namespace {}", go_quote(&release.namespace));
    match &release.name {
        Some(name) => format!("the release {}{of}", go_quote(name)),
        None => format!("the Helm hook lacks the label app.kubernetes.io/instance with its release, and releases{of}"),
    }
}

/// Makes the 403 for an object of a Helm release whose records the client may not read. A client without Helm may apply
/// the objects of a release without the right to read Secrets.
fn release_forbidden(
    door: Door,
    (resource, name): (&GroupVersionResource, &str),
    release: &ReleaseName,
    clusters: &[ClusterName],
) -> Status {
    let release = match &release.name {
        Some(_) => released(release),
        None => format!("one of namespace {}", go_quote(&release.namespace)),
    };
    let message = format!(
        "{}, or set the annotation {CLUSTER_ANNOTATION}: {} belongs to a Helm release ({release}), and you may not \
         list the records of the release in any cluster, so the cluster of the release is unknown: {}",
        typed(door, ANY_CLUSTER),
        object(resource, name),
        listed(clusters),
    );
    Status::denied(message).with_details(StatusDetails::for_object(resource, name))
}

fn uid_in_several(door: Door, resource: &GroupVersionResource, name: &str, clusters: &[ClusterName]) -> Status {
    let or = format!(", or set the annotation {CLUSTER_ANNOTATION}");
    let what = format!("{} has the same uid", object(resource, name));
    in_several((resource, name), clusters, |cluster| typed(door, cluster), (&or, &what))
}

fn release_in_several(
    door: Door,
    of: (&GroupVersionResource, &str),
    release: &ReleaseName,
    clusters: &[ClusterName],
) -> Status {
    let verb = if release.name.is_some() { "is" } else { "are" };
    let typed = |cluster: &ClusterName| typed_for_helm(door, cluster);
    in_several(of, clusters, typed, ("", &format!("{} {verb}", released(release))))
}

fn no_namespace(
    door: Door,
    (resource, namespace): (&GroupVersionResource, &str),
    (cluster, ground): (&ClusterName, Ground),
    elsewhere: &[ClusterName],
) -> Status {
    let namespaces = GroupVersionResource::new("", "v1", "namespaces");
    let status = Status::not_found(&namespaces, namespace);
    let (advice, others) = match elsewhere {
        [] => {
            let command = format!("{} create namespace {namespace}: ", door.kubectl(cluster));
            let others =
                format!("no other cluster that serves {} is known to have the namespace", resource.group_resource());
            (if can_be_typed(namespace) { command } else { String::new() }, others)
        }
        [first, ..] => (format!("{}: ", typed(door, first)), format!("the namespace is in {}", listed(elsewhere))),
    };
    let message = format!("{advice}{} in {cluster}, which was chosen because {ground}; {others}", status.message);
    Status { message, ..status }
}

fn not_serving(resource: &GroupVersionResource, named: &str, clusters: &[ClusterName]) -> Status {
    let names: Vec<_> = clusters.iter().map(ClusterName::as_str).collect();
    Status::bad_request(format!(
        "{resource} cannot be created in cluster {named:?}: the clusters that serve them are {}",
        names.join(", ")
    ))
}
