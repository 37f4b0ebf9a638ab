//! The fuzzed properties of resourceVersions and continue tokens that clients send.

use std::sync::LazyLock;

use tributary_apimachinery::{ClusterName, ResourceVersion};
use tributary_merge::{CompositeResourceVersion, ContinueToken, Epochs, IntegerResourceVersion, Position};

use crate::choice;

/// The number of clusters. A composite version of so many clusters has the compact form.
const CLUSTERS: usize = 150;

static NAMES: LazyLock<Vec<ClusterName>> = LazyLock::new(|| {
    let names = (0..CLUSTERS).map(|number| ClusterName::new(&format!("production-cluster-{number:03}")));
    names.map(|name| name.expect("a name")).collect()
});

fn cluster(number: usize) -> ClusterName {
    NAMES[number].clone()
}

/// Creates the previous and the current list of clusters. In the current list, one cluster has been replaced.
fn epochs() -> Epochs {
    let mut epochs = Epochs::default();
    epochs.update((0..CLUSTERS).map(|number| (cluster(number), format!("old-{number}"))));
    let uid = |number| if number == 3 { format!("new-{number}") } else { format!("old-{number}") };
    epochs.update((0..CLUSTERS).map(|number| (cluster(number), uid(number))));
    epochs
}

thread_local! {
    static EPOCHS: Epochs = epochs();
}

/// The input is a resourceVersion as a text, and as bytes for each cluster. Encoding a decoded text yields the same
/// text, or the text in the other form (long or compact) of the same composite version. Decoding an encoded version
/// yields an equal version. Joining two versions yields their least upper bound.
pub fn version(data: &[u8]) {
    EPOCHS.with(|epochs| {
        if let Ok(text) = std::str::from_utf8(data) {
            version_text(text, epochs);
        }
        let (half, rest) = choice(data);
        let (first, second) = rest.split_at(rest.len() * usize::from(half) / 256);
        let (first, second) = (vector(first), vector(second));
        for own in [&first, &second] {
            let text = own.encode(epochs);
            assert_eq!(CompositeResourceVersion::decode(&text, epochs).as_ref(), Ok(own), "{text}");
        }
        let mut joined = first.clone();
        joined.join(&second);
        assert!(joined.covers(&first) && joined.covers(&second), "{joined:?}");
        assert!(joined.iter().all(|(name, own)| [&first, &second].iter().any(|side| side.get(name) == Some(own))));
        let mut other = second.clone();
        other.join(&first);
        assert_eq!(joined, other);
    });
}

fn version_text(text: &str, epochs: &Epochs) {
    if let Ok(vector) = CompositeResourceVersion::decode(text, epochs) {
        let anew = vector.encode(epochs);
        assert!(anew == text || text.starts_with("c1."), "{text:?} encodes to {anew:?}");
        assert_eq!(CompositeResourceVersion::decode(&anew, epochs), Ok(vector));
        assert!(IntegerResourceVersion::decode(text).is_err(), "{text:?} has two meanings");
    }
    if let Ok(version) = IntegerResourceVersion::decode(text) {
        assert_eq!(version.encode().to_string(), text);
    }
}

/// Decodes a composite version from bytes. The bytes repeat three parts: the index of a cluster, the length of a
/// component, and the component. The first length of zero adds all remaining clusters.
fn vector(mut data: &[u8]) -> CompositeResourceVersion {
    let (mut vector, mut is_long) = (CompositeResourceVersion::new(), false);
    while let [number, length, rest @ ..] = data {
        let digits = rest.len().min(usize::from(length % 9));
        let version = rest[..digits].iter().fold(0, |version, byte| version << 8 | u64::from(*byte));
        let first = usize::from(*number) % CLUSTERS;
        vector.set(&cluster(first), ResourceVersion(version));
        if *length == 0 && !is_long {
            is_long = true;
            for other in first..CLUSTERS {
                vector.raise(&cluster(other), ResourceVersion(other as u64 * 1_000_003));
            }
        }
        data = &rest[digits..];
    }
    vector
}

/// The input is a continue token as a text, and as bytes for its fields. Decoding an encoded token yields an equal
/// token.
pub fn continue_token(data: &[u8]) {
    EPOCHS.with(|epochs| {
        if let Ok(text) = std::str::from_utf8(data)
            && let Ok(token) = ContinueToken::decode(text, epochs)
        {
            assert!(!token.position.after.is_empty());
            assert_eq!(ContinueToken::decode(&token.encode(epochs), epochs).as_ref(), Ok(&token), "{text:?}");
        }
        let (kind, rest) = choice(data);
        let at = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let after = String::from_utf8_lossy(&rest[..at]).into_owned();
        if after.is_empty() || after.len() > 1024 {
            return;
        }
        let version = vector(rest.get(at + 1..).unwrap_or_default());
        let token = ContinueToken {
            position: Position { cluster: cluster(usize::from(kind) % CLUSTERS), after: after.into() },
            remaining: (kind % 2 == 0).then_some(u64::from(kind)),
            version: (kind % 3 > 0).then_some(version),
        };
        let text = token.encode(epochs);
        assert_eq!(ContinueToken::decode(&text, epochs), Ok(token), "{text:?}");
    });
}
