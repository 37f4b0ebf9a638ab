//! Visible objects of a resource for one caller, by cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_authorization::{Attributes, ResourceAttributes, Visible};

use super::actor::UserSelector;
use super::allowed_facts::DecisionMethod;
use super::audience::Audience;
use super::caller_rights::CallerRights;
use super::cluster_visibility::{ClusterVisibility, allows_in_mode, and_known};
use super::impersonation::ImpersonationMode;
use super::read_target::ReadTarget;
use super::reviewed;
use super::user_decisions::UserDecisions;

/// Visible objects of a resource in each cluster. Clusters without visible objects, or with unknown rights, are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VisibleClusters {
    pub(super) by_name: BTreeMap<ClusterName, Visible>,
    /// Clusters with unknown rights. Their names are never shown to the caller.
    pub(super) unknown: BTreeSet<ClusterName>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WatchRights {
    /// Objects that the caller may watch.
    pub(super) watched: VisibleClusters,
    /// Objects that the caller may list, in clusters where the rights to watch are known. The watch shows these
    /// objects.
    pub(super) listed: VisibleClusters,
}

/// Part of the objects of a read that the caller may see in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    Nothing,
    Some,
    /// All objects of the read are visible: the cluster would allow the request.
    All,
}

impl ReadTarget {
    /// Returns the namespaces with visible objects of this read, if not all objects are visible. If the read has a
    /// name, rights to other names are ignored.
    fn namespaces_in<'a>(&'a self, visible: &'a Visible) -> impl Iterator<Item = &'a str> {
        let part = match visible {
            Visible::Part(part) => Some(&**part),
            Visible::Whole => None,
        };
        let all = part.into_iter().flat_map(|part| part.namespaces.iter().chain(part.names_within.keys()));
        all.map(|namespace| &**namespace).filter(|namespace| visible.allows(namespace, &self.name))
    }

    pub(super) fn extent(&self, visible: &Visible) -> Extent {
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
    pub(super) fn extents(&self, target: &ReadTarget) -> impl Iterator<Item = (&ClusterName, &Visible, Extent)> {
        let extents = self.by_name.iter().map(|(cluster, visible)| (cluster, visible, target.extent(visible)));
        extents.filter(|(.., extent)| *extent > Extent::Nothing)
    }
}

impl CallerRights {
    /// Returns the visible objects of a resource in each of these clusters. For a cluster that decides by roles and
    /// bindings, the result covers the whole resource. For a cluster that decides by access reviews, the result covers
    /// only the read `target`. Costs a lookup of the user's grants in each cluster.
    pub(super) fn visible<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        verb: &str,
        target: &ReadTarget,
    ) -> VisibleClusters {
        let mut visible = VisibleClusters::default();
        let fleet = self.mirror.compiled();
        let [user, acting] =
            [UserSelector::User, UserSelector::Acting].map(|user_selector| self.decisions(&fleet, user_selector));
        for cluster in clusters {
            let rights = match self.cluster_visibility(&fleet, cluster) {
                ClusterVisibility::Hidden => continue,
                ClusterVisibility::Unknown => None,
                ClusterVisibility::Visible => self.rights_in(&acting, None, cluster, verb, target),
                ClusterVisibility::VisibleInMode(mode) => {
                    self.rights_in(&acting, Some((&user, mode)), cluster, verb, target)
                }
            };
            match rights {
                None => drop(visible.unknown.insert(cluster.clone())),
                Some(rights) if rights.is_nothing() => {}
                Some(rights) => drop(visible.by_name.insert(cluster.clone(), rights)),
            }
        }
        visible
    }

    pub(super) fn followed<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName> + Clone,
        target: &ReadTarget,
    ) -> WatchRights {
        // A watch shows the objects that the caller may list, because resourceVersions contain a hash of the listable
        // namespaces. The rights to list are evaluated last, so that a concurrent change shows fewer objects, never
        // more.
        let watched = self.visible(clusters.clone(), "watch", target);
        let mut listed = self.visible(clusters, "list", target);
        listed.by_name.retain(|cluster, _| !watched.unknown.contains(cluster));
        WatchRights { watched, listed }
    }

    /// Returns the listable objects for the resourceVersion of a get, so that a watch of the object or of its namespace
    /// can resume from this version. In a cluster that decides by access reviews, the result covers the namespace, or,
    /// if the caller may list nothing there, the object alone.
    pub(super) fn listed_of<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName> + Clone,
        target: &ReadTarget,
    ) -> VisibleClusters {
        let mut listed = self.visible(clusters.clone(), "list", &target.of_all_names());
        if target.name.is_empty() {
            return listed;
        }
        let is_reviewed =
            |cluster: &&ClusterName| self.mirror.decision_method(cluster) == Some(DecisionMethod::Reviews);
        let is_nothing =
            |cluster: &&ClusterName| !listed.by_name.contains_key(*cluster) && !listed.unknown.contains(*cluster);
        let narrower: Vec<_> = clusters.into_iter().filter(is_reviewed).filter(is_nothing).collect();
        let narrower = self.visible(narrower, "list", target);
        listed.by_name.extend(narrower.by_name);
        listed.unknown.extend(narrower.unknown);
        listed
    }

    /// Returns the visible objects of a read in a visible cluster. `None` if unknown. If the cluster is visible only in
    /// a `mode` of constrained impersonation, the sender itself also needs the right in this mode.
    fn rights_in(
        &self,
        acting: &UserDecisions<'_>,
        mode: Option<(&UserDecisions<'_>, ImpersonationMode)>,
        cluster: &ClusterName,
        verb: &str,
        target: &ReadTarget,
    ) -> Option<Visible> {
        let GroupVersionResource { group, version, resource } = &target.resource;
        let by_rules = acting.fleet.rights(cluster, acting.user(cluster), verb, group, resource);
        match self.mirror.decision_method(cluster)? {
            DecisionMethod::Rules => match mode {
                None => Some(by_rules),
                Some((user, mode)) => {
                    let own = user.fleet.rights(cluster, user.user(cluster), &mode.on(verb), group, resource);
                    by_rules.within(&own)
                }
            },
            DecisionMethod::Live => None,
            // The hash in a resourceVersion depends on the rights to list and watch, so a get needs no review for the
            // hash.
            DecisionMethod::Reviews => reviewed::visible(&by_rules, target, verb != "get", |namespace, name| {
                let attributes =
                    ResourceAttributes { verb, group, version, resource, subresource: "", namespace, name };
                let attributes = Attributes::Resource(attributes);
                let does = mode.map_or(Some(true), |(user, mode)| allows_in_mode(user, mode, cluster, &attributes));
                // Evaluates both operands, so that both reviews are sent together.
                and_known(does, acting.review_result(cluster, &attributes))
            }),
        }
    }

    /// Returns the users that get the same resourceVersion for an object of a cluster as this caller.
    pub fn audience_of(&self, cluster: &ClusterName, target: &ReadTarget) -> Audience {
        let visible = self.listed_of([cluster], target);
        Audience::new(Arc::new([cluster.clone()].into()), visible.by_name)
    }
}

/// Returns whether the caller may watch all objects of a read that the caller may list.
pub(super) fn covers(watched: &VisibleClusters, listed: &VisibleClusters, target: &ReadTarget) -> bool {
    listed.extents(target).all(|(cluster, listed, extent)| {
        let Some(watched) = watched.by_name.get(cluster) else { return false };
        match extent {
            Extent::All => target.extent(watched) == Extent::All,
            Extent::Some | Extent::Nothing => {
                target.namespaces_in(listed).all(|namespace| watched.allows(namespace, &target.name))
            }
        }
    })
}
