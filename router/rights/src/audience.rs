//! Audiences: users that see the same objects of a resource, and get the same resourceVersions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tributary_apimachinery::{ClusterName, ItemResourceVersions, ResourceVersion};
use tributary_authorization::{Scope, Visible};
use tributary_merge::{CompositeResourceVersion, Epochs, scope_prefix};

use tributary_fleet::topology::ClusterMark;

/// Users that may list the same objects of a resource. A composite resourceVersion for an audience names no hidden
/// cluster, and contains a hash of the listable namespaces.
pub struct Audience {
    only: Arc<BTreeSet<ClusterName>>,
    visible: BTreeMap<ClusterName, Visible>,
    /// Hash of clusters and listable namespaces. It is equal for two audiences that get byte-identical responses.
    key: [u8; 16],
    /// Last result of `scope_of`, as a cache. Nearly all versions of an audience name the same clusters.
    last: Mutex<Option<VersionScope>>,
}

/// Clusters of a composite resourceVersion, and the hash of the namespaces that the audience may list in them.
struct VersionScope {
    clusters: Vec<ClusterName>,
    scope: Option<[u8; 16]>,
}

impl Audience {
    /// Creates the audience of users that see the clusters `only` and may list the `visible` objects.
    pub fn new(only: Arc<BTreeSet<ClusterName>>, visible: BTreeMap<ClusterName, Visible>) -> Self {
        let mut hash = Sha256::new();
        for cluster in only.iter() {
            hash.update(cluster.as_str());
            // Separator: no cluster name contains a zero byte.
            hash.update([0]);
        }
        let mut audience = Self { only, visible, key: [0; 16], last: Mutex::default() };
        hash.update(audience.scope_of(audience.only.iter()).unwrap_or_default());
        audience.key.copy_from_slice(&hash.finalize()[..16]);
        audience
    }

    /// Returns a hash. Two audiences have equal hashes if and only if they get byte-identical responses.
    pub fn key(&self) -> [u8; 16] {
        self.key
    }

    pub(super) fn visible(&self) -> &BTreeMap<ClusterName, Visible> {
        &self.visible
    }

    /// Returns whether the audience may see a cluster.
    pub fn has(&self, cluster: &ClusterName) -> bool {
        self.only.contains(cluster)
    }

    /// Returns the hash of the namespaces that the audience may list in these clusters. `None` if the audience may list
    /// all objects in them.
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

    /// Returns the hash of the listable namespaces of a cluster, for the resourceVersions of single objects. `None` if
    /// the audience may list all objects of the cluster.
    fn item_scope(&self, cluster: &ClusterName) -> Option<[u8; 16]> {
        match self.visible.get(cluster) {
            Some(Visible::Whole) => None,
            _ => self.scope_of(std::iter::once(cluster)),
        }
    }

    /// Returns the composite version without the components of clusters that the audience may not see.
    pub fn visible_components(&self, version: &CompositeResourceVersion) -> CompositeResourceVersion {
        let visible = version.iter().filter(|(cluster, _)| self.only.contains(*cluster));
        visible.map(|(cluster, component)| (cluster.clone(), component)).collect()
    }

    /// Encodes a composite version for the audience: with the hash of its listable namespaces, and without hidden
    /// clusters.
    pub fn encode(&self, version: &CompositeResourceVersion, epochs: &Epochs) -> String {
        let visible = self.visible_components(version);
        let mut text = scope_prefix(self.scope_of(visible.iter().map(|(cluster, _)| cluster)));
        text.push_str(&visible.encode(epochs));
        text
    }
}

impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audience").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Format of the resourceVersions of single objects in an answer.
#[derive(Clone, Debug, Default)]
pub struct ItemVersions {
    form: ItemResourceVersions,
    audience: Option<Arc<Audience>>,
}

impl ItemVersions {
    /// Creates the format. Without an `audience`, the client may see all clusters.
    pub fn new(form: ItemResourceVersions, audience: Option<Arc<Audience>>) -> Self {
        Self { form, audience }
    }

    /// Returns the configured form of resourceVersions.
    pub fn form(&self) -> ItemResourceVersions {
        self.form
    }

    /// Returns the audience; `None` if the client may see all clusters.
    pub fn audience(&self) -> Option<&Arc<Audience>> {
        self.audience.as_ref()
    }

    /// Returns the format for the objects of one cluster. A call may compute a hash of namespaces, so use the result
    /// for many objects.
    pub fn for_cluster(&self, mark: &Arc<ClusterMark>) -> ClusterItemVersions {
        let scope = match (&self.audience, self.form) {
            (Some(audience), ItemResourceVersions::Composite) => audience.item_scope(&mark.name),
            // An integer resourceVersion cannot contain a hash of namespaces.
            _ => None,
        };
        ClusterItemVersions { mark: Arc::clone(mark), form: self.form, prefix: scope_prefix(scope) }
    }
}

/// Format of the resourceVersions of one cluster's objects.
pub struct ClusterItemVersions {
    mark: Arc<ClusterMark>,
    form: ItemResourceVersions,
    prefix: String,
}

impl ClusterItemVersions {
    /// Returns the texts that an answer inserts into the objects of the cluster.
    pub fn mark(&self) -> &Arc<ClusterMark> {
        &self.mark
    }

    /// Writes the resourceVersion of an object into `out`, and overwrites the old content of `out`.
    pub fn write(&self, version: ResourceVersion, out: &mut String) {
        self.mark.item_version(self.form, version, out);
        if !self.prefix.is_empty() {
            out.insert_str(0, &self.prefix);
        }
    }
}
