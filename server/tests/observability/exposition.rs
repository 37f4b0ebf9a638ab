//! Parses the text of `/metrics`.

use std::collections::{BTreeMap, BTreeSet};

/// A metric in the text of `/metrics`.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    /// The type of the metric: `counter`, `gauge` or `histogram`.
    pub(crate) kind: String,
    /// The text of the metric's `# HELP` line, without the period at its end.
    pub(crate) help: String,
    /// The names of the labels of each sample.
    pub(crate) labels: Vec<BTreeSet<String>>,
}

/// Returns the metrics in the text of `/metrics`, by sample name. The name of a counter ends with `_total`.
pub(crate) fn exposed(text: &str) -> BTreeMap<String, Exposed> {
    let mut found: BTreeMap<String, Exposed> = BTreeMap::new();
    let kinds: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let name_of = |name: &str| match kinds.get(name) {
        Some(&"counter") => format!("{name}_total"),
        _ => name.to_owned(),
    };
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            found.entry(name_of(name)).or_default().kind = kind.to_owned();
        } else if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            // The metrics library appends a period to each help text, which the comparison must ignore.
            found.entry(name_of(name)).or_default().help = help.strip_suffix('.').unwrap_or(help).to_owned();
        } else if !line.starts_with('#') {
            let (name, labels) = sample(line);
            let name = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|part| {
                    let name = name.strip_suffix(part)?;
                    (kinds.get(name) == Some(&"histogram")).then_some(name)
                })
                .unwrap_or(name);
            let labels = labels.into_iter().filter(|label| label != "le").collect();
            found.entry(name.to_owned()).or_default().labels.push(labels);
        }
    }
    found
}

fn sample(line: &str) -> (&str, BTreeSet<String>) {
    let Some((name, rest)) = line.split_once('{') else {
        return (line.split(' ').next().unwrap_or_default(), BTreeSet::new());
    };
    let labels = rest.rsplit_once('}').map_or("", |(labels, _)| labels);
    // Label values in these tests have no quotes, so `",` always separates two labels.
    let names = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
    (name, names.collect())
}
