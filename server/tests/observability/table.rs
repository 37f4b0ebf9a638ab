//! Generates the table of metrics in the documents.

use tributary_server::metrics::{METRICS, MetricDescription, Section, Unit};

const BEGIN: &str = "<!-- table: metrics -->\n";
const END: &str = "<!-- end -->";

/// Returns the document with a new table between its marks.
pub(crate) fn within(document: &str) -> String {
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    format!("{before}{BEGIN}{}{END}{after}", table())
}

fn table() -> String {
    let mut text = String::new();
    for section in Section::ALL {
        let metrics: Vec<_> = METRICS.iter().filter(|metric| metric.section == section).collect();
        text.push_str(&format!(
            "\n### {}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n",
            section.title()
        ));
        metrics.iter().for_each(|metric| text.push_str(&row(metric)));
    }
    text.push('\n');
    text
}

fn row(metric: &MetricDescription) -> String {
    let unit = match metric.unit {
        Some(Unit::Seconds) => ", seconds",
        Some(Unit::Bytes) => ", bytes",
        None => "",
    };
    let objective = if metric.is_objective { " (SLO)" } else { "" };
    let labels = metric.labels.join(", ");
    format!("| `{}`{objective} | {}{unit} | {labels} | {} |\n", metric.name, metric.kind.as_str(), metric.meaning)
}
