//! Finds the labels in alert expressions and texts, for the comparison with the list of metrics. promtool checks the
//! syntax.

/// Returns the metrics in an expression: names with the prefix of Tributary's or kube-apiserver's metrics.
pub(crate) fn metrics_of(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !is_of_name(c));
    let is_metric = |word: &&str| ["tributary_", "apiserver_", "authentication_"].iter().any(|it| word.starts_with(it));
    words.filter(is_metric)
}

/// Returns each group of labels in an expression, with the metrics that must have these labels. For `by (…)`, the
/// metrics are those in the next parentheses; for `on (…)`, all metrics of the expression; for `{…}`, the metric before
/// the brace.
pub(crate) fn named_labels(expression: &str) -> Vec<(Vec<&str>, Vec<&str>)> {
    let mut named = Vec::new();
    for (at, grouping) in groupings(expression) {
        let (labels, after) = bracketed(&expression[at + grouping.len()..], ['(', ')']);
        let of = if grouping == ON { expression } else { bracketed(after.trim_start(), ['(', ')']).0 };
        named.push((listed(labels), metrics_of(of).collect()));
    }
    for (at, _) in expression.match_indices('{') {
        let (matchers, _) = bracketed(&expression[at..], ['{', '}']);
        let labels = matchers.split(',').filter_map(|matcher| matcher.split(['=', '!']).next()).map(str::trim);
        let metric = expression[..at].rsplit(|c: char| !is_of_name(c)).next();
        named.push((labels.collect(), metric.into_iter().collect()));
    }
    named
}

/// Returns the labels of the series that an expression returns: the labels of its first grouping without `le`, which
/// `histogram_quantile` removes. Returns `None` without a grouping, because the series then have the labels of the
/// metric.
pub(crate) fn grouped_by(expression: &str) -> Option<Vec<&str>> {
    let (at, grouping) = groupings(expression).into_iter().min()?;
    let (labels, _) = bracketed(&expression[at + grouping.len()..], ['(', ')']);
    Some(listed(labels).into_iter().filter(|label| *label != "le").collect())
}

/// Returns the labels whose values Prometheus inserts into an alert's text.
pub(crate) fn labels_of_template(text: &str) -> impl Iterator<Item = &str> {
    text.split("$labels.").skip(1).filter_map(|rest| rest.split(|c: char| !is_of_name(c)).next())
}

const BY: &str = "by ";
const ON: &str = "on ";

/// Returns the position and the keyword of each grouping (`by (…)` or `on (…)`).
fn groupings(expression: &str) -> Vec<(usize, &'static str)> {
    let of = move |word: &'static str| {
        let places = expression.match_indices(word).map(move |(at, _)| (at, word));
        places.filter(move |(at, word)| expression[at + word.len()..].starts_with('('))
    };
    of(BY).chain(of(ON)).collect()
}

/// Returns the text in the brackets at the beginning of `text`, and the remaining text.
fn bracketed(text: &str, [open, close]: [char; 2]) -> (&str, &str) {
    assert!(text.starts_with(open), "{open} is to come here: {text}");
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == open) - i32::from(c == close);
        if depth == 0 {
            return (&text[open.len_utf8()..at], &text[at + close.len_utf8()..]);
        }
    }
    panic!("a bracket is not closed: {text}");
}

fn listed(labels: &str) -> Vec<&str> {
    labels.split(',').map(str::trim).filter(|label| !label.is_empty()).collect()
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[test]
fn labels_in_promql_are_assigned_to_their_metrics() {
    let quantile = "histogram_quantile(0.99, sum by (job, le) (rate(apiserver_a_bucket[10m]))) > 5";
    assert_eq!(named_labels(quantile), [(vec!["job", "le"], vec!["apiserver_a_bucket"])]);
    assert_eq!(grouped_by(quantile), Some(vec!["job"]));
    let unless = "max by (job, x) (tributary_a) == 0 unless max by (y) (tributary_b{r=\"d\", s=~\"e.\"}) == 1";
    assert_eq!(
        named_labels(unless),
        [
            (vec!["job", "x"], vec!["tributary_a"]),
            (vec!["y"], vec!["tributary_b"]),
            (vec!["r", "s"], vec!["tributary_b"])
        ]
    );
    assert_eq!(grouped_by(unless), Some(vec!["job", "x"]));
    let joined = "tributary_a / on (z) tributary_b >= 0.5";
    assert_eq!(named_labels(joined), [(vec!["z"], vec!["tributary_a", "tributary_b"])]);
    assert_eq!(grouped_by("increase(tributary_a[15m]) > 0"), None);
    assert_eq!(
        labels_of_template("{{ $labels.a_b }} of {{ $value }}, {{$labels.c}}").collect::<Vec<_>>(),
        ["a_b", "c"]
    );
}
