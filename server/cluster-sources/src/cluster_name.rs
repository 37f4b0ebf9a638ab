//! Derives the names of members from the names in foreign systems. The same function without stored state serves all
//! systems, so all replicas derive the same names.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::text::hex;

use crate::SourceRefusal;
use crate::annotations::CLUSTER_NAME;

/// The name of the hub itself in cluster-gateway's API.
const LOCAL: &str = "local";

/// Number of bytes of the hash, which become 10 hexadecimal digits. Among 10,000 names, the probability that two names
/// have the same hash is 0.005 %.
const HASH_BYTES: usize = 5;

/// Maximum length of the readable part before the hash and its dash.
const SLUG_MAX: usize = ClusterName::LENGTH_MAX - 2 * HASH_BYTES - 1;

/// The readable part for a name without any letter or digit.
const EMPTY_SLUG: &str = "cluster";

/// Returns the name of the member for a foreign name, which may be any text. A valid cluster name stays the same. Every
/// other name, and the reserved names `all` and `local`, become a slug (the readable part) and a hash of the foreign
/// name.
///
/// The hash distinguishes foreign names with the same slug. Two foreign names can still have the same member name, if
/// one of them equals the derived name of the other, or if their hashes are equal. The hub then refuses the younger
/// item.
pub fn derive_cluster_name(foreign: &str) -> ClusterName {
    match valid_name(foreign) {
        Some(name) => name,
        None => {
            let hash = hex(&Sha256::digest(foreign.as_bytes())[..HASH_BYTES]);
            let name = format!("{}-{hash}", slug(foreign));
            ClusterName::new(&name).unwrap_or_else(|error| unreachable!("{error}"))
        }
    }
}

fn valid_name(name: &str) -> Option<ClusterName> {
    ClusterName::new(name).ok().filter(|name| name.as_str() != LOCAL)
}

/// Returns the letters and digits of a text in lower case, with one dash for each run of other characters.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for letter in text.chars() {
        if slug.len() == SLUG_MAX {
            break;
        }
        if letter.is_ascii_alphanumeric() {
            slug.push(letter.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { EMPTY_SLUG.to_owned() } else { slug.to_owned() }
}

/// Returns the name of the item's member: from the item's annotation, or derived from the foreign name if the
/// annotation is absent.
///
/// # Errors
/// The annotation is not a valid cluster name.
pub(crate) fn choose_cluster_name(
    foreign: &str,
    annotations: &BTreeMap<String, String>,
) -> Result<ClusterName, SourceRefusal> {
    let Some(given) = annotations.get(CLUSTER_NAME) else { return Ok(derive_cluster_name(foreign)) };
    valid_name(given).ok_or_else(|| {
        let message = format!(
            "The annotation {CLUSTER_NAME} is {given:?}. Give a DNS-1123 label of at most 63 characters other than \
             \"all\" and {LOCAL:?}."
        );
        SourceRefusal::new("InvalidName", message)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn valid_names_stay_and_other_names_get_a_slug_with_a_hash() {
        for name in ["eu", "kubernetes-admin-eu", "0", &"x".repeat(63)] {
            assert_eq!(derive_cluster_name(name).as_str(), name);
        }
        for (foreign, slug) in [
            ("all", "all"),
            ("local", "local"),
            ("*", "cluster"),
            ("", "cluster"),
            ("A.B", "a-b"),
            ("a.b", "a-b"),
            ("fleet/eu", "fleet-eu"),
            ("--x--", "x"),
            ("My cluster (EU)", "my-cluster-eu"),
            ("müller", "m-ller"),
            (&"x".repeat(253), &"x".repeat(52)),
            (&"x.".repeat(126), "x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x"),
        ] {
            let name = derive_cluster_name(foreign);
            let (readable, hash) = name.as_str().rsplit_once('-').unwrap();
            assert_eq!((readable, hash.len()), (slug, 10), "{foreign}");
        }
        assert_eq!(derive_cluster_name("A.B").as_str(), "a-b-4b861d8bb4");
    }

    #[test]
    fn annotation_chooses_a_valid_name() {
        let annotated = |name: &str| choose_cluster_name("A.B", &[(CLUSTER_NAME.to_owned(), name.to_owned())].into());
        assert_eq!(annotated("eu").unwrap().as_str(), "eu");
        for bad in ["all", "local", "*", "A.B", "", &"x".repeat(64)] {
            let refusal = annotated(bad).unwrap_err();
            assert_eq!(refusal.reason, "InvalidName", "{bad}");
            assert!(refusal.message.contains(CLUSTER_NAME), "{refusal:?}");
        }
    }

    fn foreign_name() -> impl Strategy<Value = String> {
        prop_oneof!["[a-bA-B.*/-]{0,4}", "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "\\PC{0,253}", "(all|local|ALL|\\*)"]
    }

    proptest! {
        #[test]
        fn names_are_valid_repeatable_and_distinct(first in foreign_name(), second in foreign_name()) {
            let name = derive_cluster_name(&first);
            prop_assert!(ClusterName::new(name.as_str()).is_ok() && name.as_str() != LOCAL);
            prop_assert_eq!(&name, &derive_cluster_name(&first));
            prop_assert_eq!(first == second, name == derive_cluster_name(&second));
            if ClusterName::new(&first).is_ok() && first != LOCAL {
                prop_assert_eq!(name.as_str(), first);
            }
        }
    }
}
