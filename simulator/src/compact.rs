//! Encodes the compact form of a composite resourceVersion, independently of the router's encoder, so that tests detect
//! errors in the router.
//!
//! The form is `c1.` and an unpadded base64url of these bytes:
//! * The epoch: the first 64 bits of SHA-256 over the name and the uid of kube-system of each cluster, each text
//!   preceded by its length.
//! * For each cluster, sorted by name, a varint: 0 if the version has no component of the cluster, or the component's
//!   revision plus one.
//! * For each component with a hyphen, the cluster's rank and the number after the hyphen.

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

/// Returns the mark of a cluster in the long form of a composite version: the first 32 bits of SHA-256 over the uid of
/// the cluster's kube-system namespace.
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
