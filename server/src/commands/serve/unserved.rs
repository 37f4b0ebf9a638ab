//! Logs configured resources that no cluster serves. The names of such resources are usually misspelt.

use tributary_apimachinery::ResourceNames;
use tributary_router::ServedResources;
use tributary_sources::policies::NamedResource;

/// The configured resources, and the resources that no cluster served at the last check.
#[derive(Debug, Default)]
pub(super) struct UnservedResources {
    named: Vec<NamedResource>,
    logged: Vec<NamedResource>,
}

impl UnservedResources {
    /// Sets the resources that the configuration names.
    pub(super) fn set(&mut self, named: Vec<NamedResource>) {
        self.logged.retain(|own| named.contains(own));
        self.named = named;
    }

    /// Compares the configured resources with the clusters' discovery. Logs a resource once when no cluster serves it,
    /// and once when a cluster serves it again. `served` is `None` if discovery of a cluster is missing.
    pub(super) fn check(&mut self, served: Option<&ServedResources>) {
        let Some(served) = served else { return };
        let (begun, ended) = self.find_changes(|named| served.has(&named.pattern));
        for named in ended {
            tracing::info!(named_by = named.field, resource = %named.pattern, "a cluster now serves the configured resource");
        }
        if begun.is_empty() {
            return;
        }
        let names = names_of(served);
        for named in begun {
            let near = names.near(named.pattern.resource_name());
            let did_you_mean = (!near.is_empty()).then(|| near.join(" or "));
            tracing::warn!(named_by = named.field, resource = %named.pattern, did_you_mean, "no cluster serves a resource of the configuration");
        }
    }

    /// Returns the resources that no cluster serves any more, and the resources that a cluster serves again.
    fn find_changes(&mut self, is_served: impl Fn(&NamedResource) -> bool) -> (Vec<NamedResource>, Vec<NamedResource>) {
        let unserved: Vec<_> = self.named.iter().filter(|named| !is_served(named)).cloned().collect();
        let begun = unserved.iter().filter(|own| !self.logged.contains(own)).cloned().collect();
        let ended = self.logged.iter().filter(|own| !unserved.contains(own)).cloned().collect();
        self.logged = unserved;
        (begun, ended)
    }
}

fn names_of(served: &ServedResources) -> ResourceNames {
    let mut names = ResourceNames::default();
    for (resource, others) in served.iter() {
        names.add(&resource.group, &resource.resource, others);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> NamedResource {
        NamedResource { field: "--resources".to_owned(), pattern: text.parse().unwrap() }
    }

    #[test]
    fn unserved_resource_is_logged_once_and_again_when_served() {
        let (pods, carts) = (named("pods"), named("carts.shop.example"));
        let mut unserved = UnservedResources::default();
        unserved.set(vec![pods.clone(), carts.clone()]);
        let before = |own: &NamedResource| *own == pods;
        assert_eq!(unserved.find_changes(before), (vec![carts.clone()], vec![]));
        assert_eq!(unserved.find_changes(before), (vec![], vec![]), "once");
        // A reload with the same configured resources logs nothing.
        unserved.set(vec![carts.clone(), pods.clone()]);
        assert_eq!(unserved.find_changes(before), (vec![], vec![]));
        assert_eq!(unserved.find_changes(|_| true), (vec![], vec![carts.clone()]));
        assert_eq!(
            unserved.find_changes(before),
            (vec![carts.clone()], vec![]),
            "its CustomResourceDefinition is gone"
        );
        // A resource that was removed from the configuration is not logged as served again.
        unserved.set(vec![pods.clone()]);
        assert_eq!(unserved.find_changes(before), (vec![], vec![]));
    }

    #[test]
    fn unserved_resource_is_not_logged_while_discovery_is_incomplete() {
        let mut unserved = UnservedResources::default();
        unserved.set(vec![named("pods")]);
        unserved.check(None);
        assert!(unserved.logged.is_empty());
    }
}
