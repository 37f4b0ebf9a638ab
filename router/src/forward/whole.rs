//! Reading of a member's whole answer, within limits of bytes and of time.
//!
//! A member that has begun to answer may have acted on the request. So a failure to read the answer must not make a
//! client repeat the request automatically. Tributary reserves bytes for the likely size of the answer before it sends
//! the request, when a refusal is still possible. More bytes are reserved as the answer arrives. If many members answer
//! one request, a [`Reserve`] provides memory for answers beyond the limit.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};
use tributary_answers::refusal::{MemberRefusal, Refusal};
use tributary_apimachinery::ClusterName;
use tributary_sharing::body::{self, Body, BoxError, CollectedFrames, WHOLE_BODY_BYTES_MAX};
use tributary_sharing::flow::fair_semaphore::{Exceeded, FairPermit};
use tributary_sharing::flow::large_bodies::{LargeBodies, at_once};
use tributary_sharing::limits::WHOLE_ANSWER_TIMEOUT;

use crate::Router;
use crate::caller::Caller;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Interrupted {
    #[error("the body broke off: {0}")]
    Broken(BoxError),
    /// The answer took longer than [`WHOLE_ANSWER_TIMEOUT`], or longer than it may use a [`Reserve`].
    #[error("the body was not complete within {} s", WHOLE_ANSWER_TIMEOUT.as_secs())]
    Late,
    /// The answer exceeds the size limit for whole answers.
    #[error("the body is larger than {WHOLE_BODY_BYTES_MAX} bytes")]
    TooLarge,
    /// The answer is larger than expected, and the limit of body bytes is reached.
    #[error("{0}")]
    NoRoom(Exceeded),
}

/// Step by which the reservation for an answer grows, in bytes. A member may send very small frames, and a reservation
/// for each frame would be slow.
const STEP_BYTES: usize = 16 << 10;

/// Memory for one answer of [`WHOLE_BODY_BYTES_MAX`], shared by all answers to one request. An answer uses this memory
/// if it exceeds the limit of body bytes. Only one answer uses the memory at a time, for at most half of the request's
/// remaining time, so that a slow answer leaves time for the others.
pub(crate) struct Reserve {
    reservation: Mutex<FairPermit>,
    until: Instant,
}

/// Part of the limit of body bytes that a [`Reserve`] may use at most: a quarter. A single client may use three eighths
/// of the limit.
const RESERVED: usize = 4;

impl Reserve {
    /// Reserves the bytes for a request that ends at `until`. Must be called before the request is sent.
    ///
    /// # Errors
    /// 429 at the limit of body bytes. No member has acted on the request.
    pub(crate) fn for_request(router: &Router, caller: &Caller, until: Instant) -> Result<Self, Exceeded> {
        let all = router.held_bytes();
        let bytes = WHOLE_BODY_BYTES_MAX.min(all.max() / RESERVED);
        Ok(Self { reservation: Mutex::new(all.acquire(caller.share_key, bytes)?), until })
    }

    /// Returns the time for which the next answer may use the reserve: half of the remaining time.
    fn share(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()) / 2
    }
}

/// Reserved bytes of one answer.
struct AnswerMemory<'a> {
    own: FairPermit,
    reserve: Option<&'a Reserve>,
    /// Exclusive use of the reserve by this answer, and the deadline of this use.
    reserved: Option<(MutexGuard<'a, FairPermit>, Instant)>,
}

impl AnswerMemory<'_> {
    /// Increases the reservation to `bytes` bytes. May wait until a different answer releases the reserve.
    async fn grow_to(&mut self, bytes: usize) -> Result<(), Exceeded> {
        if let Some((reserved, _)) = &mut self.reserved {
            return reserved.grow_in_steps_to(bytes, STEP_BYTES);
        }
        match (self.own.grow_in_steps_to(bytes, STEP_BYTES), self.reserve) {
            (Err(_), Some(reserve)) => {
                let reserved = reserve.reservation.lock().await;
                let (reserved, _) = self.reserved.insert((reserved, Instant::now() + reserve.share()));
                reserved.grow_in_steps_to(bytes, STEP_BYTES)
            }
            (grown, _) => grown,
        }
    }

    /// Releases the reserve if the limit of body bytes now allows `bytes` bytes without the reserve.
    fn leave_reserve(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.own.amount());
        if self.reserved.is_some() && self.own.try_grow(missing).is_ok() {
            self.reserved = None;
        }
    }

    /// Returns the deadline of the reserved bytes; `None` if the answer does not use the reserve.
    fn until(&self) -> Option<Instant> {
        self.reserved.as_ref().map(|(_, until)| *until)
    }
}

impl Interrupted {
    /// Returns the 502 for the client. Clients do not repeat a 502 automatically.
    pub(crate) fn refusal(&self, cluster: &ClusterName) -> Refusal {
        MemberRefusal::Interrupted { cluster: cluster.clone(), cause: self.to_string() }.into()
    }
}

enum Begun {
    Whole(Bytes, FairPermit),
    /// An answer that does not fit into memory, from its first byte, and the reason.
    Longer(Body, Interrupted),
}

/// Reads a whole answer. `reservation` counts the bytes of the answer as they arrive, and must be kept as long as the
/// answer.
///
/// # Errors
/// [`Interrupted`].
pub(crate) async fn whole(body: Body, reservation: FairPermit) -> Result<(Bytes, FairPermit), Interrupted> {
    match begun(body, reservation).await? {
        Begun::Whole(bytes, reservation) => Ok((bytes, reservation)),
        Begun::Longer(_, why) => Err(why),
    }
}

/// Reads one of many answers to a request, calls `look` with the answer, and returns the result of `look`. `own`
/// reserves the bytes of the answer as they arrive. At the limit of body bytes, the answer uses the reserve. For a
/// large answer, the function waits for a CPU slot for at most half of the remaining time, and then calls `look`
/// without a slot: Tributary must record the member's action before the request ends, and must release the reserve.
///
/// # Errors
/// [`Interrupted`]; [`Interrupted::NoRoom`] only if the reserve is smaller than [`WHOLE_BODY_BYTES_MAX`], and
/// [`Interrupted::Late`] earlier if other answers may wait for the reserve.
pub(crate) async fn inspect_whole<T>(
    mut body: Body,
    own: FairPermit,
    reserve: &Reserve,
    large_bodies: &LargeBodies,
    look: impl FnOnce(&[u8]) -> T,
) -> Result<T, Interrupted> {
    let mut reservation = AnswerMemory { own, reserve: Some(reserve), reserved: None };
    match read(&mut body, &mut reservation).await? {
        (text, None) => {
            let bytes = text.len();
            reservation.leave_reserve(bytes);
            let until = reservation.until().unwrap_or_else(|| Instant::now() + reserve.share());
            let body_permit = timeout_at(until, large_bodies.body_permit(reservation.own.share_key(), bytes)).await;
            let look = || look(&Bytes::from(text));
            Ok(match body_permit {
                Ok(body_permit) => body_permit.run(look),
                Err(_) => at_once(bytes, look),
            })
        }
        (_, Some(why)) => Err(why),
    }
}

/// Calls `look` with an answer before the client gets the answer. If the answer does not fit into memory, passes it on
/// without the call. `look` runs without a CPU slot, so that it does not have to wait: the member has done the write
/// even if the client gives up. During the call, a different thread takes over this thread's tasks.
///
/// # Errors
/// [`Interrupted::Broken`] and [`Interrupted::Late`].
pub(super) async fn inspect_while_forwarding(
    body: Body,
    reservation: FairPermit,
    look: impl FnOnce(&Bytes),
) -> Result<Body, Interrupted> {
    match begun(body, reservation).await? {
        Begun::Whole(text, _room) => {
            at_once(text.len(), || look(&text));
            Ok(body::full(text))
        }
        Begun::Longer(body, _) => Ok(body),
    }
}

/// Reads a whole answer if it fits into memory, and otherwise returns the body to be passed on. At most
/// [`WHOLE_BODY_BYTES_MAX`] and one frame are in memory.
///
/// # Errors
/// [`Interrupted::Broken`] and [`Interrupted::Late`].
async fn begun(mut body: Body, reservation: FairPermit) -> Result<Begun, Interrupted> {
    let likely = reservation.amount();
    let mut reservation = AnswerMemory { own: reservation, reserve: None, reserved: None };
    let (text, why) = read(&mut body, &mut reservation).await?;
    reservation.own.shrink_to(text.len().max(likely));
    Ok(match why {
        None => Begun::Whole(text.into(), reservation.own),
        Some(why) => Begun::Longer(from_its_beginning(text.into(), reservation.own, body), why),
    })
}

/// Reads an answer. Returns the text that was read, and the reason if it is not the whole answer. The time limit of the
/// member does not include the wait for memory.
async fn read(
    body: &mut Body,
    reservation: &mut AnswerMemory<'_>,
) -> Result<(CollectedFrames, Option<Interrupted>), Interrupted> {
    let mut deadline = Instant::now() + WHOLE_ANSWER_TIMEOUT;
    let mut text = CollectedFrames::default();
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| Interrupted::Late)?;
        let Some(frame) = frame else { return Ok((text, None)) };
        let Ok(data) = frame.map_err(Interrupted::Broken)?.into_data() else { continue };
        text.push(data);
        if text.len() > WHOLE_BODY_BYTES_MAX {
            return Ok((text, Some(Interrupted::TooLarge)));
        }
        let waiting = Instant::now();
        if let Err(exceeded) = reservation.grow_to(text.len()).await {
            return Ok((text, Some(Interrupted::NoRoom(exceeded))));
        }
        deadline += waiting.elapsed();
        deadline = reservation.until().map_or(deadline, |until| until.min(deadline));
    }
}

/// Returns a body that consists of the bytes already read and of the remaining body. The reservation lasts until the
/// client has got the bytes already read.
fn from_its_beginning(read: Bytes, reservation: FairPermit, rest: Body) -> Body {
    let read = stream::iter([read]).map(move |text| {
        let _held = &reservation;
        Ok(Frame::data(text))
    });
    StreamBody::new(read.chain(BodyStream::new(rest))).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::super::reservation::ADDED_BYTES;
    use super::*;
    use tributary_sharing::flow::fair_semaphore::{FairSemaphore, ShareMetrics};
    use tributary_sharing::flow::share_key::ShareKey;

    fn chunk(bytes: usize) -> Result<Frame<Bytes>, BoxError> {
        Ok(Frame::data(vec![b'x'; bytes].into()))
    }

    fn body_of(frames: Vec<Result<Frame<Bytes>, BoxError>>) -> Body {
        StreamBody::new(stream::iter(frames)).boxed_unsync()
    }

    fn share(max: usize) -> (Arc<FairSemaphore>, ShareMetrics) {
        let metrics = ShareMetrics::default();
        (FairSemaphore::new("bytes of bodies", max, metrics.clone()), metrics)
    }

    async fn whole(body: Body) -> Result<Bytes, Interrupted> {
        let reservation = share(64 << 20).0.acquire(ShareKey::Unknown, ADDED_BYTES).unwrap();
        super::whole(body, reservation).await.map(|(text, _)| text)
    }

    #[tokio::test(start_paused = true)]
    async fn member_answer_is_read_whole_or_fails_with_a_cause() {
        assert_eq!(whole(body::full("x")).await.unwrap(), "x");
        assert_eq!(whole(body::empty()).await.unwrap(), "");
        assert_eq!(whole(body_of(vec![chunk(3), chunk(4)])).await.unwrap().len(), 7);
        let broken = body_of(vec![chunk(3), Err("reset".into())]);
        assert!(matches!(whole(broken).await, Err(Interrupted::Broken(_))));
        assert!(matches!(whole(body_of(vec![chunk(WHOLE_BODY_BYTES_MAX + 1)])).await, Err(Interrupted::TooLarge)));
        let silent = StreamBody::new(stream::iter([chunk(3)]).chain(stream::pending())).boxed_unsync();
        let begun = Instant::now();
        assert!(matches!(whole(silent).await, Err(Interrupted::Late)));
        assert_eq!(begun.elapsed(), WHOLE_ANSWER_TIMEOUT);
    }

    fn trickling(seconds: u64) -> Body {
        let bytes = stream::iter(0..seconds).then(|_| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            chunk(1)
        });
        StreamBody::new(Box::pin(bytes)).boxed_unsync()
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_release_the_memory_reserve_before_the_request_ends() {
        let (share, _) = share(80 << 10);
        let reservation = Mutex::new(share.acquire(ShareKey::Unknown, 20 << 10).unwrap());
        let until = Instant::now() + Duration::from_secs(60);
        let reserve = Reserve { reservation, until };
        let large_bodies = LargeBodies::default();
        // The other clients use the remainder of the limit.
        let _others = share.acquire(ShareKey::Unknown, 10 << 10).unwrap();
        let seen = |body| {
            inspect_whole(body, share.acquire(ShareKey::Unknown, 0).unwrap(), &reserve, &large_bodies, <[u8]>::len)
        };
        let slow = (0..5).map(|_| seen(trickling(29)));
        let prompt = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            seen(body::full("prompt")).await
        };
        let (slow, prompt) = futures::join!(futures::future::join_all(slow), prompt);
        assert_eq!(prompt.unwrap(), 6);
        assert!(Instant::now() < until, "the request would have been ended");
        assert_eq!(slow[0].as_ref().unwrap(), &29, "half of the time is enough for one that takes as long as it may");
        assert!(slow[1..].iter().all(|slow| matches!(slow, Err(Interrupted::Late))));
    }

    #[tokio::test]
    async fn oversized_answer_is_passed_on_from_its_first_byte() {
        let half = WHOLE_BODY_BYTES_MAX / 2 + 1;
        let reservation = share(64 << 20).0.acquire(ShareKey::Unknown, 0).unwrap();
        let longer = begun(body_of(vec![chunk(half), chunk(half), chunk(5)]), reservation).await;
        let Ok(Begun::Longer(body, Interrupted::TooLarge)) = longer else { panic!("it was held") };
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 2 * half + 5);
    }

    #[derive(Clone, Copy, Debug)]
    enum Way {
        OneOfMany,
        InPassing,
    }

    /// Calls `look` with an answer of `bytes` bytes, through the function that `way` selects.
    async fn seen(way: Way, bytes: usize, large_bodies: &LargeBodies, look: impl FnOnce()) {
        let reservation = share(64 << 20).0.acquire(ShareKey::Unknown, 0).unwrap();
        let reserved = Mutex::new(share(64 << 20).0.acquire(ShareKey::Unknown, 0).unwrap());
        let reserve = Reserve { reservation: reserved, until: Instant::now() + WHOLE_ANSWER_TIMEOUT };
        let body = body_of(vec![chunk(bytes / 2), chunk(bytes - bytes / 2)]);
        let see = |text: &[u8]| {
            assert_eq!(text.len(), bytes);
            look();
        };
        match way {
            Way::OneOfMany => inspect_whole(body, reservation, &reserve, large_bodies, see).await.unwrap(),
            Way::InPassing => {
                let passed = inspect_while_forwarding(body, reservation, |text| see(text)).await.unwrap();
                assert_eq!(passed.collect().await.unwrap().to_bytes().len(), bytes);
            }
        }
    }

    #[tokio::test]
    async fn large_answer_among_many_waits_for_a_cpu_slot() {
        let large_bodies = LargeBodies::one_at_a_time();
        let of_another = large_bodies.body_permit(ShareKey::Unknown, 1 << 20).await;
        assert!(seen(Way::OneOfMany, 1 << 10, &large_bodies, || ()).now_or_never().is_some(), "a small one at once");
        let large = seen(Way::OneOfMany, 1 << 20, &large_bodies, || ());
        let mut large = std::pin::pin!(large);
        assert!(large.as_mut().now_or_never().is_none(), "its turn is taken");
        drop(of_another);
        large.await;
    }

    /// Makes a reserve of `bytes` bytes, and portions that use up the limit.
    fn all_but_a_reserve(share: &Arc<FairSemaphore>, bytes: usize) -> (Reserve, Vec<FairPermit>) {
        let reservation = Mutex::new(share.acquire(ShareKey::Unknown, bytes).unwrap());
        let others = std::iter::from_fn(|| share.acquire(ShareKey::Unknown, 1 << 10).ok()).collect();
        (Reserve { reservation, until: Instant::now() + Duration::from_secs(60) }, others)
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_are_examined_before_the_deadline_without_a_cpu_slot() {
        const BYTES: usize = 100 << 10;
        let large_bodies = LargeBodies::one_at_a_time();
        let _of_another = large_bodies.body_permit(ShareKey::Unknown, BYTES).await;
        let (share, _) = share(1 << 20);
        let (reserve, _others) = all_but_a_reserve(&share, BYTES);
        let looks = AtomicUsize::new(0);
        let look = |text: &[u8]| {
            assert_eq!(text.len(), BYTES);
            looks.fetch_add(1, Ordering::Relaxed);
        };
        let roomy = super::tests::share(1 << 20).0;
        let portions = [
            share.acquire(ShareKey::Unknown, 0),
            share.acquire(ShareKey::Unknown, 0),
            roomy.acquire(ShareKey::Unknown, 0),
        ]
        .map(Result::unwrap);
        let seen = portions.map(|own| inspect_whole(body_of(vec![chunk(BYTES)]), own, &reserve, &large_bodies, look));
        // All calls of `look` end before the end of the request.
        let all = timeout_at(reserve.until, futures::future::try_join_all(seen)).await;
        assert_eq!(looks.load(Ordering::Relaxed), 3);
        all.expect("in time").unwrap();
    }

    #[tokio::test]
    async fn answer_releases_the_memory_reserve_while_waiting_for_a_cpu_slot() {
        const BYTES: usize = 100 << 10;
        let large_bodies = LargeBodies::one_at_a_time();
        let of_another = large_bodies.body_permit(ShareKey::Unknown, BYTES).await;
        let (share, _) = share(1 << 20);
        let (reserve, others) = all_but_a_reserve(&share, BYTES);
        let (end, ended) = oneshot::channel::<()>();
        let rest = stream::once(ended).filter_map(|_| futures::future::ready(None));
        let body = StreamBody::new(stream::iter([chunk(BYTES)]).chain(rest)).boxed_unsync();
        let mut seen = std::pin::pin!(inspect_whole(
            body,
            share.acquire(ShareKey::Unknown, 0).unwrap(),
            &reserve,
            &large_bodies,
            <[u8]>::len
        ));
        assert!(seen.as_mut().now_or_never().is_none(), "there is more to come");
        assert!(reserve.reservation.try_lock().is_err(), "nothing else is left");
        drop(others);
        end.send(()).unwrap();
        assert!(seen.as_mut().now_or_never().is_none(), "its turn is taken");
        assert!(reserve.reservation.try_lock().is_ok(), "others need it now");
        drop(of_another);
        assert_eq!(seen.await.unwrap(), BYTES);
    }

    #[tokio::test]
    async fn large_answer_to_a_write_is_recorded_without_a_cpu_slot() {
        let large_bodies = LargeBodies::one_at_a_time();
        let _of_another = large_bodies.body_permit(ShareKey::Unknown, 1 << 20).await;
        assert!(seen(Way::InPassing, 1 << 20, &large_bodies, || ()).now_or_never().is_some());
    }

    /// The runtime has a single worker thread, which examines an answer while another task runs.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn examination_of_a_large_answer_blocks_no_worker_thread() {
        for way in [Way::OneOfMany, Way::InPassing] {
            let (begun, has_begun) = oneshot::channel();
            let (go_on, may_go_on) = mpsc::channel::<()>();
            let looks = tokio::spawn(async move {
                let look = move || {
                    begun.send(()).unwrap();
                    may_go_on.recv_timeout(Duration::from_secs(60)).unwrap();
                };
                seen(way, 1 << 20, &LargeBodies::default(), look).await;
            });
            let other = tokio::spawn(async move {
                has_begun.await.unwrap();
                go_on.send(()).unwrap();
            });
            other.await.unwrap();
            looks.await.unwrap();
        }
    }

    #[tokio::test]
    async fn answer_in_tiny_frames_takes_only_its_own_bytes() {
        const PIECES: usize = 100 << 10;
        let tiny = || StreamBody::new(stream::iter((0..PIECES).map(|_| chunk(1)))).boxed_unsync();
        // One client may use three eighths of the limit, 48 KiB. A longer answer is passed on, and its first frame is
        // the part that was already read.
        let (narrow, metrics) = share(128 << 10);
        let Ok(Begun::Longer(body, Interrupted::NoRoom(_))) =
            begun(tiny(), narrow.acquire(ShareKey::Unknown, 0).unwrap()).await
        else {
            panic!("it was held")
        };
        assert_eq!(metrics.used.get(), 48 << 10);
        let mut frames = BodyStream::new(body);
        let first = frames.next().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), (48 << 10) + 1, "all that was read");
        assert_eq!(frames.count().await, PIECES - first.len());

        let (wide, metrics) = share(1 << 20);
        let (text, permit) = super::whole(tiny(), wide.acquire(ShareKey::Unknown, 0).unwrap()).await.unwrap();
        assert_eq!((text.len(), permit.amount(), metrics.used.get()), (PIECES, PIECES, PIECES as i64));
        assert_eq!(metrics.refused.get(), 0, "a step that is too long for the room is no refusal");
    }

    #[tokio::test]
    async fn bytes_of_an_answer_use_the_limit_until_their_release() {
        let (share, metrics) = share(80 << 10);
        let reservation = || share.acquire(ShareKey::Unknown, 1 << 10).unwrap();
        let (text, permit) = super::whole(body_of(vec![chunk(500), chunk(2 << 10)]), reservation()).await.unwrap();
        assert_eq!((text.len() as i64, metrics.used.get()), (2548, 2548));
        drop(permit);
        // One client may use three eighths of the limit, 30 KiB. A longer answer does not fit, and is passed on if it
        // may stay unchanged.
        let large = || body_of(vec![chunk(20 << 10), chunk(20 << 10), chunk(5)]);
        assert!(matches!(super::whole(large(), reservation()).await, Err(Interrupted::NoRoom(_))));
        assert_eq!(metrics.used.get(), 0);
        let Ok(Begun::Longer(body, Interrupted::NoRoom(_))) = begun(large(), reservation()).await else {
            panic!("it was held")
        };
        assert_eq!(metrics.used.get(), 20 << 10, "until it is given");
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), (40 << 10) + 5);
        assert_eq!(metrics.used.get(), 0);
    }
}
