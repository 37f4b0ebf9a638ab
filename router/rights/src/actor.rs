//! The sender of a request in shared mode, with the user that the request impersonates. Forwarded requests and reads
//! from the cachers use the same actor, so a read shows no object that the cluster itself would not show. This module
//! does no I/O.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use tributary_answers::refusal::RequestRefusal;
use tributary_apimachinery::ClusterName;
use tributary_authentication::{
    Authority, MemberRules, NotSent, UserInfo, identity_at_hub, identity_for, identity_for_other_members,
    impersonated_identity, names_beyond_member,
};
use tributary_proxy::{Impersonation, InvalidClientImpersonation};
use tributary_sharing::flow::share_key::ShareKey;
use tributary_sharing::limits::{IMPERSONATED_BYTES, IMPERSONATED_VALUES};

/// Random hash keys of this process. A client that knew the keys could choose users whose actors have equal hashes, and
/// so slow down hash maps.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The sender of a request, and the user that the request impersonates. Two actors are equal if no cluster can
/// distinguish their users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Precomputed hash of the other fields. Each request looks up its actor in several hash maps.
    hash: u64,
    user: UserInfo,
    authority: Authority,
    /// User that the request impersonates by `Impersonate-*` headers of the client.
    impersonated: Option<UserInfo>,
    /// Names and groups of the sender and of the acting user, as every cluster except the cluster in `at_home`
    /// authorizes them. The acting user is the impersonated user, or the sender without impersonation.
    users: [UserInfo; 2],
    /// Cluster that verified the user, and these names and groups in this cluster alone.
    at_home: Option<(ClusterName, [UserInfo; 2])>,
    /// Name and groups of the sender that the policies of the merged view and of most clusters may match. Only the
    /// policies of the cluster that verified the sender may match the full name and all groups. `None` if all policies
    /// may match them.
    policy_identity: Option<UserInfo>,
    /// Reason for which Tributary sends the user's name to no cluster.
    not_sent: Option<NotSent>,
}

/// Selects the user of an actor whose rights are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserSelector {
    /// The sender of the request.
    User,
    /// The impersonated user, or, without impersonation, the sender.
    Acting,
}

impl UserSelector {
    fn select(self, [user, acting]: &[UserInfo; 2]) -> &UserInfo {
        match self {
            Self::User => user,
            Self::Acting => acting,
        }
    }
}

impl Actor {
    /// Creates an actor from the sender and the user that the sender impersonates (`given`).
    pub fn new(user: UserInfo, authority: Authority, impersonated: Option<UserInfo>) -> Self {
        // The default rules suffice, because the impersonation rules of a single cluster change neither the name nor
        // the groups.
        let rules = MemberRules::default();
        let users_of = |identity| rbac_users(identity, impersonated.as_ref());
        let own = authority.home().map(|home| (home, users_of(identity_for(&user, &authority, home, &rules))));
        let elsewhere = identity_for_other_members(&user, &authority, &rules);
        let sent_name = elsewhere.as_ref().map_or(&user.username, |identity| &identity.username).clone();
        let users = match (authority.only_member(), &own) {
            (Some(_), Some((_, own))) => own.clone(),
            _ => users_of(elsewhere),
        };
        let at_home = own.filter(|(_, own)| *own != users).and_then(|(home, own)| Some((home.clone(), own.ok()?)));
        let (users, not_sent) = match users {
            Ok(users) => (users, None),
            Err(why) => {
                let acting = impersonated.as_ref().map_or(&sent_name, |impersonated| &impersonated.username);
                ([&sent_name, acting].map(|name| UserInfo::with_groups(name, &[])), Some(why))
            }
        };
        let policy_identity = policy_identity(&user.username, &users[0].groups, &authority);
        let hash = HASHES.hash_one((&user, &authority, &impersonated, &users, &at_home, &not_sent));
        Self { hash, user, authority, impersonated, users, at_home, policy_identity, not_sent }
    }

    pub(super) fn is_of(&self, user: &UserInfo, authority: &Authority) -> bool {
        self.impersonated.is_none() && self.user == *user && self.authority == *authority
    }

    /// Checks whether Tributary may send the user's name to a cluster. The check ignores the impersonation rules of the
    /// cluster.
    ///
    /// # Errors
    /// [`NotSent`] if the cluster may not see the user.
    pub fn reaches(&self, member: &ClusterName) -> Result<(), NotSent> {
        match (&self.not_sent, self.authority.only_member()) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(cluster)) if cluster != member => Err(NotSent::OfAnotherCluster(cluster.clone())),
            (None, _) => Ok(()),
        }
    }

    /// Returns the identity of the acting user for a cluster with these impersonation rules. An impersonated user keeps
    /// name and groups, because the cluster itself authorizes the impersonation.
    ///
    /// # Errors
    /// [`NotSent`] if the cluster may not see the user.
    pub fn identity(&self, member: &ClusterName, rules: &MemberRules) -> Result<UserInfo, NotSent> {
        let user = identity_for(&self.user, &self.authority, member, rules)?;
        self.impersonated.as_ref().map_or(Ok(user), impersonated_identity)
    }

    /// Returns the identity of the sender in the hub.
    ///
    /// # Errors
    /// [`NotSent`] for a client that impersonates, and for names that the hub must not get.
    pub fn identity_at_hub(&self) -> Result<UserInfo, NotSent> {
        match &self.impersonated {
            Some(_) => Err(NotSent::ImpersonationAtHub),
            None => identity_at_hub(&self.user, &self.authority),
        }
    }

    /// Key of the sender's fair share of access reviews. A sender that impersonates other users still has the same key.
    pub(super) fn share_key(&self) -> ShareKey {
        self.authority.share_key(&self.user.username)
    }

    /// Returns the name of the sender as the sender's verifier reports it, and the name that clusters see.
    pub(super) fn sender_names(&self) -> impl Iterator<Item = &str> {
        [&self.user, &self.users[0]].into_iter().map(|user| user.username.as_str())
    }

    /// Returns the name of the user as clusters see it.
    pub(super) fn name(&self, user_selector: UserSelector) -> &str {
        &self.rbac_user(user_selector).username
    }

    /// Returns the user with the groups for all clusters except the cluster that verified the user.
    pub fn rbac_user(&self, user_selector: UserSelector) -> &UserInfo {
        user_selector.select(&self.users)
    }

    pub(super) fn rbac_user_in(&self, member: &ClusterName, user_selector: UserSelector) -> &UserInfo {
        match &self.at_home {
            Some((home, users)) if home == member => user_selector.select(users),
            _ => self.rbac_user(user_selector),
        }
    }

    /// Returns the user with all groups that any cluster sees. A change of the rights of one of these groups may
    /// concern the user.
    pub(super) fn rbac_user_in_any(&self, user_selector: UserSelector) -> &UserInfo {
        user_selector.select(self.at_home.as_ref().map_or(&self.users, |(_, users)| users))
    }

    /// Returns the sender's name and groups that the policies of a cluster, or of the merged view (`None`), may match.
    /// Returns `None` if these policies may match the full name and all groups, as in the cluster that alone verified
    /// the user.
    pub fn policy_identity_for(&self, place: Option<&ClusterName>) -> Option<&UserInfo> {
        let is_only_member = place.is_some() && place == self.authority.only_member();
        self.policy_identity.as_ref().filter(|_| !is_only_member)
    }

    /// Returns whether this cluster verified the user. Only this cluster may see the user's `system:` groups.
    pub fn is_verified_by(&self, member: &ClusterName) -> bool {
        self.authority.home() == Some(member)
    }

    /// Returns the subject of an access review: the user, as a cluster with these impersonation rules sees the user.
    ///
    /// # Errors
    /// [`NotSent`] if the cluster may not see the user.
    pub(super) fn subject(
        &self,
        user_selector: UserSelector,
        member: &ClusterName,
        rules: &MemberRules,
    ) -> Result<UserInfo, NotSent> {
        let identity = match user_selector {
            UserSelector::User => identity_for(&self.user, &self.authority, member, rules)?,
            UserSelector::Acting => self.identity(member, rules)?,
        };
        Ok(UserInfo { groups: self.rbac_user_in(member, user_selector).groups.clone(), ..identity })
    }

    /// Returns the authenticated sender.
    pub fn user(&self) -> &UserInfo {
        &self.user
    }

    /// Returns the user information for the response to a SelfSubjectReview: the impersonated user, or, without
    /// impersonation, the sender.
    pub fn shown(&self) -> UserInfo {
        match &self.impersonated {
            Some(impersonated) => {
                UserInfo { groups: self.rbac_user(UserSelector::Acting).groups.clone(), ..impersonated.clone() }
            }
            None => self.user.clone(),
        }
    }

    /// Returns the impersonated user.
    pub fn impersonated_user(&self) -> Option<&UserInfo> {
        self.impersonated.as_ref()
    }

    /// Returns the total size of the actor's strings in bytes.
    pub fn bytes(&self) -> usize {
        let users =
            std::iter::once(&self.user).chain(&self.impersonated).chain(&self.users).chain(&self.policy_identity);
        users.chain(self.at_home.iter().flat_map(|(_, users)| users)).flat_map(texts).map(String::len).sum()
    }
}

impl Hash for Actor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Returns the name and groups that policies outside the verifying cluster may match, if one cluster alone verified the
/// user ([`names_beyond_member`]). `None` if all policies may match the full name and all groups.
fn policy_identity(name: &str, groups: &[String], authority: &Authority) -> Option<UserInfo> {
    let known = UserInfo::with_groups(name, groups);
    let (name, groups) = names_beyond_member(&known, authority);
    let limited = UserInfo::with_groups(&name, &groups);
    (limited != known).then_some(limited)
}

/// Returns the sender and the acting user, as a cluster's RBAC decides about them, if the cluster sees the sender with
/// this identity.
fn rbac_users(identity: Result<UserInfo, NotSent>, impersonated: Option<&UserInfo>) -> Result<[UserInfo; 2], NotSent> {
    let user = rbac_user(identity?);
    let acting = impersonated
        .map_or_else(|| Ok(user.clone()), |impersonated| impersonated_identity(impersonated).map(rbac_user))?;
    Ok([user, acting])
}

/// Returns name and groups by which a cluster authorizes a user. The result includes the groups that kube-apiserver's
/// impersonation filter adds.
fn rbac_user(identity: UserInfo) -> UserInfo {
    let UserInfo { username, groups, .. } = identity.impersonated();
    UserInfo { username, groups, ..UserInfo::default() }
}

/// All strings of a user: name, uid, groups, keys and values of extras.
pub(super) fn texts(user: &UserInfo) -> impl Iterator<Item = &String> {
    let extras = user.extra.iter().flat_map(|(key, values)| std::iter::once(key).chain(values));
    [&user.username, &user.uid].into_iter().chain(&user.groups).chain(extras)
}

/// Checks the size of an impersonated user.
///
/// # Errors
/// 431 if the user has too many values (name, uid, groups, extras), or too many bytes.
pub fn bounded(impersonated: &UserInfo) -> Result<(), RequestRefusal> {
    let extras: usize = impersonated.extra.values().map(Vec::len).sum();
    let values = 1 + impersonated.groups.len() + usize::from(!impersonated.uid.is_empty()) + extras;
    let bytes = texts(impersonated).map(String::len).sum();
    for (what, count, max) in [("values", values, IMPERSONATED_VALUES), ("bytes", bytes, IMPERSONATED_BYTES)] {
        if count > max {
            return Err(RequestRefusal::ImpersonatesTooMuch { what, count, max });
        }
    }
    Ok(())
}

/// Parses the impersonated user from the `Impersonate-*` headers of a client.
///
/// # Errors
/// [`InvalidClientImpersonation`] if a value, or the decoded key of an extra, is not UTF-8.
pub fn given_user(impersonated: &Impersonation) -> Result<UserInfo, InvalidClientImpersonation> {
    impersonated.user(|name, bytes| {
        String::from_utf8(bytes.to_vec()).map_err(|_| InvalidClientImpersonation::NotText(name.clone()))
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;
    use crate::subject::review_spec;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        UserInfo { username: name.to_owned(), groups: strings(groups), ..UserInfo::default() }
    }

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new(name).unwrap()
    }

    fn actor(user: UserInfo, authority: impl Into<Authority>, impersonated: Option<UserInfo>) -> Actor {
        Actor::new(user, authority.into(), impersonated)
    }

    #[test]
    fn impersonation_does_not_change_the_fair_share_holder() {
        let share_key = |impersonated: Option<&str>| {
            actor(user("ann", &[]), "test", impersonated.map(|name| user(name, &[]))).share_key()
        };
        assert_eq!(share_key(Some("bob")), share_key(None));
        assert_eq!(share_key(Some("carol")), share_key(None));
        assert_ne!(actor(user("bob", &[]), "test", None).share_key(), share_key(None));
    }

    #[test]
    fn actor_has_the_groups_that_the_member_authorizes() {
        let (a, everywhere) = (Authority::Member(cluster("a")), Authority::from("test"));
        let account = "system:serviceaccount:n:s";
        for (sender, authority, impersonated, expected) in [
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
            // Tributary removes no impersonated group. A `system:` group makes the whole impersonation fail.
            (user("ann", &[]), &everywhere, Some(user("bob", &["system:masters"])), None),
            (user("ann", &[]), &a, Some(user("bob", &["dev", "system:nodes"])), None),
            // A group with an empty name is a group, so the ServiceAccount does not get its default groups.
            (user("ann", &[]), &everywhere, Some(user(account, &[""])), None),
            (user("ann", &[]), &everywhere, Some(user("system:node:n", &[])), None),
            (user("ann", &[]), &everywhere, Some(user("system:anonymous", &[])), None),
            (user(account, &[]), &everywhere, Some(user("bob", &[])), None),
        ] {
            let actor = actor(sender, authority.clone(), impersonated);
            let acting = actor.rbac_user_in(&cluster("a"), UserSelector::Acting);
            let known =
                actor.reaches(&cluster("a")).is_ok().then(|| (acting.username.as_str(), acting.groups.to_vec()));
            assert_eq!(known, expected.map(|(name, groups)| (name, strings(groups))), "{actor:?}");
            assert_eq!(
                actor.reaches(&cluster("b")).is_ok(),
                expected.is_some() && *authority == everywhere,
                "{actor:?}"
            );
            let identity = actor.identity(&cluster("a"), &MemberRules::default());
            assert_eq!(identity.is_ok(), expected.is_some(), "{actor:?}");
        }
    }

    /// Decisions from memory must use the same user name as the impersonation headers to clusters.
    #[test]
    fn user_of_the_hub_is_judged_by_the_name_that_impersonation_sends() {
        let account = "system:serviceaccount:shop:robot";
        let sent_account = "cluster:hub:system:serviceaccount:shop:robot";
        for (name, groups, expected) in [
            (account, &["system:serviceaccounts", "system:serviceaccounts:shop"][..], Some((sent_account, &[][..]))),
            ("ann", &["dev", "system:masters", "system:nodes"], Some(("ann", &["dev"][..]))),
            (sent_account, &["dev"], None),
            ("system:admin", &["dev"], None),
            ("system:node:n", &["system:nodes"], None),
        ] {
            for authority in [Authority::Hub, Authority::HubFrontProxy] {
                let actor = Actor::new(user(name, groups), authority, None);
                let identity = actor.identity(&cluster("a"), &MemberRules::default());
                assert_eq!(actor.reaches(&cluster("a")).is_ok(), identity.is_ok(), "{actor:?}");
                let sent = identity.ok().map(|identity| (identity.username, identity.groups));
                assert_eq!(sent, expected.map(|(name, groups)| (name.to_owned(), strings(groups))), "{actor:?}");
                let Some((name, groups)) = sent else { continue };
                let rbac_groups: Vec<_> = groups.into_iter().chain(["system:authenticated".to_owned()]).collect();
                for user_selector in [UserSelector::User, UserSelector::Acting] {
                    let rbac_user = actor.rbac_user_in(&cluster("a"), user_selector);
                    assert_eq!((&rbac_user.username, &rbac_user.groups), (&name, &rbac_groups), "{actor:?}");
                    let subject = actor.subject(user_selector, &cluster("a"), &MemberRules::default()).unwrap();
                    assert_eq!((&review_spec(&subject)["user"], &rbac_user.username), (&name.clone().into(), &name));
                }
                assert_eq!(actor.sender_names().next(), Some(&*actor.shown().username));
            }
        }
    }

    /// A compromised member may answer a TokenReview with any name and any group.
    #[test]
    fn names_from_a_members_token_review_match_only_its_policies() {
        let (eu, us) = (cluster("eu"), cluster("us"));
        let account = "system:serviceaccount:n:s";
        let of_account = ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"];
        for (sender, authority, of_merged) in [
            (
                user("ann", &["dev", "system:x"]),
                Authority::Member(eu.clone()),
                Some(("", &["system:x", "system:authenticated"][..])),
            ),
            (user("ann", &["dev"]), Authority::from("test"), None),
            (user("ann", &["dev", "system:oauth"]), Authority::TokenReviewCluster(eu.clone()), None),
            // An OIDC issuer may let its users choose user names that begin with `system:`.
            (user("system:ops", &["dev"]), Authority::from("test"), Some(("", &[]))),
            // The member decides about the names of its own ServiceAccounts.
            (user(account, &of_account), Authority::Member(eu.clone()), None),
            (
                user(account, &["dev", "system:x"]),
                Authority::Member(eu.clone()),
                Some((account, &["system:x", "system:authenticated"])),
            ),
        ] {
            let identity_for = |place: Option<&ClusterName>, impersonated| {
                actor(sender.clone(), authority.clone(), impersonated).policy_identity_for(place).cloned()
            };
            let of_merged = of_merged.map(|(name, groups)| user(name, groups));
            let of_eu = if authority == Authority::Member(eu.clone()) { None } else { of_merged.clone() };
            for impersonated in [None, Some(user("bob", &[]))] {
                let all = [None, Some(&us), Some(&eu)].map(|place| identity_for(place, impersonated.clone()));
                assert_eq!(all, [of_merged.clone(), of_merged.clone(), of_eu.clone()], "{sender:?} {authority:?}");
            }
        }
    }

    /// `system:oauth` exists only in the cluster `hub`, which reviewed the token. Other clusters must not see the
    /// group.
    #[test]
    fn system_groups_are_shown_only_to_the_verifying_cluster() {
        let ann_with_groups = || user("ann", &["dev", "system:oauth", "system:masters"]);
        let hub = || Authority::TokenReviewCluster(cluster("hub"));
        let all = ["dev", "system:oauth", "system:authenticated"];
        let groups =
            |actor: &Actor, member, user_selector| actor.rbac_user_in(&cluster(member), user_selector).groups.to_vec();
        let ann = actor(ann_with_groups(), hub(), None);
        for user_selector in [UserSelector::User, UserSelector::Acting] {
            assert_eq!(groups(&ann, "hub", user_selector), strings(&all));
            assert_eq!(groups(&ann, "other", user_selector), strings(&["dev", "system:authenticated"]));
            assert_eq!(ann.rbac_user_in_any(user_selector).groups, strings(&all));
        }
        let rules = MemberRules::default();
        let groups_at = |member| ann.identity(&cluster(member), &rules).unwrap().groups;
        assert_eq!((groups_at("hub"), groups_at("other")), (strings(&["dev", "system:oauth"]), strings(&["dev"])));
        let subject = |member| {
            review_spec(&ann.subject(UserSelector::Acting, &cluster(member), &rules).unwrap())["groups"].clone()
        };
        assert_eq!((subject("hub"), subject("other")), (all.into(), ["dev", "system:authenticated"].into()));
        // Both clusters see the same impersonated user, with all groups of that user.
        let as_bob = actor(ann_with_groups(), hub(), Some(user("bob", &["ops"])));
        for member in ["hub", "other"] {
            assert_eq!(groups(&as_bob, member, UserSelector::Acting), strings(&["ops", "system:authenticated"]));
        }
        assert_eq!(groups(&as_bob, "hub", UserSelector::User), strings(&all));
        // A user without `system:` groups is the same actor for every verifying cluster.
        assert_eq!(actor(user("ann", &["dev"]), hub(), None).at_home, None);
    }

    #[test]
    fn impersonation_headers_are_parsed_as_by_kube_apiserver() {
        let parse = |lines: &[(&'static str, &[u8])]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
            }
            given_user(&Impersonation::from_client_headers(&headers).unwrap().unwrap())
        };
        let read = parse(&[
            ("impersonate-user", "j\u{fc}rgen".as_bytes()),
            ("impersonate-group", b"a"),
            ("impersonate-group", b"b"),
            ("impersonate-uid", b"u"),
            ("impersonate-extra-example.com%2fteam", b"x"),
            ("impersonate-extra-example.com%2fteam", b"y"),
            // Percent escapes may have capitals. kube-apiserver keeps an invalid escape unchanged.
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
        assert!(parse(&[("impersonate-user", b"\xff")]).is_err());
        assert!(parse(&[("impersonate-user", b"a"), ("impersonate-extra-%ff", b"x")]).is_err());
    }
}
