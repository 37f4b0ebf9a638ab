use http::{HeaderMap, HeaderValue, header};

/// Returns the media type of a body without parameters; empty without the header `Content-Type`.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default();
    std::str::from_utf8(media_type).map(str::trim).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_is_read_without_its_parameters() {
        for (value, expected) in [
            (&b"application/json-patch+json"[..], "application/json-patch+json"),
            // kube-apiserver reads only the text before the semicolon.
            (b"application/json-patch+json;\xff", "application/json-patch+json"),
            (b"application/yaml ; charset=utf-8", "application/yaml"),
            (b"\xff", ""),
            (b"", ""),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_bytes(value).unwrap());
            assert_eq!(content_type(&headers), expected, "{value:?}");
        }
        assert_eq!(content_type(&HeaderMap::new()), "");
    }
}
