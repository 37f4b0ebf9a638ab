//! `tributary kubeconfig remove`: removes the entries of `serve --merge-into-kubeconfig` from a kubeconfig, even while
//! a server runs.

pub mod user;

use std::path::Path;

use tributary_sources::kubeconfig::entries::Removal;
use tributary_sources::kubeconfig::users_file::{self, UsersFileError};

use crate::cli::RemoveArguments;
use crate::exit::Failure;
use crate::output::print;

/// Removes the entries and prints their names.
///
/// # Errors
/// A usage failure for a file that cannot be changed, and a runtime failure of the machine.
pub async fn remove(arguments: RemoveArguments) -> Result<(), Failure> {
    let (paths, may_be_missing) = match arguments.file {
        Some(path) => (vec![path], false),
        None => {
            let files = users_file::default_files().map_err(Failure::usage)?;
            (files.paths().to_vec(), files.may_be_missing())
        }
    };
    for path in paths {
        match users_file::remove_entries(path.clone()).await {
            Ok(removal) => print(&describe_removal(&path, removal)),
            Err(UsersFileError::Missing(_)) if may_be_missing => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn describe_removal(path: &Path, removal: Option<Removal>) -> String {
    let path = path.display();
    let Some(Removal { contexts, current, .. }) = removal else {
        return format!("{path} has no entries of tributary\n");
    };
    let mut text = format!("removed from {path}: {}\n", contexts.join(", "));
    if let Some(current) = current {
        text.push_str(&format!(
            "current-context is still {current}, which is gone; choose another one by `kubectl config use-context`\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_message_lists_the_removed_contexts() {
        let path = Path::new("config");
        assert_eq!(describe_removal(path, None), "config has no entries of tributary\n");
        let contexts = vec!["tributary-all".to_owned(), "tributary-eu".to_owned()];
        let removal = Removal { text: String::new(), contexts, current: Some("tributary-eu".to_owned()) };
        let text = describe_removal(path, Some(removal));
        assert!(text.starts_with("removed from config: tributary-all, tributary-eu\n"), "{text}");
        assert!(text.contains("current-context is still tributary-eu"), "{text}");
    }
}
