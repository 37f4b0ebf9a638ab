//! Users that may share the same texts, and the content of versions for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tributary_apimachinery::{ClusterName, ItemResourceVersions, ResourceVersion};
use tributary_authorization::{Scope, Visible};
use tributary_merge::{CompositeResourceVersion, Epochs, scope_prefix};

use tributary_fleet::topology::ClusterMark;

/// Users that may list the same objects of a resource. Versions for them name no hidden cluster, and contain a hash of
/// their rights.
pub struct Audience {
    only: Arc<BTreeSet<ClusterName>>,
    /// Objects of each cluster that they may list.
    visible: BTreeMap<ClusterName, Visible>,
    /// Equal for audiences with the same texts, different otherwise.
    key: [u8; 16],
    /// Scope of the last version: nearly all versions name the same clusters.
    last: Mutex<Option<VersionScope>>,
}

/// The clusters that a version names, and its scope.
struct VersionScope {
    clusters: Vec<ClusterName>,
    scope: Option<[u8; 16]>,
}

impl Audience {
    /// An audience that may know these clusters and list these objects of each.
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

    /// Hash that is equal exactly for audiences with the same texts.
    pub fn key(&self) -> [u8; 16] {
        self.key
    }

    /// Objects of each cluster that they may list.
    pub(super) fn visible(&self) -> &BTreeMap<ClusterName, Visible> {
        &self.visible
    }

    /// Whether they may know a cluster.
    pub fn has(&self, cluster: &ClusterName) -> bool {
        self.only.contains(cluster)
    }

    /// The hash of the namespaces that these users may list in the clusters of a version. `None` if they may list all
    /// objects.
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

    /// Components of a version that they may know.
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

/// Form of item versions.
#[derive(Clone, Debug, Default)]
pub struct ItemVersions {
    form: ItemResourceVersions,
    audience: Option<Arc<Audience>>,
}

impl ItemVersions {
    /// Form for an audience; `None` if the reader may know all clusters.
    pub fn new(form: ItemResourceVersions, audience: Option<Arc<Audience>>) -> Self {
        Self { form, audience }
    }

    /// Form of the versions.
    pub fn form(&self) -> ItemResourceVersions {
        self.form
    }

    /// Audience of the versions.
    pub fn audience(&self) -> Option<&Arc<Audience>> {
        self.audience.as_ref()
    }

    /// Form for the objects of one cluster. Costs a hash if the audience sees only a part of the cluster, so call it
    /// once for many objects.
    pub fn for_cluster(&self, mark: &Arc<ClusterMark>) -> ClusterItemVersions {
        let scope = match (&self.audience, self.form) {
            (Some(audience), ItemResourceVersions::Composite) => audience.item_scope(&mark.name),
            // An integer has no room for a scope.
            _ => None,
        };
        ClusterItemVersions { mark: Arc::clone(mark), form: self.form, prefix: scope_prefix(scope) }
    }
}

/// Form of item versions of one cluster.
pub struct ClusterItemVersions {
    mark: Arc<ClusterMark>,
    form: ItemResourceVersions,
    /// Prefix of each version: the scope.
    prefix: String,
}

impl ClusterItemVersions {
    /// Marks of the objects.
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
