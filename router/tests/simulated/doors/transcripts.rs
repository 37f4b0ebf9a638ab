//! Replays the requests of programs that this repository cannot build, and compares the answers with golden files. Each
//! file names the source of its requests. `TRIBUTARY_WRITE_DOCS=1` writes the answers of this run into the files.
//!
//! A file has exchanges with an empty line between them. `>` begins a line of the request, `>>` its body, `<` the
//! status and the media type of the answer, `<<` a line of its body. `!` has an object that the member gets: before the
//! request, or after the begin of a watch. `VERSION` is the resourceVersion of the last list.

use std::fs;
use std::path::PathBuf;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tributary_apimachinery::{ForeignSystem, Mount};
use tributary_simulator::SimulatorConfig;

use crate::harness::{Client, Events, Fixture, allow, config, config_map};

/// An exchange of a golden file.
#[derive(Default)]
struct Exchange {
    /// The lines without the answer, as in the file.
    lines: Vec<String>,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
    /// The object that the member gets, and whether the request comes first.
    object: Option<(Value, bool)>,
    answer: Vec<String>,
}

impl Exchange {
    fn parse(text: &str) -> Self {
        let mut own = Self::default();
        for line in text.lines() {
            if line.starts_with('<') {
                own.answer.push(line.to_owned());
                continue;
            }
            own.lines.push(line.to_owned());
            if let Some(body) = line.strip_prefix(">> ") {
                body.clone_into(&mut own.body);
            } else if let Some(object) = line.strip_prefix("! ") {
                own.object = Some((serde_json::from_str(object).unwrap(), !own.method.is_empty()));
            } else if let Some(request) = line.strip_prefix("> ") {
                own.read_request_line(request);
            }
        }
        own
    }

    fn read_request_line(&mut self, line: &str) {
        if self.method.is_empty() {
            let (method, path) = line.split_once(' ').unwrap();
            (self.method, self.path) = (method.to_owned(), path.to_owned());
        } else {
            let (name, value) = line.split_once(": ").unwrap();
            self.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    /// Sends the request. Returns the lines of the answer, and stores the version of a list.
    async fn replay(&self, client: &Client, fixture: &Fixture, version: &mut String) -> Vec<String> {
        let apply = |is_after: bool| {
            if let Some((object, own)) = &self.object
                && *own == is_after
            {
                fixture.member("a").apply(object.clone()).unwrap();
            }
        };
        apply(false);
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let path = self.path.replace("VERSION", version);
        let answer = client.call(&self.method, &path, &headers, &self.body).await;
        let media_type = answer.headers().get("content-type").map_or("", |value| value.to_str().unwrap());
        let mut lines = vec![format!("< {} {media_type}", answer.status().as_u16())];
        if path.contains("watch=true") && answer.status() == 200 {
            apply(true);
            lines.extend(read_events(Events::of(answer)).await);
            return lines;
        }
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let Ok(mut value) = serde_json::from_slice::<Value>(&body) else {
            lines.push(format!("<< {}", String::from_utf8_lossy(&body).trim_end()));
            return lines;
        };
        if value["kind"].as_str().is_some_and(|kind| kind.ends_with("List") || kind == "Table") {
            *version = crate::harness::version(&value);
        }
        replace_changing_values(&mut value);
        lines.push(format!("<< {}", body_text(&value)));
        lines
    }
}

/// Formats a body. Of a discovery document, which depends on the resources of the simulated member, only the kind.
fn body_text(value: &Value) -> String {
    match value["kind"].as_str() {
        Some(kind @ "APIGroupDiscoveryList") => format!("a document of the kind {kind}"),
        _ => value.to_string(),
    }
}

/// Reads the events of a watch until the bookmark after the initial events, or, for a watch without initial events, the
/// next event.
async fn read_events(mut events: Events) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut event = events.soon().await;
        let is_initial = event["object"]["metadata"]["name"] != "later" && event["object"]["kind"] == "ConfigMap";
        replace_changing_values(&mut event);
        let is_last = event["type"] == "BOOKMARK" || !is_initial;
        lines.push(format!("<< {}", body_text(&event)));
        if is_last {
            return lines;
        }
    }
}

/// Replaces the values that differ between two runs.
fn replace_changing_values(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, own) in fields.iter_mut() {
                match name.as_str() {
                    "uid" | "resourceVersion" | "creationTimestamp" | "time" | "endpoint" if own.is_string() => {
                        *own = json!(name.to_uppercase());
                    }
                    _ => replace_changing_values(own),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(replace_changing_values),
        _ => {}
    }
}

async fn check(program: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/simulated/doors/transcripts");
    let file = folder.join(format!("{program}.txt"));
    let text = fs::read_to_string(&file).unwrap();
    let fixture = Fixture::with([SimulatorConfig { rbac: true, ..config("a") }], allow()).await;
    fixture.member("a").apply(config_map("settings", "1")).unwrap();
    let plain = fixture.client();
    let doors = plain.open_doors(&ForeignSystem::ALL, &["a"]);
    let (mut version, mut written) = (String::new(), Vec::new());
    for exchange in text.split("\n\n").map(Exchange::parse) {
        if exchange.method.is_empty() {
            written.push(exchange.lines.join("\n"));
            continue;
        }
        let mount = if exchange.path.starts_with("/apis/") { Mount::Aggregated(doors.clone()) } else { Mount::Merged };
        let answer = exchange.replay(&plain.clone().at_mount(mount), &fixture, &mut version).await;
        if std::env::var_os("TRIBUTARY_WRITE_DOCS").is_none() {
            assert_eq!(answer, exchange.answer, "{program}: {} {}", exchange.method, exchange.path);
        }
        written.push([exchange.lines, answer].concat().join("\n"));
    }
    if std::env::var_os("TRIBUTARY_WRITE_DOCS").is_some() {
        fs::write(file, written.join("\n\n") + "\n").unwrap();
    }
}

#[tokio::test]
async fn requests_of_karmadactl_get_the_recorded_answers() {
    check("karmadactl").await;
}

#[tokio::test]
async fn requests_of_vela_get_the_recorded_answers() {
    check("vela").await;
}

#[tokio::test]
async fn requests_of_argocd_get_the_recorded_answers() {
    check("argocd").await;
}

#[tokio::test]
async fn requests_of_the_providers_of_multicluster_runtime_get_the_recorded_answers() {
    check("multicluster-runtime").await;
}
