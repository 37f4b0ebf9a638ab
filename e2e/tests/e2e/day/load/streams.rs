//! Long and short connections: followed logs, exec sessions, clients that connect for a single request, and watches of
//! unchanged objects.

use super::{BRIEF_PACE, IDLE, IDLE_WATCHES, LoadContext, Outcome, Trouble, due};
use crate::context::eventually;
use crate::day::harm::Needs;
use crate::day::kind::Kind;
use crate::day::scene::{CLUSTERS, POD, SOON};
use anyhow::{Context as _, bail};
use futures::StreamExt;
use http_body_util::BodyExt;
use serde_json::json;
use std::time::Duration;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tributary_e2e::{
    HttpClient,
    websocket::{Opened, next},
};

/// Duration of a log or exec stream, and of the pause before the next stream.
const OPEN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(1);

/// First words of the log of every pod, which kwok serves.
const FIRST_WORDS: &str = "hello from";

/// Parts of the system that requests for the pod use: the first cluster and the merged view.
const POD_NEEDS: Needs = Needs { cluster: Some(0), is_merged: true, is_write: true, through_front: false };
/// Parts of the system that a request uses if Tributary answers from its cache: no cluster, but the user's RBAC rights
/// in each cluster.
const MEMORY_NEEDED: Needs = Needs { cluster: None, is_merged: true, is_write: false, through_front: false };
/// Parts of the system that a request uses if Tributary answers without a cluster and without the user's RBAC rights.
const NOTHING_NEEDED: Needs = Needs { is_merged: false, ..MEMORY_NEEDED };

pub(super) async fn begin(part: &LoadContext, tasks: &mut JoinSet<()>) -> anyhow::Result<()> {
    let scene = &part.scene;
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods", "pods/log", "pods/exec"], "verbs": ["get", "list", "watch", "create"]},
    ]);
    scene.grant(0, &scene.namespaces.private, "talker", rules).await?;
    let tunnels = Tunnels { part: part.clone(), http: scene.http("talker", false).await? };
    eventually(SOON, async || {
        tunnels.follow_logs().await.map_err(|trouble| match trouble {
            Trouble::Lost(error) | Trouble::Wrong(error) => error,
        })
    })
    .await
    .context("follow logs")?;
    tasks.spawn(tunnels.live());
    tasks.spawn(brief(part.clone()));
    for number in 0..IDLE {
        let http = scene.http(&format!("idle-{number}"), false).await?;
        let path = format!("/api/v1/namespaces/{}/configmaps", scene.namespaces.common);
        eventually(SOON, async || http.get(&path).send().await?.expect(200).map(drop)).await?;
        for _ in 0..IDLE_WATCHES {
            tasks.spawn(idle(
                part.clone(),
                http.clone(),
                format!("{path}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
            ));
        }
    }
    Ok(())
}

/// A user that follows logs and runs commands in a pod.
struct Tunnels {
    part: LoadContext,
    http: HttpClient,
}

impl Tunnels {
    async fn live(self) {
        let mut pace = self.part.pace(PAUSE);
        while let Some(_busy) = pace.turn().await {
            self.part.ask(Kind::Logs, POD_NEEDS, self.follow_logs()).await;
            self.part.ask(Kind::Exec, POD_NEEDS, self.exec()).await;
        }
    }

    fn pod(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{POD}", self.part.scene.namespaces.private)
    }

    /// Follows the pod's log for a short time, and disconnects.
    async fn follow_logs(&self) -> Outcome {
        let answer = self.http.get(&format!("{}/log?follow=true", self.pod())).stream().await.map_err(Trouble::Lost)?;
        if answer.status != 200 {
            let status = answer.status;
            return Err(Trouble::Lost(anyhow::anyhow!("logs: {status}")));
        }
        let mut body = answer.body;
        let told = async {
            let mut told = Vec::new();
            while !String::from_utf8_lossy(&told).contains(CLUSTERS[0]) {
                let frame = body.frame().await.context("the log ends")?.context("the log breaks")?;
                told.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            }
            anyhow::Ok(String::from_utf8_lossy(&told).into_owned())
        };
        let told = timeout(SOON, told).await.context("no log").map_err(Trouble::Lost)?.map_err(Trouble::Lost)?;
        if !told.starts_with(FIRST_WORDS) {
            return Err(Trouble::Wrong(anyhow::anyhow!("the log says {told}")));
        }
        self.stay().await;
        Ok(())
    }

    /// Runs a command in the pod that prints a line at once, and then keeps running.
    async fn exec(&self) -> Outcome {
        let path = format!("{}/exec?command=sh&command=-c&command=echo%20begun%3B%20sleep%204&stdout=true", self.pod());
        // kubectl sends no Origin header, but a browser does.
        let headers = [("sec-websocket-protocol", "v4.channel.k8s.io"), ("origin", "")];
        let opened = self.http.websocket(&path, &headers).await.map_err(Trouble::Lost)?;
        let talk = async {
            let mut socket = match opened {
                Opened::Open(socket, _) => socket,
                Opened::Refused(status, text) => bail!("{status}: {text}"),
            };
            loop {
                let message = next(&mut socket, SOON).await?.context("closed before a word was said")?;
                // The first byte of the message is the number of the WebSocket channel.
                if message.into_data().get(1..).is_some_and(|text| text.starts_with(b"begun")) {
                    break;
                }
            }
            let stayed = timeout(OPEN, async { while socket.next().await.is_some_and(|message| message.is_ok()) {} });
            tokio::select! {
                _ = stayed => {}
                () = self.part.paused() => {}
            }
            Ok(())
        };
        talk.await.map_err(Trouble::Lost)
    }

    async fn stay(&self) {
        tokio::select! {
            () = sleep(OPEN) => {}
            () = self.part.paused() => {}
        }
    }
}

/// Simulates clients that connect for a single request each.
async fn brief(part: LoadContext) {
    let Ok(kubeconfig) = part.scene.kubeconfig("brief", false) else { return };
    let mut pace = part.pace(BRIEF_PACE);
    while let Some(_busy) = pace.turn().await {
        part.ask(Kind::BriefClient, NOTHING_NEEDED, async {
            let http = HttpClient::from_kubeconfig(&kubeconfig, None).await.map_err(Trouble::Lost)?;
            due(http.get("/version").send().await, 200).map(drop)
        })
        .await;
    }
}

/// Opens a watch that stays open during pauses of the load, and opens it again after it ends.
async fn idle(part: LoadContext, http: HttpClient, path: String) {
    loop {
        part.ask(Kind::IdleWatch, MEMORY_NEEDED, async {
            let answer = http.get(&path).stream().await.map_err(Trouble::Lost)?;
            let watched = async {
                let mut events = answer.events()?;
                while events.next(Duration::from_secs(86_400)).await?.is_some() {}
                anyhow::Ok(())
            };
            // The server may end a watch at any time. If the watch breaks or is refused, only a fault excuses it.
            watched.await.map_err(Trouble::Lost)
        })
        .await;
        sleep(PAUSE).await;
    }
}
