//! Visible objects in a cluster that decides by access reviews: a pure function. The mirror proposes, and the cluster
//! decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_authorization::{Part, Visible};

use super::read_place::ReadPlace;

/// Visible objects of a place in a cluster that decides by access reviews, with the `proposed` rights of its mirrored
/// roles. `says` answers for a namespace and a name (empty for all); `None` if unknown. `of_scope` is set if versions
/// depend on the result, so that it has to depend on the place as little as possible. Returns `None` if unknown.
///
/// * For all namespaces: all objects if the cluster says so, otherwise those of the proposed namespaces that it allows.
/// * For a namespace or an object: the cluster's answer for exactly that. An authorizer may deny there what it allows
///   everywhere, or allow what no role proposes.
pub(super) fn visible(
    propose: &Visible,
    place: &ReadPlace,
    of_scope: bool,
    mut says: impl FnMut(&str, &str) -> Option<bool>,
) -> Option<Visible> {
    let (namespace, name) = (&*place.namespace, &*place.name);
    let is_narrow = !namespace.is_empty() || !name.is_empty();
    // All questions are made at once, so that a request waits only once.
    let exact = if is_narrow { says(namespace, name) } else { Some(true) };
    let everywhere = if is_narrow && !of_scope { Some(false) } else { says("", "") };
    let is_of_all = place.namespaced && namespace.is_empty();
    let mut known = true;
    let mut part = Part::default();
    match exact {
        Some(true) if is_narrow => known &= allow(&mut part, place, of_scope, &mut says),
        Some(false) if !is_of_all => return Some(Visible::nothing()),
        Some(_) => {}
        None => known = false,
    }
    match everywhere {
        Some(true) if exact == Some(true) => return Some(Visible::Whole),
        Some(_) => {}
        None => known = false,
    }
    // The proposal for all namespaces is narrower than the denied request.
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

/// Part of the place that the cluster allows, and whether all answers are known.
fn allow(
    part: &mut Part,
    place: &ReadPlace,
    of_scope: bool,
    says: &mut impl FnMut(&str, &str) -> Option<bool>,
) -> bool {
    let (namespace, name): (Arc<str>, Arc<str>) = (place.namespace.as_str().into(), place.name.as_str().into());
    match (place.namespace.is_empty(), place.name.is_empty()) {
        (false, true) => drop(part.namespaces.insert(namespace)),
        // With the right to list the namespace, versions have the scope of the namespace, for each object.
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

/// The namespaces in which something of this name (empty for all) may be allowed.
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

    fn place(text: &str) -> ReadPlace {
        let (namespace, name) = text.split_once('/').unwrap();
        let resource = GroupVersionResource::new("", "v1", "pods");
        ReadPlace { resource, namespaced: true, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// `*` for all objects, otherwise namespaces and `namespace/name`s.
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
    fn reviews_of_the_cluster_decide_what_the_mirror_proposes() {
        // Proposal, place, allowed requests (`?`: unknown), result, and questions.
        for (propose, of, allowed, expected, asked) in [
            // All namespaces, with and without a right for all.
            ("*", "/", "/", Some("*"), "/"),
            ("*", "/", "", Some(""), "/"),
            ("", "/", "/", Some("*"), "/"),
            ("", "/", "", Some(""), "/"),
            ("a b c", "/", "a/ c/ d/", Some("a c"), "/ a/ b/ c/"),
            ("a b", "/", "/", Some("*"), "/"),
            ("a b", "/", "a/ ?b/", None, "/ a/ b/"),
            ("a", "/", "?/", None, "/"),
            // One namespace, with any proposal.
            ("*", "a/", "/ a/", Some("*"), "a/ /"),
            ("*", "a/", "/", Some(""), "a/ /"),
            ("", "a/", "a/", Some("a"), "a/ /"),
            ("a b", "a/", "a/ b/", Some("a"), "a/ /"),
            ("a", "a/", "?a/", None, "a/ /"),
            ("a", "a/", "a/ ?/", None, "a/ /"),
            // A name in it.
            ("a/x", "a/x", "a/x", Some("a/x"), "a/x / a/"),
            ("a/x", "a/x", "a/x a/", Some("a"), "a/x / a/"),
            ("a/x", "a/x", "a/", Some(""), "a/x /"),
            // A name in all of them.
            ("a/x b/x b/y c", "/x", "a/x c/x", Some("a/x c/x"), "/x / a/x b/x c/x"),
            ("*", "/x", "/x", Some("/x"), "/x /"),
            ("*", "/x", "/x /", Some("*"), "/x /"),
        ] {
            let said = RefCell::new(Vec::new());
            let words: Vec<_> = allowed.split(' ').collect();
            let found = visible(&rights(propose), &place(of), true, |namespace, name| {
                let question = format!("{namespace}/{name}");
                said.borrow_mut().push(question.clone());
                let is_unknown = words.contains(&&*format!("?{question}"));
                (!is_unknown).then(|| words.contains(&&*question))
            });
            assert_eq!(found, expected.map(rights), "{propose:?} {of} {allowed:?}");
            assert_eq!(said.into_inner().join(" "), asked, "{propose:?} {of} {allowed:?}");
        }
    }

    #[test]
    fn single_object_costs_one_question() {
        for allowed in [true, false] {
            let mut asked = 0;
            let found = visible(&rights("*"), &place("a/x"), false, |namespace, name| {
                asked += 1;
                Some(allowed && (namespace, name) == ("a", "x"))
            });
            assert_eq!((found.map(|found| found.allows("a", "x")), asked), (Some(allowed), 1));
        }
    }
}
