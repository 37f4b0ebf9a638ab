//! Prometheus' own promtool checks the alert rules and the dashboard's queries.

use crate::context::{Case, TestContext, cases};
use crate::deployment::deploy;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};
use tributary_e2e::guard;

pub(super) fn cases() -> Vec<Case> {
    cases!["observability::alerts";
        promtool_accepts_the_alert_rules_and_their_tests, promtool_accepts_the_dashboard_queries,
    ]
}

/// Test cases for promtool: time series that raise an alert, and time series that raise none. A test of the crate
/// `server` checks that each alert has both kinds of test cases.
const TESTS: &str = include_str!("alerts-tests.yaml");

/// Runs promtool, which must succeed.
async fn promtool(context: &TestContext, arguments: &[&str]) -> anyhow::Result<()> {
    let program = context.fixture.tools().await?.observability().await?.join("promtool");
    let output = Command::new(program).args(arguments).output().context("run promtool")?;
    let told = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "promtool {}: {}", arguments.join(" "), String::from_utf8_lossy(&told));
    Ok(())
}

fn path_of(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the path is no text")
}

async fn promtool_accepts_the_alert_rules_and_their_tests(context: TestContext) -> anyhow::Result<()> {
    let rules = deploy("helm/tributary/files/alerts.yaml");
    promtool(&context, &["check", "rules", "--lint=all", "--lint-fatal", &rules]).await?;
    let folder = guard::temporary_folder("alerts")?;
    let tests = folder.path().join("tests.yaml");
    fs::write(&tests, TESTS.replace("RULES", &rules))?;
    promtool(&context, &["test", "rules", path_of(&tests)?]).await
}

async fn promtool_accepts_the_dashboard_queries(context: TestContext) -> anyhow::Result<()> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(deploy("helm/tributary/files/dashboard.json"))?)?;
    let panels = dashboard["panels"].as_array().context("there are no panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<_> = targets.filter_map(|target| target["expr"].as_str()).collect();
    ensure!(queries.len() > 50, "only {} queries", queries.len());
    let rules = queries.iter().enumerate().map(|(number, query)| {
        let query = query.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*");
        json!({"record": format!("query:{number}"), "expr": query.replace("$cluster", ".*")})
    });
    let rules = json!({"groups": [{"name": "dashboard", "rules": rules.collect::<Vec<_>>()}]});
    let folder = guard::temporary_folder("dashboard")?;
    let file = folder.path().join("queries.yaml");
    fs::write(&file, rules.to_string())?;
    promtool(&context, &["check", "rules", "--lint=none", path_of(&file)?]).await
}
