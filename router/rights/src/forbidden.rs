//! 403 responses because of the rights of a caller, with kube-apiserver's texts.

use tributary_answers::refusal::{ForbiddenImpersonation, ForbiddenPath, ForbiddenRequest, Refusal, RequestRefusal};
use tributary_apimachinery::{ClusterName, GroupVersionResource, RequestInfo};
use tributary_authentication::NotSent;
use tributary_authorization::{Attributes, FleetRights, ResourceAttributes};

use super::actor::UserSelector;
use super::allowed_facts::DecisionMethod;
use super::caller_rights::CallerRights;
use super::cluster_visibility::allows_in_mode;
use super::impersonation::{ImpersonationFilter, ImpersonationRefused, refused};
use super::read_target::ReadTarget;

/// Maximum number of missing roles that the text of a refusal names. An administrator of a namespace may create any
/// number of bindings to missing roles.
const MISSING_MAX: usize = 10;

fn forbidden_impersonation(user: String, requested: &ResourceAttributes<'_>, reason: String) -> ForbiddenImpersonation {
    let ResourceAttributes { verb, group, version, resource, subresource, namespace, name } = *requested;
    ForbiddenImpersonation::Resource(ForbiddenRequest {
        user,
        verb: verb.to_owned().into(),
        resource: GroupVersionResource::new(group, version, resource),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        clusters: Vec::new(),
        reason,
    })
}

impl CallerRights {
    /// Returns the refusal of a request that a cluster denies. `None` if the cluster allows the request, or if its
    /// decision is unknown.
    pub fn refused_by(&self, cluster: &ClusterName, info: &RequestInfo) -> Option<Refusal> {
        let requested = Attributes::from_request(info);
        if self.grants(cluster, &requested, &requested) != Some(false) {
            return None;
        }
        match (requested, info.resource()) {
            (Attributes::Resource(requested), Some(request)) => {
                Some(self.forbids_asked([cluster], &requested, &request.resource))
            }
            (Attributes::NonResource { verb: "get", path }, _) => Some(self.forbids_path([cluster], path.into_owned())),
            _ => None,
        }
    }

    /// Returns 403 with kube-apiserver's text if the caller sees no cluster, because no cluster may see the user, or no
    /// cluster allows the impersonation for this request. In all other cases, returns `None`.
    pub fn nobody<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        request: &Attributes<'_>,
    ) -> Option<Refusal> {
        let fleet = self.mirror.compiled();
        let clusters: Vec<_> = clusters.into_iter().collect();
        let is_there = |cluster: &&ClusterName| self.if_visible(&fleet, cluster, request, || Some(true)) != Some(false);
        if clusters.iter().any(is_there) {
            return None;
        }
        let sent = clusters.iter().map(|cluster| self.actor.reaches(cluster));
        match sent.reduce(|first, other| if first.is_ok() { first } else { other }) {
            Some(Err(why)) => Some(RequestRefusal::NotSent(why).into()),
            _ if self.actor.impersonated_user().is_some() => {
                Some(self.impersonation_forbidden(&fleet, clusters, request))
            }
            _ => None,
        }
    }

    /// Returns 403 because none of the clusters allows the impersonation, or none allows the sender to make the request
    /// in the mode of constrained impersonation.
    pub(super) fn impersonation_forbidden<'a>(
        &self,
        fleet: &FleetRights,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        request: &Attributes<'_>,
    ) -> Refusal {
        let Some(impersonated) = self.actor.impersonated_user() else {
            return RequestRefusal::NotSent(NotSent::NoName).into();
        };
        let reached: Vec<_> = clusters.into_iter().filter(|cluster| self.actor.reaches(cluster).is_ok()).collect();
        let user = self.decisions(fleet, UserSelector::User);
        let of_cluster = |cluster: &&ClusterName| {
            let filter = self.mirror.impersonation_filter(cluster);
            let does = |mode| allows_in_mode(&user, mode, cluster, request).unwrap_or(true);
            refused(impersonated, filter, does, |requested| user.allows(cluster, requested).unwrap_or(true))
        };
        // Uses the refusal of the cluster that allowed the most steps of the impersonation. Without any cluster, uses
        // the refusal of legacy impersonation.
        let by_cluster = reached.iter().filter_map(of_cluster).max_by_key(|(target, _)| *target);
        let nothing = || refused(impersonated, ImpersonationFilter::Legacy, |_| false, |_| false);
        let Some((_, refused)) = by_cluster.or_else(nothing) else {
            return RequestRefusal::NotSent(NotSent::NoName).into();
        };
        let user = self.actor.name(UserSelector::User).to_owned();
        let forbidden = match refused {
            ImpersonationRefused::ToBe(own, why) => {
                let requested = own.attributes();
                let reason = match why.is_empty() {
                    true => self.missing_roles(fleet, reached, UserSelector::User, requested.namespace),
                    false => why,
                };
                forbidden_impersonation(user, &requested, reason)
            }
            ImpersonationRefused::ToDo(mode) => {
                let verb = mode.on(request.verb());
                match request.with_verb(&verb) {
                    Attributes::Resource(requested) => {
                        let reason = self.missing_roles(fleet, reached, UserSelector::User, requested.namespace);
                        forbidden_impersonation(user, &requested, reason)
                    }
                    Attributes::NonResource { verb, path } => {
                        let reason = self.missing_roles(fleet, reached, UserSelector::User, "");
                        let (verb, path) = (verb.to_owned().into(), path.into_owned());
                        ForbiddenImpersonation::Path(ForbiddenPath { user, verb, path, reason })
                    }
                }
            }
        };
        RequestRefusal::Acting(Box::new(forbidden)).into()
    }

    /// Returns 403 because these clusters deny the request, with kube-apiserver's text.
    pub fn forbidden<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        verb: &'static str,
        target: &ReadTarget,
    ) -> Refusal {
        RequestRefusal::Forbidden(Box::new(self.forbidden_request(clusters, verb, target))).into()
    }

    pub(super) fn forbidden_request<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        verb: &'static str,
        target: &ReadTarget,
    ) -> ForbiddenRequest {
        let ReadTarget { resource, namespace, name, .. } = target.clone();
        let request = ForbiddenRequest {
            user: String::new(),
            verb: verb.into(),
            resource,
            subresource: String::new(),
            namespace,
            name,
            clusters: Vec::new(),
            reason: String::new(),
        };
        self.explained(clusters, request)
    }

    /// Returns 403 because none of these clusters allows the request for this resource.
    pub fn forbids_asked<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        requested: &ResourceAttributes<'_>,
        resource: &GroupVersionResource,
    ) -> Refusal {
        let request = ForbiddenRequest {
            user: String::new(),
            verb: requested.verb.to_owned().into(),
            resource: resource.clone(),
            subresource: requested.subresource.to_owned(),
            namespace: requested.namespace.to_owned(),
            name: requested.name.to_owned(),
            clusters: Vec::new(),
            reason: String::new(),
        };
        self.forbids(clusters, request)
    }

    /// Returns 403 because these clusters deny a `get` of a path that belongs to no resource.
    pub(super) fn forbids_path<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        path: String,
    ) -> Refusal {
        let user = self.acting_name().to_owned();
        let reason = self.reason_in(clusters, &Attributes::NonResource { verb: "get", path: path.as_str().into() });
        RequestRefusal::ForbiddenPath(ForbiddenPath { user, verb: "get".into(), path, reason }).into()
    }

    /// Returns 403 because none of these clusters allows the request. The text contains the user and the reason.
    pub fn forbids<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        request: ForbiddenRequest,
    ) -> Refusal {
        RequestRefusal::Forbidden(Box::new(self.explained(clusters, request))).into()
    }

    /// Adds the user and the reason of the denial to a denied request.
    fn explained<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        request: ForbiddenRequest,
    ) -> ForbiddenRequest {
        let requested = ResourceAttributes {
            verb: &request.verb,
            group: &request.resource.group,
            version: &request.resource.version,
            resource: &request.resource.resource,
            subresource: &request.subresource,
            namespace: &request.namespace,
            name: &request.name,
        };
        let reason = self.reason_in(clusters, &Attributes::Resource(requested));
        ForbiddenRequest { user: self.acting_name().to_owned(), reason, ..request }
    }

    /// Returns the reason for the denial. The reason names roles and bindings only of the `clusters` that the caller
    /// sees.
    fn reason_in<'a>(&self, clusters: impl IntoIterator<Item = &'a ClusterName>, request: &Attributes<'_>) -> String {
        let fleet = self.mirror.compiled();
        let is_there = |cluster: &&ClusterName| self.if_visible(&fleet, cluster, request, || Some(true)) == Some(true);
        let there = clusters.into_iter().filter(is_there);
        let namespace = match request {
            Attributes::Resource(requested) => requested.namespace,
            Attributes::NonResource { .. } => "",
        };
        self.missing_roles(&fleet, there, UserSelector::Acting, namespace)
    }

    /// Returns a text about missing roles to which bindings of the user refer, in clusters that decide by roles.
    /// kube-apiserver writes the same text (`RBACAuthorizer.Authorize`). The text names at most [`MISSING_MAX`] roles.
    fn missing_roles<'a>(
        &self,
        fleet: &FleetRights,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        user_selector: UserSelector,
        namespace: &str,
    ) -> String {
        let by_roles =
            clusters.into_iter().filter(|cluster| self.mirror.decision_method(cluster) == Some(DecisionMethod::Rules));
        let mut missing: Vec<String> = Vec::new();
        for cluster in by_roles {
            if missing.len() == MISSING_MAX {
                break;
            }
            let user = self.actor.rbac_user_in(cluster, user_selector);
            for role in fleet.roles_not_found(cluster, user, namespace, MISSING_MAX) {
                if missing.len() < MISSING_MAX && !missing.contains(&role) {
                    missing.push(role);
                }
            }
        }
        match &*missing {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            several => format!("RBAC: [{}]", several.join(", ")),
        }
    }
}
