//! 403 by the rights of a caller, in kube-apiserver's words.

use tributary_apimachinery::{ClusterName, GroupVersionResource, RequestInfo};
use tributary_authentication::NotSent;
use tributary_authorization::{Attributes, FleetRights, ResourceAttributes};

use super::actor::{Impersonated, Whom};
use super::caller_rights::CallerRights;
use super::existence::Existence;
use super::read_place::ReadPlace;
use crate::refusal::{ForbiddenPath, ForbiddenRequest, Refusal, RequestRefusal};

impl CallerRights {
    /// What a cluster would say to the caller itself, where it does not let them do what is asked; `None` where it
    /// does, or that is not known.
    pub(crate) fn refused_by(&self, cluster: &ClusterName, info: &RequestInfo) -> Option<Refusal> {
        let asked = Attributes::of(info);
        if self.grants(cluster, &asked) != Some(false) {
            return None;
        }
        match (asked, info.resource()) {
            (Attributes::Resource(asked), Some(request)) => Some(self.forbids_asked(&asked, &request.resource)),
            (Attributes::NonResource { verb: "get", path }, _) => Some(self.forbids_path(path.into_owned())),
            _ => None,
        }
    }

    /// 403 for somebody for whom no cluster is there, if that is why nothing is allowed: no member is told who acts, or
    /// none lets the user act as whom they ask to be. In kube-apiserver's words.
    pub(crate) fn nobody<'a>(&self, clusters: impl IntoIterator<Item = &'a ClusterName>) -> Option<Refusal> {
        let fleet = self.mirror.compiled();
        let clusters: Vec<_> = clusters.into_iter().collect();
        let is_there = |cluster: &&ClusterName| self.existence(&fleet, cluster) != Existence::Nowhere;
        if clusters.iter().any(is_there) {
            return None;
        }
        let sent = clusters.iter().map(|cluster| self.actor.reaches(cluster));
        match sent.reduce(|first, other| if first.is_ok() { first } else { other }) {
            Some(Err(why)) => Some(RequestRefusal::NotSent(why).into()),
            _ if self.actor.given().is_some() => Some(self.not_let(&fleet, clusters)),
            _ => None,
        }
    }

    /// 403: what none of these clusters lets the user act as.
    pub(super) fn not_let<'a>(
        &self,
        fleet: &FleetRights,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
    ) -> Refusal {
        let reached = clusters.into_iter().filter(|cluster| self.actor.reaches(cluster).is_ok());
        let user = self.judged(fleet, Whom::User);
        let refused =
            reached.filter_map(|cluster| self.actor.refused(|asked| user.allows(cluster, asked).unwrap_or(true)));
        // What the most willing cluster says. Where nobody is asked it is as if one refused the first.
        let refused = refused.max_by_key(|(place, _)| *place).or_else(|| self.actor.refused(|_| false));
        let Some((_, Impersonated { group, resource, subresource, namespace, name })) = refused else {
            return RequestRefusal::NotSent(NotSent::NoName).into();
        };
        RequestRefusal::Forbidden(Box::new(ForbiddenRequest {
            user: self.actor.name(Whom::User).to_owned(),
            verb: "impersonate".into(),
            resource: GroupVersionResource::new(group, "v1", resource),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            clusters: Vec::new(),
        }))
        .into()
    }

    /// 403, in kube-apiserver's words.
    pub(crate) fn forbidden(&self, verb: &'static str, place: &ReadPlace) -> Refusal {
        RequestRefusal::Forbidden(Box::new(self.forbidden_request(verb, place))).into()
    }

    pub(super) fn forbidden_request(&self, verb: &'static str, place: &ReadPlace) -> ForbiddenRequest {
        let ReadPlace { resource, namespace, name, .. } = place.clone();
        let (user, subresource) = (self.acting_name().to_owned(), String::new());
        ForbiddenRequest { user, verb: verb.into(), resource, subresource, namespace, name, clusters: Vec::new() }
    }

    /// 403: nobody lets the caller do what is asked of this resource.
    pub(crate) fn forbids_asked(&self, asked: &ResourceAttributes<'_>, resource: &GroupVersionResource) -> Refusal {
        self.forbids(ForbiddenRequest {
            user: String::new(),
            verb: asked.verb.to_owned().into(),
            resource: resource.clone(),
            subresource: asked.subresource.to_owned(),
            namespace: asked.namespace.to_owned(),
            name: asked.name.to_owned(),
            clusters: Vec::new(),
        })
    }

    /// 403: nobody lets the caller see what is at this path, which is no resource.
    pub(crate) fn forbids_path(&self, path: String) -> Refusal {
        RequestRefusal::ForbiddenPath(ForbiddenPath { user: self.acting_name().to_owned(), path }).into()
    }

    /// 403: no cluster that is there for the caller allows it. The user is filled in here.
    pub(crate) fn forbids(&self, request: ForbiddenRequest) -> Refusal {
        let user = self.acting_name().to_owned();
        RequestRefusal::Forbidden(Box::new(ForbiddenRequest { user, ..request })).into()
    }
}
