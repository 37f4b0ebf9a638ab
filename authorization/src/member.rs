//! The roles and bindings of one cluster, indexed by namespace and name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::object::{Binding, NamespacedName, RbacKind};
use crate::rule::Rules;
use crate::share::Grant;

#[derive(Debug, Default)]
struct RoleEntry {
    rules: Option<Arc<Rules>>,
    /// The bindings that refer to the role. The list may contain outdated bindings and duplicates.
    bindings: Vec<Arc<Binding>>,
    /// The number of outdated bindings in the list. When more than half of the list is outdated, the outdated bindings
    /// are removed. An immediate removal would cost an iteration over all bindings of the role for each change.
    stale: usize,
}

/// The maximum number of subjects in all bindings of one cluster; a subject counts once for each binding that names it.
/// 250,000 is ten thousand namespaces whose bindings name 25 subjects each. The grants of a subject take some 200
/// bytes, and a binding some 500. If a cluster has more subjects, its bindings are not compiled, and its rights are
/// unknown.
pub const NAMED_SUBJECTS_MAX: usize = 250_000;

#[derive(Debug, Default)]
pub(crate) struct ClusterObjects {
    roles: HashMap<Arc<NamespacedName>, RoleEntry>,
    bindings: HashMap<Arc<NamespacedName>, Arc<Binding>>,
    /// The number of subjects in all bindings. A subject counts once for each binding.
    named: usize,
}

impl ClusterObjects {
    /// Returns whether the bindings name more than [`NAMED_SUBJECTS_MAX`] subjects.
    pub(crate) fn exceeds_subject_limit(&self) -> bool {
        self.named > NAMED_SUBJECTS_MAX
    }

    pub(crate) fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values()
    }

    pub(crate) fn keys(&self, kind: RbacKind) -> impl Iterator<Item = &NamespacedName> {
        let is_role = matches!(kind, RbacKind::Role | RbacKind::ClusterRole);
        let roles = self.roles.iter().filter(move |(_, entry)| is_role && entry.rules.is_some()).map(|(key, _)| key);
        let bindings = self.bindings.keys().filter(move |_| !is_role);
        let keys = roles.chain(bindings).map(|key| &**key);
        keys.filter(move |key| key.is_namespaced() == kind.is_namespaced())
    }

    pub(crate) fn binding(&self, key: &NamespacedName) -> Option<&Arc<Binding>> {
        self.bindings.get(key)
    }

    /// Returns the bindings that refer to a role. A binding can occur twice.
    pub(crate) fn bindings_of(&self, role: &NamespacedName) -> impl Iterator<Item = &Arc<Binding>> {
        let bindings = self.roles.get(role).into_iter().flat_map(|entry| &entry.bindings);
        bindings.filter(|binding| is_live(&self.bindings, binding))
    }

    /// Returns a binding with the current rules of its role.
    pub(crate) fn grant(&self, binding: &Arc<Binding>) -> Grant {
        let role = binding.role.as_ref().and_then(|role| self.roles.get(role));
        Grant { binding: Arc::clone(binding), rules: role.and_then(|role| role.rules.clone()) }
    }

    /// Adds, replaces or removes (`None`) a role. Returns whether the rules of the role changed.
    pub(crate) fn set_role(&mut self, key: &Arc<NamespacedName>, rules: Option<Arc<Rules>>) -> bool {
        let entry = self.roles.entry(Arc::clone(key)).or_default();
        let same = entry.rules.as_ref().map(Arc::as_ptr) == rules.as_ref().map(Arc::as_ptr);
        entry.rules = rules;
        self.remove_unused_role(key);
        !same
    }

    /// Adds, replaces or removes (`None`) a binding. Returns the previous binding. Cost: constant time, plus an
    /// iteration over the bindings of the role, which is amortized over the changes.
    pub(crate) fn set_binding(
        &mut self,
        key: &Arc<NamespacedName>,
        binding: Option<(Arc<Binding>, Option<Arc<NamespacedName>>)>,
    ) -> Option<Arc<Binding>> {
        let before = self.bindings.remove(key);
        self.named -= before.as_ref().map_or(0, |before| before.subjects.len());
        if let Some(role) = before.as_ref().and_then(|before| before.role.as_ref()) {
            if let Some(entry) = self.roles.get_mut(role) {
                entry.stale += 1;
                entry.sweep_if_half_is_stale(&self.bindings);
            }
            self.remove_unused_role(role);
        }
        if let Some((binding, role)) = binding {
            self.named += binding.subjects.len();
            if let Some(role) = role {
                self.roles.entry(role).or_default().bindings.push(Arc::clone(&binding));
            }
            self.bindings.insert(Arc::clone(key), binding);
        }
        before
    }

    fn remove_unused_role(&mut self, key: &NamespacedName) {
        if self.roles.get(key).is_some_and(|entry| entry.rules.is_none() && entry.bindings.is_empty()) {
            self.roles.remove(key);
        }
    }
}

impl RoleEntry {
    fn sweep_if_half_is_stale(&mut self, bindings: &HashMap<Arc<NamespacedName>, Arc<Binding>>) {
        if self.stale * 2 > self.bindings.len() {
            let mut seen = HashSet::new();
            self.bindings.retain(|binding| is_live(bindings, binding) && seen.insert(Arc::as_ptr(binding)));
            self.bindings.shrink_to(self.bindings.len() * 2);
            self.stale = 0;
        }
    }
}

/// Returns whether `bindings` still contains this binding under its namespace and name.
fn is_live(bindings: &HashMap<Arc<NamespacedName>, Arc<Binding>>, binding: &Arc<Binding>) -> bool {
    bindings.get(&binding.key).is_some_and(|own| Arc::ptr_eq(own, binding))
}
