//! The header `traceparent`, which names the client's trace (<https://www.w3.org/TR/trace-context/>, version 00).

use http::HeaderMap;

/// The client's span, which becomes the parent of the request's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) is_sampled: bool,
}

/// The length of a version 00 header, in bytes. Later versions may append a dash and more fields.
const LENGTH: usize = 55;

impl Parent {
    /// Parses the `traceparent` header. Returns `None` for a missing, invalid or repeated header.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all("traceparent").iter();
        match (given.next(), given.next()) {
            (Some(value), None) => Self::parse(value.to_str().ok()?),
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (text, more) = text.split_at_checked(LENGTH)?;
        let mut parts = text.split('-');
        let [version, trace_id, span_id, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let has_lengths = [version, trace_id, span_id, flags].map(str::len) == [2, 32, 16, 2];
        let is_version = match version {
            "ff" => false,
            "00" => more.is_empty(),
            _ => more.is_empty() || more.starts_with('-'),
        };
        let is_hexadecimal = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        if !has_lengths || !is_version || !is_hexadecimal || parts.next().is_some() {
            return None;
        }
        let trace_id = u128::from_str_radix(trace_id, 16).ok().filter(|id| *id != 0)?;
        let span_id = u64::from_str_radix(span_id, 16).ok().filter(|id| *id != 0)?;
        let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { trace_id, span_id, is_sampled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_traceparent_is_ignored() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let ids = (0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128, 0xb7ad_6b71_6920_3331_u64);
        let parsed = |text: &str| Parent::parse(text).map(|it| ((it.trace_id, it.span_id), it.is_sampled));
        assert_eq!(parsed(&format!("00-{trace}-{span}-01")), Some((ids, true)));
        assert_eq!(parsed(&format!("00-{trace}-{span}-02")), Some((ids, false)));
        assert_eq!(parsed(&format!("cc-{trace}-{span}-01-what-comes")), Some((ids, true)));
        for text in [
            String::new(),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{trace}-{span}-0"),
            format!("00-{trace}-{span}-+1"),
            format!("00{trace}---{span}-01"),
            "é".repeat(LENGTH),
        ] {
            assert_eq!(parsed(&text), None, "{text}");
        }
        let mut twice = HeaderMap::new();
        twice.insert("traceparent", format!("00-{trace}-{span}-01").parse().unwrap());
        assert!(Parent::from_headers(&twice).is_some());
        twice.append("traceparent", format!("00-{trace}-{span}-00").parse().unwrap());
        assert_eq!(Parent::from_headers(&twice), None);
    }
}
