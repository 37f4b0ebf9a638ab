//! Of whom a cluster is asked: whoever it would see if they asked it themselves.

use serde_json::{Value, json};
use tributary_authentication::UserInfo;
use tributary_authorization::RbacUser;

/// Of whom a cluster is asked. It has all that the cluster is told of somebody: an authorizing webhook may go by the
/// uid or an extra, and an answer about somebody with fewer of them is one about somebody else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Subject {
    name: String,
    uid: String,
    groups: Vec<String>,
    /// Key and values, in the order of the keys.
    extra: Vec<(String, Vec<String>)>,
}

impl Subject {
    /// Of whom the cluster is told this, with the groups by which it judges them.
    pub(super) fn from_identity(told: UserInfo, groups: &[String]) -> Self {
        let UserInfo { username, uid, extra, .. } = told;
        Self { name: username, uid, groups: groups.to_vec(), extra: extra.into_iter().collect() }
    }

    /// How many bytes of texts it has.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.extra.iter().flat_map(|(key, values)| std::iter::once(key).chain(values));
        [&self.name, &self.uid].into_iter().chain(&self.groups).chain(texts).map(String::len).sum()
    }

    /// The part of a SubjectAccessReview's `spec` that says who it is.
    pub(super) fn spec(&self) -> Value {
        let Self { name, uid, groups, extra } = self;
        let mut spec = json!({"user": name, "groups": groups});
        if !uid.is_empty() {
            spec["uid"] = json!(uid);
        }
        if !extra.is_empty() {
            spec["extra"] = extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        }
        spec
    }
}

impl From<RbacUser<'_>> for Subject {
    /// Of whom nothing but this is known.
    fn from(user: RbacUser<'_>) -> Self {
        let (name, groups) = (user.name.to_owned(), user.groups.to_vec());
        Self { name, uid: String::new(), groups, extra: Vec::new() }
    }
}
