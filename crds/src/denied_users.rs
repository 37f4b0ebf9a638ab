//! The DeniedUsers file: users whose requests are refused, regardless of the authentication method.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::API_VERSION;

const KIND: &str = "DeniedUsers";

/// An error in a DeniedUsers file.
#[derive(Debug, thiserror::Error)]
pub enum DeniedUsersError {
    /// The text is not valid YAML, or its fields are wrong.
    #[error("the file is not a valid {KIND} object: {0}")]
    Fields(#[from] Box<serde_saphyr::Error>),
    /// The file has an object of a different kind.
    #[error(
        "apiVersion {api_version:?} with kind {kind:?} is not supported; the file must have kind {KIND} and apiVersion {API_VERSION}"
    )]
    Kind {
        /// The `apiVersion` of the file.
        api_version: String,
        /// The `kind` of the file.
        kind: String,
    },
    /// The entry of `deniedUsers` at this index is an empty name.
    #[error("deniedUsers[{0}] is empty; give the name of a user")]
    Empty(usize),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    denied_users: Vec<String>,
}

/// Parses the names of denied users from YAML or JSON with `apiVersion`, `kind: DeniedUsers` and `deniedUsers`.
///
/// # Errors
/// [`DeniedUsersError`]. A file with an error denies no user, so the caller must keep the previous file.
pub fn parse(text: &str) -> Result<BTreeSet<String>, DeniedUsersError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let document: Document = serde_saphyr::from_str_with_options(text, options).map_err(Box::new)?;
    let Document { api_version, kind, denied_users } = document;
    if (api_version.as_str(), kind.as_str()) != (API_VERSION, KIND) {
        return Err(DeniedUsersError::Kind { api_version, kind });
    }
    match denied_users.iter().position(String::is_empty) {
        Some(place) => Err(DeniedUsersError::Empty(place)),
        None => Ok(denied_users.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_users_file_with_an_error_is_refused_completely() {
        let of = |rest: &str| parse(&format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\n{rest}"));
        let denied = of("deniedUsers:\n- ann\n- system:serviceaccount:shop:robot\n- ann\n").unwrap();
        assert_eq!(denied.into_iter().collect::<Vec<_>>(), ["ann", "system:serviceaccount:shop:robot"]);
        assert_eq!(of("deniedUsers: []\n").unwrap(), BTreeSet::new());
        for (text, problem) in [
            (String::new(), "is not a valid DeniedUsers object"),
            ("- ann\n".to_owned(), "is not a valid DeniedUsers object"),
            (format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\n"), "missing field"),
            (
                format!("apiVersion: {API_VERSION}\nkind: UpstreamCluster\ndeniedUsers: [a]\n"),
                "kind \"UpstreamCluster\"",
            ),
            ("apiVersion: v1\nkind: DeniedUsers\ndeniedUsers: [a]\n".to_owned(), "apiVersion \"v1\""),
            (
                format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\ndeniedUsers: ann\n"),
                "is not a valid DeniedUsers object",
            ),
            (format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\ndenied: [ann]\ndeniedUsers: []\n"), "denied"),
            (format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\ndeniedUsers: [ann, ''\n]\n"), "deniedUsers[1]"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
