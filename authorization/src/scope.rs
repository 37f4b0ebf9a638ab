//! The rights of the user for which a resourceVersion was issued.

use sha2::{Digest, Sha256};
use tributary_apimachinery::ClusterName;

use crate::visible::Visible;

/// The rights to list one resource in some clusters, as a composite version contains them: all rights, or a hash.
///
/// The input format of the hash is fixed, so that all replicas and all later releases compute equal hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The user may list all objects in each of the clusters.
    Everything,
    /// The first 16 bytes of a SHA-256 over the visible objects of each cluster. 16 bytes are enough to avoid
    /// collisions.
    Part([u8; 16]),
}

impl Scope {
    /// Returns the scope of a user with these visible objects. `clusters` are the clusters in the composite version. A
    /// cluster that is added later does not change the scope; a loss of all rights in a cluster (`Visible::nothing`)
    /// does. The order of the clusters is irrelevant, and each cluster occurs once. Without clusters the scope is
    /// [`Self::Everything`].
    pub fn from_visible<'a>(clusters: impl IntoIterator<Item = (&'a ClusterName, &'a Visible)>) -> Self {
        let mut clusters: Vec<_> = clusters.into_iter().collect();
        if clusters.iter().all(|(_, visible)| **visible == Visible::Whole) {
            return Self::Everything;
        }
        clusters.sort_unstable_by_key(|(name, _)| *name);
        let mut hash = Sha256::new();
        for (name, visible) in clusters {
            text(&mut hash, name.as_str());
            add(&mut hash, visible);
        }
        let mut first = [0; 16];
        first.copy_from_slice(&hash.finalize()[..16]);
        Self::Part(first)
    }
}

/// Hashes the visible objects. Each length precedes its data, so that different scopes have different encodings.
fn add(hash: &mut Sha256, visible: &Visible) {
    let Visible::Part(part) = visible else {
        return hash.update([1]);
    };
    hash.update([0]);
    texts(hash, &part.namespaces);
    texts(hash, &part.names);
    count(hash, part.names_within.len());
    for (namespace, names) in &part.names_within {
        text(hash, namespace);
        texts(hash, names);
    }
}

fn texts<'a>(hash: &mut Sha256, all: impl IntoIterator<Item = &'a std::sync::Arc<str>, IntoIter: ExactSizeIterator>) {
    let all = all.into_iter();
    count(hash, all.len());
    for one in all {
        text(hash, one);
    }
}

fn text(hash: &mut Sha256, text: &str) {
    count(hash, text.len());
    hash.update(text);
}

fn count(hash: &mut Sha256, count: usize) {
    hash.update((count as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visible::Part;
    use std::sync::Arc;

    fn part(change: impl FnOnce(&mut Part)) -> Visible {
        let mut part = Part::default();
        change(&mut part);
        Visible::Part(Arc::new(part))
    }

    #[test]
    fn hash_of_the_rights_scope_differs_for_different_rights() {
        let [a, b] = ["a", "b"].map(|name| ClusterName::new(name).unwrap());
        let namespace = part(|part| part.namespaces = ["n".into()].into());
        let name = part(|part| part.names = ["n".into()].into());
        let within = part(|part| part.names_within = [("n".into(), ["x".into()].into())].into());
        let all = [Visible::Whole, Visible::nothing(), namespace, name, within];
        let mut scopes = vec![Scope::from_visible([(&a, &all[1])])];
        for of_a in &all {
            for of_b in &all {
                scopes.push(Scope::from_visible([(&a, of_a), (&b, of_b)]));
                assert_eq!(scopes.last(), Some(&Scope::from_visible([(&b, of_b), (&a, of_a)])), "the order");
            }
        }
        let distinct: std::collections::HashSet<_> = scopes.iter().collect();
        assert_eq!(distinct.len(), scopes.len());
        assert_eq!(Scope::from_visible([(&a, &all[0]), (&b, &all[0])]), Scope::Everything);
        assert_eq!(Scope::from_visible([(&a, &all[0])]), Scope::Everything);
        assert_eq!(Scope::from_visible([]), Scope::Everything);
    }

    #[test]
    fn hash_of_the_rights_scope_is_equal_in_all_releases() {
        let eu = ClusterName::new("eu").unwrap();
        let shop = part(|part| part.namespaces = ["shop".into()].into());
        let Scope::Part(hash) = Scope::from_visible([(&eu, &shop)]) else { panic!("everything") };
        let text: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "6ab5289699757d7e007ea1da8919981b");
    }
}
