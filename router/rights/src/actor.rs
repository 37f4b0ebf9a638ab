//! As whom a request acts in members, in the shared mode: one user, as far as members are told of it. Pure: what is
//! sent and what memory shows both go by it, so that nobody reads what they could not ask for.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use tributary_answers::refusal::RequestRefusal;
use tributary_apimachinery::ClusterName;
use tributary_authentication::{
    Authority, MemberRules, NotSent, Reach, UserInfo, asked_identity, identity_beyond_member, identity_elsewhere,
    identity_for,
};
use tributary_authorization::RbacUser;
use tributary_proxy::{GivenIdentity, GivenPart, InvalidGivenIdentity};
use tributary_sharing::flow::holder::Holder;
use tributary_sharing::limits::{IMPERSONATED_BYTES, IMPERSONATED_VALUES};

use super::subject::Subject;

/// By keys of this process, so that nobody can ask for many actors of one hash.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Who sends a request, and whom they ask to be, if anybody else. Equal for those whom members cannot tell apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Of all that follows. An actor is looked up several times for each request.
    hash: u64,
    user: UserInfo,
    authority: Authority,
    /// Whom the client asks to be, in its own `Impersonate-*` headers.
    given: Option<UserInfo>,
    /// The groups by which members judge them.
    groups: JudgedGroups,
    /// The same in the member whose word the user is, which has a group or more that the others are not told of.
    at_home: Option<(ClusterName, JudgedGroups)>,
    /// The name and groups of whoever sends the request, of those by which all members know them, that count where
    /// something is chosen that is not one member's to give; `None` where all do.
    counted: Option<(String, Vec<String>)>,
    /// Why no member is told of it, where that is so.
    not_sent: Option<NotSent>,
}

/// The groups by which a member judges whom it is told of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct JudgedGroups {
    /// Of whoever sends the request.
    user: Vec<String>,
    /// Of whoever acts.
    acting: Vec<String>,
}

impl JudgedGroups {
    /// Those of a user of whom a member is told this, and of whom the user asks to be.
    fn from_identity(told: Result<UserInfo, NotSent>, given: Option<&UserInfo>) -> Result<Self, NotSent> {
        let user = judged_groups(told?);
        let acting = given.map_or_else(|| Ok(user.clone()), |given| asked_identity(given).map(judged_groups))?;
        Ok(Self { user, acting })
    }
}

/// Whose rights are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Whoever sends the request.
    User,
    /// Whoever they ask to be, or themselves.
    Acting,
}

impl Actor {
    /// A user, or whom the user asks to be.
    pub fn new(user: UserInfo, authority: Authority, given: Option<UserInfo>) -> Self {
        // What is sent as name and groups does not go by what a member wants to be told.
        let rules = MemberRules::default();
        let judged = |told| JudgedGroups::from_identity(told, given.as_ref());
        let own = authority.reach.home().map(|home| (home, judged(identity_for(&user, &authority, home, &rules))));
        let told = match (&authority.reach, &own) {
            (Reach::Member(_), Some((_, own))) => own.clone(),
            _ => judged(identity_elsewhere(&user, &rules)),
        };
        let at_home = own.filter(|(_, own)| *own != told).and_then(|(home, own)| Some((home.clone(), own.ok()?)));
        let (groups, not_sent) = told.map_or_else(|why| (JudgedGroups::default(), Some(why)), |groups| (groups, None));
        let counted = counted(&user.username, &groups.user, &authority);
        let hash = HASHES.hash_one((&user, &authority, &given, &groups, &at_home, &not_sent));
        Self { hash, user, authority, given, groups, at_home, counted, not_sent }
    }

    /// Whether it is this user, who asks to be nobody else.
    pub(super) fn is_of(&self, user: &UserInfo, authority: &Authority) -> bool {
        self.given.is_none() && self.user == *user && self.authority == *authority
    }

    /// Whether a member is told of it, as far as that is not the member's own choice.
    ///
    /// # Errors
    /// Why it is not.
    pub fn reaches(&self, member: &ClusterName) -> Result<(), NotSent> {
        match (&self.not_sent, &self.authority.reach) {
            (Some(error), _) => Err(error.clone()),
            (None, Reach::Member(cluster)) if cluster != member => Err(NotSent::OfAnotherCluster(cluster.clone())),
            (None, _) => Ok(()),
        }
    }

    /// As whom a member that is told so much of users sees it. Whom the user asks to be is whom the member itself lets
    /// the user be, and so means what it means there.
    ///
    /// # Errors
    /// Why the member is not told.
    pub fn identity(&self, member: &ClusterName, rules: &MemberRules) -> Result<UserInfo, NotSent> {
        let user = identity_for(&self.user, &self.authority, member, rules)?;
        self.given.as_ref().map_or(Ok(user), asked_identity)
    }

    /// Whose turns its questions take: those of whoever sends the request, whomever they ask to be.
    pub(super) fn holder(&self) -> Holder {
        Holder::of_user(&self.authority, &self.user.username)
    }

    /// The name of one of the two.
    pub(super) fn name(&self, whom: Whom) -> &str {
        match (whom, &self.given) {
            (Whom::Acting, Some(given)) => &given.username,
            _ => &self.user.username,
        }
    }

    /// One of the two, as the rules of most members know them: of all but the one that vouches
    /// for the user.
    pub fn judged(&self, whom: Whom) -> RbacUser<'_> {
        self.by(&self.groups, whom)
    }

    /// One of the two, as a member's rules know them.
    pub(super) fn judged_by(&self, member: &ClusterName, whom: Whom) -> RbacUser<'_> {
        match &self.at_home {
            Some((home, groups)) if home == member => self.by(groups, whom),
            _ => self.judged(whom),
        }
    }

    /// One of the two with the groups of all members together: what changes for them in any changes for this one.
    pub(super) fn judged_by_any(&self, whom: Whom) -> RbacUser<'_> {
        let groups = self.at_home.as_ref().map_or(&self.groups, |(_, groups)| groups);
        self.by(groups, whom)
    }

    /// Whoever sends the request, by the name and groups that count where the policies of a place choose something for
    /// them: of a cluster's own, or of the merged view (`None`). To the policies of the member that alone vouches for
    /// them they are who it says: what those choose is that member's own. `None` where they count as all members [know
    /// them](Self::judged).
    pub fn counted_at(&self, place: Option<&ClusterName>) -> Option<&(String, Vec<String>)> {
        match &self.authority.reach {
            Reach::Member(home) if place == Some(home) => None,
            _ => self.counted.as_ref(),
        }
    }

    /// Whether it is this member's word: such a member may know of groups that the others are not told of.
    pub(super) fn is_vouched_by(&self, member: &ClusterName) -> bool {
        self.authority.reach.is_word_of(member)
    }

    fn by<'a>(&'a self, groups: &'a JudgedGroups, whom: Whom) -> RbacUser<'a> {
        let name = self.name(whom);
        match whom {
            Whom::User => RbacUser { name, groups: &groups.user },
            Whom::Acting => RbacUser { name, groups: &groups.acting },
        }
    }

    /// One of the two, as a member that is told so much of users would see them.
    ///
    /// # Errors
    /// Why the member is not told.
    pub(super) fn subject(&self, whom: Whom, member: &ClusterName, rules: &MemberRules) -> Result<Subject, NotSent> {
        let told = match whom {
            Whom::User => identity_for(&self.user, &self.authority, member, rules)?,
            Whom::Acting => self.identity(member, rules)?,
        };
        Ok(Subject::from_identity(told, self.judged_by(member, whom).groups))
    }

    /// Who this is, as a SelfSubjectReview shows it.
    pub fn shown(&self) -> UserInfo {
        match &self.given {
            Some(given) => UserInfo { groups: self.groups.acting.clone(), ..given.clone() },
            None => self.user.clone(),
        }
    }

    /// What its client asks to be.
    pub fn impersonated_user(&self) -> Option<&UserInfo> {
        self.given.as_ref()
    }

    /// How many bytes of texts it has.
    pub fn bytes(&self) -> usize {
        let users = std::iter::once(&self.user).chain(&self.given);
        let judged = std::iter::once(&self.groups).chain(self.at_home.iter().map(|(_, groups)| groups));
        let judged = judged.flat_map(|groups| groups.user.iter().chain(&groups.acting));
        let counted = self.counted.iter().flat_map(|(name, groups)| std::iter::once(name).chain(groups));
        users.flat_map(texts).chain(judged).chain(counted).map(String::len).sum()
    }
}

impl Hash for Actor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// What of a name, and of the groups by which all members judge it, counts [beyond the member](identity_beyond_member)
/// that alone vouches for it; `None` where all does.
fn counted(name: &str, groups: &[String], authority: &Authority) -> Option<(String, Vec<String>)> {
    let known = UserInfo { username: name.to_owned(), groups: groups.to_vec(), ..UserInfo::default() };
    let (counted, of_groups) = identity_beyond_member(&known, authority);
    (counted != known.username || *of_groups != *known.groups).then(|| (counted.to_owned(), of_groups.to_vec()))
}

/// The groups by which a member judges somebody whom it is told of: it adds its own, as kube-apiserver's filter does.
fn judged_groups(told: UserInfo) -> Vec<String> {
    told.impersonated().groups
}

/// All texts that say who a user is.
fn texts(user: &UserInfo) -> impl Iterator<Item = &String> {
    let extras = user.extra.iter().flat_map(|(key, values)| std::iter::once(key).chain(values));
    [&user.username, &user.uid].into_iter().chain(&user.groups).chain(extras)
}

/// Whether whom a client asks to be is of a size that clusters are asked about.
///
/// # Errors
/// 431 that names the bound.
pub fn bounded(given: &UserInfo) -> Result<(), RequestRefusal> {
    let extras: usize = given.extra.values().map(Vec::len).sum();
    let values = 1 + given.groups.len() + usize::from(!given.uid.is_empty()) + extras;
    let bytes = texts(given).map(String::len).sum();
    for (what, given, max) in [("values", values, IMPERSONATED_VALUES), ("bytes", bytes, IMPERSONATED_BYTES)] {
        if given > max {
            return Err(RequestRefusal::ImpersonatesTooMuch { what, given, max });
        }
    }
    Ok(())
}

/// Whom a client asks to be, from its headers.
///
/// # Errors
/// Where a header is no text, or the key of an extra none.
pub fn given_user(given: &GivenIdentity) -> Result<UserInfo, InvalidGivenIdentity> {
    let mut user = UserInfo { username: String::new(), uid: String::new(), groups: Vec::new(), extra: BTreeMap::new() };
    for (name, part) in given.parts() {
        let text =
            |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| InvalidGivenIdentity::NotText(name.clone()));
        match part {
            GivenPart::User(value) => user.username = text(value)?,
            GivenPart::Uid(value) => user.uid = text(value)?,
            GivenPart::Group(value) => user.groups.push(text(value)?),
            GivenPart::Extra(key, value) => user.extra.entry(text(&key)?).or_default().push(text(value)?),
        }
    }
    Ok(user)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        UserInfo { username: name.to_owned(), groups: strings(groups), ..UserInfo::default() }
    }

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new(name).unwrap()
    }

    fn actor(user: UserInfo, reach: Reach, given: Option<UserInfo>) -> Actor {
        Actor::new(user, Authority { verifier: "test".into(), reach }, given)
    }

    #[test]
    fn whoever_asks_to_be_many_has_one_turn() {
        let holder = |given: Option<&str>| {
            actor(user("ann", &[]), Reach::Everywhere, given.map(|name| user(name, &[]))).holder()
        };
        assert_eq!(holder(Some("bob")), holder(None));
        assert_eq!(holder(Some("carol")), holder(None));
        assert_ne!(actor(user("bob", &[]), Reach::Everywhere, None).holder(), holder(None));
    }

    #[test]
    fn rules_know_an_actor_as_a_member_does() {
        let (a, everywhere) = (Reach::Member(cluster("a")), Reach::Everywhere);
        let account = "system:serviceaccount:n:s";
        for (who, reach, given, expected) in [
            (user("ann", &["dev"]), &everywhere, None, Some(("ann", &["dev", "system:authenticated"][..]))),
            (
                user("ann", &["system:masters", "system:authenticated"]),
                &everywhere,
                None,
                Some(("ann", &["system:authenticated"][..])),
            ),
            (user(account, &[]), &everywhere, None, None),
            (
                user(account, &[]),
                &a,
                None,
                Some((account, &["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"][..])),
            ),
            // Whom a member lets somebody be means what it means there.
            (
                user("ann", &["dev"]),
                &everywhere,
                Some(user(account, &[])),
                Some((account, &["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"][..])),
            ),
            (
                user("ann", &["dev"]),
                &everywhere,
                Some(user(account, &["ops"])),
                Some((account, &["ops", "system:authenticated"][..])),
            ),
            // What is asked for by name is not left out.
            (user("ann", &[]), &everywhere, Some(user("bob", &["system:masters"])), None),
            (user("ann", &[]), &a, Some(user("bob", &["dev", "system:nodes"])), None),
            // A group of no name is a group: a ServiceAccount that is asked for with it has not those that it has
            // without.
            (user("ann", &[]), &everywhere, Some(user(account, &[""])), None),
            (user("ann", &[]), &everywhere, Some(user("system:node:n", &[])), None),
            (user("ann", &[]), &everywhere, Some(user("system:anonymous", &[])), None),
            (user(account, &[]), &everywhere, Some(user("bob", &[])), None),
        ] {
            let actor = actor(who, reach.clone(), given);
            let acting = actor.judged_by(&cluster("a"), Whom::Acting);
            let known = actor.reaches(&cluster("a")).is_ok().then(|| (acting.name, acting.groups.to_vec()));
            assert_eq!(known, expected.map(|(name, groups)| (name, strings(groups))), "{actor:?}");
            assert_eq!(actor.reaches(&cluster("b")).is_ok(), expected.is_some() && *reach == everywhere, "{actor:?}");
            let told = actor.identity(&cluster("a"), &MemberRules::default());
            assert_eq!(told.is_ok(), expected.is_some(), "{actor:?}");
        }
    }

    /// A member may answer a TokenReview with any name and any group.
    #[test]
    fn what_a_member_alone_says_of_a_user_counts_in_its_own_policies() {
        let (eu, us) = (cluster("eu"), cluster("us"));
        let account = "system:serviceaccount:n:s";
        let of_account = ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"];
        for (who, reach, of_merged) in [
            (
                user("ann", &["dev", "system:x"]),
                Reach::Member(eu.clone()),
                Some(("", &["system:x", "system:authenticated"][..])),
            ),
            (user("ann", &["dev"]), Reach::Everywhere, None),
            (user("ann", &["dev", "system:oauth"]), Reach::EverywhereFrom(eu.clone()), None),
            // An issuer may let its users choose their names.
            (user("system:ops", &["dev"]), Reach::Everywhere, Some(("", &[]))),
            // Its ServiceAccounts are whoever it calls so.
            (user(account, &of_account), Reach::Member(eu.clone()), None),
            (
                user(account, &["dev", "system:x"]),
                Reach::Member(eu.clone()),
                Some((account, &["system:x", "system:authenticated"])),
            ),
        ] {
            let counted = |place: Option<&ClusterName>, given| {
                actor(who.clone(), reach.clone(), given).counted_at(place).cloned()
            };
            let of_merged = of_merged.map(|(name, groups)| (name.to_owned(), strings(groups)));
            let of_eu = if reach == Reach::Member(eu.clone()) { None } else { of_merged.clone() };
            for given in [None, Some(user("bob", &[]))] {
                let all = [None, Some(&us), Some(&eu)].map(|place| counted(place, given.clone()));
                assert_eq!(all, [of_merged.clone(), of_merged.clone(), of_eu.clone()], "{who:?} {reach:?}");
            }
        }
    }

    /// The token-review cluster knows of its own groups, and is judged by them, and no other cluster is.
    #[test]
    fn the_cluster_that_vouches_for_a_user_of_all_knows_the_groups_that_it_said() {
        let said = || user("ann", &["dev", "system:oauth", "system:masters"]);
        let hub = || Reach::EverywhereFrom(cluster("hub"));
        let all = ["dev", "system:oauth", "system:authenticated"];
        let groups = |actor: &Actor, member, whom| actor.judged_by(&cluster(member), whom).groups.to_vec();
        let ann = actor(said(), hub(), None);
        for whom in [Whom::User, Whom::Acting] {
            assert_eq!(groups(&ann, "hub", whom), strings(&all));
            assert_eq!(groups(&ann, "other", whom), strings(&["dev", "system:authenticated"]));
            assert_eq!(ann.judged_by_any(whom).groups, strings(&all));
        }
        let rules = MemberRules::default();
        let told = |member| ann.identity(&cluster(member), &rules).unwrap().groups;
        assert_eq!((told("hub"), told("other")), (strings(&["dev", "system:oauth"]), strings(&["dev"])));
        let subject = |member| ann.subject(Whom::Acting, &cluster(member), &rules).unwrap().spec()["groups"].clone();
        assert_eq!((subject("hub"), subject("other")), (all.into(), ["dev", "system:authenticated"].into()));
        // As somebody else she is the same in both, and may be so by all of her groups.
        let as_bob = actor(said(), hub(), Some(user("bob", &["ops"])));
        for member in ["hub", "other"] {
            assert_eq!(groups(&as_bob, member, Whom::Acting), strings(&["ops", "system:authenticated"]));
        }
        assert_eq!(groups(&as_bob, "hub", Whom::User), strings(&all));
        // Whom no group sets apart is one, wherever the word is from.
        assert_eq!(actor(user("ann", &["dev"]), hub(), None).at_home, None);
    }

    #[test]
    fn headers_are_read_as_kube_apiserver_reads_them() {
        let given = |lines: &[(&'static str, &[u8])]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
            }
            given_user(&GivenIdentity::from_headers(&headers).unwrap().unwrap())
        };
        let read = given(&[
            ("impersonate-user", "j\u{fc}rgen".as_bytes()),
            ("impersonate-group", b"a"),
            ("impersonate-group", b"b"),
            ("impersonate-uid", b"u"),
            ("impersonate-extra-example.com%2fteam", b"x"),
            ("impersonate-extra-example.com%2fteam", b"y"),
            // What an escape says is not in lower case, and what has one that is none is what it is.
            ("impersonate-extra-%41", b"x"),
            ("impersonate-extra-%c3%84", b"x"),
            ("impersonate-extra-%41%zz", b"x"),
        ]);
        let mut expected = user("j\u{fc}rgen", &["a", "b"]);
        expected.uid = "u".to_owned();
        expected.extra.insert("example.com/team".to_owned(), strings(&["x", "y"]));
        for key in ["A", "\u{c4}", "%41%zz"] {
            expected.extra.insert(key.to_owned(), strings(&["x"]));
        }
        assert_eq!(read, Ok(expected));
        assert!(given(&[("impersonate-user", b"\xff")]).is_err());
        assert!(given(&[("impersonate-user", b"a"), ("impersonate-extra-%ff", b"x")]).is_err());
    }
}
