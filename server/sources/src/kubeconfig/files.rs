//! Resolves the files of the kubeconfig: the flag, or else `$KUBECONFIG`, or else `~/.kube/config`. Without I/O.
//!
//! Source: client-go `tools/clientcmd/loader.go` (`ClientConfigLoadingRules.Precedence`).

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

/// The error that neither a flag nor the environment names a kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no kubeconfig: neither --kubeconfig nor KUBECONFIG is given, and HOME is not set; name a file by --kubeconfig"
)]
pub struct NoKubeconfig;

/// The files of a kubeconfig. In a conflict, the first file takes precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigFiles {
    paths: Vec<PathBuf>,
    /// True if missing files are skipped. kubectl allows missing files in the list of `KUBECONFIG`.
    may_be_missing: bool,
}

impl KubeconfigFiles {
    /// Resolves the kubeconfig files from the flag, the environment variable and the home directory.
    ///
    /// # Errors
    /// [`NoKubeconfig`] if all three are missing.
    pub fn resolve(
        flag: Option<&Path>,
        environment: Option<&OsStr>,
        home: Option<&Path>,
    ) -> Result<Self, NoKubeconfig> {
        if let Some(path) = flag {
            return Ok(Self::one(path.to_owned()));
        }
        let listed: Vec<PathBuf> = environment
            .map(|list| std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect())
            .unwrap_or_default();
        if !listed.is_empty() {
            return Ok(Self { may_be_missing: listed.len() > 1, paths: listed });
        }
        let home = home.filter(|home| !home.as_os_str().is_empty()).ok_or(NoKubeconfig)?;
        Ok(Self::one(home.join(".kube/config")))
    }

    /// Creates a list with one kubeconfig file, which must exist.
    pub fn one(path: PathBuf) -> Self {
        Self { paths: vec![path], may_be_missing: false }
    }

    /// Returns the kubeconfig files in the order of precedence.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns whether missing kubeconfig files are skipped.
    pub fn may_be_missing(&self) -> bool {
        self.may_be_missing
    }
}

impl fmt::Display for KubeconfigFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        f.write_str(&paths.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfig_path_comes_from_flag_environment_or_home() {
        for (flag, environment, home, expected) in [
            (Some("/f"), Some("/e"), Some("/h"), "/f"),
            (None, Some("/e"), Some("/h"), "/e"),
            (None, Some("/e1:/e2"), Some("/h"), "/e1, /e2"),
            (None, Some(":/e1::"), Some("/h"), "/e1"),
            (None, Some(""), Some("/h"), "/h/.kube/config"),
            (None, None, Some("/h"), "/h/.kube/config"),
            (None, None, Some(""), "none"),
            (None, None, None, "none"),
        ] {
            let files = KubeconfigFiles::resolve(flag.map(Path::new), environment.map(OsStr::new), home.map(Path::new));
            let got = files.map_or("none".to_owned(), |files| files.to_string());
            assert_eq!(got, expected, "{flag:?} {environment:?} {home:?}");
        }
    }
}
