//! Decoding and checks of the resourceVersions in clients' requests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_answers::refusal::{ClusterRefusal, Refusal, VersionRefusal};
use tributary_apimachinery::{
    ClusterName, ClusterSelector, CollectionVersion, GroupVersionResource, ItemResourceVersions, ResourceVersion,
};
use tributary_fleet::topology::{Cluster, ClusterIdentity};
use tributary_merge::{
    CompositeResourceVersion, ContinueError, ContinueToken, Epochs, Foreign, IntegerResourceVersion, OpaqueVersion,
    VersionDecodeError, scope_prefix, split_scope,
};
use tributary_sharing::limits::UNKNOWN_CLUSTERS;

use tributary_rights::{Audience, Candidates, ItemVersions};

/// Codec for the resourceVersions of one resource in one request.
pub(crate) struct Versions {
    epochs: Arc<Epochs>,
    items: ItemResourceVersions,
    clusters: Arc<BTreeMap<ClusterName, Arc<Cluster>>>,
    audience: Option<Arc<Audience>>,
    /// Clusters that the client may know.
    candidates: Candidates,
}

/// A resourceVersion that this process or a replica has issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientVersion {
    /// Composite version of a list, a bookmark or an event, or an object's component in composite form.
    Vector(CompositeResourceVersion),
    /// Integer version of one object, which belongs to a single cluster.
    Item(ClusterName, ResourceVersion),
    /// Version of one object that is not a number.
    Opaque(OpaqueVersion),
}

/// State that a read requests by its resourceVersion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadVersion {
    /// No resourceVersion: the newest state, including the client's own writes.
    Newest,
    /// `0`: the state in memory.
    Any,
    /// A composite version, which covers several clusters.
    Version(CompositeResourceVersion),
    /// Integer version of one object, which covers a single cluster.
    Item(ClusterName, ResourceVersion),
}

impl Versions {
    /// Makes the codec for these clusters, and for objects whose versions have the form `items`.
    pub(crate) fn new(
        epochs: Arc<Epochs>,
        items: ItemResourceVersions,
        clusters: Arc<BTreeMap<ClusterName, Arc<Cluster>>>,
    ) -> Self {
        Self { epochs, items, clusters, audience: None, candidates: Candidates::default() }
    }

    /// Restricts the codec to the clusters that a group of users with equal rights (audience) may know.
    pub(crate) fn of_audience(self, audience: Option<Arc<Audience>>) -> Self {
        Self { audience, ..self }
    }

    pub(crate) fn of_candidates(self, candidates: Candidates) -> Self {
        Self { candidates, ..self }
    }

    /// Returns whether the client, and its group of users with equal rights (audience), may know a cluster.
    fn is_visible_to_client(&self, cluster: &ClusterName) -> bool {
        self.candidates.has(cluster) && self.audience.as_ref().is_none_or(|audience| audience.has(cluster))
    }

    /// Returns the form in which answers contain the versions of objects.
    pub(crate) fn item_versions(&self) -> ItemVersions {
        ItemVersions::new(self.items, self.audience.clone())
    }

    pub(crate) fn encode(&self, version: &CompositeResourceVersion) -> String {
        match &self.audience {
            Some(audience) => audience.encode(version, &self.epochs),
            None => version.encode(&self.epochs),
        }
    }

    pub(crate) fn encode_token(&self, token: ContinueToken) -> String {
        let Some((audience, version)) = self.audience.as_ref().zip(token.version.as_ref()) else {
            return token.encode(&self.epochs);
        };
        let visible = audience.visible_components(version);
        let prefix = scope_prefix(audience.scope_of(visible.iter().map(|(cluster, _)| cluster)));
        prefix + &ContinueToken { version: Some(visible), ..token }.encode(&self.epochs)
    }

    /// Checks that a version was issued while the caller had the present rights to list, in the clusters of the
    /// version. A cluster that joined later does not invalidate the version. A cluster that the caller may no longer
    /// list invalidates it.
    ///
    /// # Errors
    /// 410 for a version under other rights.
    pub(crate) fn in_scope(&self, text: Option<&str>, wanted: &ReadVersion) -> Result<(), VersionRefusal> {
        let clusters: Vec<_> = match wanted {
            ReadVersion::Newest | ReadVersion::Any => return Ok(()),
            ReadVersion::Item(cluster, _) => vec![cluster],
            ReadVersion::Version(version) => version.iter().map(|(cluster, _)| cluster).collect(),
        };
        // An earlier check has already refused a text that is not a version.
        let scope = text.and_then(|text| split_scope(text).ok()).and_then(|(scope, _)| scope);
        self.is_scope(scope, clusters.into_iter())
    }

    fn is_scope<'a>(
        &self,
        scope: Option<[u8; 16]>,
        clusters: impl Iterator<Item = &'a ClusterName>,
    ) -> Result<(), VersionRefusal> {
        let now = self.audience.as_ref().and_then(|audience| audience.scope_of(clusters));
        if scope == now { Ok(()) } else { Err(VersionRefusal::AnotherScope) }
    }

    pub(crate) fn items(&self) -> ItemResourceVersions {
        self.items
    }

    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Decodes a resourceVersion: a composite version in either form, or an integer if objects have integer versions.
    ///
    /// # Errors
    /// The reason why the text is no version of Tributary. A number is never malformed. A number is foreign if objects
    /// have no integer versions, if its index belongs to no cluster, or if the client may not know its cluster.
    pub(crate) fn decode(&self, text: &str) -> Result<ClientVersion, VersionDecodeError> {
        if self.items == ItemResourceVersions::Integer
            && let Ok(integer) = IntegerResourceVersion::decode(text)
        {
            let (version, index) = (integer.version(), integer.index());
            let owner = self.clusters.values().find(|cluster| cluster.mark.index() == Some(index));
            let owner = owner.filter(|owner| self.is_visible_to_client(owner.name()));
            let owner = owner.ok_or(Foreign::Index(index))?;
            return Ok(ClientVersion::Item(owner.name().clone(), version));
        }
        // The writer of an object may use a version that was issued under other rights, so the rights in the text are
        // not compared.
        let (_, text) = split_scope(text)?;
        match CompositeResourceVersion::decode_for(text, &self.epochs, |cluster| self.is_visible_to_client(cluster)) {
            Ok(vector) => Ok(ClientVersion::Vector(vector)),
            Err(error) => OpaqueVersion::decode(text).map(ClientVersion::Opaque).ok_or(error),
        }
    }

    /// Decodes a continue token.
    ///
    /// # Errors
    /// [`ContinueError`]; a composite version with too many clusters is foreign.
    pub(crate) fn continued(&self, token: &str) -> Result<ContinueToken, ContinueError> {
        let (_, text) = split_scope(token).map_err(|_| ContinueError::Invalid("its scope is not one"))?;
        let token = ContinueToken::decode_for(text, &self.epochs, |cluster| self.is_visible_to_client(cluster))?;
        match token.version.as_ref().map_or(Ok(()), |vector| self.bounded(vector)) {
            Ok(()) => Ok(token),
            Err(source) => Err(ContinueError::Foreign { position: token.position, source }),
        }
    }

    /// Checks that a continue token was issued while the caller had the present rights. A token without a version
    /// continues with the present state, so the rights at the time of earlier pages do not matter.
    ///
    /// # Errors
    /// 410 for a token under other rights.
    pub(crate) fn token_in_scope(&self, text: &str, token: &ContinueToken) -> Result<(), VersionRefusal> {
        let Some(version) = &token.version else { return Ok(()) };
        // An earlier check has already refused a text that is not a token.
        let scope = split_scope(text).ok().and_then(|(scope, _)| scope);
        self.is_scope(scope, version.iter().map(|(cluster, _)| cluster))
    }

    pub(crate) fn has_cluster(&self, name: &ClusterName) -> bool {
        self.clusters.contains_key(name)
    }

    /// Returns whether the merged view issued a continue token, valid or expired.
    pub(crate) fn gave_token(&self, token: &str) -> bool {
        let decoded = split_scope(token).map(|(_, token)| ContinueToken::decode(token, &self.epochs));
        !matches!(decoded, Err(_) | Ok(Err(ContinueError::Invalid(_))))
    }

    /// Checks that the number of unknown clusters in a composite version does not exceed the limit. A cluster that the
    /// caller may not know is also unknown, because otherwise the refusal would reveal the cluster. Cost: a lookup for
    /// each name.
    fn bounded(&self, vector: &CompositeResourceVersion) -> Result<(), Foreign> {
        let is_known =
            |cluster: &ClusterName| self.clusters.contains_key(cluster) && self.is_visible_to_client(cluster);
        let unknown = vector.iter().filter(|(cluster, _)| !is_known(cluster));
        if vector.len() > UNKNOWN_CLUSTERS && unknown.count() > UNKNOWN_CLUSTERS {
            return Err(Foreign::Clusters(UNKNOWN_CLUSTERS));
        }
        Ok(())
    }

    /// Refuses a composite version whose list of clusters (epoch) is unknown, while the identity of a cluster is
    /// unknown. Once the identity is known, the list may turn out to be valid, so the client should wait: if it listed
    /// again now, it would miss the cluster. The refusal names only clusters that the caller may know.
    pub(crate) fn undecided(&self, resource: &GroupVersionResource, foreign: &Foreign) -> Option<ClusterRefusal> {
        let Foreign::Epoch(_) = foreign else { return None };
        let unidentified = self.clusters.values().filter(|cluster| match &*cluster.identity() {
            _ if cluster.discovery().is_none() => true,
            // The cluster has reported its uid, and the update of the list of clusters follows immediately.
            ClusterIdentity::Known(uid) => self.epochs.current_uid_of(cluster.name()) != Some(uid.as_str()),
            ClusterIdentity::Withheld => self.epochs.current_uid_of(cluster.name()) != Some(""),
            ClusterIdentity::Unknown => false,
        });
        let names = unidentified.map(|cluster| cluster.name().clone());
        let (visible, hidden): (Vec<_>, Vec<_>) = names.partition(|name| self.is_visible_to_client(name));
        match (visible.is_empty(), hidden.is_empty()) {
            (false, _) => {
                let needs_repair = |name: &ClusterName| self.clusters[name].needs_repair(resource);
                let retry_after = (!visible.iter().any(needs_repair)).then_some(1);
                Some(ClusterRefusal::unread(resource, visible, retry_after))
            }
            (true, false) => Some(ClusterRefusal::rights_unknown(resource.clone(), String::new())),
            (true, true) => None,
        }
    }

    /// Decodes the requested state of a read.
    ///
    /// # Errors
    /// 429 while the version is [undecided](Self::undecided); otherwise the error that `refuse` makes of the text and
    /// the decoding error.
    pub(crate) fn read_wanted(
        &self,
        resource: &GroupVersionResource,
        text: Option<&str>,
        refuse: impl FnOnce(&str, VersionDecodeError) -> VersionRefusal,
    ) -> Result<ReadVersion, Refusal> {
        ReadVersion::parse(text, self).map_err(|error| {
            let undecided = match &error {
                VersionDecodeError::Foreign(foreign) => self.undecided(resource, foreign),
                VersionDecodeError::Malformed(_) => None,
            };
            undecided.map_or_else(|| refuse(text.unwrap_or_default(), error).into(), Refusal::from)
        })
    }
}

impl ClientVersion {
    /// Returns the cluster of the version, if the version has only one cluster, as the version of a single object has.
    pub(crate) fn only_cluster(&self) -> Option<&ClusterName> {
        match self {
            Self::Vector(vector) => vector.iter().next().filter(|_| vector.len() == 1).map(|(cluster, _)| cluster),
            Self::Item(cluster, _) => Some(cluster),
            Self::Opaque(version) => Some(&version.cluster),
        }
    }

    /// Returns the component for a cluster; `None` if it is not a number.
    pub(crate) fn component(&self, cluster: &ClusterName) -> Option<CollectionVersion> {
        match self {
            Self::Vector(vector) => vector.get(cluster),
            Self::Item(own, version) => (own == cluster).then_some((*version).into()),
            Self::Opaque(_) => None,
        }
    }

    /// Returns the version for a write of one object, in the form of its cluster; `None` if the version does not
    /// include the cluster.
    ///
    /// Events carry the composite version of the whole collection. So if the component of a composite version is not
    /// older than the object in memory, the result is the version of the object in memory. An older component stays, so
    /// that the cluster refuses the outdated write. An integer is already the version of one object, and stays
    /// unchanged.
    pub(crate) fn native(&self, cluster: &ClusterName, cached: Option<ResourceVersion>) -> Option<String> {
        if let Self::Opaque(opaque) = self {
            return (opaque.cluster == *cluster).then(|| opaque.version.clone());
        }
        let component = self.component(cluster)?;
        let covered = cached.filter(|cached| matches!(self, Self::Vector(_)) && component >= *cached);
        Some(covered.unwrap_or(component.revision()).to_string())
    }
}

impl ReadVersion {
    /// Parses the resourceVersion of a read.
    ///
    /// # Errors
    /// As [`Versions::decode`]; a composite version with too many clusters is foreign.
    fn parse(text: Option<&str>, versions: &Versions) -> Result<Self, VersionDecodeError> {
        match text {
            None | Some("") => Ok(Self::Newest),
            Some("0") => Ok(Self::Any),
            Some(text) => Ok(match versions.decode(text)? {
                ClientVersion::Vector(vector) => {
                    versions.bounded(&vector)?;
                    Self::Version(vector)
                }
                ClientVersion::Item(cluster, version) => Self::Item(cluster, version),
                ClientVersion::Opaque(_) => return Err(Foreign::Opaque.into()),
            }),
        }
    }
}

/// Returns the version that a read waits for, if the client sends the version of a single object: the change of this
/// object, which may be only a part of the changes of its revision.
pub(crate) fn seen(cluster: &ClusterName, version: ResourceVersion) -> CompositeResourceVersion {
    [(cluster.clone(), CollectionVersion::begun(version))].into_iter().collect()
}

/// Makes the refusal of a watch. It is sent as an event in the stream, because after an HTTP 410 clients repeat a watch
/// with the same version.
pub(crate) fn refuse_watch(_text: &str, error: VersionDecodeError) -> VersionRefusal {
    VersionRefusal::ForeignToWatch(error)
}

/// Returns the components of a version in the selected clusters. The other clusters are not read.
pub(crate) fn of_clusters<'a>(
    version: &'a CompositeResourceVersion,
    wanted: &ClusterSelector,
) -> Cow<'a, CompositeResourceVersion> {
    if wanted.is_everything() {
        return Cow::Borrowed(version);
    }
    let components = version.iter().filter(|(cluster, _)| wanted.matches(cluster));
    Cow::Owned(components.map(|(cluster, version)| (cluster.clone(), version)).collect())
}

/// Makes the refusal of a get: each text that cannot be decoded is the client's error.
pub(crate) fn refuse_get(text: &str, error: VersionDecodeError) -> VersionRefusal {
    VersionRefusal::Invalid { text: text.to_owned(), error }
}

/// Makes the refusal of a list. A malformed version is the client's error. A well-formed version that Tributary cannot
/// use is treated as expired, because an informer lists from scratch only after 410.
pub(crate) fn refuse_list(text: &str, error: VersionDecodeError) -> VersionRefusal {
    match error {
        VersionDecodeError::Malformed(_) => VersionRefusal::Invalid { text: text.to_owned(), error },
        VersionDecodeError::Foreign(_) => VersionRefusal::ForeignToList(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ClusterAuthorization, MemberRules};
    use tributary_fleet::topology::{ClusterAddress, ClusterSetup, MemberShareMetrics, MemberUnreadBytes};

    pub(crate) fn versions(items: ItemResourceVersions) -> Versions {
        let clusters = [("a", Some(3)), ("b", Some(0)), ("c", None)].map(|(name, index)| {
            let name = ClusterName::new(name).unwrap();
            let setup = ClusterSetup {
                name: name.clone(),
                client: Err("a test".to_owned()),
                client_generation: 0,
                address: ClusterAddress::from_description(""),
                index,
                impersonation: MemberRules::default(),
                authorization: ClusterAuthorization::Auto,
            };
            let (unread, shares) = (MemberUnreadBytes::default(), MemberShareMetrics::default());
            (name, Cluster::new(setup, Default::default(), &Arc::default(), &unread, &shares))
        });
        Versions::new(Arc::default(), items, Arc::new(clusters.into_iter().collect()))
    }

    fn name(text: &str) -> ClusterName {
        ClusterName::new(text).unwrap()
    }

    #[test]
    fn integer_is_a_valid_version_only_if_objects_carry_integers() {
        let (integer, composite) = (versions(ItemResourceVersions::Integer), versions(ItemResourceVersions::Composite));
        assert_eq!(integer.decode("12340003"), Ok(ClientVersion::Item(name("a"), ResourceVersion(1234))));
        assert_eq!(integer.decode("50000"), Ok(ClientVersion::Item(name("b"), ResourceVersion(5))));
        assert!(matches!(integer.decode("12340004"), Err(VersionDecodeError::Foreign(Foreign::Index(_)))));
        assert_eq!(composite.decode("12340003"), Err(Foreign::Number.into()));
        for garbage in ["-1", "01", "1x", "x"] {
            assert!(matches!(integer.decode(garbage), Err(VersionDecodeError::Malformed(_))), "{garbage}");
        }
        assert!(matches!(integer.decode("99999999999999999999999"), Err(VersionDecodeError::Foreign(Foreign::Number))));
        assert_eq!(ReadVersion::parse(Some("0"), &integer), Ok(ReadVersion::Any));
        assert_eq!(ReadVersion::parse(Some(""), &integer), Ok(ReadVersion::Newest));
    }

    #[test]
    fn composite_version_that_covers_the_cached_object_becomes_the_objects_version() {
        let vector = |a: u64| {
            ClientVersion::Vector([(name("a"), CollectionVersion::from(ResourceVersion(a)))].into_iter().collect())
        };
        let item = ClientVersion::Item(name("a"), ResourceVersion(7));
        for (version, cached, expected) in [
            (vector(7), None, 7),
            (vector(7), Some(5), 5),
            (vector(7), Some(7), 7),
            // The object in memory is newer than the version. The older version is sent, so that the cluster refuses
            // the write.
            (vector(7), Some(9), 7),
            (item.clone(), Some(5), 7),
            (item, None, 7),
        ] {
            let native = version.native(&name("a"), cached.map(ResourceVersion));
            assert_eq!(native, Some(expected.to_string()), "{version:?} {cached:?}");
            assert_eq!(version.native(&name("b"), None), None);
        }
    }

    #[test]
    fn hidden_cluster_in_a_composite_version_is_treated_as_unconfigured() {
        let candidates = Candidates::default().except([name("a")].iter(), |_| false);
        let versions = versions(ItemResourceVersions::Composite).of_candidates(candidates);
        let wanted = |unknown: usize, last: &str| {
            let made_up = (0..unknown).map(|index| name(&format!("x{index:04}")));
            let named =
                made_up.chain([name(last)]).map(|cluster| (cluster, CollectionVersion::from(ResourceVersion(1))));
            let text = named.collect::<CompositeResourceVersion>().encode(&Epochs::default());
            ReadVersion::parse(Some(&text), &versions).map(drop)
        };
        for hidden in ["b", "nope"] {
            assert_eq!(wanted(UNKNOWN_CLUSTERS - 1, hidden), Ok(()), "{hidden}");
            assert_eq!(wanted(UNKNOWN_CLUSTERS, hidden), Err(Foreign::Clusters(UNKNOWN_CLUSTERS).into()), "{hidden}");
        }
        assert_eq!(wanted(UNKNOWN_CLUSTERS, "a"), Ok(()));
    }

    #[test]
    fn non_numeric_version_is_sent_only_to_its_cluster() {
        let text = OpaqueVersion::encode(&name("a"), "100/107");
        for items in [ItemResourceVersions::Integer, ItemResourceVersions::Composite] {
            let versions = versions(items);
            let decoded = versions.decode(&text).unwrap();
            assert_eq!(decoded.only_cluster(), Some(&name("a")));
            assert_eq!(decoded.native(&name("a"), None).as_deref(), Some("100/107"));
            assert_eq!(decoded.native(&name("b"), None), None);
            assert_eq!(ReadVersion::parse(Some(&text), &versions), Err(Foreign::Opaque.into()));
        }
    }

    #[test]
    fn integer_version_applies_only_to_its_own_cluster() {
        let decoded = versions(ItemResourceVersions::Integer).decode("12340003").unwrap();
        assert_eq!(decoded.component(&name("a")), Some(ResourceVersion(1234).into()));
        assert_eq!(decoded.component(&name("b")), None);
    }

    proptest! {
        #[test]
        fn object_version_decodes_to_its_origin(version in 0..u64::from(u32::MAX), of_first: bool, integer: bool) {
            let items = if integer { ItemResourceVersions::Integer } else { ItemResourceVersions::Composite };
            let (versions, owner) = (versions(items), name(if of_first { "a" } else { "b" }));
            let mut text = String::new();
            versions.clusters[&owner].mark.item_version(items, ResourceVersion(version), &mut text);
            let decoded = versions.decode(&text).unwrap();
            prop_assert_eq!(decoded.component(&owner), Some(ResourceVersion(version).into()));
            prop_assert_eq!(decoded.component(&name("c")), None);
            prop_assert_eq!(matches!(decoded, ClientVersion::Item(..)), integer);
        }
    }
}
