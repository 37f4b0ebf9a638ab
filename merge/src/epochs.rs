//! The compact form of a composite resourceVersion, and the lists of clusters (epochs) to which compact versions refer.
//!
//! ```text
//! c1.<base64url of the bytes>
//!
//! epoch      8 bytes, big-endian
//! revisions  for each cluster of the epoch's list, in order of names: 0 without a component, else its revision + 1
//! parts      for each component that includes only some changes of its revision, in order of names: the cluster's
//!            index in the list, and the number of included changes
//!
//! The numbers of `revisions` and `parts` are little-endian base-128 varints.
//! ```
//!
//! The base64url alphabet has no dot, so no JSON form has this prefix. An *epoch* is the first 64 bits of SHA-256 over
//! the sorted list of (name, kube-system uid). Replicas that serve the same clusters compute the same epoch without
//! communication. If a different cluster takes over a name, the epoch changes. 1,000 clusters at revisions below 2³⁵
//! take 6.7 KB.
//!
//! A cluster whose uid is unknown has an empty uid in the list. Otherwise one such cluster would force the long JSON
//! form for all clusters. The cluster's component then identifies the cluster by name only, as in the JSON form. When
//! the uid becomes known, or is no longer known, Tributary cannot verify that the cluster is still the same. It then
//! refuses earlier components of the cluster, as for a replaced cluster. Versions without that cluster remain valid.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tributary_apimachinery::{ClusterName, CollectionVersion, ResourceVersion};

use crate::composite::CompositeResourceVersion;
use crate::decode_error::{Foreign, VersionDecodeError};

/// The prefix of the compact form. The digit is the version of the layout.
const PREFIX: &str = "c1.";

/// The maximum number of lists of clusters in memory. 64: clusters join and leave at most every few minutes. A version
/// is usable for minutes, as long as the log keeps its history.
pub const LISTS_MAX: usize = 64;

/// The time after a cluster took over a name for which the JSON form marks the cluster's versions. A day: a client may
/// keep a version for hours. A replica that has not connected to the new cluster writes no marks.
const MARKED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The minimum time between two replacements of a cluster, in seconds. If the times of two replacements differ by less,
/// they are treated as one replacement, because the clock may have been adjusted.
const REPLACEMENT_INTERVAL_MIN: u64 = 5;

/// The current and earlier lists of clusters to which compact versions may refer. Also records the clusters whose
/// versions the JSON form marks.
///
/// Versions stay valid across a restart if the serialized value is written to the data directory after each
/// [`update`](Epochs::update). Sharing in an `Arc` is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EpochsFile", into = "EpochsFile")]
pub struct Epochs {
    /// The lists of clusters, newest first.
    lists: VecDeque<Arc<Epoch>>,
    /// For each name that a different cluster (with a different uid) has taken over: the time of the change, in seconds
    /// since 1970.
    replaced: BTreeMap<ClusterName, u64>,
}

/// The serialized form in the data directory. Without replaced clusters, the file contains only the lists, as in
/// earlier releases.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum EpochsFile {
    Lists(VecDeque<Arc<Epoch>>),
    All { lists: VecDeque<Arc<Epoch>>, replaced: BTreeMap<ClusterName, u64> },
}

impl From<EpochsFile> for Epochs {
    fn from(file: EpochsFile) -> Self {
        match file {
            EpochsFile::Lists(lists) => Self { lists, replaced: BTreeMap::new() },
            EpochsFile::All { lists, replaced } => Self { lists, replaced },
        }
    }
}

impl From<Epochs> for EpochsFile {
    fn from(Epochs { lists, replaced }: Epochs) -> Self {
        match replaced.is_empty() {
            true => Self::Lists(lists),
            false => Self::All { lists, replaced },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(ClusterName, String)>", into = "Vec<(ClusterName, String)>")]
struct Epoch {
    id: u64,
    /// Names and kube-system uids of the clusters, sorted by name. An unknown uid is empty.
    members: Vec<(ClusterName, String)>,
}

impl From<Vec<(ClusterName, String)>> for Epoch {
    fn from(mut members: Vec<(ClusterName, String)>) -> Self {
        members.sort();
        members.dedup_by(|later, earlier| later.0 == earlier.0);
        let mut hash = Sha256::new();
        for part in members.iter().flat_map(|(name, uid)| [name.as_str(), uid]) {
            // The length of each part is hashed as well, so that different lists never have the same bytes.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let id = hash.finalize().iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte));
        Self { id, members }
    }
}

impl From<Epoch> for Vec<(ClusterName, String)> {
    fn from(epoch: Epoch) -> Self {
        epoch.members
    }
}

impl Epoch {
    fn uid(&self, cluster: &ClusterName) -> Option<&str> {
        let at = self.members.binary_search_by(|(name, _)| name.cmp(cluster)).ok()?;
        Some(&self.members[at].1)
    }

    /// Packs a composite version into the compact form. `None` if this list lacks a cluster of the version.
    fn pack(&self, vector: &CompositeResourceVersion) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(8 + 6 * self.members.len());
        bytes.extend(self.id.to_be_bytes());
        let mut components = vector.iter().peekable();
        let mut parts = Vec::new();
        for (rank, (name, _)) in self.members.iter().enumerate() {
            let component = components.next_if(|(cluster, _)| *cluster == name);
            put_varint(&mut bytes, component.map_or(0, |(_, version)| u128::from(version.revision().0) + 1));
            if let Some(changes) = component.and_then(|(_, version)| version.changes()) {
                put_varint(&mut parts, rank as u128);
                put_varint(&mut parts, changes.into());
            }
        }
        bytes.append(&mut parts);
        components.next().is_none().then_some(bytes)
    }
}

impl Epochs {
    /// Makes `clusters` the current list of (name, kube-system uid). Returns whether the list has changed. The order
    /// does not matter, and an unknown uid is empty.
    ///
    /// Call this function once per change of the configuration instead of once per cluster, because at most
    /// [`LISTS_MAX`] lists are stored.
    pub fn update(&mut self, clusters: impl IntoIterator<Item = (ClusterName, String)>) -> bool {
        let epoch = Arc::new(Epoch::from(clusters.into_iter().collect::<Vec<_>>()));
        if self.lists.front() == Some(&epoch) {
            return false;
        }
        self.lists.retain(|known| *known != epoch);
        self.lists.push_front(epoch);
        self.lists.truncate(LISTS_MAX);
        true
    }

    /// Updates the list like [`update`](Epochs::update). Also records each name that a cluster with a different uid has
    /// taken over. The JSON form [marks](Epochs::mark_of) the versions of those clusters for a day.
    pub fn update_at(&mut self, clusters: impl IntoIterator<Item = (ClusterName, String)>, now: SystemTime) -> bool {
        let clusters: Vec<_> = clusters.into_iter().collect();
        let now = seconds(now);
        let before = self.replaced.clone();
        self.replaced.retain(|_, at| now.saturating_sub(*at) < MARKED_FOR.as_secs());
        for (name, uid) in &clusters {
            let has_other = self.last_known_uid_of(name).is_some_and(|known| known != uid);
            if has_other && !uid.is_empty() {
                self.replaced.insert(name.clone(), now);
            }
        }
        self.update(clusters) | (self.replaced != before)
    }

    /// Records that a different cluster took over a name at the time `at`, even if the new cluster's uid is unknown.
    /// The JSON form [marks](Epochs::mark_of) the new cluster's versions for a day.
    pub fn record_replacement(&mut self, cluster: &ClusterName, at: SystemTime, now: SystemTime) {
        let (at, now) = (seconds(at), seconds(now));
        let is_known = self.replaced.get(cluster).is_some_and(|known| *known + REPLACEMENT_INTERVAL_MIN > at);
        if !is_known && now.saturating_sub(at) < MARKED_FOR.as_secs() {
            self.replaced.insert(cluster.clone(), at);
        }
    }

    /// Returns the mark that distinguishes a cluster from earlier clusters of the same name in the JSON form: eight
    /// hexadecimal digits of SHA-256 over the uid. Returns `None` if no other cluster had the name within the last
    /// day.
    pub fn mark_of(&self, cluster: &ClusterName) -> Option<String> {
        self.replaced.contains_key(cluster).then(|| mark(self.current_uid_of(cluster).unwrap_or_default()))
    }

    /// Checks that a component of the JSON form belongs to the present cluster of this name. `given` is the component's
    /// mark.
    ///
    /// # Errors
    /// [`Foreign::Incarnation`].
    pub(crate) fn check_mark(&self, cluster: &ClusterName, client_mark: Option<&str>) -> Result<(), Foreign> {
        let is_current = match client_mark {
            None => !self.replaced.contains_key(cluster),
            Some(client_mark) => self.current_uid_of(cluster).is_some_and(|uid| mark(uid) == client_mark),
        };
        if is_current { Ok(()) } else { Err(Foreign::Incarnation(cluster.clone())) }
    }

    /// Returns the uid of a cluster. Reads the newest list that contains the cluster. The result is empty if the uid
    /// was unknown.
    pub fn uid_of(&self, cluster: &ClusterName) -> Option<&str> {
        self.lists.iter().find_map(|epoch| epoch.uid(cluster))
    }

    fn last_known_uid_of(&self, cluster: &ClusterName) -> Option<&str> {
        self.lists.iter().filter_map(|epoch| epoch.uid(cluster)).find(|uid| !uid.is_empty())
    }

    /// Returns a cluster's uid in the current list.
    pub fn current_uid_of(&self, cluster: &ClusterName) -> Option<&str> {
        self.lists.front()?.uid(cluster)
    }

    /// Returns whether the lists contain no cluster except `cluster`.
    pub fn contain_only(&self, cluster: &ClusterName) -> bool {
        self.lists.iter().flat_map(|epoch| &epoch.members).all(|(name, _)| name == cluster)
    }

    /// Returns the number of the current epoch.
    pub fn current(&self) -> Option<u64> {
        self.lists.front().map(|epoch| epoch.id)
    }

    /// Encodes a composite version in the compact form. The form refers to the newest list that contains all clusters
    /// of the version. If a cluster was just removed, that list is not the current list. Returns `None` if no list
    /// contains all clusters.
    ///
    /// Cost: O(clusters); list and composite version are both sorted by name.
    pub(crate) fn encode(&self, vector: &CompositeResourceVersion) -> Option<String> {
        let bytes = self.lists.iter().find_map(|epoch| epoch.pack(vector))?;
        let mut text = String::with_capacity(PREFIX.len() + bytes.len().div_ceil(3) * 4);
        text.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string(bytes, &mut text);
        Some(text)
    }

    pub(crate) fn decode(&self, text: &str) -> Result<CompositeResourceVersion, VersionDecodeError> {
        let Some(packed) = text.strip_prefix(PREFIX) else {
            return Err(if is_later_form(text) {
                Foreign::Form.into()
            } else {
                VersionDecodeError::Malformed("the text has a dot")
            });
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(packed)
            .map_err(|_| VersionDecodeError::Malformed("the text is not unpadded base64url"))?;
        let (id, mut rest) = bytes.split_first_chunk().ok_or(VersionDecodeError::Malformed("the text is too short"))?;
        let id = u64::from_be_bytes(*id);
        let epoch = self.lists.iter().find(|epoch| epoch.id == id).ok_or(Foreign::Epoch(id))?;
        let mut vector = CompositeResourceVersion::new();
        for (name, uid) in &epoch.members {
            let packed = take_varint(&mut rest).ok_or(VersionDecodeError::Malformed("a component is not a number"))?;
            let Some(version) = packed.checked_sub(1) else { continue };
            let version =
                u64::try_from(version).map_err(|_| VersionDecodeError::Malformed("a component is too large"))?;
            if self.lists.front().and_then(|current| current.uid(name)).is_some_and(|current| current != uid) {
                return Err(Foreign::Incarnation(name.clone()).into());
            }
            vector.set(name, ResourceVersion(version));
        }
        let mut ranks = 0..epoch.members.len() as u128;
        while !rest.is_empty() {
            const LEFT: VersionDecodeError = VersionDecodeError::Malformed("bytes are left over");
            let rank = take_varint(&mut rest).filter(|rank| ranks.contains(rank)).ok_or(LEFT)?;
            let changes = take_varint(&mut rest).and_then(|changes| u32::try_from(changes).ok()).ok_or(LEFT)?;
            ranks.start = rank + 1;
            let (name, _) = usize::try_from(rank).ok().and_then(|rank| epoch.members.get(rank)).ok_or(LEFT)?;
            let whole = vector.get(name).filter(|whole| *whole > ResourceVersion::default()).ok_or(LEFT)?;
            vector.set(name, CollectionVersion::part(whole.revision(), changes));
        }
        Ok(vector)
    }
}

/// Returns the seconds from 1970 to a time; 0 for an earlier time.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn mark(uid: &str) -> String {
    Sha256::digest(uid).iter().take(4).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Returns whether a text looks like a compact form of a later release: `c`, a number, a dot, base64url.
fn is_later_form(text: &str) -> bool {
    text.strip_prefix('c').and_then(|rest| rest.split_once('.')).is_some_and(|(layout, packed)| {
        ResourceVersion::parse(layout).is_ok() && URL_SAFE_NO_PAD.decode(packed).is_ok()
    })
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Removes a varint from the front, if it has its shortest encoding and is below 2⁷⁰.
fn take_varint(bytes: &mut &[u8]) -> Option<u128> {
    let length = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let (varint, rest) = bytes.split_at(length);
    if length > 1 && varint[length - 1] == 0 {
        return None;
    }
    *bytes = rest;
    Some(varint.iter().rev().fold(0, |value, byte| value << 7 | u128::from(byte & 0x7f)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(index: usize) -> ClusterName {
        ClusterName::new(&format!("production-cluster-{index:05}")).unwrap()
    }

    fn epochs(count: usize) -> Epochs {
        let mut epochs = Epochs::default();
        epochs.update((0..count).map(|index| (name(index), format!("uid-{index}"))));
        epochs
    }

    fn vector(range: std::ops::Range<usize>) -> CompositeResourceVersion {
        range.map(|index| (name(index), ResourceVersion((1 << 34) + index as u64))).collect()
    }

    #[test]
    fn compact_version_of_a_thousand_clusters_is_below_seven_kib() {
        let (epochs, value) = (epochs(1000), vector(0..1000));
        let text = value.encode(&epochs);
        assert!(text.starts_with(PREFIX) && text.len() < 7 * 1024, "{} bytes", text.len());
        assert_eq!(CompositeResourceVersion::decode(&text, &epochs), Ok(value));
    }

    #[test]
    fn composite_version_becomes_compact_above_four_kib() {
        let epochs = epochs(1000);
        let small = vector(0..50).encode(&epochs);
        assert!(!small.contains('.'));
        let large = vector(0..200);
        let json = large.encode(&Epochs::default());
        assert!(json.len() > 4096 && !json.contains('.'), "without a list the JSON form is the only one");
        assert_eq!(CompositeResourceVersion::decode(&json, &epochs), Ok(large));
    }

    #[test]
    fn cluster_list_id_depends_only_on_names_and_uids_of_the_clusters() {
        let ids = |names: &[(&str, &str)]| {
            let mut epochs = Epochs::default();
            epochs.update(names.iter().map(|(name, uid)| (ClusterName::new(name).unwrap(), (*uid).to_owned())));
            epochs.current()
        };
        assert_eq!(ids(&[("a", "1"), ("b", "2")]), ids(&[("b", "2"), ("a", "1")]));
        assert_ne!(ids(&[("a", "1"), ("b", "2")]), ids(&[("a", "1"), ("b", "3")]));
        assert_ne!(ids(&[("a", "1b")]), ids(&[("a", "1"), ("b", "")]));
    }

    #[test]
    fn compact_version_decodes_until_its_cluster_list_is_dropped() {
        let mut epochs = epochs(300);
        let text = vector(0..300).encode(&epochs);
        for count in 1..LISTS_MAX {
            assert!(epochs.update((0..300 + count).map(|index| (name(index), format!("uid-{index}")))));
            assert_eq!(CompositeResourceVersion::decode(&text, &epochs), Ok(vector(0..300)));
        }
        epochs.update([]);
        let unknown = CompositeResourceVersion::decode(&text, &epochs);
        assert!(matches!(unknown, Err(VersionDecodeError::Foreign(Foreign::Epoch(_)))), "{unknown:?}");
    }

    #[test]
    fn compact_version_with_a_removed_cluster_refers_to_an_earlier_cluster_list() {
        let mut epochs = epochs(301);
        epochs.update((0..300).map(|index| (name(index), format!("uid-{index}"))));
        let text = vector(0..301).encode(&epochs);
        assert!(text.starts_with(PREFIX));
        assert_eq!(CompositeResourceVersion::decode(&text, &epochs), Ok(vector(0..301)));
    }

    #[test]
    fn compact_version_of_a_replaced_cluster_is_refused() {
        let mut epochs = epochs(300);
        let text = vector(0..300).encode(&epochs);
        epochs.update((0..300).map(|index| (name(index), format!("uid-{}", index.max(1)))));
        assert_eq!(
            CompositeResourceVersion::decode(&text, &epochs),
            Err(Foreign::Incarnation(name(0)).into()),
            "cluster 0 has a different uid"
        );
    }

    #[test]
    fn json_versions_of_a_replacement_cluster_have_a_mark_for_a_day() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds);
        let list = |uid: &str| [(name(0), uid.to_owned()), (name(1), "other".to_owned())];
        let mut epochs = Epochs::default();
        epochs.update_at(list("first"), at(0));
        let (old, of_other) = (vector(0..2).encode(&epochs), vector(1..2).encode(&epochs));
        assert!(epochs.update_at(list("second"), at(10)));
        let foreign = Err(VersionDecodeError::from(Foreign::Incarnation(name(0))));
        let decode = |text: &str, epochs: &Epochs| CompositeResourceVersion::decode(text, epochs);
        assert_eq!(decode(&old, &epochs), foreign);
        assert_eq!(decode(&of_other, &epochs), Ok(vector(1..2)));
        let new = vector(0..2).encode(&epochs);
        assert_eq!(decode(&new, &epochs), Ok(vector(0..2)));
        let stored = serde_json::to_vec(&epochs).unwrap();
        assert_eq!(serde_json::from_slice::<Epochs>(&stored).unwrap(), epochs, "the marks survive a restart");
        assert!(!epochs.update_at(list("second"), at(20)));
        let mut third = epochs.clone();
        third.update_at(list("third"), at(20));
        assert_eq!(decode(&new, &third), foreign);
        assert_eq!(CompositeResourceVersion::decode_for(&new, &third, |_| false), Ok(vector(0..2)));
        let mut silent = epochs.clone();
        silent.record_replacement(&name(0), at(20), at(20));
        silent.update_at(list(""), at(20));
        assert_eq!(decode(&new, &silent), foreign, "the next cluster has no known uid");
        let of_silent = vector(0..2).encode(&silent);
        assert_eq!(decode(&of_silent, &silent), Ok(vector(0..2)));
        silent.update_at(list("second"), at(30));
        assert_eq!(decode(&of_silent, &silent), foreign);
        assert!(!epochs.update_at(list("second"), at(23 * 60 * 60)), "a client may keep a version for hours");
        assert!(epochs.update_at(list("second"), at(10 + MARKED_FOR.as_secs())));
        assert_eq!(vector(0..2).encode(&epochs), old, "the mark has lapsed");
        assert_eq!(decode(&new, &epochs), Ok(vector(0..2)), "a marked version is still decoded");
    }

    #[test]
    fn cluster_without_a_uid_does_not_prevent_compact_versions() {
        let mut epochs = Epochs::default();
        let uid = |index: usize| if index == 7 { String::new() } else { format!("uid-{index}") };
        epochs.update((0..300).map(|index| (name(index), uid(index))));
        let text = vector(0..300).encode(&epochs);
        assert!(text.starts_with(PREFIX) && text.len() < 3 * 1024, "{} bytes", text.len());
        assert_eq!(CompositeResourceVersion::decode(&text, &epochs), Ok(vector(0..300)));
        assert_eq!((epochs.uid_of(&name(7)), epochs.uid_of(&name(300))), (Some(""), None));
    }

    /// If a cluster's uid was unknown when a version was issued, the version may belong to a different cluster of the
    /// same name.
    #[test]
    fn compact_version_of_a_cluster_without_uid_is_refused_after_the_uid_is_read() {
        let mut epochs = Epochs::default();
        let uid = |index: usize, unknown: &str| if index == 7 { unknown.to_owned() } else { format!("uid-{index}") };
        epochs.update((0..300).map(|index| (name(index), uid(index, ""))));
        let whole = vector(0..300).encode(&epochs);
        let without: CompositeResourceVersion =
            vector(0..300).iter().filter(|(cluster, _)| **cluster != name(7)).map(|(c, v)| (c.clone(), v)).collect();
        let without_text = without.encode(&epochs);
        epochs.update((0..300).map(|index| (name(index), uid(index, "uid-7"))));
        let decode = |text: &str, epochs: &Epochs| CompositeResourceVersion::decode(text, epochs);
        assert_eq!(decode(&whole, &epochs), Err(Foreign::Incarnation(name(7)).into()));
        assert_eq!(decode(&without_text, &epochs), Ok(without), "this version does not name the cluster");
        let with_uid = vector(0..300).encode(&epochs);
        epochs.update((0..300).map(|index| (name(index), uid(index, ""))));
        assert_eq!(decode(&with_uid, &epochs), Err(Foreign::Incarnation(name(7)).into()), "the uid is no longer known");
        assert_eq!(
            decode(&whole, &epochs),
            Ok(vector(0..300)),
            "without a uid the name alone counts, as in the JSON form"
        );
    }

    #[test]
    fn cluster_lists_are_restored_from_the_data_directory() {
        let mut epochs = epochs(3);
        epochs.update([(name(9), "u".to_owned())]);
        let text = serde_json::to_string(&epochs).unwrap();
        let read: Epochs = serde_json::from_str(&text).unwrap();
        assert_eq!(read, epochs);
        assert!(!read.contain_only(&name(9)), "earlier lists contain other clusters");
        let mut alone = Epochs::default();
        alone.update([(name(9), "u".to_owned())]);
        alone.update([(name(9), "v".to_owned())]);
        assert!(alone.contain_only(&name(9)) && !alone.contain_only(&name(1)));
        assert!(!epochs.update([(name(9), "u".to_owned())]), "an equal list is no change");
    }

    #[test]
    fn malformed_compact_versions_are_refused() {
        let epochs = epochs(2);
        let id = epochs.current().unwrap().to_be_bytes();
        let text = |rest: &[u8]| PREFIX.to_owned() + &URL_SAFE_NO_PAD.encode([&id[..], rest].concat());
        let decode = |text: &str| CompositeResourceVersion::decode(text, &epochs);
        assert!(decode(&text(&[2, 0])).is_ok());
        let part = [(name(0), CollectionVersion::part(ResourceVersion(1), 7))].into_iter().collect();
        assert_eq!(decode(&text(&[2, 0, 0, 7])), Ok(part));
        for rest in [
            &[2][..],
            // Each text has one invalid part of a revision, in this order: for a cluster without a component, for no
            // cluster, for revision zero, repeated, unordered, truncated, and with too many changes.
            &[2, 0, 1, 1],
            &[2, 0, 2, 1],
            &[1, 0, 0, 1],
            &[2, 2, 0, 1, 0, 1],
            &[2, 2, 1, 1, 0, 1],
            &[2, 2, 0],
            &[2, 2, 0, 0x80],
            &[2, 2, 0, 0x80, 0x80, 0x80, 0x80, 0x10],
            &[0x82, 0x00, 0],
            &[0x80; 12],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0],
        ] {
            assert!(matches!(decode(&text(rest)), Err(VersionDecodeError::Malformed(_))), "{rest:?}");
        }
        for bad in ["c1.", "c1.AAAA", ".", "c.AAAA", "c1.=", "x1.AAAA", "c01.AAAA", "c1.é"] {
            assert!(matches!(decode(bad), Err(VersionDecodeError::Malformed(_))), "{bad}");
        }
        assert_eq!(decode("c2.AAAA"), Err(Foreign::Form.into()));
    }

    proptest! {
        #[test]
        fn compact_version_encodes_and_decodes_to_an_equal_version(versions in prop::collection::vec(prop::option::of((1..=u64::MAX, any::<Option<u32>>())), 1..40)) {
            let epochs = epochs(versions.len());
            let value: CompositeResourceVersion = versions
                .iter()
                .enumerate()
                .filter_map(|(index, version)| {
                    let (revision, part) = (*version)?;
                    let whole = CollectionVersion::whole(ResourceVersion(revision));
                    Some((name(index), part.map_or(whole, |changes| CollectionVersion::part(whole.revision(), changes))))
                })
                .collect();
            let text = epochs.encode(&value).unwrap();
            prop_assert_eq!(CompositeResourceVersion::decode(&text, &epochs), Ok(value));
        }
    }
}
