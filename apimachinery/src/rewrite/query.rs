//! Versions in the query string of a delete: `resourceVersion=` is a precondition there
//! (`Convert_url_Values_To_v1_DeleteOptions` in apimachinery).

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Translate, VersionOf, translate};
use crate::{Query, Status};

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
