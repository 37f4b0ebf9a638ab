//! Encodes and decodes HTTP/2 frames (RFC 9113 §4.1, §6), for bytes that no client library sends.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The error codes in RST_STREAM and GOAWAY frames that tests use (RFC 9113 §7).
const CANCEL: u32 = 8;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// The first bytes of a client: the connection preface and an empty SETTINGS frame.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Returns a SETTINGS frame with `SETTINGS_INITIAL_WINDOW_SIZE` 0. The server may then send no body (RFC 9113 §6.5.2).
pub(crate) fn no_window() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut head = [0; 9];
        from.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        from.read_exact(&mut payload).await?;
        Ok(Self { kind: head[3], payload })
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn headers(stream: u32, block: &[u8], is_end: bool) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | if is_end { END_STREAM } else { 0 }, stream, block)
}

/// Returns a HEADERS frame with the beginning of a header block, without END_HEADERS.
pub(crate) fn headers_begun(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_STREAM, stream, block)
}

/// Returns a CONTINUATION frame with a part of a header block, without END_HEADERS.
pub(crate) fn continuation(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(CONTINUATION, 0, stream, block)
}

pub(crate) fn data(stream: u32, bytes: &[u8], is_end: bool) -> Vec<u8> {
    frame(DATA, if is_end { END_STREAM } else { 0 }, stream, bytes)
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

pub(crate) fn pong(payload: &[u8]) -> Vec<u8> {
    frame(PING, ACK, 0, payload)
}

/// Encodes a header field as a literal: not indexed, no Huffman code (RFC 7541 §6.2.2).
pub(crate) fn literal(name: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name.as_bytes(), value] {
        length(text.len(), &mut bytes);
        bytes.extend_from_slice(text);
    }
    bytes
}

/// Encodes an integer with a prefix of seven bits (RFC 7541 §5.1).
fn length(number: usize, bytes: &mut Vec<u8>) {
    let Some(mut rest) = number.checked_sub(127) else {
        return bytes.push(u8::try_from(number).unwrap());
    };
    bytes.push(127);
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).unwrap());
}

/// Returns the status of a response, if hyper's encoder sends the status as an index of the static table (RFC 7541
/// appendix A).
pub(crate) fn status(frame: &Frame) -> Option<u16> {
    if frame.kind != HEADERS {
        return None;
    }
    match frame.payload.first()? {
        0x88 => Some(200),
        0x8c => Some(400),
        0x8d => Some(404),
        _ => None,
    }
}

/// Returns the last stream in a GOAWAY frame. The server does not answer streams after the last stream.
pub(crate) fn goaway_last(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.payload[..4].try_into().unwrap())
}

pub(crate) fn goaway_code(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.payload[4..8].try_into().unwrap())
}
