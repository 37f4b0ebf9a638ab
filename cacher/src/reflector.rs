//! The task that lists and watches.

use std::sync::Arc;

use crate::Transport;
use crate::cacher::Shared;
use crate::update::Observer;

pub(crate) struct Reflector {
    _shared: Arc<Shared>,
}

impl Reflector {
    pub(crate) fn new(shared: Arc<Shared>, _transport: Transport, _observer: Arc<dyn Observer>) -> Self {
        Self { _shared: shared }
    }

    pub(crate) async fn run(self) {
        std::future::pending().await
    }
}
