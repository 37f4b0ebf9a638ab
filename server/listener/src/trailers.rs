//! Counts the HTTP/2 trailers that a connection sends, and the bytes of its incomplete head.
//!
//! h2 stores the trailers of a request until its stream ends, even after the body was dropped, and has no setting to
//! limit them: 2,000 streams could occupy 2 GB. So the listener parses the frame headers to count trailers. No client
//! of Kubernetes sends trailers. Delete this module when h2 drops the trailers of an unread body.

/// The beginning of an HTTP/2 connection (RFC 9113 §3.4). hyper, too, detects HTTP/2 by these bytes, whatever ALPN
/// negotiated.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame header in bytes (RFC 9113 §4.1).
const FRAME_HEAD_BYTES: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// The HTTP/2 flag of the last frame of a header block.
const END_HEADERS: u8 = 4;
/// The most trailers that a connection may send during its life, in bytes. One byte may encode a header that needs 144
/// bytes of memory, so 455 bytes of trailers need at most 64 KiB of memory.
const TRAILER_BYTES_MAX: usize = 455;

#[derive(Debug, Default)]
pub(super) struct TrailerCounter {
    protocol: Protocol,
    trailer_bytes: usize,
}

#[derive(Debug)]
enum Protocol {
    /// The protocol is not detected yet. The value is the number of received bytes that match HTTP/2's preface.
    Undecided(usize),
    Http1,
    Http2(Frames),
}

impl Default for Protocol {
    fn default() -> Self {
        Self::Undecided(0)
    }
}

#[derive(Debug, Default)]
struct Frames {
    head: [u8; FRAME_HEAD_BYTES],
    /// The number of received bytes of the frame header.
    head_bytes: usize,
    /// The number of bytes of the frame's payload that have not arrived.
    payload_left: usize,
    /// The greatest stream number of the client. Each new stream has a greater number than all earlier streams (RFC
    /// 9113 §5.1.1).
    last_stream: u32,
    /// True if the current header block contains trailers.
    has_trailers: bool,
    /// The number of received bytes of the incomplete header block.
    open_head_bytes: usize,
}

impl TrailerCounter {
    /// Parses received bytes. Returns `false` if the connection has sent more trailers than allowed.
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
    /// Returns the number of received bytes of the incomplete head, or 0 between heads. Returns `None` for HTTP/1, and
    /// until the protocol is detected.
    pub(super) fn open_head_bytes(&self) -> Option<usize> {
        match &self.protocol {
            Protocol::Http2(frames) => Some(frames.open_head_bytes),
            Protocol::Undecided(_) | Protocol::Http1 => None,
        }
    }
}

impl Frames {
    /// Parses bytes of frames. Returns the number of trailer bytes among them.
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

    /// Parses a frame header. Headers of an already open stream are trailers.
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

    /// Counts the trailers in these bytes, and checks that the count does not depend on the sizes of the reads.
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
    fn headers_of_an_already_open_stream_count_as_trailers() {
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
    fn head_bytes_are_counted_until_the_end_headers_flag() {
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
