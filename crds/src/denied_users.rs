//! The file that says whom the endpoint answers nothing, whoever vouches for them.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::API_VERSION;

/// What `kind` says in the file.
const KIND: &str = "DeniedUsers";

/// Why a text does not say who is denied.
#[derive(Debug, thiserror::Error)]
pub enum DeniedUsersError {
    /// It is no YAML, or has other fields.
    #[error("it does not say who is denied: {0}")]
    Fields(#[from] Box<serde_saphyr::Error>),
    /// It is an object of another kind.
    #[error("apiVersion {api_version:?} with kind {kind:?} is not known; the file holds a {KIND} of {API_VERSION}")]
    Kind {
        /// What `apiVersion` says.
        api_version: String,
        /// What `kind` says.
        kind: String,
    },
    /// Nobody has an empty name.
    #[error("deniedUsers[{0}]: it is empty; give a user's name")]
    Empty(usize),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    denied_users: Vec<String>,
}

/// The names of the users who are denied, from YAML (or JSON): `apiVersion`, `kind: DeniedUsers`, `deniedUsers`.
///
/// # Errors
/// [`DeniedUsersError`]: nobody is denied by halves.
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
    fn users_are_named_one_by_one_or_the_file_is_refused() {
        let of = |rest: &str| parse(&format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\n{rest}"));
        let denied = of("deniedUsers:\n- ann\n- system:serviceaccount:shop:robot\n- ann\n").unwrap();
        assert_eq!(denied.into_iter().collect::<Vec<_>>(), ["ann", "system:serviceaccount:shop:robot"]);
        assert_eq!(of("deniedUsers: []\n").unwrap(), BTreeSet::new());
        for (text, problem) in [
            (String::new(), "it does not say who is denied"),
            ("- ann\n".to_owned(), "it does not say who is denied"),
            (format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\n"), "missing field"),
            (
                format!("apiVersion: {API_VERSION}\nkind: UpstreamCluster\ndeniedUsers: [a]\n"),
                "kind \"UpstreamCluster\"",
            ),
            ("apiVersion: v1\nkind: DeniedUsers\ndeniedUsers: [a]\n".to_owned(), "apiVersion \"v1\""),
            (format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\ndeniedUsers: ann\n"), "it does not say"),
            (format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\ndenied: [ann]\ndeniedUsers: []\n"), "denied"),
            (format!("apiVersion: {API_VERSION}\nkind: DeniedUsers\ndeniedUsers: [ann, ''\n]\n"), "deniedUsers[1]"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
