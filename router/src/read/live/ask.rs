//! Asking one member for its list.

use std::sync::Arc;

use http::{HeaderValue, Request, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::Duration;
use tributary_apimachinery::{Query, ResourceVersion, Status};

use crate::body;
use crate::read::Asked;
use crate::topology::Cluster;
use crate::write::forward::forward;

/// What every member is asked.
pub(super) struct Question {
    path: String,
    /// The query, without the member's own token.
    query: String,
    accept: HeaderValue,
}

/// A member's list.
pub(super) struct Answered {
    /// The items, or the rows of its Table.
    pub(super) items: Vec<Value>,
    /// The columns of its Table; `None` if it is a list of objects.
    pub(super) columns: Option<Vec<Value>>,
    pub(super) version: Option<ResourceVersion>,
    /// The member's own token, where it has more.
    pub(super) continue_token: Option<String>,
    pub(super) warnings: Vec<HeaderValue>,
}

impl Question {
    /// What is asked of members for this request. `labels` is its selector without what selects clusters.
    pub(super) fn new(asked: Asked<'_>, table: bool, labels: &str, limit: u64) -> Self {
        let accept = match table {
            true => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            false => "application/json",
        };
        let mut query = kept(asked.query);
        if !labels.is_empty() {
            query.push(format!("labelSelector={}", utf8_percent_encode(labels, NON_ALPHANUMERIC)));
        }
        if limit > 0 {
            query.push(format!("limit={limit}"));
        }
        Self { path: asked.info.path.clone(), query: query.join("&"), accept: HeaderValue::from_static(accept) }
    }
}

/// The parameters that members are told as they came: all but what is meant for the merged list, or rewritten for members.
fn kept(query: Option<&str>) -> Vec<String> {
    const OWN: [&str; 6] = ["limit", "continue", "resourceVersion", "resourceVersionMatch", "pretty", "labelSelector"];
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let query = Query::parse(query);
    let pairs = query.iter().filter(|(name, _)| !OWN.contains(name));
    pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect()
}

/// Asks one member, which may take so long.
///
/// # Errors
/// The member's own Status, or why there is no answer.
pub(super) async fn within(
    limit: Duration,
    cluster: &Arc<Cluster>,
    question: &Question,
    token: Option<&str>,
) -> Result<Answered, Status> {
    let answered = tokio::time::timeout(limit, ask(cluster, question, token)).await;
    answered.unwrap_or_else(|_| Err(Status::cluster_unavailable(cluster.name(), "it did not give its list in time")))
}

async fn ask(cluster: &Arc<Cluster>, question: &Question, token: Option<&str>) -> Result<Answered, Status> {
    let mut request = Request::new(body::empty());
    request.headers_mut().insert(header::ACCEPT, question.accept.clone());
    let mut query = question.query.clone();
    if let Some(token) = token {
        query.push_str(&format!("&continue={}", utf8_percent_encode(token, NON_ALPHANUMERIC)));
    }
    let query = query.trim_start_matches('&');
    let answer = forward(cluster, request, &question.path, Some(query).filter(|query| !query.is_empty())).await?;
    let (head, incoming) = answer.into_parts();
    let text = body::whole_up_to(incoming, LIST_BYTES_MAX);
    let text = text.await.map_err(|error| Status::cluster_unavailable(cluster.name(), error))?;
    if !head.status.is_success() {
        return Err(Status::from_response(head.status.as_u16(), &text));
    }
    let list: Value = serde_json::from_slice(&text)
        .map_err(|error| Status::cluster_unavailable(cluster.name(), format!("its list is not JSON: {error}")))?;
    Ok(Answered::new(list, head.headers.get_all(header::WARNING).iter().cloned().collect()))
}

/// The largest list that is taken from a member, in bytes: some 10,000 pods. Resources that have more belong into memory.
const LIST_BYTES_MAX: usize = 64 << 20;

impl Answered {
    fn new(mut list: Value, warnings: Vec<HeaderValue>) -> Self {
        let metadata = &list["metadata"];
        let version = metadata["resourceVersion"].as_str().and_then(|own| ResourceVersion::parse(own).ok());
        let continue_token = metadata["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned);
        let is_table = list["kind"] == "Table";
        let mut take = |member: &str| match list.get_mut(member).map(Value::take) {
            Some(Value::Array(values)) => values,
            _ => Vec::new(),
        };
        let (items, columns) =
            if is_table { (take("rows"), Some(take("columnDefinitions"))) } else { (take("items"), None) };
        Self { items, columns, version, continue_token, warnings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_told_what_is_meant_for_them() {
        let query = "limit=3&label%53elector=a%3Db&fieldSelector=x%3Dy&resourceVersion=eyJ&timeoutSeconds=5&continue=t&pretty=1";
        assert_eq!(kept(Some(query)), ["fieldSelector=x%3Dy", "timeoutSeconds=5"]);
        assert!(kept(None).is_empty());
    }

    #[test]
    fn lists_and_tables_are_told_apart() {
        let list = serde_json::json!({"kind": "PodMetricsList", "metadata": {"resourceVersion": "7", "continue": ""}, "items": [1]});
        let list = Answered::new(list, Vec::new());
        assert_eq!((list.items.len(), list.columns.is_none(), list.continue_token), (1, true, None));
        assert!(list.version.is_some());
        let table =
            serde_json::json!({"kind": "Table", "metadata": {"continue": "t"}, "columnDefinitions": [1], "rows": null});
        let table = Answered::new(table, Vec::new());
        assert_eq!(
            (table.items.len(), table.columns.map(|c| c.len()), &*table.continue_token.unwrap()),
            (0, Some(1), "t")
        );
    }
}
