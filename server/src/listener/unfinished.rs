//! What has come on a connection beyond requests that are whole: a head that has not ended, and bodies. A head is held
//! from its first byte on, while only a whole one can be counted by what is in it, so whoever never ends one would fill
//! memory uncounted. Pure: it looks at the bytes as they pass, for as long as nobody is known on the connection.

use super::heads::HEADER_LIST_BYTES_MAX;

/// What HTTP/2 connections begin with (RFC 9113, 3.4); hyper goes by it too, whatever TLS has agreed on.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The head of a frame, in bytes (RFC 9113, 4.1).
const FRAME_HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// What one byte of a block of headers may take once it is read, in bytes: a header of the static table is one byte,
/// and 72 in a `HeaderMap`, whose vector may just have doubled.
const HPACK_BYTES: usize = 144;
/// The most that a block of headers takes, in bytes. h2 keeps what counts as [`HEADER_LIST_BYTES_MAX`], a header as 35
/// at least, of which 72 are held and as many may be free; and as much again of one string that has not ended.
const BLOCK_BYTES_MAX: usize = 3 * HEADER_LIST_BYTES_MAX as usize;
/// What one byte of a head takes over HTTP/1.1, in bytes: hyper doubles its buffer.
const BUFFER_BYTES: usize = 2;
/// What a frame of a body takes beside its bytes, in bytes: h2 keeps each by itself.
const DATA_FRAME_BYTES: usize = 128;
/// How much of bodies is read before it is known who sends them, in bytes. 64 KiB, as much as each connection may have
/// in heads in any case: most bodies are shorter, and longer ones go on once their sender is known. Of a user's own
/// there may be 8 MiB on a connection, which would be gigabytes of all strangers'.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What has come of a head that has not ended, and of bodies.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    protocol: Protocol,
    held: Held,
}

/// What is held of it, in bytes of memory.
#[derive(Debug, Default)]
struct Held {
    head: usize,
    /// What stays: trailers, which h2 holds for as long as their stream is open, and the buffer of HTTP/1.1.
    kept: usize,
    body: usize,
}

#[derive(Debug)]
enum Protocol {
    /// So many bytes are as those of the preface.
    Undecided(usize),
    Http1,
    Http2(Frames),
}

impl Default for Protocol {
    fn default() -> Self {
        Self::Undecided(0)
    }
}

/// Where in its frames an HTTP/2 connection is.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; FRAME_HEAD_BYTES],
    /// How much of that has come.
    head_bytes: usize,
    /// How much of the payload has not come.
    left: usize,
    /// The last stream that was opened: a client opens each with a greater number (RFC 9113, 5.1.1).
    last_stream: u32,
    /// Whether the block of headers that is coming are trailers.
    are_trailers: bool,
}

/// A frame, by what becomes of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameKind {
    /// A part of a block of headers that goes on: it is read, and kept.
    Part,
    /// The last of a block: with its end the head is whole.
    LastPart,
    Data,
    Other,
}

impl Unfinished {
    /// Takes note of bytes that have come.
    pub(super) fn note(&mut self, mut bytes: &[u8]) {
        if let Protocol::Undecided(matched) = &mut self.protocol {
            let rest = &PREFACE[*matched..];
            let same = bytes.iter().zip(rest).take_while(|(own, wanted)| own == wanted).count();
            *matched += same;
            if same == rest.len() {
                self.protocol = Protocol::Http2(Frames::default());
                bytes = &bytes[same..];
            } else if same < bytes.len() {
                self.held.head += (*matched - same) * BUFFER_BYTES;
                self.protocol = Protocol::Http1;
            }
        }
        match &mut self.protocol {
            Protocol::Undecided(_) => {}
            Protocol::Http1 => self.held.head += bytes.len() * BUFFER_BYTES,
            Protocol::Http2(frames) => frames.note(bytes, &mut self.held),
        }
    }

    /// A head was whole, and has become a request. Over HTTP/2 its frames say so; over HTTP/1.1 the buffer in which it
    /// was is as large as it has come to be.
    pub(super) fn head_is_whole(&mut self) {
        if matches!(self.protocol, Protocol::Http1) {
            self.held.kept = self.held.kept.max(self.held.head.min(BLOCK_BYTES_MAX));
            self.held.head = 0;
        }
    }

    /// What is held of a head that has not ended, and of what stays, in bytes of memory, and at most.
    pub(super) fn head_bytes(&self) -> usize {
        let head = self.held.head.min(BLOCK_BYTES_MAX);
        match self.protocol {
            Protocol::Http1 => head.max(self.held.kept),
            Protocol::Undecided(_) | Protocol::Http2(_) => head + self.held.kept,
        }
    }

    /// What is held of trailers, in bytes of memory.
    pub(super) fn trailer_bytes(&self) -> usize {
        match self.protocol {
            Protocol::Http2(_) => self.held.kept,
            Protocol::Undecided(_) | Protocol::Http1 => 0,
        }
    }

    /// Whether so much of bodies has come that no more is read before it is known who sends them.
    pub(super) fn is_body_full(&self) -> bool {
        self.held.body > BODY_BYTES_MAX
    }
}

impl Frames {
    fn note(&mut self, mut bytes: &[u8], held: &mut Held) {
        while !bytes.is_empty() {
            if self.head_bytes < FRAME_HEAD_BYTES {
                let taken = bytes.len().min(FRAME_HEAD_BYTES - self.head_bytes);
                self.head[self.head_bytes..][..taken].copy_from_slice(&bytes[..taken]);
                self.head_bytes += taken;
                bytes = &bytes[taken..];
                if self.head_bytes < FRAME_HEAD_BYTES {
                    return;
                }
                let [high, middle, low, ..] = self.head;
                self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.note_stream();
                held.body += if self.kind() == FrameKind::Data { DATA_FRAME_BYTES } else { 0 };
            }
            let taken = bytes.len().min(self.left);
            self.left -= taken;
            bytes = &bytes[taken..];
            match self.kind() {
                FrameKind::Part | FrameKind::LastPart if self.are_trailers => held.kept += taken * HPACK_BYTES,
                FrameKind::Part => held.head += taken * HPACK_BYTES,
                FrameKind::Data => held.body += taken,
                FrameKind::LastPart | FrameKind::Other => {}
            }
            if self.left == 0 {
                held.head = if self.kind() == FrameKind::LastPart { 0 } else { held.head };
                self.head_bytes = 0;
            }
        }
    }

    /// Headers of a stream that is open already are trailers. No client of Kubernetes sends any.
    fn note_stream(&mut self) {
        let [.., kind, _, first, second, third, fourth] = self.head;
        if kind == HEADERS {
            let stream = u32::from_be_bytes([first & 0x7f, second, third, fourth]);
            self.are_trailers = stream <= self.last_stream;
            self.last_stream = stream.max(self.last_stream);
        }
    }

    fn kind(&self) -> FrameKind {
        let [_, _, _, kind, flags, ..] = self.head;
        match kind {
            HEADERS | CONTINUATION if flags & END_HEADERS == 0 => FrameKind::Part,
            HEADERS | CONTINUATION => FrameKind::LastPart,
            DATA => FrameKind::Data,
            _ => FrameKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        frame_of(1, kind, flags, payload)
    }

    fn frame_of(stream: u8, kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, stream];
        frame.resize(FRAME_HEAD_BYTES + payload, 0x95);
        frame
    }

    /// What is held once these have come, however they were cut.
    fn after(parts: &[Vec<u8>]) -> (usize, bool) {
        let bytes = parts.concat();
        let held = [1, 7, 4096, usize::MAX].map(|size| {
            let mut unfinished = Unfinished::default();
            bytes.chunks(size.min(bytes.len())).for_each(|chunk| unfinished.note(chunk));
            (unfinished.head_bytes(), unfinished.is_body_full())
        });
        assert!(held.iter().all(|other| *other == held[0]), "{held:?}");
        held[0]
    }

    #[test]
    fn a_head_counts_until_it_has_ended() {
        let preface = PREFACE.to_vec();
        let settings = frame(4, 0, 0);
        let begun = [preface.clone(), settings.clone()].to_vec();
        let then = |more: &[Vec<u8>]| after(&[begun.clone(), more.to_vec()].concat());
        assert_eq!(after(&[preface[..20].to_vec()]), (0, false));
        assert_eq!(then(&[]), (0, false));
        assert_eq!(then(&[frame(HEADERS, END_HEADERS, 1000), frame_of(3, HEADERS, END_HEADERS | 1, 9)]), (0, false));
        let open = frame(HEADERS, 0, 100);
        assert_eq!(then(std::slice::from_ref(&open)), (100 * HPACK_BYTES, false));
        assert_eq!(then(&[open.clone(), frame(CONTINUATION, 0, 50)]), (150 * HPACK_BYTES, false));
        // The last frame has to be whole, too.
        let last = frame(CONTINUATION, END_HEADERS, 50);
        assert_eq!(then(&[open.clone(), last[..last.len() - 1].to_vec()]), (100 * HPACK_BYTES, false));
        assert_eq!(then(&[open.clone(), last]), (0, false));
        assert_eq!(then(&[open.clone(), frame(CONTINUATION, END_HEADERS, 0)]), (0, false));
        assert_eq!(then(&[frame(HEADERS, 0, 16_000), frame(CONTINUATION, 0, 16_000)]), (BLOCK_BYTES_MAX, false));
    }

    /// h2 holds them until their stream ends, which its client may never let.
    #[test]
    fn trailers_count_for_as_long_as_the_connection_is_a_strangers() {
        let of = |frames: &[Vec<u8>]| after(&[&[PREFACE.to_vec()], frames].concat()).0;
        let opened = [frame_of(1, HEADERS, END_HEADERS, 10), frame_of(3, HEADERS, END_HEADERS, 10)];
        assert_eq!(of(&opened), 0);
        let trailers = [
            frame_of(1, HEADERS, END_HEADERS | 1, 100),
            frame_of(3, HEADERS, 1, 30),
            frame_of(3, CONTINUATION, END_HEADERS, 20),
        ];
        assert_eq!(of(&[&opened[..], &trailers[..]].concat()), 150 * HPACK_BYTES);
        let more = [frame_of(5, HEADERS, END_HEADERS, 10)];
        assert_eq!(
            of(&[&opened[..], &trailers[..], &more[..]].concat()),
            150 * HPACK_BYTES,
            "another head resets nothing"
        );
    }

    #[test]
    fn bodies_are_read_as_far_as_a_stranger_may_send_them() {
        let of = |frames: Vec<Vec<u8>>| after(&[vec![PREFACE.to_vec()], frames].concat());
        assert_eq!(of(vec![frame(DATA, 0, 16_000); 4]), (0, false));
        assert_eq!(of(vec![frame(DATA, 0, 16_000); 5]), (0, true));
        assert_eq!(of(vec![frame(DATA, 0, 1); 600]), (0, true), "small pieces take more than their bytes");
    }

    #[test]
    fn over_http1_a_head_counts_until_it_is_a_request() {
        let text = b"PRI / HTTP/1.1\r\nHost: x\r\n";
        assert_eq!(after(&[text.to_vec()]), (text.len() * BUFFER_BYTES, false));
        let mut unfinished = Unfinished::default();
        unfinished.note(text);
        unfinished.head_is_whole();
        assert_eq!(unfinished.head_bytes(), text.len() * BUFFER_BYTES, "its buffer stays as large");
        unfinished.note(&[b'a'; 1 << 20]);
        assert_eq!(unfinished.head_bytes(), BLOCK_BYTES_MAX);
    }
}
