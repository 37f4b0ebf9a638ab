//! Which cluster owns the object of a name: a pure decision, so that a table can test it. Whoever looked into memory,
//! and whoever asked the clusters, decides here.

use tributary_apimachinery::{ClusterName, GroupVersionResource};

use crate::refusal::{ClusterRefusal, Refusal};
use crate::request::ClientRequest;
use crate::topology::Fleet;

/// Why no cluster owns a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoOwner {
    /// No cluster has it, and all are known. Controllers read this as deleted.
    Nowhere,
    /// The clusters that are known do not have it, or not the one that is named; these may.
    Unknown(Vec<ClusterName>),
    /// These have it, and none is named.
    Several(Vec<ClusterName>),
    /// Another cluster has it than is named.
    Elsewhere {
        /// The one that is named.
        named: String,
        /// The one that has it.
        owner: ClusterName,
    },
}

/// The place of the owner among the clusters that have an object of the name. `unknown` are those of which it is not
/// known: they count where no other has it, or the one that is named is among them. `named` is the cluster that the
/// body's annotation names: it chooses among several, and must be the owner.
///
/// # Errors
/// Why there is no owner.
pub(crate) fn owner<'a>(
    found: &[&ClusterName],
    unknown: impl Iterator<Item = &'a ClusterName>,
    named: Option<&str>,
) -> Result<usize, NoOwner> {
    match (found, named) {
        ([], _) => {
            let unknown: Vec<_> = unknown.cloned().collect();
            Err(if unknown.is_empty() { NoOwner::Nowhere } else { NoOwner::Unknown(unknown) })
        }
        ([_], None) => Ok(0),
        (several, None) => Err(NoOwner::Several(several.iter().copied().cloned().collect())),
        ([first, ..], Some(named)) => {
            let is_named = |cluster: &ClusterName| cluster.as_str() == named;
            found.iter().position(|cluster| is_named(cluster)).ok_or_else(|| {
                let unknown: Vec<_> = unknown.cloned().collect();
                match unknown.iter().any(is_named) {
                    true => NoOwner::Unknown(unknown),
                    false => NoOwner::Elsewhere { named: named.to_owned(), owner: (*first).clone() },
                }
            })
        }
    }
}

impl NoOwner {
    /// What a client is told that asks for the name: 404, 503 or 409.
    pub(crate) fn refusal(self, request: ClientRequest<'_>) -> Refusal {
        let resource = request.resource.resource.clone();
        let name = request.resource.name.clone().unwrap_or_default();
        let refusal = match self {
            Self::Nowhere => ClusterRefusal::NotFound { resource, name },
            Self::Unknown(clusters) => unknown(request.router.fleet(), resource, name, &clusters),
            Self::Several(clusters) => {
                ClusterRefusal::Ambiguous { resource, name, clusters, path: request.info.path.clone() }
            }
            Self::Elsewhere { named, owner } => ClusterRefusal::Elsewhere { resource, name, named, owner },
        };
        refusal.into()
    }
}

/// 503: not found in the clusters that are known. The advice to come again soon is given where the others may soon be
/// known, too. The name is empty where the resource itself was not found.
pub(crate) fn unknown(
    fleet: &Fleet,
    resource: GroupVersionResource,
    name: String,
    clusters: &[ClusterName],
) -> ClusterRefusal {
    let clusters: Vec<_> = clusters.iter().filter_map(|name| fleet.cluster(name)).collect();
    let is_gone = clusters.iter().any(|cluster| cluster.is_gone());
    let unknown = clusters.iter().map(|cluster| cluster.trouble()).collect();
    ClusterRefusal::Unknown { resource, name, unknown, is_gone }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_it_and_who_is_named_decide() {
        let names =
            |text: &str| -> Vec<_> { text.split_whitespace().map(|it| ClusterName::new(it).unwrap()).collect() };
        let nowhere = Err(NoOwner::Nowhere);
        let unknown = |clusters| Err(NoOwner::Unknown(names(clusters)));
        let several = |clusters| Err(NoOwner::Several(names(clusters)));
        let elsewhere = |named: &str, owner| {
            Err(NoOwner::Elsewhere { named: named.to_owned(), owner: ClusterName::new(owner).unwrap() })
        };
        for (found, not_known, named, expected) in [
            ("", "", None, nowhere.clone()),
            ("", "", Some("a"), nowhere),
            ("", "b c", None, unknown("b c")),
            ("", "b c", Some("a"), unknown("b c")),
            ("a", "", None, Ok(0)),
            ("a", "b", None, Ok(0)),
            ("a b", "", None, several("a b")),
            ("a b", "c", None, several("a b")),
            ("a b", "", Some("b"), Ok(1)),
            ("a", "b", Some("a"), Ok(0)),
            ("a", "", Some("b"), elsewhere("b", "a")),
            ("a", "c", Some("b"), elsewhere("b", "a")),
            ("a", "b c", Some("b"), unknown("b c")),
            ("a b", "c", Some("c"), unknown("c")),
            ("a b", "", Some("nobody's"), elsewhere("nobody's", "a")),
        ] {
            let (has, may) = (names(found), names(not_known));
            let has: Vec<_> = has.iter().collect();
            assert_eq!(owner(&has, may.iter(), named), expected, "{found}; {not_known}; {named:?}");
        }
    }
}
