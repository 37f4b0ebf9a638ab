//! What of a user a member may be told. Pure: the security of impersonation rests on it, so it is tested by table.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use tributary_apimachinery::{
    ANONYMOUS_USER, AUTHENTICATED_GROUP, ClusterName, MASTERS_GROUP, NODE_USER_PREFIX, NODES_GROUP, SYSTEM_PREFIX,
    UNAUTHENTICATED_GROUP,
};

use crate::user::{Authority, Reach, UserInfo};
use crate::verifier_name::VerifierName;

/// Groups that no member is ever told: the first may do everything, the second is what kubelets are. Nor users of these
/// names.
const NEVER_SENT: [&str; 2] = [MASTERS_GROUP, NODES_GROUP];
/// Users whom no verifier names, and groups that would take `system:authenticated` away.
const ANONYMOUS: [&str; 2] = [ANONYMOUS_USER, UNAUTHENTICATED_GROUP];

/// What one member is told of users whom others vouch for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberRules {
    /// Whether the uid is sent.
    pub uid: bool,
    /// The keys of extras that are sent, in lower case. Keys of kubernetes.io and k8s.io are not, even if listed: they
    /// name pods and nodes of one cluster, and admission there believes them.
    pub extra: BTreeSet<String>,
}

/// Why a member is told nothing, so that the request must not be sent there in the user's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotSent {
    /// Another cluster vouches for the user.
    #[error("cluster {0} vouches for the user, which is good in that cluster alone")]
    OfAnotherCluster(ClusterName),
    /// The name is one that clusters give meaning to by themselves.
    #[error("user {0:?} is a name of the system, which is not sent to another cluster")]
    SystemName(String),
    /// No cluster is ever told of such a user, or group.
    #[error("{what} {name:?} is never sent to a cluster, so that nobody acts as such through this endpoint")]
    Never {
        /// What it is: `user` or `group`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A member would not know in whose name to act.
    #[error("the user has no name")]
    NoName,
}

/// As whom `member` sees a user. The result is what impersonation headers are made of.
///
/// Nodes and nobody's names are never sent. Groups that are not sent are left out: they can only give rights. Beyond
/// the member that vouches for a user, names that begin with `system:` stay here, and extras go by the allow-list. That
/// member is told all that it has said itself, also where its word is good in the others.
///
/// # Errors
/// [`NotSent`] where the user must not act there at all.
pub fn identity_for(
    user: &UserInfo,
    authority: &Authority,
    member: &ClusterName,
    rules: &MemberRules,
) -> Result<UserInfo, NotSent> {
    let own = match &authority.reach {
        Reach::Member(cluster) if cluster != member => return Err(NotSent::OfAnotherCluster(cluster.clone())),
        reach => reach.is_word_of(member),
    };
    identity_for_member(user, own, rules)
}

/// As whom members see a user for whom they do not vouch themselves.
///
/// # Errors
/// [`NotSent`], but for [`NotSent::OfAnotherCluster`].
pub fn identity_elsewhere(user: &UserInfo, rules: &MemberRules) -> Result<UserInfo, NotSent> {
    identity_for_member(user, false, rules)
}

/// What a member is told of a user. `own` says that it is the member's word.
fn identity_for_member(user: &UserInfo, own: bool, rules: &MemberRules) -> Result<UserInfo, NotSent> {
    let name = sent_name(&user.username, own)?;
    let groups = user.groups.iter().filter(|group| is_sent_group(group, own)).cloned().collect();
    let uid = if own || rules.uid { user.uid.clone() } else { String::new() };
    Ok(UserInfo { username: name.to_owned(), uid, groups, extra: extra(&user.extra, own, rules) })
}

/// The name and groups by which a user may be anybody in some member. What no member is told gives no right, and is to
/// give no other privilege here: an issuer may let its users choose a group of the system. A name that is told to none
/// is empty. Whoever has no credentials is called so by this endpoint itself, and chose nothing.
pub fn identity_that_counts<'a>(user: &'a UserInfo, authority: &Authority) -> (&'a str, Cow<'a, [String]>) {
    if authority.verifier == VerifierName::anonymous() {
        return (&user.username, Cow::Borrowed(&user.groups));
    }
    let own = authority.reach.home().is_some();
    let name = sent_name(&user.username, own).unwrap_or_default();
    let groups = match user.groups.iter().all(|group| is_sent_group(group, own)) {
        true => Cow::Borrowed(user.groups.as_slice()),
        false => user.groups.iter().filter(|group| is_sent_group(group, own)).cloned().collect(),
    };
    (name, groups)
}

/// The name and groups by which a user may be given something that is not one member's to give: those that
/// [count](identity_that_counts) somewhere. Of whom one member alone vouches for only names of the system do, which
/// mean whoever a cluster calls so, and which no authority for all members gives to anybody: all other names are those
/// of people whom this endpoint's own authorities know, and a member may call anybody so. A name that does not count is
/// empty.
pub fn identity_beyond_member<'a>(user: &'a UserInfo, authority: &Authority) -> (&'a str, Cow<'a, [String]>) {
    let (name, groups) = identity_that_counts(user, authority);
    if !matches!(authority.reach, Reach::Member(_)) {
        return (name, groups);
    }
    let name = if name.starts_with(SYSTEM_PREFIX) { name } else { "" };
    if groups.iter().all(|group| group.starts_with(SYSTEM_PREFIX)) {
        return (name, groups);
    }
    (name, groups.iter().filter(|group| group.starts_with(SYSTEM_PREFIX)).cloned().collect())
}

/// As whom a member sees somebody whom its own rules let a user be: as all that the user asks to be, or not at all.
/// What is asked for by name is not left out in silence.
///
/// # Errors
/// [`NotSent`] where a part of it is never sent.
pub fn asked_identity(asked: &UserInfo) -> Result<UserInfo, NotSent> {
    let name = sent_name(&asked.username, true)?;
    // One of no name is one that is asked for, too: a kube-apiserver adds no groups of its own beside it. No header
    // carries it everywhere.
    if let Some(group) = asked.groups.iter().find(|group| is_never_sent(group) || group.is_empty()) {
        return Err(NotSent::Never { what: "group", name: group.clone() });
    }
    Ok(UserInfo { username: name.to_owned(), ..asked.clone() })
}

/// A user's name, if a member is told it. `own` says that it is the member's word.
fn sent_name(name: &str, own: bool) -> Result<&str, NotSent> {
    match name {
        "" => Err(NotSent::NoName),
        name if is_never_sent(name) => Err(NotSent::Never { what: "user", name: name.to_owned() }),
        name if !own && name.starts_with(SYSTEM_PREFIX) => Err(NotSent::SystemName(name.to_owned())),
        name => Ok(name),
    }
}

/// Whether a member is told of a group.
fn is_sent_group(group: &str, own: bool) -> bool {
    let is_known = own || group == AUTHENTICATED_GROUP || !group.starts_with(SYSTEM_PREFIX);
    !group.is_empty() && !is_never_sent(group) && is_known
}

/// Whether no member is ever told of a user, or of a group, of this name.
fn is_never_sent(name: &str) -> bool {
    name.starts_with(NODE_USER_PREFIX) || NEVER_SENT.contains(&name) || ANONYMOUS.contains(&name)
}

/// The extras that are sent, with keys in lower case as headers carry them: `A` and `a` arrive as one key, so they are
/// judged as one.
fn extra(extra: &BTreeMap<String, Vec<String>>, own: bool, rules: &MemberRules) -> BTreeMap<String, Vec<String>> {
    let mut sent: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, values) in extra {
        let key = key.to_ascii_lowercase();
        if own || (rules.extra.contains(&key) && !is_kubernetes(&key)) {
            sent.entry(key).or_default().extend(values.iter().cloned());
        }
    }
    sent
}

/// Whether a key is in a domain that Kubernetes keeps for itself
/// (apiserver `validation.isKubernetesDomainPrefix`).
pub(crate) fn is_kubernetes(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|own| domain.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new(name).unwrap()
    }

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        let extra = [("scopes.example.com/A", "x"), ("authentication.kubernetes.io/node-name", "n"), ("other", "y")];
        UserInfo {
            username: name.to_owned(),
            uid: "u".to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            extra: extra.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()])).collect(),
        }
    }

    #[test]
    fn what_a_member_is_told() {
        let everywhere = Reach::Everywhere;
        let a = Reach::Member(cluster("a"));
        let account = "system:serviceaccount:kube-system:default";
        let hub = Reach::EverywhereFrom(cluster("a"));
        let elsewhere = Reach::EverywhereFrom(cluster("b"));
        let refused = |name: &str| Err(NotSent::SystemName(name.to_owned()));
        let never = |name: &str| Err(NotSent::Never { what: "user", name: name.to_owned() });
        type Row<'a> = (&'a Reach, &'a str, &'a [&'a str], Result<&'a [&'a str], NotSent>);
        let table: &[Row<'_>] = &[
            (&everywhere, "ann", &["dev", "system:authenticated"], Ok(&["dev", "system:authenticated"])),
            (&everywhere, "ann", &["system:masters", "system:nodes", "system:node:x", "dev", ""], Ok(&["dev"])),
            (&everywhere, "ann", &["system:serviceaccounts", "system:unauthenticated"], Ok(&[])),
            (&everywhere, "System:ann", &[], Ok(&[])),
            (&everywhere, account, &[], refused(account)),
            (&everywhere, "system:anonymous", &[], never("system:anonymous")),
            (&everywhere, "", &[], Err(NotSent::NoName)),
            (&a, account, &["system:serviceaccounts", "system:masters"], Ok(&["system:serviceaccounts"])),
            (&a, "ann", &["system:nodes", "system:x"], Ok(&["system:x"])),
            (&a, "system:node:n1", &["system:nodes"], never("system:node:n1")),
            (&a, "system:anonymous", &[], never("system:anonymous")),
            (&hub, "ann", &["system:masters", "system:oauth", "dev"], Ok(&["system:oauth", "dev"])),
            (&elsewhere, "ann", &["system:masters", "system:oauth", "dev"], Ok(&["dev"])),
            (&hub, account, &[], Ok(&[])),
            (&elsewhere, account, &[], refused(account)),
        ];
        for (reach, name, groups, expected) in table {
            let authority = Authority { verifier: "test".into(), reach: (*reach).clone() };
            let sent = identity_for(&user(name, groups), &authority, &cluster("a"), &MemberRules::default());
            let sent = sent.map(|sent| sent.groups);
            let expected = expected.clone().map(|groups| groups.iter().map(|&group| group.to_owned()).collect());
            assert_eq!(sent, expected, "{reach:?} {name} {groups:?}");
        }
    }

    #[test]
    fn what_no_member_is_told_counts_nowhere() {
        let (a, everywhere) = (Reach::Member(cluster("a")), Reach::Everywhere);
        for (reach, name, groups, expected) in [
            (&everywhere, "ann", &["dev", "system:authenticated"][..], ("ann", &["dev", "system:authenticated"][..])),
            (&everywhere, "ann", &["system:nodes", "dev", "system:x"], ("ann", &["dev"])),
            (&everywhere, "system:kube-proxy", &["dev"], ("", &["dev"])),
            (&a, "system:kube-proxy", &["system:x", "system:masters"], ("system:kube-proxy", &["system:x"])),
            (&a, "system:node:n", &[], ("", &[])),
        ] {
            let authority = Authority { verifier: "test".into(), reach: reach.clone() };
            let who = user(name, groups);
            let (name, groups) = identity_that_counts(&who, &authority);
            assert_eq!((name, groups.iter().map(String::as_str).collect()), (expected.0, expected.1.to_vec()));
        }
        // Nobody but this endpoint calls somebody so.
        let nobody = UserInfo::anonymous();
        for (verifier, expected) in [
            (VerifierName::anonymous(), ("system:anonymous", vec!["system:unauthenticated".to_owned()])),
            (VerifierName::client_certificates(), ("", Vec::new())),
        ] {
            let authority = Authority { verifier, reach: Reach::Everywhere };
            let (name, groups) = identity_that_counts(&nobody, &authority);
            assert_eq!((name, groups.into_owned()), expected);
        }
    }

    #[test]
    fn a_member_names_nobody_for_whom_others_vouch() {
        let a = || cluster("a");
        let robot = "system:serviceaccount:n:robot";
        let known = "system:authenticated";
        for (reach, name, groups, expected) in [
            (Reach::Everywhere, "ann", &["dev", known][..], ("ann", &["dev", known][..])),
            (Reach::EverywhereFrom(a()), "ann", &["dev"], ("ann", &["dev"])),
            (Reach::Member(a()), "ann", &["dev", known], ("", &[known])),
            (
                Reach::Member(a()),
                robot,
                &["system:serviceaccounts", known],
                (robot, &["system:serviceaccounts", known]),
            ),
            (Reach::Member(a()), robot, &["dev", known], (robot, &[known])),
            (Reach::Member(a()), "system:node:n", &["system:nodes", "system:masters"], ("", &[])),
            (Reach::Everywhere, robot, &[known], ("", &[known])),
        ] {
            let authority = Authority { verifier: "test".into(), reach };
            let who = user(name, groups);
            let (name, groups) = identity_beyond_member(&who, &authority);
            assert_eq!(
                (name, groups.iter().map(String::as_str).collect()),
                (expected.0, expected.1.to_vec()),
                "{who:?}"
            );
        }
    }

    #[test]
    fn whom_a_member_vouches_for_is_nobody_in_another() {
        let authority = Authority { verifier: "a".into(), reach: Reach::Member(cluster("a")) };
        let sent = identity_for(&user("ann", &[]), &authority, &cluster("b"), &MemberRules::default());
        assert_eq!(sent, Err(NotSent::OfAnotherCluster(cluster("a"))));
    }

    #[test]
    fn uid_and_extras_go_by_the_members_rules() {
        let listed = ["scopes.example.com/a", "authentication.kubernetes.io/node-name"];
        let rules = MemberRules { uid: true, extra: listed.iter().map(|&key| key.to_owned()).collect() };
        let table: &[(Reach, MemberRules, &str, &[&str])] = &[
            (Reach::Everywhere, MemberRules::default(), "", &[]),
            (Reach::EverywhereFrom(cluster("b")), MemberRules::default(), "", &[]),
            (Reach::Everywhere, rules, "u", &["scopes.example.com/a"]),
            (
                Reach::EverywhereFrom(cluster("a")),
                MemberRules::default(),
                "u",
                &["authentication.kubernetes.io/node-name", "other", "scopes.example.com/a"],
            ),
            (
                Reach::Member(cluster("a")),
                MemberRules::default(),
                "u",
                &["authentication.kubernetes.io/node-name", "other", "scopes.example.com/a"],
            ),
        ];
        for (reach, rules, uid, keys) in table {
            let authority = Authority { verifier: "test".into(), reach: reach.clone() };
            let sent = identity_for(&user("ann", &[]), &authority, &cluster("a"), rules).unwrap();
            assert_eq!((sent.uid.as_str(), sent.extra.keys().map(String::as_str).collect()), (*uid, keys.to_vec()));
        }
    }

    #[test]
    fn who_is_asked_to_be_is_sent_whole_or_not_at_all() {
        let asked = user("System:bob", &["dev", "system:serviceaccounts"]);
        assert_eq!(asked_identity(&asked).as_ref(), Ok(&asked));
        for group in
            ["", "system:masters", "system:nodes", "system:node:n1", "system:unauthenticated", "system:anonymous"]
        {
            let error = asked_identity(&user("bob", &["dev", group])).unwrap_err();
            assert_eq!(error, NotSent::Never { what: "group", name: group.to_owned() });
            let why = format!(
                "group {group:?} is never sent to a cluster, so that nobody acts as such through this endpoint"
            );
            assert_eq!(error.to_string(), why);
            assert!(asked_identity(&user(group, &[])).is_err(), "{group}");
        }
        assert_eq!(asked_identity(&user("", &[])), Err(NotSent::NoName));
    }

    proptest::proptest! {
        /// Whatever a user is called, and whatever groups are said of it, no cluster is told of masters or nodes.
        #[test]
        fn masters_and_nodes_never_leave(
            name in "(system:(node:|nodes|masters|x)?)?[a-z]{0,2}",
            groups in proptest::collection::vec("(system:(node:|nodes|masters|x)?)?[a-z]{0,2}", 0..6),
            own: bool,
        ) {
            let reach = if own { Reach::Member(cluster("a")) } else { Reach::Everywhere };
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            let authority = Authority { verifier: "test".into(), reach };
            if let Ok(sent) = identity_for(&user(&name, &groups), &authority, &cluster("a"), &MemberRules::default()) {
                for word in sent.groups.iter().chain([&sent.username]) {
                    assert!(!NEVER_SENT.contains(&word.as_str()) && !word.starts_with(NODE_USER_PREFIX), "{word}");
                    assert!(own || !word.starts_with(SYSTEM_PREFIX), "{word}");
                }
            }
        }
    }
}
