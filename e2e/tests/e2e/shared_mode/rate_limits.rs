//! Tests a rate limit for each of many users. If one user sends many lists, the rate of other users must stay the same.

use super::{SOON, Shared, grant};
use crate::context::{Case, TestContext, cases, eventually};
use crate::{flow_control, policies};
use anyhow::{Context as _, ensure};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, interval};
use tributary_e2e::{HttpClient, Tributary, guard};

/// Number of requests that each user may send per second, and at once.
const QPS: u32 = 20;
/// Number of concurrent lists of the user that exceeds its rate. The lists are sent repeatedly.
const STORM: usize = 16;
/// Number of lists by a user that stays within its rate, and the pause between two of these lists. The resulting rate
/// is half of the limit.
const LISTS: usize = 30;
const PAUSE: Duration = Duration::from_millis(100);
/// Longest duration of a list on a busy machine.
const LIST_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::rate_limits"; list_storm_of_one_user_does_not_reduce_another_users_rate]
}

async fn list_storm_of_one_user_does_not_reduce_another_users_rate(context: TestContext) -> anyhow::Result<()> {
    let members: [_; 2] = context.fixture.pair().await?.clone();
    let folder = guard::temporary_folder("governed")?;
    policies::write(folder.path(), &members, &json!({}))?;
    let schema = json!({"name": "people", "tokenBucket": {"qps": QPS, "limitBy": ["User"]}});
    flow_control::write(folder.path(), &schema)?;
    let shared = Shared::of(&context, members.clone(), Tributary::configured(folder.path()), &[]).await?;
    let namespace = context.namespace("storm", &members).await?;
    let list = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut clients = Vec::new();
    for user in ["eve", "ann"] {
        let (user, rules) = (
            format!("{user}-{namespace}"),
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]),
        );
        for member in &members {
            grant(member, &namespace, &user, &user, rules.clone()).await?;
        }
        let http = shared.http(&user, &[]).await?;
        eventually(SOON, async || http.get(&list).send().await?.expect(200).map(drop)).await?;
        clients.push(http);
    }
    let [eve, ann] = &clients[..] else { anyhow::bail!("two clients were made") };

    let (over, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let [let_in, refused] = [(); 2].map(|()| Arc::<AtomicU64>::default());
    let storm: Vec<_> = (0..STORM)
        .map(|_| {
            let (eve, list, over) = (eve.clone(), list.clone(), Arc::clone(&over));
            let (let_in, refused) = (Arc::clone(&let_in), Arc::clone(&refused));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    match status(&eve, &list).await? {
                        200 => let_in.fetch_add(1, Ordering::Relaxed),
                        429 => refused.fetch_add(1, Ordering::Relaxed),
                        other => anyhow::bail!("eve was answered {other}"),
                    };
                }
                anyhow::Ok(())
            })
        })
        .collect();
    let mut pause = interval(PAUSE);
    for _ in 0..LISTS {
        pause.tick().await;
        let asked = Instant::now();
        let answered = status(ann, &list).await?;
        ensure!(answered == 200 && asked.elapsed() < LIST_WITHIN, "ann: {answered} after {:?}", asked.elapsed());
    }
    over.store(true, Ordering::Relaxed);
    for one in storm {
        one.await.context("the storm panicked")??;
    }
    let (let_in, refused) = (let_in.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    let allowed = f64::from(QPS) * (began.elapsed().as_secs_f64() + 1.0) * 1.1;
    ensure!(refused > 0 && (let_in as f64) <= allowed, "{let_in} of {allowed} were let in, {refused} refused");
    Ok(())
}

async fn status(http: &HttpClient, path: &str) -> anyhow::Result<u16> {
    Ok(http.get(path).send().await?.status.as_u16())
}
