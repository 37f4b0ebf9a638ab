//! The compact form of a composite resourceVersion, written from its description alone, so that a mistake is not made twice:
//! `c1.` and the unpadded base64url of the epoch and of one varint for each cluster, sorted by name: 0 for none, else the
//! revision and one. The epoch is the first 64 bits of SHA-256 over (name, uid of kube-system), each behind its length.

use std::collections::BTreeMap;

use base64::Engine as _;
use sha2::{Digest as _, Sha256};

/// The compact form of a vector (cluster → revision) over these clusters, given as name and uid; `None` where it has another
/// cluster.
pub fn encode(vector: &BTreeMap<String, u64>, clusters: &BTreeMap<String, String>) -> Option<String> {
    if !vector.keys().all(|cluster| clusters.contains_key(cluster)) {
        return None;
    }
    let mut hash = Sha256::new();
    for part in clusters.iter().flat_map(|(name, uid)| [name, uid]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut bytes = hash.finalize()[..8].to_vec();
    for cluster in clusters.keys() {
        let mut rest = vector.get(cluster).map_or(0, |revision| u128::from(*revision) + 1);
        loop {
            let low = (rest & 0x7f) as u8;
            rest >>= 7;
            bytes.push(if rest > 0 { low | 0x80 } else { low });
            if rest == 0 {
                break;
            }
        }
    }
    Some(format!("c1.{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)))
}
