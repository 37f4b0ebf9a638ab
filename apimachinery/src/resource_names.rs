//! Names of resources, and suggestions for a mistyped name.

use std::collections::{BTreeMap, BTreeSet};

use similar::get_close_matches;

/// How many that are near are named.
const NEAR_MAX: usize = 3;
/// How alike two names have to be, as the share of letters that they have in common, in their order. Two of three: a
/// letter too few, too many or another is nearer, however short the name is.
const NEAR: f32 = 0.66;

/// Resources, by all of their names: plural, singular, kind and short ones.
#[derive(Clone, Debug, Default)]
pub struct ResourceNames {
    by_name: BTreeMap<String, BTreeSet<String>>,
}

impl ResourceNames {
    /// Adds a resource, and names of it that are not its plural.
    pub fn add<'a>(&mut self, group: &str, resource: &'a str, others: impl IntoIterator<Item = &'a str>) {
        let full = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        for name in others.into_iter().chain([resource]).filter(|name| !name.is_empty()) {
            self.by_name.entry(name.to_lowercase()).or_default().insert(full.clone());
        }
    }

    /// Adds all that another has.
    pub fn extend(&mut self, other: &Self) {
        for (name, full) in &other.by_name {
            self.by_name.entry(name.clone()).or_default().extend(full.iter().cloned());
        }
    }

    /// What may have been meant by a name, as a question for the end of a message; nothing where no name is near. A
    /// group that was typed beside it does not count.
    pub fn did_you_mean(&self, typed: &str) -> String {
        match &self.near(typed)[..] {
            [] => String::new(),
            near => format!("; did you mean {}?", near.join(" or ")),
        }
    }

    /// The resources whose names are nearest: those that have the name as another of theirs first.
    pub fn near(&self, typed: &str) -> Vec<String> {
        let known: Vec<_> = self.by_name.keys().map(String::as_str).collect();
        let mut near: Vec<String> = Vec::new();
        for name in get_close_matches(typed, &known, NEAR_MAX, NEAR) {
            for full in self.by_name.get(name).into_iter().flatten() {
                if !near.contains(full) {
                    near.push(full.clone());
                }
            }
        }
        near.truncate(NEAR_MAX);
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_asked_for() {
        let mut names = ResourceNames::default();
        names.add("", "pods", ["pod", "Pod", "po"]);
        let mut more = ResourceNames::default();
        more.add("apps", "deployments", ["deployment", "Deployment", "deploy", ""]);
        names.extend(&more);
        for (typed, expected) in [
            ("po", "; did you mean pods?"),
            ("podss", "; did you mean pods?"),
            ("deploments", "; did you mean deployments.apps?"),
            ("xylophones", ""),
            ("", ""),
        ] {
            assert_eq!(names.did_you_mean(typed), expected, "{typed}");
        }
    }
}
