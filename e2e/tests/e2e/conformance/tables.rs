//! Sends every combination of parameters, headers or methods to the target and to its first member, which has all
//! objects. Both responses must agree.

use super::{
    Conformance, conformance,
    differences::{LAST_PAGE_OF_A_SELECTION, WATCH_OF_A_FUTURE_VERSION},
    target::{Target, config_map, names_of, version_of},
};
use anyhow::{Context, ensure};
use futures::{StreamExt, stream};
use serde_json::Value;
use tributary_e2e::{HttpClient, HttpResponse};

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["tables";
        list_with_each_combination_of_options_equals_the_members_list, watch_with_each_combination_of_options_equals_the_members_watch,
        response_to_each_accept_header_equals_the_members_response, error_for_each_media_type_equals_the_members_error,
        response_to_each_http_method_equals_the_members_response, list_with_each_label_selector_equals_the_members_list,
        list_with_each_field_selector_equals_the_members_list,
    ]
}

const AT_ONCE: usize = 24;

/// Values for one server that replace the placeholders `VERSION`, `FUTURE` and `TOKEN` in the paths.
struct Words {
    http: HttpClient,
    version: String,
    future: String,
    token: String,
}

impl Words {
    async fn of(target: &Target, http: &HttpClient) -> anyhow::Result<Self> {
        let page = http.get(&target.maps("?limit=2")).send().await?.expect(200)?.json()?;
        let version = version_of(&page);
        let future = match version.parse::<u64>() {
            Ok(native) => (native + 1_000_000).to_string(),
            Err(_) => target.future(&version)?,
        };
        let token = page["metadata"]["continue"].as_str().context("no continue token")?;
        let token = token.replace('+', "%2B").replace('=', "%3D").replace('/', "%2F");
        Ok(Self { http: http.clone(), version, future, token })
    }

    fn path(&self, path: &str) -> String {
        path.replace("VERSION", &self.version).replace("FUTURE", &self.future).replace("TOKEN", &self.token)
    }
}

/// Creates five ConfigMaps in the first member only. Returns the values of the placeholders for the target and for the
/// member.
async fn seeded(target: &Target) -> anyhow::Result<[Words; 2]> {
    let member = target.members[0].http();
    for index in 0..5 {
        let parity = if index % 2 == 1 { "odd" } else { "even" };
        let object = config_map(&format!("map-{index}"), &[("parity", parity), ("rank", &index.to_string())]);
        target.http.post(&target.maps(""), &object).send().await?.expect(201)?;
    }
    ensure!(names_of(&target.read(&target.maps("")).await?).len() == 5, "not all are shown");
    Ok([Words::of(target, &target.http).await?, Words::of(target, member).await?])
}

/// Sends each path to both servers and collects the differences.
async fn compare(
    words: &[Words; 2],
    paths: Vec<String>,
    outcome: impl Fn(&Words, &HttpResponse) -> String,
) -> anyhow::Result<()> {
    let outcome = &outcome;
    let asked = stream::iter(paths).map(async |path| {
        let mut outcomes = Vec::new();
        for words in words {
            let answer = words.http.get(&words.path(&path)).send().await?;
            outcomes.push(outcome(words, &answer));
        }
        anyhow::Ok((outcomes[0] != outcomes[1]).then(|| format!("{path}\n  {}\n  {}", outcomes[0], outcomes[1])))
    });
    let all: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
    let differ: Vec<String> = all.into_iter().filter_map(anyhow::Result::transpose).collect::<Result<_, _>>()?;
    ensure!(differ.is_empty(), "{} rows differ:\n{}", differ.len(), differ[..differ.len().min(8)].join("\n"));
    Ok(())
}

/// Builds the queries of all combinations of the parameters' values. `None` omits the parameter.
fn combinations(base: &str, parameters: &[(&str, &[Option<&str>])]) -> Vec<String> {
    let mut queries = vec![base.to_owned()];
    for (name, values) in parameters {
        queries = queries
            .iter()
            .flat_map(|query| {
                values.iter().map(move |value| match value {
                    Some(value) => format!("{query}&{name}={value}"),
                    None => query.clone(),
                })
            })
            .collect();
    }
    queries
}

/// Returns the fields of a Status that must be equal at both servers.
fn status(answer: &HttpResponse) -> String {
    let Ok(status) = answer.json() else { return format!("{} {}", answer.status, answer.text()) };
    let message = status["message"].as_str().unwrap_or_default();
    let cut = ["Too large resource version", "continue key is not valid", "Invalid value: \"gar!bage\""];
    let message = cut.iter().find_map(|known| Some(&message[..message.find(known)? + known.len()])).unwrap_or(message);
    let expired = status["metadata"]["continue"].is_string();
    let (reason, details) = (&status["reason"], &status["details"]);
    format!("{} {reason} {message:?} {details} {expired} {}", answer.status, answer.header("retry-after"))
}

async fn list_with_each_combination_of_options_equals_the_members_list(target: Target) -> anyhow::Result<()> {
    let words = seeded(&target).await?;
    let paths = combinations(
        &target.maps("?"),
        &[
            ("resourceVersion", &[None, Some(""), Some("0"), Some("VERSION"), Some("gar!bage")]),
            ("resourceVersionMatch", &[None, Some("Exact"), Some("NotOlderThan"), Some("Newest")]),
            ("limit", &[None, Some("2"), Some("-1")]),
            ("continue", &[None, Some("TOKEN"), Some("garbage")]),
            ("labelSelector", &[None, Some("parity%3Dodd")]),
        ],
    );
    let selectors_end_pages = target.differs(&LAST_PAGE_OF_A_SELECTION);
    compare(&words, paths, |words, answer| {
        let Some(list) = answer.json().ok().filter(|_| answer.status == 200) else { return status(answer) };
        let metadata = &list["metadata"];
        let selects = selectors_end_pages && answer.request.contains("labelSelector");
        let goes_on = metadata["continue"].is_string() && !selects;
        // Writes of other cases increase the version of a list, so the test compares the version only if the request
        // selects an exact version.
        let exact = answer.request.contains("Exact") || answer.request.contains("continue=");
        let at_version = exact.then(|| version_of(&list) == words.version);
        format!("{:?} {goes_on} {} at the version: {at_version:?}", names_of(&list), metadata["remainingItemCount"])
    })
    .await
}

async fn watch_with_each_combination_of_options_equals_the_members_watch(target: Target) -> anyhow::Result<()> {
    let words = seeded(&target).await?;
    let paths = combinations(
        &target.maps("?watch=1&timeoutSeconds=1"),
        &[
            ("resourceVersion", &[None, Some("0"), Some("VERSION"), Some("FUTURE")]),
            ("resourceVersionMatch", &[None, Some("NotOlderThan"), Some("Exact"), Some("Newest")]),
            ("sendInitialEvents", &[None, Some("true"), Some("false")]),
            ("allowWatchBookmarks", &[None, Some("true")]),
            ("continue", &[None, Some("TOKEN")]),
        ],
    );
    let silent = target.differs(&WATCH_OF_A_FUTURE_VERSION);
    let paths = paths.into_iter().filter(|path| !silent || !path.contains("FUTURE")).collect();
    compare(&words, paths, |_, answer| {
        if answer.status != 200 {
            return status(answer);
        }
        let text = answer.text();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_default());
        let shown = events.filter_map(|event| {
            let metadata = &event["object"]["metadata"];
            let end = &metadata["annotations"]["k8s.io/initial-events-end"];
            match event["type"].as_str()? {
                // A bookmark that does not end the initial events arrives only sometimes within a second, so the
                // comparison ignores it.
                "BOOKMARK" if end.is_null() => None,
                "BOOKMARK" => Some(format!("BOOKMARK {:?}", event["object"].as_object()?.keys())),
                "ERROR" => Some(format!("ERROR {} {}", event["object"]["code"], event["object"]["reason"])),
                kind => Some(format!("{kind} {}", metadata["name"])),
            }
        });
        shown.collect::<Vec<_>>().join(", ")
    })
    .await
}

/// `Accept` headers that do not contain protobuf.
const ACCEPTS: [&str; 38] = [
    "",
    "*/*",
    "*",
    "application/json",
    "application/*",
    "application/yaml",
    "text/*",
    "text/html",
    "foo",
    "APPLICATION/JSON",
    "application/json;q=0",
    "application/json;q=abc",
    "application/json;q=0.1,application/yaml;q=0.9",
    "application/yaml;q=0.5,application/json;q=0.5",
    "application/json;pretty=1",
    "application/json;stream=watch",
    "application/json;stream=foo",
    "application/json;sv=v1",
    "application/json;sv=v2",
    "application/json;profile=nopeer",
    "application/json;drop=metadata.managedFields",
    "application/json;charset=utf-8",
    "application/json;as=Table",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/json;as=Table;v=v1alpha1;g=meta.k8s.io,application/json",
    "application/json ; as=Table ; v=v1 ; g=meta.k8s.io",
    "application/json;as=\"Table\";v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.1,application/json;q=0.9",
    "*/*;as=Table;v=v1;g=meta.k8s.io",
    "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Chart;v=v1;g=meta.k8s.io",
    "application/json;g=meta.k8s.io;v=v1",
    "application/json;as=;g=;v=",
    ",,application/json,",
];

/// Returns the status, media type, kind, version and indentation of a response.
fn form(answer: &HttpResponse) -> String {
    let text = answer.text();
    let line = if text.starts_with("{\n") { &*text } else { text.lines().next().unwrap_or_default() };
    let value: Value = serde_json::from_str(line).unwrap_or_default();
    let value = if value["object"].is_object() { value["object"].clone() } else { value };
    let yaml = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
    let (kind, version) = (value["kind"].clone(), value["apiVersion"].clone());
    let yaml = (value.is_null()).then(|| format!("{} {}", yaml("kind:"), yaml("apiVersion:")));
    let indented = text.starts_with("{\n");
    format!("{} {} {kind} {version} {yaml:?} {indented}", answer.status, answer.header("content-type"))
}

async fn compare_forms(target: &Target, paths: &[String]) -> anyhow::Result<()> {
    let mut differ = Vec::new();
    for path in paths {
        for accept in ACCEPTS {
            let mut forms = Vec::new();
            for http in [&target.http, target.members[0].http()] {
                let request = http.get(path);
                let request = if accept.is_empty() { request.without_header("accept") } else { request.accept(accept) };
                forms.push(form(&request.send().await?));
            }
            if forms[0] != forms[1] {
                differ.push(format!("{accept:?} {path}\n  {}\n  {}", forms[0], forms[1]));
            }
        }
    }
    ensure!(differ.is_empty(), "{} rows differ:\n{}", differ.len(), differ[..differ.len().min(8)].join("\n"));
    Ok(())
}

async fn response_to_each_accept_header_equals_the_members_response(target: Target) -> anyhow::Result<()> {
    seeded(&target).await?;
    compare_forms(&target, &[target.maps(""), target.map("map-1"), target.maps("?pretty=1"), target.maps("?watch=0")])
        .await
}

async fn error_for_each_media_type_equals_the_members_error(target: Target) -> anyhow::Result<()> {
    let paths = [target.map("nowhere"), "/api/v1/nothings".to_owned()];
    compare_forms(&target, &paths).await
}

async fn response_to_each_http_method_equals_the_members_response(target: Target) -> anyhow::Result<()> {
    seeded(&target).await?;
    let paths = [
        target.maps(""),
        target.map("map-1"),
        target.core("pods", "/p/log"),
        "/api".into(),
        "/api/v1".into(),
        "/apis".into(),
        "/apis/apps".into(),
        "/apis/apps/v1".into(),
        "/version".into(),
        "/healthz".into(),
        "/livez".into(),
        "/readyz".into(),
        "/openapi/v2".into(),
        "/".into(),
        "/nowhere".into(),
    ];
    for path in &paths {
        for method in [http::Method::HEAD, http::Method::OPTIONS, http::Method::TRACE] {
            if method == http::Method::TRACE && !path.starts_with("/api/v1/") {
                continue;
            }
            let answer = target.http.request(method.clone(), path).send().await?;
            let own = target.members[0].http().request(method.clone(), path).send().await?;
            ensure!(answer.status == own.status, "{method} {path}: {} instead of {}", answer.status, own.status);
            ensure!(method != http::Method::HEAD || answer.body.is_empty(), "HEAD {path} with a body");
        }
    }
    Ok(())
}

/// Sends each selector, as the value of this parameter, to both servers and compares the responses.
async fn compare_selectors(target: &Target, parameter: &str, selectors: &[&str]) -> anyhow::Result<()> {
    let words = seeded(target).await?;
    let escaped = |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02x}")).collect() };
    let paths = selectors.iter().map(|selector| target.maps(&format!("?{parameter}={}", escaped(selector)))).collect();
    compare(&words, paths, |_, answer| match answer.json() {
        Ok(list) if answer.status == 200 => format!("{:?}", names_of(&list)),
        _ => status(answer),
    })
    .await
}

async fn list_with_each_label_selector_equals_the_members_list(target: Target) -> anyhow::Result<()> {
    let long = format!("{}=1", "x".repeat(64));
    let selectors = [
        "rank=1",
        "rank==1",
        "rank!=1",
        "rank",
        "!rank",
        "rank in (0,1)",
        "rank in ( 0 , 1 )",
        "rank notin (0)",
        "rank in ()",
        "rank in (,)",
        "rank in (a,,1)",
        "rank>2",
        "rank<2",
        "rank > 2",
        "rank>a",
        "rank=",
        "rank!=",
        "=1",
        "rank in",
        "rank in (",
        "rank in (1",
        "rank in 1",
        "in",
        "in=in",
        "notin in (in)",
        "x=y=z",
        "rank=1,",
        "rank=1,,rank=2",
        ",",
        "rank=1 rank=2",
        "!!rank",
        "! rank",
        "rank= 1",
        "\trank\n= 1 ",
        "a/b/c=1",
        "/b=1",
        "a/=1",
        "A.b/c=1",
        &*long,
        "rank=-a",
        "rank=a-",
        "rank=a b",
        "rank=\u{e4}",
        "\u{e4}=1",
        "rank=1;q=2",
        "rank gt 0",
        "rank=(1)",
        "rank=!1",
        "rank=1)",
        "(rank=1)",
        "rank=>1",
        "\"rank\"=1",
        ".a=1",
        "a.=1",
        "-a=1",
        "rank=_",
        "rank=a..b",
        "parity=odd,rank!=1",
        "rank\0=1",
        "\0",
        "rank=1\0,rank=2",
    ];
    compare_selectors(&target, "labelSelector", &selectors).await
}

async fn list_with_each_field_selector_equals_the_members_list(target: Target) -> anyhow::Result<()> {
    let selectors = [
        "metadata.name=map-1",
        "metadata.name==map-1",
        "metadata.name!=map-1",
        "metadata.name",
        "=",
        "=x",
        "metadata.name=map-1,metadata.name=map-2",
        "metadata.name=map-1,metadata.name!=map-1",
        "metadata.namespace=other",
        "metadata.namespace!=other",
        "metadata.name=a\\,b",
        "metadata.name=a\\b",
        "metadata.name=a=b",
        "metadata.name=map-1,",
        ",",
        "metadata.name= map-1",
        " metadata.name=map-1",
        "metadata.name=",
        "metadata.name!=",
        "metadata.name in (map-1)",
        "metadata.name=a/b",
        "metadata.name=../map-1",
        "metadata.labels=x",
        "data.step=0",
        "metadata.name>map-1",
        "metadata.uid=x",
    ];
    compare_selectors(&target, "fieldSelector", &selectors).await
}
