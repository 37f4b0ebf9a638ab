//! An event on its way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What becomes of an event that was given away: whether its request may go on. Dropped, it goes on all the same.
pub(crate) enum Emission {
    /// It is known already.
    Done(bool),
    /// It will be.
    Waiting(Pin<Box<dyn Future<Output = bool> + Send>>),
}

impl Emission {
    /// One that takes a while.
    pub(crate) fn waiting(emission: impl Future<Output = bool> + Send + 'static) -> Self {
        Self::Waiting(Box::pin(emission))
    }

    /// The same, after which the request may go on whatever became of it.
    pub(crate) fn in_any_case(self) -> Self {
        match self {
            Self::Done(_) => Self::Done(true),
            Self::Waiting(emission) => Self::waiting(async {
                let _it_goes_on_either_way = emission.await;
                true
            }),
        }
    }

    /// Lets it come to its end although nobody waits for it.
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
