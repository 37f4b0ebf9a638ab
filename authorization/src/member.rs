//! The roles and bindings of one cluster, found by their places.

use std::collections::HashMap;
use std::sync::Arc;

use crate::object::{Binding, Place};
use crate::rule::Rules;
use crate::share::Grant;

/// A role that is there, or that bindings speak of.
#[derive(Debug, Default)]
struct RoleEntry {
    rules: Option<Arc<Rules>>,
    /// The bindings that give it.
    bindings: Vec<Arc<Binding>>,
}

/// The roles and bindings of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Member {
    roles: HashMap<Arc<Place>, RoleEntry>,
    bindings: HashMap<Arc<Place>, Arc<Binding>>,
}

impl Member {
    /// Every binding.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values()
    }

    /// A binding with the rules that it gives now.
    pub(crate) fn grant(&self, binding: &Arc<Binding>) -> Grant {
        let role = binding.role.as_ref().and_then(|role| self.roles.get(role));
        Grant { binding: Arc::clone(binding), rules: role.and_then(|role| role.rules.clone()) }
    }

    /// Puts, replaces or takes away (`None`) a role. Returns the bindings that give another role than before: none where
    /// the rules are the same.
    pub(crate) fn set_role(&mut self, place: &Arc<Place>, rules: Option<Arc<Rules>>) -> Vec<Arc<Binding>> {
        let entry = self.roles.entry(Arc::clone(place)).or_default();
        let same = entry.rules.as_ref().map(Arc::as_ptr) == rules.as_ref().map(Arc::as_ptr);
        entry.rules = rules;
        let touched = if same { Vec::new() } else { entry.bindings.clone() };
        self.forget_role_if_nothing_is_left(place);
        touched
    }

    /// Puts, replaces or takes away (`None`) a binding. Returns the one before, where it was another.
    pub(crate) fn set_binding(
        &mut self,
        place: &Arc<Place>,
        binding: Option<(Arc<Binding>, Option<Arc<Place>>)>,
    ) -> Option<Arc<Binding>> {
        let before = self.bindings.remove(place);
        if let Some(before) = &before
            && let Some(role) = &before.role
        {
            if let Some(entry) = self.roles.get_mut(role) {
                entry.bindings.retain(|binding| !Arc::ptr_eq(binding, before));
            }
            self.forget_role_if_nothing_is_left(role);
        }
        if let Some((binding, role)) = binding {
            if let Some(role) = role {
                self.roles.entry(role).or_default().bindings.push(Arc::clone(&binding));
            }
            self.bindings.insert(Arc::clone(place), binding);
        }
        before
    }

    fn forget_role_if_nothing_is_left(&mut self, place: &Place) {
        if self.roles.get(place).is_some_and(|entry| entry.rules.is_none() && entry.bindings.is_empty()) {
            self.roles.remove(place);
        }
    }
}
