//! By which names a rule may have less written of somebody. Pure, and tested by table: nobody is to choose one.

use std::borrow::Cow;

use tributary_authentication::identity_beyond_member;
use tributary_router::User;

/// The name and groups by which a rule may have less written of a user, or nothing. A name that does not count is
/// empty.
pub(super) fn identity_that_lowers(user: &User) -> (&str, Cow<'_, [String]>) {
    identity_beyond_member(&user.info, &user.authority)
}

#[cfg(test)]
mod tests {
    use tributary_authentication::Reach;

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
