//! Cases for watches over WebSocket.

use super::{
    Conformance, conformance,
    target::{SOON, Target},
};
use anyhow::{bail, ensure};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::SinkExt;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;
use tributary_e2e::websocket::{Opened, WebSocket, next};

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["websocket";
        each_websocket_message_has_one_watch_event, websocket_watch_ends_with_a_close_frame,
        bearer_token_in_the_websocket_subprotocol_is_accepted, invalid_websocket_handshakes_are_refused,
        invalid_websocket_watches_get_plain_http_errors, websocket_watch_sends_tables, websocket_pings_are_answered,
    ]
}

async fn open(target: &Target, query: &str, headers: &[(&str, &str)]) -> anyhow::Result<(Box<WebSocket>, String)> {
    match target.http.websocket(&target.maps(&format!("?watch=true&{query}")), headers).await? {
        Opened::Open(socket, protocol) => Ok((socket, protocol)),
        Opened::Refused(status, text) => bail!("{status}: {text}"),
    }
}

async fn event(socket: &mut WebSocket) -> anyhow::Result<Value> {
    match next(socket, SOON).await? {
        Some(Message::Text(text)) => {
            ensure!(text.ends_with('\n') && text.matches('\n').count() == 1, "not one line: {text:?}");
            Ok(serde_json::from_str(&text)?)
        }
        other => bail!("{other:?}"),
    }
}

async fn each_websocket_message_has_one_watch_event(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(30).await?;
    let (mut socket, protocol) = open(&target, "", &[]).await?;
    ensure!(protocol.is_empty(), "{protocol}");
    for name in target.in_list_order(&names) {
        let event = event(&mut socket).await?;
        ensure!(event["type"] == "ADDED" && event["object"]["metadata"]["name"] == name.as_str(), "{event}");
    }
    target.change_map("map-07", "1").await?;
    let event = event(&mut socket).await?;
    ensure!(event["type"] == "MODIFIED" && event["object"]["data"]["step"] == "1", "{event}");
    Ok(())
}

async fn websocket_watch_ends_with_a_close_frame(target: Target) -> anyhow::Result<()> {
    target.seed_maps(1).await?;
    let (mut socket, _) = open(&target, "timeoutSeconds=2", &[]).await?;
    event(&mut socket).await?;
    match next(&mut socket, SOON).await? {
        Some(Message::Close(frame)) => {
            ensure!(frame.is_some_and(|frame| u16::from(frame.code) == 1000), "another code")
        }
        other => bail!("{other:?}"),
    }
    Ok(())
}

async fn bearer_token_in_the_websocket_subprotocol_is_accepted(target: Target) -> anyhow::Result<()> {
    target.seed_maps(1).await?;
    let token = target.http.token().unwrap_or_default();
    let bearer = format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode(token));
    let protocols = format!("{bearer}, base64.binary.k8s.io");
    let headers = [("authorization", ""), ("sec-websocket-protocol", &*protocols)];
    let (mut socket, protocol) = open(&target, "", &headers).await?;
    ensure!(protocol == "base64.binary.k8s.io", "{protocol}");
    event(&mut socket).await?;
    let headers = [("authorization", ""), ("sec-websocket-protocol", "base64.binary.k8s.io")];
    match target.http.websocket(&target.maps("?watch=true"), &headers).await? {
        Opened::Refused(401 | 403, _) => Ok(()),
        other => bail!("{other:?}"),
    }
}

async fn invalid_websocket_handshakes_are_refused(target: Target) -> anyhow::Result<()> {
    for (headers, status, text) in [
        ([("origin", "")], 403, ""),
        ([("origin", "null")], 403, ""),
        ([("sec-websocket-version", "8")], 400, "missing or bad WebSocket Version"),
        ([("sec-websocket-protocol", "binary.k8s.io, base64.binary.k8s.io")], 400, ""),
    ] {
        match target.http.websocket(&target.maps("?watch=true"), &headers).await? {
            Opened::Refused(got, said) => ensure!(got == status && said == text, "{headers:?}: {got} {said:?}"),
            other => bail!("{headers:?}: {other:?}"),
        }
    }
    Ok(())
}

async fn invalid_websocket_watches_get_plain_http_errors(target: Target) -> anyhow::Result<()> {
    for (query, headers, status) in [
        ("watch=true&labelSelector=a+in", vec![], 400),
        ("watch=true&sendInitialEvents=true", vec![], 422),
        ("watch=true", vec![("accept", "application/yaml")], 406),
    ] {
        match target.http.websocket(&target.maps(&format!("?{query}")), &headers).await? {
            Opened::Refused(got, _) => ensure!(got == status, "{query}: {got} instead of {status}"),
            other => bail!("{query}: {other:?}"),
        }
    }
    Ok(())
}

async fn websocket_watch_sends_tables(target: Target) -> anyhow::Result<()> {
    target.seed_maps(2).await?;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let (mut socket, _) = open(&target, "", &[("accept", accept)]).await?;
    let (first, second) = (event(&mut socket).await?, event(&mut socket).await?);
    ensure!(first["object"]["kind"] == "Table" && first["object"]["columnDefinitions"].is_array(), "{first}");
    ensure!(second["object"]["columnDefinitions"].is_null(), "{second}");
    Ok(())
}

async fn websocket_pings_are_answered(target: Target) -> anyhow::Result<()> {
    use futures::StreamExt;
    let (mut socket, _) = open(&target, "timeoutSeconds=20", &[]).await?;
    socket.send(Message::text("nobody reads this")).await?;
    socket.send(Message::Ping("are you there".into())).await?;
    match tokio::time::timeout(SOON, socket.next()).await? {
        Some(Ok(Message::Pong(data))) => ensure!(&*data == b"are you there", "{data:?}"),
        other => bail!("{other:?}"),
    }
    Ok(())
}
