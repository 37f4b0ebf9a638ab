//! Identity of a client in shared mode, and the parts of the identity that some members do not get.

use std::collections::HashSet;

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;
use tributary_answers::negotiate::ResponseKind;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::AUTHENTICATED_GROUP;
use tributary_authentication::{CREDENTIAL_ID, UserInfo};
use tributary_rights::CallerRights;
use tributary_sharing::body::Body;

use crate::request::ClientRequest;
use crate::response;

/// Answers a SelfSubjectReview. A Warning names the parts of the identity that some clusters do not get. The Warning
/// names no cluster, because the client may not know the clusters. A review in a cluster's own view shows the identity
/// in that cluster.
///
/// # Errors
/// 406 if the client accepts only a Table.
pub(super) fn answer_review(request: ClientRequest<'_>, rights: &CallerRights) -> Result<Response<Body>, Refusal> {
    let form = request.preferences.form(ResponseKind::Review)?;
    let user = rights.actor().shown();
    let review = json!({
        "kind": "SelfSubjectReview",
        "apiVersion": request.resource.resource.group_version().to_string(),
        "metadata": {"creationTimestamp": null},
        "status": {"userInfo": user},
    });
    let text = serde_json::to_vec(&review).unwrap_or_default();
    let mut response = response::whole(StatusCode::CREATED, form, text);
    response
        .headers_mut()
        .extend(withheld_parts_warning(request, rights, &user).map(|warning| (header::WARNING, warning)));
    Ok(response)
}

/// Returns the Warning about parts of the identity that some clusters do not get.
fn withheld_parts_warning(request: ClientRequest<'_>, rights: &CallerRights, user: &UserInfo) -> Option<HeaderValue> {
    let (mut uid, mut groups, mut extras) = (false, Vec::new(), Vec::new());
    for cluster in request.configuration.clusters.values() {
        let Ok(identity) = rights.actor().identity(cluster.name(), &cluster.setup.impersonation) else { continue };
        uid |= identity.uid != user.uid;
        // An issuer, or the client's own headers, may name thousands of groups, so the comparison uses a set.
        let sent_groups: HashSet<_> = identity.groups.iter().map(String::as_str).chain([AUTHENTICATED_GROUP]).collect();
        groups.extend(user.groups.iter().filter(|group| !sent_groups.contains(group.as_str())));
        // The ID of the user's credential has a meaning only for Tributary. Hardly any cluster gets this extra value,
        // so the Warning omits it.
        let extras_of_user = user.extra.keys().filter(|key| *key != CREDENTIAL_ID);
        extras.extend(extras_of_user.filter(|key| !identity.extra.contains_key(&key.to_ascii_lowercase())));
    }
    let listed = |what: &str, mut names: Vec<&String>| {
        names.sort();
        names.dedup();
        let names: Vec<_> = names.into_iter().map(String::as_str).collect();
        (!names.is_empty()).then(|| format!("the {what} {}", names.join(", ")))
    };
    let parts = [uid.then(|| "the uid".to_owned()), listed("groups", groups), listed("extras", extras)];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return None;
    }
    let text = format!(
        "some clusters do not receive {}; {} auth whoami shows what a cluster receives",
        parts.join(", "),
        request.caller.door.kubectl("NAME")
    );
    tributary_answers::warnings::warning_header(&text)
}
