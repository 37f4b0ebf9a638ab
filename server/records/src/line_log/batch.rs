//! A thread that writes, and the queue before it.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;

use super::losses::Losses;
use super::output::Output;

/// A thread that writes lines, and the bounded queue before it: what it has no room for is dropped, and counted.
pub(crate) struct Batch {
    sender: Mutex<Option<SyncSender<Bytes>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    losses: Losses,
}

impl Batch {
    /// Starts the thread, under a name. So many lines may wait.
    ///
    /// # Errors
    /// Where the system has no thread.
    pub(crate) fn start(name: &str, output: Output, lines: usize) -> io::Result<Self> {
        let losses = output.losses().clone();
        let (sender, receiver) = sync_channel(lines);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || drain(output, &receiver))?;
        Ok(Self { sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), losses })
    }

    /// Gives a line to the thread. Never waits.
    pub(crate) fn write(&self, line: Bytes) {
        let sent = self.sender.lock().as_ref().map(|sender| sender.try_send(line));
        if let Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None = sent {
            self.losses.count_unqueued();
        }
    }

    /// Writes what waits. Nothing is taken any longer.
    pub(crate) async fn shut_down(&self) {
        drop(self.sender.lock().take());
        let thread = self.thread.lock().take();
        // The thread writes what is in the queue, and ends.
        let _ = tokio::task::spawn_blocking(move || thread.map(JoinHandle::join)).await;
    }
}

/// Writes lines until nobody sends any.
fn drain(mut output: Output, lines: &Receiver<Bytes>) {
    while let Ok(line) = lines.recv() {
        output.write(&[line]);
    }
}
