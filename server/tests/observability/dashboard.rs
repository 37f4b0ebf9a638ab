//! The Grafana dashboard: a panel for each metric, with the service-level objectives first.

use serde_json::{Value, json};
use tributary_server::metrics::{METRICS, MetricDescription, MetricKind, Section, Unit};

/// The width of a panel, in columns of Grafana's grid of 24 columns.
const PANEL_WIDTH: usize = 8;
const PANEL_HEIGHT: usize = 8;
const PANELS_IN_A_ROW: usize = 24 / PANEL_WIDTH;

/// The label matchers for the variables of the dashboard.
const CHOSEN: &str = r#"job=~"$job", instance=~"$instance""#;

pub(crate) fn dashboard() -> String {
    let dashboard = json!({
        "uid": "tributary",
        "title": "Tributary",
        "description": "Generated from Tributary's list of metrics. Change a copy: the next version replaces this file.",
        "tags": ["tributary", "kubernetes"],
        "schemaVersion": 39,
        "version": 1,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
            variable("job", "Job", "label_values(tributary_connections_max, job)"),
            variable("instance", "Replica", r#"label_values(tributary_connections_max{job=~"$job"}, instance)"#),
            variable("cluster", "Cluster", r#"label_values(tributary_cacher_synced{job=~"$job"}, cluster)"#),
        ]},
        "panels": panels(),
    });
    serde_json::to_string_pretty(&dashboard).unwrap() + "\n"
}

/// Returns a dashboard variable with multiple values, all of which are initially selected.
fn variable(name: &str, label: &str, query: &str) -> Value {
    json!({
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": true,
        // The pattern `.*` also selects series with an empty label.
        "allValue": ".*",
        "multi": true,
        "current": {"text": ["All"], "value": ["$__all"]},
        "sort": 1,
    })
}

fn panels() -> Vec<Value> {
    let (objectives, others): (Vec<&MetricDescription>, Vec<&MetricDescription>) =
        METRICS.iter().partition(|metric| metric.is_objective);
    let mut rows: Vec<(&str, Vec<&MetricDescription>)> = vec![("Objectives", objectives)];
    rows.extend(
        Section::ALL.into_iter().map(|section| {
            (section.title(), others.iter().copied().filter(|metric| metric.section == section).collect())
        }),
    );
    let (mut panels, mut top) = (Vec::new(), 0);
    for (title, metrics) in rows.into_iter().filter(|(_, metrics)| !metrics.is_empty()) {
        let id = panels.len() + 1;
        panels.push(json!({
            "id": id, "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
        }));
        top += 1;
        for (number, metric) in metrics.iter().enumerate() {
            let (x, y) = (number % PANELS_IN_A_ROW * PANEL_WIDTH, top + number / PANELS_IN_A_ROW * PANEL_HEIGHT);
            let place = json!({"x": x, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT});
            panels.push(panel(panels.len() + 1, metric, &place));
        }
        top += metrics.len().div_ceil(PANELS_IN_A_ROW) * PANEL_HEIGHT;
    }
    panels
}

fn panel(id: usize, metric: &MetricDescription, place: &Value) -> Value {
    let is_rate = metric.kind == MetricKind::Counter;
    let unit = match (metric.unit, is_rate) {
        (Some(Unit::Seconds), true) => "percentunit",
        (Some(Unit::Seconds), false) => "s",
        (Some(Unit::Bytes), _) => "bytes",
        (None, true) => "ops",
        (None, false) => "short",
    };
    let targets: Vec<_> = queries(metric)
        .into_iter()
        .enumerate()
        .map(|(number, (expression, legend))| {
            let letter = char::from(b'A' + u8::try_from(number).unwrap());
            json!({"refId": letter.to_string(), "expr": expression, "legendFormat": legend})
        })
        .collect();
    json!({
        "id": id,
        "type": "timeseries",
        "title": metric.help,
        "description": format!("`{}`", metric.name),
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": targets,
    })
}

/// Returns the queries of a metric's panel, and the legends of their series.
fn queries(metric: &MetricDescription) -> Vec<(String, String)> {
    let name = metric.name;
    let chosen = match metric.labels.contains(&"cluster") {
        true => format!("{CHOSEN}, cluster=~\"$cluster\""),
        false => CHOSEN.to_owned(),
    };
    let legend = |by: &[&str]| by.iter().map(|label| format!("{{{{{label}}}}}")).collect::<Vec<_>>().join(" ");
    match metric.kind {
        MetricKind::Counter => {
            let by = if metric.shown_by.is_empty() { &["instance"] } else { metric.shown_by };
            vec![(format!("sum by ({}) (rate({name}{{{chosen}}}[$__rate_interval]))", by.join(", ")), legend(by))]
        }
        MetricKind::Gauge => {
            // The query keeps the label of the replica, because each replica has a separate cache and separate
            // connections.
            let by = [metric.shown_by, &["instance"]].concat();
            let is_flag = metric.help.contains(", else ");
            let sum = match (metric.unit, is_flag) {
                (_, true) => "min",
                (Some(Unit::Seconds), _) => "max",
                _ => "sum",
            };
            vec![(format!("{sum} by ({}) ({name}{{{chosen}}})", by.join(", ")), legend(&by))]
        }
        MetricKind::Histogram => ["0.5", "0.99"]
            .into_iter()
            .map(|quantile| {
                let by = [metric.shown_by, &["le"]].concat().join(", ");
                let rates = format!("sum by ({by}) (rate({name}_bucket{{{chosen}}}[$__rate_interval]))");
                (format!("histogram_quantile({quantile}, {rates})"), format!("{} {quantile}", legend(metric.shown_by)))
            })
            .collect(),
    }
}
