//! Implements the listener's service with the front.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use http::{Request, Response};
use tributary_listener::{
    AnswerCapacity, AuthenticationOutcome, Handshake, LimitCheck, ListenerRefusal, RequestService, ServiceAnswer,
};
use tributary_router::{Answer, RememberedActor};

use super::{Client, Front};
use crate::authentication::ClientChain;
use crate::handler::{Body, Handler};

impl<H: Handler> RequestService for Front<H> {
    type Client = Client;

    fn client(&self, handshake: Handshake<'_>) -> Client {
        let Handshake { address, certificates, server_name } = handshake;
        let chain = Arc::new(ClientChain::new(certificates));
        Client { address, chain, server_name, actor: RememberedActor::default() }
    }

    fn report_refused_certificate(&self, peer: SocketAddr, reason: &str) {
        self.authentication_failures.log_handshake(peer, reason);
    }

    // This is no `async fn`, because its future would store the request a second time in each stream.
    fn answer_request(
        &self,
        request: Request<Body>,
        client: &Client,
        record_outcome: impl FnOnce(AuthenticationOutcome<'_>) -> LimitCheck + Send,
        answer_capacity: AnswerCapacity<impl FnOnce(Response<Body>) -> Result<Response<Body>, ListenerRefusal> + Send>,
    ) -> impl Future<Output = ServiceAnswer> + Send {
        self.call(request, client, record_outcome, answer_capacity)
            .map(|Answer { response, class, .. }| ServiceAnswer { response, class })
    }

    fn refuse_request<B>(&self, request: Request<B>, client: &Client, refusal: ListenerRefusal) -> ServiceAnswer {
        self.refuse(request, client, refusal).into()
    }

    async fn drain(&self) {
        self.handler.drain().await;
    }
}
