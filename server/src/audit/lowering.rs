//! By which names a rule may have less written of somebody. Pure, and tested by table: nobody is to choose one.

use std::borrow::Cow;

use tributary_apimachinery::SYSTEM_PREFIX;
use tributary_authentication::{Reach, identity_that_counts};
use tributary_router::User;

/// The name and groups by which a rule may have less written of a user, or nothing: those that count somewhere. Of whom
/// one member alone vouches for only names of the system do, which mean whoever a cluster calls so, and which no
/// authority for all members gives to anybody: all other names are those of people whom this endpoint's own authorities
/// know, and a member may call anybody so. A name that does not count is empty.
pub(super) fn identity_that_lowers(user: &User) -> (&str, Cow<'_, [String]>) {
    let (name, groups) = identity_that_counts(&user.info, &user.authority);
    if !matches!(user.authority.reach, Reach::Member(_)) {
        return (name, groups);
    }
    let name = if name.starts_with(SYSTEM_PREFIX) { name } else { "" };
    if groups.iter().all(|group| group.starts_with(SYSTEM_PREFIX)) {
        return (name, groups);
    }
    (name, groups.iter().filter(|group| group.starts_with(SYSTEM_PREFIX)).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_names_nobody_for_whom_others_vouch() {
        let eu = || "eu".parse().unwrap();
        let robot = "system:serviceaccount:n:robot";
        let known = "system:authenticated";
        for (reach, name, groups, expected) in [
            (Reach::Everywhere, "alice", &["dev", known][..], ("alice", &["dev", known][..])),
            (Reach::EverywhereFrom(eu()), "alice", &["dev"], ("alice", &["dev"])),
            (Reach::Member(eu()), "alice", &["dev", known], ("", &[known])),
            (
                Reach::Member(eu()),
                robot,
                &["system:serviceaccounts", known],
                (robot, &["system:serviceaccounts", known]),
            ),
            (Reach::Member(eu()), robot, &["dev", known], (robot, &[known])),
            (Reach::Member(eu()), "system:node:n", &["system:nodes", "system:masters"], ("", &[])),
            (Reach::Everywhere, robot, &[known], ("", &[known])),
        ] {
            let mut user = User::named("test", name);
            user.authority.reach = reach;
            user.info.groups = groups.iter().map(|&group| group.to_owned()).collect();
            let (name, groups) = identity_that_lowers(&user);
            let groups: Vec<_> = groups.iter().map(String::as_str).collect();
            assert_eq!((name, groups), (expected.0, expected.1.to_vec()), "{user:?}");
        }
    }
}
