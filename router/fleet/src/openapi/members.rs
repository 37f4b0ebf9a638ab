//! OpenAPI documents of the clusters. Tributary requests them when a client requests a document, and joins them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{join_all, try_join_all};
use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tributary_answers::compression::{self, THRESHOLD_BYTES};
use tributary_answers::refusal::MemberRefusal;
use tributary_apimachinery::{ClusterName, explain};

use super::cache::{Cache, DocumentKey, EncodedDocument};
use super::fetch::{self, OpenApiFetchError};
use super::hash_mismatches::HashMismatches;
use super::join::{SchemaVersion, Spelling, join, unreadable};
use super::known::{KnownMember, KnownOpenApi};
use super::last::{Freshness, LastAnswers, LastDocuments, OpenApiPart};
use super::sources::{DocumentSource, DocumentSources, OpenApiIndex, digest, joined};
use crate::topology::{Cluster, Fleet};

/// Minimum time between two requests for a cluster's list of documents, for any number of clients. 2 s: the next
/// kubectl command sees a schema that was just changed, and a cluster sends at most one answer of 10 KB in this time.
const ASK_INTERVAL: Duration = Duration::from_secs(2);

pub(super) const V2_PATH: &str = "/openapi/v2";

/// Maximum number of attempts to join documents that change during the join. After the last attempt, the client gets an
/// error. Three: the first attempt, one after a change, and one after a cluster's wrong hash.
const ROUNDS_MAX: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct OpenApiForm {
    pub(super) schema: SchemaVersion,
    pub(super) spelling: Spelling,
    /// Whether the client accepts gzip.
    pub(super) gzip: bool,
}

pub(super) struct OpenApiDocument {
    pub(super) made: EncodedDocument,
    pub(super) tag: String,
}

/// Documents of the clusters. Tributary requests documents from a cluster only when a client requests documents.
pub(super) struct Documents {
    fleet: Arc<Fleet>,
    members: Mutex<Vec<Arc<OpenApiMember>>>,
    cache: Cache,
    last: LastDocuments,
    last_answers: Mutex<BTreeMap<ClusterName, Arc<LastAnswers>>>,
    /// Notified when the last known documents change.
    news: Arc<Notify>,
    /// Last logged reason why a joined document omits a cluster's document, by cluster and path. Each reason is logged
    /// once.
    unreadable: Mutex<BTreeMap<(ClusterName, String), String>>,
    hash_mismatches: HashMismatches,
}

struct OpenApiMember {
    cluster: Arc<Cluster>,
    index: CachedAnswer<Freshness<Arc<OpenApiIndex>>>,
    /// Cached entity tag of the member's v2 document, for each encoding.
    swaggers: [CachedAnswer<Freshness<String>>; 2],
    last: Arc<LastAnswers>,
}

/// Selectors of a member's known documents: `INDEX` for the list of v3 documents, `SWAGGER` for the tag of the v2
/// document.
const INDEX: OpenApiPart<Arc<OpenApiIndex>> = |known| &mut known.index;
const SWAGGER: OpenApiPart<String> = |known| &mut known.swagger;

/// Cached answer with the time of its request. The outer `None` means that no request has been sent, the inner `None`
/// that the cluster gave no answer.
type CachedAnswer<T> = tokio::sync::Mutex<Option<(Instant, Option<T>)>>;

enum DocumentFailure {
    /// The hash of a cluster's document differs from the hash in the cluster's list, so the list is out of date.
    OutOfDate,
    Refused(MemberRefusal),
}

impl Documents {
    /// Creates the store of documents, without a request. `known` is the stored state of an earlier process.
    pub(super) fn new(fleet: Arc<Fleet>, known: KnownOpenApi) -> Self {
        let news = Arc::new(Notify::new());
        let answers = known.members.into_iter();
        let answers = answers.map(|(name, known)| (name, Arc::new(LastAnswers::new(known, Arc::clone(&news)))));
        Self {
            fleet,
            members: Mutex::default(),
            cache: Cache::for_responses(),
            last: LastDocuments::new(known.documents, Arc::clone(&news)),
            last_answers: Mutex::new(answers.collect()),
            news,
            unreadable: Mutex::default(),
            hash_mismatches: HashMismatches::default(),
        }
    }

    pub(super) fn known_documents(&self) -> KnownOpenApi {
        let clusters = self.fleet.clusters();
        let mut answers = self.last_answers.lock();
        answers.retain(|name, _| clusters.contains_key(name));
        let members = answers.iter().map(|(name, last)| (name.clone(), last.snapshot())).collect();
        KnownOpenApi { members, documents: self.last.snapshot() }
    }

    /// Removes the documents of a cluster whose name now belongs to a different cluster.
    pub(super) fn forget(&self, cluster: &ClusterName) {
        self.last_answers.lock().remove(cluster);
    }

    pub(super) fn news(&self) -> Arc<Notify> {
        Arc::clone(&self.news)
    }

    fn last_answers(&self, name: &ClusterName) -> Arc<LastAnswers> {
        let make = || Arc::new(LastAnswers::new(KnownMember::default(), Arc::clone(&self.news)));
        Arc::clone(self.last_answers.lock().entry(name.clone()).or_insert_with(make))
    }

    /// Clusters in order of precedence: the newest server first, then by name. A cluster with two names is included
    /// once.
    fn members(&self) -> Vec<Arc<OpenApiMember>> {
        let clusters = self.fleet.by_precedence();
        let mut members = self.members.lock();
        let ordered = clusters.into_iter().map(|cluster| {
            let known = members.iter().find(|member| Arc::ptr_eq(&member.cluster, &cluster));
            known.cloned().unwrap_or_else(|| {
                let last = self.last_answers(cluster.name());
                Arc::new(OpenApiMember::new(cluster, last))
            })
        });
        *members = ordered.collect();
        members.iter().filter(|member| member.cluster.duplicate().is_none()).cloned().collect()
    }

    /// Returns the joined list of v3 documents by path. For a cluster that does not answer, the list contains only the
    /// documents that Tributary has stored in one of these encodings.
    pub(super) async fn index(&self, spellings: &[Spelling]) -> BTreeMap<String, DocumentSources> {
        let members = self.members();
        let indexes = join_all(members.iter().map(|member| member.index())).await;
        let indexes: Vec<_> = members
            .iter()
            .zip(indexes)
            .filter_map(|(member, index)| {
                let index = match index? {
                    Freshness::Now(index) => index,
                    Freshness::Previous(index) => Arc::new(self.last.of_index(&index, spellings)),
                };
                let index = self.hash_mismatches.correct(member.cluster.name(), index);
                Some((Arc::clone(&member.cluster), index))
            })
            .collect();
        joined(&indexes)
    }

    /// Returns one v3 document. `None` if no cluster has the document.
    ///
    /// # Errors
    /// 503 if no cluster with the document answers.
    pub(super) async fn v3(&self, path: &str, wish: OpenApiForm) -> Result<Option<OpenApiDocument>, MemberRefusal> {
        let full = format!("/openapi/v3/{path}");
        for round in 0..ROUNDS_MAX {
            let Some(sources) = self.index(&[wish.spelling]).await.remove(path) else { return Ok(None) };
            match self.joined(&full, &sources, wish, round == 0).await {
                Ok(document) => return Ok(Some(document)),
                Err(DocumentFailure::Refused(refusal)) => return Err(refusal),
                Err(DocumentFailure::OutOfDate) => {}
            }
            for member in self.members() {
                *member.index.lock().await = None;
            }
        }
        Err(MemberRefusal::ChangingDocument)
    }

    /// Returns the v2 document.
    ///
    /// # Errors
    /// 503 if no member answers.
    pub(super) async fn v2(&self, wish: OpenApiForm) -> Result<OpenApiDocument, MemberRefusal> {
        let sources = self.swaggers(wish.spelling).await;
        if sources.distinct.is_empty() {
            let members = self.members();
            let failures = members.iter().map(|own| own.cluster.failure()).collect();
            return Err(MemberRefusal::NoDocument { failures });
        }
        match self.joined(V2_PATH, &sources, wish, false).await {
            Ok(document) => Ok(document),
            Err(DocumentFailure::Refused(refusal)) => Err(refusal),
            Err(DocumentFailure::OutOfDate) => Err(MemberRefusal::ChangingDocument),
        }
    }

    /// Returns the sources of the v2 document. If no cluster's current document is known, Tributary first sends a
    /// request to one cluster alone, so that all other clusters can answer 304 if their document is equal.
    async fn swaggers(&self, spelling: Spelling) -> DocumentSources {
        let members = self.members();
        let mut known: Vec<String> = Vec::new();
        for member in &members {
            if let Some((_, Some(Freshness::Now(tag)))) = &*member.swagger(spelling).lock().await
                && !known.contains(tag)
            {
                known.push(tag.clone());
            }
        }
        for member in members.iter().filter(|_| known.is_empty()) {
            if let Some(Freshness::Now(tag)) = self.swagger(member, spelling, &[]).await {
                known.push(tag);
                break;
            }
        }
        let tags = join_all(members.iter().map(|member| self.swagger(member, spelling, &known))).await;
        let mut sources = DocumentSources::default();
        for (member, tag) in members.iter().zip(tags) {
            let tag = match tag {
                Some(Freshness::Previous(tag)) => Some(tag).filter(|tag| self.last.has(V2_PATH, tag, &[spelling])),
                Some(Freshness::Now(tag)) => Some(tag),
                None => None,
            };
            if let Some(tag) = tag {
                sources.add(Arc::clone(&member.cluster), Some(tag));
            }
        }
        sources
    }

    /// Returns the entity tag of a cluster's v2 document. If the last request is older than [`ASK_INTERVAL`], requests
    /// the document again, and stores a new document. A cluster that is unreachable or has a fault gets no request, and
    /// its last known tag is returned.
    async fn swagger(&self, member: &OpenApiMember, spelling: Spelling, known: &[String]) -> Option<Freshness<String>> {
        if unavailable_reason(&member.cluster).is_some() {
            return member.last.get(&member.cluster, SWAGGER).map(Freshness::Previous);
        }
        let mut last_answer = member.swagger(spelling).lock().await;
        if let Some((at, tag)) = &*last_answer
            && at.elapsed() < ASK_INTERVAL
        {
            return tag.clone();
        }
        let answer = fetch::document(&member.cluster, V2_PATH, (SchemaVersion::V2, spelling), known).await;
        let tag = match answer {
            Ok(fetch::DocumentResponse { bytes: Some(bytes), tag }) => {
                let tag = storage_tag(spelling, &bytes, tag).await;
                self.last.insert(V2_PATH, &tag, spelling, bytes.clone()).await;
                let key = DocumentKey { path: V2_PATH.to_owned(), tag: tag.clone(), spelling, gzip: false };
                self.cache.insert(key, EncodedDocument { bytes, gzip: false });
                Ok(tag)
            }
            Ok(fetch::DocumentResponse { bytes: None, tag }) => {
                tag.ok_or(OpenApiFetchError::Status(StatusCode::NOT_MODIFIED))
            }
            Err(error) => Err(error),
        };
        let tag = member.store_or_fall_back(tag, SWAGGER);
        *last_answer = Some((Instant::now(), tag.clone()));
        tag
    }

    /// Joins the document of some clusters. With `strict`, a document is refused if its hash differs from the hash in
    /// its cluster's list.
    async fn joined(
        &self,
        path: &str,
        sources: &DocumentSources,
        wish: OpenApiForm,
        strict: bool,
    ) -> Result<OpenApiDocument, DocumentFailure> {
        let Some(tag) = sources.tag() else {
            let made = self.make(path, sources, wish, false).await?;
            return Ok(OpenApiDocument { tag: digest(&made.bytes), made });
        };
        let key = DocumentKey { path: path.to_owned(), tag: tag.clone(), spelling: wish.spelling, gzip: wish.gzip };
        let made = self.cache.get_or_make(key, self.make(path, sources, wish, strict)).await?;
        Ok(OpenApiDocument { made, tag })
    }

    async fn make(
        &self,
        path: &str,
        sources: &DocumentSources,
        wish: OpenApiForm,
        strict: bool,
    ) -> Result<EncodedDocument, DocumentFailure> {
        let texts = try_join_all(sources.distinct.iter().map(|source| self.fetch(path, source, wish, strict))).await?;
        // The join processes megabytes of text. On a thread that answers requests, it would delay other requests.
        let work = move || -> Result<(EncodedDocument, LeftOutDocuments), String> {
            let (bytes, left_out) = match &texts[..] {
                [only] => (only.clone(), Vec::new()),
                several => join_readable(wish, several)?,
            };
            if !wish.gzip || bytes.len() <= THRESHOLD_BYTES {
                return Ok((EncodedDocument { bytes, gzip: false }, left_out));
            }
            Ok((EncodedDocument { bytes: compression::whole(&bytes).into(), gzip: true }, left_out))
        };
        let made = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()));
        let not_joined = |cause| MemberRefusal::DocumentNotJoined { path: path.to_owned(), cause };
        let (made, left_out) = made.map_err(|cause| DocumentFailure::Refused(not_joined(cause)))?;
        for (at, cause) in left_out {
            for cluster in &sources.distinct[at].clusters {
                self.log_left_out(cluster, path, &cause);
            }
        }
        Ok(made)
    }

    /// Logs that the joined document omits a cluster's document, unless the same reason was logged last.
    fn log_left_out(&self, cluster: &Cluster, path: &str, cause: &str) {
        let key = (cluster.name().clone(), path.to_owned());
        if self.unreadable.lock().insert(key, cause.to_owned()).is_none_or(|last_cause| last_cause != cause) {
            tracing::warn!(cluster = %cluster.name(), path, cause,
                "the cluster's OpenAPI document cannot be read and is omitted");
        }
    }

    /// Returns the document of a source, from the store or from any cluster that has this document.
    async fn fetch(
        &self,
        path: &str,
        source: &DocumentSource,
        wish: OpenApiForm,
        strict: bool,
    ) -> Result<Bytes, DocumentFailure> {
        if let Some(tag) = &source.tag {
            let key = DocumentKey { path: path.to_owned(), tag: tag.clone(), spelling: wish.spelling, gzip: false };
            if let Some(made) = self.cache.find(&key) {
                return Ok(made.bytes);
            }
            if let Some(bytes) = self.last.find(path, tag, wish.spelling).await {
                return Ok(bytes);
            }
        }
        let (mut causes, mut is_untrue) = (Vec::new(), false);
        for cluster in &source.clusters {
            if let Some(problem) = unavailable_reason(cluster) {
                causes.push(format!("cluster {}: {problem}", cluster.name()));
                continue;
            }
            let (bytes, announced) = match fetch::document(cluster, path, (wish.schema, wish.spelling), &[]).await {
                Ok(fetch::DocumentResponse { bytes: Some(bytes), tag }) => (bytes, tag),
                Ok(fetch::DocumentResponse { bytes: None, .. }) => continue,
                Err(error) => {
                    causes.push(format!("cluster {}: {error}", cluster.name()));
                    continue;
                }
            };
            let tag = storage_tag(wish.spelling, &bytes, announced).await;
            match &source.tag {
                Some(requested) if *requested != tag && wish.spelling == Spelling::Json => {
                    is_untrue = true;
                    if let Some(path) = path.strip_prefix("/openapi/v3/") {
                        self.hash_mismatches.add_mismatch(cluster.name(), path, requested, tag);
                    }
                }
                Some(requested) if *requested != tag && strict => return Err(DocumentFailure::OutOfDate),
                _ => {
                    self.last.insert(path, &tag, wish.spelling, bytes.clone()).await;
                    return Ok(bytes);
                }
            }
        }
        if is_untrue {
            return Err(DocumentFailure::OutOfDate);
        }
        Err(DocumentFailure::Refused(MemberRefusal::DocumentNotGiven { path: path.to_owned(), causes }))
    }
}

/// Returns the tag by which a document is stored. For JSON, this is a digest of the text, whatever tag the cluster
/// announces. For protobuf, this is the announced tag: a kube-apiserver announces the digest of the JSON form, which a
/// digest of the protobuf bytes would never match.
async fn storage_tag(spelling: Spelling, bytes: &Bytes, announced: Option<String>) -> String {
    match (spelling, announced) {
        (Spelling::Protobuf, Some(announced)) => announced,
        _ => {
            let bytes = bytes.clone();
            // The task fails only when the runtime ends.
            tokio::task::spawn_blocking(move || digest(&bytes)).await.unwrap_or_default()
        }
    }
}

/// Returns the reason why Tributary sends no request to a cluster: the cluster is unreachable or has a fault, so a
/// client would wait in vain.
fn unavailable_reason(cluster: &Cluster) -> Option<String> {
    cluster.out_of_reach().map(|failure| failure.cause).or_else(|| cluster.problem())
}

/// Indexes of the documents that a joined document omits, with the reasons.
type LeftOutDocuments = Vec<(usize, String)>;

/// Joins the documents that can be parsed, and omits the others.
///
/// # Errors
/// The error of the first document if no document can be parsed.
fn join_readable(wish: OpenApiForm, texts: &[Bytes]) -> Result<(Bytes, LeftOutDocuments), String> {
    let all: Vec<&[u8]> = texts.iter().map(|text| &text[..]).collect();
    if let Ok(joined) = join(wish.schema, wish.spelling, &all) {
        return Ok((joined.into(), Vec::new()));
    }
    let bad = unreadable(wish.schema, wish.spelling, &all);
    let left_out: LeftOutDocuments = bad.into_iter().map(|(at, error)| (at, explain(&error))).collect();
    let is_bad = |at: usize| left_out.iter().any(|(bad, _)| *bad == at);
    let good: Vec<&[u8]> = (0..).zip(&all).filter(|(at, _)| !is_bad(*at)).map(|(_, text)| *text).collect();
    match &good[..] {
        [] => Err(left_out.first().map(|(_, cause)| cause.clone()).unwrap_or_default()),
        good => {
            let joined = join(wish.schema, wish.spelling, good).map_err(|error| explain(&error))?;
            Ok((joined.into(), left_out))
        }
    }
}

impl OpenApiMember {
    fn new(cluster: Arc<Cluster>, last: Arc<LastAnswers>) -> Self {
        Self { cluster, index: CachedAnswer::default(), swaggers: Default::default(), last }
    }

    fn swagger(&self, spelling: Spelling) -> &CachedAnswer<Freshness<String>> {
        match spelling {
            Spelling::Json => &self.swaggers[0],
            Spelling::Protobuf => &self.swaggers[1],
        }
    }

    /// Returns the list of a cluster's v3 documents. If the last request is older than [`ASK_INTERVAL`], requests the
    /// list again. A cluster that is unreachable or has a fault gets no request, and its last known list is returned.
    async fn index(&self) -> Option<Freshness<Arc<OpenApiIndex>>> {
        if unavailable_reason(&self.cluster).is_some() {
            return self.last.get(&self.cluster, INDEX).map(Freshness::Previous);
        }
        let mut last_answer = self.index.lock().await;
        if let Some((at, index)) = &*last_answer
            && at.elapsed() < ASK_INTERVAL
        {
            return index.clone();
        }
        let answer = fetch::index(&self.cluster).await;
        let parsed = answer
            .and_then(|text| OpenApiIndex::parse(&text).map_err(|error| OpenApiFetchError::Text(error.to_string())));
        let index = self.store_or_fall_back(parsed.map(Arc::new), INDEX);
        *last_answer = Some((Instant::now(), index.clone()));
        index
    }

    /// Returns the result of a request. Stores a successful answer. If the cluster gave no answer, returns the last
    /// known answer. If the cluster refused the request, drops the last known answer.
    fn store_or_fall_back<T: Clone + PartialEq>(
        &self,
        answer: Result<T, OpenApiFetchError>,
        part: OpenApiPart<T>,
    ) -> Option<Freshness<T>> {
        match answer {
            Ok(value) => {
                self.last.set(&self.cluster, part, Some(value.clone()));
                Some(Freshness::Now(value))
            }
            Err(error) => {
                self.left_out(&error.to_string());
                if !error.has_no_answer() {
                    self.last.set(&self.cluster, part, None);
                }
                self.last.get(&self.cluster, part).map(Freshness::Previous)
            }
        }
    }

    fn left_out(&self, cause: &str) {
        tracing::debug!(cluster = %self.cluster.name(), cause,
            "the cluster does not return its OpenAPI documents; the last known documents are used");
    }
}
