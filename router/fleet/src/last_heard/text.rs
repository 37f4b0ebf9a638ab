//! Text of the stored discovery and OpenAPI documents: JSON, compressed by gzip. Equal documents appear once.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tributary_answers::compression;
use tributary_apimachinery::ClusterName;
use tributary_sharing::limits::LAST_HEARD_BYTES;

use super::LastHeard;
use super::bounds::DOCUMENT_BYTES_MAX;
use crate::discovery::MemberDiscovery;
use crate::openapi::{DocumentKey, KnownMember, Spelling};
use crate::topology::{ClusterAddress, Served};

/// Version of the format of the text. Tributary refuses a stored text of a different version.
const LAYOUT: u32 = 1;

/// Reason for which a stored text cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LastHeardError {
    /// The stored file is no gzip file.
    #[error("the file cannot be decompressed")]
    Gzip(#[source] std::io::Error),
    /// The text is larger than any text that Tributary writes.
    #[error("the file has more than {LAST_HEARD_BYTES} bytes")]
    TooLarge,
    /// The JSON of the text has a different structure.
    #[error("the file has a wrong structure")]
    Json(#[from] serde_json::Error),
    /// A different program version wrote the text in a different format. The value is the version of the format.
    #[error("the file has layout {0}; this version of Tributary reads layout {LAYOUT}")]
    Layout(u32),
    /// The text refers to a document that the text does not contain. The value is the index of the document.
    #[error("the file refers to document {0}, which is missing")]
    NoDocument(usize),
}

#[derive(Serialize, Deserialize)]
struct LastHeardText {
    layout: u32,
    clusters: BTreeMap<ClusterName, ClusterText>,
    /// Texts of discovery documents and of lists of v3 documents. Clusters refer to them by index.
    texts: Vec<Box<RawValue>>,
    openapi: Vec<DocumentText>,
}

#[derive(Default, Serialize, Deserialize)]
struct ClusterText {
    /// Time of the last use in seconds since 1970. Only set for a cluster that was not configured in the process that
    /// wrote the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    discovery: Option<DiscoveryText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<Arc<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<ClusterAddress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    swagger: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct DiscoveryText {
    address: ClusterAddress,
    core: usize,
    named: usize,
}

#[derive(Serialize, Deserialize)]
struct DocumentText {
    path: String,
    tag: String,
    spelling: Spelling,
    /// The OpenAPI document, compressed by gzip, in base64.
    bytes: String,
}

impl LastHeard {
    /// Parses the text that [`KeepLastHeard`](super::KeepLastHeard) stores. Takes some 10 ms for each MB of text.
    ///
    /// # Errors
    /// [`LastHeardError`] gives the cause.
    pub fn read(text: &[u8]) -> Result<Self, LastHeardError> {
        let mut json = Vec::new();
        let limit = LAST_HEARD_BYTES as u64 + 1;
        GzDecoder::new(text).take(limit).read_to_end(&mut json).map_err(LastHeardError::Gzip)?;
        if json.len() > LAST_HEARD_BYTES {
            return Err(LastHeardError::TooLarge);
        }
        let LastHeardText { layout, clusters, texts, openapi } = serde_json::from_slice(&json)?;
        if layout != LAYOUT {
            return Err(LastHeardError::Layout(layout));
        }
        let (mut documents, mut indexes) = (Shared::new(&texts), Shared::new(&texts));
        let mut stored = Self::default();
        for (name, text) in clusters {
            if let Some(last_used_at) = text.kept_at {
                stored.others.insert(name.clone(), last_used_at);
            }
            if let Some(DiscoveryText { address, core, named }) = text.discovery {
                let (core, named) = (documents.get(core)?, documents.get(named)?);
                let discovery = Arc::new(MemberDiscovery { core, named });
                stored.discovery.insert(name.clone(), Served { address, discovery });
            }
            let index = text.index.map(|at| indexes.get(at)).transpose()?;
            let known = KnownMember { uid: text.uid, address: text.address, index, swagger: text.swagger };
            if known != KnownMember::default() {
                stored.openapi.members.insert(name, known);
            }
        }
        stored.openapi.documents = openapi.into_iter().filter_map(DocumentText::read).collect();
        Ok(stored)
    }

    /// Writes the text. Documents that exceed the size limit are omitted. The text contains discovery documents before
    /// OpenAPI documents, clusters of this process before clusters of other processes, and clusters in the order of
    /// their names. Takes some 10 ms for each MB of text.
    pub fn to_text(&self) -> Vec<u8> {
        let mut made = TextBuilder::default();
        for is_other in [false, true] {
            for (name, served) in self.discovery.iter().filter(|(name, _)| self.others.contains_key(*name) == is_other)
            {
                made.discovery(name, served);
            }
        }
        for is_other in [false, true] {
            let members = self.openapi.members.iter();
            for (name, known) in members.filter(|(name, _)| self.others.contains_key(*name) == is_other) {
                made.add_openapi(name, known);
            }
        }
        for (name, last_used_at) in &self.others {
            made.clusters.entry(name.clone()).and_modify(|own| own.kept_at = Some(*last_used_at));
        }
        for (key, bytes) in &self.openapi.documents {
            made.document(key, bytes);
        }
        if made.left_out > 0 {
            tracing::warn!(
                documents = made.left_out,
                bound_bytes = LAST_HEARD_BYTES,
                "the discovery of the clusters is too large for the data directory; if a cluster is down at the next start, its kinds or its texts for `kubectl explain` may be missing"
            );
        }
        let text = LastHeardText { layout: LAYOUT, clusters: made.clusters, texts: made.texts, openapi: made.openapi };
        compression::whole(&serde_json::to_vec(&text).unwrap_or_default())
    }
}

#[derive(Default)]
struct TextBuilder {
    clusters: BTreeMap<ClusterName, ClusterText>,
    texts: Vec<Box<RawValue>>,
    indexes: HashMap<String, usize>,
    /// Indexes of the documents that are already in the text, by memory address. Clusters share most documents, so each
    /// is written once.
    written: HashMap<usize, usize>,
    openapi: Vec<DocumentText>,
    bytes: usize,
    left_out: usize,
}

/// Estimated size of a cluster or document without its texts, in bytes: names, tags and punctuation.
const ENTRY_BYTES: usize = 512;

impl TextBuilder {
    fn discovery(&mut self, name: &ClusterName, served: &Served) {
        let MemberDiscovery { core, named } = &*served.discovery;
        if let (Some(core), Some(named)) = (self.text(core), self.text(named))
            && self.reserve(ENTRY_BYTES)
        {
            let discovery = Some(DiscoveryText { address: served.address.clone(), core, named });
            self.clusters.insert(name.clone(), ClusterText { discovery, ..ClusterText::default() });
        }
    }

    fn add_openapi(&mut self, name: &ClusterName, known: &KnownMember) {
        let swagger_bytes = known.swagger.as_ref().map_or(0, String::len);
        if !self.reserve(ENTRY_BYTES + swagger_bytes) {
            return;
        }
        let index = known.index.as_ref().and_then(|index| self.text(index));
        let own = self.clusters.entry(name.clone()).or_default();
        (own.uid, own.address) = (known.uid.clone(), known.address.clone());
        (own.index, own.swagger) = (index, known.swagger.clone());
    }

    fn document(&mut self, key: &DocumentKey, bytes: &[u8]) {
        let DocumentKey { path, tag, spelling, .. } = key.clone();
        // Base64 has four letters for three bytes.
        if self.reserve(ENTRY_BYTES + path.len() + tag.len() + bytes.len() / 3 * 4) {
            self.openapi.push(DocumentText { path, tag, spelling, bytes: STANDARD.encode(bytes) });
        }
    }

    /// Writes a value, and returns the index of its text. `None` if the size limit is reached.
    fn text<T: Serialize>(&mut self, value: &Arc<T>) -> Option<usize> {
        // All values outlive this builder, so equal addresses mean the same document.
        let address = Arc::as_ptr(value).addr();
        if let Some(index_of_text) = self.written.get(&address) {
            return Some(*index_of_text);
        }
        let text = serde_json::value::to_raw_value(value).ok()?;
        if let Some(index_of_text) = self.indexes.get(text.get()) {
            self.written.insert(address, *index_of_text);
            return Some(*index_of_text);
        }
        if text.get().len() > DOCUMENT_BYTES_MAX {
            self.left_out += 1;
            return None;
        }
        if !self.reserve(text.get().len()) {
            return None;
        }
        let index_of_text = self.texts.len();
        self.indexes.insert(text.get().to_owned(), index_of_text);
        self.written.insert(address, index_of_text);
        self.texts.push(text);
        Some(index_of_text)
    }

    /// Reserves a number of bytes of the size limit. Returns false if they exceed the limit.
    fn reserve(&mut self, bytes: usize) -> bool {
        let fits = self.bytes + bytes <= LAST_HEARD_BYTES;
        match fits {
            true => self.bytes += bytes,
            false => self.left_out += 1,
        }
        fits
    }
}

struct Shared<'a, T> {
    texts: &'a [Box<RawValue>],
    read: HashMap<usize, Arc<T>>,
}

impl<'a, T: DeserializeOwned> Shared<'a, T> {
    fn new(texts: &'a [Box<RawValue>]) -> Self {
        Self { texts, read: HashMap::new() }
    }

    fn get(&mut self, index_of_text: usize) -> Result<Arc<T>, LastHeardError> {
        if let Some(known) = self.read.get(&index_of_text) {
            return Ok(Arc::clone(known));
        }
        let text = self.texts.get(index_of_text).ok_or(LastHeardError::NoDocument(index_of_text))?;
        let value: Arc<T> = Arc::new(serde_json::from_str(text.get())?);
        self.read.insert(index_of_text, Arc::clone(&value));
        Ok(value)
    }
}

impl DocumentText {
    /// Decodes the document. Returns `None` if its bytes are damaged; the document is then requested from the cluster
    /// again.
    fn read(self) -> Option<(DocumentKey, bytes::Bytes)> {
        let Self { path, tag, spelling, bytes } = self;
        let bytes = STANDARD.decode(bytes).ok()?;
        Some((DocumentKey { path, tag, spelling, gzip: true }, bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::model::{Group, GroupList, GroupMetadata};
    use crate::openapi::KnownOpenApi;

    fn document(group: &str) -> Arc<GroupList> {
        let metadata = GroupMetadata { name: group.to_owned(), ..GroupMetadata::default() };
        GroupList::new(vec![Group { metadata, versions: Vec::new(), unreadable: None }]).into()
    }

    fn example_state() -> LastHeard {
        let (core, apps) = (document(""), document("apps"));
        let of = |named: &Arc<GroupList>| {
            let discovery = Arc::new(MemberDiscovery { core: Arc::clone(&core), named: Arc::clone(named) });
            Served { address: ClusterAddress::from_description("there"), discovery }
        };
        // The cluster c has an equal document at a different address in memory.
        let served = [("a", of(&apps)), ("b", of(&apps)), ("c", of(&document("apps"))), ("d", of(&document("other")))];
        let name = |name: &str| ClusterName::new(name).unwrap();
        let discovery = served.into_iter().map(|(own, served)| (name(own), served)).collect();
        let index = serde_json::from_str(r#"{"apis/apps/v1":"X"}"#);
        let known = KnownMember {
            uid: Some(Arc::new("uid".to_owned())),
            address: Some(ClusterAddress::from_description("there")),
            index: Some(Arc::new(index.unwrap())),
            swagger: Some("TAG".to_owned()),
        };
        let key = DocumentKey {
            path: "/openapi/v3/apis/apps/v1".into(),
            tag: "X".into(),
            spelling: Spelling::Protobuf,
            gzip: true,
        };
        let openapi = KnownOpenApi {
            members: [(name("a"), known)].into(),
            documents: vec![(key, bytes::Bytes::from_static(&[0, 159, 146, 150]))],
        };
        LastHeard { discovery, openapi, others: BTreeMap::new() }
    }

    #[test]
    fn stored_discovery_and_openapi_documents_are_read_back_unchanged() {
        let stored = example_state();
        let read = LastHeard::read(&stored.to_text()).unwrap();
        assert_eq!(read, stored);
        let of = |name: &str| Arc::clone(&read.discovery[&ClusterName::new(name).unwrap()].discovery.named);
        assert!(Arc::ptr_eq(&of("a"), &of("c")) && !Arc::ptr_eq(&of("a"), &of("d")), "equal documents are held once");
        assert_eq!(LastHeard::read(&LastHeard::default().to_text()).unwrap(), LastHeard::default());
    }

    #[test]
    fn stored_documents_of_unconfigured_clusters_stay_for_thirty_days() {
        use std::time::{Duration, SystemTime};
        let at = |days: u64| SystemTime::UNIX_EPOCH + Duration::from_secs((20_000 + days) * 24 * 3600);
        // A second process is configured with the clusters c and z. The first process lacks z.
        let mut own = example_state();
        own.discovery.retain(|name, _| name.as_str() == "c");
        own.discovery.insert(ClusterName::new("z").unwrap(), own.discovery[&ClusterName::new("c").unwrap()].clone());
        own.openapi = KnownOpenApi::default();
        let mut text = example_state().to_text();
        for (day, expected) in [(0, "abcdz"), (29, "abcdz"), (30, "abcdz"), (31, "cz")] {
            let joined = own.clone().with_others(LastHeard::read(&text).unwrap(), at(day));
            assert_eq!(joined.own_names(), ["c", "z"], "{day}");
            text = joined.to_text();
            let read = LastHeard::read(&text).unwrap();
            assert_eq!(read, joined, "{day}");
            let names: String = read.discovery.keys().map(ClusterName::as_str).collect();
            assert_eq!(
                (&*names, read.openapi.documents.len()),
                (expected, usize::from(expected.contains('a'))),
                "{day}"
            );
        }
        // A cluster that is configured again is used now, so it no longer has a time of last use. A clock that is set
        // back removes no cluster.
        let again = example_state().with_others(own.clone().with_others(example_state(), at(0)), at(100));
        assert_eq!(again.others.keys().map(ClusterName::as_str).collect::<Vec<_>>(), ["z"]);
        let back = own.clone().with_others(own.clone().with_others(example_state(), at(50)), at(3));
        assert_eq!(back.own_names(), ["c", "z"]);
        let back = own.with_others(
            LastHeard { others: [(ClusterName::new("a").unwrap(), u64::MAX)].into(), ..example_state() },
            at(3),
        );
        assert_eq!(back.others.len(), 3);
    }

    #[test]
    fn invalid_stored_discovery_is_refused() {
        let error = |json: &str| LastHeard::read(&compression::whole(json.as_bytes())).unwrap_err().to_string();
        assert_eq!(LastHeard::read(b"{}").unwrap_err().to_string(), "the file cannot be decompressed");
        assert_eq!(error("{}"), "the file has a wrong structure");
        let other = r#"{"layout":7,"clusters":{},"texts":[],"openapi":[]}"#;
        assert_eq!(error(other), "the file has layout 7; this version of Tributary reads layout 1");
        let missing = r#"{"layout":1,"clusters":{"a":{"discovery":{"address":"x","core":0,"named":1}}},"texts":[{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2"}],"openapi":[]}"#;
        assert_eq!(error(missing), "the file refers to document 1, which is missing");
        let whole = example_state().to_text();
        assert!(LastHeard::read(&whole[..whole.len() / 2]).is_err());
        let bomb = compression::whole(&vec![b' '; LAST_HEARD_BYTES + 2]);
        assert!(matches!(LastHeard::read(&bomb), Err(LastHeardError::TooLarge)));
    }

    #[test]
    fn stored_discovery_omits_oversized_documents() {
        let mut stored = example_state();
        let huge = MemberDiscovery { core: document(""), named: document(&"a".repeat(DOCUMENT_BYTES_MAX)) };
        let served = Served { address: ClusterAddress::from_description("there"), discovery: Arc::new(huge) };
        stored.discovery.insert(ClusterName::new("a-huge-one").unwrap(), served);
        let (key, _) = stored.openapi.documents[0].clone();
        let large = bytes::Bytes::from(vec![0; LAST_HEARD_BYTES / 4 * 3]);
        stored.openapi.documents = vec![(key.clone(), large), (key, bytes::Bytes::from_static(b"small"))];
        let read = LastHeard::read(&stored.to_text()).unwrap();
        stored.discovery.remove(&ClusterName::new("a-huge-one").unwrap());
        assert_eq!(read.discovery, stored.discovery);
        assert_eq!(read.openapi.documents.len(), 1);
        assert_eq!(read.openapi.documents[0].1, "small");
    }
}
