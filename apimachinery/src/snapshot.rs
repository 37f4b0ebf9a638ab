//! The state of one resource of one cluster at one moment.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use crate::{Object, ResourceVersion};

/// The objects of one resource of one cluster at one resourceVersion, in key order.
///
/// A persistent (copy-on-write) ordered set: a clone is O(1) and shares everything, so a reader keeps one for as long
/// as it likes and never blocks the writer. A change copies one path of the tree, about a microsecond.
#[derive(Clone, Default)]
pub struct Snapshot {
    objects: OrdSet<ByKey>,
    resource_version: ResourceVersion,
}

/// An object ordered by its key.
#[derive(Clone)]
struct ByKey(Arc<Object>);

impl Borrow<str> for ByKey {
    fn borrow(&self) -> &str {
        self.0.key().as_str()
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} objects at {})", self.len(), self.resource_version)
    }
}

impl Snapshot {
    /// The version up to which every change is contained.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Sets the version up to which every change is contained.
    pub fn set_resource_version(&mut self, version: ResourceVersion) {
        self.resource_version = version;
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object of this key (`namespace/name`, or `name` where cluster-scoped).
    pub fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key).map(|entry| &entry.0)
    }

    /// Puts an object in and gives the one that it replaced. The version of the snapshot is not touched.
    pub fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        self.objects.insert(ByKey(object)).map(|entry| entry.0)
    }

    /// Takes an object out. The version of the snapshot is not touched.
    pub fn remove(&mut self, key: &str) -> Option<Arc<Object>> {
        self.objects.remove(key).map(|entry| entry.0)
    }

    /// All objects in key order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.iter().map(|entry| &entry.0)
    }

    /// The objects whose keys come after `after` (all, if `None`) and lie in `namespace` (any, if `None`), in key order.
    ///
    /// Cost: O(log n) to the first.
    pub fn range<'a>(
        &'a self,
        namespace: Option<&str>,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        // '0' follows '/': every key of a namespace lies between "namespace/" and "namespace0".
        let first = namespace.map(|namespace| format!("{namespace}/"));
        let end = namespace.map(|namespace| format!("{namespace}0"));
        let start = match (after, &first) {
            (Some(after), Some(first)) if after < first.as_str() => Bound::Included(first.as_str()),
            (Some(after), _) => Bound::Excluded(after),
            (None, Some(first)) => Bound::Included(first.as_str()),
            (None, None) => Bound::Unbounded,
        };
        let end = match &end {
            // A range whose start lies past its end would panic in an ordered set.
            Some(end) if after.is_some_and(|after| after >= end.as_str()) => None,
            Some(end) => Some(Bound::Excluded(end.as_str())),
            None => Some(Bound::Unbounded),
        };
        end.map(|end| self.objects.range::<_, str>((start, end))).into_iter().flatten().map(|entry| &entry.0)
    }
}

impl FromIterator<Arc<Object>> for Snapshot {
    fn from_iter<I: IntoIterator<Item = Arc<Object>>>(objects: I) -> Self {
        Self { objects: objects.into_iter().map(ByKey).collect(), resource_version: ResourceVersion::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectDecoder;

    fn object(namespace: &str, name: &str) -> Arc<Object> {
        let text = format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","resourceVersion":"1"}}}}"#);
        Arc::new(ObjectDecoder::new("v1", "Pod", [].into()).decode(text.as_bytes()).unwrap())
    }

    #[test]
    fn ranges_keep_etcd_order_and_namespaces_apart() {
        let snapshot: Snapshot =
            [object("a", "x"), object("a-b", "x"), object("a", "y"), object("ab", "x"), object("a0", "z")]
                .into_iter()
                .collect();
        let keys = |namespace, after| {
            snapshot.range(namespace, after).map(|o| o.key().as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(keys(None, None), ["a-b/x", "a/x", "a/y", "a0/z", "ab/x"]);
        assert_eq!(keys(Some("a"), None), ["a/x", "a/y"]);
        assert_eq!(keys(Some("a"), Some("a/x")), ["a/y"]);
        assert_eq!(keys(Some("a"), Some("a-b/x")), ["a/x", "a/y"]);
        assert_eq!(keys(Some("a"), Some("b")), Vec::<String>::new());
        assert_eq!(keys(Some("c"), None), Vec::<String>::new());
        assert_eq!(keys(None, Some("a/y")), ["a0/z", "ab/x"]);
    }

    #[test]
    fn a_clone_keeps_its_state() {
        let mut snapshot: Snapshot = [object("a", "x")].into_iter().collect();
        let before = snapshot.clone();
        assert!(snapshot.remove("a/x").is_some());
        assert_eq!((before.len(), snapshot.len()), (1, 0));
    }
}
