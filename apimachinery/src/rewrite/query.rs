//! What a query string for a member may not hold as a client wrote it: versions in that of a delete, where
//! `resourceVersion=` is a precondition (`Convert_url_Values_To_v1_DeleteOptions` in apimachinery),
//! and clusters in a label selector.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Translate, VersionOf, translate};
use crate::filter::CLUSTER_LABEL;
use crate::{ClusterSelector, LabelSelector, Query, Status};

/// Replaces every value of `resourceVersion` by what `version` makes of it; everything else stays byte for byte.
///
/// # Errors
/// What `version` answers.
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

/// Removes each parameter of this name, with any escapes in the name. Every other byte stays.
pub fn without_parameter(query: &str, name: &str) -> String {
    let kept: Vec<_> = query.split('&').filter(|pair| Query::parse(Some(pair)).get(name).is_none()).collect();
    kept.join("&")
}

/// Takes the requirements on clusters out of every `labelSelector`; everything else stays byte for byte. A selector of
/// which nothing is left stays as an empty one: of a parameter given twice the first counts.
///
/// # Errors
/// 400 for a selector that does not parse or compares clusters.
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
    fn a_parameter_is_taken_out_however_its_name_is_escaped() {
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
    fn members_are_not_asked_for_clusters() {
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
