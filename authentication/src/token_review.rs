//! Makes the request of a TokenReview of authentication.k8s.io/v1, and interprets the response. These functions are
//! pure; a [`TokenReviewer`] sends the request.

use std::fmt;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::json::null_is_default;

use crate::user::UserInfo;

/// The maximum number of groups and values of extra fields that a cluster may report for a user. 1,024: a directory
/// limits a user to about as many groups (Active Directory: 1,015). Each request contains all of these values, and open
/// streams keep them in memory.
const VALUES_MAX: usize = 1_024;
/// The maximum size of a user's data in a review, in bytes.
const BYTES_MAX: usize = 64 << 10;

/// Sends TokenReviews to clusters.
pub trait TokenReviewer: Send + Sync + fmt::Debug {
    /// Posts a TokenReview (JSON) to a cluster under Tributary's own identity, and returns the body of a 200 or 201
    /// response. The caller sets a timeout. Cancel: safe, because a review changes nothing.
    ///
    /// # Errors
    /// The reason why there is no response. The reason contains no text of the token.
    fn review(&self, cluster: &ClusterName, body: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, String>>;
}

/// The reason why the response to a TokenReview is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The response is not a TokenReview with a status.
    #[error("the answer is not a TokenReview")]
    Malformed,
    /// The token is valid, but the review names no user.
    #[error("the TokenReview names no user")]
    NoName,
    /// The review reports more data about the user than the limits allow.
    #[error(
        "the TokenReview has too much data about the user: at most {values} groups and extra values, and {bytes} bytes, are accepted",
        values = VALUES_MAX,
        bytes = BYTES_MAX
    )]
    TooMuch,
}

/// Returns the TokenReview to post. Without `audiences`, the cluster checks whether the token is for the cluster
/// itself.
pub fn review_request(token: &str, audiences: &[String]) -> Vec<u8> {
    let mut spec = json!({"token": token});
    if !audiences.is_empty() {
        spec["audiences"] = json!(audiences);
    }
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}).to_string().into_bytes()
}

/// Returns the user in a response, or `None` if the cluster rejects the token, or the token is for other audiences.
///
/// `status.error` is not passed on: a kube-apiserver sets this field for each unknown token, and another implementation
/// could quote the token. According to the API reference, a response without audiences means that the cluster has not
/// checked them. Such a response is rejected if audiences are required, although kube-apiserver's webhook accepts it
/// for its own audiences.
///
/// # Errors
/// [`ReviewError`] if the response does not say whether the cluster accepts the token.
pub fn parse_review(body: &[u8], audiences: &[String]) -> Result<Option<UserInfo>, ReviewError> {
    #[derive(Deserialize)]
    struct Review {
        kind: String,
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        #[serde(default, deserialize_with = "null_is_default")]
        authenticated: bool,
        #[serde(default, deserialize_with = "null_is_default")]
        user: UserInfo,
        #[serde(default)]
        audiences: Option<Vec<String>>,
    }
    let Review { kind, status } = serde_json::from_slice(body).map_err(|_| ReviewError::Malformed)?;
    if kind != "TokenReview" {
        return Err(ReviewError::Malformed);
    }
    let theirs = status.audiences.unwrap_or_default();
    let is_for_us = audiences.is_empty() || theirs.iter().any(|audience| audiences.contains(audience));
    if !status.authenticated || !is_for_us {
        return Ok(None);
    }
    if status.user.username.is_empty() {
        return Err(ReviewError::NoName);
    }
    let values = status.user.groups.len() + status.user.extra.values().map(|values| 1 + values.len()).sum::<usize>();
    if values > VALUES_MAX || bytes(&status.user) > BYTES_MAX {
        return Err(ReviewError::TooMuch);
    }
    Ok(Some(status.user))
}

/// Returns the size of a user's data in bytes, including the overhead of each string.
pub(crate) fn bytes(user: &UserInfo) -> usize {
    let extras = user.extra.iter().flat_map(|(key, values)| std::iter::once(key).chain(values));
    let texts = [&user.username, &user.uid].into_iter().chain(&user.groups).chain(extras);
    texts.map(|text| size_of::<String>() + text.len()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn audiences(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn token_review_request_has_token_and_audiences() {
        let request_for =
            |wanted: &[&str]| -> Value { serde_json::from_slice(&review_request("t\"", &audiences(wanted))).unwrap() };
        let review =
            |spec: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
        assert_eq!(request_for(&[]), review(json!({"token": "t\""})));
        assert_eq!(request_for(&["a", "b"]), review(json!({"token": "t\"", "audiences": ["a", "b"]})));
    }

    #[test]
    fn token_review_response_becomes_a_user_a_rejection_or_an_error() {
        let ann = || UserInfo { username: "ann".to_owned(), ..UserInfo::default() };
        let accepted = |more: Value| {
            let mut status = json!({"authenticated": true, "user": {"username": "ann"}});
            status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"kind": "TokenReview", "spec": {}, "status": status})
        };
        let status = |status: Value| json!({"kind": "TokenReview", "status": status});
        type Row<'a> = (&'a str, Value, &'a [&'a str], Result<Option<UserInfo>, ReviewError>);
        let table: Vec<Row<'_>> = vec![
            ("known", accepted(json!({})), &[], Ok(Some(ann()))),
            ("for itself", accepted(json!({"audiences": ["https://kubernetes"]})), &[], Ok(Some(ann()))),
            ("for us", accepted(json!({"audiences": ["x", "us"]})), &["us", "me"], Ok(Some(ann()))),
            ("for others", accepted(json!({"audiences": ["x"]})), &["us"], Ok(None)),
            ("audiences not looked at", accepted(json!({})), &["us"], Ok(None)),
            ("no audience", accepted(json!({"audiences": []})), &["us"], Ok(None)),
            ("null audiences", accepted(json!({"audiences": null})), &["us"], Ok(None)),
            ("an error beside it", accepted(json!({"error": "one verifier is down"})), &[], Ok(Some(ann()))),
            ("unknown", status(json!({"user": {}, "error": "[invalid bearer token]"})), &[], Ok(None)),
            ("said to be unknown", status(json!({"authenticated": false, "user": {"username": "ann"}})), &[], Ok(None)),
            (
                "nobody",
                status(json!({"authenticated": true, "user": {"groups": ["system:masters"]}})),
                &[],
                Err(ReviewError::NoName),
            ),
            ("truth is a boolean", status(json!({"authenticated": "true"})), &[], Err(ReviewError::Malformed)),
            ("no status", json!({"kind": "TokenReview"}), &[], Err(ReviewError::Malformed)),
            (
                "a Status",
                json!({"kind": "Status", "status": {"authenticated": true}}),
                &[],
                Err(ReviewError::Malformed),
            ),
            ("a user that is text", accepted(json!({"user": "ann"})), &[], Err(ReviewError::Malformed)),
            (
                "groups that are text",
                accepted(json!({"user": {"username": "ann", "groups": "a"}})),
                &[],
                Err(ReviewError::Malformed),
            ),
        ];
        for (name, answer, wanted, expected) in table {
            assert_eq!(parse_review(answer.to_string().as_bytes(), &audiences(wanted)), expected, "{name}");
        }
        assert_eq!(parse_review(b"", &[]), Err(ReviewError::Malformed));
    }

    #[test]
    fn token_review_with_too_much_user_data_is_rejected() {
        let group_count = |user: Value| {
            let answer = json!({"kind": "TokenReview", "status": {"authenticated": true, "user": user}});
            parse_review(answer.to_string().as_bytes(), &[]).map(|user| user.unwrap().groups.len())
        };
        let groups = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
        assert_eq!(group_count(json!({"username": "ann", "groups": groups(VALUES_MAX)})), Ok(VALUES_MAX));
        assert_eq!(
            group_count(json!({"username": "ann", "groups": groups(VALUES_MAX + 1)})),
            Err(ReviewError::TooMuch)
        );
        let extras: std::collections::BTreeMap<_, _> = groups(VALUES_MAX).into_iter().map(|key| (key, ["x"])).collect();
        assert_eq!(group_count(json!({"username": "ann", "extra": extras})), Err(ReviewError::TooMuch));
        assert_eq!(
            group_count(json!({"username": "ann", "groups": ["x".repeat(BYTES_MAX)]})),
            Err(ReviewError::TooMuch)
        );
    }

    #[test]
    fn token_review_response_has_all_fields_of_the_user() {
        let user = json!({"username": "system:serviceaccount:a:b", "uid": "u", "groups": ["g", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/pod-name": ["p"]}});
        let answer = json!({"kind": "TokenReview", "status": {"authenticated": true, "user": user}});
        let read = parse_review(answer.to_string().as_bytes(), &[]).unwrap().unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), user);
    }
}
