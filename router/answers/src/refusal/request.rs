//! Refusals because of the content of a request.

use std::borrow::Cow;

use tributary_apimachinery::duration::InvalidDuration;
use tributary_apimachinery::object::CLUSTER_ANNOTATION;
use tributary_apimachinery::rewrite::Format;
use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{ClusterName, Door, FieldError, GroupVersionResource, Status, StatusReason};
use tributary_authentication::NotSent;
use tributary_proxy::{InvalidClientImpersonation, InvalidImpersonation, RequestLoop};

use super::wording::{leaves_out, listed, one_cluster, typed};
use crate::negotiate::NotAcceptable;
use crate::termination_reason::TerminationReason;

/// Error in the content of a request.
#[derive(Clone, Debug)]
pub enum RequestRefusal {
    /// A parameter, a selector or the body is invalid. The Status has the message of kube-apiserver.
    Malformed(Status),
    /// The parameter `timeout` is not a duration: 400.
    Timeout(InvalidDuration),
    /// The impersonation headers are invalid: 400.
    Impersonation(InvalidClientImpersonation),
    /// The impersonation headers have too many values or bytes: 431.
    ImpersonatesTooMuch {
        /// Unit of `given` and `max`: `values` or `bytes`.
        what: &'static str,
        /// Number of values or bytes in the request.
        count: usize,
        /// Maximum number of values or bytes.
        max: usize,
    },
    /// The name or the namespace is too long: 400.
    TooLong {
        /// Part of the request that is too long.
        what: &'static str,
        /// Limit in bytes.
        max: usize,
    },
    /// The query has too many parameters: 400.
    TooManyParameters {
        /// Maximum of parameters.
        max: usize,
    },
    /// The request has already passed through this Tributary, because its configuration contains a cluster that leads
    /// back to it: 508.
    Loop(RequestLoop),
    /// The value of `includeObject` is unknown: 400.
    IncludeObject {
        /// Value in the request.
        value: String,
    },
    /// Tributary cannot forward the path as a URI: 400.
    Path,
    /// The request's body ended early: 400.
    BrokenOff {
        /// Cause, for people.
        cause: String,
    },
    /// The body has an unsupported media type: 415.
    BodyFormat,
    /// A review contains a resourceVersion, but kinds of reviews have none: 400.
    VersionInReview,
    /// A new object contains a resourceVersion: 500, as kube-apiserver answers.
    VersionOfNew,
    /// No requested media type is available: 406.
    NotAcceptable(NotAcceptable),
    /// A read of all clusters impersonates another user: 403.
    ReadForAnother {
        /// Resource of the read.
        resource: GroupVersionResource,
    },
    /// Tributary sends the user's name to no cluster, so no cluster can answer: 403.
    NotSent(NotSent),
    /// The request impersonates a user in a cluster for which the configuration chooses the user (a stored or mapped
    /// user): 403.
    ImpersonatesStored,
    /// The user's name contains characters that a header cannot contain: 403.
    NotExpressible(InvalidImpersonation),
    /// No cluster visible to the caller allows the request: 403.
    Forbidden(Box<ForbiddenRequest>),
    /// No cluster allows the user to impersonate the requested user, or to impersonate for this request: 403.
    Acting(Box<ForbiddenImpersonation>),
    /// The user may watch the resource in some clusters, but list the resource in none: 403. A watch shows only objects
    /// that the user may list.
    OnlyWatched {
        /// The list request that no cluster allows.
        request: Box<ForbiddenRequest>,
        /// Clusters that allow the watch.
        clusters: Vec<ClusterName>,
    },
    /// The user may not read a path that concerns all clusters: 403.
    ForbiddenPath(ForbiddenPath),
    /// Tributary ended the stream before its answer began: 403, or 401 if the credentials are no longer valid.
    Terminated(TerminationReason),
    /// The resource supports list, but not watch: 405.
    NotWatched {
        /// Resource of the watch.
        resource: GroupVersionResource,
        /// Remedy for the client.
        remedy: WatchRemedy,
    },
    /// The resourceVersions of a cluster are not numbers and have no order, so a watch cannot merge the changes of this
    /// cluster: 405.
    NotNumbered {
        /// The resource of the watch.
        resource: GroupVersionResource,
        /// Cluster with resourceVersions that are not numbers.
        cluster: ClusterName,
    },
}

/// Way to follow a resource that the merged view does not watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchRemedy {
    /// A ResourceRegistry caches the resource only in these namespaces. The client may watch one of the namespaces, or
    /// one cluster.
    Namespaces(Vec<String>),
    /// The configuration does not name the resource. An administrator may add the resource, or the client may watch one
    /// cluster.
    Register,
    /// No cluster supports watches of the resource. The client may list the resource.
    List,
}

impl WatchRemedy {
    fn text(&self, door: Door) -> String {
        let one_cluster = one_cluster(door);
        match self {
            Self::Namespaces(cached) => format!(
                "a ResourceRegistry caches the resource only in these namespaces (spec.namespaces): {}; watch one of \
                 them, or one cluster ({one_cluster})",
                cached.join(", ")
            ),
            Self::Register => {
                format!(
                    "add the resource to --resources or to a ResourceRegistry, or watch one cluster ({one_cluster})"
                )
            }
            Self::List => "the clusters do not support watches of the resource; list it instead".to_owned(),
        }
    }
}

/// Right that a user lacks for impersonation.
#[derive(Clone, Debug)]
pub enum ForbiddenImpersonation {
    /// The right to impersonate a user, or to request a resource as the user.
    Resource(ForbiddenRequest),
    /// The right to request a non-resource path as the user.
    Path(ForbiddenPath),
}

/// A forbidden request for a non-resource path.
#[derive(Clone, Debug)]
pub struct ForbiddenPath {
    /// Name of the user.
    pub user: String,
    /// Verb of the request, for example `get`.
    pub verb: Cow<'static, str>,
    /// Path of the request.
    pub path: String,
    /// Reason that the message adds to the standard text; empty if no reason is known.
    pub reason: String,
}

/// A forbidden request for a resource.
#[derive(Clone, Debug)]
pub struct ForbiddenRequest {
    /// Name of the user.
    pub user: String,
    /// Verb of the request: `list`, `get`, …
    pub verb: Cow<'static, str>,
    /// Resource of the request.
    pub resource: GroupVersionResource,
    /// Subresource; empty for the object itself.
    pub subresource: String,
    /// Namespace of the authorization check; empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// Name of the object in the authorization check; empty for all objects.
    pub name: String,
    /// Clusters that forbid the request while other clusters allow it. Empty if no cluster allows the request.
    pub clusters: Vec<ClusterName>,
    /// Reason that the message adds to the standard text; empty if no reason is known.
    pub reason: String,
}

impl RequestRefusal {
    /// Returns whether the refusal is about impersonation: no cluster allows the impersonation, or Tributary sends the
    /// user's name to no cluster.
    pub(super) fn is_about_impersonation(&self) -> bool {
        matches!(
            self,
            Self::Acting(_)
                | Self::NotSent(_)
                | Self::NotExpressible(_)
                | Self::ImpersonatesStored
                | Self::ImpersonatesTooMuch { .. }
        )
    }

    pub(super) fn status(&self, door: Door) -> Status {
        match self {
            Self::Malformed(status) => status.clone(),
            Self::Timeout(error) => {
                Status::bad_request(format!("invalid timeout specified in the request URL - {error}"))
            }
            Self::Impersonation(error) => Status::bad_request(error.to_string()),
            Self::ImpersonatesTooMuch { what, count, max } => Status::new(
                431,
                StatusReason::Unknown,
                format!("the Impersonate-* headers have {count} {what}; at most {max} are allowed"),
            ),
            Self::TooLong { what, max } => {
                Status::bad_request(format!("the {what} is too long: it may have {max} bytes at most"))
            }
            Self::TooManyParameters { max } => {
                Status::bad_request(format!("too many parameters: a query may have {max} at most"))
            }
            Self::Loop(error) => {
                let remedy = "remove that cluster from the configuration of one of the servers";
                Status::new(508, StatusReason::Unknown, format!("{error}; {remedy}"))
            }
            Self::IncludeObject { value } => include_object(value),
            Self::Path => Status::bad_request("the path cannot be forwarded"),
            Self::BrokenOff { cause } => Status::bad_request(format!("the request's body cannot be read: {cause}")),
            Self::BodyFormat => Status::unsupported_media_type(&Format::MEDIA_TYPES),
            Self::VersionInReview => Status::bad_request("an access review must not have a resourceVersion"),
            Self::VersionOfNew => version_of_new(),
            Self::NotAcceptable(none) => not_acceptable(none),
            Self::ReadForAnother { resource } => read_for_another(door, resource),
            Self::NotSent(why) => {
                Status::forbidden(None, "", &format!("your request cannot be sent to any cluster: {why}"))
            }
            Self::ImpersonatesStored => Status::forbidden(
                None,
                "",
                "the cluster sees a user that its ClusterSource chooses, so Tributary impersonates no other user; send \
                 the request through the hub's kube-apiserver, which does, or without Impersonate headers",
            ),
            Self::ForbiddenPath(it) => forbidden_path(it),
            Self::Terminated(TerminationReason::Expired | TerminationReason::Withdrawn) => Status::unauthorized(),
            Self::Terminated(why) => Status::forbidden(None, "", &why.to_string()),
            Self::NotExpressible(why) => {
                Status::forbidden(None, "", &format!("your request cannot be sent to any cluster: {why}"))
            }
            Self::Forbidden(request) => forbidden(request),
            Self::Acting(refused) => match &**refused {
                ForbiddenImpersonation::Resource(request) => forbidden(request),
                ForbiddenImpersonation::Path(request) => forbidden_path(request),
            },
            Self::OnlyWatched { request, clusters } => only_watched(door, request, clusters),
            Self::NotWatched { resource, remedy } => not_watched(resource, &remedy.text(door)),
            Self::NotNumbered { resource, cluster } => not_watched(resource, &not_numbered(door, cluster)),
        }
    }
}

fn include_object(value: &str) -> Status {
    let error = FieldError::invalid("includeObject", value, "must be 'Metadata', 'Object', 'None', or empty");
    Status::bad_request(format!("Unable to convert to Table as requested: {error}"))
}

/// Returns the same Status as kube-apiserver (`ErrResourceVersionSetOnCreate` in apiserver's `storage/errors.go`).
fn version_of_new() -> Status {
    Status::new(500, StatusReason::Unknown, "resourceVersion should not be set on objects to be created")
}

fn read_for_another(door: Door, resource: &GroupVersionResource) -> Status {
    let cause = format!(
        "reads of the merged view cannot impersonate a user; send the request to one cluster ({})",
        one_cluster(door)
    );
    Status::forbidden(Some(resource), "", &cause)
}

/// Makes the 403 with the same message as kube-apiserver (`forbiddenMessage` in apiserver's
/// `endpoints/handlers/responsewriters/errors.go`).
fn forbidden(request: &ForbiddenRequest) -> Status {
    let ForbiddenRequest { user, verb, resource, subresource, namespace, name, clusters, reason } = request;
    let place = match &**namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", go_quote(namespace)),
    };
    let of = match &**subresource {
        "" => resource.resource.to_string(),
        below => format!("{}/{below}", resource.resource),
    };
    let (user, of, group) = (go_quote(user), go_quote(&of), go_quote(&resource.group));
    let cause = format!("User {user} cannot {verb} resource {of} in API group {group} {place}");
    let mut cause = explained(&cause, reason);
    if !clusters.is_empty() {
        let clusters = listed(clusters);
        cause.push_str(&format!(
            " of {clusters}, so nothing was changed; the selector {CLUSTER_ANNOTATION}=<name> limits the request to \
             one cluster"
        ));
    }
    Status::forbidden(Some(resource), name, &cause)
}

fn forbidden_path(refused: &ForbiddenPath) -> Status {
    let ForbiddenPath { user, verb, path, reason } = refused;
    let cause = format!("User {} cannot {verb} path {}", go_quote(user), go_quote(path));
    Status::forbidden(None, "", &explained(&cause, reason))
}

/// Joins the cause and the reason of a 403. Characters that are special in HTML are escaped in the cause, but not in
/// the reason, as in kube-apiserver's `ForbiddenStatusError`.
fn explained(cause: &str, reason: &str) -> String {
    let cause = cause.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    match reason {
        "" => cause,
        reason => format!("{cause}: {reason}"),
    }
}

fn only_watched(door: Door, request: &ForbiddenRequest, clusters: &[ClusterName]) -> Status {
    let mut status = forbidden(request);
    status.message.push_str(&format!(
        ": a watch of all clusters needs the right to list; watch one cluster ({}) where you may watch but not list: \
         {}",
        one_cluster(door),
        listed(clusters)
    ));
    status
}

fn not_watched(resource: &GroupVersionResource, remedy: &str) -> Status {
    let mut status = Status::method_not_supported(resource, "watch");
    status.message.push_str(": ");
    status.message.push_str(remedy);
    status
}

fn not_numbered(door: Door, cluster: &ClusterName) -> String {
    format!(
        "{} watches the resource in the cluster; the resourceVersions of cluster {cluster} are not numbers, so its \
         changes cannot be merged with the changes of other clusters; {}",
        typed(door, cluster),
        leaves_out(cluster.as_str()),
    )
}

pub(super) fn not_acceptable(none: &NotAcceptable) -> Status {
    match none {
        NotAcceptable::Unknown { available } => Status::no_acceptable_representation(available),
        NotAcceptable::Unavailable { available } => Status::not_acceptable(available),
        NotAcceptable::Shape { is_list_shape, kind } => Status::not_acceptable_shape(*is_list_shape, kind),
    }
}
