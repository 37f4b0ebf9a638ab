//! What one caller may read of one resource, cluster by cluster, at one moment: made here, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tributary_apimachinery::{ClusterName, GroupVersionResource, Object, Partial};
use tributary_authorization::{User, Visible};

use super::audience::Audience;
use super::mirror::{RightsMirror, RightsStamp};
use crate::refusal::{ClusterRefusal, ForbiddenRead, Refusal, RequestRefusal};

/// What is read, as it is authorized.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReadPlace {
    /// The resource.
    pub(crate) resource: GroupVersionResource,
    /// Whether its objects live in namespaces.
    pub(crate) namespaced: bool,
    /// The namespace by which it is judged; empty for all and for what has none.
    pub(crate) namespace: String,
    /// The name by which it is judged; empty for all.
    pub(crate) name: String,
}

/// The rights of whoever sends a request. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CallerRights {
    mirror: Arc<RightsMirror>,
    user: Arc<RightsOwner>,
}

/// Whose rights they are, as far as RBAC looks.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct RightsOwner {
    name: String,
    groups: Vec<String>,
}

/// What somebody may do with a resource in each cluster. Where they may nothing, or that is not known, it is not among
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VisibleClusters {
    pub(super) by_name: BTreeMap<ClusterName, Visible>,
    /// Those of which it is not known. Nobody is told their names.
    pub(super) unknown: BTreeSet<ClusterName>,
}

/// How much of what is read somebody may see in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    Nothing,
    /// Some namespaces of all.
    Some,
    /// A member would answer the request as it is.
    All,
}

/// A read that memory may answer, and with what.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    /// The clusters of which the answer may tell.
    pub(crate) only: Arc<BTreeSet<ClusterName>>,
    /// What it may show of each object, where it may not show all of these clusters.
    pub(crate) by_namespace: Option<Arc<NamespaceRights>>,
    /// Whether rights in some cluster are not known, so that it is left out.
    pub(crate) is_one_unknown: bool,
    /// Who else may be given the same texts.
    pub(crate) audience: Arc<Audience>,
}

/// In which namespaces objects may be shown, cluster by cluster.
#[derive(Debug)]
pub(crate) struct NamespaceRights {
    visible: BTreeMap<ClusterName, Visible>,
    /// The name that is asked for; empty for all.
    name: String,
}

impl ReadPlace {
    fn extent(&self, visible: &Visible) -> Extent {
        if visible.allows(&self.namespace, &self.name) {
            return Extent::All;
        }
        let is_of_all = self.namespaced && self.namespace.is_empty();
        match visible {
            Visible::Part(part) if is_of_all => {
                let mut named = part.names_within.values();
                let is_some = !part.namespaces.is_empty() || named.any(|names| names.contains(self.name.as_str()));
                if is_some { Extent::Some } else { Extent::Nothing }
            }
            _ => Extent::Nothing,
        }
    }
}

impl VisibleClusters {
    /// How much of what is read may be seen in each cluster where something may be.
    fn extents(&self, place: &ReadPlace) -> impl Iterator<Item = (&ClusterName, &Visible, Extent)> {
        let extents = self.by_name.iter().map(|(cluster, visible)| (cluster, visible, place.extent(visible)));
        extents.filter(|(.., extent)| *extent > Extent::Nothing)
    }
}

impl NamespaceRights {
    /// Whether an object may be shown. Cost: two searches.
    pub(crate) fn show(&self, cluster: &ClusterName, object: &Object) -> bool {
        self.visible.get(cluster).is_some_and(|visible| visible.allows(object.namespace(), &self.name))
    }
}

impl CallerRights {
    /// Those of a user.
    pub(crate) fn new(mirror: &Arc<RightsMirror>, name: String, groups: Vec<String>) -> Self {
        Self { mirror: Arc::clone(mirror), user: Arc::new(RightsOwner { name, groups }) }
    }

    /// Tells when they may have changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.mirror.changes()
    }

    /// Whose they are.
    pub(super) fn owner(&self) -> &Arc<RightsOwner> {
        &self.user
    }

    /// What tells the rights of one moment from those of another. Costs a lookup for each group.
    pub(super) fn stamp(&self) -> RightsStamp {
        self.mirror.stamp(User { name: &self.user.name, groups: &self.user.groups })
    }

    /// The clusters that are configured now.
    pub(super) fn clusters(&self) -> Vec<ClusterName> {
        self.mirror.clusters()
    }

    /// What may be done with a resource in each of these clusters now. Costs a look at the user's grants in each.
    pub(super) fn visible<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        verb: &str,
        resource: &GroupVersionResource,
    ) -> VisibleClusters {
        let user = User { name: &self.user.name, groups: &self.user.groups };
        let mut visible = VisibleClusters::default();
        let fleet = self.mirror.compiled();
        for cluster in clusters {
            if !self.mirror.knows(cluster) {
                visible.unknown.insert(cluster.clone());
                continue;
            }
            let rights = fleet.rights(cluster, user, verb, &resource.group, &resource.resource);
            if !rights.is_nothing() {
                visible.by_name.insert(cluster.clone(), rights);
            }
        }
        visible
    }

    /// Lets a list, watch or get read what it may of these clusters.
    ///
    /// # Errors
    /// 403 where nothing of it may be read in any cluster whose rights are known, and of a watch where more may be
    /// listed. 429, or of one object 503, where that may only be because some are not known, or a partial answer is
    /// denied.
    pub(crate) fn admit<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName> + Clone,
        verb: &'static str,
        place: &ReadPlace,
        partial: Partial,
    ) -> Result<Admission, Refusal> {
        // What is shown of a collection is what may be listed: versions speak of that. Of a watch it is looked at after
        // the rights to watch, so that a change in between shows less, and never more.
        let own = self.visible(clusters.clone(), verb, &place.resource);
        let listed = match verb {
            "list" => own.clone(),
            _ => self.visible(clusters, "list", &place.resource),
        };
        let shown = if verb == "get" { &own } else { &listed };
        let unknown = || ClusterRefusal::RightsUnknown { resource: place.resource.clone(), name: place.name.clone() };
        if !own.unknown.is_empty() && partial == Partial::Deny {
            return Err(unknown().into());
        }
        let only: BTreeSet<_> = shown.extents(place).map(|(cluster, ..)| cluster.clone()).collect();
        if only.is_empty() {
            let is_unknown = !own.unknown.is_empty() && verb == "get";
            return Err(if is_unknown { unknown().into() } else { self.forbidden(verb, place) });
        }
        if verb == "watch" && !covers(&own, &listed, place) {
            return Err(self.forbidden(verb, place));
        }
        let is_all = shown.extents(place).all(|(.., extent)| extent == Extent::All);
        let by_namespace = (!is_all).then(|| {
            let visible = shown.extents(place).map(|(cluster, visible, _)| (cluster.clone(), visible.clone()));
            Arc::new(NamespaceRights { visible: visible.collect(), name: place.name.clone() })
        });
        let only = Arc::new(only);
        let audience = Arc::new(Audience::new(Arc::clone(&only), listed.by_name));
        Ok(Admission { only, by_namespace, is_one_unknown: !own.unknown.is_empty(), audience })
    }

    fn forbidden(&self, verb: &'static str, place: &ReadPlace) -> Refusal {
        let ReadPlace { resource, namespace, name, .. } = place.clone();
        RequestRefusal::Forbidden(Box::new(ForbiddenRead {
            user: self.user.name.clone(),
            verb,
            resource,
            namespace,
            name,
        }))
        .into()
    }
}

/// Whether all that may be listed of a place may be watched.
fn covers(watched: &VisibleClusters, listed: &VisibleClusters, place: &ReadPlace) -> bool {
    listed.extents(place).all(|(cluster, listed, extent)| {
        let Some(watched) = watched.by_name.get(cluster) else { return false };
        match extent {
            Extent::All => place.extent(watched) == Extent::All,
            Extent::Some | Extent::Nothing => watched.covers(listed),
        }
    })
}

impl fmt::Debug for CallerRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerRights").field("user", &self.user.name).finish_non_exhaustive()
    }
}
