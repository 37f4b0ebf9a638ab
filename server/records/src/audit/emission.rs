//! The result of writing one event, which may be pending.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The result of writing an event: `true` if its request may be processed. Dropping a pending result does not refuse
/// the request.
pub(crate) enum Emission {
    /// The write of an event has ended with this result.
    Done(bool),
    Waiting(Pin<Box<dyn Future<Output = bool> + Send>>),
}

impl Emission {
    pub(crate) fn waiting(emission: impl Future<Output = bool> + Send + 'static) -> Self {
        Self::Waiting(Box::pin(emission))
    }

    /// Changes the result of the event's write to `true`. The request still waits for the write, and is processed even
    /// if the write fails.
    pub(crate) fn ignore_failure(self) -> Self {
        match self {
            Self::Done(_) => Self::Done(true),
            Self::Waiting(emission) => Self::waiting(async {
                let _it_goes_on_either_way = emission.await;
                true
            }),
        }
    }

    /// Completes the pending write of an event in a background task.
    pub(crate) fn detach(self) {
        if let (Self::Waiting(emission), Ok(runtime)) = (self, tokio::runtime::Handle::try_current()) {
            runtime.spawn(emission);
        }
    }
}

impl Future for Emission {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        match self.get_mut() {
            Self::Done(done) => Poll::Ready(*done),
            Self::Waiting(emission) => emission.as_mut().poll(cx),
        }
    }
}
