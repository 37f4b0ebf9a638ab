//! One request, from its reading to its answer: its stages, and what a refusal looks like.

mod act;
mod observe;

use std::pin::pin;
use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use tokio::time::Instant;
use tributary_answers::negotiate::Preferences;
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::{Mount, RequestClass, RequestInfo, Verb};
use tributary_fleet::discovery::DiscoveryPath;
use tributary_fleet::metrics::{ClientClass, Decision};
use tributary_fleet::report;
use tributary_fleet::topology::Cluster;
use tributary_proxy::headers::Recipient;
use tributary_sharing::body::{self, Body};

use crate::admission::{self, Admitted};
use crate::caller::Caller;
use crate::configuration::ConfigurationSnapshot;
use crate::dispatch::{Dispatched, SchemaName};
use crate::plan::{Plan, ResourcePlan, plan};
use crate::received::Received;
use crate::request_reading::RequestReading;
use crate::request_trace::RequestTrace;
use crate::unknown_rights::{self, RightsUnknown};
use crate::{Router, User, asked, confinement, deadline, forward, health, response, switching};
use observe::Noted;

/// When a client is to come back that asks for a resource which only clusters that were not asked yet may serve,
/// in seconds.
const UNDISCOVERED_RETRY_AFTER: u32 = 5;

/// Refuses the answer to a user whom an earlier cluster of a name has vouched for: of the cluster that the name means
/// now it is another user.
fn unless_replaced(
    answer: Result<Response<Body>, Refusal>,
    configuration: &ConfigurationSnapshot,
    user: &User,
) -> Result<Response<Body>, Refusal> {
    let home = user.authority.reach.home().and_then(|home| configuration.clusters.get(home));
    match home.filter(|home| home.incarnation().has_ended()) {
        Some(home) => Err(crate::forward::send::refuse_replaced(home)),
        None => answer,
    }
}

impl Router {
    /// Answers one request. Never fails: an error is a Status. Dropping the future cancels what it started.
    ///
    /// What stands at the root of its path is a [`Mount`] among its extensions; without one that is the merged view.
    /// Whoever has read the path before leaves the [`RequestReading`] there: what is written of a request and what is
    /// done are by one reading.
    pub async fn handle(self: &Arc<Self>, mut message: Request<Body>, user: &User) -> Response<Body> {
        let started = Instant::now();
        // Shared with the message, not copied.
        let target = message.uri().path_and_query().cloned();
        let path = target.as_ref().map_or("", PathAndQuery::path);
        let query = target.as_ref().and_then(PathAndQuery::query);
        let reading = message.extensions_mut().remove::<RequestReading>().unwrap_or_else(|| {
            let mount = message.extensions().get::<Mount>().cloned().unwrap_or_default();
            RequestReading::parse(&mount, message.method().as_str(), path, query)
        });
        let parsed = reading.info();
        let is_head = message.method() == Method::HEAD;
        let preferences = Preferences::from_headers(message.headers(), query);
        let class = parsed.map_or(RequestClass::Short, RequestInfo::class);
        // Whoever sends it on to a member goes by this one reading of it; of what is short nothing is said.
        if class.is_long_running() {
            message.extensions_mut().insert(class);
        }
        if parsed.is_ok_and(RequestInfo::is_for_workload) {
            message.extensions_mut().insert(Recipient::Workload);
        }
        let client = ClientClass::from_headers(message.headers());
        let trace = message.extensions_mut().get_or_insert_default::<RequestTrace>().clone();
        let configuration = self.configuration();
        let (counted, mut response) = match parsed {
            Ok(info) => {
                tracing::debug!(user = user.info.username, verb = %info.verb, path, "request");
                trace.note_served(|| observe::served_resource(info, &configuration.union));
                let may_switch = switching::asks_to_switch(message.headers_mut(), info);
                let received = Received { info, query, is_head, may_switch, preferences: &preferences };
                let mut noted = Noted::nothing();
                let answer = self.answer_in_stages(message, received, &configuration, user, &mut noted).await;
                let answer = unless_replaced(answer, &configuration, user);
                let became = (noted.source, answer.as_ref().err());
                let counted = observe::counted(info, &configuration, became, &trace, client);
                let answer = answer.unwrap_or_else(|refusal| self.refuse(&refusal, &preferences, info));
                (counted, noted.told_by(answer))
            }
            Err(status) => {
                (observe::counted_unread(&trace, client), response::status(status, preferences.error_form()))
            }
        };
        if is_head {
            *response.body_mut() = body::empty();
        }
        if self.rights().is_some() {
            confinement::confine(&mut response);
        }
        // How long its reader may take is judged by the connection.
        if class.is_long_running() {
            response.extensions_mut().insert(class);
        }
        self.metrics.observe(&counted, response.status(), started.elapsed());
        response
    }

    /// The answer to whatever is sent to a cluster to which nothing is dispatched at all, whoever sends it; `None`
    /// where something is. Costs one load while there are no policies.
    pub fn refuse_frozen(&self, head: &mut Parts) -> Option<Response<Body>> {
        let started = Instant::now();
        let dispatch = self.dispatch.current()?;
        let mount = head.extensions.get::<Mount>().cloned().unwrap_or_default();
        let (cluster, _) = mount.split(head.uri.path()).ok()?;
        let refusal = Refusal::from(dispatch.frozen(&cluster?)?);
        let preferences = Preferences::from_headers(&head.headers, head.uri.query());
        let answer = response::status(&refusal.status(), preferences.error_form());
        head.extensions.get_or_insert_default::<RequestTrace>().note_decision(Decision::Denied);
        self.count_unheard(head, answer.status(), started);
        Some(answer)
    }

    /// Whether what tells of all clusters at once, and is no part of the API, may be answered: metrics and the report.
    /// One person's endpoint tells its owner everything.
    ///
    /// # Errors
    /// The answer to give instead: 403, in kube-apiserver's words.
    pub async fn may_visit(&self, head: &Parts, user: &User) -> Result<(), Box<Response<Body>>> {
        let (path, query) = (head.uri.path(), head.uri.query());
        let preferences = Preferences::from_headers(&head.headers, query);
        let caller = Caller::from_request(&head.headers, &head.extensions, user, self.rights());
        let may_visit = match caller {
            Ok(caller) => caller.may_visit(path).await,
            Err(refusal) => Err(refusal),
        };
        match may_visit {
            Ok(()) => Ok(()),
            Err(refusal) => Err(Box::new(response::status(&refusal.status(), preferences.error_form()))),
        }
    }

    /// The stages of a request whose path was read, in their order; each may refuse it. What it
    /// holds of its schema it does until its answer's body is over.
    async fn answer_in_stages<'a>(
        self: &Arc<Self>,
        mut message: Request<Body>,
        received: Received<'_>,
        configuration: &'a ConfigurationSnapshot,
        user: &User,
        noted: &mut Noted<'a>,
    ) -> Result<Response<Body>, Refusal> {
        let Received { info, query, may_switch, .. } = received;
        let trace = message.extensions().get::<RequestTrace>().cloned().unwrap_or_default();
        let admitting = trace.stage("admit");
        let Admitted { mut caller, place } = admission::admit(self, received, &message, user)?;
        caller.dispatched = self.dispatched(received, message.headers(), configuration, &caller, user)?;
        let named = caller.dispatched.as_ref().map_or(&SchemaName::Unsaid, |dispatched| dispatched.schema());
        let schema = configuration.flow_control.schema_of(info, named);
        noted.schema = schema;
        if may_switch {
            place.kept_by_tunnel(&mut message);
        }
        let acted = pin!(async {
            let union = &configuration.union;
            let held = match schema {
                Some(schema) => Some(schema.admit(received, user, &caller, union, message.extensions_mut()).await?),
                None => None,
            };
            drop(admitting);
            let planning = trace.stage("plan");
            let planned = plan(received, message.headers(), configuration, &caller);
            drop(planning);
            let answered = match planned {
                // What nobody serves may be served since a moment ago.
                Err(Refusal::NoRoute) if info.cluster.is_none() && info.path.starts_with("/api") => {
                    Box::pin(self.answer_anew(message, received, &caller, noted)).await
                }
                planned => {
                    let plan = planned?;
                    noted.source = plan.source();
                    self.act(message, received, configuration, &caller, (plan, &mut noted.warning)).await
                }
            };
            let is_of_unknown_rights = match &answered {
                Err(refusal) => refusal.is_of_unknown_rights(),
                Ok(answer) => answer.extensions().get::<RightsUnknown>().is_some(),
            };
            let answered = match is_of_unknown_rights {
                true => Box::pin(self.told_of_rights(answered, &caller)).await,
                false => answered,
            };
            match held {
                Some(held) => answered.map(|answer| answer.map(|body| body::holding(body, held))),
                None => answered,
            }
        });
        let acted = pin!(caller.unless_crowded(info.verb, acted));
        let answer = deadline::within(info, query, self.request_timeout(), &caller.awaited, acted).await?;
        Ok(place.kept_by_body(answer))
    }

    /// What dispatch policies say of a request before it is planned. Without policies only what lasts or may is
    /// remembered, which they may refuse later.
    ///
    /// # Errors
    /// 403, 429 and 500 that name the policy; 400 for whoever asks to be somebody in no text.
    fn dispatched(
        &self,
        Received { info, may_switch, .. }: Received<'_>,
        headers: &HeaderMap,
        configuration: &ConfigurationSnapshot,
        caller: &Caller,
        user: &User,
    ) -> Result<Option<Arc<Dispatched>>, Refusal> {
        let is_followed = configuration.dispatch.is_some() || may_switch || info.class().is_long_running();
        // How this process does is told whatever policies say.
        if !is_followed || health::is_check(info) {
            return Ok(None);
        }
        let user_agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let (sender, dispatch) = (caller.sender(user, info)?, configuration.dispatch.clone());
        let may_act = || caller.rights().and_then(|rights| rights.is_known_to_act(info));
        let trace = caller.trace.as_ref();
        Dispatched::pass(self.dispatch(), dispatch, info, (sender, user_agent), &may_act, trace).map(Some)
    }

    /// An answer that is refused, or lacks something, because rights are not known: whoever may see the report is told
    /// of which clusters, and why.
    async fn told_of_rights(
        &self,
        answered: Result<Response<Body>, Refusal>,
        caller: &Caller,
    ) -> Result<Response<Body>, Refusal> {
        let Some(mirror) = &self.rights else { return answered };
        if caller.may_visit(report::PATH).await.is_err() {
            return answered;
        }
        let obstacles = mirror.obstacles();
        let mut answer = answered.map_err(|refusal| refusal.of_these(obstacles.clone()))?;
        answer.headers_mut().extend(unknown_rights::warnings(&obstacles).map(|warning| (header::WARNING, warning)));
        Ok(answer)
    }

    /// Answers a request for what no known cluster serves, once each has been asked anew what it serves.
    async fn answer_anew(
        self: &Arc<Self>,
        message: Request<Body>,
        received: Received<'_>,
        caller: &Caller,
        noted: &mut Noted<'_>,
    ) -> Result<Response<Body>, Refusal> {
        self.fleet.refresh(|_| true).await;
        let configuration = self.configuration();
        let unlisted = || configuration.unlisted(received.info.resource()?);
        let plan = match plan(received, message.headers(), &configuration, caller) {
            Err(Refusal::NoRoute) => match unlisted() {
                Some(served) => Plan::Resource(Arc::new(served), ResourcePlan::Unlisted),
                None => return Err(self.unless_undiscovered(&configuration, received.info, caller).await),
            },
            planned => planned?,
        };
        noted.source = plan.source();
        self.act(message, received, &configuration, caller, (plan, &mut noted.warning)).await
    }

    /// Refuses a resource that no discovery has. If discovery of a cluster is missing, out of date, or without a
    /// description of the version, the cluster may serve the resource: then the answer must not look like a deleted
    /// object, and a client may repeat a list or watch.
    async fn unless_undiscovered(
        &self,
        configuration: &ConfigurationSnapshot,
        info: &RequestInfo,
        caller: &Caller,
    ) -> Refusal {
        let Some(request) = info.resource() else { return Refusal::NoRoute };
        let is_unknown = |cluster: &Arc<Cluster>| {
            !configuration.has_told(cluster)
                || cluster.undescribed(&request.resource).is_some()
                || cluster.outdated(&request.resource).is_some() && !cluster.is_out_of_reach()
        };
        let clusters = &configuration.clusters;
        let unheard: Vec<_> = clusters.values().filter(|own| is_unknown(own)).collect();
        let told = asked::may_know(&unheard, caller, info.verb, request).await;
        let names: Vec<_> = unheard.iter().map(|own| own.name().clone()).filter(|name| told.has(name)).collect();
        let resource = &request.resource;
        if names.is_empty() && told.is_one_unknown() {
            let (resource, name) = (resource.clone(), request.name.clone().unwrap_or_default());
            return ClusterRefusal::rights_unknown(resource, name).into();
        }
        if names.is_empty() {
            return Refusal::NoRoute;
        }
        match info.verb {
            Verb::List | Verb::Watch => ClusterRefusal::unread(resource, names, UNDISCOVERED_RETRY_AFTER).into(),
            _ => {
                let name = request.name.clone().unwrap_or_default();
                let undescribed = names.iter().filter_map(|name| self.fleet.cluster(name));
                let undescribed = undescribed.filter(|cluster| cluster.undescribed(resource).is_some());
                let told: Vec<_> = undescribed.map(|cluster| cluster.undescribed_trouble(resource)).collect();
                let unknown = forward::owner::UnknownClusters { clusters: &names, troubles: &told };
                unknown.refuse(&self.fleet, resource.clone(), name).into()
            }
        }
    }

    /// A refusal as the answer.
    fn refuse(&self, refusal: &Refusal, preferences: &Preferences, info: &RequestInfo) -> Response<Body> {
        if matches!(refusal, Refusal::NoRoute) && info.cluster.is_none() && !self.has_root(&info.path) {
            return response::page_not_found();
        }
        let status = &refusal.status();
        let mut response = response::status(status, preferences.error_form());
        match info.resource() {
            // They name clusters, and not everybody may know of each.
            Some(_) if self.rights.is_some() => {}
            Some(request) if info.cluster.is_none() && !matches!(refusal, Refusal::NoRoute | Refusal::Route(_)) => {
                // Refused reads are warned of a deprecated version, too.
                if let Some(view) = self.views.all().find(|view| view.kind.resource == request.resource) {
                    view.warnings.add_to(response.headers_mut());
                }
            }
            // client-go shows nobody the message of such a Status (`newUnstructuredResponseError`), but prints
            // Warnings; and discovery comes before all else that kubectl does.
            None if status.code == StatusCode::SERVICE_UNAVAILABLE.as_u16() => {
                response.headers_mut().extend(
                    tributary_answers::warnings::warning_header(&status.message).map(|it| (header::WARNING, it)),
                );
            }
            _ => {}
        }
        let warnings = refusal.warnings().iter().filter_map(|text| tributary_answers::warnings::warning_header(text));
        response.headers_mut().extend(warnings.map(|warning| (header::WARNING, warning)));
        response
    }

    /// Whether kube-apiserver answers for all paths that begin as this one does:
    /// below `/api`, and below groups that exist.
    fn has_root(&self, path: &str) -> bool {
        let mut segments = path.split('/').skip(1);
        match (segments.next(), segments.next()) {
            (Some("api"), _) | (Some("apis"), None | Some("")) => true,
            (Some("apis"), Some(group)) => self.fleet.union().has_document(&DiscoveryPath::Group(group)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RouterConfig, forward};

    /// The size of a request's future in bytes, until the answer begins: 32 MB for 4,000 requests in flight. An idle
    /// watch holds no such future: the listener boxes it, and drops the box when the head of the answer is there.
    const FUTURE_BYTES_MAX: usize = 31 << 8;

    /// What one that is passed on takes besides, in bytes. It is allocated and copied for each: with all that a dial
    /// holds it was 32 KB, two thirds of a core's first cache.
    const PASSED_BYTES_MAX: usize = 9 << 10;

    #[tokio::test]
    async fn a_request_in_flight_is_small() {
        let router = Router::new(RouterConfig::default());
        let user = User::named("test", "somebody");
        let bytes = size_of_val(&router.handle(Request::new(body::empty()), &user));
        assert!(bytes <= FUTURE_BYTES_MAX, "{bytes} bytes");
    }

    #[tokio::test]
    async fn a_request_that_is_passed_on_is_small() {
        let router = Router::new(RouterConfig::default());
        let (user, message) = (User::named("test", "somebody"), Request::new(body::empty()));
        let caller =
            Caller::from_request(message.headers(), message.extensions(), &user, router.rights()).ok().unwrap();
        let info = RequestInfo::parse("GET", "/clusters/a/api/v1/pods", None).unwrap();
        let (name, preferences) = (info.cluster.clone().unwrap(), Preferences::from_headers(message.headers(), None));
        let (configuration, is_head) = (router.configuration(), false);
        let may_switch = false;
        let received = Received { info: &info, query: None, is_head, may_switch, preferences: &preferences };
        let passed = forward::one_cluster::forward(&router, &configuration, &caller, message, received, &name);
        let bytes = size_of_val(&passed);
        assert!(bytes <= PASSED_BYTES_MAX, "{bytes} bytes");
    }
}
