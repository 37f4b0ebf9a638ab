//! 403 by the rights of a caller, in kube-apiserver's words.

use tributary_answers::refusal::{ForbiddenActing, ForbiddenPath, ForbiddenRequest, Refusal, RequestRefusal};
use tributary_apimachinery::{ClusterName, GroupVersionResource, RequestInfo};
use tributary_authentication::NotSent;
use tributary_authorization::{Attributes, FleetRights, ResourceAttributes};

use super::actor::Whom;
use super::basis::Decides;
use super::caller_rights::CallerRights;
use super::existence::does_in;
use super::impersonation::{ImpersonationFilter, ImpersonationRefused, refused};
use super::read_place::ReadPlace;

/// How many roles that are not there a refusal names. A namespace's administrator may bind any number.
const MISSING_MAX: usize = 10;

fn forbidden_acting(user: String, asked: &ResourceAttributes<'_>, reason: String) -> ForbiddenActing {
    let ResourceAttributes { verb, group, version, resource, subresource, namespace, name } = *asked;
    ForbiddenActing::Resource(ForbiddenRequest {
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
    /// What a cluster would say to the caller itself, where it does not let them do what is asked; `None` where it
    /// does, or that is not known.
    pub fn refused_by(&self, cluster: &ClusterName, info: &RequestInfo) -> Option<Refusal> {
        let asked = Attributes::from_request(info);
        if self.grants(cluster, &asked, &asked) != Some(false) {
            return None;
        }
        match (asked, info.resource()) {
            (Attributes::Resource(asked), Some(request)) => {
                Some(self.forbids_asked([cluster], &asked, &request.resource))
            }
            (Attributes::NonResource { verb: "get", path }, _) => Some(self.forbids_path([cluster], path.into_owned())),
            _ => None,
        }
    }

    /// 403 for somebody for whom no cluster is there, if that is why nothing is allowed: no member is told who acts, or
    /// none lets the user act as whom they ask to be for this request. In kube-apiserver's words.
    pub fn nobody<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        request: &Attributes<'_>,
    ) -> Option<Refusal> {
        let fleet = self.mirror.compiled();
        let clusters: Vec<_> = clusters.into_iter().collect();
        let is_there = |cluster: &&ClusterName| self.there_for(&fleet, cluster, request, || Some(true)) != Some(false);
        if clusters.iter().any(is_there) {
            return None;
        }
        let sent = clusters.iter().map(|cluster| self.actor.reaches(cluster));
        match sent.reduce(|first, other| if first.is_ok() { first } else { other }) {
            Some(Err(why)) => Some(RequestRefusal::NotSent(why).into()),
            _ if self.actor.impersonated_user().is_some() => Some(self.not_let(&fleet, clusters, request)),
            _ => None,
        }
    }

    /// 403: what none of these clusters lets the user act as, or do as that one.
    pub(super) fn not_let<'a>(
        &self,
        fleet: &FleetRights,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        request: &Attributes<'_>,
    ) -> Refusal {
        let Some(given) = self.actor.impersonated_user() else {
            return RequestRefusal::NotSent(NotSent::NoName).into();
        };
        let reached: Vec<_> = clusters.into_iter().filter(|cluster| self.actor.reaches(cluster).is_ok()).collect();
        let user = self.judged(fleet, Whom::User);
        let of_cluster = |cluster: &&ClusterName| {
            let filter = self.mirror.impersonation_filter(cluster);
            let does = |mode| does_in(&user, mode, cluster, request).unwrap_or(true);
            refused(given, filter, does, |asked| user.allows(cluster, asked).unwrap_or(true))
        };
        // What the most willing cluster says. Where nobody is asked it is as if one refused the first.
        let by_cluster = reached.iter().filter_map(of_cluster).max_by_key(|(place, _)| *place);
        let nothing = || refused(given, ImpersonationFilter::Legacy, |_| false, |_| false);
        let Some((_, refused)) = by_cluster.or_else(nothing) else {
            return RequestRefusal::NotSent(NotSent::NoName).into();
        };
        let user = self.actor.name(Whom::User).to_owned();
        let forbidden = match refused {
            ImpersonationRefused::ToBe(own, why) => {
                let asked = own.attributes();
                let reason = match why.is_empty() {
                    true => self.missing_roles(fleet, reached, Whom::User, asked.namespace),
                    false => why,
                };
                forbidden_acting(user, &asked, reason)
            }
            ImpersonationRefused::ToDo(mode) => {
                let verb = mode.on(request.verb());
                match request.with_verb(&verb) {
                    Attributes::Resource(asked) => {
                        let reason = self.missing_roles(fleet, reached, Whom::User, asked.namespace);
                        forbidden_acting(user, &asked, reason)
                    }
                    Attributes::NonResource { verb, path } => {
                        let reason = self.missing_roles(fleet, reached, Whom::User, "");
                        let (verb, path) = (verb.to_owned().into(), path.into_owned());
                        ForbiddenActing::Path(ForbiddenPath { user, verb, path, reason })
                    }
                }
            }
        };
        RequestRefusal::Acting(Box::new(forbidden)).into()
    }

    /// 403 of what is asked of these clusters, in kube-apiserver's words.
    pub fn forbidden<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        verb: &'static str,
        place: &ReadPlace,
    ) -> Refusal {
        RequestRefusal::Forbidden(Box::new(self.forbidden_request(clusters, verb, place))).into()
    }

    pub(super) fn forbidden_request<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        verb: &'static str,
        place: &ReadPlace,
    ) -> ForbiddenRequest {
        let ReadPlace { resource, namespace, name, .. } = place.clone();
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

    /// 403: none of these clusters lets the caller do what is asked of this resource.
    pub fn forbids_asked<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        asked: &ResourceAttributes<'_>,
        resource: &GroupVersionResource,
    ) -> Refusal {
        let request = ForbiddenRequest {
            user: String::new(),
            verb: asked.verb.to_owned().into(),
            resource: resource.clone(),
            subresource: asked.subresource.to_owned(),
            namespace: asked.namespace.to_owned(),
            name: asked.name.to_owned(),
            clusters: Vec::new(),
            reason: String::new(),
        };
        self.forbids(clusters, request)
    }

    /// 403: these clusters do not let the caller see what is at this path, which is no resource.
    pub(super) fn forbids_path<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        path: String,
    ) -> Refusal {
        let user = self.acting_name().to_owned();
        let reason = self.reason_in(clusters, &Attributes::NonResource { verb: "get", path: path.as_str().into() });
        RequestRefusal::ForbiddenPath(ForbiddenPath { user, verb: "get".into(), path, reason }).into()
    }

    /// 403: none of these clusters that is there for the caller allows it. The user and the reason are filled in here.
    pub fn forbids<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        request: ForbiddenRequest,
    ) -> Refusal {
        RequestRefusal::Forbidden(Box::new(self.explained(clusters, request))).into()
    }

    /// A request that these clusters do not allow, with who asks and why it is so.
    fn explained<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        request: ForbiddenRequest,
    ) -> ForbiddenRequest {
        let asked = ResourceAttributes {
            verb: &request.verb,
            group: &request.resource.group,
            version: &request.resource.version,
            resource: &request.resource.resource,
            subresource: &request.subresource,
            namespace: &request.namespace,
            name: &request.name,
        };
        let reason = self.reason_in(clusters, &Attributes::Resource(asked));
        ForbiddenRequest { user: self.acting_name().to_owned(), reason, ..request }
    }

    /// What those of these clusters that are there for a request of the caller say of its refusal, beyond that it is
    /// one. They are those that are asked: what the bindings of another one name is not told.
    fn reason_in<'a>(&self, clusters: impl IntoIterator<Item = &'a ClusterName>, request: &Attributes<'_>) -> String {
        let fleet = self.mirror.compiled();
        let is_there = |cluster: &&ClusterName| self.there_for(&fleet, cluster, request, || Some(true)) == Some(true);
        let there = clusters.into_iter().filter(is_there);
        let namespace = match request {
            Attributes::Resource(asked) => asked.namespace,
            Attributes::NonResource { .. } => "",
        };
        self.missing_roles(&fleet, there, Whom::Acting, namespace)
    }

    /// Which roles are not there that bindings of one of the two name in clusters whose roles decide: each says so to
    /// that one itself, in these words (`RBACAuthorizer.Authorize`). It is told once of all of them, and of no more
    /// than [`MISSING_MAX`] roles.
    fn missing_roles<'a>(
        &self,
        fleet: &FleetRights,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        whom: Whom,
        namespace: &str,
    ) -> String {
        let by_roles = clusters.into_iter().filter(|cluster| self.mirror.decides(cluster) == Some(Decides::Rules));
        let mut missing: Vec<String> = Vec::new();
        for cluster in by_roles {
            if missing.len() == MISSING_MAX {
                break;
            }
            let user = self.actor.judged_by(cluster, whom);
            for said in fleet.roles_not_found(cluster, user, namespace, MISSING_MAX) {
                if missing.len() < MISSING_MAX && !missing.contains(&said) {
                    missing.push(said);
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
