//! Subject of an access review: a user as the cluster would see the user, with all attributes. An authorization webhook
//! may use the uid or an extra.

use serde_json::{Value, json};
use tributary_authentication::UserInfo;

/// Returns the `spec` of a SubjectAccessReview about the user.
pub(super) fn review_spec(user: &UserInfo) -> Value {
    let UserInfo { username, uid, groups, extra } = user;
    let mut spec = json!({"user": username, "groups": groups});
    if !uid.is_empty() {
        spec["uid"] = json!(uid);
    }
    if !extra.is_empty() {
        spec["extra"] = json!(extra);
    }
    spec
}
