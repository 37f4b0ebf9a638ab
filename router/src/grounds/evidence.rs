//! What a ground says, by what speaks for a cluster or against each.

use tributary_apimachinery::ClusterName;

use tributary_answers::ground::Ground;

/// Which clusters a ground speaks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Those that have what it asks for.
    pub(crate) has: Vec<ClusterName>,
    /// Those of which it is not known.
    pub(crate) may: Vec<ClusterName>,
    /// Those that forbid the client to look, where all do: whoever is shown nothing of the kind anywhere does not
    /// depend on it.
    pub(crate) forbidden: Vec<ClusterName>,
    /// Whether what [`Self::has`] rests on may be anyone's: it decides only where nobody else may have better.
    pub(crate) is_weak: bool,
}

/// What a ground says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// This cluster is meant.
    Meant(ClusterName),
    /// It cannot be told while these clusters are unknown.
    Unsure {
        /// The one that would be meant by what is known.
        known: ClusterName,
        /// Those that are not known.
        unknown: Vec<ClusterName>,
    },
    /// None is known to have what decides, and these clusters may.
    Perhaps(Vec<ClusterName>),
    /// Nobody shows the client what decides: another ground may, if only one cluster is left by it.
    Forbidden(Vec<ClusterName>),
    /// It speaks for several, and each would be as wrong as the others.
    Several(Vec<ClusterName>),
    /// It does not apply: the next one decides.
    Nothing,
}

impl Evidence {
    /// The cluster that a ground means by this evidence. `placement` is the cluster that the configuration names.
    pub(crate) fn judge(self, ground: Ground, placement: Option<&ClusterName>) -> Finding {
        let Self { has, mut may, forbidden, is_weak } = self;
        may.retain(|cluster| !has.contains(cluster));
        match <[ClusterName; 1]>::try_from(has) {
            // What it would be chosen for anyway needs no other ground.
            Ok([only]) if ground.rests_on_others() && !may.is_empty() && placement == Some(&only) => Finding::Nothing,
            Ok([only]) if (ground.rests_on_others() || is_weak) && !may.is_empty() => {
                Finding::Unsure { known: only, unknown: may }
            }
            Ok([only]) => Finding::Meant(only),
            Err(none) if none.is_empty() && ground == Ground::Release && !may.is_empty() => Finding::Perhaps(may),
            Err(none) if none.is_empty() && ground == Ground::Release && !forbidden.is_empty() => {
                Finding::Forbidden(forbidden)
            }
            Err(several) if !several.is_empty() && ground == Ground::Release => Finding::Several(several),
            Err(_) => Finding::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<ClusterName> {
        text.split_whitespace().map(|it| ClusterName::new(it).unwrap()).collect()
    }

    #[test]
    fn what_nobody_shows_decides_nothing_while_nobody_else_may_have_it() {
        for (has, may, expected) in [
            ("", "", Finding::Forbidden(names("a b"))),
            ("", "c", Finding::Perhaps(names("c"))),
            ("c", "", Finding::Meant(names("c").remove(0))),
            ("c d", "", Finding::Several(names("c d"))),
        ] {
            let evidence = Evidence { has: names(has), may: names(may), forbidden: names("a b"), is_weak: false };
            assert_eq!(evidence.judge(Ground::Release, None), expected, "{has}; {may}");
        }
    }

    #[test]
    fn what_may_be_anyones_decides_only_where_nobody_may_have_better() {
        let a = || names("a").remove(0);
        for (may, placement, expected) in [
            ("", "", Finding::Meant(a())),
            ("b", "", Finding::Unsure { known: a(), unknown: names("b") }),
            ("b", "a", Finding::Unsure { known: a(), unknown: names("b") }),
        ] {
            let evidence = Evidence { has: names("a"), may: names(may), is_weak: true, ..Evidence::default() };
            assert_eq!(evidence.judge(Ground::Release, names(placement).first()), expected, "{may}; {placement}");
        }
    }

    #[test]
    fn what_speaks_for_a_cluster_decides() {
        let meant = |cluster: &str| Finding::Meant(names(cluster).remove(0));
        let unsure =
            |known: &str, unknown: &str| Finding::Unsure { known: names(known).remove(0), unknown: names(unknown) };
        let perhaps = |clusters| Finding::Perhaps(names(clusters));
        let several = |clusters| Finding::Several(names(clusters));
        let nothing = || Finding::Nothing;
        let only = [Ground::Node, Ground::Kind, Ground::Namespace];
        let released = [Ground::Release];
        for (grounds, has, may, placement, expected) in [
            (&only[..], "a", "", "", meant("a")),
            (&only, "a", "", "b", meant("a")),
            (&only, "a", "b", "", unsure("a", "b")),
            (&only, "a", "b", "b", unsure("a", "b")),
            (&only, "a", "b", "c", unsure("a", "b")),
            // It goes where the configuration sends it, whatever the unknown one has.
            (&only, "a", "b", "a", nothing()),
            // One that is known to have it needs no asking.
            (&only, "a", "a", "", meant("a")),
            (&only, "a b", "", "", nothing()),
            (&only, "a b", "c", "a", nothing()),
            (&only, "", "", "", nothing()),
            (&only, "", "a", "", nothing()),
            (&released, "a", "", "b", meant("a")),
            (&released, "a", "b", "b", meant("a")),
            (&released, "a b", "", "a", several("a b")),
            (&released, "a b", "c", "", several("a b")),
            (&released, "", "b", "a", perhaps("b")),
            (&released, "", "", "a", nothing()),
        ] {
            for ground in grounds {
                let evidence = Evidence { has: names(has), may: names(may), ..Evidence::default() };
                let judged = evidence.judge(*ground, names(placement).first());
                assert_eq!(judged, expected, "{ground:?}: {has}; {may}; {placement}");
            }
        }
    }
}
