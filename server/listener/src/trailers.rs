//! Counts the trailers that a connection sends over HTTP/2, and the bytes of its incomplete head.
//!
//! h2 keeps the trailers of a request until its stream ends, even after the body was dropped, and has no setting to
//! bound them: 2,000 streams could keep 2 GB. So the listener parses the frames' heads to count them. No client of
//! Kubernetes sends trailers. Delete this once h2 drops the trailers of an unread body.

/// The beginning of an HTTP/2 connection (RFC 9113 §3.4). hyper decides by it too, whatever ALPN negotiated.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The head of a frame, in bytes (RFC 9113 §4.1).
const FRAME_HEAD_BYTES: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// The flag of the last frame of a block of headers.
const END_HEADERS: u8 = 4;
/// The trailers that a connection may send during its life, in bytes. One byte may be a header that takes 144 bytes of
/// memory, so this is 64 KiB of memory.
const TRAILER_BYTES_MAX: usize = 455;

/// Counts the trailers of one connection.
#[derive(Debug, Default)]
pub(super) struct TrailerCounter {
    protocol: Protocol,
    trailer_bytes: usize,
}

#[derive(Debug)]
enum Protocol {
    /// The number of bytes so far that match the preface.
    Undecided(usize),
    Http1,
    Http2(Frames),
}

impl Default for Protocol {
    fn default() -> Self {
        Self::Undecided(0)
    }
}

/// The position of an HTTP/2 connection within its frames.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; FRAME_HEAD_BYTES],
    /// The length of the part of the head that has arrived.
    head_bytes: usize,
    /// The length of the part of the payload that has not arrived.
    payload_left: usize,
    /// The last stream that the client opened: each has a greater number than those before (RFC 9113 §5.1.1).
    last_stream: u32,
    /// Whether the last block of headers contains trailers.
    has_trailers: bool,
    /// The number of bytes of the incomplete block of headers.
    open_head_bytes: usize,
}

impl TrailerCounter {
    /// Reads bytes of the connection. Returns whether its trailers are still within their bound.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> bool {
        if let Protocol::Undecided(matched) = &mut self.protocol {
            let rest = &PREFACE[*matched..];
            let same = bytes.iter().zip(rest).take_while(|(byte, expected)| byte == expected).count();
            *matched += same;
            if same == rest.len() {
                self.protocol = Protocol::Http2(Frames::default());
                bytes = &bytes[same..];
            } else if same < bytes.len() {
                self.protocol = Protocol::Http1;
            }
        }
        if let Protocol::Http2(frames) = &mut self.protocol {
            self.trailer_bytes += frames.read(bytes);
        }
        self.trailer_bytes <= TRAILER_BYTES_MAX
    }
}

impl TrailerCounter {
    /// The number of bytes of the incomplete head, 0 between heads; `None` for HTTP/1, and before the protocol is
    /// detected.
    pub(super) fn open_head_bytes(&self) -> Option<usize> {
        match &self.protocol {
            Protocol::Http2(frames) => Some(frames.open_head_bytes),
            Protocol::Undecided(_) | Protocol::Http1 => None,
        }
    }
}

impl Frames {
    /// Reads bytes of frames. Returns the number of trailer bytes among them.
    fn read(&mut self, mut bytes: &[u8]) -> usize {
        let mut trailer_bytes = 0;
        while !bytes.is_empty() {
            if self.head_bytes < FRAME_HEAD_BYTES {
                let taken = bytes.len().min(FRAME_HEAD_BYTES - self.head_bytes);
                self.head[self.head_bytes..][..taken].copy_from_slice(&bytes[..taken]);
                self.head_bytes += taken;
                bytes = &bytes[taken..];
                if self.head_bytes < FRAME_HEAD_BYTES {
                    break;
                }
                self.begin_payload();
            }
            let taken = bytes.len().min(self.payload_left);
            self.payload_left -= taken;
            bytes = &bytes[taken..];
            let [.., kind, flags, _, _, _, _] = self.head;
            if matches!(kind, HEADERS | CONTINUATION) {
                trailer_bytes += if self.has_trailers { taken } else { 0 };
                self.open_head_bytes += taken;
                if self.payload_left == 0 && flags & END_HEADERS != 0 {
                    self.open_head_bytes = 0;
                }
            }
            if self.payload_left == 0 {
                self.head_bytes = 0;
            }
        }
        trailer_bytes
    }

    /// Reads the head of a frame. Headers of a stream that is open already are trailers.
    fn begin_payload(&mut self) {
        let [high, middle, low, kind, _, first, second, third, fourth] = self.head;
        self.payload_left = u32::from_be_bytes([0, high, middle, low]) as usize;
        if kind == HEADERS {
            let stream = u32::from_be_bytes([first & 0x7f, second, third, fourth]);
            self.has_trailers = stream <= self.last_stream;
            self.last_stream = stream.max(self.last_stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: u8 = 0;

    fn frame(stream: u8, kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, 0, 0, 0, 0, stream];
        frame.resize(FRAME_HEAD_BYTES + payload, 0x95);
        frame
    }

    /// The trailers in these bytes, however they are cut into pieces.
    fn count(bytes: &[u8]) -> usize {
        let counts = [1, 7, 4096, usize::MAX].map(|size| {
            let mut counter = TrailerCounter::default();
            bytes.chunks(size.min(bytes.len())).for_each(|chunk| {
                counter.read(chunk);
            });
            counter.trailer_bytes
        });
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        counts[0]
    }

    #[test]
    fn trailers_are_headers_of_a_stream_that_is_open() {
        let count_frames = |frames: &[Vec<u8>]| count(&[&[PREFACE.to_vec()], frames].concat().concat());
        let opened = [frame(1, HEADERS, 10), frame(3, HEADERS, 10), frame(3, CONTINUATION, 10), frame(1, DATA, 900)];
        assert_eq!(count_frames(&opened), 0);
        let trailers = [frame(1, HEADERS, 100), frame(3, HEADERS, 30), frame(3, CONTINUATION, 20), frame(1, DATA, 9)];
        assert_eq!(count_frames(&[&opened[..], &trailers[..], &[frame(5, HEADERS, 10)]].concat()), 150);
        let many = frame(1, HEADERS, TRAILER_BYTES_MAX + 1);
        let mut counter = TrailerCounter::default();
        assert!(counter.read(PREFACE) && counter.read(&opened.concat()) && !counter.read(&many));
    }

    #[test]
    fn a_head_is_open_until_the_frame_that_ends_it() {
        let ended = |mut frame: Vec<u8>| {
            frame[4] = END_HEADERS;
            frame
        };
        let mut counter = TrailerCounter::default();
        assert_eq!(counter.open_head_bytes(), None);
        for (bytes, expected) in [
            (PREFACE.to_vec(), 0),
            (ended(frame(1, HEADERS, 500)), 0),
            ([ended(frame(3, HEADERS, 10)), frame(5, HEADERS, 70)].concat(), 70),
            (frame(5, CONTINUATION, 30), 100),
            (ended(frame(5, CONTINUATION, 30)), 0),
            (frame(1, DATA, 900), 0),
        ] {
            assert!(counter.read(&bytes));
            assert_eq!(counter.open_head_bytes(), Some(expected));
        }
    }

    #[test]
    fn http1_bytes_are_not_counted_as_trailers() {
        assert_eq!(count(&[b"PRI / HTTP/1.1\r\nHost: x\r\n".to_vec(), frame(1, HEADERS, 9).repeat(3)].concat()), 0);
    }
}
