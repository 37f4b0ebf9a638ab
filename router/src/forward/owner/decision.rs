//! Pure functions that decide which cluster owns an object. Tables in the tests cover the functions.

use tributary_answers::ground::Ground;
use tributary_apimachinery::ClusterName;

/// Clusters that are known to have an object: the object of a request, or an object that supports a ground (reason to
/// choose a cluster).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) has: Vec<ClusterName>,
    pub(crate) may: Vec<ClusterName>,
    /// Clusters that forbid the client to perform the lookup. Set only if all clusters forbid it; if only some do,
    /// [`Self::may`] contains them. A client that can see such objects in no cluster does not depend on these objects.
    pub(crate) forbidden: Vec<ClusterName>,
    /// True if any client can create objects like those in [`Self::has`] (ConfigMaps that look like Helm's). Such an
    /// object decides only if no other cluster may have stronger evidence, such as a Secret of Helm.
    pub(crate) is_weak: bool,
    /// True if a cluster that is hidden from the caller may have the object.
    pub(crate) is_one_hidden: bool,
}

/// Claim of a request about the cluster of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim<'a> {
    /// The request names no cluster, and any object that Tributary finds is acceptable: a read can be repeated, and a
    /// resource with `names: Unique` has no second object of the name.
    AnyKnown,
    /// The request names no cluster and changes the object. An object of the name in a second cluster would make the
    /// request ambiguous.
    OnlyOne,
    /// The annotation in the body names this cluster, which must have the object.
    Annotated(&'a str),
    /// A ground names this cluster. An object of the name in another cluster is not the requested object.
    Of(Ground, ClusterName),
    /// An apply, which creates the object in this cluster if the cluster has none. Other clusters may have an object of
    /// the name.
    MadeIn(Ground, ClusterName),
}

impl Claim<'_> {
    /// Returns the ground of the claim; [`Ground::Name`] if the request names no cluster.
    pub(crate) fn ground(&self) -> Ground {
        match self {
            Self::AnyKnown | Self::OnlyOne => Ground::Name,
            Self::Annotated(_) => Ground::Annotation,
            Self::Of(ground, _) | Self::MadeIn(ground, _) => *ground,
        }
    }
}

/// Reason for which no cluster is the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerError {
    /// No cluster has the object, and the answers of all clusters are known. The result is a 404, which controllers
    /// read as a deletion.
    NotFound,
    /// No cluster is known to have the object, or the cluster in the annotation is not known to have it. The listed
    /// clusters did not answer, and may have the object.
    Unknown(Vec<ClusterName>),
    /// A cluster that is hidden from the caller may have the object.
    RightsUnknown,
    /// Several clusters have the object, and the request names no cluster.
    Several(Vec<ClusterName>),
    /// A cluster has the object, and clusters without an answer may also have an object of the name. Tributary could
    /// only guess the target of a write.
    Unsure {
        /// Cluster with the object.
        known: ClusterName,
        /// Clusters that may have an object of the name.
        unknown: Vec<ClusterName>,
    },
    /// The object is not in the cluster that the request names.
    Elsewhere {
        /// Cluster that the request names.
        named: String,
        owner: ClusterName,
    },
    /// Every cluster forbids the client to look up the Helm release. The next ground then decides. But the configured
    /// `placement` must not decide.
    Forbidden(Vec<ClusterName>),
}

impl OwnerError {
    /// Returns whether the answer of a cluster that has not answered can change this reason.
    pub(crate) fn depends_on_unknown(&self) -> bool {
        matches!(self, Self::NotFound | Self::Unknown(_) | Self::Unsure { .. })
    }
}

impl Evidence {
    /// Returns the owner of the object that a request names. Clusters that may have the object matter in three cases:
    /// no cluster is known to have the object, the claim excludes a second object, or the claim names a cluster that
    /// may have the object.
    ///
    /// # Errors
    /// [`OwnerError`].
    pub(crate) fn owner_of_name(&self, claim: &Claim<'_>) -> Result<ClusterName, OwnerError> {
        // A write that names no cluster must not guess. So a cluster without an answer, which may have a second object,
        // prevents the write.
        let is_guess = matches!(claim, Claim::OnlyOne | Claim::Of(..));
        let owner = match (claim, &self.has[..]) {
            (Claim::MadeIn(_, cluster), _) => return Ok(cluster.clone()),
            (Claim::Of(_, cluster), has) if has.contains(cluster) => return Ok(cluster.clone()),
            (Claim::Annotated(named), _) => self.owner_where_named(named),
            (_, []) if self.may.is_empty() => Err(OwnerError::NotFound),
            (_, []) => Err(OwnerError::Unknown(self.may.clone())),
            (_, [known]) if is_guess && !self.may.is_empty() => {
                Err(OwnerError::Unsure { known: known.clone(), unknown: self.may.clone() })
            }
            (_, [owner]) => Ok(owner.clone()),
            (_, several) => Err(OwnerError::Several(several.to_vec())),
        };
        match owner {
            Err(OwnerError::NotFound) if self.is_one_hidden => Err(OwnerError::RightsUnknown),
            Ok(_) if self.is_one_hidden && is_guess => Err(OwnerError::RightsUnknown),
            owner => owner,
        }
    }

    /// Returns the cluster that the annotation names, if the cluster has the object.
    fn owner_where_named(&self, named: &str) -> Result<ClusterName, OwnerError> {
        let is_named = |cluster: &&ClusterName| cluster.as_str() == named;
        match (self.has.iter().find(is_named), self.may.iter().find(is_named), self.has.first()) {
            (Some(owner), _, _) => Ok(owner.clone()),
            (None, Some(unknown), _) => Err(OwnerError::Unknown(vec![unknown.clone()])),
            (None, None, None) => Err(OwnerError::NotFound),
            (None, None, Some(other)) => Err(OwnerError::Elsewhere { named: named.to_owned(), owner: other.clone() }),
        }
    }

    /// Returns the cluster that a ground names by this evidence. `placement` is the cluster in the configuration.
    ///
    /// # Errors
    /// [`OwnerError::NotFound`] if the ground does not apply: the next ground decides. All other errors refuse the
    /// write.
    pub(crate) fn owner_by_ground(
        &self,
        ground: Ground,
        placement: Option<&ClusterName>,
    ) -> Result<ClusterName, OwnerError> {
        let may: Vec<_> = self.may.iter().filter(|cluster| !self.has.contains(cluster)).cloned().collect();
        let is_release = ground == Ground::Release;
        let rests_on_unknown = ground.requires_absence_elsewhere() || self.is_weak;
        match &self.has[..] {
            // The unknown clusters make this ground uncertain. `placement` decides instead, and names the same cluster.
            [only] if ground.requires_absence_elsewhere() && !may.is_empty() && placement == Some(only) => {
                Err(OwnerError::NotFound)
            }
            [only] if rests_on_unknown && !may.is_empty() => {
                Err(OwnerError::Unsure { known: only.clone(), unknown: may })
            }
            // The hidden cluster makes this ground uncertain. `placement` decides instead, and names the same cluster.
            [only] if rests_on_unknown && self.is_one_hidden && placement == Some(only) => Err(OwnerError::NotFound),
            [_] if rests_on_unknown && self.is_one_hidden => Err(OwnerError::RightsUnknown),
            [only] => Ok(only.clone()),
            [] if is_release && !may.is_empty() => Err(OwnerError::Unknown(may)),
            [] if is_release && !self.forbidden.is_empty() => Err(OwnerError::Forbidden(self.forbidden.clone())),
            [] if is_release && self.is_one_hidden => Err(OwnerError::RightsUnknown),
            [] => Err(OwnerError::NotFound),
            several if is_release => Err(OwnerError::Several(several.to_vec())),
            _ => Err(OwnerError::NotFound),
        }
    }
}

/// Returns whether the 403 of a cluster is the client's answer, if no cluster has the object.
///
/// In personal mode each 403 is the answer. In shared mode Tributary knows the rights. A user without the right to get
/// an object may still write the object, or read its subresource, and memory shows that the object does not exist, so
/// the answer is not the 403. For a get, and for a kind that is not cached, the 403 is the answer.
pub(crate) fn is_denial_final(request: DeniedRequest) -> bool {
    !request.is_shared || !request.is_cached || request.is_get
}

/// Properties of a request that decide whether the 403 of a cluster is the client's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeniedRequest {
    /// True for a request in shared mode, where Tributary knows the users' rights.
    pub(crate) is_shared: bool,
    pub(crate) is_cached: bool,
    pub(crate) is_get: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<ClusterName> {
        text.split_whitespace().map(|it| ClusterName::new(it).unwrap()).collect()
    }

    fn name(text: &str) -> ClusterName {
        ClusterName::new(text).unwrap()
    }

    fn unsure(known: &str, unknown: &str) -> OwnerError {
        OwnerError::Unsure { known: name(known), unknown: names(unknown) }
    }

    /// Returns the status code of the answer to a request for a name, or the name of the owner. `answers` has the
    /// lookup results of the clusters `a`, `b` and `c`. A cluster that got no lookup (`429`) may have the object, like
    /// a cluster that does not answer (`none`).
    fn answer(answers: &str, claim: &Claim<'_>, request: DeniedRequest) -> String {
        let with = |wanted: &str| -> Vec<ClusterName> {
            let all = ["a", "b", "c"].into_iter().zip(answers.split(' '));
            all.filter(|(_, code)| *code == wanted).map(|(cluster, _)| name(cluster)).collect()
        };
        let may = [with("none"), with("429")].concat();
        let evidence = Evidence { has: with("200"), may, ..Evidence::default() };
        match evidence.owner_of_name(claim) {
            Ok(owner) => return owner.to_string(),
            Err(none) if none.depends_on_unknown() && !with("429").is_empty() => "429",
            Err(OwnerError::NotFound) if !with("403").is_empty() && is_denial_final(request) => "403",
            Err(OwnerError::NotFound) => "404",
            Err(OwnerError::Unknown(_) | OwnerError::Unsure { .. }) => "503",
            Err(OwnerError::Several(_)) => "409",
            Err(none) => panic!("{none:?}"),
        }
        .to_owned()
    }

    /// Columns: the lookup results of three clusters; the answer to a get; to a write that names no cluster; and to
    /// such a write in shared mode for a cached kind.
    #[test]
    fn answers_of_clusters_decide_the_status_or_owner_of_a_name() {
        let get = DeniedRequest { is_shared: false, is_cached: true, is_get: true };
        let get_of_user = DeniedRequest { is_shared: true, ..get };
        let write = DeniedRequest { is_get: false, ..get };
        let write_of_user = DeniedRequest { is_get: false, ..get_of_user };
        let live_write_of_user = DeniedRequest { is_cached: false, ..write_of_user };
        for (answers, got, written, written_by_user) in [
            ("404 404 404", "404", "404", "404"),
            ("404 404 403", "403", "403", "404"),
            ("403 403 403", "403", "403", "404"),
            ("404 404 none", "503", "503", "503"),
            ("404 403 none", "503", "503", "503"),
            ("200 404 404", "a", "a", "a"),
            ("200 404 403", "a", "a", "a"),
            ("404 200 none", "b", "503", "503"),
            ("200 403 none", "a", "503", "503"),
            ("200 200 404", "409", "409", "409"),
            ("200 200 none", "409", "409", "409"),
            ("404 404 429", "429", "429", "429"),
            ("404 403 429", "429", "429", "429"),
            ("200 404 429", "a", "429", "429"),
        ] {
            for (claim, request, expected) in [
                (Claim::AnyKnown, get, got),
                (Claim::AnyKnown, get_of_user, got),
                (Claim::OnlyOne, write, written),
                (Claim::OnlyOne, write_of_user, written_by_user),
                (Claim::OnlyOne, live_write_of_user, written),
            ] {
                assert_eq!(answer(answers, &claim, request), expected, "{answers}: {claim:?}, {request:?}");
            }
        }
    }

    #[test]
    fn write_claim_and_clusters_with_the_object_decide_the_owner() {
        let nowhere = || Err(OwnerError::NotFound);
        let unknown = |clusters| Err(OwnerError::Unknown(names(clusters)));
        let several = |clusters| Err(OwnerError::Several(names(clusters)));
        let elsewhere = |named: &str, owner| Err(OwnerError::Elsewhere { named: named.to_owned(), owner: name(owner) });
        let owner = |cluster| Ok(name(cluster));
        let of = |cluster| Claim::Of(Ground::Precondition, name(cluster));
        let made_in = |cluster| Claim::MadeIn(Ground::Annotation, name(cluster));
        for (has, may, claim, expected) in [
            ("", "", Claim::AnyKnown, nowhere()),
            ("", "", Claim::OnlyOne, nowhere()),
            ("", "", Claim::Annotated("a"), nowhere()),
            ("", "", of("b"), nowhere()),
            ("", "b c", Claim::AnyKnown, unknown("b c")),
            ("", "b c", Claim::OnlyOne, unknown("b c")),
            ("", "b c", of("b"), unknown("b c")),
            ("", "b c", Claim::Annotated("a"), nowhere()),
            ("", "b c", Claim::Annotated("b"), unknown("b")),
            ("a", "", Claim::AnyKnown, owner("a")),
            ("a", "", Claim::OnlyOne, owner("a")),
            ("a", "b", Claim::AnyKnown, owner("a")),
            ("a", "b c", Claim::OnlyOne, Err(unsure("a", "b c"))),
            ("a b", "", Claim::AnyKnown, several("a b")),
            ("a b", "", Claim::OnlyOne, several("a b")),
            ("a b", "c", Claim::OnlyOne, several("a b")),
            ("a b", "", Claim::Annotated("b"), owner("b")),
            ("a", "b", Claim::Annotated("a"), owner("a")),
            ("a", "", Claim::Annotated("b"), elsewhere("b", "a")),
            ("a", "c", Claim::Annotated("b"), elsewhere("b", "a")),
            ("a", "b c", Claim::Annotated("b"), unknown("b")),
            ("a b", "c", Claim::Annotated("c"), unknown("c")),
            ("a b", "", Claim::Annotated("nobody's"), elsewhere("nobody's", "a")),
            ("a b", "c", of("b"), owner("b")),
            // If only one cluster certainly has the object, this member gets the request, and refuses a request with a
            // wrong claim.
            ("a", "", of("b"), owner("a")),
            ("a", "b", of("b"), Err(unsure("a", "b"))),
            ("a b", "", of("c"), several("a b")),
            ("a b", "c", made_in("d"), owner("d")),
        ] {
            let evidence = Evidence { has: names(has), may: names(may), ..Evidence::default() };
            assert_eq!(evidence.owner_of_name(&claim), expected, "{has}; {may}; {claim:?}");
        }
    }

    #[test]
    fn hidden_cluster_makes_a_write_without_a_ground_ambiguous() {
        let of = |cluster| Claim::Of(Ground::Precondition, name(cluster));
        for (has, claim, expected) in [
            ("", Claim::AnyKnown, Err(OwnerError::RightsUnknown)),
            ("", Claim::Annotated("a"), Err(OwnerError::RightsUnknown)),
            ("a", Claim::AnyKnown, Ok(name("a"))),
            ("a", Claim::OnlyOne, Err(OwnerError::RightsUnknown)),
            ("a", of("a"), Ok(name("a"))),
            ("a", of("b"), Err(OwnerError::RightsUnknown)),
            ("a", Claim::Annotated("a"), Ok(name("a"))),
            ("a b", Claim::OnlyOne, Err(OwnerError::Several(names("a b")))),
        ] {
            let evidence = Evidence { has: names(has), is_one_hidden: true, ..Evidence::default() };
            assert_eq!(evidence.owner_of_name(&claim), expected, "{has}; {claim:?}");
        }
    }

    #[test]
    fn helm_release_hidden_in_some_clusters_is_decided_by_other_clusters() {
        for (has, may, expected) in [
            ("", "", Err(OwnerError::Forbidden(names("a b")))),
            ("", "c", Err(OwnerError::Unknown(names("c")))),
            ("c", "", Ok(name("c"))),
            ("c d", "", Err(OwnerError::Several(names("c d")))),
        ] {
            let evidence =
                Evidence { has: names(has), may: names(may), forbidden: names("a b"), ..Evidence::default() };
            assert_eq!(evidence.owner_by_ground(Ground::Release, None), expected, "{has}; {may}");
        }
    }

    #[test]
    fn helm_record_in_a_configmap_decides_the_owner_only_if_all_clusters_answer() {
        for (may, placement, expected) in
            [("", "", Ok(name("a"))), ("b", "", Err(unsure("a", "b"))), ("b", "a", Err(unsure("a", "b")))]
        {
            let evidence = Evidence { has: names("a"), may: names(may), is_weak: true, ..Evidence::default() };
            let owner = evidence.owner_by_ground(Ground::Release, names(placement).first());
            assert_eq!(owner, expected, "{may}; {placement}");
        }
    }

    #[test]
    fn evidence_of_a_ground_decides_the_owner() {
        let owner = |cluster| Ok(name(cluster));
        let unknown = |clusters| Err(OwnerError::Unknown(names(clusters)));
        let several = |clusters| Err(OwnerError::Several(names(clusters)));
        let nowhere = || Err(OwnerError::NotFound);
        let only = [Ground::Node, Ground::Kind, Ground::Namespace];
        let released = [Ground::Release];
        for (grounds, has, may, placement, expected) in [
            (&only[..], "a", "", "", owner("a")),
            (&only, "a", "", "b", owner("a")),
            (&only, "a", "b", "", Err(unsure("a", "b"))),
            (&only, "a", "b", "b", Err(unsure("a", "b"))),
            (&only, "a", "b", "c", Err(unsure("a", "b"))),
            // `placement` names the same cluster as the evidence, so the ground need not decide.
            (&only, "a", "b", "a", nowhere()),
            // A cluster in `has` is not unknown, even if `may` contains it, too.
            (&only, "a", "a", "", owner("a")),
            (&only, "a b", "", "", nowhere()),
            (&only, "a b", "c", "a", nowhere()),
            (&only, "", "", "", nowhere()),
            (&only, "", "a", "", nowhere()),
            (&released, "a", "", "b", owner("a")),
            (&released, "a", "b", "b", owner("a")),
            (&released, "a b", "", "a", several("a b")),
            (&released, "a b", "c", "", several("a b")),
            (&released, "", "b", "a", unknown("b")),
            (&released, "", "", "a", nowhere()),
        ] {
            for ground in grounds {
                let evidence = Evidence { has: names(has), may: names(may), ..Evidence::default() };
                let owner = evidence.owner_by_ground(*ground, names(placement).first());
                assert_eq!(owner, expected, "{ground:?}: {has}; {may}; {placement}");
            }
        }
    }

    #[test]
    fn hidden_cluster_invalidates_a_ground_that_excludes_other_clusters() {
        let hidden = |has: &str| Evidence { has: names(has), is_one_hidden: true, ..Evidence::default() };
        let weak = || Evidence { is_weak: true, ..hidden("a") };
        let a = name("a");
        for (evidence, ground, placement, expected) in [
            (hidden("a"), Ground::Kind, None, Err(OwnerError::RightsUnknown)),
            (hidden("a"), Ground::Kind, Some(&a), Err(OwnerError::NotFound)),
            (hidden("a b"), Ground::Kind, None, Err(OwnerError::NotFound)),
            (hidden(""), Ground::Kind, None, Err(OwnerError::NotFound)),
            (hidden("a"), Ground::Release, None, Ok(name("a"))),
            (weak(), Ground::Release, None, Err(OwnerError::RightsUnknown)),
            (weak(), Ground::Release, Some(&a), Err(OwnerError::NotFound)),
            (hidden(""), Ground::Release, Some(&a), Err(OwnerError::RightsUnknown)),
        ] {
            assert_eq!(evidence.owner_by_ground(ground, placement), expected, "{evidence:?}, {ground:?}");
        }
    }
}
