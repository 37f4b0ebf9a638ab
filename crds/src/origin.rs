//! The position of an object in the files of a configuration.

use std::fmt;
use std::path::PathBuf;

/// The position of a document in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The path of the file.
    pub file: PathBuf,
    /// The number of the document in the file, from 1, without empty documents.
    pub document: usize,
    /// The first line of the document, from 1.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {} (line {})", self.file.display(), self.document, self.line)
    }
}
