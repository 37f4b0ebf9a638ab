//! Which cluster owns the object of a name: a pure decision, so that a table can test it. Whoever looked into memory,
//! and whoever asked the clusters, decides here.

use tributary_apimachinery::ClusterName;

/// Why no cluster owns a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoOwner {
    /// No cluster has it, and all are known. Controllers read this as deleted.
    Nowhere,
    /// The clusters that are known do not have it, or not the one that is named; these may.
    Unknown(Vec<ClusterName>),
    /// Some cluster may have it of which it is not known whether the caller may know of it.
    RightsUnknown,
    /// These have it, and none is named.
    Several(Vec<ClusterName>),
    /// One has it, and those may have one of the name, too, of which nothing is known: a write would be a guess.
    Unsure {
        /// The one that is known to have it.
        owner: ClusterName,
        /// Those that may.
        unknown: Vec<ClusterName>,
    },
    /// Another cluster has it than is named.
    Elsewhere {
        /// The one that is named.
        named: String,
        /// The one that has it.
        owner: ClusterName,
    },
}

/// What a request says of the cluster whose object it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning<'a> {
    /// Nothing, and the one object of the name that is known will do: for a read, which can be repeated, and for a
    /// write where names do not repeat.
    Known,
    /// Nothing, and it changes the object: there must be no other of the name.
    Only,
    /// The body's annotation names a cluster: it must be an owner.
    Annotated(&'a str),
    /// Something else that it says is true of the object of this cluster alone.
    Of(&'a ClusterName),
}

/// The place of the owner among the clusters that have an object of the name. `unknown` are those of which it is not
/// known: they count where no other has it, where there must be no other, and where they are named.
///
/// # Errors
/// Why there is no owner.
pub(crate) fn owner<'a>(
    found: &[&ClusterName],
    unknown: impl Iterator<Item = &'a ClusterName>,
    meaning: Meaning<'_>,
) -> Result<usize, NoOwner> {
    let place = |is_meant: &dyn Fn(&ClusterName) -> bool| found.iter().position(|cluster| is_meant(cluster));
    if let Meaning::Of(meant) = meaning
        && let Some(place) = place(&|cluster| cluster == meant)
    {
        return Ok(place);
    }
    match meaning {
        Meaning::Annotated(named) => place(&|cluster| cluster.as_str() == named)
            .ok_or_else(|| not_where_named(found, unknown.filter(|cluster| cluster.as_str() == named), named)),
        Meaning::Known | Meaning::Only | Meaning::Of(_) => {
            let unknown: Vec<_> = unknown.cloned().collect();
            match (found, unknown.is_empty()) {
                ([], true) => Err(NoOwner::Nowhere),
                ([], false) => Err(NoOwner::Unknown(unknown)),
                ([owner], false) if meaning != Meaning::Known => {
                    Err(NoOwner::Unsure { owner: (*owner).clone(), unknown })
                }
                ([_], _) => Ok(0),
                (several, _) => Err(NoOwner::Several(several.iter().copied().cloned().collect())),
            }
        }
    }
}

/// Why the cluster that the annotation names has no object of the name. `unknown` is that one, where it is not known.
fn not_where_named<'a>(found: &[&ClusterName], unknown: impl Iterator<Item = &'a ClusterName>, named: &str) -> NoOwner {
    let unknown: Vec<_> = unknown.cloned().collect();
    match found {
        _ if !unknown.is_empty() => NoOwner::Unknown(unknown),
        [] => NoOwner::Nowhere,
        [other, ..] => NoOwner::Elsewhere { named: named.to_owned(), owner: (*other).clone() },
    }
}

/// The origin of the answer when no cluster owns a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerOrigin {
    /// Tributary: 404, 409 or 503, depending on the clusters that have the name.
    Own,
    /// Tributary: 429, because it had no room for a question to a cluster.
    NotAsked,
    /// A cluster that forbids a get of the name: its 403.
    Forbidding,
}

/// Whether the 403 of a cluster counts, rather than memory without an object of the name.
///
/// In personal mode each 403 counts. With many users Tributary knows the rights: a user who may not get an object may
/// be allowed to write it, or to read a subresource, and memory knows that it does not exist. A get, and a kind that is
/// not cached, have no answer but the cluster's.
pub(crate) fn is_denial_told(is_shared: bool, is_held: bool, is_get: bool) -> bool {
    !is_shared || !is_held || is_get
}

/// Chooses the origin of the answer. A cluster that cannot be asked counts before a cluster that forbids the get: it
/// may have the name, and for a client a 403 is final.
pub(crate) fn choose_answer_origin(none: &NoOwner, is_one_not_asked: bool, is_denial_told: bool) -> AnswerOrigin {
    match none {
        NoOwner::Nowhere | NoOwner::Unknown(_) | NoOwner::Unsure { .. } if is_one_not_asked => AnswerOrigin::NotAsked,
        NoOwner::Nowhere if is_denial_told => AnswerOrigin::Forbidding,
        _ => AnswerOrigin::Own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row has the answers of three clusters for a name, then the answer to a get, to a write without a cluster,
    /// and to such a write by one of many users for a cached kind.
    #[test]
    fn the_answers_of_clusters_decide_the_answer_for_a_name() {
        let told = |answers: &str, meaning, (is_shared, is_held, is_get)| {
            let of = |wanted: &str| -> Vec<ClusterName> {
                let all = ["a", "b", "c"].into_iter().zip(answers.split(' '));
                all.filter(|(_, said)| *said == wanted).map(|(name, _)| ClusterName::new(name).unwrap()).collect()
            };
            // A cluster without a question is unknown, too.
            let (found, unknown, forbidden) = (of("200"), [of("none"), of("429")].concat(), of("403"));
            let none = match owner(&found.iter().collect::<Vec<_>>(), unknown.iter(), meaning) {
                Ok(place) => return found[place].to_string(),
                Err(none) => none,
            };
            let is_denial_told = !forbidden.is_empty() && is_denial_told(is_shared, is_held, is_get);
            match (choose_answer_origin(&none, !of("429").is_empty(), is_denial_told), none) {
                (AnswerOrigin::NotAsked, _) => "429",
                (AnswerOrigin::Forbidding, _) => "403",
                (AnswerOrigin::Own, NoOwner::Nowhere) => "404",
                (AnswerOrigin::Own, NoOwner::Unknown(_) | NoOwner::Unsure { .. }) => "503",
                (AnswerOrigin::Own, NoOwner::Several(_)) => "409",
                (AnswerOrigin::Own, none) => panic!("{none:?}"),
            }
            .to_owned()
        };
        for (answers, get, write, shared_write) in [
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
            assert_eq!(told(answers, Meaning::Known, (false, true, true)), get, "get: {answers}");
            assert_eq!(told(answers, Meaning::Known, (true, true, true)), get, "get of a user: {answers}");
            assert_eq!(told(answers, Meaning::Only, (false, true, false)), write, "write: {answers}");
            assert_eq!(told(answers, Meaning::Only, (true, true, false)), shared_write, "write of a user: {answers}");
            assert_eq!(told(answers, Meaning::Only, (true, false, false)), write, "write of a live kind: {answers}");
        }
    }

    #[test]
    fn who_has_it_and_who_is_named_decide() {
        let names =
            |text: &str| -> Vec<_> { text.split_whitespace().map(|it| ClusterName::new(it).unwrap()).collect() };
        let nowhere = Err(NoOwner::Nowhere);
        let unknown = |clusters| Err(NoOwner::Unknown(names(clusters)));
        let several = |clusters| Err(NoOwner::Several(names(clusters)));
        let elsewhere = |named: &str, owner| {
            Err(NoOwner::Elsewhere { named: named.to_owned(), owner: ClusterName::new(owner).unwrap() })
        };
        let unsure = |unknown| Err(NoOwner::Unsure { owner: ClusterName::new("a").unwrap(), unknown: names(unknown) });
        let (b, c) = (ClusterName::new("b").unwrap(), ClusterName::new("c").unwrap());
        let (of_b, of_c) = (Meaning::Of(&b), Meaning::Of(&c));
        let annotated = Meaning::Annotated;
        for (found, not_known, meaning, expected) in [
            ("", "", Meaning::Known, nowhere.clone()),
            ("", "", Meaning::Only, nowhere.clone()),
            ("", "", annotated("a"), nowhere.clone()),
            ("", "", of_b, nowhere.clone()),
            ("", "b c", Meaning::Known, unknown("b c")),
            ("", "b c", Meaning::Only, unknown("b c")),
            ("", "b c", of_b, unknown("b c")),
            ("", "b c", annotated("a"), nowhere),
            ("", "b c", annotated("b"), unknown("b")),
            ("a", "", Meaning::Known, Ok(0)),
            ("a", "", Meaning::Only, Ok(0)),
            ("a", "b", Meaning::Known, Ok(0)),
            ("a", "b c", Meaning::Only, unsure("b c")),
            ("a b", "", Meaning::Known, several("a b")),
            ("a b", "", Meaning::Only, several("a b")),
            ("a b", "c", Meaning::Only, several("a b")),
            ("a b", "", annotated("b"), Ok(1)),
            ("a", "b", annotated("a"), Ok(0)),
            ("a", "", annotated("b"), elsewhere("b", "a")),
            ("a", "c", annotated("b"), elsewhere("b", "a")),
            ("a", "b c", annotated("b"), unknown("b")),
            ("a b", "c", annotated("c"), unknown("c")),
            ("a b", "", annotated("nobody's"), elsewhere("nobody's", "a")),
            ("a b", "c", of_b, Ok(1)),
            // What is said of a cluster that does not have it is for the member to refuse, if it is sure which one.
            ("a", "", of_b, Ok(0)),
            ("a", "b", of_b, unsure("b")),
            ("a b", "", of_c, several("a b")),
        ] {
            let (has, may) = (names(found), names(not_known));
            let has: Vec<_> = has.iter().collect();
            assert_eq!(owner(&has, may.iter(), meaning), expected, "{found}; {not_known}; {meaning:?}");
        }
    }
}
