//! Visible objects of a resource for one caller, by cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_authorization::{Attributes, ResourceAttributes, Visible};

use super::actor::Whom;
use super::audience::Audience;
use super::basis::Decides;
use super::caller_rights::CallerRights;
use super::existence::{Existence, both, does_in};
use super::impersonation::ImpersonationMode;
use super::judged::Judged;
use super::read_place::ReadPlace;
use super::reviewed;

/// Visible objects of a resource in each cluster. Clusters without visible objects, or with unknown rights, are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VisibleClusters {
    pub(super) by_name: BTreeMap<ClusterName, Visible>,
    /// Clusters with unknown rights. Their names are never shown.
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

impl ReadPlace {
    /// Namespaces with visible objects of this read, if not all objects are visible. Rights to other names than the
    /// requested name do not count.
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
    pub(super) fn extents(&self, place: &ReadPlace) -> impl Iterator<Item = (&ClusterName, &Visible, Extent)> {
        let extents = self.by_name.iter().map(|(cluster, visible)| (cluster, visible, place.extent(visible)));
        extents.filter(|(.., extent)| *extent > Extent::Nothing)
    }
}

impl CallerRights {
    /// Visible objects of a resource in each of these clusters. If a cluster decides by roles and bindings, the result
    /// covers the whole resource. If a cluster decides by access reviews, the result covers the read `place`. Costs a
    /// lookup of the user's grants in each cluster.
    pub(super) fn visible<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        verb: &str,
        place: &ReadPlace,
    ) -> VisibleClusters {
        let mut visible = VisibleClusters::default();
        let fleet = self.mirror.compiled();
        let [user, acting] = [Whom::User, Whom::Acting].map(|whom| self.judged(&fleet, whom));
        for cluster in clusters {
            let rights = match self.existence(&fleet, cluster) {
                Existence::Nowhere => continue,
                Existence::Unknown => None,
                Existence::There => self.rights_in(&acting, None, cluster, verb, place),
                Existence::ThereFor(mode) => self.rights_in(&acting, Some((&user, mode)), cluster, verb, place),
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
        place: &ReadPlace,
    ) -> WatchRights {
        // A watch shows the objects that the caller may list, because resourceVersions contain a hash of the listable
        // namespaces. The rights to list are evaluated last, so that a concurrent change shows fewer objects, never
        // more.
        let watched = self.visible(clusters.clone(), "watch", place);
        let mut listed = self.visible(clusters, "list", place);
        listed.by_name.retain(|cluster, _| !watched.unknown.contains(cluster));
        WatchRights { watched, listed }
    }

    /// Listable objects for the resourceVersion of a get, so that a watch of the object or of its namespace can resume
    /// from this version. In a cluster that decides by access reviews, the result covers the namespace, or otherwise
    /// the object alone, as for such a watch.
    pub(super) fn listed_of<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName> + Clone,
        place: &ReadPlace,
    ) -> VisibleClusters {
        let mut listed = self.visible(clusters.clone(), "list", &place.of_all_names());
        if place.name.is_empty() {
            return listed;
        }
        let is_asked = |cluster: &&ClusterName| self.mirror.decides(cluster) == Some(Decides::Reviews);
        let is_nothing =
            |cluster: &&ClusterName| !listed.by_name.contains_key(*cluster) && !listed.unknown.contains(*cluster);
        let narrower: Vec<_> = clusters.into_iter().filter(is_asked).filter(is_nothing).collect();
        let narrower = self.visible(narrower, "list", place);
        listed.by_name.extend(narrower.by_name);
        listed.unknown.extend(narrower.unknown);
        listed
    }

    /// Visible objects of a read in a visible cluster. `None` if unknown. If the cluster is visible only in a `mode` of
    /// constrained impersonation, the sender itself needs the right in this mode as well.
    fn rights_in(
        &self,
        acting: &Judged<'_>,
        mode: Option<(&Judged<'_>, ImpersonationMode)>,
        cluster: &ClusterName,
        verb: &str,
        place: &ReadPlace,
    ) -> Option<Visible> {
        let GroupVersionResource { group, version, resource } = &place.resource;
        let by_rules = acting.fleet.rights(cluster, acting.user(cluster), verb, group, resource);
        match self.mirror.decides(cluster)? {
            Decides::Rules => match mode {
                None => Some(by_rules),
                Some((user, mode)) => {
                    let own = user.fleet.rights(cluster, user.user(cluster), &mode.on(verb), group, resource);
                    by_rules.within(&own)
                }
            },
            Decides::Live => None,
            // The hash in resourceVersions depends on the rights to list and watch, and not on the right to get.
            Decides::Reviews => reviewed::visible(&by_rules, place, verb != "get", |namespace, name| {
                let asked = ResourceAttributes { verb, group, version, resource, subresource: "", namespace, name };
                let asked = Attributes::Resource(asked);
                let does = mode.map_or(Some(true), |(user, mode)| does_in(user, mode, cluster, &asked));
                // Evaluates both operands, so that both reviews are sent together.
                both(does, acting.says(cluster, &asked))
            }),
        }
    }

    /// Returns the users that get the same resourceVersion for an object of a cluster as this caller.
    pub fn audience_of(&self, cluster: &ClusterName, place: &ReadPlace) -> Audience {
        let visible = self.listed_of([cluster], place);
        Audience::new(Arc::new([cluster.clone()].into()), visible.by_name)
    }
}

/// Returns whether the caller may watch all objects of a read that the caller may list.
pub(super) fn covers(watched: &VisibleClusters, listed: &VisibleClusters, place: &ReadPlace) -> bool {
    listed.extents(place).all(|(cluster, listed, extent)| {
        let Some(watched) = watched.by_name.get(cluster) else { return false };
        match extent {
            Extent::All => place.extent(watched) == Extent::All,
            Extent::Some | Extent::Nothing => {
                place.namespaces_in(listed).all(|namespace| watched.allows(namespace, &place.name))
            }
        }
    })
}
