//! Encodes the compact form of a composite resourceVersion, independently of the router's encoder, so that tests detect
//! errors in the router. The form is `c1.` and an unpadded base64url. The encoded bytes are the epoch and a varint for
//! each cluster, sorted by name: 0 for no component, otherwise the revision plus one. For each component with a hyphen,
//! the cluster's rank and the number after the hyphen follow. The epoch is the first 64 bits of SHA-256 over (name, uid
//! of kube-system), each preceded by its length.

use std::collections::BTreeMap;

use base64::Engine as _;
use sha2::{Digest as _, Sha256};

/// Encodes the components of a composite version (cluster → component in the long form). `clusters` maps each cluster's
/// name to the uid of its kube-system namespace. Returns `None` for a component of an unknown cluster, or a malformed
/// component.
pub fn encode(vector: &BTreeMap<String, String>, clusters: &BTreeMap<String, String>) -> Option<String> {
    if !vector.keys().all(|cluster| clusters.contains_key(cluster)) {
        return None;
    }
    let mut hash = Sha256::new();
    for part in clusters.iter().flat_map(|(name, uid)| [name, uid]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut bytes = hash.finalize()[..8].to_vec();
    let mut parts = Vec::new();
    for (rank, cluster) in clusters.keys().enumerate() {
        let Some(component) = vector.get(cluster) else {
            bytes.push(0);
            continue;
        };
        let (revision, changes) = component.split_once('-').map_or((&**component, None), |(a, b)| (a, Some(b)));
        put_varint(&mut bytes, revision.parse::<u128>().ok()? + 1);
        if let Some(changes) = changes {
            put_varint(&mut parts, rank as u128);
            put_varint(&mut parts, changes.parse().ok()?);
        }
    }
    bytes.append(&mut parts);
    Some(format!("c1.{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)))
}

/// The mark of a cluster with this uid of kube-system in the long form: the first 32 bits of SHA-256 over the uid.
pub fn mark(uid: &str) -> u32 {
    Sha256::digest(uid)[..4].iter().fold(0, |mark, byte| mark << 8 | u32::from(*byte))
}

fn put_varint(bytes: &mut Vec<u8>, mut rest: u128) {
    loop {
        let low = (rest & 0x7f) as u8;
        rest >>= 7;
        bytes.push(if rest > 0 { low | 0x80 } else { low });
        if rest == 0 {
            break;
        }
    }
}
