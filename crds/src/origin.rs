//! The place of an object in the files of a configuration.

use std::fmt;
use std::path::PathBuf;

/// The position of a document in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The path of the file, as the command line or the directory names it.
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
