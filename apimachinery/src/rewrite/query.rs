//! Rewrites query strings for a member: the `resourceVersion` of a delete, which is a precondition
//! (`Convert_url_Values_To_v1_DeleteOptions` in apimachinery), and clusters in a label selector.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Translate, VersionOf, translate};
use crate::filter::CLUSTER_LABEL;
use crate::{ClusterSelector, LabelSelector, Query, Status};

/// Replaces each value of `resourceVersion` by its translation; all other bytes stay unchanged.
///
/// # Errors
/// The errors of `version`.
pub fn rewrite_query(query: &str, version: Translate<'_>) -> Result<String, Status> {
    let mut pairs = Vec::new();
    for pair in query.split('&') {
        let parsed = Query::parse(Some(pair));
        let translated = match parsed.get("resourceVersion") {
            Some(old) => translate(VersionOf::Object, version, old)?,
            None => None,
        };
        pairs.push(match translated {
            Some(new) => format!("resourceVersion={}", utf8_percent_encode(&new, NON_ALPHANUMERIC)),
            None => pair.to_owned(),
        });
    }
    Ok(pairs.join("&"))
}

/// Removes each parameter with this name, also if the name is escaped. All other bytes stay unchanged.
pub fn without_parameter(query: &str, name: &str) -> String {
    let parameters: Vec<_> = query.split('&').filter(|pair| Query::parse(Some(pair)).get(name).is_none()).collect();
    parameters.join("&")
}

/// Removes the requirements on clusters from each `labelSelector`; all other bytes stay unchanged. A selector without
/// remaining requirements stays as an empty selector, because a member uses only the first of several selectors.
///
/// # Errors
/// 400 for a malformed selector, and for an order comparison of clusters.
pub fn without_clusters(query: &str) -> Result<String, Status> {
    let mut pairs = Vec::new();
    for pair in query.split('&') {
        let parsed = Query::parse(Some(pair));
        let selector = parsed.get("labelSelector").map(LabelSelector::parse).transpose();
        let selector = selector.map_err(|error| Status::bad_request(error.to_string()))?;
        pairs.push(match selector {
            Some(selector) if selector.requirements().iter().any(|it| it.key() == CLUSTER_LABEL) => {
                let (labels, _) = ClusterSelector::split(&selector)?;
                format!("labelSelector={}", utf8_percent_encode(&labels.to_string(), NON_ALPHANUMERIC))
            }
            _ => pair.to_owned(),
        });
    }
    Ok(pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameter_is_removed_despite_escapes_in_its_name() {
        for (query, expected) in [
            ("a=b&resourceVersion=x&c", "a=b&c"),
            ("resource%56ersion=x", ""),
            ("%72esourceVersion=x&resourceVersion&a=%zz", "a=%zz"),
            ("resourceVersionMatch=x&xresourceVersion=1", "resourceVersionMatch=x&xresourceVersion=1"),
            ("", ""),
        ] {
            assert_eq!(without_parameter(query, "resourceVersion"), expected, "{query}");
        }
    }

    #[test]
    fn label_requirements_on_the_cluster_are_removed_from_a_members_query() {
        let cases = [
            ("", ""),
            ("limit=5&labelSelector=a%3Db,c", "limit=5&labelSelector=a%3Db,c"),
            ("labelSelector=tributary.dev/cluster%3Da", "labelSelector="),
            ("label%53elector=%21tributary.dev%2Fcluster&x=%zz", "labelSelector=&x=%zz"),
            (
                "labelSelector=tributary.dev/cluster+in+(a,b),x+notin+(y,z)&labelSelector=q",
                "labelSelector=x%20notin%20%28y%2Cz%29&labelSelector=q",
            ),
        ];
        for (query, expected) in cases {
            assert_eq!(without_clusters(query).as_deref(), Ok(expected), "{query}");
        }
        for bad in ["labelSelector=tributary.dev/cluster%3E1", "labelSelector=a%20in"] {
            assert_eq!(without_clusters(bad).unwrap_err().code, 400, "{bad}");
        }
    }
}
