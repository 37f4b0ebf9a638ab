//! Joining of small frames into larger frames, so that fewer frames are sent.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use tributary_sharing::body::FRAME_BYTES;

/// Joins the frames of one batch of events into frames of about 64 KiB. If a batch has only one frame, the frame stays
/// unchanged, so that all watches can share it in memory.
pub(super) struct FrameJoiner<'a> {
    pub(super) ready: &'a mut VecDeque<Bytes>,
    pub(super) open: BytesMut,
}

impl FrameJoiner<'_> {
    pub(super) fn push(&mut self, frame: Bytes) {
        if self.open.is_empty() {
            // A single frame waits unchanged at the end of the queue. It is joined only if a second frame arrives.
            if let Some(last) = self.ready.pop_back_if(|last| last.len() + frame.len() <= FRAME_BYTES) {
                self.open.extend_from_slice(&last);
                self.open.extend_from_slice(&frame);
            } else {
                self.ready.push_back(frame);
            }
            return;
        }
        if self.open.len() + frame.len() > FRAME_BYTES {
            self.ready.push_back(self.open.split().freeze());
            self.ready.push_back(frame);
        } else {
            self.open.extend_from_slice(&frame);
        }
    }

    pub(super) fn end(mut self) {
        if !self.open.is_empty() {
            self.ready.push_back(self.open.split().freeze());
        }
    }
}
