//! A discovery document, and the path that selects it.

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// A discovery document with its entity tag.
#[derive(Clone, Debug)]
pub struct Document {
    /// JSON text of the document.
    pub json: Bytes,
    /// Quoted strong entity tag: a digest of the text.
    pub etag: String,
}

impl Document {
    /// Creates a document with the JSON text of a value.
    pub fn new(value: &impl serde::Serialize) -> Self {
        let json = serde_json::to_vec(value).unwrap_or_default();
        let digest = Sha256::digest(&json);
        let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02X}")).collect();
        Self { json: json.into(), etag: format!("\"{hex}\"") }
    }
}

/// Path of a discovery document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoveryPath<'a> {
    /// `/`: all paths of the server.
    Root,
    /// `/api`: the core group.
    Core,
    /// `/apis`: all named groups.
    Groups,
    /// `/apis/<group>`: one named group.
    Group(&'a str),
    /// `/api/<version>` or `/apis/<group>/<version>`: one version with its resources.
    Version(&'a str, &'a str),
}

impl<'a> DiscoveryPath<'a> {
    /// Parses a request path. `None` if the path has no discovery document.
    pub fn parse(path: &'a str) -> Option<Self> {
        let mut segments = path.trim_matches('/').split('/');
        match (segments.next()?, segments.next(), segments.next(), segments.next()) {
            ("", None, None, None) => Some(Self::Root),
            ("api", None, None, None) => Some(Self::Core),
            ("apis", None, None, None) => Some(Self::Groups),
            ("api", Some(version), None, None) => Some(Self::Version("", version)),
            ("apis", Some(group), None, None) => Some(Self::Group(group)),
            ("apis", Some(group), Some(version), None) => Some(Self::Version(group, version)),
            _ => None,
        }
    }
}
