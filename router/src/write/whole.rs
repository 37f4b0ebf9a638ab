//! A member's answer, read whole: within a limit of bytes and of time.
//!
//! Once a member has begun to answer it may have done what was asked for. What keeps its answer from being given is therefore never
//! a reason for a client to ask again by itself.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use tokio::time::{Instant, timeout_at};
use tributary_apimachinery::{ClusterName, Status};

use crate::body::{Body, BoxError, WHOLE_BODY_BYTES_MAX};

/// How long a member may take from the head of an answer to its end, in seconds: half of what a whole request is given, so that the
/// client hears which cluster was slow.
pub const WHOLE_WITHIN: Duration = Duration::from_secs(30);

/// Why an answer is not there whole.
#[derive(Debug, thiserror::Error)]
pub enum Interrupted {
    /// It broke off.
    #[error("it broke off: {0}")]
    Broken(BoxError),
    /// It took too long.
    #[error("it was not complete within {} s", WHOLE_WITHIN.as_secs())]
    Late,
    /// It is too large to be held.
    #[error("it is larger than {WHOLE_BODY_BYTES_MAX} bytes")]
    TooLarge,
}

impl Interrupted {
    /// 502, without the advice to come again.
    pub fn status(&self, cluster: &ClusterName) -> Status {
        Status::interrupted(cluster, self)
    }
}

/// An answer, or as much of it as may be held.
pub enum Begun {
    /// All of it.
    Whole(Bytes),
    /// A larger one, from its first byte on.
    Longer(Body),
}

/// Reads an answer whole.
///
/// # Errors
/// [`Interrupted`].
pub async fn whole(body: Body) -> Result<Bytes, Interrupted> {
    match begun(body).await? {
        Begun::Whole(bytes) => Ok(bytes),
        Begun::Longer(_) => Err(Interrupted::TooLarge),
    }
}

/// Reads an answer whole that can be held; a larger one is left to be passed on. At most [`WHOLE_BODY_BYTES_MAX`] and one frame are
/// held.
///
/// # Errors
/// [`Interrupted::Broken`] and [`Interrupted::Late`].
pub async fn begun(mut body: Body) -> Result<Begun, Interrupted> {
    let deadline = Instant::now() + WHOLE_WITHIN;
    let (mut chunks, mut length) = (Vec::<Bytes>::new(), 0);
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| Interrupted::Late)?;
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(Interrupted::Broken)?.into_data() else { continue };
        length += data.len();
        chunks.push(data);
        if length > WHOLE_BODY_BYTES_MAX {
            let held = stream::iter(chunks).map(|chunk| Ok(Frame::data(chunk)));
            let rest = BodyStream::new(body);
            return Ok(Begun::Longer(StreamBody::new(held.chain(rest)).boxed_unsync()));
        }
    }
    // Most answers are one frame: it is passed on as it is.
    Ok(Begun::Whole(match chunks.len() {
        1 => chunks.swap_remove(0),
        _ => chunks.concat().into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body;

    fn chunk(bytes: usize) -> Result<Frame<Bytes>, BoxError> {
        Ok(Frame::data(vec![b'x'; bytes].into()))
    }

    fn body_of(frames: Vec<Result<Frame<Bytes>, BoxError>>) -> Body {
        StreamBody::new(stream::iter(frames)).boxed_unsync()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_whole_or_interrupted() {
        assert_eq!(whole(body::full("x")).await.unwrap(), "x");
        assert_eq!(whole(body::empty()).await.unwrap(), "");
        assert_eq!(whole(body_of(vec![chunk(3), chunk(4)])).await.unwrap().len(), 7);
        let broken = body_of(vec![chunk(3), Err("reset".into())]);
        assert!(matches!(whole(broken).await, Err(Interrupted::Broken(_))));
        assert!(matches!(whole(body_of(vec![chunk(WHOLE_BODY_BYTES_MAX + 1)])).await, Err(Interrupted::TooLarge)));
        let silent = StreamBody::new(stream::iter([chunk(3)]).chain(stream::pending())).boxed_unsync();
        let begun = Instant::now();
        assert!(matches!(whole(silent).await, Err(Interrupted::Late)));
        assert_eq!(begun.elapsed(), WHOLE_WITHIN);
    }

    #[tokio::test]
    async fn what_is_too_large_to_be_held_is_passed_on_from_its_first_byte() {
        let half = WHOLE_BODY_BYTES_MAX / 2 + 1;
        let Ok(Begun::Longer(body)) = begun(body_of(vec![chunk(half), chunk(half), chunk(5)])).await else {
            panic!("it was held")
        };
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 2 * half + 5);
    }
}
