//! The names of resources, and suggestions for a mistyped name.

use std::collections::{BTreeMap, BTreeSet};

use similar::get_close_matches;

/// The maximum number of suggestions.
const SUGGESTIONS_MAX: usize = 3;
/// The minimum similarity of a suggested name to the typed name, as the share of letters that both names have in the
/// same order. 0.66: a name with one missing, additional or wrong letter is more similar, even a short name.
const SIMILARITY_MIN: f32 = 0.66;

/// The names of all resources: plural, singular, kind and short names.
#[derive(Clone, Debug, Default)]
pub struct ResourceNames {
    by_name: BTreeMap<String, BTreeSet<String>>,
}

impl ResourceNames {
    /// Adds a resource with its short names, singular and kind.
    pub fn add<'a>(&mut self, group: &str, resource: &'a str, others: impl IntoIterator<Item = &'a str>) {
        let full = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        for name in others.into_iter().chain([resource]).filter(|name| !name.is_empty()) {
            self.by_name.entry(name.to_lowercase()).or_default().insert(full.clone());
        }
    }

    /// Adds all names of `other`.
    pub fn extend(&mut self, other: &Self) {
        for (name, full) in &other.by_name {
            self.by_name.entry(name.clone()).or_default().extend(full.iter().cloned());
        }
    }

    /// Returns a question (`did you mean …?`) with the most similar resources, for the end of an error message. The
    /// question is empty if no name is similar. An API group in the typed name is ignored.
    pub fn did_you_mean(&self, typed: &str) -> String {
        match &self.near(typed)[..] {
            [] => String::new(),
            near => format!("; did you mean {}?", near.join(" or ")),
        }
    }

    /// Returns the resources with the most similar names. Resources with exactly the typed name are first.
    pub fn near(&self, typed: &str) -> Vec<String> {
        let known: Vec<_> = self.by_name.keys().map(String::as_str).collect();
        let mut near: Vec<String> = Vec::new();
        for name in get_close_matches(typed, &known, SUGGESTIONS_MAX, SIMILARITY_MIN) {
            for full in self.by_name.get(name).into_iter().flatten() {
                if !near.contains(full) {
                    near.push(full.clone());
                }
            }
        }
        near.truncate(SUGGESTIONS_MAX);
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_resource_name_gets_suggestions() {
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
