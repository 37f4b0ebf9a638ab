//! The place of an object in the files of a configuration.

use std::fmt;
use std::path::PathBuf;

/// Where a document stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file.
    pub file: PathBuf,
    /// The document's number in the file, from 1; empty documents do not count.
    pub document: usize,
    /// The line that the document begins at, from 1.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {} (line {})", self.file.display(), self.document, self.line)
    }
}
