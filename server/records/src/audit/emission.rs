//! The writing of one event.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The result of writing an event: whether its request may go on. Dropping it does not stop the request.
pub(crate) enum Emission {
    /// The result is known.
    Done(bool),
    /// The result is not known yet.
    Waiting(Pin<Box<dyn Future<Output = bool> + Send>>),
}

impl Emission {
    /// Creates a pending result.
    pub(crate) fn waiting(emission: impl Future<Output = bool> + Send + 'static) -> Self {
        Self::Waiting(Box::pin(emission))
    }

    /// Changes the result to success: the request waits for the emission, and continues even if it fails.
    pub(crate) fn in_any_case(self) -> Self {
        match self {
            Self::Done(_) => Self::Done(true),
            Self::Waiting(emission) => Self::waiting(async {
                let _it_goes_on_either_way = emission.await;
                true
            }),
        }
    }

    /// Completes the writing in the background.
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
