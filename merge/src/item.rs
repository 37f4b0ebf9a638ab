//! The item form: a composite resourceVersion with a single component, which each object of a merged list carries.
//!
//! A list of 10,000 objects contains 10,000 item forms, so the encoder encodes the part that depends on the cluster
//! once. Base64 maps each group of three bytes to four letters, so the letters of the whole groups of `{"cluster1":"`
//! never change.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tributary_apimachinery::{ClusterName, ResourceVersion};

const DIGITS_MAX: usize = 20;

const MARK_LEN: usize = 8;

/// Encodes the versions of a cluster's objects in the item form.
#[derive(Clone, Debug)]
pub struct ItemEncoder {
    /// The base64 text of the whole groups of three bytes before the digits of the version.
    head: Box<str>,
    /// The last bytes before the digits, which do not fill a base64 group of three bytes.
    rest: [u8; 2],
    rest_len: usize,
    /// The bytes after the digits of the version.
    tail: Box<[u8]>,
}

impl ItemEncoder {
    /// Creates the encoder of a cluster.
    pub fn new(cluster: &ClusterName) -> Self {
        Self::marked(cluster, None)
    }

    /// Creates the encoder of a cluster that has recently taken over its name. Its versions carry a
    /// [mark](crate::Epochs::mark_of) of eight bytes.
    pub fn marked(cluster: &ClusterName, mark: Option<&str>) -> Self {
        let before = format!("{{\"{cluster}\":\"");
        let (head, tail) = before.as_bytes().split_at(before.len() / 3 * 3);
        let mut rest = [0; 2];
        rest[..tail.len()].copy_from_slice(tail);
        let (head, rest_len) = (URL_SAFE_NO_PAD.encode(head).into(), tail.len());
        let after = mark.map_or_else(|| "\"}".to_owned(), |mark| format!("@{mark:.MARK_LEN$}\"}}"));
        Self { head, rest, rest_len, tail: after.into_bytes().into() }
    }

    /// Returns whether the encoded versions carry a mark.
    pub fn is_marked(&self) -> bool {
        self.tail.len() > 2
    }

    /// Appends the item form of a version to `out`. Cost: about 30 ns, without an allocation if `out` has enough
    /// capacity.
    pub fn write(&self, version: ResourceVersion, out: &mut String) {
        let mut plain = [0; 2 + DIGITS_MAX + 1 + MARK_LEN + 2];
        plain[..2].copy_from_slice(&self.rest);
        let digits = write_digits(version.0, &mut plain[self.rest_len..]);
        let end = self.rest_len + digits;
        let whole = end + self.tail.len();
        plain[end..whole].copy_from_slice(&self.tail);
        let mut encoded = [0; 44];
        // The buffer is as large as the longest text, so the encoding cannot fail. base64 is ASCII.
        let length = URL_SAFE_NO_PAD.encode_slice(&plain[..whole], &mut encoded).unwrap_or(0);
        out.push_str(&self.head);
        out.push_str(std::str::from_utf8(&encoded[..length]).unwrap_or_default());
    }

    /// Returns the item form of a version.
    pub fn encode(&self, version: ResourceVersion) -> String {
        let mut out = String::with_capacity(self.head.len() + 32);
        self.write(version, &mut out);
        out
    }
}

/// Returns the item form of a version. For many versions of a cluster, create an [`ItemEncoder`].
pub fn item(cluster: &ClusterName, version: ResourceVersion) -> String {
    ItemEncoder::new(cluster).encode(version)
}

/// Writes a number in decimal to the front of `out`. Returns the number of digits.
fn write_digits(mut number: u64, out: &mut [u8]) -> usize {
    let length = number.checked_ilog10().unwrap_or(0) as usize + 1;
    for digit in out[..length].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CompositeResourceVersion, Epochs};

    #[test]
    fn version_of_a_list_item_equals_the_composite_version_of_its_cluster_alone() {
        for length in 1..=63 {
            let cluster = ClusterName::new(&"x".repeat(length)).unwrap();
            for version in [0, 1, 9, 10, 99, 100, 1234, 99_999, u64::MAX] {
                let vector: CompositeResourceVersion =
                    [(cluster.clone(), ResourceVersion(version))].into_iter().collect();
                assert_eq!(item(&cluster, ResourceVersion(version)), vector.encode(&Epochs::default()));
                let mut epochs = Epochs::default();
                for uid in ["a", "b"] {
                    epochs.update_at([(cluster.clone(), uid.to_owned())], std::time::SystemTime::now());
                }
                let encoder = ItemEncoder::marked(&cluster, epochs.mark_of(&cluster).as_deref());
                assert_eq!(encoder.encode(ResourceVersion(version)), vector.encode(&epochs));
            }
        }
    }
}
