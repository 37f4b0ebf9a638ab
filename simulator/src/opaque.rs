//! Simulates resourceVersions that are not numbers, like those of some aggregated API servers: a number with a suffix,
//! or no version.

use bytes::Bytes;
use http_body_util::BodyExt;
use tributary_apimachinery::json;

use crate::body::Body;

const VERSION: &str = r#""resourceVersion":""#;

/// Converts the resourceVersions in the body of a response. Versions that are split over two chunks are not converted.
pub(crate) fn write_into_answer(body: Body, suffix: String) -> Body {
    let with_suffix = move |number: &str| if suffix.is_empty() { String::new() } else { format!("{number}{suffix}") };
    body.map_frame(move |frame| frame.map_data(|data| rewrite_versions(&data, &with_suffix))).boxed_unsync()
}

/// Converts the resourceVersions in the body of a request to numbers. A version without the suffix becomes `1`, which
/// belongs to no object.
pub(crate) fn remove_from_request(body: &Bytes, suffix: &str) -> Bytes {
    rewrite_versions(body, |version| version.strip_suffix(suffix).unwrap_or("1").to_owned())
}

fn rewrite_versions(text: &Bytes, replace: impl Fn(&str) -> String) -> Bytes {
    let Ok(mut rest) = std::str::from_utf8(text) else { return text.clone() };
    let mut out = String::with_capacity(text.len() + 64);
    while let Some((before, after)) = rest.split_once(VERSION) {
        let (version, behind) = after.split_at(after.find('"').unwrap_or(0));
        out.push_str(before);
        out.push_str(VERSION);
        match &*json::unescaped(version) {
            "" | "0" => out.push_str(version),
            version => out.push_str(&replace(version)),
        }
        rest = behind;
    }
    out.push_str(rest);
    out.into()
}
