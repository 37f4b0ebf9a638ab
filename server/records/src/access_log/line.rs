//! The fields of an access log line.

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::Bytes;
use serde::Serialize;

use crate::text::Text;

/// The most addresses, and the most groups, of a line. A client may claim long lists.
const LISTED_MAX: usize = 16;

/// The fields of one request. A line never contains the query, credentials or a body.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AccessLine<'a> {
    /// The time of arrival, RFC 3339 with microseconds.
    pub(crate) time: String,
    /// The HTTP status; none if the client went away before the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    pub(crate) method: Text<'a>,
    /// The path without its query.
    pub(crate) path: Text<'a>,
    /// The verb of RBAC.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) verb: &'a str,
    /// The resource, for example `deployments.apps/scale`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) resource: Text<'a>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) namespace: Text<'a>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) name: Text<'a>,
    /// The cluster whose own API the request is for.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) cluster: &'a str,
    /// The decision on the request.
    pub(crate) decision: &'a str,
    /// `memory`, the names of the asked clusters, or `tributary`.
    pub(crate) answered_by: Cow<'a, str>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) user: Text<'a>,
    #[serde(skip_serializing_if = "<[Text<'_>]>::is_empty")]
    pub(crate) groups: &'a [Text<'a>],
    /// The user that the client impersonates.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) impersonated_user: Text<'a>,
    /// The kind of client, by its User-Agent.
    pub(crate) client: &'a str,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) user_agent: Text<'a>,
    /// The client's addresses, nearest last. All but the nearest are claims of the client.
    pub(crate) source_ips: &'a [IpAddr],
    /// The time until the head of the answer.
    pub(crate) head_seconds: f64,
    /// The time until the end of the answer.
    pub(crate) seconds: f64,
    /// The number of sent bytes of the answer's body.
    pub(crate) bytes: u64,
    /// Whether the answer was sent to its end.
    pub(crate) complete: bool,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) audit_id: Text<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) trace_id: &'a str,
}

impl AccessLine<'_> {
    /// The line in JSON, including its line end.
    pub(crate) fn bytes(&self) -> Bytes {
        // Serialization cannot fail: the fields are strings, numbers and lists of them.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text.into()
    }
}

/// Copies the first [`LISTED_MAX`] texts.
pub(crate) fn some(texts: &[String]) -> Vec<Text<'static>> {
    texts.iter().take(LISTED_MAX).map(|text| Text::new(text).into_owned()).collect()
}

/// The part of a header's list with its last [`LISTED_MAX`] entries: the nearest addresses are at the end.
pub(crate) fn nearest(list: &str) -> &str {
    list.rmatch_indices(',').nth(LISTED_MAX - 1).map_or(list, |(before, _)| &list[before + 1..])
}

/// The last [`LISTED_MAX`] addresses.
pub(crate) fn last(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let from = addresses.len().saturating_sub(LISTED_MAX);
    addresses.split_off(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_log_lists_have_a_maximum_length() {
        assert_eq!(some(&vec![String::new(); 100]).len(), LISTED_MAX);
        let list = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(nearest(&list(LISTED_MAX)), list(LISTED_MAX));
        assert_eq!(nearest(&list(100)).split(',').collect::<Vec<_>>().len(), LISTED_MAX);
        assert!(nearest(&list(100)).ends_with(",98,99"));
        assert_eq!((nearest(""), nearest("10.0.0.1")), ("", "10.0.0.1"));
    }

    #[test]
    fn access_line_with_hostile_text_is_one_line_of_json() {
        let forged = "x\"}\n{\"status\":200,\"user\":\"root\"";
        let line = AccessLine {
            time: String::new(),
            status: Some(200),
            method: Text::new("GET"),
            path: Text::new(forged),
            verb: "get",
            resource: Text::new(forged),
            namespace: Text::default(),
            name: Text::default(),
            cluster: "",
            decision: "memory",
            answered_by: "memory".into(),
            user: Text::new(forged),
            groups: &[Text::new(forged)],
            impersonated_user: Text::default(),
            client: "other",
            user_agent: Text::new("\r\n\u{2028}\u{85}"),
            source_ips: &[],
            head_seconds: 0.25,
            seconds: 1.0,
            bytes: 3,
            complete: true,
            audit_id: Text::default(),
            trace_id: "",
        };
        let bytes = line.bytes();
        let text = std::str::from_utf8(&bytes).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert!(text.chars().filter(|c| c.is_control()).eq(['\n']), "{text}");
        let read: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(read["user"], forged);
        assert_eq!(read.get("namespace"), None);
    }
}
