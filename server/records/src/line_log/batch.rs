//! A thread that writes log lines, and its bounded queue.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;

use super::losses::Losses;
use super::output::Output;

/// A background thread that writes lines, and its bounded queue. Lines above the queue's capacity are dropped and
/// counted.
pub(crate) struct Batch {
    sender: Mutex<Option<SyncSender<Bytes>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    losses: Losses,
}

impl Batch {
    /// Starts a named thread with a queue for this many lines.
    ///
    /// # Errors
    /// The operating system cannot start a thread.
    pub(crate) fn start(name: &str, output: Output, lines: usize) -> io::Result<Self> {
        let losses = output.losses().clone();
        let (sender, receiver) = sync_channel(lines);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || drain(output, &receiver))?;
        Ok(Self { sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), losses })
    }

    /// Queues a line without waiting. A full queue drops and counts the line.
    pub(crate) fn write(&self, line: Bytes) {
        let sent = self.sender.lock().as_ref().map(|sender| sender.try_send(line));
        if let Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None = sent {
            self.losses.count_unqueued();
        }
    }

    /// Writes the queued lines. All later lines are dropped.
    pub(crate) async fn shut_down(&self) {
        drop(self.sender.lock().take());
        let thread = self.thread.lock().take();
        // The queue's sender is already dropped, so the thread ends after the last queued line.
        let _ = tokio::task::spawn_blocking(move || thread.map(JoinHandle::join)).await;
    }
}

fn drain(mut output: Output, lines: &Receiver<Bytes>) {
    while let Ok(line) = lines.recv() {
        output.write(&[line]);
    }
}
