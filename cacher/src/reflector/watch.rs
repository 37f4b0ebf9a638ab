//! Reads a watch, frame by frame.

use bytes::Bytes;
use tokio::time::Instant;
use tributary_apimachinery::{Change, ChangeType, ResourceVersion};

use super::failures::{decode_position, opaque_version};
use super::task::{Reflector, ReflectorStream, ResetRequested};
use crate::machine::Input;
use crate::request::MemberError;
use crate::state::StaleReason;
use crate::store::Store;
use crate::stream::{MemberWatch, WatchWakeup};
use crate::watch_event::{FrameError, MemberEvent};

impl Reflector {
    /// Reads a watch until the state machine gets an input. The watch stays open for the next call.
    pub(super) async fn read_watch(&mut self, mut stream: Box<MemberWatch>) -> Result<Input, ResetRequested> {
        let shared = self.shared.clone();
        let mut reopen_at = shared.reopen_at.subscribe();
        loop {
            if let Some(input) = self.handle_frames(&mut stream) {
                self.reading = ReflectorStream::Watch(stream);
                return Ok(input);
            }
            let mut progress = std::mem::take(&mut self.progress);
            let next_wakeup =
                self.run_until_reset(stream.next_wakeup(&mut progress, &shared.wanted, &mut reopen_at)).await;
            self.progress = progress;
            let input = match next_wakeup? {
                WatchWakeup::Read(Some(Ok(frame))) => {
                    self.health.record_data(stream.last_data_at());
                    if let Ok(chunk) = frame.into_data() {
                        shared.counts.received_bytes.add(chunk.len());
                        stream.frames.push(chunk);
                    }
                    tokio::task::coop::consume_budget().await;
                    None
                }
                WatchWakeup::Read(Some(Err(error))) => Some(self.unreachable(&error)),
                WatchWakeup::Read(None) => Some(self.ended(&stream)),
                WatchWakeup::Silent => Some(self.silent(&stream)),
                WatchWakeup::Settled => Some(self.settle(&mut stream)),
                WatchWakeup::Progress(call) => self.progress(call, &stream),
                WatchWakeup::Renewed => Some(Input::Renewed),
            };
            if let Some(input) = input {
                self.reading = ReflectorStream::Watch(stream);
                return Ok(input);
            }
        }
    }

    /// Handles the received frames, and publishes their changes in a single update.
    fn handle_frames(&mut self, stream: &mut MemberWatch) -> Option<Input> {
        if let Some(input) = stream.deferred.take() {
            return Some(input);
        }
        let (before, initial) = (self.version(), stream.initial);
        let mut changes = Vec::new();
        let input = loop {
            let frame = match stream.frames.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break None,
                Err(error) => break Some(self.failed(StaleReason::Other(error.to_string()))),
            };
            if let Err(input) = self.handle_frame(stream, &frame, &mut changes) {
                break Some(input);
            }
        };
        // The loop ends at the end of the initial events. So one call handles either only initial events, or none.
        if initial || (changes.is_empty() && self.version() == before) {
            return input;
        }
        self.publish_changes(changes);
        if !stream.proved {
            stream.deferred = input;
            return Some(self.prove(stream));
        }
        input
    }

    /// Handles a frame of the watch. An `Err` is not a failure but an input for the state machine.
    fn handle_frame(
        &mut self,
        stream: &mut MemberWatch,
        frame: &Bytes,
        changes: &mut Vec<Change>,
    ) -> Result<(), Input> {
        match MemberEvent::parse(frame) {
            Ok(MemberEvent::Object { change_type, object }) => match self.shared.config.decoder.decode(object) {
                Ok(object) if stream.initial => match change_type {
                    ChangeType::Added | ChangeType::Modified => {
                        self.staging.put(object);
                        if let Some(check_size) = self.check_size(self.staging.bytes()) {
                            return Err(check_size);
                        }
                    }
                    ChangeType::Deleted => self.staging.remove(object.key().as_str()),
                },
                Ok(object) => {
                    stream.has_event = true;
                    changes.extend(self.store.as_mut().and_then(|store| store.apply(change_type, object)));
                    self.shrink_watched_reservation();
                    // A collection above its size limit is not watched. The reflector repeats the list until the size
                    // is within the limit.
                    if self.check_size(self.store.as_ref().map_or(0, Store::bytes)).is_some() {
                        return Err(Input::Expired);
                    }
                }
                Err(error) => {
                    // During the initial events, an event whose resourceVersion is not a number fails the list. Later
                    // such an event is only skipped and counted, and the next list reports the problem.
                    if let Some(version) = opaque_version(&error).filter(|_| stream.initial) {
                        return Err(self.fail_opaque(version));
                    }
                    let after = self.version();
                    self.count_skipped(
                        &error,
                        &decode_position(&error),
                        format_args!("watch event after version {after}"),
                    );
                }
            },
            Ok(MemberEvent::Bookmark { version, initial_events_end }) => {
                return self.handle_bookmark(stream, version, initial_events_end);
            }
            Ok(MemberEvent::Error { status }) => {
                return Err(self.refused(MemberError::from_status(status, None), stream.initial));
            }
            Err(FrameError::OpaqueVersion(version)) if stream.initial => return Err(self.fail_opaque(&version)),
            Err(error) => {
                let after = self.version();
                self.count_skipped(&error, "", format_args!("watch frame after version {after}"));
            }
        }
        Ok(())
    }

    fn handle_bookmark(&mut self, stream: &mut MemberWatch, version: ResourceVersion, end: bool) -> Result<(), Input> {
        if stream.initial {
            if !end {
                tracing::debug!("a bookmark of the cluster does not mark the end of the initial events");
                return Err(Input::BookmarkBehind);
            }
            stream.live(Instant::now());
            self.replace_collection(version);
            return Err(Input::InitialEnd);
        }
        stream.bookmark_due = false;
        self.progress.set_has_bookmarks(true);
        let store = self.store.get_or_insert_default();
        if store.version() > version {
            tracing::debug!(%version, held = %store.version(),
                "a bookmark of the cluster is below the current version");
            return Err(Input::BookmarkBehind);
        }
        store.advance(version.into());
        Ok(())
    }
}
