//! The roles and bindings of one cluster, found by their places.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::object::{Binding, ObjectPlace, RbacKind};
use crate::rule::Rules;
use crate::share::Grant;

/// A role that is there, or that bindings speak of.
#[derive(Debug, Default)]
struct RoleEntry {
    rules: Option<Arc<Rules>>,
    /// The bindings that give it, and some that no longer do or are there twice.
    bindings: Vec<Arc<Binding>>,
    /// How many of them no longer did when they were replaced. They are swept once they are more than half: looking for
    /// each would cost all bindings of the role, for each of them that changes.
    stale: usize,
}

/// How many subjects all bindings of one cluster may name, one that several bindings name counted for each. 250,000:
/// ten thousand namespaces in which bindings name 25 each. What each of them has takes some 200 bytes, and a binding
/// some 500: of a cluster that names more it is not compiled what anybody has, and its rights are unknown.
pub const NAMED_SUBJECTS_MAX: usize = 250_000;

/// The roles and bindings of one cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterObjects {
    roles: HashMap<Arc<ObjectPlace>, RoleEntry>,
    bindings: HashMap<Arc<ObjectPlace>, Arc<Binding>>,
    /// How many subjects the bindings name.
    named: usize,
}

impl ClusterObjects {
    /// Whether the bindings name more subjects than are compiled.
    pub(crate) fn names_too_many(&self) -> bool {
        self.named > NAMED_SUBJECTS_MAX
    }

    /// Every binding.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values()
    }

    /// The places of all objects of a kind.
    pub(crate) fn places(&self, kind: RbacKind) -> impl Iterator<Item = &ObjectPlace> {
        let is_role = matches!(kind, RbacKind::Role | RbacKind::ClusterRole);
        let roles =
            self.roles.iter().filter(move |(_, entry)| is_role && entry.rules.is_some()).map(|(place, _)| place);
        let bindings = self.bindings.keys().filter(move |_| !is_role);
        let places = roles.chain(bindings).map(|place| &**place);
        places.filter(move |place| place.is_namespaced() == kind.is_namespaced())
    }

    /// The binding of a place.
    pub(crate) fn binding(&self, place: &ObjectPlace) -> Option<&Arc<Binding>> {
        self.bindings.get(place)
    }

    /// The bindings that give a role; some of them twice.
    pub(crate) fn bindings_of(&self, role: &ObjectPlace) -> impl Iterator<Item = &Arc<Binding>> {
        let bindings = self.roles.get(role).into_iter().flat_map(|entry| &entry.bindings);
        bindings.filter(|binding| is_live(&self.bindings, binding))
    }

    /// A binding with the rules that it gives now.
    pub(crate) fn grant(&self, binding: &Arc<Binding>) -> Grant {
        let role = binding.role.as_ref().and_then(|role| self.roles.get(role));
        Grant { binding: Arc::clone(binding), rules: role.and_then(|role| role.rules.clone()) }
    }

    /// Puts, replaces or takes away (`None`) a role. Whether it has other rules than before.
    pub(crate) fn set_role(&mut self, place: &Arc<ObjectPlace>, rules: Option<Arc<Rules>>) -> bool {
        let entry = self.roles.entry(Arc::clone(place)).or_default();
        let same = entry.rules.as_ref().map(Arc::as_ptr) == rules.as_ref().map(Arc::as_ptr);
        entry.rules = rules;
        self.forget_role_if_nothing_is_left(place);
        !same
    }

    /// Puts, replaces or takes away (`None`) a binding. Returns the one before. Costs the same however many there are,
    /// but for a walk over those of its role, which as many changes pay for.
    pub(crate) fn set_binding(
        &mut self,
        place: &Arc<ObjectPlace>,
        binding: Option<(Arc<Binding>, Option<Arc<ObjectPlace>>)>,
    ) -> Option<Arc<Binding>> {
        let before = self.bindings.remove(place);
        self.named -= before.as_ref().map_or(0, |before| before.subjects.len());
        if let Some(role) = before.as_ref().and_then(|before| before.role.as_ref()) {
            if let Some(entry) = self.roles.get_mut(role) {
                entry.stale += 1;
                entry.sweep_if_half_is_stale(&self.bindings);
            }
            self.forget_role_if_nothing_is_left(role);
        }
        if let Some((binding, role)) = binding {
            self.named += binding.subjects.len();
            if let Some(role) = role {
                self.roles.entry(role).or_default().bindings.push(Arc::clone(&binding));
            }
            self.bindings.insert(Arc::clone(place), binding);
        }
        before
    }

    fn forget_role_if_nothing_is_left(&mut self, place: &ObjectPlace) {
        if self.roles.get(place).is_some_and(|entry| entry.rules.is_none() && entry.bindings.is_empty()) {
            self.roles.remove(place);
        }
    }
}

impl RoleEntry {
    fn sweep_if_half_is_stale(&mut self, bindings: &HashMap<Arc<ObjectPlace>, Arc<Binding>>) {
        if self.stale * 2 > self.bindings.len() {
            let mut seen = HashSet::new();
            self.bindings.retain(|binding| is_live(bindings, binding) && seen.insert(Arc::as_ptr(binding)));
            self.bindings.shrink_to(self.bindings.len() * 2);
            self.stale = 0;
        }
    }
}

/// Whether this is the binding of its place.
fn is_live(bindings: &HashMap<Arc<ObjectPlace>, Arc<Binding>>, binding: &Arc<Binding>) -> bool {
    bindings.get(&binding.place).is_some_and(|own| Arc::ptr_eq(own, binding))
}
