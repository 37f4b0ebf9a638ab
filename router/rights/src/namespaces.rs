//! Filter of objects by their namespaces, for each object of a list and each event of a watch.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, Object};
use tributary_authorization::Visible;

/// Namespaces with visible objects, by cluster.
#[derive(Debug, PartialEq, Eq)]
pub struct NamespaceRights {
    visible: BTreeMap<ClusterName, Visible>,
    /// Namespaces in which all objects are visible, for each cluster that is only partly visible. The namespaces are in
    /// the order of the keys of their objects.
    by_key: BTreeMap<ClusterName, Box<[Arc<str>]>>,
    /// Name of the object in the request; empty for all objects.
    name: String,
}

/// Text that sorts after all keys, because no namespace begins with `~`.
const BEHIND_ALL: &str = "~";

/// Compares two namespaces by the order of the keys of their objects. In a key, a `/` follows the namespace. So `a-b`
/// precedes `a`, because `-` sorts before `/`.
fn by_key(one: &str, other: &str) -> Ordering {
    one.bytes().chain([b'/']).cmp(other.bytes().chain([b'/']))
}

impl NamespaceRights {
    pub(super) fn new(visible: BTreeMap<ClusterName, Visible>, name: &str) -> Self {
        let namespaces = visible.iter().filter_map(|(cluster, visible)| {
            let Visible::Part(part) = visible else { return None };
            let mut namespaces: Box<[Arc<str>]> = part.namespaces.iter().cloned().collect();
            namespaces.sort_by(|one, other| by_key(one, other));
            Some((cluster.clone(), namespaces))
        });
        Self { by_key: namespaces.collect(), visible, name: name.to_owned() }
    }

    pub(super) fn entry_count(&self) -> usize {
        self.visible.values().map(Visible::entry_count).sum()
    }

    /// Returns a key after the `hidden` object at which a list can continue, because the cluster has no visible object
    /// before this key. `None` if the next object may be visible. Costs a binary search.
    pub fn skip_to_key(&self, cluster: &ClusterName, hidden: &Object) -> Option<Box<str>> {
        let shown = self.by_key.get(cluster).filter(|_| self.name.is_empty() && !hidden.namespace().is_empty())?;
        let next = shown.partition_point(|namespace| by_key(namespace, hidden.namespace()).is_lt());
        match shown.get(next) {
            // The namespace is visible, so the object is hidden for another reason, and the next object may be visible.
            Some(namespace) if **namespace == *hidden.namespace() => None,
            Some(namespace) => Some(format!("{namespace}/").into()),
            None => Some(BEHIND_ALL.into()),
        }
    }

    /// Returns whether an object may be shown. Costs two searches.
    pub fn show(&self, cluster: &ClusterName, object: &Object) -> bool {
        self.visible.get(cluster).is_some_and(|visible| visible.allows(object.namespace(), &self.name))
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ObjectDecoder;
    use tributary_authorization::Part;

    use super::*;

    #[test]
    fn skipping_hidden_namespaces_omits_no_visible_namespace() {
        let names = ["a", "a-b", "a-b-c", "a0", "ab", "b", "b-"];
        let object = |namespace: &str| {
            let text = format!(
                r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"namespace":"{namespace}","name":"x","uid":"u","resourceVersion":"1"}}}}"#
            );
            ObjectDecoder::new("v1", "ConfigMap", [].into()).decode(text.as_bytes()).unwrap()
        };
        let cluster = ClusterName::new("a").unwrap();
        for chosen in 0..1_u32 << names.len() {
            let shown = |at: usize| chosen >> at & 1 == 1;
            let namespaces = names.iter().enumerate().filter(|(at, _)| shown(*at)).map(|(_, name)| Arc::from(*name));
            let part = Part { namespaces: namespaces.collect(), ..Part::default() };
            let rights = NamespaceRights::new([(cluster.clone(), Visible::Part(Arc::new(part)))].into(), "");
            for (at, name) in names.iter().enumerate() {
                let hidden = object(name);
                let skip_to_key = rights.skip_to_key(&cluster, &hidden);
                assert_eq!(skip_to_key.is_none(), shown(at), "{name} of {chosen:b}");
                let Some(behind) = skip_to_key else { continue };
                assert!(*behind > *hidden.key().as_str());
                for (other, _) in names.iter().enumerate().filter(|(other, _)| shown(*other)) {
                    let key = object(names[other]).key().as_str().to_owned();
                    assert!(
                        key.as_str() < hidden.key().as_str() || *key > *behind,
                        "{key} is between {name} and {behind}"
                    );
                }
            }
        }
    }
}
