//! Tests requests that a kubelet answers: logs, exec, attach, port-forward. The tests also send them directly to a
//! member, to show that the simulated kubelet works.

use super::{SOON, Setup};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use tributary_e2e::ports;

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl";
        kubectl_logs_exec_attach_and_port_forward_work_directly_at_a_member, kubectl_logs_reads_from_the_cluster_of_the_pod,
        kubectl_logs_follows_new_lines, kubectl_exec_runs_in_the_cluster_of_the_pod,
        kubectl_exec_transfers_its_whole_input, kubectl_attach_shows_new_output, kubectl_port_forward_reaches_the_pod,
    ]
}

async fn kubectl_logs_exec_attach_and_port_forward_work_directly_at_a_member(
    context: TestContext,
) -> anyhow::Result<()> {
    let setup = Setup::of_a_member(&context).await?;
    setup.running_pod(0, "one").await?;
    check_logs(&setup, "one", 0).await?;
    check_exec(&setup, "one", 0).await?;
    check_exec_with_input(&setup, "one").await?;
    check_attach(&setup, "one", 0).await?;
    check_port_forward(&setup, "one").await
}

pub(crate) async fn check_logs(setup: &Setup, pod: &str, member: usize) -> anyhow::Result<()> {
    let text = setup.ok(&["logs", pod]).await?;
    let expected = format!("hello from {}", setup.members[member].name());
    ensure!(text.contains(&expected), "{text:?}");
    Ok(())
}

async fn kubectl_logs_reads_from_the_cluster_of_the_pod(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(0, "one").await?;
    setup.running_pod(1, "two").await?;
    check_logs(&setup, "one", 0).await?;
    check_logs(&setup, "two", 1).await
}

async fn kubectl_logs_follows_new_lines(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    let mut following = setup.kubectl.spawn(&setup.arguments(&["logs", "-f", "two"]))?;
    following.wait_for_output(SOON, |text| text.contains("hello from member2")).await?;
    let line = format!("later {}", setup.namespace);
    setup.members[1].append_container_log(&line)?;
    following.wait_for_output(SOON, |text| text.contains(&line)).await?;
    Ok(())
}

pub(crate) async fn check_exec(setup: &Setup, pod: &str, member: usize) -> anyhow::Result<()> {
    let text = setup.ok(&["exec", pod, "--", "sh", "-c", "echo $MEMBER; echo trouble >&2"]).await?;
    ensure!(text.trim() == setup.members[member].name(), "{text:?}");
    let failed = setup.run(&["exec", pod, "--", "sh", "-c", "exit 3"]).await?;
    // kwok reports the exit code of a failed command only in an error message.
    ensure!(failed.code != Some(0) && failed.stderr.contains("exit status 3"), "{failed:?}");
    Ok(())
}

async fn kubectl_exec_runs_in_the_cluster_of_the_pod(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(0, "one").await?;
    setup.running_pod(1, "two").await?;
    check_exec(&setup, "one", 0).await?;
    check_exec(&setup, "two", 1).await
}

/// Sends bytes to a command in the pod and reads them back. The command ends after the last line instead of the end of
/// the input, which kwok does not forward.
async fn check_exec_with_input(setup: &Setup, pod: &str) -> anyhow::Result<()> {
    let text: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    let command = setup.kubectl.command(&setup.arguments(&["exec", "-i", pod, "--", "head", "-n", "20000"]));
    let output = setup.kubectl.run_with(command, Some(&text)).await?.success()?;
    ensure!(output == text, "{} of {} bytes came back", output.len(), text.len());
    Ok(())
}

async fn kubectl_exec_transfers_its_whole_input(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    check_exec_with_input(&setup, "two").await
}

async fn check_attach(setup: &Setup, pod: &str, member: usize) -> anyhow::Result<()> {
    let attached = setup.kubectl.spawn(&setup.arguments(&["attach", pod]))?;
    // `attach` shows only output that is written after `attach` has started. The test cannot observe the start, so it
    // writes the text repeatedly.
    let expected = format!("attached {}", setup.namespace);
    eventually(SOON, async || {
        setup.members[member].append_container_log(&expected)?;
        let text = attached.output();
        ensure!(text.contains(&expected), "{text:?} {}", attached.errors());
        Ok(())
    })
    .await
}

async fn kubectl_attach_shows_new_output(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    check_attach(&setup, "two", 1).await
}

/// Forwards a port over WebSocket and over SPDY.
pub(crate) async fn check_port_forward(setup: &Setup, pod: &str) -> anyhow::Result<()> {
    for websockets in ["true", "false"] {
        check_port_forward_over(websockets, setup, pod).await?;
    }
    Ok(())
}

async fn check_port_forward_over(websockets: &str, setup: &Setup, pod: &str) -> anyhow::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let port = ports::free_port()?;
    let mapping = format!("{port}:8080");
    let mut command = setup.kubectl.command(&setup.arguments(&["port-forward", pod, &mapping]));
    command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets);
    let mut forwarding = setup.kubectl.spawn_command(command)?;
    forwarding.wait_for_output(SOON, |text| text.contains("Forwarding from 127.0.0.1")).await?;
    for _ in 0..3 {
        let mut connection = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.context("connect")?;
        let request = b"GET /health HTTP/1.1\r\nHost: etcd\r\n\r\n";
        connection.write_all(request).await.context("write")?;
        // The test reads only until the body is complete, because kwok does not close its half of the connection.
        let mut answer = Vec::new();
        let whole = async {
            while !String::from_utf8_lossy(&answer).contains("\"health\"") {
                ensure!(connection.read_buf(&mut answer).await.context("read")? > 0, "the connection ended");
            }
            Ok(())
        };
        tokio::time::timeout(SOON, whole).await.context("no answer")??;
        ensure!(answer.starts_with(b"HTTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

async fn kubectl_port_forward_reaches_the_pod(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    check_port_forward(&setup, "two").await
}
