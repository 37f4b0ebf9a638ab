//! The actor of a connection's last request. Nearly all requests of a connection are one user's, and who that is to
//! members is made of a dozen texts: it is made once, and compared with itself where it is looked up.

use std::sync::Arc;

use parking_lot::Mutex;
use tributary_authentication::{Authority, UserInfo};

use super::actor::Actor;

/// Who sent the last request of a connection, where they did not ask to be anybody else. Clones are of the same
/// connection. It travels with its requests, as an extension; where there is none each request makes its own.
#[derive(Clone, Debug, Default)]
pub struct RememberedActor(Arc<Mutex<Option<Arc<Actor>>>>);

impl RememberedActor {
    /// The actor of a user who asks to be nobody else. It is the last one only where all that is known of the user is
    /// the same.
    pub(crate) fn of(&self, user: &UserInfo, authority: &Authority) -> Arc<Actor> {
        let mut last = self.0.lock();
        if let Some(known) = last.as_ref().filter(|known| known.is_of(user, authority)) {
            return Arc::clone(known);
        }
        let actor = Arc::new(Actor::new(user.clone(), authority.clone(), None));
        *last = Some(Arc::clone(&actor));
        actor
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ClusterName;
    use tributary_authentication::Reach;

    use super::*;
    use crate::User;

    #[test]
    fn an_actor_is_made_anew_for_whoever_is_not_the_same_in_all() {
        let ann = User::named("test", "ann");
        let remembered = RememberedActor::default();
        let known = remembered.of(&ann.info, &ann.authority);
        assert!(Arc::ptr_eq(&known, &remembered.clone().of(&ann.info, &ann.authority)), "it is made once");
        let with = |change: fn(&mut User)| {
            let mut user = ann.clone();
            change(&mut user);
            user
        };
        for other in [
            with(|user| user.info.username = "bob".to_owned()),
            with(|user| user.info.uid = "1".to_owned()),
            with(|user| user.info.groups.push("dev".to_owned())),
            with(|user| drop(user.info.extra.insert("key".to_owned(), vec!["value".to_owned()]))),
            with(|user| user.authority.verifier = "another".into()),
            with(|user| user.authority.reach = Reach::Member(ClusterName::new("a").unwrap())),
        ] {
            let actor = remembered.of(&other.info, &other.authority);
            assert!(*actor == Actor::new(other.info.clone(), other.authority.clone(), None), "{other:?}");
            assert!(*actor != *known);
        }
        assert_eq!(*remembered.of(&ann.info, &ann.authority), *known);
    }
}
