//! Sends the same read to a bare member and to Tributary over this member. The answers must be the same, apart from
//! deliberate differences. The requests are generated: path × method × options (malformed options too) × `Accept` ×
//! other headers.
//!
//! The same seed repeats the same requests. `TRIBUTARY_DIFFERENTIAL=SEED:COUNT` sets the seed and the number of
//! requests of the long test that continuous integration skips (proof test).

mod answer;
mod known;
mod request;

use crate::context::{Case, TestContext, eventually};
use anyhow::{Context, bail, ensure};
use futures::{StreamExt, stream};
use rand::{SeedableRng, rngs::StdRng};
use request::Request;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tributary_e2e::HttpClient;

/// Number of requests in continuous integration, which take a few seconds.
const COUNT: usize = 400;

/// Number of requests in the proof test, which take about two minutes.
const PROOF_COUNT: usize = 20_000;

/// Number of concurrent requests. Concurrency matters, because each watch lasts a second.
const AT_ONCE: usize = 16;

/// Longest time until the answers of the two servers agree. Tributary may lag behind the member's last change.
const PATIENCE: Duration = Duration::from_secs(60);

/// Largest number of differences that a failure prints.
const SHOWN: usize = 300;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("differential::generated_reads_get_the_members_answers", |context| async move {
            run(context, 1, COUNT).await
        }),
        Case::new("differential::proof_generated_reads_get_the_members_answers", |context| async move {
            let (seed, count) = chosen()?;
            run(context, seed, count).await
        })
        .patience(Duration::from_secs(3600)),
    ]
}

fn chosen() -> anyhow::Result<(u64, usize)> {
    let Ok(text) = std::env::var("TRIBUTARY_DIFFERENTIAL") else { return Ok((rand::random(), PROOF_COUNT)) };
    let (seed, count) = text.split_once(':').context("TRIBUTARY_DIFFERENTIAL is SEED:COUNT")?;
    Ok((seed.parse().context("the seed")?, count.parse().context("the count")?))
}

struct Servers {
    own: HttpClient,
    shown: HttpClient,
    namespace: String,
}

async fn run(context: TestContext, seed: u64, count: usize) -> anyhow::Result<()> {
    let bare = context.fixture.bare().await?;
    let tributary = context.fixture.over_one().await?;
    let namespace = context.namespace("differential", std::slice::from_ref(&bare)).await?;
    let servers = Servers { own: bare.http().clone(), shown: tributary.http().await?, namespace };
    let servers = Arc::new(servers);
    servers.fill().await?;
    let mut random = StdRng::seed_from_u64(seed);
    let requests: Vec<Request> = (0..count).map(|_| Request::generate(&mut random, &servers.namespace)).collect();
    let mut outcomes = stream::iter(requests)
        .map(|request| {
            let servers = Arc::clone(&servers);
            // The servers may report a change by another test at different times, so the test repeats the comparison.
            async move { eventually(PATIENCE, async || servers.compare(&request).await).await }
        })
        .buffer_unordered(AT_ONCE);
    let mut kinds: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut total = 0;
    while let Some(outcome) = outcomes.next().await {
        let Err(error) = outcome else { continue };
        let text = format!("{error:#}");
        total += 1;
        let kind = text.lines().next().unwrap_or_default().to_owned();
        kinds.entry(kind).or_insert((0, text)).0 += 1;
    }
    let shown: Vec<String> = kinds.values().take(SHOWN).map(|(count, text)| format!("{count} × {text}")).collect();
    ensure!(total == 0, "seed {seed}: {total} of {count} differ\n{}", shown.join("\n\n"));
    Ok(())
}

impl Servers {
    async fn fill(&self) -> anyhow::Result<()> {
        for (collection, object) in request::objects(&self.namespace) {
            let answer = self.own.post(&collection, &object).send().await?;
            ensure!(matches!(answer.status.as_u16(), 201 | 409), "{collection}: {}", answer.text());
        }
        eventually(PATIENCE, async || {
            for collection in request::collections(&self.namespace) {
                let count = async |http: &HttpClient| -> anyhow::Result<usize> {
                    let list = http.get(&collection).send().await?.expect(200)?.json()?;
                    Ok(list["items"].as_array().map_or(0, Vec::len))
                };
                let (own, shown) = (count(&self.own).await?, count(&self.shown).await?);
                ensure!(own == shown, "{collection}: {shown} instead of {own}");
            }
            Ok(())
        })
        .await
    }

    async fn compare(&self, request: &Request) -> anyhow::Result<()> {
        let (own, shown) = tokio::try_join!(self.ask(&self.own, request), self.ask(&self.shown, request))?;
        let (Some(own), Some(shown)) = (own, shown) else { return Ok(()) };
        answer::compare(request, &own, &shown)
    }

    /// Returns the answer of one server, or `None` if HTTP cannot represent the request.
    async fn ask(&self, http: &HttpClient, request: &Request) -> anyhow::Result<Option<tributary_e2e::HttpResponse>> {
        let target = self.fill_in(http, request).await?;
        if target.parse::<http::Uri>().is_err() {
            return Ok(None);
        }
        let mut builder = http.request(request.method.clone(), &target).without_header("accept");
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        if let Some(body) = &request.body {
            builder = builder.body("application/json", *body);
        }
        match builder.send().await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => bail!("no answer\n{request}: {error:#}"),
        }
    }

    /// Replaces `VERSION` and `TOKEN` in the request by a version and a continue token from this server.
    async fn fill_in(&self, http: &HttpClient, request: &Request) -> anyhow::Result<String> {
        let target = request.target();
        if !target.contains("VERSION") && !target.contains("TOKEN") {
            return Ok(target);
        }
        let page = http.get(&format!("{}?limit=1", request.collection)).send().await?;
        let page = if page.status == 200 { page.json()? } else { json!({}) };
        let text = |value: &Value| value.as_str().unwrap_or("none").replace('=', "%3D");
        let (version, token) = (text(&page["metadata"]["resourceVersion"]), text(&page["metadata"]["continue"]));
        Ok(target.replace("VERSION", &version).replace("TOKEN", &token))
    }
}
