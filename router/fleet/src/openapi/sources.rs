//! Mapping from OpenAPI documents to the clusters that have them. This module does no I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha512};
use tributary_apimachinery::json::null_is_default;

use crate::topology::Cluster;

/// Maximum number of documents in a cluster's list. 8,192: a kube-apiserver has 50, and a thousand with the largest
/// sets of CustomResourceDefinitions. The limit is necessary because each client's request for the list joins the lists
/// of all clusters.
const DOCUMENTS_MAX: usize = 8_192;

/// Maximum length of a hash in bytes. 256, because kube-apiserver's hashes have 128.
const HASH_BYTES_MAX: usize = 256;

/// A cluster's list of v3 documents. The list maps a path (`apis/apps/v1`) to the hash of the document, if the cluster
/// gives one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenApiIndex(pub(super) BTreeMap<String, Option<String>>);

impl OpenApiIndex {
    pub(super) fn hashes(&self) -> impl Iterator<Item = &str> {
        self.0.values().filter_map(Option::as_deref)
    }

    /// Parses a cluster's answer to `/openapi/v3`.
    ///
    /// # Errors
    /// The error of the JSON parser.
    pub(super) fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Root {
            #[serde(default, deserialize_with = "null_is_default")]
            paths: BTreeMap<String, Option<Entry>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Entry {
            #[serde(rename = "serverRelativeURL", default, deserialize_with = "null_is_default")]
            server_relative_url: String,
        }
        let root: Root = serde_json::from_slice(text)?;
        let hash = |entry: &Entry| {
            let query = entry.server_relative_url.split_once('?')?.1;
            let hash = query.split('&').find_map(|pair| pair.strip_prefix("hash="))?;
            (1..=HASH_BYTES_MAX).contains(&hash.len()).then(|| hash.to_owned())
        };
        let paths = root.paths.iter().take(DOCUMENTS_MAX);
        Ok(Self(paths.map(|(path, entry)| (path.clone(), entry.as_ref().and_then(hash))).collect()))
    }
}

/// Sources of one document of the merged view: the distinct documents and their clusters.
#[derive(Clone)]
pub(super) struct DocumentSources<C = Arc<Cluster>> {
    pub(super) distinct: Vec<DocumentSource<C>>,
}

#[derive(Clone)]
pub(super) struct DocumentSource<C = Arc<Cluster>> {
    /// Entity tag of the document. `None` if the cluster announces no tag. Without a tag, Tributary must request the
    /// document for each use.
    pub(super) tag: Option<String>,
    /// Clusters that have the document.
    pub(super) clusters: Vec<C>,
}

impl<C> Default for DocumentSources<C> {
    fn default() -> Self {
        Self { distinct: Vec::new() }
    }
}

impl<C> DocumentSources<C> {
    /// Adds a cluster with lower precedence than all clusters before.
    pub(super) fn add(&mut self, cluster: C, tag: Option<String>) {
        match self.distinct.iter_mut().find(|source| tag.is_some() && source.tag == tag) {
            Some(source) => source.clusters.push(cluster),
            None => self.distinct.push(DocumentSource { tag, clusters: vec![cluster] }),
        }
    }

    /// Returns the tag of the joined document: the clusters' tag if all tags are equal, else a digest of the different
    /// tags in order. The computation reads no document, and gives the same tag in all replicas.
    pub(super) fn tag(&self) -> Option<String> {
        let tags: Option<Vec<&str>> = self.distinct.iter().map(|source| source.tag.as_deref()).collect();
        match &tags?[..] {
            [] => None,
            [only] => Some((*only).to_owned()),
            several => Some(digest(several.join(",").as_bytes())),
        }
    }
}

/// Joins the clusters' lists of documents, by path. `indexes` are sorted by precedence.
pub(super) fn joined<C: Clone>(indexes: &[(C, Arc<OpenApiIndex>)]) -> BTreeMap<String, DocumentSources<C>> {
    let mut joined: BTreeMap<String, DocumentSources<C>> = BTreeMap::new();
    for (cluster, index) in indexes {
        for (path, hash) in &index.0 {
            joined.entry(path.clone()).or_default().add(cluster.clone(), hash.clone());
        }
    }
    joined
}

/// Digest in kube-apiserver's form: SHA-512 in upper-case hexadecimal.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &[(&str, &str)]) -> Arc<OpenApiIndex> {
        let paths: serde_json::Map<_, _> = entries
            .iter()
            .map(|(path, query)| {
                let url = format!("/openapi/v3/{path}{query}");
                ((*path).to_owned(), serde_json::json!({ "serverRelativeURL": url }))
            })
            .collect();
        Arc::new(OpenApiIndex::parse(serde_json::json!({ "paths": paths }).to_string().as_bytes()).unwrap())
    }

    #[test]
    fn equal_openapi_documents_form_one_source_and_keep_their_hash() {
        let joined = joined(&[
            ("new", index(&[("api/v1", "?hash=A"), ("apis/x/v1", "?a=b&hash=X"), ("apis/odd/v1", "")])),
            ("old", index(&[("api/v1", "?hash=A"), ("apis/x/v1", "?hash=Y"), ("apis/y/v1", "?hash=")])),
        ]);
        let tag = |path: &str| joined[path].tag();
        assert_eq!(tag("api/v1").as_deref(), Some("A"));
        assert_eq!(joined["api/v1"].distinct[0].clusters, ["new", "old"]);
        assert_eq!(tag("apis/x/v1"), Some(digest(b"X,Y")));
        assert_eq!((tag("apis/odd/v1"), tag("apis/y/v1")), (None, None));
        assert_eq!(joined.len(), 4);
        assert!(OpenApiIndex::parse(b"7").is_err());
    }
}
