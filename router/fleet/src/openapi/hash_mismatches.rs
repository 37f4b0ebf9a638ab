//! Documents whose announced hash is wrong.
//!
//! Tributary stores a document by its hash, once for all clusters that announce the hash. A kube-apiserver's hash is
//! the digest of the JSON text (kube-openapi, `computeETag`). If Tributary trusted the hashes, a hostile cluster could
//! announce the hash of a different cluster's document for a false document, and so describe kinds for all clients.
//! Therefore, a document with a wrong hash is stored by its digest.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tributary_apimachinery::ClusterName;

use super::sources::OpenApiIndex;

/// Maximum number of stored wrong hashes. Above the limit, all wrong hashes are dropped. Each is found again at the
/// next request for its document.
const REMEMBERED_MAX: usize = 4_096;

/// Announced and actual hash of a document.
#[derive(Debug)]
struct HashMismatch {
    announced: String,
    digest: String,
}

/// Wrong hashes by cluster, and by path below `/openapi/v3/`.
#[derive(Debug, Default)]
pub(super) struct HashMismatches(Mutex<HashMap<ClusterName, HashMap<String, HashMismatch>>>);

impl HashMismatches {
    /// Records that the digest of a document differs from the hash by which Tributary requested the document.
    pub(super) fn add_mismatch(&self, cluster: &ClusterName, path: &str, requested_hash: &str, digest: String) {
        let mut all = self.0.lock();
        if all.values().map(HashMap::len).sum::<usize>() >= REMEMBERED_MAX {
            all.clear();
        }
        let own = all.entry(cluster.clone()).or_default();
        // Tributary may have requested the document by its earlier digest in place of the announced hash. In this case
        // the entry keeps the announced hash.
        let announced = own.remove(path).filter(|known| known.digest == requested_hash).map(|known| known.announced);
        own.insert(
            path.to_owned(),
            HashMismatch { announced: announced.unwrap_or_else(|| requested_hash.to_owned()), digest },
        );
    }

    /// Returns a cluster's list of documents with corrected hashes.
    pub(super) fn correct(&self, cluster: &ClusterName, index: Arc<OpenApiIndex>) -> Arc<OpenApiIndex> {
        let all = self.0.lock();
        let Some(own) = all.get(cluster) else { return index };
        let mut index = OpenApiIndex::clone(&index);
        for (path, HashMismatch { announced, digest }) in own {
            if let Some(hash) = index.0.get_mut(path).and_then(Option::as_mut).filter(|hash| *hash == announced) {
                hash.clone_from(digest);
            }
        }
        Arc::new(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_openapi_hash_is_corrected_until_the_member_changes_it() {
        let (hash_mismatches, own, other) = (HashMismatches::default(), "a".parse().unwrap(), "b".parse().unwrap());
        let index = |hash: &str| Arc::new(OpenApiIndex([("apis/x/v1".to_owned(), Some(hash.to_owned()))].into()));
        hash_mismatches.add_mismatch(&own, "apis/x/v1", "SAID", "ONE".to_owned());
        assert_eq!(hash_mismatches.correct(&own, index("SAID")), index("ONE"));
        hash_mismatches.add_mismatch(&own, "apis/x/v1", "ONE", "TWO".to_owned());
        assert_eq!(hash_mismatches.correct(&own, index("SAID")), index("TWO"));
        assert_eq!(hash_mismatches.correct(&own, index("NEW")), index("NEW"));
        assert_eq!(hash_mismatches.correct(&other, index("SAID")), index("SAID"));
        for number in 0..2 * REMEMBERED_MAX {
            hash_mismatches.add_mismatch(&own, &number.to_string(), "SAID", "X".to_owned());
        }
        assert!(hash_mismatches.0.lock().values().map(HashMap::len).sum::<usize>() <= REMEMBERED_MAX);
    }
}
