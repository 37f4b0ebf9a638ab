//! Compares the exposition with the list of metrics, and generates the table of metrics, the dashboard and the alert
//! rules from the list. This command writes the generated files:
//!
//! ```text
//! TRIBUTARY_WRITE_DOCS=1 cargo test --workspace --locked --test observability
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alerts;
mod dashboard;
mod exposition;
mod promql;
mod raised;
mod served;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tributary_flow_control::{Limited, MaxRequestsInflight, SchemaKind};
use tributary_policy::{Mode, Outcome, Policy, Rule};
use tributary_records::access_log::AccessLog;
use tributary_records::audit::Auditor;
use tributary_records::traces::{Tracer, TracingConfiguration};
use tributary_router::report::{HubObjectReport, HubReport, NEAR_PERCENT, PublicationReport};
use tributary_router::{DispatchSettings, EntryPointPolicies, EntryPointSchemas, FlowSettings, Router, RouterConfig};
use tributary_server::cli::access_log::AccessLogArguments;
use tributary_server::cli::audit::AuditArguments;
use tributary_server::metrics::{HubView, METRICS, MetricKind, ServerMetrics};

use alerts::Alert;
use exposition::{Exposed, exposed};

/// The environment variable that makes [`generated_metric_documents_are_up_to_date`] write the files.
const WRITE: &str = "TRIBUTARY_WRITE_DOCS";

/// The document that contains the table, between `<!-- table: metrics -->` and `<!-- end -->`.
const DOCUMENT: &str = "docs/observability.md";

#[test]
fn generated_metric_documents_are_up_to_date() {
    let document = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let made = [
        (DOCUMENT, table::within(&document)),
        ("deploy/helm/tributary/files/dashboard.json", dashboard::dashboard()),
        ("deploy/helm/tributary/files/alerts.yaml", alerts::rules()),
    ];
    for (path, text) in made {
        if std::env::var_os(WRITE).is_some() {
            fs::write(root().join(path), &text).unwrap();
        }
        let committed = fs::read_to_string(root().join(path)).unwrap_or_default();
        assert!(
            committed == text,
            "{path} is out of date; run `{WRITE}=1 cargo test --workspace --locked --test observability` and commit the \
             result"
        );
    }
}

#[tokio::test]
async fn exposed_metrics_match_the_list_of_metrics() {
    let exposed = exposed(&everything().await);
    let names = |names: &mut dyn Iterator<Item = String>| names.collect::<BTreeSet<_>>();
    let listed = names(&mut METRICS.iter().map(|metric| metric.name.to_owned()));
    let told = names(&mut exposed.keys().cloned());
    assert_eq!(told.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new(), "exposed and not in the list");
    assert_eq!(listed.difference(&told).collect::<Vec<_>>(), Vec::<&String>::new(), "in the list and not exposed");
    assert_eq!(listed.len(), METRICS.len(), "a name is in the list twice");
    for metric in METRICS {
        let Exposed { kind, help, .. } = &exposed[metric.name];
        assert_eq!((kind.as_str(), help.as_str()), (metric.kind.as_str(), metric.help), "{}", metric.name);
        assert_eq!(metric.kind == MetricKind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        let shown = metric.shown_by.iter().all(|label| metric.labels.contains(label));
        assert!(shown, "{} is shown by labels that it does not have", metric.name);
    }
}

/// Compares only the metrics that have samples in a process without clusters. The module `served` compares the metrics
/// that exist only with clusters.
#[tokio::test]
async fn exposed_metric_labels_match_the_list_of_metrics() {
    let exposed = exposed(&everything().await);
    let mut compared = 0;
    for metric in METRICS {
        for labels in &exposed[metric.name].labels {
            let listed: BTreeSet<&str> = metric.labels.iter().copied().collect();
            assert_eq!(labels.iter().map(String::as_str).collect::<BTreeSet<_>>(), listed, "{}", metric.name);
            compared += 1;
        }
    }
    assert!(compared > 30, "only {compared} samples");
}

#[test]
fn alerts_and_dashboard_use_the_listed_metrics() {
    for alert in alerts::ALERTS {
        let named: Vec<_> = promql::metrics_of(alert.expression).collect();
        assert!(!named.is_empty(), "{} names no metric", alert.name);
        for name in named {
            assert!(labels_of(name).is_some(), "{} goes by {name}, which is not in the list", alert.name);
        }
    }
    let dashboard = dashboard::dashboard();
    for metric in METRICS {
        assert!(dashboard.contains(metric.name), "the dashboard lacks {}", metric.name);
    }
}

#[test]
fn alerts_use_existing_labels_of_their_metrics() {
    for Alert { name, expression, summary, description, .. } in alerts::ALERTS {
        for (labels, metrics) in promql::named_labels(expression) {
            assert!(!metrics.is_empty(), "{name}: nothing has {labels:?}");
            for metric in metrics {
                let known = labels_of(metric).unwrap_or_else(|| panic!("{name}: {metric} is not in the list"));
                let unknown: Vec<_> = labels.iter().filter(|label| !known.contains(label)).collect();
                assert!(unknown.is_empty(), "{name}: {metric} has no labels {unknown:?}");
            }
        }
        let of_metric = || promql::metrics_of(expression).next().and_then(labels_of);
        let told = promql::grouped_by(expression).or_else(of_metric).unwrap();
        for label in promql::labels_of_template(summary).chain(promql::labels_of_template(description)) {
            assert!(told.contains(&label), "{name}: what it is raised for has no label {label}");
        }
    }
}

/// The alerts on limits must fire from the same threshold at which `tributary status` marks a limit as nearly reached.
#[test]
fn limit_alerts_use_the_threshold_of_tributary_status() {
    let near = format!(" >= {}", NEAR_PERCENT as f64 / 100.0);
    for name in ["TributaryLimitNear", "TributaryMemberLimitNear"] {
        let alert = alerts::ALERTS.iter().find(|alert| alert.name == name).unwrap();
        assert!(alert.expression.ends_with(&near), "{name}: {} and {near}", alert.expression);
    }
}

/// The alert on limits joins the usage metric and the limit metric by label. So if the limit metric were missing, the
/// alert could not fire.
#[tokio::test]
async fn limit_usage_is_exposed_only_with_its_limit() {
    let text = everything().await;
    let of = |metric: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix("{limit=\""));
        lines.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
    };
    let (limits, used) = (of("tributary_limit"), of("tributary_limit_used"));
    // The limits of single clusters are exposed in a separate metric with the label `cluster`.
    let alone: Vec<_> = used.difference(&limits).filter(|limit| !limit.ends_with("_to_member")).collect();
    assert!(used.contains("held_bytes") && alone.is_empty(), "{alone:?} have no limit");
}

/// Returns the labels of a metric in `METRICS`, by sample name or histogram name. Includes the labels that Prometheus
/// adds.
fn labels_of(name: &str) -> Option<Vec<&'static str>> {
    let (name, added) = match name.strip_suffix("_bucket") {
        Some(histogram) => (histogram, &["job", "instance", "le"][..]),
        None => (name, &["job", "instance"][..]),
    };
    let metric = METRICS.iter().find(|metric| metric.name == name)?;
    Some([metric.labels, added].concat())
}

/// Returns the text of `/metrics` of a process in which every optional part is configured.
async fn everything() -> String {
    let router = Router::new(RouterConfig::default());
    let limit = MaxRequestsInflight { max: 1, count_long_running: false };
    let kind = SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing: None });
    let schema = tributary_flow_control::Schema { name: "one".into(), kind };
    let merged = EntryPointSchemas { all: Some(schema.name.clone()), schemas: vec![schema] };
    router.set_flow_control(FlowSettings { merged, ..FlowSettings::default() }).unwrap();
    let rule = Rule { verbs: vec!["*".to_owned()], non_resource_urls: vec!["*".to_owned()], ..Rule::default() };
    let policy = Policy { rules: vec![rule], mode: Mode::Enforce, outcome: Outcome::default() };
    let merged = EntryPointPolicies { policies: vec![policy], ..EntryPointPolicies::default() };
    router.set_dispatch(DispatchSettings { merged, ..DispatchSettings::default() });
    let user = tributary_router::User::named("test", "ann");
    for path in ["/api/v1/pods", "/version", "/%zz"] {
        let request = http::Request::get(path).body(tributary_server::handler::empty()).unwrap();
        let context = tributary_router::RequestContext::for_user(&user, &request);
        router.handle(request, &context).await;
    }
    let mut registry = Registry::default();
    let own = ServerMetrics::default();
    own.register(&mut registry);
    auditor().await.register(&mut registry);
    access_log().register(&mut registry);
    tracer().register(&mut registry);
    let kind = "UpstreamCluster".to_owned();
    let object = HubObjectReport { kind, generation_in_force: Some(1), ..HubObjectReport::default() };
    let publication = PublicationReport { kind: "ClusterProfile".to_owned(), ..PublicationReport::default() };
    let (objects, publications) = (vec![object], vec![publication]);
    let report = HubReport { objects, publications, ..HubReport::default() };
    HubView::new(move || report.clone()).register(&mut registry);
    let mut text = router.metrics().expose().replace("# EOF\n", "");
    encode(&mut text, &registry).unwrap();
    text
}

/// Returns an audit log that discards its events.
async fn auditor() -> Arc<Auditor> {
    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        audit: AuditArguments,
    }
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    fs::write(&policy, "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}").unwrap();
    let arguments = Arguments::parse_from(["serve", "--audit-policy-file", policy.to_str().unwrap()]);
    Auditor::open(&arguments.audit.settings()).await.unwrap().unwrap()
}

fn tracer() -> Arc<Tracer> {
    let endpoint = "http://localhost:4317".to_owned();
    Tracer::start(&TracingConfiguration { endpoint, sampling_rate_per_million: 0 }).unwrap()
}

fn access_log() -> Arc<AccessLog> {
    let access_log_path = Some(PathBuf::from("-"));
    let arguments = AccessLogArguments { access_log_path, ..AccessLogArguments::default() };
    AccessLog::open(arguments.settings().unwrap()).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
