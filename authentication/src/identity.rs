//! The identity under which a member cluster sees a user. The security of impersonation depends on these pure
//! functions, so their tests are tables of cases.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use tributary_apimachinery::{
    ANONYMOUS_USER, AUTHENTICATED_GROUP, ClusterName, MASTERS_GROUP, NODE_USER_PREFIX, NODES_GROUP, SYSTEM_PREFIX,
    ServiceAccount, UNAUTHENTICATED_GROUP,
};

use crate::authority::Authority;
use crate::user::UserInfo;

/// Users and groups that are never sent to a member. `system:masters` may do everything, and `system:nodes` is the
/// group of kubelets.
const NEVER_SENT: [&str; 2] = [MASTERS_GROUP, NODES_GROUP];
/// The user and the group of anonymous requests. No verifier may report these names: a user in `system:unauthenticated`
/// does not get the group `system:authenticated`.
const ANONYMOUS: [&str; 2] = [ANONYMOUS_USER, UNAUTHENTICATED_GROUP];

/// The prefix of the name under which members see a ServiceAccount of the hub, as in Open Cluster Management
/// (cluster-proxy `pkg/serviceproxy`): `cluster:hub:system:serviceaccount:NAMESPACE:NAME`. No other user and no group
/// of a different verifier is sent with this prefix.
const HUB_PREFIX: &str = "cluster:hub:";

/// The prefix of the groups of kubeadm's administrators. Each cluster made by kubeadm gives `kubeadm:cluster-admins`
/// all rights. If the groups of the hub's users with this prefix were sent, an administrator of the hub would have all
/// rights in each such member.
const KUBEADM_PREFIX: &str = "kubeadm:";

/// The parts of a user that are sent to a member, if the member itself has not authenticated the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberRules {
    /// Whether the uid is sent to the member.
    pub uid: bool,
    /// The keys of the extra fields that are sent to the member, in lower case. Keys in the domains kubernetes.io and
    /// k8s.io are never sent, even if this list contains them. These keys name pods and nodes of one cluster, and
    /// admission in that cluster trusts the keys.
    pub extra: BTreeSet<String>,
}

/// The reason why a request must not be sent to a member under the user's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotSent {
    /// Another member authenticated the user by a TokenReview, so the user is valid only in that member.
    #[error("cluster {0} authenticated the user, so the user is valid only in this cluster")]
    OfAnotherCluster(ClusterName),
    /// The user's name begins with `system:`. Each cluster has its own meaning for these names.
    #[error("user {0:?} has a system name, which is sent only to the user's own cluster")]
    SystemName(String),
    /// The user's name looks like the name of a ServiceAccount of the hub, but the user is no ServiceAccount of the
    /// hub.
    #[error("user {0:?} begins with \"{HUB_PREFIX}\", which is reserved for ServiceAccounts of the hub")]
    HubName(String),
    /// The user or the group is never sent to any cluster.
    #[error("{what} {name:?} is never sent to a cluster, because no client may have this identity through Tributary")]
    Never {
        /// The kind of the name that is never sent: `user` or `group`.
        what: &'static str,
        /// The user or group name that is never sent.
        name: String,
    },
    /// A client impersonates a user in the hub, but has not sent the request through the hub's kube-apiserver. Only
    /// this kube-apiserver may impersonate users in the hub.
    #[error("only the kube-apiserver of the hub impersonates users in the hub; send the request through it")]
    ImpersonationAtHub,
    /// The user's name is empty, so there is no user to impersonate.
    #[error("the user has no name")]
    NoName,
}

/// Returns the identity of a user in `member`, from which the impersonation headers are made.
///
/// Names of nodes and of anonymous users are never sent. Groups that must not be sent are left out, because a missing
/// group can only remove rights. If `member` has authenticated the user, it gets every attribute from its own
/// TokenReview, even if the user is valid in other members too. Any other member gets no user name that begins with
/// `system:`, and only the extra fields of the allow-list. A ServiceAccount of the hub gets the prefix `cluster:hub:`,
/// and the groups of its namespace are left out.
///
/// # Errors
/// [`NotSent`] if the user must not act in this member.
pub fn identity_for(
    user: &UserInfo,
    authority: &Authority,
    member: &ClusterName,
    rules: &MemberRules,
) -> Result<UserInfo, NotSent> {
    match authority.only_member() {
        Some(cluster) if cluster != member => Err(NotSent::OfAnotherCluster(cluster.clone())),
        _ => identity_for_member(user, Some(authority).filter(|_| authority.home() != Some(member)), rules),
    }
}

/// Returns the identity of a user in the hub itself. A user that the hub has authenticated keeps `system:` names, for
/// example the names of ServiceAccounts. Groups that must not be sent are left out.
///
/// # Errors
/// [`NotSent`] for a name that is never sent, and for a `system:` name of a user that the hub has not authenticated.
pub fn identity_at_hub(user: &UserInfo, authority: &Authority) -> Result<UserInfo, NotSent> {
    identity_for_member(user, Some(authority).filter(|_| !authority.is_hub()), &MemberRules::default())
}

/// Returns the identity of a user in members that have not authenticated the user.
///
/// # Errors
/// [`NotSent`], except [`NotSent::OfAnotherCluster`].
pub fn identity_for_other_members(
    user: &UserInfo,
    authority: &Authority,
    rules: &MemberRules,
) -> Result<UserInfo, NotSent> {
    identity_for_member(user, Some(authority), rules)
}

/// Returns the identity of a user in a member. `source` is the user's authority; `None` if the member itself has
/// authenticated the user.
fn identity_for_member(user: &UserInfo, source: Option<&Authority>, rules: &MemberRules) -> Result<UserInfo, NotSent> {
    let username = sent_name(&user.username, source)?.into_owned();
    let groups = user.groups.iter().filter(|group| may_send_group(group, source)).cloned().collect();
    let own = source.is_none();
    let uid = if own || rules.uid { user.uid.clone() } else { String::new() };
    Ok(UserInfo { username, uid, groups, extra: extra(&user.extra, own, rules) })
}

/// Returns the user's name and groups that give privileges in Tributary itself: only names that may be sent to at least
/// one member. Other names give no privileges, because an issuer may let its users choose any group name. A
/// ServiceAccount of the hub has the name that members see, with the prefix `cluster:hub:`. A name that is never sent
/// becomes the empty string. The names of an anonymous user give privileges, because Tributary itself assigns them.
pub fn counted_names<'a>(user: &'a UserInfo, authority: &Authority) -> (Cow<'a, str>, Cow<'a, [String]>) {
    if authority.is_anonymous() {
        return (Cow::Borrowed(&user.username), Cow::Borrowed(&user.groups));
    }
    let source = Some(authority).filter(|_| authority.home().is_none());
    // Names with the prefix `cluster:hub:` give privileges only if the hub itself has authenticated the user.
    let is_foreign = |name: &str| !authority.is_hub() && name.starts_with(HUB_PREFIX);
    let name = sent_name(&user.username, source).unwrap_or_default();
    let name = if is_foreign(&user.username) { Cow::Borrowed("") } else { name };
    let counts = |group: &String| may_send_group(group, source) && !is_foreign(group);
    let groups = match user.groups.iter().all(counts) {
        true => Cow::Borrowed(user.groups.as_slice()),
        false => user.groups.iter().filter(|group| counts(group)).cloned().collect(),
    };
    (name, groups)
}

/// Returns the user's name and groups that give privileges beyond one member. For a user of all members, the result
/// equals [`counted_names`].
///
/// For a user that only one member has authenticated, the result contains only `system:` names. Other names are
/// dropped: Tributary's verifiers assign such names to persons, but the member could report them for anyone. A
/// `system:` name stays, because it has a meaning in each cluster, and no central verifier assigns it. The returned
/// name is empty if the user's name gives no privileges.
pub fn names_beyond_member<'a>(user: &'a UserInfo, authority: &Authority) -> (Cow<'a, str>, Cow<'a, [String]>) {
    let (name, groups) = counted_names(user, authority);
    if authority.only_member().is_none() {
        return (name, groups);
    }
    let name = if name.starts_with(SYSTEM_PREFIX) { name } else { Cow::Borrowed("") };
    if groups.iter().all(|group| group.starts_with(SYSTEM_PREFIX)) {
        return (name, groups);
    }
    (name, groups.iter().filter(|group| group.starts_with(SYSTEM_PREFIX)).cloned().collect())
}

/// Returns the identity that a client asks to impersonate, if the member's own RBAC decides about impersonation. The
/// identity is sent completely or not at all: a requested part is never dropped silently.
///
/// # Errors
/// [`NotSent`] if a part of the identity is never sent.
pub fn impersonated_identity(user: &UserInfo) -> Result<UserInfo, NotSent> {
    let name = sent_name(&user.username, None)?;
    // An empty group name is rejected, too. With an empty group, a kube-apiserver adds no groups to the impersonated
    // user. But some HTTP stacks cannot transmit an empty header, so the user would get other groups than the client
    // requested.
    if let Some(group) = user.groups.iter().find(|group| is_never_sent(group) || group.is_empty()) {
        return Err(NotSent::Never { what: "group", name: group.clone() });
    }
    Ok(UserInfo { username: name.into_owned(), ..user.clone() })
}

/// Returns the name that the member gets, if the user may be sent to the member. `source` is the user's authority;
/// `None` if the member itself has authenticated the user.
fn sent_name<'a>(name: &'a str, source: Option<&Authority>) -> Result<Cow<'a, str>, NotSent> {
    match (name, source) {
        ("", _) => Err(NotSent::NoName),
        (name, _) if is_never_sent(name) => Err(NotSent::Never { what: "user", name: name.to_owned() }),
        (name, None) => Ok(Cow::Borrowed(name)),
        (name, Some(authority)) if authority.is_hub() && ServiceAccount::of_user(name).is_some() => {
            Ok(Cow::Owned(format!("{HUB_PREFIX}{name}")))
        }
        (name, _) if name.starts_with(SYSTEM_PREFIX) => Err(NotSent::SystemName(name.to_owned())),
        // Without this check, any issuer could give a person the name of a ServiceAccount of the hub.
        (name, _) if name.starts_with(HUB_PREFIX) => Err(NotSent::HubName(name.to_owned())),
        (name, _) => Ok(Cow::Borrowed(name)),
    }
}

/// Returns whether a group may be sent to the member. `source` as for [`sent_name`].
fn may_send_group(group: &str, source: Option<&Authority>) -> bool {
    let is_reserved = group.starts_with(SYSTEM_PREFIX)
        || group.starts_with(HUB_PREFIX)
        || (source.is_some_and(Authority::is_hub) && group.starts_with(KUBEADM_PREFIX));
    let is_known = source.is_none() || group == AUTHENTICATED_GROUP || !is_reserved;
    !group.is_empty() && !is_never_sent(group) && is_known
}

/// Returns whether a user or group is never sent to any member.
fn is_never_sent(name: &str) -> bool {
    name.starts_with(NODE_USER_PREFIX) || NEVER_SENT.contains(&name) || ANONYMOUS.contains(&name)
}

/// Returns the extra fields to send. `own` is true if the member itself has authenticated the user: then all fields are
/// sent. Keys become lower case, as in headers, so `A` and `a` are one key.
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

/// Returns whether a key is in a domain that Kubernetes reserves (apiserver `validation.isKubernetesDomainPrefix`).
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
    fn user_and_groups_sent_to_a_member_follow_its_impersonation_rules() {
        let everywhere = Authority::from("test");
        let a = Authority::Member(cluster("a"));
        let account = "system:serviceaccount:kube-system:default";
        let hub = Authority::TokenReviewCluster(cluster("a"));
        let elsewhere = Authority::TokenReviewCluster(cluster("b"));
        let refused = |name: &str| Err(NotSent::SystemName(name.to_owned()));
        let never = |name: &str| Err(NotSent::Never { what: "user", name: name.to_owned() });
        type Row<'a> = (&'a Authority, &'a str, &'a [&'a str], Result<&'a [&'a str], NotSent>);
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
        for (authority, name, groups, expected) in table {
            let sent = identity_for(&user(name, groups), authority, &cluster("a"), &MemberRules::default());
            let sent = sent.map(|sent| sent.groups);
            let expected = expected.clone().map(|groups| groups.iter().map(|&group| group.to_owned()).collect());
            assert_eq!(sent, expected, "{authority:?} {name} {groups:?}");
        }
    }

    #[test]
    fn reserved_user_and_group_names_are_removed_before_policies_are_matched() {
        let (a, everywhere) = (Authority::Member(cluster("a")), Authority::from("test"));
        for (authority, name, groups, expected) in [
            (&everywhere, "ann", &["dev", "system:authenticated"][..], ("ann", &["dev", "system:authenticated"][..])),
            (&everywhere, "ann", &["system:nodes", "dev", "system:x"], ("ann", &["dev"])),
            (&everywhere, "system:kube-proxy", &["dev"], ("", &["dev"])),
            (&a, "system:kube-proxy", &["system:x", "system:masters"], ("system:kube-proxy", &["system:x"])),
            (&a, "system:node:n", &[], ("", &[])),
        ] {
            let user = user(name, groups);
            let (name, groups) = counted_names(&user, authority);
            assert_eq!((&*name, groups.iter().map(String::as_str).collect()), (expected.0, expected.1.to_vec()));
        }
        // The names of anonymous users give privileges if Tributary itself assigned them, and not if a verifier reports
        // them.
        let anonymous = UserInfo::anonymous();
        for (authority, expected) in [
            (Authority::Anonymous, ("system:anonymous", vec!["system:unauthenticated".to_owned()])),
            (Authority::ClientCertificates, ("", Vec::new())),
        ] {
            let (name, groups) = counted_names(&anonymous, &authority);
            assert_eq!((&*name, groups.into_owned()), expected);
        }
    }

    #[test]
    fn user_of_one_member_has_only_system_names_at_other_clusters() {
        let a = || cluster("a");
        let robot = "system:serviceaccount:n:robot";
        let all_users = "system:authenticated";
        for (authority, name, groups, expected) in [
            (Authority::from("test"), "ann", &["dev", all_users][..], ("ann", &["dev", all_users][..])),
            (Authority::TokenReviewCluster(a()), "ann", &["dev"], ("ann", &["dev"])),
            (Authority::Member(a()), "ann", &["dev", all_users], ("", &[all_users])),
            (
                Authority::Member(a()),
                robot,
                &["system:serviceaccounts", all_users],
                (robot, &["system:serviceaccounts", all_users]),
            ),
            (Authority::Member(a()), robot, &["dev", all_users], (robot, &[all_users])),
            (Authority::Member(a()), "system:node:n", &["system:nodes", "system:masters"], ("", &[])),
            (Authority::from("test"), robot, &[all_users], ("", &[all_users])),
        ] {
            let user = user(name, groups);
            let (name, groups) = names_beyond_member(&user, &authority);
            assert_eq!(
                (&*name, groups.iter().map(String::as_str).collect()),
                (expected.0, expected.1.to_vec()),
                "{user:?}"
            );
        }
    }

    /// The group `system:masters` of an administrator of the hub gives no rights in members.
    #[test]
    fn users_of_the_hub_are_sent_to_members_with_a_reserved_name_prefix() {
        let account = "system:serviceaccount:shop:robot";
        let sent_account = "cluster:hub:system:serviceaccount:shop:robot";
        let of_account = ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"];
        let system = |name: &str| Err(NotSent::SystemName(name.to_owned()));
        let reserved = |name: &str| Err(NotSent::HubName(name.to_owned()));
        let never = |name: &str| Err(NotSent::Never { what: "user", name: name.to_owned() });
        let (hub, proxied) = (Authority::Hub, Authority::HubFrontProxy);
        let issuer = Authority::from("https://issuer");
        type Sent<'a> = Result<(&'a str, &'a [&'a str]), NotSent>;
        let table: &[(&Authority, &str, &[&str], Sent<'_>)] = &[
            (&hub, account, &of_account, Ok((sent_account, &["system:authenticated"]))),
            (&proxied, account, &of_account, Ok((sent_account, &["system:authenticated"]))),
            (&hub, "ann", &["dev", "system:masters", "system:ops"], Ok(("ann", &["dev"]))),
            (&hub, "ann", &["system:nodes", "cluster:hub:x", "cluster:x"], Ok(("ann", &["cluster:x"]))),
            (&hub, "kubernetes-admin", &["kubeadm:cluster-admins", "dev"], Ok(("kubernetes-admin", &["dev"]))),
            (&proxied, "kubernetes-admin", &["system:masters"], Ok(("kubernetes-admin", &[]))),
            (&hub, "cluster:ann", &[], Ok(("cluster:ann", &[]))),
            (&hub, sent_account, &[], reserved(sent_account)),
            (&proxied, sent_account, &[], reserved(sent_account)),
            (&issuer, sent_account, &[], reserved(sent_account)),
            (&issuer, account, &[], system(account)),
            (&hub, "cluster:hub:ann", &[], reserved("cluster:hub:ann")),
            (&hub, "system:serviceaccount:shop", &[], system("system:serviceaccount:shop")),
            (&hub, "system:serviceaccount:a:b:c", &[], system("system:serviceaccount:a:b:c")),
            (&proxied, "system:kube-aggregator", &["system:masters"], system("system:kube-aggregator")),
            (&hub, "system:node:n1", &["system:nodes"], never("system:node:n1")),
            (&proxied, "system:anonymous", &["system:unauthenticated"], never("system:anonymous")),
            (&hub, "system:masters", &[], never("system:masters")),
            (&hub, "", &[], Err(NotSent::NoName)),
        ];
        let listed = ["other", "authentication.kubernetes.io/node-name"];
        let rules = MemberRules { uid: false, extra: listed.iter().map(|&key| key.to_owned()).collect() };
        for (authority, name, groups, expected) in table {
            let user = user(name, groups);
            let sent = identity_for(&user, authority, &cluster("a"), &rules);
            assert_eq!(sent, identity_for_other_members(&user, authority, &rules), "{name}");
            if let Ok(sent) = &sent {
                assert_eq!(sent.extra.keys().collect::<Vec<_>>(), ["other"], "{name}");
                assert_eq!(counted_names(&user, authority).0, sent.username, "{name}");
            }
            let sent = sent.map(|sent| (sent.username, sent.groups));
            let expected = expected.clone().map(|(name, groups)| {
                (name.to_owned(), groups.iter().map(|&group| group.to_owned()).collect::<Vec<_>>())
            });
            assert_eq!(sent, expected, "{authority} {name} {groups:?}");
        }
        // A member may have such users itself, for example by its own issuer.
        let of_member = Authority::Member(cluster("a"));
        let sent = identity_for(&user(sent_account, &[]), &of_member, &cluster("a"), &rules);
        assert_eq!(sent.map(|sent| sent.username), Ok(sent_account.to_owned()));
    }

    #[test]
    fn user_authenticated_by_one_member_is_not_impersonated_at_another() {
        let authority = Authority::Member(cluster("a"));
        let sent = identity_for(&user("ann", &[]), &authority, &cluster("b"), &MemberRules::default());
        assert_eq!(sent, Err(NotSent::OfAnotherCluster(cluster("a"))));
    }

    #[test]
    fn uid_and_extra_fields_are_sent_as_configured() {
        let listed = ["scopes.example.com/a", "authentication.kubernetes.io/node-name"];
        let rules = MemberRules { uid: true, extra: listed.iter().map(|&key| key.to_owned()).collect() };
        let table: &[(Authority, MemberRules, &str, &[&str])] = &[
            (Authority::from("test"), MemberRules::default(), "", &[]),
            (Authority::TokenReviewCluster(cluster("b")), MemberRules::default(), "", &[]),
            (Authority::from("test"), rules, "u", &["scopes.example.com/a"]),
            (
                Authority::TokenReviewCluster(cluster("a")),
                MemberRules::default(),
                "u",
                &["authentication.kubernetes.io/node-name", "other", "scopes.example.com/a"],
            ),
            (
                Authority::Member(cluster("a")),
                MemberRules::default(),
                "u",
                &["authentication.kubernetes.io/node-name", "other", "scopes.example.com/a"],
            ),
        ];
        for (authority, rules, uid, keys) in table {
            let sent = identity_for(&user("ann", &[]), authority, &cluster("a"), rules).unwrap();
            assert_eq!((sent.uid.as_str(), sent.extra.keys().map(String::as_str).collect()), (*uid, keys.to_vec()));
        }
    }

    #[test]
    fn impersonated_user_is_sent_completely_or_not_at_all() {
        let impersonated = user("System:bob", &["dev", "system:serviceaccounts"]);
        assert_eq!(impersonated_identity(&impersonated).as_ref(), Ok(&impersonated));
        for group in
            ["", "system:masters", "system:nodes", "system:node:n1", "system:unauthenticated", "system:anonymous"]
        {
            let error = impersonated_identity(&user("bob", &["dev", group])).unwrap_err();
            assert_eq!(error, NotSent::Never { what: "group", name: group.to_owned() });
            let why = format!(
                "group {group:?} is never sent to a cluster, because no client may have this identity through Tributary"
            );
            assert_eq!(error.to_string(), why);
            assert!(impersonated_identity(&user(group, &[])).is_err(), "{group}");
        }
        assert_eq!(impersonated_identity(&user("", &[])), Err(NotSent::NoName));
    }

    proptest::proptest! {
        #[test]
        fn system_masters_and_nodes_are_never_sent_to_members(
            name in "(cluster:hub:)?(system:(node:|nodes|masters|serviceaccount:a:|x)?)?[a-z]{0,2}",
            groups in proptest::collection::vec("(cluster:hub:)?(system:(node:|nodes|masters|x)?)?[a-z]{0,2}", 0..6),
            own: bool,
            is_hub: bool,
        ) {
            let elsewhere = if is_hub { Authority::Hub } else { Authority::from("test") };
            let authority = if own { Authority::Member(cluster("a")) } else { elsewhere };
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            if let Ok(sent) = identity_for(&user(&name, &groups), &authority, &cluster("a"), &MemberRules::default()) {
                for word in sent.groups.iter().chain([&sent.username]) {
                    assert!(!NEVER_SENT.contains(&word.as_str()) && !word.starts_with(NODE_USER_PREFIX), "{word}");
                    assert!(own || !word.starts_with(SYSTEM_PREFIX), "{word}");
                }
                assert_eq!(!own && sent.username.starts_with(HUB_PREFIX), sent.username != name, "{name}");
            }
        }
    }
}
