//! The fields of an access log line.

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::Bytes;
use serde::Serialize;

use crate::text::Text;

/// The most addresses in an access log line, and the most groups. Clients may send long lists of both.
const LISTED_MAX: usize = 16;

/// The fields of one request's access log line. The line never contains the query, credentials or a body.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AccessLine<'a> {
    /// The time of the request's arrival: RFC 3339 with microseconds.
    pub(crate) time: String,
    /// The HTTP status. `None` if the client disconnected before the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    pub(crate) method: Text<'a>,
    /// The path of the request, without its query.
    pub(crate) path: Text<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) verb: &'a str,
    /// The resource with its group and subresource, for example `deployments.apps/scale`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) resource: Text<'a>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) namespace: Text<'a>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) name: Text<'a>,
    /// The cluster whose own API the client addressed. Empty for the merged view.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) cluster: &'a str,
    pub(crate) decision: &'a str,
    /// The source of the answer: `memory`, the names of the clusters that received the request, or `tributary` itself.
    pub(crate) answered_by: Cow<'a, str>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) user: Text<'a>,
    #[serde(skip_serializing_if = "<[Text<'_>]>::is_empty")]
    pub(crate) groups: &'a [Text<'a>],
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) impersonated_user: Text<'a>,
    /// The class of the client, derived from its User-Agent.
    pub(crate) client: &'a str,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) user_agent: Text<'a>,
    /// The addresses of the client and of its proxies. The last address is the remote address of the connection. All
    /// other addresses come from the request's headers, and are not verified.
    pub(crate) source_ips: &'a [IpAddr],
    /// The seconds from the arrival of the request to the head of the answer.
    pub(crate) head_seconds: f64,
    /// The seconds from the arrival of the request to the end of the answer.
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
    pub(crate) complete: bool,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) audit_id: Text<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) trace_id: &'a str,
}

impl AccessLine<'_> {
    /// Serializes the fields as JSON, and appends a line feed.
    pub(crate) fn bytes(&self) -> Bytes {
        // Serialization cannot fail: all fields are strings, numbers, or lists of strings and numbers.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text.into()
    }
}

/// Copies the first [`LISTED_MAX`] texts of a list, such as groups.
pub(crate) fn some(texts: &[String]) -> Vec<Text<'static>> {
    texts.iter().take(LISTED_MAX).map(|text| Text::new(text).into_owned()).collect()
}

/// Returns the last [`LISTED_MAX`] entries of a comma-separated header. Each proxy appends the address of its sender,
/// so the last entries come from the proxies nearest to this process.
pub(crate) fn nearest(list: &str) -> &str {
    list.rmatch_indices(',').nth(LISTED_MAX - 1).map_or(list, |(before, _)| &list[before + 1..])
}

/// Returns the last [`LISTED_MAX`] addresses of a list.
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
    fn access_log_line_with_hostile_text_is_one_json_line() {
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
