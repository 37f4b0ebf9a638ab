//! Visible objects in a cluster that decides by access reviews. The mirrored roles only suggest the namespaces to ask
//! about. The cluster's answers decide. This module does no I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_authorization::{Part, Visible};

use super::read_target::ReadTarget;

/// Visible objects of a read in a cluster that decides by access reviews. Returns `None` if unknown.
///
/// - `propose` are the rights by mirrored roles.
/// - `says` returns the cluster's answer for a namespace and a name (empty for all); `None` if unknown.
/// - `of_scope` is set if the resourceVersions of the response contain a hash of the result. The result must then be as
///   equal as possible for all reads in a namespace.
///
/// A read of all namespaces shows all objects if the cluster allows them. Otherwise it shows the proposed namespaces
/// that the cluster allows.
///
/// For a read of one namespace or object, the cluster's answer to exactly this read decides. An authorizer may deny in
/// one namespace a request that it allows in all, or allow a request without a role.
pub(super) fn visible(
    propose: &Visible,
    target: &ReadTarget,
    of_scope: bool,
    mut says: impl FnMut(&str, &str) -> Option<bool>,
) -> Option<Visible> {
    let (namespace, name) = (&*target.namespace, &*target.name);
    let is_narrow = !namespace.is_empty() || !name.is_empty();
    // Evaluates both answers before a decision, so that a request waits for one round of reviews.
    let exact = if is_narrow { says(namespace, name) } else { Some(true) };
    let everywhere = if is_narrow && !of_scope { Some(false) } else { says("", "") };
    let is_of_all = target.namespaced && namespace.is_empty();
    let mut known = true;
    let mut part = Part::default();
    match exact {
        Some(true) if is_narrow => known &= allow(&mut part, target, of_scope, &mut says),
        Some(false) if !is_of_all => return Some(Visible::nothing()),
        Some(_) => {}
        None => known = false,
    }
    match everywhere {
        Some(true) if exact == Some(true) => return Some(Visible::Whole),
        Some(_) => {}
        None => known = false,
    }
    // The cluster denied the read of all namespaces, so the proposed namespaces are checked separately.
    if is_of_all && known && exact.is_none_or(|allowed| !allowed || !is_narrow) {
        for namespace in proposed(propose, name) {
            match says(namespace, name) {
                Some(true) if name.is_empty() => drop(part.namespaces.insert(Arc::clone(namespace))),
                Some(true) => {
                    part.names_within.entry(Arc::clone(namespace)).or_default().insert(name.into());
                }
                Some(false) => {}
                None => known = false,
            }
        }
    }
    known.then(|| Visible::Part(Arc::new(part)))
}

/// Adds the objects of `target` to `part`, after a review has allowed the read. Returns false if the answer to an
/// additional review is unknown.
fn allow(
    part: &mut Part,
    target: &ReadTarget,
    of_scope: bool,
    says: &mut impl FnMut(&str, &str) -> Option<bool>,
) -> bool {
    let (namespace, name): (Arc<str>, Arc<str>) = (target.namespace.as_str().into(), target.name.as_str().into());
    match (target.namespace.is_empty(), target.name.is_empty()) {
        (false, true) => drop(part.namespaces.insert(namespace)),
        // If the user may list the namespace, the resourceVersion of each object carries the hash of the whole
        // namespace.
        (false, false) => match of_scope.then(|| says(&namespace, "")) {
            Some(None) => return false,
            Some(Some(true)) => drop(part.namespaces.insert(namespace)),
            Some(Some(false)) | None => part.names_within = BTreeMap::from([(namespace, [name].into())]),
        },
        (true, false) => drop(part.names.insert(name)),
        (true, true) => {}
    }
    true
}

/// Returns the namespaces in which a mirrored role may allow objects of this name (empty for all names).
fn proposed<'a>(propose: &'a Visible, name: &str) -> Vec<&'a Arc<str>> {
    let Visible::Part(part) = propose else { return Vec::new() };
    let named = part.names_within.iter().filter(|(_, names)| names.contains(name)).map(|(namespace, _)| namespace);
    let mut proposed: Vec<_> = part.namespaces.iter().chain(named).collect();
    proposed.sort();
    proposed.dedup();
    proposed
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tributary_apimachinery::GroupVersionResource;

    use super::*;

    fn target(text: &str) -> ReadTarget {
        let (namespace, name) = text.split_once('/').unwrap();
        let resource = GroupVersionResource::new("", "v1", "pods");
        ReadTarget { resource, namespaced: true, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Parses rights: `*` for all objects, otherwise namespaces and `namespace/name` pairs.
    fn rights(text: &str) -> Visible {
        if text == "*" {
            return Visible::Whole;
        }
        let mut part = Part::default();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            match word.split_once('/') {
                None => drop(part.namespaces.insert(word.into())),
                Some(("", name)) => drop(part.names.insert(name.into())),
                Some((namespace, name)) => {
                    part.names_within.entry(namespace.into()).or_default().insert(name.into());
                }
            }
        }
        Visible::Part(Arc::new(part))
    }

    #[test]
    fn access_reviews_decide_about_namespaces_proposed_by_roles() {
        // Columns: proposal, read, allowed requests (`?`: unknown), result, and sent reviews.
        for (propose, of, allowed, expected, expected_reviews) in [
            // Reads of all namespaces, with and without a right for all.
            ("*", "/", "/", Some("*"), "/"),
            ("*", "/", "", Some(""), "/"),
            ("", "/", "/", Some("*"), "/"),
            ("", "/", "", Some(""), "/"),
            ("a b c", "/", "a/ c/ d/", Some("a c"), "/ a/ b/ c/"),
            ("a b", "/", "/", Some("*"), "/"),
            ("a b", "/", "a/ ?b/", None, "/ a/ b/"),
            ("a", "/", "?/", None, "/"),
            // Reads of one namespace, with any proposal.
            ("*", "a/", "/ a/", Some("*"), "a/ /"),
            ("*", "a/", "/", Some(""), "a/ /"),
            ("", "a/", "a/", Some("a"), "a/ /"),
            ("a b", "a/", "a/ b/", Some("a"), "a/ /"),
            ("a", "a/", "?a/", None, "a/ /"),
            ("a", "a/", "a/ ?/", None, "a/ /"),
            // Reads of a single name in one namespace.
            ("a/x", "a/x", "a/x", Some("a/x"), "a/x / a/"),
            ("a/x", "a/x", "a/x a/", Some("a"), "a/x / a/"),
            ("a/x", "a/x", "a/", Some(""), "a/x /"),
            // Reads of one name in all namespaces.
            ("a/x b/x b/y c", "/x", "a/x c/x", Some("a/x c/x"), "/x / a/x b/x c/x"),
            ("*", "/x", "/x", Some("/x"), "/x /"),
            ("*", "/x", "/x /", Some("*"), "/x /"),
        ] {
            let reviews = RefCell::new(Vec::new());
            let words: Vec<_> = allowed.split(' ').collect();
            let found = visible(&rights(propose), &target(of), true, |namespace, name| {
                let review = format!("{namespace}/{name}");
                reviews.borrow_mut().push(review.clone());
                let is_unknown = words.contains(&&*format!("?{review}"));
                (!is_unknown).then(|| words.contains(&&*review))
            });
            assert_eq!(found, expected.map(rights), "{propose:?} {of} {allowed:?}");
            assert_eq!(reviews.into_inner().join(" "), expected_reviews, "{propose:?} {of} {allowed:?}");
        }
    }

    #[test]
    fn get_of_a_single_object_costs_one_access_review() {
        for allowed in [true, false] {
            let mut reviews = 0;
            let found = visible(&rights("*"), &target("a/x"), false, |namespace, name| {
                reviews += 1;
                Some(allowed && (namespace, name) == ("a", "x"))
            });
            assert_eq!((found.map(|found| found.allows("a", "x")), reviews), (Some(allowed), 1));
        }
    }
}
