//! `tributary serve`: connects sources, router and listener, and applies configuration changes until the process ends.
//!
//! ```text
//! prepare: flags, configuration, logs, identity ─▶ open: router, port ─▶ start: clusters ─▶ answer
//!                                                                          ─▶ follow changes ─▶ shut down
//! ```

mod aggregated;
mod clients;
mod endpoint;
mod hub;
mod hub_users;
mod identity;
mod managed;
mod prepare;
mod reload_cause;
mod running;
mod unserved;

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::cli::ServeArguments;
use crate::exit::Failure;
use crate::process::core_dumps;
use crate::process::descriptors;
use crate::process::signals::Signals;
use endpoint::BoundEndpoint;
use prepare::prepare;
pub use running::Ready;

/// Serves until a signal. `on_ready` is called once, after the `ready:` line.
///
/// # Errors
/// [`Failure`] of the start; later errors are logged.
pub async fn serve(arguments: ServeArguments, on_ready: impl FnOnce(&Ready<'_>)) -> Result<(), Failure> {
    core_dumps::forbid();
    descriptors::raise_limit();
    let (leaving, at_once, reload) = (CancellationToken::new(), CancellationToken::new(), Arc::new(Notify::new()));
    let reload_on_signal = Arc::clone(&reload);
    let signals = Signals::install().map_err(Failure::runtime)?;
    tokio::spawn(signals.follow(leaving.clone(), at_once.clone(), move || reload_on_signal.notify_one()));
    match at_once.run_until_cancelled(serve_until(&leaving, &reload, arguments, on_ready)).await {
        Some(served) => served,
        None => Err(Failure::runtime(anyhow::anyhow!("a second signal ended it before it had drained"))),
    }
}

/// Serves until `leaving` is cancelled, continues for the shutdown delay, and then drains. A cancellation during the
/// start ends the start at once.
async fn serve_until(
    leaving: &CancellationToken,
    reload: &Notify,
    arguments: ServeArguments,
    on_ready: impl FnOnce(&Ready<'_>),
) -> Result<(), Failure> {
    let Some((prepared, configuration)) = prepare(leaving, arguments).await? else { return Ok(()) };
    let stop = CancellationToken::new();
    let mut endpoint = BoundEndpoint::open(prepared, &stop).await?;
    let starting = endpoint.running.start(configuration);
    let Some(started) = leaving.run_until_cancelled(starting).await else { return Ok(()) };
    started?;
    let mut answering = endpoint.begin_answering(leaving, &stop)?;
    answering.running.write_kubeconfigs().await?;
    answering.running.announce(on_ready);
    stop.run_until_cancelled(answering.running.follow_changes(reload)).await;
    answering.shut_down().await
}
