//! Who may be given the same texts: what versions say, and what they may say to whom.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tributary_apimachinery::{ClusterName, ItemResourceVersions, ResourceVersion};
use tributary_authorization::{Scope, Visible};
use tributary_merge::{CompositeResourceVersion, Epochs, scope_prefix};

use tributary_fleet::topology::ClusterMark;

/// Those who may list the same of a resource. What they are told names no cluster of which they may not know, and says
/// under which rights it was made.
pub struct Audience {
    only: Arc<BTreeSet<ClusterName>>,
    /// What may be listed of each cluster.
    visible: BTreeMap<ClusterName, Visible>,
    /// Equal for audiences that get the same texts, and for no others.
    key: [u8; 16],
    /// Of the version that was asked about last: nearly all name the same clusters.
    last: Mutex<Option<VersionScope>>,
}

/// The clusters that a version names, and its scope.
struct VersionScope {
    clusters: Vec<ClusterName>,
    scope: Option<[u8; 16]>,
}

impl Audience {
    /// Those who may be told of these clusters, and may list this much of each.
    pub fn new(only: Arc<BTreeSet<ClusterName>>, visible: BTreeMap<ClusterName, Visible>) -> Self {
        let mut hash = Sha256::new();
        for cluster in only.iter() {
            hash.update(cluster.as_str());
            // No name has one.
            hash.update([0]);
        }
        let mut audience = Self { only, visible, key: [0; 16], last: Mutex::default() };
        hash.update(audience.scope_of(audience.only.iter()).unwrap_or_default());
        audience.key.copy_from_slice(&hash.finalize()[..16]);
        audience
    }

    /// A hash that is equal for audiences that get the same texts, and for no others.
    pub fn key(&self) -> [u8; 16] {
        self.key
    }

    /// What they may list of each cluster.
    pub(super) fn visible(&self) -> &BTreeMap<ClusterName, Visible> {
        &self.visible
    }

    /// Whether they may be told of a cluster.
    pub fn has(&self, cluster: &ClusterName) -> bool {
        self.only.contains(cluster)
    }

    /// The scope of a version that names these clusters: `None` where all of each may be listed.
    pub fn scope_of<'a>(&self, clusters: impl Iterator<Item = &'a ClusterName>) -> Option<[u8; 16]> {
        let clusters: Vec<_> = clusters.cloned().collect();
        if let Some(last) = self.last.lock().as_ref().filter(|last| last.clusters == clusters) {
            return last.scope;
        }
        let nothing = Visible::nothing();
        let scope =
            match Scope::from_visible(clusters.iter().map(|name| (name, self.visible.get(name).unwrap_or(&nothing)))) {
                Scope::Everything => None,
                Scope::Part(hash) => Some(hash),
            };
        *self.last.lock() = Some(VersionScope { clusters, scope });
        scope
    }

    /// The scope of the version of one object of a cluster.
    fn item_scope(&self, cluster: &ClusterName) -> Option<[u8; 16]> {
        match self.visible.get(cluster) {
            Some(Visible::Whole) => None,
            _ => self.scope_of(std::iter::once(cluster)),
        }
    }

    /// What may be told of a version.
    pub fn visible_components(&self, version: &CompositeResourceVersion) -> CompositeResourceVersion {
        let told = version.iter().filter(|(cluster, _)| self.only.contains(*cluster));
        told.map(|(cluster, component)| (cluster.clone(), component)).collect()
    }

    /// The text of a version.
    pub fn encode(&self, version: &CompositeResourceVersion, epochs: &Epochs) -> String {
        let told = self.visible_components(version);
        let mut text = scope_prefix(self.scope_of(told.iter().map(|(cluster, _)| cluster)));
        text.push_str(&told.encode(epochs));
        text
    }
}

impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audience").field("key", &self.key).finish_non_exhaustive()
    }
}

/// How the versions of single objects are written.
#[derive(Clone, Debug, Default)]
pub struct ItemVersions {
    form: ItemResourceVersions,
    audience: Option<Arc<Audience>>,
}

impl ItemVersions {
    /// In this form, for an audience; `None` where everybody may know everything.
    pub fn new(form: ItemResourceVersions, audience: Option<Arc<Audience>>) -> Self {
        Self { form, audience }
    }

    /// The form.
    pub fn form(&self) -> ItemResourceVersions {
        self.form
    }

    /// Who is told.
    pub fn audience(&self) -> Option<&Arc<Audience>> {
        self.audience.as_ref()
    }

    /// How they are written of a cluster's objects. Costs a hash where only some of them may be listed: of many objects
    /// it is asked once.
    pub fn for_cluster(&self, mark: &Arc<ClusterMark>) -> ClusterItemVersions {
        let scope = match (&self.audience, self.form) {
            (Some(audience), ItemResourceVersions::Composite) => audience.item_scope(&mark.name),
            // An integer has no room for a scope.
            _ => None,
        };
        ClusterItemVersions { mark: Arc::clone(mark), form: self.form, prefix: scope_prefix(scope) }
    }
}

/// How the versions of a cluster's single objects are written.
pub struct ClusterItemVersions {
    mark: Arc<ClusterMark>,
    form: ItemResourceVersions,
    /// What stands before each: the scope under which it is told.
    prefix: String,
}

impl ClusterItemVersions {
    /// What marks the objects themselves.
    pub fn mark(&self) -> &Arc<ClusterMark> {
        &self.mark
    }

    /// Writes the version of an object in place of `out`.
    pub fn write(&self, version: ResourceVersion, out: &mut String) {
        self.mark.item_version(self.form, version, out);
        if !self.prefix.is_empty() {
            out.insert_str(0, &self.prefix);
        }
    }
}
