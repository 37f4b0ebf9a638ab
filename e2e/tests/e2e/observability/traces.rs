//! Sends spans to a real OpenTelemetry collector. A trace must include the client, Tributary's stages and the member.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command, time::Duration};
use tributary_e2e::{HttpClient, Process, TestCluster, Tools, Tributary, guard, kubeconfig, namespace, ports};

pub(super) fn cases() -> Vec<Case> {
    cases!["observability::traces"; trace_has_spans_of_client_tributary_and_member]
}

/// Longest time until a span is in the collector's file.
const SOON: Duration = Duration::from_secs(60);

/// ID of the client's span.
const CLIENT_SPAN: &str = "00f067aa0ba902b7";

/// A collector that writes received spans into a file.
struct Collector {
    endpoint: String,
    spans: std::path::PathBuf,
    _process: Process,
}

impl Collector {
    async fn start(tools: &Tools, folder: &Path) -> anyhow::Result<Self> {
        let endpoint = format!("127.0.0.1:{}", ports::free_port()?);
        let spans = folder.join("spans.json");
        let configuration = json!({
            "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": endpoint}}}},
            "exporters": {"file": {"path": spans, "flush_interval": "100ms"}},
            "service": {
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
        });
        let file = folder.join("collector.yaml");
        fs::write(&file, configuration.to_string())?;
        let mut command = Command::new(tools.observability().await?.join("collector"));
        command.arg("--config").arg(&file);
        let process = Process::spawn("collector", command, &folder.join("collector.log"))?;
        Ok(Self { endpoint, spans, _process: process })
    }

    /// Writes a tracing configuration that sends spans to this collector. `rate` is the number of traces per million
    /// that Tributary samples.
    fn configuration(&self, folder: &Path, name: &str, rate: u32) -> anyhow::Result<String> {
        let file = folder.join(format!("{name}-tracing.yaml"));
        let text = json!({
            "apiVersion": "apiserver.config.k8s.io/v1beta1",
            "kind": "TracingConfiguration",
            "endpoint": self.endpoint,
            "samplingRatePerMillion": rate,
        });
        fs::write(&file, text.to_string())?;
        Ok(format!("--tracing-config-file={}", file.display()))
    }

    /// Returns the collected spans, each with the name of the service that sent it.
    fn spans(&self) -> anyhow::Result<Vec<(String, Value)>> {
        let text = fs::read_to_string(&self.spans).unwrap_or_default();
        let mut found = Vec::new();
        // The collector may still write the last line, so an incomplete line of JSON is skipped.
        for batch in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            for of_one in batch["resourceSpans"].as_array().into_iter().flatten() {
                let service = attribute(&of_one["resource"], "service.name").unwrap_or_default();
                for scope in of_one["scopeSpans"].as_array().into_iter().flatten() {
                    let spans = scope["spans"].as_array().into_iter().flatten();
                    found.extend(spans.map(|span| (service.clone(), span.clone())));
                }
            }
        }
        Ok(found)
    }
}

fn attribute(of: &Value, key: &str) -> Option<String> {
    let attributes = of["attributes"].as_array()?;
    let value = &attributes.iter().find(|attribute| attribute["key"] == key)?["value"];
    let text = value["stringValue"].as_str().or(value["intValue"].as_str());
    text.map(str::to_owned)
}

fn trace_id(number: u8) -> String {
    format!("4bf92f3577b34da6a3ce929d0e0e47{number:02x}")
}

fn traceparent(number: u8, is_sampled: bool) -> String {
    format!("00-{}-{CLIENT_SPAN}-{:02x}", trace_id(number), u8::from(is_sampled))
}

/// Returns Tributary's spans in a trace: the span of the request, and the spans of its stages.
fn ours(collector: &Collector, number: u8) -> anyhow::Result<(Value, Vec<Value>)> {
    let spans = collector.spans()?;
    let of_trace =
        spans.into_iter().filter(|(service, span)| service == "tributary" && span["traceId"] == trace_id(number));
    let (own, stages): (Vec<_>, Vec<_>) =
        of_trace.map(|(_, span)| span).partition(|span| span["parentSpanId"] == CLIENT_SPAN);
    let own = own.into_iter().next().with_context(|| format!("no span of request {number} yet"))?;
    for stage in &stages {
        ensure!(stage["parentSpanId"] == own["spanId"], "{stage} is no part of {own}");
    }
    Ok((own, stages))
}

async fn trace_has_spans_of_client_tributary_and_member(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    let folder = guard::temporary_folder("traces")?;
    let collector = Collector::start(tools, folder.path()).await?;
    let member = collector.configuration(folder.path(), "member", 1_000_000)?;
    let member = TestCluster::builder("traced").apiserver_argument(&member).start(tools).await?;
    let namespace = namespace::unique_name("traced");
    namespace::create(&namespace, &[&member]).await?;
    let path = folder.path().join("traced.kubeconfig");
    kubeconfig::write(&path, &[&member.access()])?;
    // In personal mode, the trace context of the client decides whether a request is sampled. With the rate 0,
    // Tributary samples no other request.
    let own = collector.configuration(folder.path(), "ours", 0)?;
    let log = folder.path().join("access.log");
    let tributary = Tributary::builder(&path, ["traced"])
        .argument(own)
        .argument(format!("--access-log-path={}", log.display()))
        .start()
        .await?;
    send(&tributary.http().await?, &namespace).await?;

    eventually(SOON, async || read_from_memory(&collector)).await?;
    eventually(SOON, async || written_to_the_member(&collector)).await?;
    ensure!(ours(&collector, 3).is_err(), "a trace that is not sampled was sent");
    // The access log has trace IDs only of sampled requests.
    eventually(SOON, async || {
        let text = fs::read_to_string(&log)?;
        let lines = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
        let traced = lines.iter().filter(|line| line["traceId"] == trace_id(2)).count();
        ensure!(traced == 1 && !text.contains(&trace_id(3)), "{text}");
        Ok(())
    })
    .await
}

async fn send(http: &HttpClient, namespace: &str) -> anyhow::Result<()> {
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    http.get(&maps).header("traceparent", &traceparent(1, true)).send().await?.expect(200)?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "traced"}});
    http.post(&maps, &map).header("traceparent", &traceparent(2, true)).send().await?.expect(201)?;
    http.get(&maps).header("traceparent", &traceparent(3, false)).send().await?.expect(200)?;
    Ok(())
}

/// Checks the spans of a list that Tributary answered from its cache.
fn read_from_memory(collector: &Collector) -> anyhow::Result<()> {
    let (own, stages) = ours(collector, 1)?;
    ensure!(
        own["name"] == "list configmaps" && attribute(&own, "tributary.decision").as_deref() == Some("memory"),
        "{own}"
    );
    let names: Vec<_> = stages.iter().filter_map(|stage| stage["name"].as_str()).collect();
    for name in ["admit", "plan", "authorize", "memory"] {
        ensure!(names.contains(&name), "no {name} among {names:?}");
    }
    ensure!(!names.contains(&"forward"), "{names:?}");
    Ok(())
}

/// Checks the spans of a create: the member must have continued the trace.
fn written_to_the_member(collector: &Collector) -> anyhow::Result<()> {
    let (own, stages) = ours(collector, 2)?;
    ensure!(attribute(&own, "http.response.status_code").as_deref() == Some("201"), "{own}");
    let forward = stages.iter().find(|stage| {
        stage["name"] == "forward" && attribute(stage, "http.response.status_code").as_deref() == Some("201")
    });
    let forward = forward.with_context(|| format!("nothing was forwarded: {stages:?}"))?;
    ensure!(attribute(forward, "tributary.cluster").as_deref() == Some("traced"), "{forward}");
    // If a kube-apiserver does not trust the client, it links to the client's trace instead of continuing it.
    let spans = collector.spans()?;
    let goes_on = |span: &Value| {
        let is_child = span["traceId"] == trace_id(2) && span["parentSpanId"] == forward["spanId"];
        let mut links = span["links"].as_array().into_iter().flatten();
        is_child || links.any(|link| link["traceId"] == trace_id(2) && link["spanId"] == forward["spanId"])
    };
    let is_members = |service: &str| service != "tributary";
    ensure!(spans.iter().any(|(service, span)| is_members(service) && goes_on(span)), "the member has not gone on yet");
    Ok(())
}
