//! Cache of a connection's last actor and impersonation headers. Nearly all requests of a connection have the same
//! user. A new actor allocates a dozen strings, and a comparison of two users costs less.

use std::sync::Arc;

use parking_lot::Mutex;
use tributary_authentication::{Authority, UserInfo};
use tributary_proxy::{Impersonation, InvalidImpersonation};

use super::actor::Actor;

/// Cached actor and impersonation headers of a connection. The actor is that of the last request without impersonation.
#[derive(Debug, Default)]
pub struct RememberedActor {
    actor: Mutex<Option<Arc<Actor>>>,
    identity: Mutex<Option<(UserInfo, Impersonation)>>,
}

impl RememberedActor {
    /// Returns the actor of a user without impersonation. Reuses the last actor if all attributes of the user are
    /// equal.
    pub fn actor_for(&self, user: &UserInfo, authority: &Authority) -> Arc<Actor> {
        let mut last = self.actor.lock();
        if let Some(known) = last.as_ref().filter(|known| known.is_of(user, authority)) {
            return Arc::clone(known);
        }
        let actor = Arc::new(Actor::new(user.clone(), authority.clone(), None));
        *last = Some(Arc::clone(&actor));
        actor
    }

    /// Returns the impersonation headers of an identity. Reuses the last headers if all attributes of the identity are
    /// equal.
    ///
    /// # Errors
    /// [`InvalidImpersonation`] for a name that no header can carry.
    pub(super) fn headers(&self, identity: UserInfo) -> Result<Impersonation, InvalidImpersonation> {
        let mut last = self.identity.lock();
        if let Some((_, headers)) = last.as_ref().filter(|(known, _)| *known == identity) {
            return Ok(headers.clone());
        }
        let headers = headers_of(&identity)?;
        *last = Some((identity, headers.clone()));
        Ok(headers)
    }
}

/// Returns the impersonation headers of an identity.
///
/// # Errors
/// [`InvalidImpersonation`] for a name that no header can carry.
pub(super) fn headers_of(identity: &UserInfo) -> Result<Impersonation, InvalidImpersonation> {
    let groups = identity.groups.iter().map(String::as_str);
    let extra =
        identity.extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key.as_str(), value.as_str())));
    Impersonation::new(&identity.username, groups, Some(&identity.uid), extra)
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ClusterName;

    use super::*;
    use tributary_authentication::User;

    #[test]
    fn cached_actor_is_reused_only_for_an_equal_user() {
        let ann = User::named("test", "ann");
        let remembered = RememberedActor::default();
        let known = remembered.actor_for(&ann.info, &ann.authority);
        assert!(Arc::ptr_eq(&known, &remembered.actor_for(&ann.info, &ann.authority)), "it is made once");
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
            with(|user| user.authority = "another".into()),
            with(|user| user.authority = Authority::Member(ClusterName::new("a").unwrap())),
        ] {
            let actor = remembered.actor_for(&other.info, &other.authority);
            assert!(*actor == Actor::new(other.info.clone(), other.authority.clone(), None), "{other:?}");
            assert!(*actor != *known);
        }
        assert_eq!(*remembered.actor_for(&ann.info, &ann.authority), *known);
    }

    #[test]
    fn cached_impersonation_headers_are_reused_only_for_an_equal_user() {
        let ann = UserInfo {
            username: "ann".to_owned(),
            groups: vec!["dev".to_owned(), "ops".to_owned()],
            ..UserInfo::default()
        };
        let remembered = RememberedActor::default();
        let known = remembered.headers(ann.clone()).unwrap();
        let again = remembered.headers(ann.clone()).unwrap();
        assert!(std::ptr::eq(known.headers(), again.headers()), "they are made once");
        let with = |change: fn(&mut UserInfo)| {
            let mut identity = ann.clone();
            change(&mut identity);
            identity
        };
        for other in [
            with(|identity| identity.username = "bob".to_owned()),
            with(|identity| identity.uid = "1".to_owned()),
            with(|identity| identity.groups.truncate(1)),
            with(|identity| {
                drop(identity.extra.insert("key".to_owned(), vec!["value".to_owned(), "other".to_owned()]))
            }),
        ] {
            let headers = remembered.headers(other.clone()).unwrap();
            assert_eq!(headers.headers(), headers_of(&other).unwrap().headers(), "{other:?}");
            assert_ne!(headers.headers(), known.headers(), "{other:?}");
        }
        assert_eq!(remembered.headers(ann.clone()).unwrap().headers(), known.headers());
        // The first call fails. The second call must also fail, and must not return the headers of an earlier user.
        for _ in 0..2 {
            assert!(remembered.headers(with(|identity| identity.username = "a\nb".to_owned())).is_err());
        }
    }
}
