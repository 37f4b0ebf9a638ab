//! Which cluster a request is for: which has the object, or is to have it.

use std::sync::Arc;

use tributary_apimachinery::object::CLUSTER_ANNOTATION;
use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{ClusterName, GroupVersionResource, Status, StatusCause, StatusDetails, StatusReason};

use super::Trouble;
use super::wording::{ONE_CLUSTER, can_be_typed, first, listed, object, typed};
use crate::ground::Ground;
use crate::helm_record::is_record;

/// A Helm release, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct ReleaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name; `None` where any of the namespace may be meant.
    pub name: Option<String>,
}

/// Why it is not known, or not clear, which cluster a request is for.
#[derive(Clone, Debug)]
pub enum ClusterRefusal {
    /// No cluster of this name is configured: 404.
    NotConfigured(ClusterName),
    /// No cluster has the object: 404.
    NotFound {
        /// The resource.
        resource: GroupVersionResource,
        /// The object.
        name: String,
        /// The texts of the Warnings that it is told with: of clusters that may have it by now, because what is held of
        /// them is old.
        warnings: Vec<String>,
    },
    /// None of the clusters that are known has the object, or the resource, and others cannot be asked: 503.
    /// Controllers read a 404 as deleted.
    Unknown {
        /// The resource.
        resource: GroupVersionResource,
        /// The object; empty for the resource itself.
        name: String,
        /// The clusters that cannot be asked.
        unknown: Vec<Trouble>,
        /// Whether one of them is known to be out of reach: coming again soon is in vain.
        is_out_of_reach: bool,
    },
    /// A write does not say itself which cluster it means, and what is known of the others is not enough: 503, and
    /// no advice to try again, for it says nothing else then.
    Unsure {
        /// The resource.
        resource: GroupVersionResource,
        /// The object; empty for one that has no name yet.
        name: String,
        /// What speaks for the cluster that is known.
        ground: Ground,
        /// That cluster.
        known: ClusterName,
        /// The clusters that cannot be asked.
        unknown: Vec<Trouble>,
    },
    /// A write belongs to a Helm release that none of the clusters that are known has: 503, as [`Self::Unsure`].
    ReleaseUnsure {
        /// The resource.
        resource: GroupVersionResource,
        /// The object; empty for one that has no name yet.
        name: String,
        /// The release.
        release: Box<ReleaseName>,
        /// The clusters that cannot be asked.
        unknown: Vec<Trouble>,
    },
    /// A write belongs to a Helm release of which no cluster shows the client anything, and only a default says where
    /// it would go: 403.
    ReleaseForbidden {
        /// The resource.
        resource: GroupVersionResource,
        /// The object; empty for one that has no name yet.
        name: String,
        /// The release.
        release: Box<ReleaseName>,
        /// The clusters that forbid the client to look.
        clusters: Vec<ClusterName>,
    },
    /// Several clusters have an object of the name and uid that is to tell which cluster is meant: 409. A uid is one
    /// object's; another has copied it.
    UidInSeveral {
        /// The resource of that object.
        resource: GroupVersionResource,
        /// That object.
        name: String,
        /// The clusters that have one.
        clusters: Vec<ClusterName>,
    },
    /// Clusters of a list or watch, or of a version, have not been read yet: 429.
    Unread {
        /// The resource.
        resource: GroupVersionResource,
        /// The clusters.
        clusters: Vec<ClusterName>,
        /// Why, as far as it is known.
        reasons: Vec<(ClusterName, Arc<str>)>,
        /// The Retry-After in seconds; `None` for a cause that lasts until somebody repairs it.
        retry_after: Option<u32>,
    },
    /// What the caller may do in some clusters is not known: 429 for what can be waited for, else 503.
    RightsUnknown {
        /// The resource.
        resource: GroupVersionResource,
        /// The object; empty for a collection.
        name: String,
        /// The clusters and why it is not known of them, for whoever may know of all. Nobody else is told them, for
        /// perhaps they may not know of them.
        told: Vec<Trouble>,
    },
    /// Several clusters have an object of the name: 409.
    Ambiguous {
        /// The resource.
        resource: GroupVersionResource,
        /// The object.
        name: String,
        /// The clusters that have one.
        clusters: Vec<ClusterName>,
        /// The request's Kubernetes path.
        path: String,
    },
    /// The annotation names another cluster than the one that has the object: 409.
    Elsewhere {
        /// The resource.
        resource: GroupVersionResource,
        /// The object.
        name: String,
        /// The cluster that the annotation names.
        named: String,
        /// The cluster that has the object.
        owner: ClusterName,
    },
    /// A body that is sent to one cluster's own path names another one: 409.
    OfOtherContext {
        /// The resource.
        resource: GroupVersionResource,
        /// The object; empty for one that has no name yet.
        name: String,
        /// The cluster that the annotation names.
        named: String,
        /// Whether there is such a cluster.
        is_configured: bool,
        /// The cluster whose path it is.
        cluster: ClusterName,
    },
    /// The clusters know the caller by different names: 409.
    DifferentUsers {
        /// The question.
        resource: GroupVersionResource,
        /// Who the caller is in each.
        users: Vec<(ClusterName, String)>,
    },
    /// A new object does not say in which cluster it is to be: 400.
    NotNamed {
        /// The resource.
        resource: GroupVersionResource,
        /// The object; empty for one that has no name yet.
        name: String,
        /// The clusters that serve it.
        clusters: Arc<[ClusterName]>,
    },
    /// A write belongs to a Helm release that several clusters have: 409, before anything of it is written.
    ReleaseInSeveral {
        /// The resource.
        resource: GroupVersionResource,
        /// The object; empty for one that has no name yet.
        name: String,
        /// The release.
        release: Box<ReleaseName>,
        /// The clusters that have it.
        clusters: Vec<ClusterName>,
    },
    /// The cluster that a new object means does not have its namespace: 404.
    NoNamespace {
        /// The resource of the new object.
        resource: GroupVersionResource,
        /// The namespace.
        namespace: Arc<str>,
        /// The cluster.
        cluster: ClusterName,
        /// Why it is meant.
        ground: Ground,
        /// The clusters that have the namespace and serve the resource.
        elsewhere: Vec<ClusterName>,
    },
    /// The cluster that a new object names does not serve the resource: 400.
    NotServing {
        /// The resource.
        resource: GroupVersionResource,
        /// The cluster that is named.
        named: String,
        /// The clusters that serve it.
        clusters: Arc<[ClusterName]>,
    },
}

impl ClusterRefusal {
    /// What the caller may do in some clusters is not known.
    pub fn rights_unknown(resource: GroupVersionResource, name: String) -> Self {
        Self::RightsUnknown { resource, name, told: Vec::new() }
    }

    /// Clusters that have not been read yet, of which nothing else is known.
    pub fn unread(resource: &GroupVersionResource, clusters: Vec<ClusterName>, retry_after: u32) -> Self {
        Self::Unread { resource: resource.clone(), clusters, reasons: Vec::new(), retry_after: Some(retry_after) }
    }

    pub(super) fn status(&self) -> Status {
        match self {
            Self::NotConfigured(name) => Status::cluster_not_found(name.as_str()),
            Self::NotFound { resource, name, .. } => Status::not_found(resource, name),
            Self::Unknown { resource, name, unknown, is_out_of_reach } => {
                owner_unknown(resource, name, unknown, *is_out_of_reach)
            }
            Self::Unsure { resource, name, ground, known, unknown } => unsure(resource, name, *ground, known, unknown),
            Self::ReleaseUnsure { resource, name, release, unknown } => {
                release_unsure((resource, name), release, unknown)
            }
            Self::ReleaseForbidden { resource, name, release, clusters } => {
                release_forbidden((resource, name), release, clusters)
            }
            Self::UidInSeveral { resource, name, clusters } => uid_in_several(resource, name, clusters),
            Self::Unread { resource, clusters, reasons, retry_after } => {
                unread(resource, clusters, reasons, *retry_after)
            }
            Self::RightsUnknown { resource, name, told } => rights_unknown(resource, name, told),
            Self::Ambiguous { resource, name, clusters, path } => ambiguous(resource, name, clusters, path),
            Self::Elsewhere { resource, name, named, owner } => elsewhere(resource, name, named, owner),
            Self::OfOtherContext { resource, name, named, is_configured, cluster } => {
                of_other_context(resource, name, (named, *is_configured), cluster)
            }
            Self::DifferentUsers { resource, users } => different_users(resource, users),
            Self::NotNamed { resource, name, clusters } => not_named(resource, name, clusters),
            Self::ReleaseInSeveral { resource, name, release, clusters } => {
                release_in_several((resource, name), release, clusters)
            }
            Self::NoNamespace { resource, namespace, cluster, ground, elsewhere } => {
                no_namespace(resource, namespace, (cluster, *ground), elsewhere)
            }
            Self::NotServing { resource, named, clusters } => not_serving(resource, named, clusters),
        }
    }
}

fn owner_unknown(resource: &GroupVersionResource, name: &str, unknown: &[Trouble], is_out_of_reach: bool) -> Status {
    let what = match name {
        "" => format!("the resource {}", resource.group_resource()),
        name => object(resource, name),
    };
    let message = format!(
        "{what} was not found in the clusters that answer; these clusters cannot be asked now: {}",
        listed(unknown),
    );
    let status = unavailable(message, resource, name);
    if is_out_of_reach { status } else { status.with_retry_after(1) }
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

/// How soon somebody is to come again whose rights are not known, in seconds.
const RIGHTS_RETRY_AFTER: u32 = 1;

fn rights_unknown(resource: &GroupVersionResource, name: &str, told: &[Trouble]) -> Status {
    let what = object(resource, name);
    let mut message = format!("{what}: what you may read in some clusters is not known yet");
    if !told.is_empty() {
        message.push_str(&format!(": {}", first(told, "; ")));
    }
    match name {
        "" => Status::too_many_requests(message, RIGHTS_RETRY_AFTER),
        name => unavailable(message, resource, name).with_retry_after(RIGHTS_RETRY_AFTER),
    }
}

/// A Status of a choice that only the client can make. It begins with what to type, because terminal UIs cut the end.
/// The reason is one that client-go knows and does not take for a conflict: kubectl tries again after a `Conflict`, and
/// after any 409 whose reason it does not know (`IsConflict` in apimachinery's errors.go).
fn choose(message: String, resource: &GroupVersionResource, name: &str, clusters: &[ClusterName]) -> Status {
    let cause = |cluster: &ClusterName| of_annotation("FieldValueDuplicate", cluster.to_string());
    let causes = clusters.iter().map(cause).collect();
    let details = StatusDetails { causes, ..StatusDetails::for_object(resource, name) };
    Status::new(409, StatusReason::BadRequest, message).with_details(details)
}

/// A cause that our annotation is, or that it would settle.
fn of_annotation(reason: &str, message: String) -> StatusCause {
    StatusCause { reason: reason.to_owned(), message, field: format!("metadata.annotations[{CLUSTER_ANNOTATION}]") }
}

fn unsure(
    resource: &GroupVersionResource,
    name: &str,
    ground: Ground,
    known: &ClusterName,
    unknown: &[Trouble],
) -> Status {
    let what = object(resource, name);
    let to_create = format!("to create {what} in {known}");
    let (aim, doubt) = match ground {
        Ground::Kind => (to_create, format!("may serve {}, too", resource.group_resource())),
        Ground::Namespace => (to_create, "may have its namespace, too".to_owned()),
        // Records in Secrets would have decided.
        Ground::Release => (
            format!("if you mean the Helm release in {known}, whose records are ConfigMaps, which anyone may make"),
            "may have the records in Secrets".to_owned(),
        ),
        Ground::Node => (to_create, "may have the Pod or its node, too".to_owned()),
        _ => (format!("if you mean the one in {known}"), format!("may have {what}, too")),
    };
    let (clusters, why) = cannot_be_asked(unknown);
    let message = format!("{} {aim}: {clusters} {doubt}, and cannot be asked ({why})", typed(known));
    unavailable(message, resource, name)
}

fn release_unsure(
    (resource, name): (&GroupVersionResource, &str),
    release: &ReleaseName,
    unknown: &[Trouble],
) -> Status {
    let (clusters, why) = cannot_be_asked(unknown);
    let message = format!(
        "helm --kube-context <name> …: {} may be in {clusters}, which cannot be asked ({why}); try again when {} can, \
         or set the annotation {CLUSTER_ANNOTATION}",
        released(release),
        if unknown.len() > 1 { "they" } else { "it" },
    );
    unavailable(message, resource, name)
}

fn unavailable(message: String, resource: &GroupVersionResource, name: &str) -> Status {
    Status::new(503, StatusReason::ServiceUnavailable, message).with_details(StatusDetails::for_object(resource, name))
}

/// Clusters, and why they cannot be asked: `b` and `for 12 s: refused`, or `b, c` and `b for 12 s: …, c for 3 s: …`.
fn cannot_be_asked(unknown: &[Trouble]) -> (String, String) {
    let clusters: Vec<_> = unknown.iter().map(|trouble| &trouble.cluster).collect();
    let why = match unknown {
        [only] => only.why(),
        several => listed(&several.iter().map(Trouble::which_and_why).collect::<Vec<_>>()),
    };
    (listed(&clusters), why)
}

/// A Status of what is in several clusters: what to type for each, `or` what else would do, and `what` is there.
fn in_several(
    (resource, name): (&GroupVersionResource, &str),
    clusters: &[ClusterName],
    typed: impl Fn(&ClusterName) -> String,
    (or, what): (&str, &str),
) -> Status {
    let commands: Vec<_> = clusters.iter().map(typed).collect();
    let message = format!("{}{or}: {what} in more than one cluster: {}", first(&commands, " or "), listed(clusters));
    choose(message, resource, name, clusters)
}

fn ambiguous(resource: &GroupVersionResource, name: &str, clusters: &[ClusterName], path: &str) -> Status {
    let typed = |cluster: &ClusterName| typed_for(resource, name, cluster);
    let status = in_several((resource, name), clusters, typed, ("", &format!("{} exists", object(resource, name))));
    Status { message: format!("{}; the path of each is /clusters/<name>{path}", status.message), ..status }
}

/// What to type for an object, by the tool whose it is.
fn typed_for(resource: &GroupVersionResource, name: &str, cluster: &ClusterName) -> String {
    if is_record(resource, name.as_bytes()) { typed_for_helm(cluster) } else { typed(cluster) }
}

fn typed_for_helm(cluster: &ClusterName) -> String {
    format!("helm --kube-context {cluster} …")
}

fn elsewhere(resource: &GroupVersionResource, name: &str, named: &str, owner: &ClusterName) -> Status {
    let other = ClusterName::new(named)
        .map_or_else(|_| String::new(), |named| format!(", or {} for another object of the name", typed(&named)));
    let message = format!(
        "{} for the object that exists{other}: {} is in cluster {}, and the annotation {CLUSTER_ANNOTATION} \
         names {}; an object cannot move",
        typed(owner),
        object(resource, name),
        go_quote(owner.as_str()),
        go_quote(named),
    );
    choose(message, resource, name, std::slice::from_ref(owner))
}

fn of_other_context(
    resource: &GroupVersionResource,
    name: &str,
    (named, is_configured): (&str, bool),
    cluster: &ClusterName,
) -> Status {
    let typed = ClusterName::new(named).ok().filter(|_| is_configured).map(|named| format!("{}, or ", typed(&named)));
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

fn different_users(resource: &GroupVersionResource, users: &[(ClusterName, String)]) -> Status {
    let told: Vec<_> = users.iter().map(|(cluster, user)| format!("{cluster}: {user}")).collect();
    let told = told.join(", ");
    let cause = format!("the clusters know you by different names ({told}); ask one of them ({ONE_CLUSTER})");
    Status::conflict(resource, "", &cause)
}

fn not_named(resource: &GroupVersionResource, name: &str, clusters: &[ClusterName]) -> Status {
    let typed = |cluster| typed_for(resource, name, cluster);
    let first = clusters.first().map_or_else(|| "kubectl --context <name> …".to_owned(), typed);
    let others = clusters.get(1..).filter(|others| !others.is_empty());
    let other = others.map(|others| format!(" (or {})", listed(others))).unwrap_or_default();
    Status::bad_request(format!(
        "{first}{other}: nothing says in which cluster to create {}; or set the annotation {CLUSTER_ANNOTATION}, or \
         use the path /clusters/<name>, or set a default: --create-in, or placement of a ResourceRegistry",
        object(resource, name),
    ))
}

/// A release, by its namespace and its name; where it has no name, those that may be meant.
fn released(release: &ReleaseName) -> String {
    let of = format!(" of namespace {}", go_quote(&release.namespace));
    match &release.name {
        Some(name) => format!("the release {}{of}", go_quote(name)),
        None => format!("the hook names no release by the label app.kubernetes.io/instance, and releases{of}"),
    }
}

/// Whoever applies an object of a release, and is not Helm, may have no right to read Secrets.
fn release_forbidden(
    (resource, name): (&GroupVersionResource, &str),
    release: &ReleaseName,
    clusters: &[ClusterName],
) -> Status {
    let release = match &release.name {
        Some(_) => released(release),
        None => format!("one of namespace {}", go_quote(&release.namespace)),
    };
    let message = format!(
        "kubectl --context <name> …, or set the annotation {CLUSTER_ANNOTATION}: {} belongs to a Helm release \
         ({release}), and no cluster lets you list its records, so that only a default says where it is: {}",
        object(resource, name),
        listed(clusters),
    );
    Status::denied(message).with_details(StatusDetails::for_object(resource, name))
}

fn uid_in_several(resource: &GroupVersionResource, name: &str, clusters: &[ClusterName]) -> Status {
    let or = format!(", or set the annotation {CLUSTER_ANNOTATION}");
    let what = format!("{} has one uid", object(resource, name));
    in_several((resource, name), clusters, typed, (&or, &what))
}

fn release_in_several(of: (&GroupVersionResource, &str), release: &ReleaseName, clusters: &[ClusterName]) -> Status {
    let verb = if release.name.is_some() { "is" } else { "are" };
    in_several(of, clusters, typed_for_helm, ("", &format!("{} {verb}", released(release))))
}

fn no_namespace(
    resource: &GroupVersionResource,
    namespace: &str,
    (cluster, ground): (&ClusterName, Ground),
    elsewhere: &[ClusterName],
) -> Status {
    let namespaces = GroupVersionResource::new("", "v1", "namespaces");
    let status = Status::not_found(&namespaces, namespace);
    let (advice, others) = match elsewhere {
        [] => {
            let command = format!("kubectl --context {cluster} create namespace {namespace}: ");
            let others = format!("no other cluster that serves {} is known to have it", resource.group_resource());
            (if can_be_typed(namespace) { command } else { String::new() }, others)
        }
        [first, ..] => (format!("{}: ", typed(first)), format!("it is in {}", listed(elsewhere))),
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
