//! Subject of an access review: the user as the cluster would see it.

use serde_json::{Value, json};
use tributary_authentication::UserInfo;
use tributary_authorization::RbacUser;

/// Subject of an access review, with all attributes that the cluster may see. An authorization webhook may use the uid
/// or an extra.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Subject {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: Vec<(String, Vec<String>)>,
}

impl Subject {
    /// Combines an identity with the groups by which the cluster decides.
    pub(super) fn from_identity(identity: UserInfo, groups: &[String]) -> Self {
        let UserInfo { username, uid, extra, .. } = identity;
        Self { name: username, uid, groups: groups.to_vec(), extra: extra.into_iter().collect() }
    }

    pub(super) fn bytes(&self) -> usize {
        let texts = self.extra.iter().flat_map(|(key, values)| std::iter::once(key).chain(values));
        [&self.name, &self.uid].into_iter().chain(&self.groups).chain(texts).map(String::len).sum()
    }

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
    fn from(user: RbacUser<'_>) -> Self {
        let (name, groups) = (user.name.to_owned(), user.groups.to_vec());
        Self { name, uid: String::new(), groups, extra: Vec::new() }
    }
}
